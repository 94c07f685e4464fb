"""The cached metadata of topics for Metadata responses; each is made once, and kept until it changes."""

from collections.abc import Sequence

from attrs import evolve

from ....core.cluster.image import ClusterImage, States
from ....core.cluster.topics import NO_LEADER, PartitionState, Topic
from ....core.traffic.steps import Steps
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.metadata import MetadataResult, PartitionMetadata, TopicMetadata
from ....ports.broker_api.operations import TOPIC_OPERATIONS
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..state.broker_state import BrokerState

_WHOLE_MAX = 16
"""The maximum number of cached responses with all topics: one for each listener, kind of caller and set of options."""

WholeKey = tuple[Sequence[BrokerNode], bool, bool]


@frozen
class _View:
    """The metadata made from these values."""

    topic: Topic
    states: States
    metadata: TopicMetadata


class TopicViews:
    """Caches metadata, together with its encoded bytes: the clients of a cluster send the same requests again and
    again.

    A view is valid while the image has the same values for the topic, its states and the brokers, and the same replicas
    are here. Owner thread only.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._views: dict[tuple[str, bool], _View] = {}
        self._whole: dict[WholeKey, MetadataResult] = {}
        self._image = state.image

    def of(self, topic: Topic, *, operations: bool) -> TopicMetadata:
        """Return the metadata of one topic, with the authorized operations if requested."""
        self._look_for_changes()
        return self._of(self._image, topic, operations)

    def _of(self, image: ClusterImage, topic: Topic, operations: bool) -> TopicMetadata:
        key = (topic.name, operations)
        states = image.states_of(topic.name)
        view = self._views.get(key)
        if view is None or view.topic is not topic or view.states is not states:
            view = self._views[key] = _View(topic, states, self._made(image, topic, operations))
        return view.metadata

    def all_topics(self, *, operations: bool) -> Steps[Sequence[TopicMetadata]]:
        """Return the metadata of all topics, as of one moment, in steps."""
        self._look_for_changes()
        image, found = self._image, []
        for topic in image.topics.values():
            found.append(self._of(image, topic, operations))
            yield None
        return found

    def whole(self, key: WholeKey) -> MetadataResult | None:
        """Return the response cached under this key, or None."""
        self._look_for_changes()
        return self._whole.get(key)

    def keep_whole(self, key: WholeKey, result: MetadataResult) -> MetadataResult:
        """Cache a response that was made since the last change."""
        if len(self._whole) >= _WHOLE_MAX:
            self._whole.clear()
        whole = self._whole[key] = evolve(result, encoded={})
        return whole

    @property
    def version(self) -> object:
        """An object that is replaced at each change."""
        self._look_for_changes()
        return self._version

    _version: object = None

    def _look_for_changes(self) -> None:
        before, image, changed = self._image, self._state.image, self._state.replicas_changed
        if image is before and not changed:
            return
        self._image = image
        if image.brokers is not before.brokers:
            self._views.clear()
        elif len(self._views) > 2 * len(image.topics) + _WHOLE_MAX:  # some are of deleted topics
            self._views = {key: view for key, view in self._views.items() if key[0] in image.topics}
        for name in changed:
            self._views.pop((name, False), None)
            self._views.pop((name, True), None)
        changed.clear()
        self._whole.clear()
        self._version = object()

    def _made(self, image: ClusterImage, topic: Topic, operations: bool) -> TopicMetadata:
        view = TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            internal=topic.internal,
            partitions=[self._partition(image, topic, number) for number in topic.partitions],
            encoded={},
        )
        return evolve(view, authorized_operations=TOPIC_OPERATIONS) if operations else view

    @staticmethod
    def _is_in_sync(image: ClusterImage, known: PartitionState, broker_id: int) -> bool:
        """Return False for a broker that has registered again since: it will leave the ISR, and has to catch up."""
        broker = image.brokers.get(broker_id)
        return broker is None or broker.broker_epoch == known.broker_epochs.get(broker_id)

    def _partition(self, image: ClusterImage, topic: Topic, number: int) -> PartitionMetadata:
        state = self._state
        replicas = topic.partitions[number]
        known = image.state(TopicPartition(topic.name, number))
        offline = [broker for broker in replicas if not state.has_replica(topic.name, number, broker)]
        leader = NO_LEADER if known.leader in offline else known.leader
        return PartitionMetadata(
            partition=number,
            leader=leader,
            leader_epoch=known.leader_epoch,
            replicas=replicas,
            isr=[broker for broker in known.isr if self._is_in_sync(image, known, broker)],
            offline_replicas=offline,
            error=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        )
