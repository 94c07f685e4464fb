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
from ...ports.words import TopicPartition
from .state import BrokerState


class RecordService:
    """Deletes records from the front."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def delete(self, request: DeleteRecords, _caller: Caller, reply: Reply[DeleteRecordsResult]) -> None:
        reply(DeleteRecordsResult(partitions=[self._delete(entry) for entry in request.partitions]))

    def _delete(self, entry: DeleteRecordsPartition) -> DeleteRecordsResultPartition:
        replicas = self._state.replicas
        try:
            low_watermark = replicas.delete_records(entry.topic, entry.partition, entry.offset)
        except ApiError as error:
            return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, error=error.code)
        except StorageError as error:
            replicas.storage_failed(TopicPartition(entry.topic, entry.partition), error)
            return DeleteRecordsResultPartition(
                topic=entry.topic, partition=entry.partition, error=ErrorCode.KAFKA_STORAGE_ERROR
            )
        return DeleteRecordsResultPartition(topic=entry.topic, partition=entry.partition, low_watermark=low_watermark)
