"""ListOffsets: the ends of a log, and the offsets of timestamps (facts B3, C6)."""

from collections import Counter

from ....core.replica.leader.offset_lookup import look_up
from ....core.replica.partition.fetch_isolation import FetchIsolation
from ....core.replica.partition.partition import Partition
from ....core.traffic.steps import Steps
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.offsets import (
    EARLIEST,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState
from .replica_authorization import refused_replica

DEBUGGING = -2
"""The replica id of tools that read one replica, whether it leads or not."""
_READ_COMMITTED = 1
"""The isolation level of readers up to the last stable offset (facts C6)."""


class ListOffsetsService:
    """Looks up offsets, partition by partition. A partition that is named twice is refused, as in Kafka."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handle(self, request: ListOffsets, caller: Caller, reply: Reply[ListOffsetsResult]) -> None:
        refused = refused_replica(request, caller, self._state.endpoints, self._state.image.brokers)
        if refused is not None:
            reply(refused)
            return
        self._state.answer_in_steps("ListOffsets", self._look_up_all(request), caller, reply)

    def _look_up_all(self, request: ListOffsets) -> Steps[ListOffsetsResult]:
        named = Counter((entry.topic, entry.partition) for entry in request.partitions)
        found = []
        for entry in request.partitions:
            if named[entry.topic, entry.partition] > 1:
                found.append(_failed(entry, ErrorCode.INVALID_REQUEST))
            else:
                found.append((yield from self._look_up(entry, request)))
            yield None
        return ListOffsetsResult(partitions=found)

    def _look_up(self, entry: ListOffsetsPartition, request: ListOffsets) -> Steps[ListOffsetsResultPartition]:
        try:
            partition = self._partition(entry, anywhere=request.replica_id == DEBUGGING)
            timestamp, offset, epoch = yield from look_up(partition, entry.timestamp, _isolation_of(request))
        except ApiError as error:
            return _failed(entry, error.code)
        except StorageError as error:
            self._state.replicas.storage_failed(TopicPartition(entry.topic, entry.partition), error)
            return _failed(entry, ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._state.failed(f"looking into {entry.topic}-{entry.partition}", error)
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
