"""The fetch position of one partition, with validation of the fetched batches."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from attrs import evolve

from ....ports.broker_api.fetch import AbortedTransaction, FetchResultPartition
from ....ports.broker_api.offsets import ListOffsetsResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.storage import Region
from ....ports.types import Buffer, TopicPartition
from ....ports.values import define, frozen
from ...message.batch_header import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LONG_MAX,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    is_crc_valid,
    parse_header,
)
from ...message.batch_reader import batch_size, open_records
from ...message.codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from ...message.corrupt_record import CorruptRecord, Damage
from ...message.legacy_records import convert_records, is_legacy


class CorruptionProbe:
    """Finds the end of damage that does not show where it ends, by at most about 2 log2(n) fetches.

    It fetches at offsets twice as far away each time, then bisects the rest. A broker finds batches by its index, so
    from some offset on it finds the batches behind the damage again.
    """

    def __init__(self, start: int, end: int, reason: str) -> None:
        """`start` cannot be read; `end` is the end of the log (exclusive), or more."""
        self.start = start
        self.reason = reason
        self._below = start
        self._above = self._behind = end
        self._step = 1

    def limit(self, end: int) -> None:
        """Lower the end of the log to `end`."""
        if end < self._above:
            self._above = max(end, self.start + 1)
            self._behind = self._above
            self._step = 0

    @property
    def found(self) -> int | None:
        """The next readable offset, or the end of the log if none is; None while the search is not over."""
        return self._behind if self._above - self._below <= 1 else None

    @property
    def offset(self) -> int:
        """The offset to fetch next."""
        if self._step:
            return min(self._below + self._step, self._above - 1)
        return (self._below + self._above) // 2

    def on_result(self, offset: int, base_offset: int | None) -> None:
        """A fetch from `offset` returned a batch that begins at `base_offset`; None: no valid batch."""
        if base_offset is None:
            self._below = max(self._below, min(offset, self._above - 1))
            self._step *= 2
        else:
            self._above = min(offset, max(self._below + 1, base_offset))
            self._behind = max(self._above, base_offset)
            self._step = 0


EMPTY_FETCHES_MAX = 5
"""The number of consecutive empty fetches below the high watermark after which the local log start is looked up."""
BEYOND_END_MAX = 2
"""The maximum of consecutive batches beyond the end in their response: Kafka reads the end before the records."""
_BYTES_MAX = 0x7FFFFFFF
_STEP_BYTES = 65_536


@frozen(kw_only=True)
class PartitionFetchSettings:
    """`bytes_max` bounds the size of a fetch when a batch does not fit into `max_bytes`."""

    max_bytes: int = 1_048_576
    bytes_max: int = 52_428_800
    check_crc: bool = True
    skip_damaged: bool = False
    committed_only: bool = False


class _ProbeState(Enum):
    """The reason why the next fetch is a check, and not an ordinary fetch."""

    NONE = auto()
    CHECK_PREDECESSOR = auto()
    """A batch has an unexpected base offset. Fetch from before it, to see whether it follows its predecessor."""
    CONFIRM_SUSPECT = auto()
    """The last batch of a segment is behind a gap. Fetch its last offset, to see whether the broker finds it."""
    ACCEPT_GAP = auto()
    """The next gap is accepted, as one that compaction left."""


# Validation of the order of the batches in one fetch.
#
# The CRC covers neither the base offset of a batch nor its length and magic byte: only the neighbours of a batch
# reveal that these are corrupt. Compaction leaves gaps between batches, but batches never overlap or go back.

Batches = list[tuple[int, BatchHeader]]
"""The (position, header) of each batch."""
_MAGIC = bytes([MAGIC])


class SequenceFault(NamedTuple):
    """The reason why the batch at `position`, where offset `expected` should begin, is invalid."""

    position: int
    expected: int
    reason: str
    header: BatchHeader | None = None
    """The header, if the CRC confirms all of it but the base offset."""
    beyond_end: bool = False
    """True if the batch lies beyond the log end offset of the response."""


class BatchSequence:
    """The valid batches at the start of a fetch, and the state after them."""

    __slots__ = ("batches", "cut_bytes", "fault", "gaps_seen", "next_offset", "probe_offset", "suspect", "unconfirmed")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Offset to fetch next."""
        self.batches: Batches = []
        """The (position, header) of each valid batch, in order."""
        self.fault: SequenceFault | None = None
        self.cut_bytes = 0
        """Bytes needed to complete a truncated batch at the end; 0 without one, or if its size is unknown."""
        self.probe_offset = -1
        """Offset to fetch instead, if >= 0: the first batch starts at an unexpected offset, and the batch before it is
        needed to judge it."""
        self.unconfirmed = False
        """True if the last batch, after a gap, is left out until the batch after it confirms its offset."""
        self.suspect: SequenceFault | None = None
        """The fault to report if the base offset of the last batch proves wrong: it follows a gap and nothing follows
        it."""
        self.gaps_seen = False
        """True if a gap between two valid batches was seen: the log is compacted."""

    def truncate_before(self, gap: SequenceFault) -> None:
        """Drop the suspect batch and all batches after it."""
        while self.batches and self.batches[-1][0] >= gap.position:
            self.batches.pop()
        self.next_offset = gap.expected


@frozen(kw_only=True)
class ValidationContext:
    """Facts about the records of a fetch that the records do not contain."""

    log_end_offset: int = LONG_MAX
    """Log end offset of the response (exclusive)."""
    check_crc: bool = True
    allows_gaps: bool = False
    """True if the log has gaps or the batch before is known: a batch after a gap is valid."""
    starts_at_boundary: bool = False
    """True if a batch ends just before the wanted offset, so that no batch begins before it."""
    has_more: bool = False
    """True if the log may have more batches after these."""
    rejected: BatchHeader | None = None
    """A batch whose base offset proved wrong."""


def validate_batches(records: Buffer, wanted: int, context: ValidationContext, start: int = 0) -> BatchSequence:
    """Validate the batches fetched from offset `wanted` on, up to the first invalid one.

    `start` is the position of the first batch, which must contain `wanted` or follow it.
    """
    chain = BatchSequence(wanted)
    position, size = start, len(records)
    gap: SequenceFault | None = None  # the batch before follows a gap: its base offset may be the wrong one
    while position + LENGTH_OVERHEAD <= size:
        header: BatchHeader | None = None
        try:
            length = batch_size(records, position)
            if position + HEADER_SIZE <= size:
                header = parse_header(records, position)
        except ApiError as error:
            chain.fault = SequenceFault(position, chain.next_offset, error.message)
            break
        if header is None or position + length > size:
            chain.cut_bytes = position + length
            break
        if header == context.rejected:
            position += length
            continue
        chain.fault = _find_content_fault(records, position, header, chain, context) or _find_order_fault(
            position, header, chain, context
        )
        if chain.fault is not None:
            _attribute_fault(chain, gap, header)
            break
        chain.gaps_seen |= gap is not None
        if not chain.batches and not context.allows_gaps and header.base_offset != wanted and header.base_offset > 0:
            chain.probe_offset = min(wanted, header.base_offset) - 1
            return chain
        gap = _suspect_gap(position, header, chain.next_offset)
        chain.batches.append((position, header))
        chain.next_offset = header.next_offset
        position += length
    if gap is not None and chain.fault != gap and (context.has_more or not context.allows_gaps):
        chain.truncate_before(gap)  # the next fetch returns it again, with its successor
        chain.unconfirmed, chain.fault, chain.cut_bytes = True, None, 0
    elif gap is not None and chain.fault is None:
        chain.suspect = gap
    return chain


def find_next_intact(
    records: Buffer, fault: SequenceFault, context: ValidationContext
) -> tuple[int, BatchHeader] | None:
    """Return (position, header) of the next intact batch after an invalid one.

    The end that the invalid batch claims is tried first, then every position with a magic byte.
    """
    view = memoryview(records)
    claimed = fault.position
    if claimed + LENGTH_OVERHEAD <= len(view):
        claimed += LENGTH_OVERHEAD + int.from_bytes(view[claimed + 8 : claimed + LENGTH_OVERHEAD], "big", signed=True)
    if claimed > fault.position and (header := _intact_at(view, claimed, fault, context, check_crc=context.check_crc)):
        return claimed, header
    data = bytes(view)
    mark = data.find(_MAGIC, fault.position + 1 + MAGIC_AT)
    while mark >= 0:
        position = mark - MAGIC_AT
        if header := _intact_at(view, position, fault, context, check_crc=True):
            return position, header
        mark = data.find(_MAGIC, mark + 1)
    return None


def _find_content_fault(
    records: Buffer, position: int, header: BatchHeader, chain: BatchSequence, context: ValidationContext
) -> SequenceFault | None:
    """Return the fault in the batch itself, or None."""
    expected = chain.next_offset
    if context.check_crc and not is_crc_valid(records, header, position):
        text = f"the CRC-32C of a batch does not match its content ({header.size} bytes, base {header.base_offset})"
        return SequenceFault(position, expected, text)
    if header.count > header.last_offset_delta + 1:
        text = f"a batch of {header.count} records has the last offset delta {header.last_offset_delta}"
        return SequenceFault(position, expected, text)
    if header.next_offset > context.log_end_offset:
        claim = f"record batch with offsets {header.base_offset} to {header.last_offset}"
        text = f"{claim} beyond the log end offset {context.log_end_offset}"
        return SequenceFault(position, expected, text, header if context.check_crc else None, beyond_end=True)
    return None


def _find_order_fault(
    position: int, header: BatchHeader, chain: BatchSequence, context: ValidationContext
) -> SequenceFault | None:
    """Return the fault in the place of the batch, or None."""
    expected = chain.next_offset
    overlaps = chain.batches or (context.starts_at_boundary and context.allows_gaps)
    if (header.base_offset if overlaps else header.last_offset) >= expected:
        return None
    text = f"record batch with offsets {header.base_offset} to {header.last_offset}, which were read before"
    return SequenceFault(position, expected, text, header if context.check_crc else None)


def _suspect_gap(position: int, header: BatchHeader, expected: int) -> SequenceFault | None:
    if header.base_offset <= expected:
        return None
    text = (
        f"record batch with offsets {header.base_offset} to {header.last_offset}, but the next batch has lower offsets"
    )
    return SequenceFault(position, expected, text, header)


def _attribute_fault(chain: BatchSequence, gap: SequenceFault | None, header: BatchHeader) -> None:
    """Attribute the fault to the suspect batch before, if this batch is valid without it."""
    fault = chain.fault
    assert fault is not None
    if gap is not None and fault.header is not None and not fault.beyond_end and gap.expected <= header.base_offset:
        chain.fault = gap
        chain.truncate_before(gap)


def _intact_at(
    view: memoryview, position: int, fault: SequenceFault, context: ValidationContext, *, check_crc: bool
) -> BatchHeader | None:
    try:
        header = parse_header(view, position)
    except ApiError:
        return None
    fits = (
        fault.expected <= header.base_offset and header.next_offset <= context.log_end_offset and header != fault.header
    )
    if not fits or position + header.size > len(view) or header.count > header.last_offset_delta + 1:
        return None
    return header if not check_crc or is_crc_valid(view, header, position) else None


@define
class CheckedRecords:
    """Validated records of one fetch, maybe none: from `from_offset` on, up to `next_offset`."""

    records: Buffer
    batches: Batches
    from_offset: int
    next_offset: int
    damage: Damage | None = None
    """The damaged offsets that were skipped before `next_offset`."""


# The filter of read_committed consumers: batches of aborted transactions are left out (KIP-98).

_ABORT = b"\0\0\0\0"
"""Key of an abort marker: version 0, type 0."""


def filter_aborted(batches: Batches, records: Buffer, aborted: Sequence[AbortedTransaction]) -> Batches:
    """Return (position, header) of the batches of `records` that belong to no aborted transaction.

    `aborted` is the list of the fetch response: the batches of a producer are aborted from `first_offset` up to the
    abort marker of that producer. Markers stay. Raises `ApiError` for a control batch that cannot be read.
    """
    if not aborted:
        return batches
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_now: set[int] = set()
    committed: Batches = []
    for position, header in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_now.add(waiting.pop().producer_id)
        if header.control:
            if header.producer_id in open_now and _is_abort_marker(records, position, header):
                open_now.discard(header.producer_id)
        elif header.transactional and header.producer_id in open_now:
            continue
        committed.append((position, header))
    return committed


def _is_abort_marker(records: Buffer, position: int, header: BatchHeader) -> bool:
    batch = memoryview(records)[position : position + header.size]
    try:
        keys = open_records(batch, header, NO_CODECS, max_bytes=DECOMPRESSED_BYTES_MAX, with_headers=False).keys
    except ApiError as error:
        text = f"the marker of a transaction at offset {header.base_offset}: {error.message}"
        raise ApiError(error.code, text) from error
    return bool(keys) and keys[0] == _ABORT


class FetchPosition:
    """Determines the next fetch (`ask`); `answered` and `refused` return records, or None to fetch again.

    Both raise `CorruptRecord` for invalid records at `position`, or skip these with `skip_damaged`. All returned
    records advance the position, and fetches without any are bounded, so that damage cannot cause endless fetches.

    Not so where the leader has no local log: Kafka's brokers answer a fetch without records and without an error while
    remote storage is slow. So several empty answers show damage only if the leader has the offset locally, which is
    looked up after them (`awaits_local_start`, `on_local_start`).
    """

    def __init__(self, tp: TopicPartition, rules: PartitionFetchSettings, codecs: Codecs = NO_CODECS) -> None:
        """`codecs` are for messages from before Kafka 0.11."""
        self.tp = tp
        self.rules = rules
        self._codecs = codecs
        self.position = -1
        """The next offset to hand out; -1 while not known."""
        self.epoch = -1
        """The leader epoch of the batch before `position`; -1 while not known."""
        self.pause = False
        """The next fetch should back off."""
        self.at_end = False
        """The position is the end of the readable log."""
        self.urgent = False
        """The next fetch names this partition first: other partitions used up the bytes of the last response."""
        self.is_remote = False
        """Only remote storage has the position, and brings nothing for now."""
        self.from_follower = False
        """The answer comes from a follower: damage is not skipped, since the leader may have what it lacks."""
        self._on_boundary = self._gaps_seen = False
        self._end = -1
        self._has_rejected = False
        self._rejected: BatchHeader | None = None
        self._suspect: BatchHeader | None = None
        self._refuted: BatchHeader | None = None
        """A suspect batch that the broker did not find at its offsets: invalid, or compacted away meanwhile."""
        self._probe_state = _ProbeState.NONE
        self._probe: CorruptionProbe | None = None
        self._asked = self._before = self._asked_bytes = self._max_bytes = 0
        self._empty = self._beyond = 0
        self._leader = (-1, -1)
        self._silent: FetchResultPartition | None = None
        """The empty answer after which the local log start is looked up."""
        self._was_local = False

    def jump(self, offset: int, epoch: int = -1) -> None:
        """Move to `offset`; `epoch` is the leader epoch of the batch before it."""
        self.position, self.epoch = offset, epoch
        self._on_boundary = self._gaps_seen = False
        self._rejected = self._suspect = self._refuted = None
        self._has_rejected = False
        self._reset()

    @property
    def exploring(self) -> bool:
        """True if the next fetch is a check elsewhere, so that OFFSET_OUT_OF_RANGE says nothing about `position`."""
        return self._probe is not None or self._probe_state in (
            _ProbeState.CHECK_PREDECESSOR,
            _ProbeState.CONFIRM_SUSPECT,
        )

    def awaits_local_start(self, leader: tuple[int, int]) -> bool:
        """Return True if the next request to this leader is to be for EARLIEST_LOCAL instead of a fetch."""
        self._turn_to(leader)
        return self._silent is not None

    def _turn_to(self, leader: tuple[int, int]) -> None:
        """Forget empty answers of another leader: its local log may begin elsewhere."""
        if leader != self._leader:
            self._leader = leader
            self._silent, self._empty, self._was_local = None, 0, False

    def ask(self, leader: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
        """Return (offset, max bytes) of the next fetch; `leader`: the broker that is asked, and the leader epoch."""
        self._turn_to(leader)
        self._asked = self.position
        if self._probe is not None:
            self._asked = self._probe.offset
        elif self._probe_state is _ProbeState.CHECK_PREDECESSOR:
            self._asked = self._before
        elif self._probe_state is _ProbeState.CONFIRM_SUSPECT and self._suspect is not None:
            self._asked = self._suspect.last_offset
        self._asked_bytes = self._max_bytes or self.rules.max_bytes
        return self._asked, self._asked_bytes

    @property
    def asked_epoch(self) -> int:
        """The leader epoch of the record before the offset fetched last; -1 = not known."""
        return self.epoch if self._asked == self.position else -1

    def answered(self, found: FetchResultPartition, *, first: bool = True) -> CheckedRecords | None:
        """Process a result without error; `first`: it was the request's first partition, so that a whole batch fits."""
        self.pause = self.at_end = False
        records = _bytes_of(found.records)
        if found.high_watermark >= 0:
            self._end = found.high_watermark
        if not len(records) and self._asked < self._readable(found):
            self.urgent = self.pause = True
            self._empty += first
            if self._empty >= EMPTY_FETCHES_MAX or (first and self._was_local):
                self._silent, self.pause = found, False
            return None
        return self._on_result(found, records, first)

    def on_local_start(self, offset: int) -> CheckedRecords | None:
        """Process the beginning of the leader's local log, if `awaits_local_start`. It never falls in a leader epoch,
        so an offset from there on was local in the empty answers before."""
        found, self._silent, self._empty = self._silent, None, 0
        self._was_local = offset <= self._asked
        self.is_remote = not self._was_local
        if found is None or self.is_remote:
            self.pause = True
            return None
        return self._on_result(found, memoryview(b""), first=True)

    def _on_result(self, found: FetchResultPartition, records: memoryview, first: bool) -> CheckedRecords | None:
        trust = self._trust(found, records)
        chain = validate_batches(records, self._asked, trust)
        if chain.fault is not None and is_legacy(records, chain.fault.position):
            records = self._converted(records)
            chain = validate_batches(records, self._asked, trust)
        self._gaps_seen |= chain.gaps_seen
        if self._probe is not None:
            return self._on_probed(self._probe, found.high_watermark, chain)
        if self._probe_state is _ProbeState.CONFIRM_SUSPECT:
            return self._on_suspect_checked(chain, records, found, trust)
        if chain.suspect is not None and chain.suspect.header != self._suspect:
            if chain.suspect.expected <= self.position:
                self._probe_state, self._suspect = _ProbeState.CONFIRM_SUSPECT, chain.suspect.header
                return None
            chain.truncate_before(chain.suspect)  # it is looked at when what is before is handed out
        if chain.next_offset > self.position:
            return self._advance(chain, records, found, self._lost(chain))
        if chain.fault is not None:
            if chain.fault.expected < self.position and not chain.batches:  # what is before is none of ours
                self._probe_state = _ProbeState.ACCEPT_GAP
                return None
            return self._on_fault(chain.fault, records, found, trust)
        if chain.probe_offset >= 0:
            self._probe_state, self._before = _ProbeState.CHECK_PREDECESSOR, chain.probe_offset
            return None
        if chain.unconfirmed or (self._probe_state is _ProbeState.CHECK_PREDECESSOR and trust.has_more):
            self._max_bytes = max(chain.cut_bytes, self._larger())
            return None
        if len(records) and (chain.cut_bytes or not chain.batches):
            return self._cut(chain, records, found, trust, first)
        if self._probe_state is _ProbeState.CHECK_PREDECESSOR:  # a segment ends there
            self._probe_state = _ProbeState.ACCEPT_GAP
            return None
        return self._nothing(found)

    def _converted(self, records: memoryview) -> memoryview:
        """Return the batches of messages from before Kafka 0.11; what cannot be read stays, as an invalid batch.

        Each message becomes a batch of its own, which does not depend on where a fetch begins.
        """
        try:
            converted = convert_records(records, self._codecs)
        except ApiError:
            return records
        return memoryview(converted.records) if converted.consumed else records

    def refused(self, reason: str, *, out_of_range: bool = False) -> CheckedRecords | None:
        """Handle a broker that cannot read the offset, or (`out_of_range`, while `exploring`) does not have it."""
        if self._probe is not None:
            return self._on_probed(self._probe, self._asked - 1 if out_of_range else -1, None)
        if self.exploring:
            self._probe_state = _ProbeState.ACCEPT_GAP
            return None
        return self._start_probe(reason)

    def _lost(self, chain: BatchSequence) -> Damage | None:
        """After damage, a broker may not find a batch that it sent before, and so not what followed it either."""
        base = chain.batches[0][1].base_offset
        if self._has_rejected and self._probe_state is _ProbeState.CHECK_PREDECESSOR and base > self.position:
            return Damage(*self.tp, self.position, base, "the broker returns nothing below its log end offset")
        return None

    def _on_suspect_checked(
        self, chain: BatchSequence, records: memoryview, found: FetchResultPartition, trust: ValidationContext
    ) -> CheckedRecords | None:
        assert self._suspect is not None
        self._probe_state = _ProbeState.ACCEPT_GAP
        if chain.batches and chain.batches[0][1] == self._suspect:
            return None
        suspect, self._suspect = self._suspect, None
        if suspect != self._refuted:
            # Compaction may have deleted it between the two fetches: it is invalid if the broker returns it once more.
            self._refuted = suspect
            return None
        text = f"a batch claims the offsets {suspect.base_offset} to {suspect.last_offset}; another one has them"
        return self._on_fault(SequenceFault(len(records), self.position, text, suspect), records, found, trust)

    # --- what comes of it

    def _trust(self, found: FetchResultPartition, records: memoryview) -> ValidationContext:
        is_probing = self._probe_state is not _ProbeState.NONE or self._probe is not None
        return ValidationContext(
            log_end_offset=found.high_watermark if found.high_watermark >= 0 else LONG_MAX,
            check_crc=self.rules.check_crc,
            allows_gaps=is_probing or self._gaps_seen or self._asked <= max(0, found.log_start_offset),
            starts_at_boundary=self._on_boundary and self._asked == self.position,
            has_more=len(records) >= self._asked_bytes and self._larger() > self._asked_bytes,
            rejected=self._rejected,
        )

    def _advance(
        self, chain: BatchSequence, records: memoryview, found: FetchResultPartition, damage: Damage | None = None
    ) -> CheckedRecords:
        batches = chain.batches
        if self.rules.committed_only and found.aborted:
            try:
                batches = filter_aborted(batches, records, found.aborted)
            except ApiError as error:
                raise CorruptRecord(*self.tp, self.position, error.message) from error
        position, header = chain.batches[-1]
        begin = self.position if damage is None else damage.end
        piece = CheckedRecords(records[: position + header.size], batches, begin, chain.next_offset, damage)
        self._move(chain.next_offset, header.leader_epoch)
        return piece

    def _on_fault(
        self, fault: SequenceFault, records: memoryview, found: FetchResultPartition, trust: ValidationContext
    ) -> CheckedRecords | None:
        """Handle an invalid batch at `position`."""
        if fault.beyond_end and self._beyond < BEYOND_END_MAX:
            self._beyond += 1
            self.pause = True
            return None
        if self.from_follower or not self.rules.skip_damaged:
            raise CorruptRecord(*self.tp, self.position, fault.reason)
        if trust.log_end_offset <= self.position:  # there is no record behind it yet
            self.pause = self.at_end = True
            return None
        behind = find_next_intact(records, fault, trust)
        if behind is None and trust.has_more:
            self._max_bytes = self._larger()
            return None
        self._rejected, self._has_rejected = fault.header, True
        if behind is None:
            if fault.header is not None and self._on_boundary:
                return self._skip(
                    min(trust.log_end_offset, self.position + fault.header.last_offset_delta + 1), fault.reason
                )
            return self._start_probe(fault.reason)
        position, header = behind
        sure = evolve(trust, allows_gaps=True, starts_at_boundary=True, has_more=False)
        chain = validate_batches(records, header.base_offset, sure, position)
        damage = Damage(*self.tp, self.position, header.base_offset, fault.reason)
        return self._advance(chain, records, found, damage if damage.start < damage.end else None)

    def _start_probe(self, reason: str) -> CheckedRecords | None:
        """Search for the next readable offset, when nothing shows where the damage ends."""
        if self.from_follower or not self.rules.skip_damaged:
            raise CorruptRecord(*self.tp, self.position, reason)
        self._has_rejected = True
        self._probe = CorruptionProbe(self.position, self._end if self._end > self.position else LONG_MAX, reason)
        return self._finish_probe(self._probe)

    def _on_probed(self, probe: CorruptionProbe, end: int, chain: BatchSequence | None) -> CheckedRecords | None:
        if end >= 0:
            probe.limit(end)
        probe.on_result(self._asked, chain.batches[0][1].base_offset if chain is not None and chain.batches else None)
        return self._finish_probe(probe)

    def _finish_probe(self, probe: CorruptionProbe) -> CheckedRecords | None:
        return None if probe.found is None else self._skip(probe.found, probe.reason)

    def _skip(self, behind: int, reason: str) -> CheckedRecords:
        damage = Damage(*self.tp, self.position, behind, reason)
        self._move(behind)
        self._probe_state = _ProbeState.ACCEPT_GAP
        return CheckedRecords(b"", [], behind, behind, damage)

    def _larger(self) -> int:
        """Return the size of the next fetch after one that was too small for a batch."""
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
        """Handle a response that ends within a batch: an old broker, a small limit, or a batch with a wrong size."""
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
        if self._probe_state is _ProbeState.CHECK_PREDECESSOR:
            self._probe_state = _ProbeState.ACCEPT_GAP
            return None
        return self._on_fault(SequenceFault(0, self.position, reason), records, found, trust)

    def _readable(self, found: FetchResultPartition) -> int:
        stable = found.last_stable_offset
        return stable if self.rules.committed_only and stable >= 0 else found.high_watermark

    def _nothing(self, found: FetchResultPartition) -> CheckedRecords | None:
        readable = self._readable(found)
        if self.position >= readable:
            self._empty, self.urgent, self.at_end = 0, False, True
            return None
        return self._start_probe(f"the broker returns nothing, although records up to offset {readable} are readable")

    def _move(self, offset: int, epoch: int = -1) -> None:
        self.position, self.epoch = offset, epoch
        self._on_boundary = True
        self._reset()

    def _reset(self) -> None:
        self._probe_state = _ProbeState.NONE
        self._probe = None
        self._asked = self._asked_bytes = self._max_bytes = 0
        self._empty = self._beyond = 0
        self.urgent = self.pause = self.at_end = self.is_remote = self._was_local = False
        self._silent = None


def local_start(outcome: ListOffsetsResultPartition | BarnabasError) -> int | BarnabasError:
    """Return where the answer to a look-up of EARLIEST_LOCAL says that the leader's local log begins, or its error."""
    error = outcome if isinstance(outcome, BarnabasError) else None
    code = error.code if isinstance(error, ApiError) else ErrorCode.NONE
    if isinstance(outcome, ListOffsetsResultPartition):
        code = outcome.error
        if code is ErrorCode.NONE:
            return max(outcome.offset, 0)
    if code is ErrorCode.UNSUPPORTED_VERSION:  # from before tiered storage
        return 0
    return error or ApiError(code, "local log start offset")


def _bytes_of(records: Buffer | Region) -> memoryview:
    return memoryview(records if isinstance(records, bytes | bytearray | memoryview) else records.read())
