"""The client's view of its cluster, and the rules for refreshing it (facts C6, Metadata)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve

from ...ports.broker_api.cluster import BrokerNode
from ...ports.broker_api.fetch import CurrentLeader
from ...ports.broker_api.metadata import NO_TOPIC_ID, Metadata, MetadataResult, TopicMetadata
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.transport import Address, AuthenticationError
from ...ports.types import TopicPartition
from ...ports.values import frozen
from .arguments import check_topic
from .effects import NEVER, Poll, Send, backoff_ms
from .errors import silent

COORDINATORS = 2**32
"""Nodes from here on are brokers in their role as coordinators."""
_SOON_MS = 250.0
_SOON = 40
"""The number of metadata requests in a row that follow each other within `_SOON_MS` while a partition has no leader
that can be reached; an election takes little time. Later requests use the full back-off, and an unreachable leader
causes more of them only after another attempt to reach it has failed."""


@frozen
class TopicView:
    """One topic as of the last metadata; immutable, so that any thread may look at it."""

    topic_id: bytes
    leaders: tuple[int, ...]
    """Per partition the broker's id; -1 = none now."""
    epochs: tuple[int, ...]
    available: tuple[int, ...]
    """The partitions that have a leader; all of them while none has."""
    partitions: tuple[TopicPartition, ...]
    """The partitions by their full names."""


@frozen(kw_only=True)
class ViewSettings:
    """The back-off, age and auto-creation of metadata requests."""

    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    metadata_max_age_ms: float = 300_000
    allow_auto_create: bool = True


class ClusterView:
    """Brokers, and the topics of `add_topics`; refreshes itself on request, when stale and after errors.

    It asks any broker that it can reach, and falls back to the bootstrap addresses when it can reach none. While the
    leader of a wanted topic cannot be reached, it keeps refreshing, since an election is due. It accepts a leader from
    metadata unless the leader epoch is older than the known one.

    `topic` and `leader` may be called from any thread, `add_topics` and `request_refresh` under the lock of `poll`.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        entropy: Entropy,
        settings: ViewSettings,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`moved` is called when brokers have left the cluster or have other addresses."""
        self._bootstrap = tuple(bootstrap)
        self._entropy = entropy
        self._settings = settings
        self._topics: dict[str, TopicView] = {}
        self._wanted: set[str] = set()
        self._wants_all = False
        self._coordinators: dict[int, Address] = {}
        self.all_topics: Mapping[str, bool] | None = None
        """Every topic of the cluster, and if it is internal; None without `need_all_topics`, and while not known."""
        self.topic_errors: dict[str, ErrorCode] = {}
        """The errors of the last metadata for wanted topics that cannot be used."""
        self.brokers: dict[int, Address] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self.last_error: BarnabasError | None = None
        """The error of the last attempt to get metadata; None after a success."""
        self.updates = 0
        self._needed = False
        self._in_flight = False
        self._question = 0
        self._asked_node = 0
        self._asked_all = False
        self._failures = 0
        self._not_before = -NEVER
        self._updated_ms = -NEVER
        self._turn = 0
        self._moved = moved
        self._unreachable: set[int] = set()

    def topic(self, name: str) -> TopicView | None:
        """Return the topic, or None when it is not known (yet)."""
        return self._topics.get(name)

    def topic_id(self, name: str) -> bytes:
        """Return the topic's id; NO_TOPIC_ID if it is unknown, or brokers have no topic ids (before Kafka 2.8)."""
        view = self._topics.get(name)
        return NO_TOPIC_ID if view is None else view.topic_id

    def stale(self, tp: TopicPartition, topic_id: bytes) -> ApiError | None:
        """Return why a position in the topic of this id has no meaning now: that topic was deleted."""
        view, error = self._topics.get(tp.topic), self.topic_errors.get(tp.topic)
        if topic_id == NO_TOPIC_ID:
            return None
        if view is None and error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ApiError(error, f"topic {tp.topic} was deleted")
        if view is None or view.topic_id in (NO_TOPIC_ID, topic_id):
            return None
        text = f"topic {tp.topic} was deleted and made again: a position in the one that was read means nothing now"
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, text)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the broker to ask for this partition, or None when there is none or it is not known."""
        view = self._topics.get(topic)
        if view is None or not 0 <= partition < len(view.leaders):
            return None
        node = view.leaders[partition]
        return node if node in self.brokers else None

    def leadership(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the leader of the partition and its leader epoch; -1 for what is not known."""
        view = self._topics.get(topic)
        if view is None or not 0 <= partition < len(view.leaders):
            return -1, -1
        return view.leaders[partition], view.epochs[partition]

    def update_leader(self, tp: TopicPartition, leader: CurrentLeader | None, nodes: Sequence[BrokerNode]) -> bool:
        """Take the leader from a broker's error response (KIP-951). Return True if its epoch is a newer one."""
        view = self._topics.get(tp.topic)
        if leader is None or view is None or not 0 <= tp.partition < len(view.leaders):
            return False
        node, epoch = leader.leader_id, leader.leader_epoch
        if node < 0 or epoch <= view.epochs[tp.partition]:
            return False
        addresses = {each.node_id: (each.host, each.port) for each in nodes}
        if node not in self.brokers and node not in addresses:
            return False
        if node in addresses:
            self.brokers = {**self.brokers, node: addresses[node]}
        leaders, epochs = list(view.leaders), list(view.epochs)
        leaders[tp.partition], epochs[tp.partition] = node, epoch
        self._topics[tp.topic] = _with_leaders(view, leaders, epochs)
        return True

    def add_topics(self, topics: Iterable[str]) -> None:
        """Ask for these topics from now on; at once when one is not known, whatever the others wait for.

        Raises `TypeError` or `ValueError`, before anything is asked for, for a name that no request can carry.
        """
        wanted = list(topics)
        for topic in wanted:
            if topic not in self._wanted:
                check_topic(topic)
        for topic in wanted:
            if topic not in self._wanted:
                self._wanted.add(topic)
                self._needed = True
                if self.last_error is None:
                    self._not_before = -NEVER

    def wants(self, topic: str) -> bool:
        """Return True if metadata requests ask for this topic by its name."""
        return topic in self._wanted

    def need_all_topics(self, wants: bool = True) -> None:
        """Ask for all topics from now on, or for the wanted ones only again."""
        if wants and not self._wants_all:
            self._needed = True
            if self.last_error is None:
                self._not_before = -NEVER
        self._wants_all = wants
        if not wants:
            self.all_topics = None
            self._topics = {name: view for name, view in self._topics.items() if name in self._wanted}

    def forget(self, topic: str) -> None:
        """Stop asking for this topic."""
        self._wanted.discard(topic)
        self._topics.pop(topic, None)
        self.topic_errors.pop(topic, None)

    def request_refresh(self) -> None:
        """Request metadata again as soon as the back-off allows."""
        self._needed = True

    def address(self, node: int) -> Address | None:
        """Return the address of a node; None when it has left the cluster."""
        if node >= COORDINATORS:
            return self._coordinators.get(node)
        if node < 0:
            return self._bootstrap[-node - 1] if -node <= len(self._bootstrap) else None
        return self.brokers.get(node)

    def coordinator(self, broker: int, address: Address) -> int:
        """Return the node id of a coordinator's own connection to a broker, where no fetch delays its requests."""
        node = COORDINATORS + broker
        self._coordinators[node] = address
        return node

    def any_node(self) -> int:
        """Return a broker to ask for metadata: the same one until `try_another`, or until it cannot be reached.

        Bootstrap addresses come after known brokers.
        """
        nodes: list[int] = [*sorted(self.brokers), *range(-1, -len(self._bootstrap) - 1, -1)]
        for turn in range(self._turn, self._turn + len(nodes)):
            node = nodes[turn % len(nodes)]
            if node not in self._unreachable:
                return node
        return nodes[self._turn % len(nodes)]

    def controller_node(self) -> int | None:
        """Return the node for requests to the controller; None before the first metadata.

        While the controller cannot be reached, this is another broker, which does the work or knows the controller.
        """
        if self.controller in self.brokers and self.controller not in self._unreachable:
            return self.controller
        return self.any_node() if self.updates else None

    @property
    def failure_reason(self) -> BarnabasError | None:
        """The reason why there is no metadata: the last error, or else the broker that was asked and is silent."""
        if self.last_error is None and self._in_flight:
            return silent(self.address(self._asked_node))
        return self.last_error

    @property
    def authentication_error(self) -> AuthenticationError | None:
        """The error if the last request for metadata failed because the client or the broker was not authenticated."""
        return self.last_error if isinstance(self.last_error, AuthenticationError) else None

    @property
    def why(self) -> str:
        """`failure_reason` as the end of a text."""
        return "" if self.failure_reason is None else f"; last: {self.failure_reason}"

    def try_another(self) -> None:
        """Let `any_node` choose another broker, because this one was of no help."""
        self._turn += 1

    def on_node_status(self, node: int, answers: bool) -> None:
        """Note that a node has answered, or that it was unreachable or late. On the thread of `poll`."""
        broker = node - COORDINATORS if node >= COORDINATORS else node
        if answers:
            self._unreachable.discard(broker)
        elif broker not in self._unreachable:
            self._unreachable.add(broker)
            if node >= COORDINATORS or any(broker in view.leaders for view in self._topics.values()):
                self._needed = True

    def on_request_overdue(self, node: int) -> None:
        """Note that a node is late with an answer; metadata is then asked of another. On the thread of `poll`."""
        self.on_node_status(node, answers=False)
        if self._in_flight and node == self._asked_node:
            self.last_error = silent(self.address(node))
            self._question += 1
            self._in_flight = False
            self._needed = True

    def poll(self, now_ms: float) -> Poll:
        if self._in_flight:
            return Poll([], NEVER)
        stale_ms = self._updated_ms + self._settings.metadata_max_age_ms if self.updates else NEVER
        if not self._needed and now_ms < stale_ms:
            return Poll([], stale_ms)
        if now_ms < self._not_before:
            return Poll([], self._not_before)
        self._in_flight = True
        self._needed = False
        topics = None if self._wants_all else sorted(self._wanted)
        self._asked_all = self._wants_all
        request = Metadata(topics=topics, allow_auto_topic_creation=self._settings.allow_auto_create)
        self._asked_node = self.any_node()
        question = self._question
        return Poll(
            [Send(self._asked_node, request, lambda result, now: self._on_metadata(question, result, now))], NEVER
        )

    def _on_metadata(self, question: int, result: Any, now_ms: float) -> None:
        if question == self._question:
            self._answered(result, now_ms)

    def _answered(self, result: Any, now_ms: float) -> None:
        self._in_flight = False
        if not isinstance(result, MetadataResult):
            self.last_error = result
            self.try_another()
            self._again(now_ms)
            return
        self.last_error = None
        self._updated_ms = now_ms
        self._apply_metadata(result)
        if self._failures >= _SOON:  # a broker that gets no requests cannot show that it is back
            self._unreachable.clear()
        if self._incomplete():
            self._again(now_ms)
        elif self._lacks_leaders():
            self._again(now_ms, _SOON_MS if self._failures < _SOON else NEVER)
        else:
            self._failures = 0
            self._not_before = now_ms + self._settings.retry_backoff_ms
        self.updates += 1

    def _again(self, now_ms: float, most_ms: float = NEVER) -> None:
        self._needed = True
        self._failures += 1
        settings = self._settings
        most_ms = min(settings.retry_backoff_max_ms, max(settings.retry_backoff_ms, most_ms))
        self._not_before = now_ms + backoff_ms(
            self._failures, settings.retry_backoff_ms, most_ms, self._entropy.fraction()
        )

    def _apply_metadata(self, result: MetadataResult) -> None:
        if result.brokers:
            old, self.brokers = self.brokers, {each.node_id: (each.host, each.port) for each in result.brokers}
            self._unreachable = {node for node in self._unreachable if node < 0 or node in self.brokers}
            moved = [node for node, address in old.items() if self.brokers.get(node) != address]
            for node in moved:
                self._coordinators.pop(COORDINATORS + node, None)
            if moved:
                self._moved()
        self.controller = result.controller_id
        self.cluster_id = result.cluster_id
        everything = self._asked_all and self._wants_all
        if everything:
            self._apply_all_topics(result)
        for topic in result.topics:
            if topic.name is None or not (everything or topic.name in self._wanted):
                continue
            if topic.error is ErrorCode.NONE and topic.partitions:
                self._topics[topic.name] = _view_of(topic, self._topics.get(topic.name))
                self.topic_errors.pop(topic.name, None)
            else:
                self.topic_errors[topic.name] = topic.error or ErrorCode.LEADER_NOT_AVAILABLE
                if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._topics.pop(topic.name, None)

    def _apply_all_topics(self, result: MetadataResult) -> None:
        """Take a response about all topics; it does not list topics that do not exist."""
        self.all_topics = known = {topic.name: topic.internal for topic in result.topics if topic.name is not None}
        for name in self._topics.keys() - known.keys():
            del self._topics[name]
        for name in self.topic_errors.keys() - known.keys() - self._wanted:
            del self.topic_errors[name]
        for name in self._wanted - known.keys():
            self.topic_errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _incomplete(self) -> bool:
        """Return True while a wanted topic may become usable by asking again soon."""
        if any(error.retriable for name, error in self.topic_errors.items() if name in self._wanted):
            return True
        return any(name not in self._topics for name in self._wanted if name not in self.topic_errors)

    def _lacks_leaders(self) -> bool:
        """Return True while a partition has no leader, or one that cannot be reached."""
        views = [self._topics[name] for name in self._wanted if name in self._topics]
        return any(-1 in view.leaders or not self._unreachable.isdisjoint(view.leaders) for view in views)


def _view_of(topic: TopicMetadata, old: TopicView | None) -> TopicView:
    """Return the new view. It keeps known values where an epoch or the partition count went back: the broker lags."""
    count = max(p.partition for p in topic.partitions) + 1
    if old is not None and old.topic_id != topic.topic_id:
        old = None
    known = 0 if old is None else len(old.epochs)
    leaders, epochs = [-1] * max(count, known), [-1] * max(count, known)
    for p in topic.partitions:
        leaders[p.partition], epochs[p.partition] = p.leader, p.leader_epoch
    if old is not None:
        for index in range(known):
            is_back = -1 < epochs[index] < old.epochs[index]
            if is_back or (index >= count and old.epochs[index] >= 0):
                leaders[index], epochs[index] = old.leaders[index], old.epochs[index]
    partitions = tuple(TopicPartition(topic.name or "", index) for index in range(len(leaders)))
    return _with_leaders(TopicView(topic.topic_id, (), (), (), partitions), leaders, epochs)


def _with_leaders(view: TopicView, leaders: Sequence[int], epochs: Sequence[int]) -> TopicView:
    available = tuple(index for index, leader in enumerate(leaders) if leader >= 0)
    return evolve(view, leaders=tuple(leaders), epochs=tuple(epochs), available=available or tuple(range(len(leaders))))
