"""DeleteRecords: move the start of a log (facts C6)."""

from ...ports.broker_api import (
    Caller,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResult,
    DeleteRecordsResultPartition,
    Reply,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import StorageError
from .state import BrokerState


class RecordService:
    """Deletes records from the front."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def delete(self, request: DeleteRecords, _caller: Caller, reply: Reply[DeleteRecordsResult]) -> None:
        reply(DeleteRecordsResult(partitions=[self._delete(entry) for entry in request.partitions]))

    def _delete(self, entry: DeleteRecordsPartition) -> DeleteRecordsResultPartition:
        key = (entry.topic, entry.partition)
        partition = self._state.partitions.get(key)
        try:
            if partition is None:
                raise self._state.unknown_partition(entry.topic, entry.partition)
            partition.check_leader()
            if "delete" not in partition.log.config.cleanup_policy:
                raise ApiError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
            low_watermark = partition.delete_records(entry.offset)
        except ApiError as error:
            return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, error=error.code)
        except StorageError as error:
            self._state.storage_failed(partition, error)
            return DeleteRecordsResultPartition(
                topic=entry.topic, partition=entry.partition, error=ErrorCode.KAFKA_STORAGE_ERROR
            )
        self._state.purgatory.check(key)
        return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, low_watermark=low_watermark)
