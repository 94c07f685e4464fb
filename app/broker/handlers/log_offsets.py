"""Offsets of logs: ListOffsets, OffsetForLeaderEpoch and DeleteRecords (facts B3, B4, C6, D6)."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ....core.log.partition_log.results import TimestampOffset
from ....core.replica.partition.fetch_isolation import FetchIsolation
from ....core.replica.partition.partition import Partition
from ....core.traffic.steps import Steps
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.epochs import (
    EpochEndOffset,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
)
from ....ports.broker_api.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from ....ports.broker_api.topics import DeleteRecords, DeleteRecordsResult, DeleteRecordsResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import StorageError
from ....ports.types import Offset, TopicPartition
from ..state.broker_state import BrokerState
from .internal_topics import SHARE_STATE_TOPIC
from .replica_authorization import refused_replica

DEBUGGING = -2
"""The replica id of tools that read one replica, whether it leads or not."""
_READ_COMMITTED = 1
"""The isolation level of readers up to the last stable offset (facts C6)."""


_NOTHING = TimestampOffset(-1, Offset(-1), -1)


def look_up(partition: Partition, timestamp: int, isolation: FetchIsolation) -> Steps[TimestampOffset]:
    """Return the first record that is not older than `timestamp` (ms), below the end that such a reader sees.

    The special timestamps EARLIEST, LATEST and the like return their offset. All -1 when there is none.

    Raises `ApiError` UNSUPPORTED_VERSION for an unknown special timestamp, and OFFSET_NOT_AVAILABLE instead of an end
    that may be below one that a former leader has returned (KIP-207). `StorageError` as the log.
    """
    end = partition.end_for(isolation)
    found = yield from _find(partition, timestamp, end)
    is_end = timestamp == LATEST or (found.offset < 0 and timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD))
    if isolation is FetchIsolation.LOG_END or not is_end:
        return found
    if partition.is_leader and partition.high_watermark < partition.epoch_start_offset:
        text = f"the high watermark of {partition.topic_partition} is below the start of its leader epoch"
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
    return found


def _find(partition: Partition, timestamp: int, end: Offset) -> Steps[TimestampOffset]:
    log = partition.log
    if timestamp == LATEST:
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp == EARLIEST:
        return TimestampOffset(-1, log.log_start_offset, partition.leader_epoch)
    if timestamp == EARLIEST_LOCAL:
        return TimestampOffset(-1, log.local_log_start_offset, partition.leader_epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        if not log.config.tiered:
            return _NOTHING
        pending = max(log.remote_end, log.log_start_offset)
        found_at = pending if timestamp == EARLIEST_PENDING_UPLOAD else Offset(pending - 1)
        if timestamp == LATEST_TIERED and pending == log.log_start_offset:
            return _NOTHING
        return TimestampOffset(-1, found_at, log.epochs.epoch_at(found_at))
    if timestamp == MAX_TIMESTAMP:
        found = yield from log.times.find_max_timestamp()
    elif timestamp >= 0:
        found = yield from log.times.find_first_at(timestamp)
    else:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unknown special timestamp {timestamp}")
    return _NOTHING if found is None or found.offset >= end else found


_Remote = dict[int, TimestampOffset | BaseException]
"""The records found in remote storage, by the number of the entry in the request."""


class ListOffsetsService:
    """Looks up offsets, partition by partition. A partition that is named twice is refused, as in Kafka."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handle(self, request: ListOffsets, caller: Caller, reply: Reply[ListOffsetsResult]) -> None:
        refused = refused_replica(request, caller, self._state.endpoints, self._state.image.brokers)
        if refused is not None:
            reply(refused)
            return
        self._with_remote(
            request,
            lambda remote: self._state.answer_in_steps(
                "ListOffsets", self._look_up_all(request, remote), caller, reply
            ),
        )

    def _with_remote(self, request: ListOffsets, use: Callable[[_Remote], None]) -> None:
        """Look up timestamps in remote storage first, where partitions have older records there (KIP-405)."""
        tiering, found = self._state.tiering, _Remote()
        wanted: list[tuple[int, Partition, int]] = []
        for number, entry in enumerate(request.partitions if tiering is not None else ()):
            partition = self._state.replicas.partitions.get((entry.topic, entry.partition))
            if partition is None or partition.log.local_log_start_offset == partition.log.log_start_offset:
                continue
            if entry.timestamp >= 0 or entry.timestamp == MAX_TIMESTAMP:
                wanted.append((number, partition, entry.timestamp))
        if tiering is None or not wanted:
            use(found)
            return
        waiting = {number for number, _, _ in wanted}

        def on_found(number: int, result: TimestampOffset | BaseException | None) -> None:
            if number in waiting:  # else it has timed out
                waiting.remove(number)
                if result is not None:
                    found[number] = result
                if not waiting:
                    timer.cancel()
                    use(found)

        def on_timeout() -> None:
            for number in sorted(waiting):
                on_found(number, ApiError(ErrorCode.REQUEST_TIMED_OUT, "remote storage did not answer in time"))

        timer = self._state.scheduler.call_later(tiering.lookup_wait_ms, on_timeout)
        for number, partition, timestamp in wanted:
            if timestamp == MAX_TIMESTAMP:
                tiering.find_max_timestamp(partition, partial(on_found, number))
            else:
                tiering.find_first_at(partition, timestamp, partial(on_found, number))

    def _look_up_all(self, request: ListOffsets, remote: _Remote) -> Steps[ListOffsetsResult]:
        named = Counter((entry.topic, entry.partition) for entry in request.partitions)
        found = []
        for number, entry in enumerate(request.partitions):
            if named[entry.topic, entry.partition] > 1:
                found.append(_failed(entry, ErrorCode.INVALID_REQUEST))
            else:
                found.append((yield from self._look_up(entry, request, remote.get(number))))
            yield None
        return ListOffsetsResult(partitions=found)

    def _look_up(
        self, entry: ListOffsetsPartition, request: ListOffsets, remote: TimestampOffset | BaseException | None
    ) -> Steps[ListOffsetsResultPartition]:
        try:
            partition = self._partition(entry, anywhere=request.replica_id == DEBUGGING)
            if isinstance(remote, ApiError) and remote.code is ErrorCode.REQUEST_TIMED_OUT:
                return _failed(entry, remote.code)
            if isinstance(remote, BaseException):
                self._state.failed(f"reading remote storage for {entry.topic}-{entry.partition}", remote)
                return _failed(entry, ErrorCode.KAFKA_STORAGE_ERROR)
            if remote is not None and remote.offset >= partition.log.log_start_offset:
                timestamp, offset, epoch = remote
            else:
                timestamp, offset, epoch = yield from look_up(partition, entry.timestamp, _isolation_of(request))
        except ApiError as error:
            return _failed(entry, error.code)
        except StorageError as error:
            self._state.replicas.storage_failed(TopicPartition(entry.topic, entry.partition), error)
            return _failed(entry, ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._state.failed(f"looking up an offset of {entry.topic}-{entry.partition}", error)
            return _failed(entry, ErrorCode.UNKNOWN_SERVER_ERROR)
        return ListOffsetsResultPartition(
            topic=entry.topic, partition=entry.partition, timestamp=timestamp, offset=offset, leader_epoch=epoch
        )

    def _partition(self, entry: ListOffsetsPartition, *, anywhere: bool) -> Partition:
        """Return the partition to look into. Raises `ApiError` as `ReplicaManager.readable`.

        `anywhere`: a partition that this broker follows is enough.
        """
        replicas = self._state.replicas
        partition = replicas.partitions.get((entry.topic, entry.partition))
        if not anywhere or partition is None or partition.is_leader:
            # Other offsets than EARLIEST need the lease: a later leader may have returned a higher one already.
            find = replicas.readable if entry.timestamp == EARLIEST else replicas.led
            return find(entry.topic, entry.partition, entry.current_leader_epoch)
        partition.check_replica(entry.current_leader_epoch)
        return partition


def _isolation_of(request: ListOffsets) -> FetchIsolation:
    if request.replica_id >= 0:
        return FetchIsolation.LOG_END
    committed = request.isolation_level == _READ_COMMITTED
    return FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK


def _failed(entry: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsResultPartition:
    return ListOffsetsResultPartition(topic=entry.topic, partition=entry.partition, error=error)


class EpochService:
    """Looks up the end offsets of leader epochs."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def find(self, request: OffsetForLeaderEpoch, caller: Caller, reply: Reply[OffsetForLeaderEpochResult]) -> None:
        refused = refused_replica(request, caller, self._state.endpoints, self._state.image.brokers)
        if refused is not None:
            reply(refused)
            return
        reply(OffsetForLeaderEpochResult(partitions=[self._find(asked) for asked in request.partitions]))

    def _find(self, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._state.replicas.led(asked.topic, asked.partition, asked.current_leader_epoch)
        except ApiError as error:
            return EpochEndOffset(topic=asked.topic, partition=asked.partition, error=error.code)
        epoch, end = partition.end_of_epoch(asked.leader_epoch)
        return EpochEndOffset(topic=asked.topic, partition=asked.partition, leader_epoch=epoch, end_offset=end)


class RecordService:
    """Deletes records below an offset."""

    def __init__(self, state: BrokerState) -> None:
        self._delete = state.replicas.delete_records

    def delete(self, request: DeleteRecords, _caller: Caller, reply: Reply[DeleteRecordsResult]) -> None:
        def done(results: Sequence[DeleteRecordsResultPartition] | ApiError) -> None:
            if isinstance(results, ApiError):
                reply(results)
                return
            outcomes = iter(results)
            partitions = [refused.get(each) or next(outcomes) for each in request.partitions]
            reply(DeleteRecordsResult(partitions=partitions))

        refused = {
            each: DeleteRecordsResultPartition(
                topic=each.topic, partition=each.partition, error=ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            for each in request.partitions
            if each.topic == SHARE_STATE_TOPIC
        }
        left = [each for each in request.partitions if each not in refused]
        self._delete(left, done, timeout_ms=request.timeout_ms)
