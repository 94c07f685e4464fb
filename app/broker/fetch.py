"""Fetch: read record batches, at once or when enough is there (facts C6, D8)."""

from collections.abc import Hashable, Sequence

from ...core.message.batch_header import ZSTD_ID
from ...core.message.batch_prefix import bytes_without_codec
from ...core.replica.partition import Partition
from ...core.replica.purgatory import AwaitedPartition, DelayedFetch
from ...ports.broker_api import Caller, Fetch, FetchPartition, FetchResult, FetchResultPartition, Reply
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import Region, StorageError, size_of
from ...ports.words import Buffer
from .failures import broker_failed
from .state import BrokerState

_HEADERS_MAX = 2000
"""So many batch headers are read for a request of a version that knows no zstd: a few milliseconds. Its answer ends
there, and the client goes on from there with the next."""


class _HeadersLeft:
    """How many more may be read for a request."""

    def __init__(self) -> None:
        self.count = _HEADERS_MAX


class FetchService:
    """Answers fetches. One partition's failure leaves the others of the request alone."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._partitions = state.partitions
        self._purgatory = state.purgatory
        self._max_bytes = state.settings.static.fetch_max_bytes

    def handle(self, request: Fetch, caller: Caller, reply: Reply[FetchResult]) -> None:
        max_bytes = min(request.max_bytes, self._max_bytes)
        min_bytes = min(request.min_bytes, max_bytes)
        results, size = self._read_all(request, max_bytes)
        if request.max_wait_ms > 0 and size < min_bytes and results:
            awaited = self._awaited(request, results)
            if awaited is not None:
                self._wait(request, caller, reply, awaited, min_bytes, max_bytes)
                return
        self._answer(results, reply)

    def _wait(
        self,
        request: Fetch,
        caller: Caller,
        reply: Reply[FetchResult],
        awaited: dict[Hashable, AwaitedPartition],
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        def finish() -> None:
            results, _ = self._read_all(request, max_bytes)
            self._answer(results, reply)

        keys = [*awaited, *self._state.caller_keys(caller)]
        waiting = DelayedFetch(awaited, min_bytes, finish, lambda: reply(broker_failed()))
        self._purgatory.watch(waiting, keys, request.max_wait_ms)

    def _answer(self, results: Sequence[FetchResultPartition], reply: Reply[FetchResult]) -> None:
        for result in results:
            size = size_of(result.records)
            if size:
                self._state.topic_stats(result.topic).bytes_out.add(size)
        reply(FetchResult(partitions=results))

    def _read_all(self, request: Fetch, max_bytes: int) -> tuple[list[FetchResultPartition], int]:
        """Every partition in the order of the request, within `max_bytes` all told; and how many bytes that came to."""
        left = max_bytes
        total = 0
        results = []
        headers = None if request.allows_zstd else _HeadersLeft()
        for entry in request.partitions:
            result = self._read(entry, left, headers, first=total == 0)
            size = size_of(result.records)
            left = max(0, left - size)
            total += size
            results.append(result)
        return results, total

    def _read(
        self, entry: FetchPartition, left: int, headers: "_HeadersLeft | None", *, first: bool
    ) -> FetchResultPartition:
        partition = self._partitions.get((entry.topic, entry.partition))
        try:
            if partition is None:
                raise self._state.unknown_partition(entry.topic, entry.partition)
            if entry.max_bytes < 0:
                raise ApiError(ErrorCode.INVALID_FETCH_SIZE, f"partition max bytes is {entry.max_bytes}")
            partition.check_leader(entry.current_leader_epoch)
            records = partition.read(entry.offset, min(entry.max_bytes, left), whole_first_batch=first)
            if headers is not None:
                records = _before_zstd(partition, entry.offset, records, headers)
        except ApiError as error:
            return FetchResultPartition(entry.topic, entry.partition, error.code)
        except StorageError as error:
            self._state.storage_failed(partition, error)
            return FetchResultPartition(entry.topic, entry.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._state.failed(f"reading {entry.topic}-{entry.partition}", error)
            return FetchResultPartition(entry.topic, entry.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        return FetchResultPartition(
            entry.topic,
            entry.partition,
            ErrorCode.NONE,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            records,
        )

    def _awaited(
        self, request: Fetch, results: Sequence[FetchResultPartition]
    ) -> dict[Hashable, AwaitedPartition] | None:
        """What to wait for; None when an error, or a log that rolled on, makes waiting useless."""
        awaited: dict[Hashable, AwaitedPartition] = {}
        for entry, result in zip(request.partitions, results, strict=True):
            if result.error is not ErrorCode.NONE:
                return None
            key = (entry.topic, entry.partition)
            partition = self._partitions[key]
            waiting = AwaitedPartition(partition, entry.offset, entry.max_bytes, entry.current_leader_epoch)
            if size_of(result.records):
                if partition.rolled_past(entry.offset):
                    return None
                waiting.ready = partition.ready_bytes(entry.offset, entry.max_bytes)
            awaited[key] = waiting
        return awaited


def _before_zstd(partition: Partition, offset: int, records: Buffer | Region, headers: _HeadersLeft) -> Buffer | Region:
    """The batches before the first zstd one, for clients that cannot read it. Raises `ApiError` when none is left."""
    size, looked = bytes_without_codec(records, ZSTD_ID, headers_max=max(1, headers.count))
    headers.count -= looked
    if size == size_of(records):
        return records
    if size == 0:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10 or later")
    return partition.read(offset, size, whole_first_batch=False)
