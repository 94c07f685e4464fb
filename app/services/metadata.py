"""Metadata: who leads what, and where the brokers are (facts C6)."""

from collections.abc import Sequence

from ...core.cluster.topics import NO_LEADER, Topic
from ...ports.broker_api import Caller, Metadata, MetadataResult, PartitionMetadata, Reply, TopicMetadata
from ...ports.broker_api.topics import NewTopic
from ...ports.coordination import CoordinationError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import StorageError
from ...ports.words import TopicPartition
from .state import BrokerState
from .topics import TopicService


class MetadataService:
    """Tells clients where to go; creates topics that are named but missing, where that is allowed."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics

    def handle(self, request: Metadata, caller: Caller, reply: Reply[MetadataResult]) -> None:
        state = self._state
        reply(
            MetadataResult(
                brokers=state.endpoints.nodes(state.live_brokers, caller),
                cluster_id=state.cluster_id,
                controller_id=state.controller_id,
                topics=self._answers(request),
            )
        )

    def _answers(self, request: Metadata) -> Sequence[TopicMetadata]:
        registry = self._state.registry
        if request.topics is None and not request.topic_ids:
            return [self._describe(topic) for topic in registry.topics.values()]
        create = request.allow_auto_topic_creation and self._state.settings.static.auto_create_topics_enable
        answers = [self._by_name(name, create=create) for name in dict.fromkeys(request.topics or ())]
        for topic_id in request.topic_ids:
            try:
                answers.append(self._describe(registry.topic_by_id(topic_id)))
            except ApiError as error:
                answers.append(TopicMetadata(name=None, topic_id=topic_id, error=error.code))
        return answers

    def _by_name(self, name: str, *, create: bool) -> TopicMetadata:
        topic = self._state.registry.topics.get(name)
        if topic is None and self._state.classic.has(name):
            return self._classic(name)
        if topic is None:
            try:
                topic = self._topics.create_one(NewTopic(name=name)) if create else self._state.registry.topic(name)
            except ApiError as error:
                return TopicMetadata(name=name, error=error.code)
            except StorageError as error:
                self._state.failed(f"creating topic {name}", error)
                return TopicMetadata(name=name, error=ErrorCode.KAFKA_STORAGE_ERROR)
            except CoordinationError as error:
                self._state.failed(f"creating topic {name}", error)
                return TopicMetadata(name=name, error=ErrorCode.LEADER_NOT_AVAILABLE)
        return self._describe(topic)

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
