"""FindCoordinator: the coordinator of a key leads the key's partition of an internal topic (facts C6)."""

from collections.abc import Mapping
from functools import partial

from ....core.coordinator.table import partition_of
from ....core.share.persister import SharePartitionKey
from ....core.traffic.steps import Steps
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.groups import (
    GROUP_COORDINATOR,
    SHARE_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Coordinator,
    FindCoordinator,
    FindCoordinatorResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState
from .internal_topic_creation import InternalTopics
from .internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

_TOPICS = {
    GROUP_COORDINATOR: OFFSETS_TOPIC,
    TRANSACTION_COORDINATOR: TRANSACTIONS_TOPIC,
    SHARE_COORDINATOR: SHARE_STATE_TOPIC,
}


class CoordinatorService:
    """Finds coordinators. Owner thread only."""

    def __init__(self, state: BrokerState, internal: InternalTopics) -> None:
        self._state = state
        self._internal = internal

    def find(self, request: FindCoordinator, caller: Caller, reply: Reply[FindCoordinatorResult]) -> None:
        """Answer with the coordinators; create the internal topic at its first use."""
        topic, text = _TOPICS.get(request.key_type), f"there are no coordinators of type {request.key_type}"
        if request.key_type == SHARE_COORDINATOR:
            text = _fault_of(request)
        if topic is None or (topic == SHARE_STATE_TOPIC and text):
            refused = [Coordinator(key=k, error=ErrorCode.INVALID_REQUEST, error_message=text) for k in request.keys]
            reply(FindCoordinatorResult(coordinators=refused))
        elif not request.keys:
            reply(FindCoordinatorResult(coordinators=()))
        else:
            self._internal.make(topic, partial(self._answer, request, topic, caller, reply))

    def _answer(
        self, request: FindCoordinator, topic: str, caller: Caller, reply: Reply[FindCoordinatorResult], why_not: str
    ) -> None:
        """Answer in steps, since a request may contain very many keys."""

        def found() -> Steps[FindCoordinatorResult]:
            nodes = {node.node_id: node for node in self._state.endpoints.nodes(self._state.image.brokers, caller)}
            coordinators = []
            for key in request.keys:
                coordinators.append(self._coordinator_of(key, topic, nodes, why_not))
                yield None
            return FindCoordinatorResult(coordinators=coordinators)

        self._state.answer_in_steps("FindCoordinator", found(), caller, reply)

    def _coordinator_of(self, key: str, topic_name: str, nodes: Mapping[int, BrokerNode], why_not: str) -> Coordinator:
        state = self._state
        topic = state.image.topics.get(topic_name)
        if topic is None:
            return _unavailable(key, why_not or f"there is no topic {topic_name}")
        place = TopicPartition(topic_name, partition_of(key, len(topic.partitions)))
        leader = state.image.state(place).leader
        node = nodes.get(leader)
        if node is None or not state.has_replica(*place, leader):
            return _unavailable(key, f"{place} has no leader")
        return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)


def _fault_of(request: FindCoordinator) -> str:
    """Return why there are no share coordinators for the request, or an empty text."""
    if not request.knows_share:
        return "this version of FindCoordinator has no share partitions"
    try:
        for key in request.keys:
            SharePartitionKey.parse(key)
    except ValueError:
        return f"{key[:260]!r} is not GROUP:TOPIC_ID:PARTITION"
    return ""


def _unavailable(key: str, text: str) -> Coordinator:
    return Coordinator(key=key, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=text)
