"""DeleteRecords: advance the log start offset (facts C6)."""

from collections.abc import Sequence

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.topics import DeleteRecords, DeleteRecordsResult, DeleteRecordsResultPartition
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState


class RecordService:
    """Deletes records below an offset."""

    def __init__(self, state: BrokerState) -> None:
        self._delete = state.replicas.delete_records

    def delete(self, request: DeleteRecords, _caller: Caller, reply: Reply[DeleteRecordsResult]) -> None:
        def done(results: Sequence[DeleteRecordsResultPartition] | ApiError) -> None:
            reply(results if isinstance(results, ApiError) else DeleteRecordsResult(partitions=results))

        self._delete(request.partitions, done, timeout_ms=request.timeout_ms)
