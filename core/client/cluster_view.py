"""What a client knows of its cluster, and when it asks again (facts C6, Metadata)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...ports.broker_api import Metadata, MetadataResult, TopicMetadata
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import BarnabasError
from ...ports.transport import Address
from ...ports.values import frozen
from ...ports.words import TopicPartition
from .effects import NEVER, Poll, Send, backoff_ms

COORDINATORS = 2**32
"""Nodes from here on are brokers in their role as coordinators."""


@frozen
class TopicView:
    """One topic as of the last metadata; immutable, so that any thread may look at it."""

    topic_id: bytes
    leaders: tuple[int, ...]
    """Per partition the broker's id; -1 = none now."""
    epochs: tuple[int, ...]
    available: tuple[int, ...]
    """The partitions that have a leader; all of them while none has."""
    places: tuple[TopicPartition, ...]
    """The partitions by their full names."""


@frozen(kw_only=True)
class ViewSettings:
    """When to ask again."""

    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    metadata_max_age_ms: float = 300_000
    allow_auto_create: bool = True


class ClusterView:
    """Brokers, and the topics that someone `want`s; refreshes itself when asked to, when stale and after errors.

    `topic` and `leader` may be called from any thread, `want` and `request_refresh` under the lock of `poll`.
    """

    def __init__(self, bootstrap: Sequence[Address], entropy: Entropy, settings: ViewSettings) -> None:
        self._bootstrap = tuple(bootstrap)
        self._entropy = entropy
        self._settings = settings
        self._topics: dict[str, TopicView] = {}
        self._wanted: set[str] = set()
        self._wants_all = False
        self._coordinators: dict[int, Address] = {}
        self.all_topics: Mapping[str, bool] | None = None
        """Every topic of the cluster, and if it is internal; None unless `want_all` was said, and while not known."""
        self.topic_errors: dict[str, ErrorCode] = {}
        """What the last metadata said of wanted topics that cannot be used."""
        self.brokers: dict[int, Address] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self.last_error: BarnabasError | None = None
        """Why the last attempt to get metadata failed; None after a success."""
        self.updates = 0
        self._needed = False
        self._in_flight = False
        self._asked_all = False
        self._failures = 0
        self._not_before = -NEVER
        self._updated_ms = -NEVER
        self._turn = 0

    def topic(self, name: str) -> TopicView | None:
        """The topic, or None when it is not known (yet)."""
        return self._topics.get(name)

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker to ask for this partition, or None when there is none or it is not known."""
        view = self._topics.get(topic)
        if view is None or not 0 <= partition < len(view.leaders):
            return None
        node = view.leaders[partition]
        return node if node in self.brokers else None

    def want(self, topics: Iterable[str]) -> None:
        """Ask for these topics from now on; at once when one is not known, whatever the others wait for."""
        for topic in topics:
            if topic not in self._wanted:
                self._wanted.add(topic)
                self._needed = True
                if self.last_error is None:
                    self._not_before = -NEVER

    def want_all(self, wants: bool = True) -> None:
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
        """Ask for this topic no more."""
        self._wanted.discard(topic)
        self._topics.pop(topic, None)
        self.topic_errors.pop(topic, None)

    def request_refresh(self) -> None:
        """Ask again as soon as the back-off allows."""
        self._needed = True

    def address(self, node: int) -> Address | None:
        """Where to reach a node; None when it has left the cluster."""
        if node >= COORDINATORS:
            return self._coordinators.get(node)
        if node < 0:
            return self._bootstrap[-node - 1] if -node <= len(self._bootstrap) else None
        return self.brokers.get(node)

    def coordinator(self, broker: int, address: Address) -> int:
        """The node by which to reach a broker as a coordinator: over a connection where no fetch is in the way."""
        node = COORDINATORS + broker
        self._coordinators[node] = address
        return node

    def any_node(self) -> int:
        """A broker that may know, the same one until `try_another`; bootstrap addresses come after known brokers."""
        nodes: list[int] = [*sorted(self.brokers), *range(-1, -len(self._bootstrap) - 1, -1)]
        return nodes[self._turn % len(nodes)]

    def try_another(self) -> None:
        """`any_node` could not be reached."""
        self._turn += 1

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
        return Poll([Send(self.any_node(), request, self._answered)], NEVER)

    def _answered(self, result: Any, now_ms: float) -> None:
        self._in_flight = False
        if not isinstance(result, MetadataResult):
            self.last_error = result
            self.try_another()
            self._again(now_ms)
            return
        self.last_error = None
        self._updated_ms = now_ms
        self._take(result)
        if self._incomplete():
            self._again(now_ms)
        else:
            self._failures = 0
            self._not_before = now_ms + self._settings.retry_backoff_ms
        self.updates += 1

    def _again(self, now_ms: float) -> None:
        self._needed = True
        self._failures += 1
        settings = self._settings
        self._not_before = now_ms + backoff_ms(
            self._failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )

    def _take(self, result: MetadataResult) -> None:
        if result.brokers:
            self.brokers = {broker.node_id: (broker.host, broker.port) for broker in result.brokers}
        self.controller = result.controller_id
        self.cluster_id = result.cluster_id
        everything = self._asked_all and self._wants_all
        if everything:
            self._take_all(result)
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

    def _take_all(self, result: MetadataResult) -> None:
        """Nothing is told of topics that there are not."""
        self.all_topics = known = {topic.name: topic.internal for topic in result.topics if topic.name is not None}
        for name in self._topics.keys() - known.keys():
            del self._topics[name]
        for name in self.topic_errors.keys() - known.keys() - self._wanted:
            del self.topic_errors[name]
        for name in self._wanted - known.keys():
            self.topic_errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _incomplete(self) -> bool:
        """True while a wanted topic may become usable by asking again soon."""
        if any(error.retriable for name, error in self.topic_errors.items() if name in self._wanted):
            return True
        views = [self._topics.get(name) for name in self._wanted if name not in self.topic_errors]
        return any(view is None or -1 in view.leaders for view in views)


def _view_of(topic: TopicMetadata, old: TopicView | None) -> TopicView:
    """The new view; where a leader epoch went back, what was known stays: the broker that answered is behind."""
    count = max(p.partition for p in topic.partitions) + 1
    leaders, epochs = [-1] * count, [-1] * count
    same = old is not None and old.topic_id == topic.topic_id
    for p in topic.partitions:
        leaders[p.partition], epochs[p.partition] = p.leader, p.leader_epoch
    if old is not None and same:
        for index in range(min(count, len(old.epochs))):
            if -1 < epochs[index] < old.epochs[index]:
                leaders[index], epochs[index] = old.leaders[index], old.epochs[index]
    available = tuple(index for index, leader in enumerate(leaders) if leader >= 0)
    places = tuple(TopicPartition(topic.name or "", index) for index in range(count))
    return TopicView(topic.topic_id, tuple(leaders), tuple(epochs), available or tuple(range(count)), places)
