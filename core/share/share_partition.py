"""A share partition: which records of a partition a share group has in flight, and in which states (KIP-932, facts D4).

The states are ranges of offsets, not single records: a range is split only where a part of it changes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from ...ports.broker_api.share_groups import AcknowledgementBatch, AcknowledgeType, AcquiredRecords
from ...ports.broker_api.share_state import StateBatch
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
from .share_group_offset import combine_state_batches

NO_DEADLINE = float("inf")
_UNSAVED_MAX = 500
"""More changes that wait for a write are combined."""


class RecordState(IntEnum):
    """The state of a record, by Kafka's numbers. ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """A dead letter of the record is to be written (KIP-1191); then the record is archived."""
    ARCHIVED = 4


_AVAILABLE, _ACQUIRED, _ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
_ARCHIVING, _ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
_COMPLETE = (_ACKNOWLEDGED, _ARCHIVED)


@frozen(kw_only=True)
class SharePartitionSettings:
    """The settings of the group that its share partitions use. They may change from call to call."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_in_flight_records: int = 2_000
    has_dead_letters: bool = False
    """Whether records that are given up are written to a topic of the group, before they are archived."""


class LogBatch(NamedTuple):
    """A record batch of the log by its header. A hidden one has no records for members: a control batch, or with
    read_committed a batch of an aborted transaction."""

    first_offset: int
    last_offset: int
    is_hidden: bool
    end_position: int
    """The end of the batch in the records that were read."""


class Acquired(NamedTuple):
    """The ranges that a member has acquired, and the end of the last batch with one of them, in the records read."""

    ranges: list[AcquiredRecords]
    end_position: int
    record_count: int


class DeadLetters(NamedTuple):
    """Records that a group has given up, and that were delivered equally often."""

    first_offset: int
    last_offset: int
    delivery_count: int


@frozen(kw_only=True)
class StateWrite:
    """A change to store. `number` counts the writes of the share partition."""

    number: int
    start_offset: int
    state_batches: Sequence[StateBatch]
    delivery_complete_count: int


class InFlightBatch:
    """The records from `first_offset` to `last_offset`, which have the same state. Not frozen: it is the state itself.

    `write` is the number of the write after which the state becomes `target`; 0: no change waits for a write.
    `is_letter_sent`: dead letters of the records, which are ARCHIVING, are being written.
    """

    __slots__ = (
        "deadline_ms",
        "delivery_count",
        "first_offset",
        "is_letter_sent",
        "last_offset",
        "member_id",
        "state",
        "target",
        "write",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        state: RecordState,
        delivery_count: int = 0,
        member_id: str = "",
        deadline_ms: float = NO_DEADLINE,
        write: int = 0,
        target: RecordState = _AVAILABLE,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.write = write
        self.target = target
        self.is_letter_sent = False

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    def continues(self, before: "InFlightBatch") -> bool:
        """Return True if both are one range."""
        return (
            before.last_offset + 1 == self.first_offset
            and before.state is self.state
            and before.delivery_count == self.delivery_count
            and before.member_id == self.member_id
            and before.deadline_ms == self.deadline_ms
            and before.write == self.write
            and before.target is self.target
            and before.is_letter_sent == self.is_letter_sent
        )


def _first_offset(batch: InFlightBatch) -> int:
    return batch.first_offset


class SharePartition:
    """The state of one partition in one share group. Time comes from outside, in milliseconds. Owner thread only.

    start_offset: the share-partition start offset (SPSO): all records below are acknowledged or archived.
    end_offset:   the last offset that was ever acquired or archived; `start_offset - 1` at the beginning.

    Decisions of members count when they are stored: `take_write` returns what to store, one write after the other, and
    `complete_write` makes it count. Records whose lock has lapsed, or whose member has gone, are available at once; the
    next write stores their delivery count.
    """

    def __init__(
        self,
        start_offset: int,
        state_batches: Iterable[StateBatch] = (),
        settings: SharePartitionSettings = SharePartitionSettings(),  # noqa: B008  # immutable
        *,
        stored_start_offset: int | None = None,
    ) -> None:
        """Create it from the stored state. Records between stored batches were never acknowledged: they are available.

        `stored_start_offset`: the start that is stored, if it is another one, such as `NO_START_OFFSET`.
        """
        self.settings = settings
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        self._stored_start = start_offset if stored_start_offset is None else stored_start_offset
        self._batches: list[InFlightBatch] = []
        self._unsaved: list[StateBatch] = []
        self._writing: StateWrite | None = None
        self._writing_unsaved: list[StateBatch] = []
        self._next_write = 1
        self._has_changes = False
        self.next_deadline_ms = NO_DEADLINE
        """No lock lapses before."""
        for each in combine_state_batches((), state_batches, start_offset):
            if each.first_offset > self.end_offset + 1:
                self._append(InFlightBatch(self.end_offset + 1, each.first_offset - 1, _AVAILABLE))
            state = RecordState(each.delivery_state)
            self._append(InFlightBatch(each.first_offset, each.last_offset, state, each.delivery_count))
        self._drop_prefix()

    # --- for reading

    @property
    def batches(self) -> Sequence[InFlightBatch]:
        """The ranges from the start offset to the end offset, in their order and without gaps."""
        return self._batches

    @property
    def in_flight_count(self) -> int:
        """The number of records that were delivered, or skipped, and are neither acknowledged nor archived."""
        return sum(each.size for each in self._batches if each.state not in _COMPLETE)

    def next_fetch_offset(self) -> int | None:
        """Return the offset of the first record that a member could acquire; None if too many are in flight."""
        for each in self._batches:
            if each.state is _AVAILABLE:
                return each.first_offset
        if self.in_flight_count >= self.settings.max_in_flight_records:
            return None
        return self.end_offset + 1

    # --- acquiring

    def acquire(
        self,
        member_id: str,
        from_offset: int,
        batches: Iterable[LogBatch],
        *,
        max_records: int,
        batch_size: int,
        is_strict: bool,
        now_ms: float,
    ) -> Acquired:
        """Acquire records for a member: those that are available in these batches of the log, in the order of offsets.

        The batches are all that the log has from `from_offset` on; `batches` is read as far as needed. Offsets between
        them are in no batch, and are archived, as are the hidden ones. The number of records is counted by
        offsets: about `max_records` in whole batches, never more if `is_strict`. A range of the result has about
        `batch_size` records.

        Records that failed in half of their deliveries come in ever smaller parts, the last time alone, so that one
        that no member can process does not take others with it.
        """
        ranges: list[AcquiredRecords] = []
        end_position = taken = 0
        deadline_ms = now_ms + self.settings.lock_duration_ms
        expected = max(from_offset, self.start_offset)
        room = self.settings.max_in_flight_records - self.in_flight_count
        limit = max_records
        for batch in batches:
            if batch.last_offset < expected:
                continue
            if batch.first_offset > expected:
                self._archive(expected, batch.first_offset - 1)
                expected = batch.first_offset
            if batch.is_hidden:
                self._archive(expected, batch.last_offset)
                expected = batch.last_offset + 1
                continue
            before = taken
            is_full = False
            for piece in self._available(expected, batch.last_offset):
                if piece.first_offset > self.end_offset:
                    if room <= 0:
                        is_full = True
                        break
                    size = min(piece.size, limit - taken, room) if is_strict else piece.size
                    room -= size
                else:
                    allowed = self._poison_limit(piece)
                    if allowed is not None and taken:
                        is_full = True
                        break
                    size = piece.size if allowed is None else min(allowed, piece.size)
                    if is_strict:
                        size = min(size, limit - taken)
                    is_full = allowed is not None
                part = self._acquire_part(piece, size, member_id, deadline_ms)
                taken += size
                _add_range(ranges, part[0], part[1], part[2], batch_size)
                if is_full or (taken >= limit and (is_strict or size < piece.size)):
                    is_full = True
                    break
            if taken > before:
                end_position = batch.end_position
            expected = batch.last_offset + 1
            if is_full or taken >= limit:
                break
        if taken and deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms
        self._tidy()
        return Acquired(ranges, end_position, taken)

    def _available(self, first: int, last: int) -> Iterator[InFlightBatch]:
        """Yield the ranges from `first` to `last` that can be acquired; those beyond the end offset are new."""
        position = first
        while position <= min(last, self.end_offset):
            index = self._index(position)
            batch = self._batches[index]
            until = min(last, batch.last_offset)
            if batch.state is _AVAILABLE:
                yield InFlightBatch(position, until, _AVAILABLE, batch.delivery_count)
            position = until + 1
        if position <= last:
            yield InFlightBatch(position, last, _AVAILABLE)

    def _poison_limit(self, piece: InFlightBatch) -> int | None:
        """Return how many records of a range may go together; None: all of them."""
        limit = self.settings.delivery_count_limit
        if piece.delivery_count < max(2, (limit + 1) // 2):
            return None
        if piece.delivery_count >= limit - 1:
            return 1
        return max(1, self._batches[self._index(piece.first_offset)].size // 2)

    def _acquire_part(
        self, piece: InFlightBatch, size: int, member_id: str, deadline_ms: float
    ) -> tuple[int, int, int]:
        first, last, count = piece.first_offset, piece.first_offset + size - 1, piece.delivery_count + 1
        if first > self.end_offset:
            self._append(InFlightBatch(first, last, _ACQUIRED, count, member_id, deadline_ms))
        else:
            for part in self._split(first, last):
                part.state, part.delivery_count = _ACQUIRED, count
                part.member_id, part.deadline_ms = member_id, deadline_ms
        return first, last, count

    def _archive(self, first: int, last: int) -> None:
        """Archive the available records of a range, and the new ones. The next leader finds it in the log."""
        first = max(first, self.start_offset)
        if first <= self.end_offset:
            for part in self._split(first, min(last, self.end_offset)):
                if part.state is _AVAILABLE:
                    part.state = _ARCHIVED
        if last > self.end_offset:
            self._append(InFlightBatch(max(first, self.end_offset + 1), last, _ARCHIVED))

    # --- acknowledging

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], *, allows_renew: bool, now_ms: float
    ) -> int:
        """Apply a member's acknowledgements, all or none of them.

        Return the number of the write that stores them; 0 if there is nothing to store. Raises `ApiError`:
        INVALID_REQUEST for offsets that were never delivered, in disorder, or with wrong types; INVALID_RECORD_STATE
        for records that the member does not hold. Records below the start offset are passed over.
        """
        decisions: list[tuple[InFlightBatch, AcknowledgeType]] = []
        for first, last, kind in _runs(batches, allows_renew=allows_renew):
            if last > self.end_offset:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Offset {last} is past the records in flight.")
            if last < self.start_offset:
                continue
            for part in self._split(max(first, self.start_offset), last):
                if (
                    part.state is _ACQUIRED
                    and part.member_id == member_id
                    and not part.write
                    and part.deadline_ms > now_ms
                ):
                    decisions.append((part, kind))
                elif kind is not AcknowledgeType.GAP or part.state is not _ARCHIVED:
                    text = f"The member has not acquired the records from offset {part.first_offset} on."
                    raise ApiError(ErrorCode.INVALID_RECORD_STATE, text)
        number = 0
        for part, kind in decisions:
            if kind is AcknowledgeType.RENEW:
                part.deadline_ms = now_ms + self.settings.lock_duration_ms
                self.next_deadline_ms = min(self.next_deadline_ms, part.deadline_ms)
            else:
                part.write = number = self._next_write
                part.target = self._target(part, kind)
                self._has_changes = True
        return number

    def _target(self, batch: InFlightBatch, kind: AcknowledgeType) -> RecordState:
        if kind is AcknowledgeType.ACCEPT:
            return _ACKNOWLEDGED
        if kind is AcknowledgeType.GAP:
            return _ARCHIVED
        return self._failed_state(batch) if kind is AcknowledgeType.RELEASE else self._given_up

    @property
    def _given_up(self) -> RecordState:
        """The state of a record that is not delivered again."""
        return _ARCHIVING if self.settings.has_dead_letters else _ARCHIVED

    def _failed_state(self, batch: InFlightBatch) -> RecordState:
        """Return the state after a delivery that failed."""
        is_last = batch.delivery_count >= self.settings.delivery_count_limit
        return self._given_up if is_last else _AVAILABLE

    # --- releasing

    def release_lapsed(self, now_ms: float) -> int:
        """Release the records whose locks have lapsed; return their number."""
        released = 0
        self.next_deadline_ms = NO_DEADLINE
        for each in self._batches:
            if each.state is _ACQUIRED and not each.write:
                if each.deadline_ms > now_ms:
                    self.next_deadline_ms = min(self.next_deadline_ms, each.deadline_ms)
                else:
                    released += each.size
                    self._release(each)
        if released:
            self._tidy()
        return released

    def release_acquired(self, member_id: str) -> int:
        """Release what a member that has gone has acquired; return the number of records."""
        released = 0
        for each in self._batches:
            if each.state is _ACQUIRED and each.member_id == member_id and not each.write:
                released += each.size
                self._release(each)
        if released:
            self._tidy()
        return released

    def _release(self, batch: InFlightBatch) -> None:
        batch.state = self._failed_state(batch)
        batch.member_id, batch.deadline_ms = "", NO_DEADLINE
        self._save_later(batch)

    def _save_later(self, batch: InFlightBatch) -> None:
        self._unsaved.append(StateBatch(batch.first_offset, batch.last_offset, int(batch.state), batch.delivery_count))
        if len(self._unsaved) > _UNSAVED_MAX:
            self._unsaved = list(combine_state_batches((), self._unsaved, self.start_offset))

    # --- dead letters

    def take_dead_letters(self) -> list[DeadLetters]:
        """Return the records whose dead letters are to be written now, each once; call `archive` for them then."""
        letters = []
        for each in self._batches:
            if each.state is _ARCHIVING and not each.is_letter_sent:
                each.is_letter_sent = True
                letters.append(DeadLetters(each.first_offset, each.last_offset, each.delivery_count))
        return letters

    def archive(self, letters: DeadLetters) -> None:
        """Archive records whose dead letters are written, or cannot be written."""
        first = max(letters.first_offset, self.start_offset)
        if first > min(letters.last_offset, self.end_offset):
            return
        for part in self._split(first, letters.last_offset):
            if part.state is _ARCHIVING:
                part.state, part.is_letter_sent = _ARCHIVED, False
                self._save_later(part)
        self._tidy()

    # --- retention

    def on_log_start_changed(self, log_start_offset: int) -> None:
        """Move the start offset to the log's: the records below are deleted. Acknowledgements of them count as done."""
        if log_start_offset <= self.start_offset:
            return
        if log_start_offset > self.end_offset:
            self._batches.clear()
            self.end_offset = log_start_offset - 1
        else:
            index = self._index(log_start_offset)
            del self._batches[:index]
            self._batches[0].first_offset = log_start_offset
        self.start_offset = log_start_offset
        self._drop_prefix()

    # --- storing

    @property
    def is_writing(self) -> bool:
        """True while a write has not ended."""
        return self._writing is not None

    def take_write(self) -> StateWrite | None:
        """Return what to store now; None if there is nothing, or a write is under way."""
        if self._writing is not None:
            return None
        number = self._next_write
        start = self._start_after(number)
        if not (self._has_changes or self._unsaved or start > self._stored_start):
            return None
        changes = list(self._unsaved)
        complete = 0
        for each in self._batches:
            state = each.target if each.write == number else each.state
            if each.write == number:
                changes.append(StateBatch(each.first_offset, each.last_offset, int(state), each.delivery_count))
            if state in _COMPLETE and each.first_offset >= start:
                complete += each.size
        self._writing = StateWrite(
            number=number,
            start_offset=start,
            state_batches=combine_state_batches((), changes, start),
            delivery_complete_count=complete,
        )
        self._writing_unsaved, self._unsaved = self._unsaved, []
        self._next_write += 1
        self._has_changes = False
        return self._writing

    def _start_after(self, number: int) -> int:
        """Return the start offset as it is after this write."""
        for each in self._batches:
            if (each.target if each.write == number else each.state) not in _COMPLETE:
                return each.first_offset
        return self.end_offset + 1

    def complete_write(self, *, is_stored: bool) -> bool:
        """End the write under way; return True if records have become available.

        If it was not stored, the member still holds the records, as long as their locks last.
        """
        writing = self._writing
        if writing is None:
            return False
        self._writing = None
        has_available = False
        for each in self._batches:
            if each.write == writing.number:
                each.write = 0
                if is_stored:
                    each.state, each.member_id, each.deadline_ms = each.target, "", NO_DEADLINE
                    has_available = has_available or each.state is _AVAILABLE
                else:
                    self.next_deadline_ms = min(self.next_deadline_ms, each.deadline_ms)
                each.target = _AVAILABLE
        if is_stored:
            self._stored_start = max(self._stored_start, writing.start_offset)
        else:
            self._unsaved[:0] = self._writing_unsaved
        self._writing_unsaved = []
        self._tidy()
        return has_available

    # --- the ranges

    def _index(self, offset: int) -> int:
        return bisect_right(self._batches, offset, key=_first_offset) - 1

    def _append(self, batch: InFlightBatch) -> None:
        if self._batches and batch.continues(self._batches[-1]):
            self._batches[-1].last_offset = batch.last_offset
        else:
            self._batches.append(batch)
        self.end_offset = batch.last_offset

    def _split(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the ranges that make up [first, last], which is in flight; those at its ends are split."""
        self._split_at(first)
        self._split_at(last + 1)
        begin = self._index(first)
        end = self._index(last) + 1
        return self._batches[begin:end]

    def _split_at(self, offset: int) -> None:
        index = self._index(offset)
        if index < 0 or offset > self.end_offset:
            return
        batch = self._batches[index]
        if batch.first_offset == offset:
            return
        rest = InFlightBatch(
            offset,
            batch.last_offset,
            batch.state,
            batch.delivery_count,
            batch.member_id,
            batch.deadline_ms,
            batch.write,
            batch.target,
        )
        rest.is_letter_sent = batch.is_letter_sent
        batch.last_offset = offset - 1
        self._batches.insert(index + 1, rest)

    def _tidy(self) -> None:
        """Join neighbours that are one range, and move the start offset."""
        if len(self._batches) > 1:
            joined = [self._batches[0]]
            for each in self._batches[1:]:
                if each.continues(joined[-1]):
                    joined[-1].last_offset = each.last_offset
                else:
                    joined.append(each)
            self._batches = joined
        self._drop_prefix()

    def _drop_prefix(self) -> None:
        done = 0
        while done < len(self._batches) and self._batches[done].state in _COMPLETE:
            done += 1
        if done:
            del self._batches[:done]
        self.start_offset = self._batches[0].first_offset if self._batches else self.end_offset + 1


def _add_range(ranges: list[AcquiredRecords], first: int, last: int, count: int, batch_size: int) -> None:
    if ranges:
        before = ranges[-1]
        size = before.last_offset - before.first_offset + 1
        if before.last_offset + 1 == first and before.delivery_count == count and size < batch_size:
            ranges[-1] = AcquiredRecords(before.first_offset, last, count)
            return
    ranges.append(AcquiredRecords(first, last, count))


def _runs(batches: Sequence[AcknowledgementBatch], *, allows_renew: bool) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """Yield the ranges with one acknowledge type. Raises `ApiError` INVALID_REQUEST."""
    previous = -1
    highest = AcknowledgeType.RENEW if allows_renew else AcknowledgeType.REJECT
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first <= previous or last < first:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Acknowledgement batch {first}-{last} is not in order.")
        if len(types) not in (1, last - first + 1):
            text = f"Acknowledgement batch {first}-{last} has {len(types)} acknowledge types."
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if max(types) > highest:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Acknowledge type {max(types)} is not known.")
        previous = last
        if types.count(types[0]) == len(types):
            yield first, last, AcknowledgeType(types[0])
            continue
        position = first
        for kind, same in groupby(types):
            end = position + sum(1 for _ in same)
            yield position, end - 1, AcknowledgeType(kind)
            position = end
