"""One reader's way through a partition: what to ask for next, and which of what comes is to be believed."""

from enum import Enum, auto

from attrs import define, evolve

from ....ports.broker_api.fetch import FetchResultPartition
from ....ports.errors import ApiError
from ....ports.storage import Region
from ....ports.types import Buffer, TopicPartition
from ....ports.values import frozen
from ...message.aborted_transactions import filter_aborted
from ...message.batch_header import HEADER_SIZE, LONG_MAX, BatchHeader
from ...message.batch_sequence import (
    Batches,
    BatchSequence,
    SequenceFault,
    ValidationContext,
    find_next_intact,
    validate_batches,
)
from ...message.corrupt_record import CorruptRecord, Damage


class CorruptionProbe:
    """Asks at offsets twice as far away each time, then halves what lies between: about 2 log2(n) questions at most.

    For damage that does not show where it ends. A broker finds batches by its index, so that from some offset on it
    finds again what lies behind.
    """

    def __init__(self, start: int, end: int, reason: str) -> None:
        """`start` cannot be read; `end` is the end of the log (exclusive), or more."""
        self.start = start
        self.reason = reason
        self._below = start
        self._above = self._behind = end
        self._step = 1

    def limit(self, end: int) -> None:
        """The log ends there, at the latest."""
        if end < self._above:
            self._above = max(end, self.start + 1)
            self._behind = self._above
            self._step = 0

    @property
    def found(self) -> int | None:
        """Where to go on (the end: nothing behind can be read); None while there is something to ask."""
        return self._behind if self._above - self._below <= 1 else None

    @property
    def offset(self) -> int:
        """Where to ask next."""
        if self._step:
            return min(self._below + self._step, self._above - 1)
        return (self._below + self._above) // 2

    def told(self, offset: int, base_offset: int | None) -> None:
        """What is read from `offset` on begins at `base_offset`; None: nothing there is to be believed."""
        if base_offset is None:
            self._below = max(self._below, min(offset, self._above - 1))
            self._step *= 2
        else:
            self._above = min(offset, max(self._below + 1, base_offset))
            self._behind = max(self._above, base_offset)
            self._step = 0


EMPTY_FETCHES_MAX = 5
"""So often a broker may bring nothing of a partition that goes on, by its own word."""
BEYOND_END_MAX = 2
"""So often a batch may lie beyond the end that came with it: Kafka tells the end as it was before it read."""
_BYTES_MAX = 0x7FFFFFFF
_STEP_BYTES = 65_536


@frozen(kw_only=True)
class PartitionFetchSettings:
    """`bytes_max` bounds what is asked for when a batch does not fit into `max_bytes`."""

    max_bytes: int = 1_048_576
    bytes_max: int = 52_428_800
    check_crc: bool = True
    skip_damaged: bool = False
    committed_only: bool = False


class _ProbeState(Enum):
    """Why the next answer is not taken as usual."""

    NONE = auto()
    LOOK_BACK = auto()
    """A batch does not begin where it was to. Asked from before it: does it follow the one before?"""
    WITNESS = auto()
    """The last batch of a segment is behind a gap. Asked at its last offset: is it found there?"""
    TRUST = auto()
    """A gap counts as one."""


@define
class CheckedRecords:
    """Records to hand out, none perhaps: from `from_offset` on, up to `next_offset`."""

    records: Buffer
    batches: Batches
    from_offset: int
    next_offset: int
    damage: Damage | None = None
    """What was left out before `next_offset`."""


class FetchPosition:
    """Tells what to fetch (`ask`), and takes what came (`answered`, `refused`): a piece, or None to ask again.

    Both raise `CorruptRecord` for what cannot be believed at `position`, or go on behind it if that is wanted. Every
    piece gets on, and what brings none is bounded, so that damage is never asked for for ever.
    """

    def __init__(self, place: TopicPartition, rules: PartitionFetchSettings) -> None:
        self.place = place
        self.rules = rules
        self.position = -1
        """The next offset to hand out; -1 while not known."""
        self.epoch = -1
        """The leader epoch of the batch before `position`; -1 while not known."""
        self.pause = False
        """It pays to wait before asking again."""
        self.at_end = False
        """There was nothing to be had but what may be appended later."""
        self.urgent = False
        """The partition is to be asked for before others: the answers' bytes went to them."""
        self._on_boundary = self._gaps_seen = False
        self._end = -1
        self._shunning = False
        self._shunned: BatchHeader | None = None
        self._leapt: BatchHeader | None = None
        self._doubt = _ProbeState.NONE
        self._detour: CorruptionProbe | None = None
        self._asked = self._before = self._asked_bytes = self._max_bytes = 0
        self._empty = self._beyond = 0

    def jump(self, offset: int, epoch: int = -1) -> None:
        """Go on there, behind a batch of that leader epoch."""
        self.position, self.epoch = offset, epoch
        self._on_boundary = self._gaps_seen = False
        self._shunned = self._leapt = None
        self._shunning = False
        self._settle()

    @property
    def exploring(self) -> bool:
        """What is asked for next is not `position`: that it is not there means nothing."""
        return self._detour is not None or self._doubt in (_ProbeState.LOOK_BACK, _ProbeState.WITNESS)

    def ask(self) -> tuple[int, int]:
        """(offset, max bytes) of the next fetch."""
        self._asked = self.position
        if self._detour is not None:
            self._asked = self._detour.offset
        elif self._doubt is _ProbeState.LOOK_BACK:
            self._asked = self._before
        elif self._doubt is _ProbeState.WITNESS and self._leapt is not None:
            self._asked = self._leapt.last_offset
        self._asked_bytes = self._max_bytes or self.rules.max_bytes
        return self._asked, self._asked_bytes

    @property
    def asked_epoch(self) -> int:
        """The leader epoch of what lies before the offset that was last asked for; -1 = not known."""
        return self.epoch if self._asked == self.position else -1

    def answered(self, found: FetchResultPartition, *, first: bool = True) -> CheckedRecords | None:
        """`found` has no error; `first`: the partition was the first that was asked for, so that a whole batch fits."""
        self.pause = self.at_end = False
        records = _bytes_of(found.records)
        if found.high_watermark >= 0:
            self._end = found.high_watermark
        trust = self._trust(found, records)
        chain = validate_batches(records, self._asked, trust)
        self._gaps_seen |= chain.gaps_seen
        if self._detour is not None:
            return self._explored(self._detour, found.high_watermark, chain)
        if self._doubt is _ProbeState.WITNESS:
            return self._testified(chain, records, found, trust)
        if chain.suspect is not None and chain.suspect.header != self._leapt:
            if chain.suspect.expected <= self.position:
                self._doubt, self._leapt = _ProbeState.WITNESS, chain.suspect.header
                return None
            chain.truncate_before(chain.suspect)  # it is looked at when what is before is handed out
        if chain.next_offset > self.position:
            return self._got_on(chain, records, found, self._lost(chain))
        if chain.fault is not None:
            if chain.fault.expected < self.position and not chain.batches:  # what is before is none of ours
                self._doubt = _ProbeState.TRUST
                return None
            return self._wrong(chain.fault, records, found, trust)
        if chain.probe_offset >= 0:
            self._doubt, self._before = _ProbeState.LOOK_BACK, chain.probe_offset
            return None
        if chain.unconfirmed or (self._doubt is _ProbeState.LOOK_BACK and trust.has_more):
            self._max_bytes = max(chain.cut_bytes, self._larger())
            return None
        if len(records) and (chain.cut_bytes or not chain.batches):
            return self._cut(chain, records, found, trust, first)
        if self._doubt is _ProbeState.LOOK_BACK:  # a segment ends there
            self._doubt = _ProbeState.TRUST
            return None
        return self._nothing(found, first)

    def refused(self, reason: str, *, out_of_range: bool = False) -> CheckedRecords | None:
        """The broker cannot read what was asked for, or (`out_of_range`, while `exploring`) has no such offset."""
        if self._detour is not None:
            return self._explored(self._detour, self._asked - 1 if out_of_range else -1, None)
        if self.exploring:
            self._doubt = _ProbeState.TRUST
            return None
        return self._leave_out(reason)

    def _lost(self, chain: BatchSequence) -> Damage | None:
        """After damage, a broker may no longer find what it brought before, and so not what lay behind that either."""
        base = chain.batches[0][1].base_offset
        if self._shunning and self._doubt is _ProbeState.LOOK_BACK and base > self.position:
            return Damage(*self.place, self.position, base, "the broker does not find what is there")
        return None

    def _testified(
        self, chain: BatchSequence, records: memoryview, found: FetchResultPartition, trust: ValidationContext
    ) -> CheckedRecords | None:
        assert self._leapt is not None
        self._doubt = _ProbeState.TRUST
        if chain.batches and chain.batches[0][1] == self._leapt:
            return None
        leapt, self._leapt = self._leapt, None
        text = f"a batch claims the offsets {leapt.base_offset} to {leapt.last_offset}; another one has them"
        return self._wrong(SequenceFault(len(records), self.position, text, leapt), records, found, trust)

    # --- what comes of it

    def _trust(self, found: FetchResultPartition, records: memoryview) -> ValidationContext:
        doubted = self._doubt is not _ProbeState.NONE or self._detour is not None
        return ValidationContext(
            log_end_offset=found.high_watermark if found.high_watermark >= 0 else LONG_MAX,
            check_crc=self.rules.check_crc,
            allows_gaps=doubted or self._gaps_seen or self._asked <= max(0, found.log_start_offset),
            starts_at_boundary=self._on_boundary and self._asked == self.position,
            has_more=len(records) >= self._asked_bytes and self._larger() > self._asked_bytes,
            rejected=self._shunned,
        )

    def _got_on(
        self, chain: BatchSequence, records: memoryview, found: FetchResultPartition, damage: Damage | None = None
    ) -> CheckedRecords:
        batches = chain.batches
        if self.rules.committed_only and found.aborted:
            try:
                batches = filter_aborted(batches, records, found.aborted)
            except ApiError as error:
                raise CorruptRecord(*self.place, self.position, error.message) from error
        position, header = chain.batches[-1]
        begin = self.position if damage is None else damage.end
        piece = CheckedRecords(records[: position + header.size], batches, begin, chain.next_offset, damage)
        self._move(chain.next_offset, header.leader_epoch)
        return piece

    def _wrong(
        self, fault: SequenceFault, records: memoryview, found: FetchResultPartition, trust: ValidationContext
    ) -> CheckedRecords | None:
        """What came for `position` cannot be believed."""
        if fault.beyond_end and self._beyond < BEYOND_END_MAX:
            self._beyond += 1
            self.pause = True
            return None
        if not self.rules.skip_damaged:
            raise CorruptRecord(*self.place, self.position, fault.reason)
        if trust.log_end_offset <= self.position:  # there is nothing to go on to, yet
            self.pause = self.at_end = True
            return None
        behind = find_next_intact(records, fault, trust)
        if behind is None and trust.has_more:
            self._max_bytes = self._larger()
            return None
        self._shunned, self._shunning = fault.header, True
        if behind is None:
            if fault.header is not None and self._on_boundary:
                return self._skip(
                    min(trust.log_end_offset, self.position + fault.header.last_offset_delta + 1), fault.reason
                )
            return self._leave_out(fault.reason)
        position, header = behind
        sure = evolve(trust, allows_gaps=True, starts_at_boundary=True, has_more=False)
        chain = validate_batches(records, header.base_offset, sure, position)
        damage = Damage(*self.place, self.position, header.base_offset, fault.reason)
        return self._got_on(chain, records, found, damage if damage.start < damage.end else None)

    def _leave_out(self, reason: str) -> CheckedRecords | None:
        """Nothing can be read at `position`, and nothing shows where it can be again."""
        if not self.rules.skip_damaged:
            raise CorruptRecord(*self.place, self.position, reason)
        self._shunning = True
        self._detour = CorruptionProbe(self.position, self._end if self._end > self.position else LONG_MAX, reason)
        return self._past(self._detour)

    def _explored(self, detour: CorruptionProbe, end: int, chain: BatchSequence | None) -> CheckedRecords | None:
        if end >= 0:
            detour.limit(end)
        detour.told(self._asked, chain.batches[0][1].base_offset if chain is not None and chain.batches else None)
        return self._past(detour)

    def _past(self, detour: CorruptionProbe) -> CheckedRecords | None:
        return None if detour.found is None else self._skip(detour.found, detour.reason)

    def _skip(self, behind: int, reason: str) -> CheckedRecords:
        damage = Damage(*self.place, self.position, behind, reason)
        self._move(behind)
        self._doubt = _ProbeState.TRUST
        return CheckedRecords(b"", [], behind, behind, damage)

    def _larger(self) -> int:
        """How many bytes to ask for next, when what came was not enough."""
        return max(self._asked_bytes, min(self._largest, max(_STEP_BYTES, 2 * self._asked_bytes)))

    @property
    def _largest(self) -> int:
        return min(_BYTES_MAX, max(self.rules.bytes_max, self.rules.max_bytes))

    def _cut(
        self,
        chain: BatchSequence,
        records: memoryview,
        found: FetchResultPartition,
        trust: ValidationContext,
        first: bool,
    ) -> CheckedRecords | None:
        """The answer ends within a batch: an old broker, a small limit; or the batch lies about its size."""
        if not first:
            self.urgent = True
            return None
        needed = chain.cut_bytes or max(HEADER_SIZE, 2 * self._asked_bytes)
        reason = ""
        if needed > self._largest:
            reason = f"a batch claims {needed} bytes; if it is so large, raise fetch.max.bytes ({self._largest})"
        elif needed <= self._asked_bytes or (not chain.cut_bytes and len(records) < self._asked_bytes):
            reason = f"a batch claims {chain.cut_bytes or 'some'} bytes, of which {len(records)} are there"
        if not reason:
            self._max_bytes = needed if chain.cut_bytes else self._larger()
            return None
        if self._doubt is _ProbeState.LOOK_BACK:
            self._doubt = _ProbeState.TRUST
            return None
        return self._wrong(SequenceFault(0, self.position, reason), records, found, trust)

    def _nothing(self, found: FetchResultPartition, first: bool) -> CheckedRecords | None:
        stable = found.last_stable_offset
        readable = stable if self.rules.committed_only and stable >= 0 else found.high_watermark
        if self.position >= readable:
            self._empty, self.urgent, self.at_end = 0, False, True
            return None
        self.urgent = self.pause = True
        self._empty += first
        if self._empty < EMPTY_FETCHES_MAX:
            return None
        self._empty = 0
        return self._leave_out(f"the broker brings nothing, although the partition goes on to offset {readable}")

    def _move(self, offset: int, epoch: int = -1) -> None:
        self.position, self.epoch = offset, epoch
        self._on_boundary = True
        self._settle()

    def _settle(self) -> None:
        self._doubt = _ProbeState.NONE
        self._detour = None
        self._asked = self._asked_bytes = self._max_bytes = 0
        self._empty = self._beyond = 0
        self.urgent = self.pause = self.at_end = False


def _bytes_of(records: Buffer | Region) -> memoryview:
    return memoryview(records if isinstance(records, bytes | bytearray | memoryview) else records.read())
