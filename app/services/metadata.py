"""Metadata: who leads what, and where the brokers are (facts C6)."""

from collections.abc import Mapping, Sequence

from attrs import evolve

from ...core.cluster.topics import NO_LEADER, Topic, check_topic_name
from ...ports.broker_api import Caller, Metadata, MetadataResult, PartitionMetadata, Reply, TopicMetadata
from ...ports.broker_api.operations import CLUSTER_OPERATIONS, NO_AUTHORIZED_OPERATIONS, TOPIC_OPERATIONS
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import TopicPartition
from .auto_creation import AutoCreation
from .internal_topics import TRANSACTIONS_TOPIC
from .state import BrokerState
from .topics import TopicService


class MetadataService:
    """Tells clients where to go; creates topics that are named but missing, where that is allowed."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._creation = AutoCreation(state, topics)

    def handle(self, request: Metadata, caller: Caller, reply: Reply[MetadataResult]) -> None:
        missing = self._to_create(request)
        if not missing:
            reply(self._result(request, caller, {}))
            return

        self._creation.make(missing, lambda errors: reply(self._result(request, caller, errors)))

    def _to_create(self, request: Metadata) -> list[str]:
        if not (request.allow_auto_topic_creation and self._state.settings.static.auto_create_topics_enable):
            return []
        named = dict.fromkeys(request.topics or ())
        return [name for name in named if not self._is_known(name) and name != TRANSACTIONS_TOPIC]

    def _is_known(self, name: str) -> bool:
        return name in self._state.registry.topics or self._state.classic.has(name)

    def _result(self, request: Metadata, caller: Caller, errors: Mapping[str, ErrorCode]) -> MetadataResult:
        """`errors`: of topics that could not be created, or are not yet."""
        state = self._state
        topics = self._answers(request, errors)
        asked = request.include_cluster_authorized_operations
        return MetadataResult(
            brokers=state.endpoints.nodes(state.live_brokers, caller),
            cluster_id=state.cluster_id,
            controller_id=state.controller_id,
            topics=_with_operations(topics) if request.include_topic_authorized_operations else topics,
            authorized_operations=CLUSTER_OPERATIONS if asked else NO_AUTHORIZED_OPERATIONS,
        )

    def _answers(self, request: Metadata, errors: Mapping[str, ErrorCode]) -> Sequence[TopicMetadata]:
        registry = self._state.registry
        if request.topics is None and not request.topic_ids:
            return [self._describe(topic) for topic in registry.topics.values()]
        answers = [self._by_name(name, errors) for name in dict.fromkeys(request.topics or ())]
        for topic_id in request.topic_ids:
            try:
                answers.append(self._describe(registry.topic_by_id(topic_id)))
            except ApiError as error:
                answers.append(TopicMetadata(name=None, topic_id=topic_id, error=error.code))
        return answers

    def _by_name(self, name: str, errors: Mapping[str, ErrorCode]) -> TopicMetadata:
        topic = self._state.registry.topics.get(name)
        if topic is not None:
            return self._describe(topic)
        if self._state.classic.has(name):
            return self._classic(name)
        error = errors.get(name, ErrorCode.NONE)
        return TopicMetadata(name=name, error=error or _why_unknown(name))

    def _describe(self, topic: Topic) -> TopicMetadata:
        return TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            internal=topic.internal,
            partitions=[self._partition(topic, number) for number in topic.partitions],
        )

    def _classic(self, name: str) -> TopicMetadata:
        """A classic topic that nobody created: led from here, so that who asks comes and is told what it is."""
        own = (self._state.node_id,)
        partitions = [
            PartitionMetadata(partition=number, leader=own[0], leader_epoch=0, replicas=own, isr=own)
            for number in range(self._state.classic.partitions(name))
        ]
        return TopicMetadata(name=name, partitions=partitions)

    def _partition(self, topic: Topic, number: int) -> PartitionMetadata:
        state = self._state
        replicas = topic.partitions[number]
        known = state.registry.state(TopicPartition(topic.name, number))
        offline = [broker for broker in replicas if not state.has_replica(topic.name, number, broker)]
        leader = NO_LEADER if known.leader in offline else known.leader
        return PartitionMetadata(
            partition=number,
            leader=leader,
            leader_epoch=known.leader_epoch,
            replicas=replicas,
            isr=known.isr,
            offline_replicas=offline,
            error=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        )


def _with_operations(topics: Sequence[TopicMetadata]) -> Sequence[TopicMetadata]:
    """Everything may be done with a topic that is there, since nobody forbids it."""
    return [
        evolve(topic, authorized_operations=TOPIC_OPERATIONS) if topic.error is ErrorCode.NONE else topic
        for topic in topics
    ]


def _why_unknown(name: str) -> ErrorCode:
    """One that no topic can have is no use to wait for."""
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
