"""DeleteRecords: the leader deletes at once, and answers when all live replicas have done so (facts C6, D8)."""

from collections.abc import Callable, Hashable, Sequence

from ....ports.broker_api.topics import DeleteRecordsPartition, DeleteRecordsResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ..partition.local_partitions import LocalPartitions
from ..partition.partition import Partition
from ..purgatory import DelayedOperation, Purgatory

DeletionResults = Callable[[Sequence[DeleteRecordsResultPartition] | ApiError], None]
"""Called with the results in the order of the request, or with an `ApiError` when the broker itself failed."""


class _DeleteRecordsPartitionStatus:
    """The offset below which one partition is to be deleted on all its live replicas."""

    def __init__(self, partition: Partition, offset: int, is_alive: Callable[[int], bool]) -> None:
        self.partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = offset
        self._is_alive = is_alive

    def lost(self) -> bool:
        """Return True if this broker no longer leads the partition in that leader epoch."""
        return not self.partition.is_leader or self.partition.leader_epoch != self._leader_epoch

    @property
    def low_watermark(self) -> int:
        return self.partition.low_watermark(self._is_alive)

    def reached(self) -> bool:
        return self.low_watermark >= self._offset


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that waits for the followers; what is left in `pending` when it finishes has timed out."""

    __slots__ = ("pending",)

    def __init__(
        self,
        pending: dict[Hashable, _DeleteRecordsPartitionStatus],
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self.pending = pending

    def check(self, key: Hashable) -> bool:
        target = self.pending.get(key)
        if target is not None and (target.lost() or target.reached()):
            del self.pending[key]
        return not self.pending


class RecordDeleter:
    """Deletes records. A failure in one partition does not affect the others. Owner thread only."""

    def __init__(self, local: LocalPartitions, purgatory: Purgatory, is_alive: Callable[[int], bool]) -> None:
        self._local = local
        self._purgatory = purgatory
        self._is_alive = is_alive

    def delete(self, entries: Sequence[DeleteRecordsPartition], done: DeletionResults, *, timeout_ms: float) -> None:
        """Delete the records below an offset (-1 = below the high watermark) of partitions that this broker leads.

        `done` is called once, when no live replica has them, at the latest after `timeout_ms` (REQUEST_TIMED_OUT).
        POLICY_VIOLATION for a topic whose cleanup.policy lacks delete, OFFSET_OUT_OF_RANGE above the high watermark.
        """
        targets: dict[Hashable, _DeleteRecordsPartitionStatus] = {}
        refused: dict[Hashable, ErrorCode] = {}
        for entry in entries:
            key = TopicPartition(entry.topic, entry.partition)
            try:
                targets[key] = self._begin(entry)
            except ApiError as error:
                refused[key] = error.code
            except StorageError as error:
                self._local.storage_failed(key, error)
                refused[key] = ErrorCode.KAFKA_STORAGE_ERROR
        pending = {key: target for key, target in targets.items() if not target.reached()}

        def finish() -> None:
            done([_outcome(entry, targets, refused, pending) for entry in entries])

        if pending and timeout_ms > 0:
            waiting = DelayedDeleteRecords(pending, finish, lambda: done(broker_failed()))
            self._purgatory.watch(waiting, tuple(pending), timeout_ms)
        else:
            finish()
        for each in targets:
            self._purgatory.check(each)

    def _begin(self, entry: DeleteRecordsPartition) -> _DeleteRecordsPartitionStatus:
        partition = self._local.led(entry.topic, entry.partition)
        if "delete" not in partition.log.config.cleanup_policy:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
        return _DeleteRecordsPartitionStatus(partition, partition.delete_records(entry.offset), self._is_alive)


def _outcome(
    entry: DeleteRecordsPartition,
    targets: dict[Hashable, _DeleteRecordsPartitionStatus],
    refused: dict[Hashable, ErrorCode],
    pending: dict[Hashable, _DeleteRecordsPartitionStatus],
) -> DeleteRecordsResultPartition:
    key = (entry.topic, entry.partition)
    target = targets.get(key)
    code = refused.get(key, ErrorCode.NONE)
    if target is None:
        return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, error=code)
    if target.lost():
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif key in pending:
        code = ErrorCode.REQUEST_TIMED_OUT
    low = target.low_watermark if code is ErrorCode.NONE else -1
    return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, error=code, low_watermark=low)
