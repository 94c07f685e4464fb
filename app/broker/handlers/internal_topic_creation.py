"""Creation of internal topics at their first use, and the replicas that they get when brokers join."""

from collections.abc import Callable
from functools import partial

from ....core.cluster.deltas import BrokersChanged, ControllerChanged, Delta, TopicSet
from ....core.cluster.image import ClusterImage
from ....core.cluster.reassignment import grown
from ....core.cluster.topics import INTERNAL_TOPICS, Topic
from ....ports.broker_api.topics import NewTopic
from ....ports.coordination import BadVersion
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.report import counted, info
from ..state.broker_state import BrokerState
from .internal_topics import replication_factor_of
from .topics import TopicService


class InternalTopics:
    """Creates internal topics at their first use. Owner thread only."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics

    def make(self, name: str, callback: Callable[[str], None]) -> None:
        """Call back when the topic exists, at once or later: with an empty text, or the error of its creation.

        Another broker may create it at the same time. The text then says so, until this broker knows the topic.
        """
        if name in self._state.image.topics:
            callback("")
            return
        created_by_another = ""

        async def made() -> None:
            nonlocal created_by_another
            if name in self._state.image.topics:
                return
            try:
                await self._topics.create_one(NewTopic(name=name))
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                created_by_another = str(error)

        def answered(error: BarnabasError | None) -> None:
            callback(created_by_another if error is None else str(error))

        self._state.changes.submit(f"making {name}", made, answered)


class InternalReplicas:
    """Adds replicas to internal topics that were created while fewer brokers were alive, on the controller.

    It removes none. Owner thread only.
    """

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics
        self._under_way: set[str] = set()

    def start(self) -> None:
        """Follow the brokers and topics of the cluster from now on; a broker without others does nothing."""
        if not self._state.is_alone:
            self._state.registry.listen(self._cluster_changed)

    def _cluster_changed(self, delta: Delta, _before: ClusterImage) -> None:
        match delta:
            case BrokersChanged() | ControllerChanged():
                for name in sorted(INTERNAL_TOPICS):
                    self._check_topic(name)
            case TopicSet(topic=topic) if topic.name in INTERNAL_TOPICS:
                self._check_topic(topic.name)

    def _check_topic(self, name: str) -> None:
        state = self._state
        controller, topic = state.image.controller, state.image.topics.get(name)
        if name in self._under_way or topic is None or controller is None or controller.broker_id != state.node_id:
            return
        if self._grown(topic) is not topic:
            self._under_way.add(name)
            state.changes.submit(f"more replicas of {name}", partial(self._grow, name), partial(self._ended, name))

    def _grown(self, topic: Topic) -> Topic:
        state = self._state
        wanted = replication_factor_of(topic.name, state.settings.static)
        return grown(topic, wanted, state.racks(), state.image.machines())

    async def _grow(self, name: str) -> None:
        state = self._state
        topic = state.image.topic(name)
        after = self._grown(topic)
        if after is topic:
            return
        try:
            await state.registry.move(after, {})
        except BadVersion:
            pass  # another broker has changed the topic: the next check uses its state
        else:
            grown = counted(len(after.adding), f"partition of {name} gets", f"partitions of {name} get")
            state.report(info(f"{grown} more replicas, since more brokers live"))
        await self._topics.apply_topic(name)

    def _ended(self, name: str, error: BarnabasError | None) -> None:
        """End an attempt. A failure, which is reported, is retried at the next change of the cluster."""
        self._under_way.discard(name)
        if error is None:
            self._check_topic(name)
