"""Leader hints: the current leader in responses of a broker that does not lead the partition (KIP-951)."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from attrs import evolve

from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.fetch import CurrentLeader, FetchResultPartition
from ....ports.broker_api.produce import ProduceResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState

ResultT = TypeVar("ResultT", FetchResultPartition, ProduceResultPartition)

_ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
_EARLIER = ErrorCode.FENCED_LEADER_EPOCH
_ERRORS = (_ELSEWHERE, _EARLIER)


class Leaders:
    """Adds leaders of the cluster image to error responses. Owner thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def add_leaders(self, results: Sequence[ResultT], caller: Caller) -> tuple[Sequence[ResultT], Sequence[BrokerNode]]:
        """Return the results, with the current leaders where it is not this broker or epoch, and their nodes."""
        for result in results:  # a loop: it costs a third of `any` with a generator, in every produce and fetch
            if result.error in _ERRORS:
                return self._add_leaders(results, caller)
        return results, ()

    def _add_leaders(
        self, results: Sequence[ResultT], caller: Caller
    ) -> tuple[Sequence[ResultT], Sequence[BrokerNode]]:
        hinted = [self._with_leader(result) for result in results]
        leaders = [result.current_leader for result in hinted if result.current_leader is not None]
        return hinted, self.nodes(leaders, caller)

    def nodes(self, leaders: Iterable[CurrentLeader], caller: Caller) -> Sequence[BrokerNode]:
        """Return the nodes of leaders that are alive."""
        named = {each.leader_id for each in leaders}
        live = {each: broker for each, broker in self._state.image.brokers.items() if each in named}
        return self._state.endpoints.nodes(live, caller)

    def _with_leader(self, result: ResultT) -> ResultT:
        leader = self.current_leader(result.error, result.topic, result.partition)
        return result if leader is None else evolve(result, current_leader=leader)

    def current_leader(self, error: ErrorCode, topic: str, partition: int) -> CurrentLeader | None:
        """Return the leader to name in an answer with this error; None: it is not known, or another error."""
        if error not in _ERRORS or not topic:
            return None
        try:
            state = self._state.image.state(TopicPartition(topic, partition))
        except ApiError:
            return None
        # The replica that has just refused knows better than the image that it does not lead.
        if state.leader < 0 or (error is _ELSEWHERE and state.leader == self._state.node_id):
            return None
        return CurrentLeader(state.leader, state.leader_epoch)
