"""Loading of a coordinator's state from the internal topic that stores it."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.scheduler import Outcome, Scheduler
from ...ports.storage import Region
from ...ports.types import Buffer
from ..log.segment.damage import OffsetsDamaged
from ..message.batch_header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    is_crc_valid,
    parse_header,
)
from ..message.batch_reader import Columns, decode_columns, whole_batches
from ..message.codec import Codecs
from ..message.control_records import read_marker
from ..message.crc32c import crc32c
from ..replica.partition.partition import Partition
from ..replica.purgatory import DelayedOperation
from ..replica.replica_manager import ReplicaManager
from .log import Record

_RETRY_MS = 1000.0
_REPAIR_WAIT_MS = 130_000.0
"""Damaged records are left out after this time: a repair that has failed is tried again after
one second, then after two, so that eight tries come before."""


class TakesRecords(Protocol):
    """The target that a coordinator fills with the records of one partition."""

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add the next record. Any thread, one at a time."""
        ...


TakesT = TypeVar("TakesT", bound=TakesRecords)


# Fast reader of keys and values of uncompressed batches, for internal topics that are loaded as tables.

_MORE = 0x80
_NULL = 1
_OUTCOMES = {b"\0\0\0\0": False, b"\0\0\0\1": True}
"""Keys of end-transaction markers: version 0, type; the value is True for a commit."""
_MARKER, _TYPE_AT, _TYPE_END = 17, 5, 9
"""Size of a marker record, and the positions of its key."""


class TransactionSpan(NamedTuple):
    """Records of a transaction, or its end, in the columns.

    With `committed` None, the rows [start, end) belong to the transaction; else the transaction ended there.
    """

    start: int
    end: int
    producer_id: int
    committed: bool | None = None


class KeysAndValues:
    """Columns of keys and values, with the transactions in them, in log order."""

    __slots__ = ("keys", "transactions", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.transactions: list[TransactionSpan] = []


def read_plain_batches(data: bytes, position: int, from_offset: int, into: KeysAndValues) -> tuple[int, int]:
    """Append the records and markers of consecutive complete, valid and uncompressed batches to the columns.

    Returns the position of the first other batch, and the next offset: `decode_columns` reads that batch or reports its
    fault. No batch may begin below `from_offset`.
    """
    view, offset, end, keys, values = memoryview(data), from_offset, len(data), into.keys, into.values
    while position + HEADER_SIZE <= end:
        base, length, _, magic, crc, attributes, delta, _, _, producer_id, _, _, count = HEADER.unpack_from(
            data, position
        )
        records, stop = position + HEADER_SIZE, position + LENGTH_OVERHEAD + length
        if magic != MAGIC or attributes & CODEC_MASK or base < offset or not records <= stop <= end:
            break
        if not 0 < count <= delta + 1 or crc32c(view[position + CRC_COVERS_FROM : stop]) != crc:
            break
        before = len(keys)
        if attributes & CONTROL_BIT:
            outcome = (
                _OUTCOMES.get(data[records + _TYPE_AT : records + _TYPE_END]) if stop - records == _MARKER else None
            )
            if outcome is None:
                break
            into.transactions.append(TransactionSpan(before, before, producer_id, outcome))
            position, offset = stop, base + delta + 1
            continue
        try:
            reached = _read_records(data, records, count, keys, values)
        except IndexError:
            reached = -1
        if reached != stop:
            del keys[before:], values[before:]
            break
        if attributes & TRANSACTIONAL_BIT:
            into.transactions.append(TransactionSpan(before, len(keys), producer_id))
        position, offset = stop, base + delta + 1
    return position, offset


def _read_records(data: bytes, position: int, count: int, keys: list[bytes | None], values: list[bytes | None]) -> int:
    """Return the position after the records.

    Unusual records (sizes of more than two bytes, headers) yield a position that does not match the end of the batch,
    or raise `IndexError`. Varints are read inline, since calls would double the time.
    """
    for _ in range(count):
        position += 1 if data[position] < _MORE else 2  # the size: the position at the end shows whether it is right
        position += 1  # the attributes mean nothing
        while data[position] >= _MORE:  # difference of the timestamp
            position += 1
        position += 1
        while data[position] >= _MORE:  # difference of the offset
            position += 1
        position += 1
        position = _read_field(data, position, keys)
        position = _read_field(data, position, values)
        if data[position]:
            return -1
        position += 1
    return position


def _read_field(data: bytes, position: int, column: list[bytes | None]) -> int:
    raw = data[position]
    position += 1
    if raw >= _MORE:
        raw = raw & 0x7F | data[position] << 7
        position += 1
        if raw >= _MORE << 7:
            return len(data) + 1
    if raw & 1:
        column.append(None)
        return position if raw == _NULL else len(data) + 1
    end = position + (raw >> 1)
    column.append(data[position:end])
    return end


# Records of transactions that have not ended, while a log is read as a table.
#
# The value of a key is that of its last record in the log that belongs to no aborted transaction; compaction retains
# the same record. The time at which a transaction ends makes no difference.


class OpenRecords:
    """The records of open transactions. Any thread, one at a time. False while nothing is open."""

    __slots__ = ("_holders", "_open", "_taken")

    def __init__(self) -> None:
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """By producer, of each key the last record: its place in the order of the log, and the value."""
        self._holders: dict[bytes, int | set[int]] = {}
        """The producer that has an open record of a key, or those, if they are several: that is rare."""
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def add_records(self, producer_id: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Add the next records of the producer's transaction; records without a key are ignored."""
        mine = self._open.setdefault(producer_id, {})
        holders = self._holders
        for key, value in records:
            if key is None:
                continue
            self._taken += 1
            mine[key] = (self._taken, value)
            known = holders.setdefault(key, producer_id)
            if known != producer_id:
                holders[key] = {known, producer_id} if isinstance(known, int) else known | {producer_id}

    def overwrite(self, keys: Iterable[bytes | None]) -> None:
        """Drop the open records of these keys: later records replace them, however the transactions end."""
        holders = self._holders
        for key in keys:
            if key in holders:
                known = holders.pop(key)
                for producer_id in (known,) if isinstance(known, int) else known:
                    self._drop(producer_id, key)

    def end(self, producer_id: int, *, committed: bool) -> list[Record]:
        """End the producer's transaction; returns the records that count now."""
        ended = self._open.pop(producer_id, None)
        if ended is None:
            return []
        holders = self._holders
        for key, (place, _) in ended.items():
            known = holders[key]
            if isinstance(known, int):
                del holders[key]
            else:
                self._end_among(known - {producer_id}, key, place, committed=committed)
        return [(key, value) for key, (_, value) in ended.items()] if committed else []

    def left(self) -> list[tuple[int, Record]]:
        """Return the records that are still open, with their producer ids, in the order of the log."""
        found = [
            (place, producer_id, (key, value))
            for producer_id, records in self._open.items()
            for key, (place, value) in records.items()
        ]
        return [(producer_id, record) for _, producer_id, record in sorted(found)]

    def _end_among(self, others: set[int], key: bytes, place: int, *, committed: bool) -> None:
        """End a record whose key other producers have open, too: if committed, it replaces the open ones before it."""
        left = set(others)
        for other in others:
            if committed and self._open[other][key][0] < place:
                left.discard(other)
                self._drop(other, key)
        if left:
            self._holders[key] = left
        else:
            del self._holders[key]

    def _drop(self, producer_id: int, key: bytes) -> None:
        records = self._open[producer_id]
        del records[key]
        if not records:
            del self._open[producer_id]


class _Reading(Generic[TakesT]):
    """One partition on its way into memory."""

    def __init__(
        self,
        partition: Partition,
        loading: TakesT,
        began_ms: float,
        each_record: Callable[[TakesT, int], None] | None = None,
    ) -> None:
        self.partition = partition
        self.loading = loading
        self._each_record = each_record
        self.led_since = partition.led_since
        self.offset: int = partition.log.log_start_offset
        self.began_ms = began_ms
        """When the first attempt began."""
        self.damage: list[str] = []
        self.damaged_at: list[int] = []
        """Offsets of records that could not be read."""
        self.open = OpenRecords()

    @property
    def is_over(self) -> bool:
        """True if this broker has not led the partition ever since."""
        return not self.partition.is_leader or self.partition.led_since != self.led_since

    @property
    def is_at_end(self) -> bool:
        return self.offset >= self.partition.log.log_end_offset

    @property
    def is_committed(self) -> bool:
        """True if none of the records that were read can be lost with this broker."""
        return self.partition.high_watermark >= min(self.offset, self.partition.log.log_end_offset)

    def read_batches(self, records: Buffer | Region, codecs: Codecs) -> None:
        """Feed some batches. Any thread. A batch that cannot be read is left out and noted.

        Ends early where a header is damaged: the next read of the log finds the place to continue. Raises `ApiError`
        when nothing could be read.
        """
        began, position = self.offset, 0
        content = bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()
        data = memoryview(content)
        while True:
            taken, before = KeysAndValues(), self.offset
            position, self.offset = read_plain_batches(content, position, self.offset, taken)
            self._feed(taken, before)
            if position >= len(content) or not self._step_back(data[position:], began):
                break
            size = self._feed_batch(data[position:], codecs, began)
            if not size:
                break
            position += size
        if self.offset == began:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"no record batch begins at offset {began}")

    def _feed_batch(self, data: memoryview, codecs: Codecs, began: int) -> int:
        """Feed one batch of any kind; returns its size, 0 where it is cut or the place behind it is unknown."""
        try:
            _, header = next(whole_batches(data), (0, None))
            if header is None:
                return 0
            self._feed(self._opened(data[: header.size], header, codecs), self.offset)
            self.offset = max(self.offset, header.next_offset)
        except ApiError as bad:
            header = _header(data)
            if header is None or header.next_offset <= self.offset:
                if self.offset > began:
                    return 0
                raise
            self.damaged_at.append(self.offset)
            self.damage.append(f"the batch at offset {header.base_offset}: {bad}")
            self.offset = header.next_offset
        return header.size

    def _opened(self, batch: memoryview, header: BatchHeader, codecs: Codecs) -> KeysAndValues:
        opened = KeysAndValues()
        if header.control:
            if not is_crc_valid(batch, header):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the CRC-32C of the control batch does not match its content")
            marker = read_marker(batch, header)
            if marker is not None and header.next_offset > self.offset:
                opened.transactions.append(TransactionSpan(0, 0, header.producer_id, marker.committed))
            return opened
        columns = decode_columns(batch, codecs, into=Columns(self.offset), from_offset=self.offset)
        opened.keys, opened.values = columns.keys, columns.values
        if header.transactional:
            opened.transactions.append(TransactionSpan(0, len(columns), header.producer_id))
        return opened

    def _step_back(self, data: memoryview, began: int) -> bool:
        """Go back if the batches before claimed offsets of the batch that comes now, which is right.

        False if no header is there and some batches were read.
        """
        header = _header(data)
        if header is not None and began < header.next_offset <= self.offset:
            claimed = f"a batch claims offsets up to {self.offset - 1}, and {header.base_offset} follows it"
            self.damage.append(f"nothing, though {claimed}")
            self.offset = max(began, header.base_offset)
        return header is not None or self.offset == began

    def _feed(self, taken: KeysAndValues, from_offset: int) -> None:
        """Pass records on to the target; those of a transaction wait for its end. Unless every record counts, only the
        last value of a key does, and the others are never parsed."""
        keys, values, transactions = taken.keys, taken.values, self.open
        add = self.loading.add
        if self._each_record is not None:
            self._each_record(self.loading, from_offset)
            for key, value in zip(keys, values, strict=True):
                add(key, value)
            return
        if not taken.transactions and not transactions:
            counted = dict(zip(keys, values, strict=True))
        else:
            counted, done = {}, 0
            for start, end, producer_id, committed in (
                *taken.transactions,
                TransactionSpan(len(keys), len(keys), -1, False),
            ):
                if start > done:
                    transactions.overwrite(keys[done:start])
                    counted.update(zip(keys[done:start], values[done:start], strict=True))
                if committed is None:
                    transactions.add_records(producer_id, zip(keys[start:end], values[start:end], strict=True))
                else:
                    counted.update(transactions.end(producer_id, committed=committed))
                done = end
        for key, value in counted.items():
            add(key, value)

    def skip(self, why: ApiError) -> None:
        """Continue behind unreadable records: at the offset that the log reports, else with the next segment."""
        self.damaged_at.append(self.offset)
        if isinstance(why, OffsetsDamaged):
            self.damage.append(f"the offsets {self.offset} to {why.next_offset - 1}: {why.message}")
            self.offset = why.next_offset
            return
        bases = [segment.base_offset for segment in self.partition.log.segments]
        further = [base for base in bases if base > self.offset]
        end = further[0] if further else self.partition.log.log_end_offset
        self.damage.append(f"the offsets from {self.offset} to {end}: {why}")
        self.offset = end


class _Uncommitted(DelayedOperation):
    """A partition that is read to its end, and whose followers have not replicated all of it yet."""

    __slots__ = ("_reading",)

    def __init__(self, reading: _Reading[Any], finish: Callable[[], None]) -> None:
        super().__init__(finish, finish)
        self._reading = reading

    def check(self, key: Hashable) -> bool:  # noqa: ARG002
        return self._reading.is_committed or self._reading.is_over


def _header(data: memoryview) -> BatchHeader | None:
    try:
        return parse_header(data)
    except ApiError:
        return None


def _ignore_record(_loading: object, _producer_id: int, _record: Record) -> None:
    """Ignore a record: for coordinators that write no transactions."""


class LogLoader(Generic[TakesT]):
    """Reads partitions one after the other, a slice at a time, off the owner thread. Owner thread only.

    A partition is read to its end, and the call of `ended` waits until the high watermark is there, too: no record
    counts that the next leader might not have. The loader stops reading a partition that this broker no longer leads;
    when the broker leads it again, in a later epoch, it is read from its start.

    Records of a transaction count once it has committed, those of aborted transactions never.

    `begin` returns the target for the records of a partition (by its number); `ended` is called when the target has
    all of them. Before that, `still_open` is called for each record whose transaction has not ended, with its
    producer's id, in the order of the log. All markers that were written up to then have been read.
    `each_record`: None if the last value of each key is enough. Else every record counts, whatever its transaction, and
    this is called before some of them, with an offset that none of them is below.
    `report` takes lines for the broker's log, `failed` gets unexpected errors.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        begin: Callable[[int], TakesT],
        ended: Callable[[TakesT], None],
        *,
        codecs: Codecs,
        clock: Clock,
        scheduler: Scheduler,
        slice_bytes: int,
        report: Callable[[str], None],
        failed: Callable[[str, BaseException], None],
        still_open: Callable[[TakesT, int, Record], None] = _ignore_record,
        each_record: Callable[[TakesT, int], None] | None = None,
    ) -> None:
        self._replicas = replicas
        self._begin = begin
        self._ended = ended
        self._still_open = still_open
        self._each_record = each_record
        self._codecs = codecs
        self._clock = clock
        self._scheduler = scheduler
        self._slice_bytes = slice_bytes
        self._report = report
        self._report_failure = failed
        self._waiting: deque[_Reading[TakesT]] = deque()
        self._retrying = self._uncommitted = 0
        self._is_closed = False
        self.longest_ms = 0.0
        """The time that the slowest partition has taken, including the wait for others."""

    @property
    def is_busy(self) -> bool:
        """True while a partition is still to be read."""
        return bool(self._waiting or self._retrying or self._uncommitted)

    def load(self, partition: Partition) -> None:
        """Load a partition that this broker leads now."""
        self._load(partition, self._clock.monotonic_ms())

    def _load(self, partition: Partition, began_ms: float) -> None:
        loading = self._begin(partition.topic_partition.partition)
        self._continue_reading(_Reading(partition, loading, began_ms, self._each_record))

    def close(self) -> None:
        """Read no further."""
        self._is_closed = True

    def _continue_reading(self, reading: _Reading[TakesT]) -> None:
        if reading.is_at_end:
            self._end_or_again(reading)
            return
        self._waiting.append(reading)
        if len(self._waiting) == 1:
            self._read_next_slice()

    def _read_next_slice(self) -> None:
        """Read the next slice of the first partition, off the owner thread."""
        while self._waiting and not self._is_closed:
            reading = self._waiting[0]
            log = reading.partition.log
            if self._is_gone(reading):
                self._waiting.popleft()
                continue
            if reading.is_at_end:
                self._waiting.popleft()
                self._end_or_again(reading)
                continue
            try:
                records = log.read(reading.offset, max_bytes=self._slice_bytes, limit=log.log_end_offset).records
            except ApiError as error:
                reading.skip(error)
                continue
            except Exception as error:  # noqa: BLE001  reported; it is tried again
                self._waiting.popleft()
                self._failed(reading, error)
                continue
            self._offload(reading, records)
            return

    def _offload(self, reading: _Reading[TakesT], records: Buffer | Region) -> None:
        codecs = self._codecs

        def done(outcome: Outcome[None]) -> None:
            if isinstance(outcome.error, ApiError):
                reading.skip(outcome.error)
            elif outcome.error is not None:
                self._waiting.popleft()
                self._failed(reading, outcome.error)
            self._read_next_slice()

        self._scheduler.offload(lambda: reading.read_batches(records, codecs), done)

    def _failed(self, reading: _Reading[TakesT], error: BaseException) -> None:
        """Report the error and load the partition again later; until then its state counts as loading."""
        if self._is_closed or self._is_gone(reading):
            return
        self._report_failure(f"loading {reading.partition.topic_partition}", error)
        self._again_later(reading)

    def _again_later(self, reading: _Reading[TakesT]) -> None:
        self._retrying += 1

        def again() -> None:
            self._retrying -= 1
            if not self._is_closed and not self._is_gone(reading):
                self._load(reading.partition, reading.began_ms)

        self._scheduler.call_later(_RETRY_MS, again)

    def _end_or_again(self, reading: _Reading[TakesT]) -> None:
        try:
            self._end(reading)
        except Exception as error:  # noqa: BLE001  reported; the other partitions are read
            self._failed(reading, error)

    def _end(self, reading: _Reading[TakesT]) -> None:
        """End the loading of a partition that is read: wait for its replication, for a repair, or call `ended`."""
        if not reading.is_committed:
            self._wait(reading)
            return
        if self._may_be_repaired(reading):
            self._again_later(reading)
            return
        for damage in reading.damage:
            self._report(f"{reading.partition.topic_partition}: left out {damage}")
        for producer_id, record in reading.open.left():
            self._still_open(reading.loading, producer_id, record)
        self.longest_ms = max(self.longest_ms, self._clock.monotonic_ms() - reading.began_ms)
        self._ended(reading.loading)

    def _may_be_repaired(self, reading: _Reading[TakesT]) -> bool:
        """Return True if other replicas may have the records that are damaged here, and request a repair.

        Without the repair, acknowledged offsets and transactions would be lost with one of their copies.
        """
        partition, now_ms = reading.partition, self._clock.monotonic_ms()
        if not reading.damaged_at or len(partition.replicas) < 2 or now_ms - reading.began_ms > _REPAIR_WAIT_MS:
            return False
        for offset in reading.damaged_at:
            self._replicas.suspect(partition.log, offset)
        return True

    def _wait(self, reading: _Reading[TakesT]) -> None:
        self._uncommitted += 1

        def finish() -> None:
            self._uncommitted -= 1
            if not self._is_closed and not self._is_gone(reading):
                self._continue_reading(reading)  # markers may have come meanwhile

        key = reading.partition.topic_partition
        self._replicas.purgatory.watch(_Uncommitted(reading, finish), (key,), _RETRY_MS)

    def _is_gone(self, reading: _Reading[TakesT]) -> bool:
        """Return True if this broker no longer has the partition, or not in the epoch in which the reading began."""
        here = self._replicas.partitions.get(reading.partition.topic_partition)
        return here is not reading.partition or reading.is_over
