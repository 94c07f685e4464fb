"""`__consumer_offsets` gets the replicas that it is to have as brokers come: it was made with those that lived then."""

from ...core.cluster.deltas import BrokersChanged, ControllerChanged, Delta, TopicSet
from ...core.cluster.image import ClusterImage
from ...core.cluster.moves import grown
from ...core.cluster.topics import Topic
from ...ports.coordination import BadVersion
from ...ports.errors import BarnabasError
from ...ports.report import info
from .internal_topics import OFFSETS_TOPIC
from .state import BrokerState
from .topics import TopicService


class OffsetsReplicas:
    """The controller sees to it. It only adds replicas, up to `offsets.topic.replication.factor`. Owner thread only."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics
        self._is_under_way = False
        if not state.is_alone:
            state.registry.listen(self._cluster_changed)

    def _cluster_changed(self, delta: Delta, _before: ClusterImage) -> None:
        match delta:
            case BrokersChanged() | ControllerChanged():
                self._look()
            case TopicSet(topic=topic) if topic.name == OFFSETS_TOPIC:
                self._look()

    def _look(self) -> None:
        state = self._state
        controller, topic = state.image.controller, state.image.topics.get(OFFSETS_TOPIC)
        if self._is_under_way or topic is None or controller is None or controller.broker_id != state.node_id:
            return
        if self._grown(topic) is not topic:
            self._is_under_way = True
            state.changes.submit(f"more replicas of {OFFSETS_TOPIC}", self._grow, self._ended)

    def _grown(self, topic: Topic) -> Topic:
        state = self._state
        return grown(topic, state.settings.static.offsets_topic_replication_factor, state.racks())

    async def _grow(self) -> None:
        state = self._state
        topic = state.image.topic(OFFSETS_TOPIC)
        after = self._grown(topic)
        if after is topic:
            return
        try:
            await state.registry.move(after, {})
        except BadVersion:
            pass  # others have changed it: the next look is at theirs
        else:
            count = len(after.adding)
            state.report(info(f"{count} partitions of {OFFSETS_TOPIC} get more replicas, since more brokers live"))
        await self._topics.settle(OFFSETS_TOPIC)

    def _ended(self, error: BarnabasError | None) -> None:
        """What failed, which is reported, is tried again when something changes."""
        self._is_under_way = False
        if error is None:
            self._look()
