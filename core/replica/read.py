"""Reads of the partitions that a broker leads: at once, or when enough is there (facts C6, D8)."""

from collections.abc import Callable, Hashable, Sequence

from ...ports.broker_api import FetchPartition, FetchResultPartition
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, broker_failed
from ...ports.storage import Region, StorageError, size_of
from ...ports.words import Buffer, TopicPartition
from ..message.batch_header import ZSTD_ID
from ..message.batch_prefix import bytes_without_codec
from .delayed_fetch import AwaitedPartition, DelayedFetch
from .isolation import FetchIsolation
from .local_partitions import LocalPartitions
from .partition import Partition
from .purgatory import Purgatory
from .topic_stats import BrokerTopicStats

ReadResults = Callable[[Sequence[FetchResultPartition] | ApiError], None]
"""Told what was read, in the order that was asked for; an `ApiError` when the broker itself failed on the way."""

_HEADERS_MAX = 2000
"""So many batch headers are read for a reader that knows no zstd: a few milliseconds. Its answer ends there, and the
client goes on from there with the next."""


_LOG_END = FetchIsolation.LOG_END


class _HeadersLeft:
    """How many more may be read for a read."""

    def __init__(self) -> None:
        self.count = _HEADERS_MAX


class Reads:
    """One partition's failure leaves the others of a read alone. Owner thread only."""

    def __init__(self, local: LocalPartitions, purgatory: Purgatory, stats: BrokerTopicStats) -> None:
        self._local = local
        self._partitions = local.by_key
        self._purgatory = purgatory
        self._stats = stats

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
    ) -> None:
        """Read record batches from partitions that this broker leads.

        `max_bytes` and `min_bytes` count for all of them together. `done` is called once: at once when there is enough,
        an error, or no time to wait; else when there is, or after `max_wait_ms`. `reader` is a key that ends the
        wait, too: that of a connection. A reader that knows no zstd gets error 76 for it.
        """
        results, size = self._read_all(entries, max_bytes, isolation, allows_zstd=allows_zstd)
        if max_wait_ms > 0 and size < min_bytes and results:
            awaited = self._awaited(entries, results, isolation)
            if awaited is not None:

                def finish() -> None:
                    late, _ = self._read_all(entries, max_bytes, isolation, allows_zstd=allows_zstd)
                    self._answer(late, isolation, done)

                waiting = DelayedFetch(awaited, min_bytes, finish, lambda: done(broker_failed()))
                self._purgatory.watch(waiting, (*awaited, reader) if reader else awaited, max_wait_ms)
                return
        self._answer(results, isolation, done)

    def _answer(self, results: Sequence[FetchResultPartition], isolation: FetchIsolation, done: ReadResults) -> None:
        if isolation is not _LOG_END:
            for result in results:
                size = size_of(result.records)
                if size:
                    self._stats.of(result.topic).bytes_out.add(size)
        done(results)

    def _read_all(
        self, entries: Sequence[FetchPartition], max_bytes: int, isolation: FetchIsolation, *, allows_zstd: bool
    ) -> tuple[list[FetchResultPartition], int]:
        """Every partition in the order asked for, within `max_bytes` all told; and how many bytes that came to."""
        left = max_bytes
        total = 0
        results = []
        headers = None if allows_zstd else _HeadersLeft()
        for entry in entries:
            result = self._read(entry, left, isolation, headers, first=total == 0)
            size = size_of(result.records)
            left = max(0, left - size)
            total += size
            results.append(result)
        return results, total

    def _read(
        self,
        entry: FetchPartition,
        left: int,
        isolation: FetchIsolation,
        headers: _HeadersLeft | None,
        *,
        first: bool,
    ) -> FetchResultPartition:
        partition = self._partitions.get((entry.topic, entry.partition))
        try:
            if partition is None:
                raise self._local.unknown(entry.topic, entry.partition)
            if entry.max_bytes < 0:
                raise ApiError(ErrorCode.INVALID_FETCH_SIZE, f"partition max bytes is {entry.max_bytes}")
            partition.check_leader(entry.current_leader_epoch)
            size = min(entry.max_bytes, left)
            records = partition.read(entry.offset, size, whole_first_batch=first, isolation=isolation)
            if headers is not None:
                records = _before_zstd(partition, entry.offset, records, headers, isolation)
        except ApiError as error:
            return FetchResultPartition(entry.topic, entry.partition, error.code, topic_id=entry.topic_id)
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
            topic_id=entry.topic_id,
        )

    def _awaited(
        self,
        entries: Sequence[FetchPartition],
        results: Sequence[FetchResultPartition],
        isolation: FetchIsolation,
    ) -> dict[Hashable, AwaitedPartition] | None:
        """What to wait for; None when an error, or a log that rolled on, makes waiting useless."""
        awaited: dict[Hashable, AwaitedPartition] = {}
        for entry, result in zip(entries, results, strict=True):
            if result.error is not ErrorCode.NONE:
                return None
            key = (entry.topic, entry.partition)
            partition = self._partitions[key]
            waiting = AwaitedPartition(partition, entry.offset, entry.max_bytes, entry.current_leader_epoch, isolation)
            if size_of(result.records):
                if waiting.rolled_past():
                    return None
                waiting.ready = waiting.ready_bytes()
            awaited[key] = waiting
        return awaited


def _before_zstd(
    partition: Partition, offset: int, records: Buffer | Region, headers: _HeadersLeft, isolation: FetchIsolation
) -> Buffer | Region:
    """The batches before the first zstd one, for readers that do not know it. Raises `ApiError` when none is left."""
    size, looked = bytes_without_codec(records, ZSTD_ID, headers_max=max(1, headers.count))
    headers.count -= looked
    if size == size_of(records):
        return records
    if size == 0:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10 or later")
    return partition.read(offset, size, whole_first_batch=False, isolation=isolation)
