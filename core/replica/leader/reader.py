"""Reads of the partitions that a broker leads, answered at once or when there are enough bytes (facts C6, D8)."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from struct import Struct
from typing import Protocol

from ....ports.broker_api.fetch import AbortedTransaction, FetchPartition, FetchResultPartition
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.storage import Region, StorageError, size_of
from ....ports.types import Buffer, TopicPartition
from ...cluster.topics import ReplicaId
from ...message.batch_header import BATCH_LENGTH_MIN, CODEC_MASK, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, ZSTD_ID
from ..partition.fetch_isolation import FetchIsolation
from ..partition.isr_manager import IsrManager
from ..partition.local_partitions import LocalPartitions
from ..partition.partition import Partition
from ..partition.replication_quota import ReplicationQuotaManager
from ..partition.topic_stats import BrokerTopicStats
from ..purgatory import DelayedOperation, Purgatory
from .fetch_params import FetchParams, FindPreferredReadReplica, FollowerFetchParams, empty

ReadResults = Callable[[Sequence[FetchResultPartition] | ApiError], None]
"""Called with the results in the order of the request, or with an `ApiError` when the broker itself failed."""

_MOVED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
_LOG_END, _COMMITTED = FetchIsolation.LOG_END, FetchIsolation.TXN_COMMITTED

_COMMON = [
    [FetchParams(isolation, allows_zstd=True, anywhere=anywhere) for isolation in sorted(FetchIsolation)]
    for anywhere in (False, True)
]
"""The parameters without counters, by `anywhere` and isolation: one of each is enough."""


# Fetches of records that are in remote storage only (KIP-405).


class RemoteReads(Protocol):
    """Reads from remote storage. Owner thread only."""

    @property
    def max_wait_ms(self) -> float:
        """The longest wait of a fetch; what comes later serves the next one."""
        ...

    def read(
        self,
        partition: Partition,
        entry: FetchPartition,
        max_bytes: int,
        *,
        committed: bool,
        done: Callable[[FetchResultPartition], None],
    ) -> None:
        """Read batches from the one with the offset on, the first whole. `done` may be called at once, or never."""
        ...


class DelayedRemoteFetch(DelayedOperation):
    """A fetch that waits for remote storage."""

    __slots__ = ("missing",)

    def __init__(self, missing: int, finish: Callable[[], None], failed: Callable[[], None]) -> None:
        super().__init__(finish, failed)
        self.missing = missing

    def check(self, key: Hashable) -> bool:  # noqa: ARG002
        return not self.missing


# Fetches that wait until there are enough bytes.


class FetchPartitionStatus:
    """One partition of a delayed fetch, and the bytes counted for it so far."""

    __slots__ = ("_check", "entry", "partition", "reading", "ready")

    def __init__(
        self,
        partition: Partition,
        entry: FetchPartition,
        reading: FetchParams,
        check: Callable[[Partition, FetchPartition], None],
    ) -> None:
        self.partition = partition
        self.entry = entry
        self.reading = reading
        self._check = check
        self.ready = 0

    def ready_bytes(self) -> int:
        """Return the number of bytes that a read could return now. Raises as `Partition.read` does."""
        if self.reading.held_back(self.partition):
            return 0
        return self.partition.ready_bytes(self.entry.offset, self.entry.max_bytes, self.reading.isolation)

    def rolled_past(self) -> bool:
        """Return True if waiting adds nothing to the result of a read."""
        return self.partition.rolled_past(self.entry.offset, self.reading.isolation)

    def recheck(self) -> int:
        """Return `ready_bytes` after a check. Raises `ApiError` when the reader may no longer read here."""
        self._check(self.partition, self.entry)
        return self.ready_bytes()


class DelayedFetch(DelayedOperation):
    """A fetch that waits for `min_bytes` in all its partitions together.

    It ends early when a partition gets an answer that waiting does not improve: leadership or epoch lost, the offset
    out of range, the log rolled on to another segment, or something that a follower has to know at once.
    """

    __slots__ = ("_awaited", "_missing")

    def __init__(
        self,
        awaited: dict[Hashable, FetchPartitionStatus],
        min_bytes: int,
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self._awaited = awaited
        self._missing = min_bytes - sum(entry.ready for entry in awaited.values())

    def check(self, key: Hashable) -> bool:
        entry = self._awaited.get(key)
        if entry is None:
            return False
        try:
            ready = entry.recheck()
            if entry.reading.needs_news(entry.partition):
                return True
        except (ApiError, StorageError):
            return True
        self._missing -= ready - entry.ready
        entry.ready = ready
        return self._missing <= 0 or (ready > 0 and entry.rolled_past())


class ReplicaReader:
    """Reads partitions. A failure in one partition does not affect the others. Owner thread only."""

    def __init__(
        self,
        local: LocalPartitions,
        purgatory: Purgatory,
        stats: BrokerTopicStats,
        isr_manager: IsrManager,
        throttle: ReplicationQuotaManager,
        clock: Clock,
        *,
        hastens_high_watermark: bool,
    ) -> None:
        self._local = local
        self._partitions = local.by_key
        self._purgatory = purgatory
        self._stats = stats
        self._isr_manager = isr_manager
        self._throttle = throttle
        self._clock = clock
        self._hastens_high_watermark = hastens_high_watermark
        self.remote: RemoteReads | None = None
        """Reads what is in remote storage only; None: there is no remote storage."""
        self._moved: list[FetchResultPartition] = []
        """The results of the present fetch that are to come from there."""

    def read(
        self,
        entries: Sequence[FetchPartition],
        done: ReadResults,
        *,
        max_bytes: int,
        min_bytes: int = 1,
        max_wait_ms: float = 0,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        allows_zstd: bool = True,
        reader: Hashable = None,
        replica: ReplicaId | None = None,
        anywhere: bool = False,
        nearest: FindPreferredReadReplica | None = None,
    ) -> None:
        """Read record batches from partitions that this broker leads.

        `max_bytes` and `min_bytes` count for all of them together. `done` is called once: at once when there are enough
        bytes, an error, or no time to wait; else when there are enough, or after `max_wait_ms`. `reader` is a key that
        ends the wait, too: that of a connection. A client without zstd gets error 76 (UNSUPPORTED_COMPRESSION_TYPE) for
        it.

        replica:  the follower that reads: up to the log end, and its fetch offsets show its progress.
        anywhere: True for a consumer that also reads from followers, up to the high watermark known here (KIP-392).
        nearest:  returns the replica that a consumer should rather read from; see `FindPreferredReadReplica`.
        """
        if replica is not None:
            self._follower_reads(entries, done, max_bytes, min_bytes, max_wait_ms, reader, replica)
            return
        if nearest is not None and not self._local.may_lead():
            nearest = None  # followers without the lease refuse consumers, which would return for ever
        if allows_zstd and nearest is None:
            reading = _COMMON[anywhere][isolation]
        else:
            reading = FetchParams(isolation, allows_zstd=allows_zstd, anywhere=anywhere, nearest=nearest)
        results, size = self._read_all(entries, max_bytes, reading)
        if self._moved:
            self._read_remote(entries, results, max_bytes - size, reader, reading, done)
        elif max_wait_ms > 0 and size < min_bytes and results:
            self._wait(entries, results, done, max_bytes, min_bytes, max_wait_ms, reader, reading)
        else:
            self._answer(results, reading, done)

    def _read_remote(
        self,
        entries: Sequence[FetchPartition],
        results: list[FetchResultPartition],
        left: int,
        reader: Hashable,
        reading: FetchParams,
        done: ReadResults,
    ) -> None:
        """Read the partitions of a fetch that are in remote storage only, all at once, then answer the fetch.

        After `remote.fetch.max.wait.ms` the response has what is there by then.
        """
        remote = self.remote
        assert remote is not None
        ids = {id(each) for each in self._moved}
        moved = [number for number, each in enumerate(results) if id(each) in ids]
        self._moved.clear()
        waiting = DelayedRemoteFetch(
            len(moved), lambda: self._answer(results, reading, done), lambda: done(broker_failed())
        )
        token = object()

        def on_read(number: int, result: FetchResultPartition) -> None:
            if not waiting.finished:
                results[number] = result
                waiting.missing -= 1
                self._purgatory.check(token)

        for number in moved:
            entry = entries[number]
            partition = self._partitions[entry.topic, entry.partition]
            size = max(0, min(entry.max_bytes, left // len(moved)))
            committed = reading.isolation is _COMMITTED
            remote.read(partition, entry, size, committed=committed, done=partial(on_read, number))
        if waiting.missing:
            self._purgatory.watch(waiting, (token, reader) if reader else (token,), remote.max_wait_ms)
        else:
            self._answer(results, reading, done)

    def _follower_reads(
        self,
        entries: Sequence[FetchPartition],
        done: ReadResults,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: float,
        reader: Hashable,
        replica: ReplicaId,
    ) -> None:
        reading = self.follower_reading(replica)
        results, size = self._read_all(entries, max_bytes, reading)
        if max_wait_ms > 0 and size < min_bytes and results:
            self._wait(entries, results, done, max_bytes, min_bytes, max_wait_ms, reader, reading)
        else:
            self._answer(results, reading, done)
        self.check_changed(reading)

    # --- for fetch sessions of followers

    def follower_reading(self, replica: ReplicaId) -> FollowerFetchParams:
        """Return the parameters of a follower that fetches now."""
        return FollowerFetchParams(
            replica,
            self._isr_manager,
            self._throttle,
            self._clock.monotonic_ms(),
            hastens_high_watermark=self._hastens_high_watermark,
        )

    def check_changed(self, reading: FollowerFetchParams) -> None:
        """Check the requests that wait for the progress of a follower, and the records that it fetched again."""
        for partition in reading.changed:
            self._purgatory.check(partition.topic_partition)
        for partition, offset in reading.refused_records:
            self._local.suspect(partition.log, offset)
        reading.refused_records.clear()

    def partition_of(self, entry: FetchPartition) -> Partition | None:
        return self._partitions.get((entry.topic, entry.partition))

    def record_answers(
        self,
        results: Sequence[FetchResultPartition],
        reading: FollowerFetchParams,
        passed_over: Sequence[FetchResultPartition] = (),
    ) -> None:
        """Record the responses that go to the follower now; those that it will skip are not counted as sent."""
        untaken = {id(result) for result in passed_over}
        for result in results:
            if result.error is ErrorCode.NONE and result.diverging is None:  # else the follower truncates first
                partition = self._partitions[result.topic, result.partition]
                reading.answered(partition, result, is_taken=id(result) not in untaken)

    # --- implementation

    def _wait(
        self,
        entries: Sequence[FetchPartition],
        results: Sequence[FetchResultPartition],
        done: ReadResults,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: float,
        reader: Hashable,
        reading: FetchParams,
    ) -> None:
        """Wait in the purgatory, or answer now if waiting is useless."""
        awaited = self._awaited(entries, results, reading)
        if awaited is None:
            self._answer(results, reading, done)
            return

        def finish() -> None:
            reading.again()
            late, size = self._read_all(entries, max_bytes, reading)
            if self._moved:
                self._read_remote(entries, late, max_bytes - size, reader, reading, done)
            else:
                self._answer(late, reading, done)

        waiting = DelayedFetch(awaited, min_bytes, finish, lambda: done(broker_failed()))
        self._purgatory.watch(waiting, (*awaited, reader) if reader else awaited, max_wait_ms)

    def _answer(self, results: Sequence[FetchResultPartition], reading: FetchParams, done: ReadResults) -> None:
        if reading.isolation is not _LOG_END:
            for result in results:
                size = size_of(result.records)
                if size:
                    self._stats.of(result.topic).bytes_out.add(size)
        elif isinstance(reading, FollowerFetchParams):
            self.record_answers(results, reading)
        done(results)

    def _read_all(
        self, entries: Sequence[FetchPartition], max_bytes: int, reading: FetchParams
    ) -> tuple[list[FetchResultPartition], int]:
        """Read every partition in the given order, within `max_bytes` in total; return the results and their size."""
        left = max_bytes
        total = 0
        results = []
        for entry in entries:
            result = self.read_one(entry, left, reading, first=total == 0)
            size = size_of(result.records)
            if size:
                left = left - size if left > size else 0
                total += size
            results.append(result)
        return results, total

    def read_one(self, entry: FetchPartition, left: int, reading: FetchParams, *, first: bool) -> FetchResultPartition:
        """Read one partition, within `left` bytes; the `first` that has any gives a whole batch."""
        partition = self._partitions.get((entry.topic, entry.partition))
        try:
            if partition is None:
                raise self._local.unknown(entry.topic, entry.partition)
            # First, as the leader epochs of two topics do not compare: FENCED_LEADER_EPOCH would make a follower wait
            # for a newer state, which the later topic does not get. A topic may also be replaced while a fetch waits.
            if entry.topic_id not in (NO_TOPIC_ID, partition.topic_id):
                text = f"{partition.topic_partition} is of another topic of that name"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, text)
            if entry.max_bytes < 0:
                raise ApiError(ErrorCode.INVALID_FETCH_SIZE, f"partition max bytes is {entry.max_bytes}")
            if reading.is_plain and entry.last_fetched_epoch < 0 and partition.leader == partition.broker_id:
                if entry.current_leader_epoch >= 0 or self._local.has_lease:
                    self._local.check_readable(partition, entry.current_leader_epoch)
            else:
                reading.check(self._local, partition, entry)
                elsewhere = reading.without_records(partition, entry)
                if elsewhere is not None:
                    return elsewhere
            size = entry.max_bytes if entry.max_bytes < left else left
            aborted: Sequence[AbortedTransaction] | None = None
            records: Buffer | Region
            if reading.isolation is _COMMITTED:
                records, aborted = partition.read_committed(entry.offset, size, whole_first_batch=first)
            else:
                records = partition.read(entry.offset, size, whole_first_batch=first, isolation=reading.isolation)
            if reading.headers_left is not None:
                records = _before_zstd(partition, entry.offset, records, reading)
        except ApiError as error:
            if error.code is _MOVED and reading.isolation is not _LOG_END and partition and self.remote is not None:
                self._moved.append(result := empty(partition, entry))
                return result
            is_out_of_range = error.code is ErrorCode.OFFSET_OUT_OF_RANGE and reading.isolation is not _LOG_END
            if error.code is ErrorCode.CORRUPT_MESSAGE and partition is not None:
                self._local.suspect(partition.log, entry.offset)
            if is_out_of_range and partition is not None and self._may_lack(partition, entry.offset):
                error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"a later leader may have offset {entry.offset}")
            return reading.refused(partition, entry, error)
        except StorageError as error:
            self._local.storage_failed(TopicPartition(entry.topic, entry.partition), error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return FetchResultPartition(entry.topic, entry.partition, code, topic_id=entry.topic_id)
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._local.failed(f"reading {entry.topic}-{entry.partition}", error)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            return FetchResultPartition(entry.topic, entry.partition, code, topic_id=entry.topic_id)
        return FetchResultPartition(
            entry.topic,
            entry.partition,
            ErrorCode.NONE,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            records,
            aborted,
            topic_id=entry.topic_id,
        )

    def _may_lack(self, partition: Partition, offset: int) -> bool:
        """Return True if this leader has no lease, and its log ends before `offset`.

        A consumer that has read from a later leader must not be sent back.
        """
        return partition.is_leader and offset > partition.log.log_end_offset and not self._local.may_lead()

    def _awaited(
        self, entries: Sequence[FetchPartition], results: Sequence[FetchResultPartition], reading: FetchParams
    ) -> dict[Hashable, FetchPartitionStatus] | None:
        """Return the partitions to wait for; None if an error, news or a rolled log makes waiting useless."""
        awaited: dict[Hashable, FetchPartitionStatus] = {}
        check = partial(reading.check, self._local)
        for entry, result in zip(entries, results, strict=True):
            if result.error is not ErrorCode.NONE or result.diverging is not None or result.preferred_read_replica >= 0:
                return None
            key = (entry.topic, entry.partition)
            partition = self._partitions[key]
            if reading.needs_news(partition):
                return None
            waiting = FetchPartitionStatus(partition, entry, reading, check)
            if size_of(result.records):
                if waiting.rolled_past():
                    return None
                waiting.ready = waiting.ready_bytes()
            awaited[key] = waiting
        return awaited


# The prefix of a fetch whose batches use no codec that the client lacks, found by the headers alone.

_FIELDS = Struct(">8xi4xb4xh")
"""Batch length, magic byte and attributes."""


def bytes_without_codec(records: Buffer | Region, codec_id: int, *, headers_max: int) -> tuple[int, int]:
    """Return (size of the batches before the first one with `codec_id`, number of headers read).

    At most `headers_max` headers are read, and batches beyond them are left out. Batches after a corrupt
    header are left out as well, unless it is the first: then the client reports the corruption.
    """
    size, position, looked = size_of(records), 0, 0
    while looked < headers_max and size - position >= HEADER_SIZE:
        length, magic, attributes = _FIELDS.unpack(_head(records, position))
        looked += 1
        if length < BATCH_LENGTH_MIN or magic != MAGIC:
            return position or size, looked
        if attributes & CODEC_MASK == codec_id:
            return position, looked
        position += LENGTH_OVERHEAD + length
    return (position if looked == headers_max and position < size else size), looked


def _head(records: Buffer | Region, position: int) -> Buffer:
    if isinstance(records, bytes | bytearray | memoryview):
        return records[position : position + _FIELDS.size]
    return records.read(position, _FIELDS.size)


def _before_zstd(partition: Partition, offset: int, records: Buffer | Region, reading: FetchParams) -> Buffer | Region:
    """Return the batches before the first zstd one, for clients without zstd. Raises `ApiError` when none is left."""
    left = reading.headers_left or 0
    size, looked = bytes_without_codec(records, ZSTD_ID, headers_max=max(1, left))
    reading.headers_left = left - looked
    if size == size_of(records):
        return records
    if size == 0:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10 or later")
    return partition.read(offset, size, whole_first_batch=False, isolation=reading.isolation)
