"""Topics as Metadata tells them, each made once and kept until something of it changes."""

from collections.abc import Mapping, Sequence

from attrs import evolve

from ...core.cluster.topics import NO_LEADER, BrokerRegistration, Topic
from ...core.traffic.steps import Steps
from ...ports.broker_api import BrokerNode, MetadataResult, PartitionMetadata, TopicMetadata
from ...ports.broker_api.operations import TOPIC_OPERATIONS
from ...ports.error_codes import ErrorCode
from ...ports.words import TopicPartition
from .state import BrokerState

_WHOLE_MAX = 16
"""Answers that name all topics and are kept: one for each listener, the way a caller sees it, and what he asks."""

WholeKey = tuple[Sequence[BrokerNode], bool, bool]


class TopicViews:
    """What is kept remembers the bytes that it was sent as, too: the clients of a cluster ask the same again and again.

    It counts until the registry names the topic as changed, or other brokers are alive. Owner thread only.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._views: dict[tuple[str, bool], TopicMetadata] = {}
        self._whole: dict[WholeKey, MetadataResult] = {}
        self._live: Mapping[int, BrokerRegistration] = state.live_brokers

    def of(self, topic: Topic, *, operations: bool) -> TopicMetadata:
        """One topic, with what may be done to it where that is asked for."""
        self._look_for_changes()
        key = (topic.name, operations)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._made(topic, operations=operations)
        return view

    def all_topics(self, *, operations: bool) -> Steps[Sequence[TopicMetadata]]:
        """All of them, in steps."""
        topics = self._state.registry.topics
        found = []
        for name in tuple(topics):
            topic = topics.get(name)
            if topic is not None:
                found.append(self.of(topic, operations=operations))
                yield None
        return found

    def whole(self, key: WholeKey) -> MetadataResult | None:
        """The answer kept under this key."""
        self._look_for_changes()
        return self._whole.get(key)

    def keep_whole(self, key: WholeKey, result: MetadataResult) -> MetadataResult:
        """Keep an answer that was made since the last change."""
        if len(self._whole) >= _WHOLE_MAX:
            self._whole.clear()
        kept = self._whole[key] = evolve(result, encoded={})
        return kept

    @property
    def version(self) -> object:
        """Another one after each change."""
        self._look_for_changes()
        return self._version

    _version: object = None

    def _look_for_changes(self) -> None:
        state = self._state
        changed = state.registry.changed
        if state.live_brokers is not self._live:
            self._live = state.live_brokers
            self._views.clear()
        elif not changed:
            return
        for name in changed:
            self._views.pop((name, False), None)
            self._views.pop((name, True), None)
        changed.clear()
        self._whole.clear()
        self._version = object()

    def _made(self, topic: Topic, *, operations: bool) -> TopicMetadata:
        view = TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            internal=topic.internal,
            partitions=[self._partition(topic, number) for number in topic.partitions],
            encoded={},
        )
        return evolve(view, authorized_operations=TOPIC_OPERATIONS) if operations else view

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
