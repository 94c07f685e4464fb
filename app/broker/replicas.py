"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments (facts C6), where partitions stay put."""

from ...core.cluster.topics import NO_LEADER
from ...ports.broker_api import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    Caller,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    PartitionChange,
    Reassignment,
    Reply,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import TopicPartition
from .state import BrokerState


class ReplicaService:
    """Tells who asks for another leader or other replicas that nothing is to be done, or cannot be."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    # --- leaders

    def elect(self, request: ElectLeaders, _caller: Caller, reply: Reply[ElectLeadersResult]) -> None:
        if request.election_type not in tuple(ElectionType):
            reply(ElectLeadersResult(partitions=(), error=ErrorCode.INVALID_REQUEST))
            return
        kind = ElectionType(request.election_type)
        if request.topics is not None:
            asked = [(topic, number) for topic, numbers in request.topics.items() for number in numbers]
            reply(ElectLeadersResult(partitions=[self._elect(*place, kind) for place in asked]))
            return
        topics = self._state.image.topics
        outcomes = [self._elect(name, number, kind) for name, topic in topics.items() for number in topic.partitions]
        needed = [outcome for outcome in outcomes if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED]
        reply(ElectLeadersResult(partitions=needed))

    def _elect(self, topic: str, number: int, kind: ElectionType) -> PartitionChange:
        try:
            error = self._election(TopicPartition(topic, number), kind)
        except ApiError as refused:
            error = refused
        return PartitionChange(topic=topic, partition=number, error=error.code, error_message=error.message)

    def _election(self, key: TopicPartition, kind: ElectionType) -> ApiError:
        """Why nobody is elected. Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`."""
        leader = self._state.image.state(key).leader
        preferred = self._state.image.topic(key.topic).partitions[key.partition][0]
        leads = leader != NO_LEADER and self._state.has_replica(key.topic, key.partition, leader)
        if leads and (kind is ElectionType.UNCLEAN or leader == preferred):
            return ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {key} already")
        if kind is ElectionType.UNCLEAN:
            return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no broker that lives has {key}")
        text = f"broker {preferred}, the first replica of {key}, is not there"
        return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)

    # --- replicas

    def reassign(
        self,
        request: AlterPartitionReassignments,
        _caller: Caller,
        reply: Reply[AlterPartitionReassignmentsResult],
    ) -> None:
        def one(wanted: Reassignment) -> PartitionChange:
            try:
                self._check_stays(wanted)
            except ApiError as error:
                return PartitionChange(
                    topic=wanted.topic, partition=wanted.partition, error=error.code, error_message=error.message
                )
            return PartitionChange(topic=wanted.topic, partition=wanted.partition)

        reply(AlterPartitionReassignmentsResult(partitions=[one(wanted) for wanted in request.partitions]))

    def _check_stays(self, wanted: Reassignment) -> None:
        """Accept the replicas that the partition has. Raises `ApiError` for all others."""
        key = TopicPartition(wanted.topic, wanted.partition)
        self._state.image.state(key)
        present = self._state.image.topic(key.topic).partitions[key.partition]
        if wanted.replicas is None:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{key} is not moving")
        replicas = tuple(wanted.replicas)
        if replicas == present:
            return
        unknown = sorted(set(replicas) - self._state.image.brokers.keys())
        if not replicas:
            fault = "has no replicas"
        elif len(set(replicas)) != len(replicas):
            fault = f"names a broker twice: {list(replicas)}"
        elif unknown:
            fault = f"names brokers that are not alive: {unknown}"
        else:
            fault = f"moves it away from {list(present)}, which this broker cannot do"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment of {key} {fault}")

    def list_moves(
        self,
        _request: ListPartitionReassignments,
        _caller: Caller,
        reply: Reply[ListPartitionReassignmentsResult],
    ) -> None:
        reply(ListPartitionReassignmentsResult(partitions=()))
