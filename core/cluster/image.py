"""A broker's view of its cluster: one value that never changes; a delta makes the next one of it."""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from math import isqrt
from typing import Any, Final, TypeVar, overload

from attrs import evolve, field

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import TopicPartition
from ...ports.values import frozen
from . import layout
from .deltas import (
    BrokersChanged,
    ConfigsChanged,
    ControllerChanged,
    Delta,
    EntityChanged,
    FeaturesChanged,
    LeadershipEnded,
    StatesChanged,
    TopicDeleting,
    TopicGone,
    TopicSet,
    TopicUnreadable,
)
from .features import FeaturesImage
from .topics import (
    ALL_LOG_DIRS,
    CORDONED_KEY,
    BrokerRegistration,
    PartitionState,
    ReplicaId,
    Topic,
    first_state,
    metric_name,
)

States = Mapping[int, PartitionState]


# A mapping that never changes, of which one with another entry is made in little time, however many there are.

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

LAYER_MIN = 16


class _Gone:
    """Stands in the upper layer for a key that is in the lower one only."""


_GONE: Final = _Gone()
_UNSEEN: Final = _Gone()


class ImmutableMap(Mapping[K, V]):
    """Two dicts: a large one that many versions share, and over it the few entries that have changed since.

    A change copies the upper one alone, until that has more than the root of the entries below: then both become one.
    So a change costs about as much as copying that root of the entries. Entries keep their order, new ones come last.
    """

    __slots__ = ("_base", "_count", "_over")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries or {})
        self._over: dict[K, V | _Gone] = {}
        self._count = len(self._base)

    def put(self, key: K, value: V) -> "ImmutableMap[K, V]":
        """Return the mapping with this entry, in place of the one of the same key."""
        return self._with(key, value, self._count + (key not in self))

    def drop(self, key: K) -> "ImmutableMap[K, V]":
        """Return the mapping without this key; the same one if it has none."""
        return self._with(key, _GONE, self._count - 1) if key in self else self

    def put_all(self, entries: Mapping[K, V]) -> "ImmutableMap[K, V]":
        """Return the mapping with these entries, in place of those of the same keys."""
        if len(entries) > self._over_max():
            return ImmutableMap({**self, **entries})
        made = self
        for key, value in entries.items():
            made = made.put(key, value)
        return made

    def _with(self, key: K, value: V | _Gone, count: int) -> "ImmutableMap[K, V]":
        made: ImmutableMap[K, V] = ImmutableMap.__new__(ImmutableMap)
        made._base, made._over, made._count = self._base, {**self._over, key: value}, count
        return ImmutableMap(made._merged()) if len(made._over) > self._over_max() else made

    def _over_max(self) -> int:
        return max(LAYER_MIN, isqrt(len(self._base)))

    def _merged(self) -> dict[K, V]:
        merged = self._base.copy()
        for key, value in self._over.items():
            if isinstance(value, _Gone):
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged

    def __getitem__(self, key: K) -> V:
        value = self._over.get(key, _UNSEEN)
        if value is _UNSEEN:
            return self._base[key]
        if isinstance(value, _Gone):
            raise KeyError(key)
        return value

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...

    def get(self, key: K, default: Any = None, /) -> Any:
        """Return what `dict.get` would; Mapping's own implementation with KeyError is slow."""
        value = self._over.get(key, _UNSEEN)
        if value is _UNSEEN:
            return self._base.get(key, default)
        return default if value is _GONE else value

    def __contains__(self, key: object) -> bool:
        value = self._over.get(key, _UNSEEN)  # type: ignore[arg-type]  # any object may be asked for
        return key in self._base if value is _UNSEEN else value is not _GONE

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        over, base = self._over, self._base
        for key in base:
            if over.get(key) is not _GONE:
                yield key
        for key, value in over.items():
            if value is not _GONE and key not in base:
                yield key

    def items(self) -> ItemsView[K, V]:
        """Return a dict's view of the items; without recent changes it costs no copy."""
        return (self._merged() if self._over else self._base).items()

    def values(self) -> ValuesView[V]:
        """Return a dict's view of the values, as `items` does."""
        return (self._merged() if self._over else self._base).values()

    def __repr__(self) -> str:
        return f"Layered({dict(self)!r})"


Entities = ImmutableMap[str, Mapping[str, object]]
"""The entities of one kind: decoded JSON by name."""
_NO_ENTITIES: Entities = ImmutableMap()


@frozen(kw_only=True, eq=False)
class TopicStates:
    """The states of a topic's partitions, and the versions of the nodes that they are in, by number."""

    states: ImmutableMap[int, PartitionState] = ImmutableMap()
    versions: Mapping[int, int] = {}

    def is_older_than(self, node: int, version: int | None) -> bool:
        """Return True if the node had an earlier version than this one, or none, when it was read."""
        known = self.versions.get(node)
        return version is not None and (known is None or known < version)

    def updated(self, read: States, versions: Mapping[int, int]) -> "TopicStates":
        """Return these states with those that were `read`, of nodes with these versions, where they are newer."""
        newer = {node: version for node, version in versions.items() if self.is_older_than(node, version)}

        def counts(number: int) -> bool:
            node = layout.states_node(number)
            if node in newer or (node not in versions and node not in self.versions):
                return True
            # The same version may have been read before when the topic had fewer partitions here.
            return versions.get(node) == self.versions.get(node) and number not in self.states

        taken = {number: state for number, state in read.items() if counts(number)}
        if not taken and not newer:
            return self
        states = self.states.put_all(taken)
        for number in self.states:
            if number not in read and layout.states_node(number) in newer:
                states = states.drop(number)
        return TopicStates(states=states, versions={**self.versions, **newer})


_NO_STATES = TopicStates()


@frozen(kw_only=True)
class Contents:
    """The content of a tree, for the first image. `states`: by topic, with the versions of their nodes."""

    topics: Mapping[str, Topic] = {}
    deleting: Mapping[str, Topic] = {}
    unreadable: frozenset[str] = frozenset()
    states: Mapping[str, tuple[States, Mapping[int, int]]] = {}
    configs: Mapping[int | None, Mapping[str, str]] = field(default={}, repr=False)
    entities: Mapping[layout.EntityKind, Mapping[str, Mapping[str, object] | None]] = field(default={}, repr=False)
    """The entities by kind and name; None: an unreadable one."""


@frozen(kw_only=True, eq=False)
class ClusterImage:
    """The immutable metadata of the cluster at one moment. A later image of the same registry has a larger `version`.

    Parts that a delta does not touch are the same objects in the next image, so values derived from them stay valid.
    """

    version: int = 0
    topics: ImmutableMap[str, Topic] = ImmutableMap()
    """All topics by name, without those that are being deleted."""
    deleting: ImmutableMap[str, Topic] = ImmutableMap()
    """Topics marked for deletion, whose nodes still exist."""
    unreadable: frozenset[str] = frozenset()
    """Names that are taken by nodes which describe no topic."""
    brokers: Mapping[int, BrokerRegistration] = {}
    """The live brokers, by id."""
    controller: ReplicaId | None = None
    """The controller; None: there is none, or it is not known."""
    configs: Mapping[int | None, Mapping[str, str]] = field(default={}, repr=False)
    """The dynamic configs by broker id; None: those of all brokers."""
    features: FeaturesImage = FeaturesImage()
    """The finalized levels of features: `image.features.level("group.version")`."""
    _entities: Mapping[layout.EntityKind, Entities] = field(default={}, repr=False)
    _unreadable_entities: Mapping[layout.EntityKind, frozenset[str]] = {}
    _any_offline: bool = False
    _names_by_id: ImmutableMap[bytes, str] = ImmutableMap()
    _names_in_metrics: ImmutableMap[str, str] = ImmutableMap()
    _states: ImmutableMap[str, TopicStates] = ImmutableMap()

    # --- questions

    @property
    def is_empty(self) -> bool:
        """True if the tree has no topic at all, not even an unreadable one."""
        return not (self.topics or self.deleting or self.unreadable)

    def topic(self, name: str) -> Topic:
        """Return the topic of this name. Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`."""
        topic = self.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name[:260]!r}")
        return topic

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic with this id. Raises `ApiError(UNKNOWN_TOPIC_ID)`."""
        name = self._names_by_id.get(topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {layout.encode_id(topic_id)}")
        return self.topics[name]

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id; empty: there is none."""
        return self._names_by_id.get(topic_id, "")

    def has_id(self, topic_id: bytes) -> bool:
        """Return True if a topic has this id."""
        return topic_id in self._names_by_id

    def id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the topic id of a partition, also while the topic is being deleted; None for an unknown partition."""
        topic = self.topics.get(partition.topic) or self.deleting.get(partition.topic)
        return topic.topic_id if topic is not None and partition.partition in topic.partitions else None

    def same_in_metrics(self, name: str) -> str | None:
        """Return the topic, known or being deleted, that has the same name in metrics as `name`."""
        return self._names_in_metrics.get(metric_name(name))

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of the partition. Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        stored = self.states_of(partition.topic).get(partition.partition)
        return stored or first_state(topic.partitions[partition.partition])

    def states_in(self, topic: Topic, numbers: Iterable[int]) -> dict[int, PartitionState]:
        """Return the states of these partitions of a topic. For many of them, `state` of each takes longer."""
        stored = self.states_of(topic.name)
        return {number: stored.get(number) or first_state(topic.partitions[number]) for number in numbers}

    def states_of(self, topic: str) -> States:
        """Return the stored states of a topic's partitions: the same object until one of them changes."""
        return self._states.get(topic, _NO_STATES).states

    def states_version(self, topic: str, node: int = 0) -> int | None:
        """Return the version of a node that holds these states; None: the node does not exist."""
        return self._states.get(topic, _NO_STATES).versions.get(node)

    def brokers_with(self, partition: TopicPartition) -> Mapping[int, BrokerRegistration]:
        """Return the live brokers, without those whose log of the partition is offline."""
        if not self._any_offline or not any(partition in broker.offline for broker in self.brokers.values()):
            return self.brokers
        return {number: broker for number, broker in self.brokers.items() if partition not in broker.offline}

    def is_cordoned(self, broker_id: int) -> bool:
        """Return True if the broker gets no new replicas, as the tree or the broker itself says (KIP-1066)."""
        broker, configs = self.brokers.get(broker_id), self.configs.get(broker_id, {})
        return configs.get(CORDONED_KEY) == ALL_LOG_DIRS or (broker is not None and broker.cordoned)

    def racks_for_new_replicas(self) -> dict[int, str | None]:
        """Return the live brokers that may get new replicas, with their racks."""
        return {number: each.rack for number, each in self.brokers.items() if not self.is_cordoned(number)}

    def machines(self) -> dict[int, str]:
        """Return the machines of the live brokers that share one with others, or say so (`broker.machine`)."""
        return {number: each.machine for number, each in self.brokers.items() if each.machine is not None}

    def entities(self, kind: layout.EntityKind) -> Entities:
        """Return the entities of a kind: the same object until one of them changes."""
        return self._entities.get(kind, _NO_ENTITIES)

    def unreadable_entities(self, kind: layout.EntityKind) -> frozenset[str]:
        """Return the names of entities whose nodes are unreadable. What they would deny must not be allowed."""
        return self._unreadable_entities.get(kind, frozenset())

    # --- the next image

    def refilled(self, contents: Contents) -> "ClusterImage":
        """Return an image with this content in place of all but the brokers; quicker than as many deltas."""
        named = {**contents.topics, **contents.deleting}
        return ClusterImage(
            version=self.version + 1,
            topics=ImmutableMap(contents.topics),
            deleting=ImmutableMap(contents.deleting),
            unreadable=contents.unreadable,
            brokers=self.brokers,
            controller=self.controller,
            features=self.features,
            any_offline=self._any_offline,
            configs=dict(contents.configs),
            entities={
                kind: ImmutableMap({name: value for name, value in stored.items() if value is not None})
                for kind, stored in contents.entities.items()
            },
            unreadable_entities={
                kind: frozenset(name for name, value in stored.items() if value is None)
                for kind, stored in contents.entities.items()
            },
            names_by_id=ImmutableMap({topic.topic_id: name for name, topic in contents.topics.items()}),
            names_in_metrics=ImmutableMap({metric_name(name): name for name in named}),
            states=ImmutableMap(
                {
                    name: TopicStates(states=ImmutableMap(states), versions=versions)
                    for name, (states, versions) in contents.states.items()
                    if states or versions
                }
            ),
        )

    def after(self, delta: Delta) -> "ClusterImage":
        """Return the next image."""
        version = self.version + 1
        match delta:
            case TopicSet():
                return self._with_topic(delta, version)
            case TopicDeleting(topic=topic):
                image = self._without(topic.name, version)
                names = image._names_in_metrics.put(metric_name(topic.name), topic.name)
                return evolve(image, deleting=image.deleting.put(topic.name, topic), names_in_metrics=names)
            case LeadershipEnded():
                return evolve(self, version=version)
            case TopicUnreadable(name=name):
                image = self._without(name, version)
                return evolve(image, unreadable=image.unreadable | {name})
            case TopicGone(name=name):
                return self._without(name, version)
            case StatesChanged():
                return self._with_states(delta, version)
            case BrokersChanged(brokers=brokers):
                any_offline = any(broker.offline for broker in brokers.values())
                return evolve(self, version=version, brokers=dict(brokers), any_offline=any_offline)
            case ControllerChanged(controller=controller):
                return evolve(self, version=version, controller=controller)
            case ConfigsChanged(broker_id=broker_id, configs=configs):
                return evolve(self, version=version, configs={**self.configs, broker_id: configs})
            case FeaturesChanged(features=features):
                return evolve(self, version=version, features=features)
            case EntityChanged():
                return self._with_entity(delta, version)

    def _with_entity(self, delta: EntityChanged, version: int) -> "ClusterImage":
        kind, name, value = delta.kind, delta.name, delta.value
        known, unreadable = self.entities(kind), self.unreadable_entities(kind)
        known = known.drop(name) if value is None else known.put(name, value)
        unreadable = unreadable | {name} if delta.is_unreadable else unreadable - {name}
        return evolve(
            self,
            version=version,
            entities={**self._entities, kind: known},
            unreadable_entities={**self._unreadable_entities, kind: unreadable},
        )

    def _with_topic(self, delta: TopicSet, version: int) -> "ClusterImage":
        topic, name = delta.topic, delta.topic.name
        before = self.topics.get(name)
        is_same = before is not None and before.topic_id == topic.topic_id
        image = evolve(self, version=version) if is_same else self._without(name, version)
        states = image._states
        known = states.get(name, _NO_STATES)
        updated = known if delta.states is None else known.updated(delta.states, delta.states_versions)
        if updated is not known:
            states = states.put(name, updated)
        return evolve(
            image,
            topics=image.topics.put(name, topic),
            names_by_id=image._names_by_id.put(topic.topic_id, name),
            names_in_metrics=image._names_in_metrics.put(metric_name(name), name),
            states=states,
        )

    def _with_states(self, delta: StatesChanged, version: int) -> "ClusterImage":
        topic, known = self.topics.get(delta.topic), self._states.get(delta.topic, _NO_STATES)
        is_newer = delta.version is None or known.is_older_than(delta.node, delta.version)
        if topic is None or topic.topic_id != delta.topic_id or not is_newer:
            return self
        changed = {number: state for number, state in delta.states.items() if known.states.get(number) != state}
        versions = {node: each for node, each in known.versions.items() if node != delta.node}
        if delta.version is not None:
            versions[delta.node] = delta.version
        stored = TopicStates(states=known.states.put_all(changed) if changed else known.states, versions=versions)
        return evolve(self, version=version, states=self._states.put(delta.topic, stored))

    def _without(self, name: str, version: int) -> "ClusterImage":
        topic = self.topics.get(name)
        is_known = topic is not None or name in self.deleting
        return evolve(
            self,
            version=version,
            topics=self.topics.drop(name),
            deleting=self.deleting.drop(name),
            unreadable=self.unreadable - {name} if name in self.unreadable else self.unreadable,
            names_by_id=self._names_by_id if topic is None else self._names_by_id.drop(topic.topic_id),
            names_in_metrics=self._names_in_metrics.drop(metric_name(name)) if is_known else self._names_in_metrics,
            states=self._states.drop(name),
        )
