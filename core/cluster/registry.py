"""The metadata of the cluster at one broker: an image in memory, and the coordination tree that stores it.

The methods that write are changes for a `ChangeQueue` (or `complete`): they check, store off the owner thread, and only
then make the next image. Only the owner thread calls methods here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from attrs import evolve

from ...ports.broker_api.features import FeatureUpdate
from ...ports.coordination import (
    CHANGES_MAX,
    BadVersion,
    Cancel,
    Coordination,
    CoordinationError,
    CreateNode,
    Node,
    NoNode,
    SetNode,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.report import Line, counted, error, info
from ...ports.scheduler import Outcome
from ...ports.types import TopicPartition
from ...ports.values import frozen
from . import entity_store, layout, topic_store
from .brokers import broker_configs, change_broker_configs, children, live_brokers, remove_broker, stored_controller
from .change_queue import elsewhere, elsewhere_together, others_turn
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
from .features import FeaturesImage, read_features, update_features
from .image import ClusterImage, Contents
from .reassignment import states_with_assignment
from .topic_planning import check_configs_fit, check_new_name
from .topic_store import StoredTopic
from .topics import BrokerRegistration, PartitionState, Topic, first_state

SECRET_ENDINGS = (
    "password",
    "secret.access.key",
    "session.token",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "sasl.jaas.config",
    "secret.key",
    "client.secret",
    "bootstrap.users",
)
"""The ends of the names of configs of type PASSWORD; a test compares them with the table of keys."""

DeltaListener = Callable[[Delta, ClusterImage], None]
"""Called with a change, and the image before it."""

Decide = Callable[[Topic, ClusterImage], Mapping[int, PartitionState]]
"""Return the new states of a topic's partitions, without those that stay as they are."""

TOPICS_AT_A_TIME = 200
"""The most topics that one offloaded call reads."""
STATES_AT_A_TIME = CHANGES_MAX - 2
"""The most nodes in one commit, without its guards."""
COMMIT_BYTES = 500_000
ATTEMPTS = 20
EARLY_MAX = 10_000


class Deposed(CoordinationError):
    """Another broker is the controller."""


class CoordinationWentBack(CoordinationError):
    """The coordination service has lost states that this process has read: it was restored from a backup."""


@frozen(kw_only=True)
class _StatesWrite:
    """New states of one topic, on their way into the tree."""

    topic: Topic
    decided: Mapping[int, PartitionState]
    change: CreateNode | SetNode
    delta: StatesChanged

    @property
    def nodes(self) -> int:
        """The number of nodes in the commit: a new node is guarded by another one."""
        return 2 if isinstance(self.change, CreateNode) else 1

    @classmethod
    def all_of(
        cls, topic: Topic, image: ClusterImage, decided: Mapping[int, PartitionState]
    ) -> "Iterator[_StatesWrite]":
        """Make one write for each node that holds some of these states."""
        known = image.states_of(topic.name)
        for node, states in _by_node(decided).items():
            version = image.states_version(topic.name, node)
            of_node = {number: known[number] for number in layout.partitions_of_node(node) if number in known}
            change = topic_store.states_change(topic, node, of_node | states, version)
            after = 0 if version is None else version + 1
            delta = StatesChanged(topic=topic.name, topic_id=topic.topic_id, states=states, version=after, node=node)
            yield cls(topic=topic, decided=states, change=change, delta=delta)


def _is_behind(node: Node, image: ClusterImage, name: str, number: int) -> bool:
    """Return True if a node of states has an earlier version, and earlier states, than the image."""
    if node.version >= (image.states_version(name, number) or 0):
        return False
    try:
        _, states = layout.decode_states(node.data)
    except ValueError:
        return False
    known = image.states_of(name)
    wanted = [each for each in layout.partitions_of_node(number) if each in known]
    return any(each not in states or states[each].partition_epoch < known[each].partition_epoch for each in wanted)


def _by_node(states: Mapping[int, PartitionState]) -> dict[int, dict[int, PartitionState]]:
    found: dict[int, dict[int, PartitionState]] = {}
    for number, state in states.items():
        found.setdefault(layout.states_node(number), {})[number] = state
    return found


def _created_line(topic: Topic) -> Line:
    """Return the line about a new topic."""
    own = "".join(f", {name}={value}" for name, value in sorted(topic.configs.items()))
    text = f"created topic {topic.name}: {_partitions(topic)}, replication factor {topic.replication_factor}{own}"
    return info(text, topic=topic.name, partitions=len(topic.partitions), configs=dict(topic.configs))


def _resized_line(before: Topic, after: Topic) -> Line:
    """Return the line about a changed number of partitions."""
    text = f"topic {after.name} has {_partitions(after)} now, {len(before.partitions)} before"
    return info(text, topic=after.name, partitions=len(after.partitions))


def _deleted_line(topic: Topic) -> Line:
    """Return the line about a deleted topic; its files are removed later."""
    return info(f"deleted topic {topic.name}: {_partitions(topic)}", topic=topic.name)


def _changed_configs_line(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Line | None:
    """Return the line about changed configs of a topic or broker; None if they did not change. Secrets are hidden."""
    old, new = _shown(before), _shown(after)
    changes = [
        f"{name}={new[name]}" + (f" (was {old[name]})" if name in old else "")
        for name in sorted(after)
        if after[name] != before.get(name)
    ]
    changes += [f"{name} is no longer set (was {old[name]})" for name in sorted(before.keys() - after.keys())]
    return info(f"configuration of {what}: {', '.join(changes)}", configs=new) if changes else None


def _shown(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: "[hidden]" if name.endswith(SECRET_ENDINGS) else value for name, value in configs.items()}


def _partitions(topic: Topic) -> str:
    return counted(len(topic.partitions), "partition")


class ClusterRegistry:
    """The image of the cluster with its reading and writing. `report` gets lines about changes, and about unreadable
    nodes, which are skipped."""

    def __init__(self, coordination: Coordination, report: Callable[[str], None]) -> None:
        self._coordination = coordination
        self._report = report
        self._listeners: list[DeltaListener] = []
        self._readings = 0
        self._went_back_listeners: list[Callable[[CoordinationWentBack], None]] = []
        self._early: dict[bytes, int] = {}
        """Ids of topics that were not known when their states changed, each with the reading that found that."""
        self.image = ClusterImage()
        """The present image."""

    @property
    def coordination(self) -> Coordination:
        """The session with the tree."""
        return self._coordination

    def listen(self, listener: DeltaListener) -> Cancel:
        """Call `listener` after each change of the image; earlier listeners are called first."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add_went_back_listener(self, listener: Callable[[CoordinationWentBack], None]) -> None:
        """Call `listener` once if the image is ahead of the tree: this process can trust neither."""
        self._went_back_listeners.append(listener)

    def apply(self, delta: Delta) -> None:
        """Make the next image and call the listeners."""
        before = self.image
        self.image = before.after(delta)
        for listener in tuple(self._listeners):
            listener(delta, before)

    # --- reading

    async def load(self) -> None:
        """Read topics, configs and entities from the tree and replace the image (at a start; no listener is
        called)."""
        names = await elsewhere(partial(children, self._coordination, layout.TOPICS))
        stored: dict[str, StoredTopic] = {}
        for start in range(0, len(names), TOPICS_AT_A_TIME):
            some = names[start : start + TOPICS_AT_A_TIME]
            stored |= await elsewhere(partial(topic_store.read_topics, self._coordination, some, self._report))
        configs = await elsewhere(partial(topic_store.read_all_broker_configs, self._coordination, self._report))
        entities = await elsewhere(partial(entity_store.read_all_entities, self._coordination, self._report))
        features = await elsewhere(partial(read_features, self._coordination, self._report))
        known = {name: each.topic for name, each in stored.items() if each.topic is not None}
        going = {name for name, each in stored.items() if each.deleting}
        contents = Contents(
            topics={name: topic for name, topic in known.items() if name not in going},
            deleting={name: topic for name, topic in known.items() if name in going},
            unreadable=frozenset(stored.keys() - known.keys()),
            states={name: (each.states, each.states_versions) for name, each in stored.items()},
            configs=configs,
            entities=entities,
        )
        self.image = evolve(self.image.refilled(contents), features=features or FeaturesImage())

    async def reread(self, *names: str) -> None:
        """Read topics from the tree into the image: also after a write whose outcome is unknown."""
        begun = self._readings
        found = await elsewhere(partial(topic_store.read_topics, self._coordination, names, self._report))
        changed: list[str] = []
        for name in names:
            stored = found.get(name)
            if stored is None:
                self.apply(TopicGone(name=name))
            elif stored.topic is None:
                self.apply(TopicUnreadable(name=name))
            elif stored.deleting:
                self.apply(TopicDeleting(topic=stored.topic))
            else:
                topic_id = stored.topic.topic_id
                self.apply(TopicSet(topic=stored.topic, states=stored.states, states_versions=stored.states_versions))
                if self._early.pop(topic_id, -1) > begun:
                    changed.append(name)  # they changed while the topic was not known yet
        if changed:
            await self.reread_states(changed)

    async def changed_topics(self, names: Iterable[str]) -> Sequence[str]:
        """Return those of these topics that differ between the tree and the image."""
        asked = list(names)
        changed: list[str] = []
        for start in range(0, len(asked), TOPICS_AT_A_TIME):
            some = asked[start : start + TOPICS_AT_A_TIME]
            found = await elsewhere(partial(topic_store.read_own_nodes, self._coordination, some))
            changed += [name for name in some if not self._is_known(name, *found[name])]
        return changed

    async def topics_of_unknown_id(self, topic_id: bytes) -> Sequence[str]:
        """Return the topics that differ between the tree and the image, if the tree has a topic with this id."""
        await elsewhere(self._coordination.heartbeat)
        (states,) = await elsewhere(partial(self._coordination.get_many, [layout.states_path(topic_id, 0)]))
        if states is None:
            return ()
        return await self.changed_topics(await elsewhere(partial(children, self._coordination, layout.TOPICS)))

    def _is_known(self, name: str, own: Node | None, configs: Node | None) -> bool:
        known = self.image.topics.get(name)
        if own is None:
            return known is None and name not in self.image.deleting and name not in self.image.unreadable
        if known is None:
            return False
        has_configs = configs.data if configs is not None else layout.encode_configs({})
        return own.data == layout.encode_topic(known) and has_configs == layout.encode_configs(known.configs)

    async def reread_brokers(self, own: BrokerRegistration | None = None) -> None:
        """Read the live brokers from the tree into the image; add `own`, for a broker that does not register."""
        found = await elsewhere(partial(live_brokers, self._coordination, self._report))
        brokers = {broker.broker_id: broker for broker in found}
        if own is not None:
            brokers[own.broker_id] = own
        if brokers != self.image.brokers:
            self.apply(BrokersChanged(brokers=brokers))

    async def reread_controller(self) -> None:
        """Read the controller from the tree into the image."""
        controller = await elsewhere(partial(stored_controller, self._coordination, self._report))
        if controller != self.image.controller:
            self.apply(ControllerChanged(controller=controller))

    async def reread_deleted(self) -> None:
        """End the leadership in all topics that the tree notes as deleted."""
        self.end_deleted(await elsewhere(partial(children, self._coordination, layout.DELETED)))

    def end_deleted(self, notes: Iterable[str]) -> None:
        """End the leadership in the known topics of these notes of deletions. The rest of a deletion may take long, and
        follows in the queue of topics."""
        for name in notes:
            with suppress(ValueError, ApiError):
                self.apply(LeadershipEnded(topic=self.image.topic_by_id(layout.decode_id(name))))

    async def reread_states(self, names: Iterable[str]) -> None:
        """Read the partition states of these topics into the image; unknown topics are left out."""
        topics = [self.image.topics[name] for name in names if name in self.image.topics]
        await self._reread([(each, node) for each in topics for node in layout.states_nodes(len(each.partitions))])

    async def catch_up_with_states(self, names: Sequence[str]) -> bool:
        """Read the partition states of these topics into the image; return True if they had changed."""
        before = {name: self.image.states_of(name) for name in names}
        await self.reread_states(names)
        return any(self.image.states_of(name) != states for name, states in before.items())

    async def reread_states_nodes(self, nodes: Iterable[tuple[bytes, int]]) -> None:
        """Read these nodes with states, each by topic id and number, into the image. Nodes of an unknown topic are read
        with the topic."""
        self._readings += 1
        wanted = []
        for topic_id, node in nodes:
            if self.image.has_id(topic_id):
                wanted.append((self.image.topic_by_id(topic_id), node))
            else:
                self._early[topic_id] = self._readings
        while len(self._early) > EARLY_MAX:
            del self._early[next(iter(self._early))]
        await self._reread(wanted)

    async def _reread(self, wanted: Sequence[tuple[Topic, int]]) -> None:
        for start in range(0, len(wanted), TOPICS_AT_A_TIME):
            some = wanted[start : start + TOPICS_AT_A_TIME]
            paths = [layout.states_path(topic.topic_id, number) for topic, number in some]
            nodes = await elsewhere(partial(self._coordination.get_many, paths))
            earlier = [
                topic.name
                for (topic, number), node in zip(some, nodes, strict=True)
                if node is not None and _is_behind(node, self.image, topic.name, number)
            ]
            if earlier:
                await self._check_not_ahead(earlier)
            for (topic, number), node in zip(some, nodes, strict=True):
                repaired = self._apply_states(topic.name, topic.topic_id, number, node)
                if repaired is not None:
                    await elsewhere(partial(self._repair, repaired))

    def _apply_states(self, name: str, topic_id: bytes, number: int, node: Node | None) -> SetNode | None:
        """Apply the content of a node to the image. Returns the repair of a node whose content is unreadable."""
        topic = self.image.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            return None
        known = self.image.states_version(name, number)
        if node is None:
            if known is not None:
                self.apply(StatesChanged(topic=name, topic_id=topic_id, states={}, version=None, node=number))
            return None
        if known is not None and node.version < known:
            if _is_behind(node, self.image, name, number):
                return None  # a reading that was overtaken
            # The node was removed by hand, and another broker has made it again.
            self.apply(StatesChanged(topic=name, topic_id=topic_id, states={}, version=None, node=number))
        path = layout.states_path(topic_id, number)
        states = topic_store.states_in(topic, path, node.data, self._report, may_be_ahead=True)
        is_lost = states is None
        if states is None:
            # A node that was overwritten since it was read last has lost what is known here. Of any other nothing is
            # known: as with states that were never stored, the replicas claim what they have, and one of them leads.
            numbers = [each for each in topic.partitions if layout.states_node(each) == number]
            is_known = known is not None and node.version <= known + 1
            states = {} if is_known else {each: first_state(topic.partitions[each]) for each in numbers}
        delta = StatesChanged(topic=name, topic_id=topic_id, states=states, version=node.version, node=number)
        self.apply(delta)
        if not is_lost or self.image.states_version(name, number) != node.version:
            return None
        return SetNode(path, topic_store.encode_states_node(topic, number, self.image.states_of(name)), node.version)

    def _repair(self, change: SetNode) -> None:
        with suppress(BadVersion, NoNode):  # another broker has done it, or the topic is gone
            self._coordination.commit([change])
            text = f"{change.path} did not hold states of its topic, so this broker wrote those that it knows"
            self._report(error(f"{text}; find out which program has changed it"))

    async def reread_configs(self, broker_id: int | None) -> None:
        """Read the configs of a broker, or with None of all brokers, into the image."""
        configs = await elsewhere(partial(broker_configs, self._coordination, broker_id, self._report))
        if configs != self.image.configs.get(broker_id, {}):
            self.apply(ConfigsChanged(broker_id=broker_id, configs=configs))

    # --- features

    async def reread_features(self) -> None:
        """Read the finalized levels of features into the image. An unreadable node changes nothing."""
        features = await elsewhere(partial(read_features, self._coordination, self._report))
        if features is not None:
            self._apply_features(features)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Change the finalized levels of features, or only check that it is possible. Raises
        `ApiError(INVALID_UPDATE_VERSION)`, `CoordinationError`."""
        brokers = partial(live_brokers, self._coordination, self._report)
        features = await elsewhere(
            partial(update_features, self._coordination, updates, brokers, validate_only=validate_only)
        )
        self._apply_features(features)

    def _apply_features(self, features: FeaturesImage) -> None:
        before = self.image.features
        if features == before:
            return
        self.apply(FeaturesChanged(features))
        names = sorted({*before.levels, *features.levels})
        changes = [
            f"{name} from {before.level(name)} to {features.level(name)}"
            for name in names
            if before.level(name) != features.level(name)
        ]
        if changes:
            text = f"finalized levels of features: {', '.join(changes)}"
            self._report(info(text, features=dict(features.levels), epoch=features.epoch))

    # --- entities (security, and the configs of groups)

    async def reread_entities(self, names: Iterable[tuple[layout.EntityKind, str]]) -> None:
        """Read these entities into the image."""
        await self._reread_entities(list(dict.fromkeys(names)))

    async def reread_all_entities(self) -> None:
        """Read the entities of all kinds into the image; what it has then is not older than the call."""
        await elsewhere(self._coordination.heartbeat)
        found = await elsewhere(partial(entity_store.list_entities, self._coordination, self._report))
        known = [(kind, name) for kind in layout.EntityKind for name in self.image.entities(kind)]
        unreadable = [(kind, name) for kind in layout.EntityKind for name in self.image.unreadable_entities(kind)]
        await self._reread_entities(list(dict.fromkeys([*found, *known, *unreadable])))

    async def _reread_entities(self, wanted: Sequence[tuple[layout.EntityKind, str]]) -> None:
        for start in range(0, len(wanted), TOPICS_AT_A_TIME):
            some = wanted[start : start + TOPICS_AT_A_TIME]
            found = await elsewhere(partial(entity_store.read_entities, self._coordination, some, self._report))
            for (kind, name), stored in found.items():
                self._apply_entity(kind, name, stored)

    def _apply_entity(self, kind: layout.EntityKind, name: str, stored: entity_store.StoredEntity | None) -> None:
        value = stored.value if stored is not None else None
        is_unreadable = stored is not None and value is None
        was_unreadable = name in self.image.unreadable_entities(kind)
        if value != self.image.entities(kind).get(name) or is_unreadable != was_unreadable:
            self.apply(EntityChanged(kind=kind, name=name, value=value, is_unreadable=is_unreadable))

    async def change_entities(
        self,
        kind: layout.EntityKind,
        changes: Mapping[str, entity_store.ChangeEntity],
        *,
        replace_unreadable: bool = False,
    ) -> None:
        """Change entities of one kind by compare-and-set: each of `changes` is called with the stored value, None for
        a missing one, and returns the value to store, None to remove it. It may be called several times.

        All are changed or none, if they fit into one commit of `CHANGES_MAX`; else commit after commit.
        Raises `CoordinationError`, `UnreadableEntity` unless `replace_unreadable`, and what the calls raise.
        """
        names = list(changes)
        for start in range(0, len(names), CHANGES_MAX):
            some = {name: changes[name] for name in names[start : start + CHANGES_MAX]}
            change = partial(entity_store.change_entities, self._coordination, kind, some, replace_unreadable)
            stored = await elsewhere(change)
            for name, value in stored.items():
                self._apply_entity(kind, name, None if value is None else entity_store.StoredEntity(value=value))

    # --- topics

    async def create(self, topic: Topic, states: Mapping[int, PartitionState] | None = None) -> None:
        """Store a planned topic. Raises `ApiError(TOPIC_ALREADY_EXISTS)`."""
        check_new_name(self.image, topic.name)
        states = states or {}
        await elsewhere(partial(topic_store.create_topic, self._coordination, topic, states))
        if states:
            await self.reread(topic.name)
        else:
            self.apply(TopicSet(topic=topic, states={}))
        self._report(_created_line(topic))

    async def create_all(
        self, groups: Sequence[Sequence[tuple[Topic, Mapping[int, PartitionState]]]]
    ) -> Sequence[Outcome[bool]]:
        """Store groups of planned topics, with names that do not collide: each group in one commit, all side by side.

        An outcome is False if nothing of the group was made, since it does not fit into one commit, or a node of one of
        its topics exists already: the error of `create` says which. With an error it is unknown what was made.
        """
        outcomes = await elsewhere_together(
            [partial(topic_store.create_topics, self._coordination, group) for group in groups]
        )
        changed: list[str] = []
        made = [
            group for group, outcome in zip(groups, outcomes, strict=True) if outcome.error is None and outcome.value
        ]
        for number, group in enumerate(made):
            if number:
                await others_turn()
            changed += [topic.name for topic, states in group if self._apply_created(topic, states)]
        if changed:
            await self.reread_states(changed)
        return outcomes

    def _apply_created(self, topic: Topic, states: Mapping[int, PartitionState]) -> bool:
        """Return True if the states may have changed while the topic was not known yet."""
        self.apply(TopicSet(topic=topic, states=states, states_versions=dict.fromkeys(_by_node(states), 0)))
        self._report(_created_line(topic))
        return self._early.pop(topic.topic_id, None) is not None

    async def resize(self, topic: Topic, added: Mapping[int, PartitionState] | None = None) -> None:
        """Store a topic planned by `plan_partitions`, with the states of `added` partitions; or, with fewer partitions,
        restore the former topic. Raises `BadVersion` when another broker has changed it in between."""
        before = self.image.topic(topic.name)
        await self._write_topic(before, topic, added or {})
        self._report(_resized_line(before, topic))

    async def move(self, topic: Topic, states: Mapping[int, PartitionState]) -> None:
        """Store other replicas of a topic's partitions, with states that change with them. Raises as `resize`."""
        before, known = self.image.topic(topic.name), self.image.states_of(topic.name)
        await self._write_topic(before, topic, states_with_assignment(before, topic, states, known))

    async def _write_topic(self, before: Topic, after: Topic, states: Mapping[int, PartitionState]) -> None:
        known = self.image.states_of(after.name)
        stored: dict[int, PartitionState] = {}
        versions: dict[int, int] = {}
        changes: list[CreateNode | SetNode] = []
        for node, decided in _by_node(states).items():
            version = self.image.states_version(after.name, node)
            numbers = (number for number in layout.partitions_of_node(node) if number in after.partitions)
            of_node = {number: known[number] for number in numbers if number in known} | decided
            changes.append(topic_store.states_change(after, node, of_node, version))
            stored |= of_node
            versions[node] = 0 if version is None else version + 1
        if not topic_store.fits_one_commit([SetNode("", layout.encode_topic(after)), *changes]):
            text = f"topic {after.name} changes in too many partitions at once; change fewer of them"
            raise ApiError(ErrorCode.POLICY_VIOLATION, text)
        await elsewhere(partial(topic_store.rewrite_topic, self._coordination, before, after, changes))
        if not changes:
            self.apply(TopicSet(topic=after))
        else:
            self.apply(TopicSet(topic=after, states=stored, states_versions=versions))

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the overrides of a topic. Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG; `BadVersion`
        when another broker has changed them, or deleted the topic."""
        before = self.image.topic(name)
        check_configs_fit(configs)
        topic = before.with_configs(configs)
        await elsewhere(partial(topic_store.write_configs, self._coordination, before, topic))
        self.apply(TopicSet(topic=topic))
        self._report_configured(f"topic {name}", before.configs, topic.configs)

    async def begin_delete(self, name: str, brokers: Iterable[int] = ()) -> Topic:
        """Mark a topic for deletion: from now on it is unknown, also after a crash, but its name is not free yet.

        `brokers` are those that must confirm the removal of their logs, where there are several.
        Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`, `BadVersion` if the name belongs to another topic by now.
        """
        topic = self.image.topic(name)
        topic = await elsewhere(partial(topic_store.mark_deleting, self._coordination, topic, brokers))
        self.apply(TopicDeleting(topic=topic))
        self._report(_deleted_line(topic))
        return topic

    async def finish_delete(self, topic: Topic) -> None:
        """Remove all nodes of a topic that `begin_delete` marked; its name is free then. A second call changes nothing,
        also when there is another topic of that name by now."""
        await elsewhere(partial(topic_store.remove_topic, self._coordination, topic))
        going = self.image.deleting.get(topic.name)
        if going is not None and going.topic_id == topic.topic_id:
            self.apply(TopicGone(name=topic.name))

    # --- leaders

    async def change_states(
        self, names: Iterable[str], decide: Decide, guards: Mapping[str, int] | None = None
    ) -> Sequence[TopicPartition]:
        """Store the states that `decide` returns for these topics; returns the partitions that have changed.

        `decide` is called again, with newer states, for topics that other brokers have changed in between, unless they
        are gone. Raises `Deposed` when one of the `guards` has another version by now, `CoordinationError`.
        """
        changed: list[TopicPartition] = []
        waiting = list(dict.fromkeys(names))
        for attempt in range(ATTEMPTS):
            contended: dict[str, None] = {}
            for portion in self._portions(waiting, decide, max(1, STATES_AT_A_TIME >> attempt)):
                try:
                    await elsewhere(partial(self._write_states, portion, guards))
                except BadVersion:
                    await self._check_guards(guards or {})
                    contended.update(dict.fromkeys(each.topic.name for each in portion))
                    continue
                for each in portion:
                    self.apply(each.delta)
                    changed += [TopicPartition(each.topic.name, number) for number in each.decided]
            if not contended:
                return changed
            waiting = await self._still_there(list(contended))
            if not waiting:
                return changed
            await self.reread_states(waiting)
        await self._check_not_ahead(waiting)
        raise CoordinationError(f"others change the states of {waiting[0]} as often as it is tried")

    async def _check_not_ahead(self, names: Iterable[str]) -> None:
        """Raise `CoordinationWentBack` if the tree has earlier states of one of these topics than the image has now.

        The image may learn of later states while the tree is being read."""
        image = self.image
        await elsewhere(self._coordination.heartbeat)  # what is read from now on is not older than `image`
        for name in names:
            topic = image.topics.get(name)
            paths = [] if topic is None else topic_store.states_paths(topic)
            nodes = await elsewhere(partial(self._coordination.get_many, paths)) if paths else []
            for number, (path, node) in enumerate(zip(paths, nodes, strict=True)):
                if node is None or not _is_behind(node, image, name, number):
                    continue
                known = image.states_version(name, number)
                text = f"{path} has the version {node.version}, but this broker has seen {known}"
                cause = "the coordination service was restored from a backup while brokers ran, or has lost data"
                went_back = CoordinationWentBack(f"{text}: {cause}. Stop all brokers, then start them")
                listeners, self._went_back_listeners = self._went_back_listeners, []
                for listener in listeners:
                    listener(went_back)
                raise went_back

    async def _still_there(self, names: Sequence[str]) -> list[str]:
        """Return those of these topics that the tree still has; the removal of others reaches the image separately."""
        found = await elsewhere(partial(topic_store.read_own_nodes, self._coordination, names))
        topics = self.image.topics
        return [
            name
            for name, (own, _) in found.items()
            if name in topics and own is not None and topic_store.is_topic_node(own, name, topics[name].topic_id)
        ]

    def _write_states(self, portion: Sequence["_StatesWrite"], guards: Mapping[str, int] | None) -> None:
        made = {each.topic.name: each.topic for each in portion if isinstance(each.change, CreateNode)}
        topic_store.write_states(
            self._coordination, [each.change for each in portion], guards, topics=list(made.values())
        )

    def _portions(self, names: Sequence[str], decide: Decide, nodes_max: int) -> Iterator[Sequence["_StatesWrite"]]:
        """Divide the new states of topics into commits. The caller allows fewer nodes after a failure, so that a node
        that others change all the time does not hold up the rest."""
        portion: list[_StatesWrite] = []
        nodes = size = 0
        for name in names:
            topic = self.image.topics.get(name)
            decided = decide(topic, self.image) if topic is not None else {}
            if topic is None or not decided:
                continue
            for write in _StatesWrite.all_of(topic, self.image, decided):
                if portion and (nodes + write.nodes > nodes_max or size + len(write.change.data) > COMMIT_BYTES):
                    yield portion
                    portion, nodes, size = [], 0, 0
                portion.append(write)
                nodes += write.nodes
                size += len(write.change.data)
        if portion:
            yield portion

    async def _check_guards(self, guards: Mapping[str, int]) -> None:
        nodes = await elsewhere(partial(self._coordination.get_many, list(guards)))
        for (path, version), node in zip(guards.items(), nodes, strict=True):
            if node is None or node.version != version:
                raise Deposed(f"{path} has another version than {version}")

    # --- brokers

    async def set_broker_configs(self, broker_id: int | None, configs: Mapping[str, str]) -> None:
        """Replace the dynamic configs of a broker, or with None of all brokers.

        Raises `CoordinationError`, `BadVersion` when another broker has changed them.
        """
        before = self.image.configs.get(broker_id, {})
        await elsewhere(partial(change_broker_configs, self._coordination, broker_id, before, configs))
        self.apply(ConfigsChanged(broker_id=broker_id, configs=configs))
        self._report_configured("all brokers" if broker_id is None else f"broker {broker_id}", before, configs)

    async def remove_broker(self, broker_id: int) -> bool:
        """Forget the configs and the registration of a broker that is gone for good; see `remove_broker`."""
        is_known = await elsewhere(partial(remove_broker, self._coordination, broker_id))
        if self.image.configs.get(broker_id):
            self.apply(ConfigsChanged(broker_id=broker_id, configs={}))
        if is_known:
            self._report(info(f"broker {broker_id} was removed from the cluster", broker=broker_id))
        return is_known

    def _report_configured(self, what: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        line = _changed_configs_line(what, before, after)
        if line is not None:
            self._report(line)
