"""OffsetForLeaderEpoch: the offset up to which a reader's log equals the leader's (facts B4, D6)."""

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.epochs import (
    EpochEndOffset,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
)
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState
from .replica_authorization import refused_replica


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
