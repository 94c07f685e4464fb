"""What a broker knows of its cluster and changes of it: an image in memory, and the coordination tree behind it.

The methods that write are changes for a `ChangeQueue` (or `complete`): they check, store off the owner thread, and only
then make the next image. One thread, the owner, calls everything here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ...ports.coordination import (
    CHANGES_MAX,
    BadVersion,
    Cancel,
    Coordination,
    CoordinationError,
    CreateNode,
    Node,
    SetNode,
)
from ...ports.values import frozen
from ...ports.words import TopicPartition
from . import layout, store, telling
from .brokers import broker_configs, children, live_brokers, set_broker_configs, stored_controller
from .change_queue import elsewhere
from .deltas import (
    BrokersChanged,
    ConfigsChanged,
    ControllerChanged,
    Delta,
    StatesChanged,
    TopicDeleting,
    TopicGone,
    TopicSet,
    TopicUnreadable,
)
from .image import ClusterImage, Contents
from .planning import check_configs_fit, check_new_name
from .store import StoredTopic
from .topics import BrokerRegistration, PartitionState, Topic

Told = Callable[[Delta, ClusterImage], None]
"""Called with a change, and the image before it."""

Decide = Callable[[Topic, ClusterImage], Mapping[int, PartitionState]]
"""The states that partitions of a topic shall have, without those that stay as they are."""

TOPICS_AT_A_TIME = 200
"""So many topics are read by one piece of work."""
STATES_AT_A_TIME = CHANGES_MAX - 2
"""So many nodes one commit is about, besides its guards."""
COMMIT_BYTES = 500_000
ATTEMPTS = 20


class Deposed(CoordinationError):
    """Another broker is the controller."""


@frozen(kw_only=True)
class _StatesWrite:
    """New states of one topic, on their way into the tree."""

    topic: Topic
    decided: Mapping[int, PartitionState]
    change: CreateNode | SetNode
    delta: StatesChanged

    @property
    def nodes(self) -> int:
        """How many the commit is about: what is made is guarded by another one."""
        return 2 if isinstance(self.change, CreateNode) else 1

    @classmethod
    def of(cls, topic: Topic, image: ClusterImage, decided: Mapping[int, PartitionState]) -> "_StatesWrite":
        version = image.states_version(topic.name)
        change = store.states_change(topic, {**image.states_of(topic.name), **decided}, version)
        after = 0 if version is None else version + 1
        delta = StatesChanged(topic=topic.name, topic_id=topic.topic_id, states=decided, version=after)
        return cls(topic=topic, decided=decided, change=change, delta=delta)


class ClusterRegistry:
    """The cluster. `report` is told of changes, and of nodes that make no sense; these are skipped."""

    def __init__(self, coordination: Coordination, report: Callable[[str], None]) -> None:
        self._coordination = coordination
        self._report = report
        self._listeners: list[Told] = []
        self.image = ClusterImage()
        """What is known now."""

    @property
    def coordination(self) -> Coordination:
        """The session with the tree."""
        return self._coordination

    def listen(self, told: Told) -> Cancel:
        """Let `told` be called after each change of the image; those who came first are told first."""
        self._listeners.append(told)
        return lambda: self._listeners.remove(told)

    def apply(self, delta: Delta) -> None:
        """Make the next image."""
        before = self.image
        self.image = before.after(delta)
        for told in tuple(self._listeners):
            told(delta, before)

    # --- reading

    async def load(self) -> None:
        """Read topics and configs from the tree, in place of what was known (at a start; no listener is told)."""
        names = await elsewhere(partial(children, self._coordination, layout.TOPICS))
        stored: dict[str, StoredTopic] = {}
        for start in range(0, len(names), TOPICS_AT_A_TIME):
            some = names[start : start + TOPICS_AT_A_TIME]
            stored |= await elsewhere(partial(store.read_topics, self._coordination, some, self._report))
        configs = await elsewhere(partial(store.read_all_broker_configs, self._coordination, self._report))
        known = {name: each.topic for name, each in stored.items() if each.topic is not None}
        going = {name for name, each in stored.items() if each.deleting}
        contents = Contents(
            topics={name: topic for name, topic in known.items() if name not in going},
            deleting={name: topic for name, topic in known.items() if name in going},
            unreadable=frozenset(stored.keys() - known.keys()),
            states={name: (each.states, each.states_version) for name, each in stored.items()},
            configs=configs,
        )
        self.image = self.image.refilled(contents)

    async def reread(self, name: str) -> None:
        """Let what the tree says of a topic count: after a write that may have been done or not."""
        stored = (await elsewhere(partial(store.read_topics, self._coordination, [name], self._report))).get(name)
        if stored is None:
            self.apply(TopicGone(name=name))
        elif stored.topic is None:
            self.apply(TopicUnreadable(name=name))
        elif stored.deleting:
            self.apply(TopicDeleting(topic=stored.topic))
        else:
            self.apply(TopicSet(topic=stored.topic, states=stored.states, states_version=stored.states_version))

    async def changed_topics(self, names: Iterable[str]) -> Sequence[str]:
        """Those of these topics of which the tree says something else than the image."""
        asked = list(names)
        changed: list[str] = []
        for start in range(0, len(asked), TOPICS_AT_A_TIME):
            some = asked[start : start + TOPICS_AT_A_TIME]
            found = await elsewhere(partial(store.read_own_nodes, self._coordination, some))
            changed += [name for name in some if not self._is_known(name, *found[name])]
        return changed

    def _is_known(self, name: str, own: Node | None, configs: Node | None) -> bool:
        known = self.image.topics.get(name)
        if own is None:
            return known is None and name not in self.image.deleting and name not in self.image.unreadable
        if known is None:
            return False
        has_configs = configs.data if configs is not None else layout.encode_configs({})
        return own.data == layout.encode_topic(known) and has_configs == layout.encode_configs(known.configs)

    async def reread_brokers(self, own: BrokerRegistration | None = None) -> None:
        """Let the brokers count that the tree shows; and `own`, where nobody else can see that it lives."""
        found = await elsewhere(partial(live_brokers, self._coordination, self._report))
        brokers = {broker.broker_id: broker for broker in found}
        if own is not None:
            brokers[own.broker_id] = own
        if brokers != self.image.brokers:
            self.apply(BrokersChanged(brokers=brokers))

    async def reread_controller(self) -> None:
        """Let the controller count that the tree shows."""
        controller = await elsewhere(partial(stored_controller, self._coordination, self._report))
        if controller != self.image.controller:
            self.apply(ControllerChanged(controller=controller))

    async def reread_states(self, names: Iterable[str]) -> None:
        """Let what the tree says of the partitions of these topics count; those that are not known are left out."""
        wanted = [name for name in names if name in self.image.topics]
        for start in range(0, len(wanted), TOPICS_AT_A_TIME):
            some = wanted[start : start + TOPICS_AT_A_TIME]
            nodes = await elsewhere(partial(self._coordination.get_many, [layout.states_path(name) for name in some]))
            for name, node in zip(some, nodes, strict=True):
                self._apply_states(name, node)

    def _apply_states(self, name: str, node: Node | None) -> None:
        topic = self.image.topics.get(name)
        if topic is None or (node is not None and not node.data):
            return
        states = store.states_in(topic, node.data, self._report, may_be_ahead=True) if node is not None else {}
        version = node.version if node is not None else None
        if version is not None or self.image.states_version(name) is not None:
            self.apply(StatesChanged(topic=name, topic_id=topic.topic_id, states=states, version=version))

    async def reread_configs(self, broker_id: int | None) -> None:
        """Let what the tree says of the configs of a broker, or of all, count."""
        configs = await elsewhere(partial(broker_configs, self._coordination, broker_id, self._report))
        if configs != self.image.configs.get(broker_id, {}):
            self.apply(ConfigsChanged(broker_id=broker_id, configs=configs))

    # --- topics

    async def create(self, topic: Topic, states: Mapping[int, PartitionState] | None = None) -> None:
        """Store a planned topic. Raises `ApiError(TOPIC_ALREADY_EXISTS)`."""
        check_new_name(self.image, topic.name)
        states = states or {}
        await elsewhere(partial(store.create_topic, self._coordination, topic, states))
        if states:
            await self.reread(topic.name)
        else:
            self.apply(TopicSet(topic=topic, states={}))
        self._report(telling.made(topic))

    async def resize(self, topic: Topic, added: Mapping[int, PartitionState] | None = None) -> None:
        """Store a topic that `plan_partitions` gave, with the states of what is `added`; or with fewer partitions the
        one it was before. Raises `BadVersion` when others have changed it in between."""
        before = self.image.topic(topic.name)
        await self._write_topic(before, topic, added or {})
        self._report(telling.resized(before, topic))

    async def move(self, topic: Topic, states: Mapping[int, PartitionState]) -> None:
        """Store other replicas of a topic's partitions, with states that change with them. Raises as `resize`."""
        await self._write_topic(self.image.topic(topic.name), topic, states)

    async def _write_topic(self, before: Topic, after: Topic, states: Mapping[int, PartitionState]) -> None:
        known, version = self.image.states_of(after.name), self.image.states_version(after.name)
        stored = {number: state for number, state in {**known, **states}.items() if number in after.partitions}
        change = store.states_change(after, stored, version) if states else None
        await elsewhere(partial(store.rewrite_topic, self._coordination, before, after, change))
        if change is None:
            self.apply(TopicSet(topic=after))
        else:
            self.apply(TopicSet(topic=after, states=stored, states_version=0 if version is None else version + 1))

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the overrides of a topic. Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG."""
        before = self.image.topic(name)
        check_configs_fit(configs)
        topic = before.with_configs(configs)
        await elsewhere(partial(store.write_configs, self._coordination, topic))
        self.apply(TopicSet(topic=topic))
        self._tell_configured(f"topic {name}", before.configs, topic.configs)

    async def begin_delete(self, name: str, brokers: Iterable[int] = ()) -> Topic:
        """Mark a topic as going: from now on it is unknown, also after a crash, but its name is not free yet.

        `brokers` are those who are to say that they have removed their logs, where there are several.
        Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        topic = self.image.topic(name)
        await elsewhere(partial(store.mark_deleting, self._coordination, topic, brokers))
        self.apply(TopicDeleting(topic=topic))
        self._report(telling.deleted(topic))
        return topic

    async def finish_delete(self, topic: Topic) -> None:
        """Remove all nodes of a topic that `begin_delete` marked; its name is free then. Doing it again is harmless,
        also when there is another topic of that name by now."""
        await elsewhere(partial(store.remove_topic, self._coordination, topic))
        going = self.image.deleting.get(topic.name)
        if going is not None and going.topic_id == topic.topic_id:
            self.apply(TopicGone(name=topic.name))

    # --- leaders

    async def change_states(
        self, names: Iterable[str], decide: Decide, guards: Mapping[str, int] | None = None
    ) -> Sequence[TopicPartition]:
        """Store what `decide` makes of the states of these topics; returns the partitions that it has changed.

        `decide` is asked again, about newer states, for topics that others have changed in between, unless they are
        gone. Raises `Deposed` when one of the `guards` has another version by now, `CoordinationError`.
        """
        changed: list[TopicPartition] = []
        waiting = list(dict.fromkeys(names))
        for _ in range(ATTEMPTS):
            contended: list[str] = []
            for portion in self._portions(waiting, decide):
                try:
                    await elsewhere(
                        partial(store.write_states, self._coordination, [each.change for each in portion], guards)
                    )
                except BadVersion:
                    await self._check_guards(guards or {})
                    contended += [each.topic.name for each in portion]
                    continue
                for each in portion:
                    self.apply(each.delta)
                    changed += [TopicPartition(each.topic.name, number) for number in each.decided]
            if not contended:
                return changed
            waiting = await self._still_there(contended)
            if not waiting:
                return changed
            await self.reread_states(waiting)
        raise CoordinationError(f"others change the states of {waiting[0]} as often as it is tried")

    async def _still_there(self, names: Sequence[str]) -> list[str]:
        """Those of these topics that the tree still has; that the others are gone is told in another way."""
        found = await elsewhere(partial(store.read_own_nodes, self._coordination, names))
        topics = self.image.topics
        return [
            name
            for name, (own, _) in found.items()
            if name in topics and own is not None and store.tells_of(own, name, topics[name].topic_id)
        ]

    def _portions(self, names: Sequence[str], decide: Decide) -> Iterator[Sequence["_StatesWrite"]]:
        """What goes into one commit each."""
        portion: list[_StatesWrite] = []
        nodes = size = 0
        for name in names:
            topic = self.image.topics.get(name)
            decided = decide(topic, self.image) if topic is not None else {}
            if topic is None or not decided:
                continue
            write = _StatesWrite.of(topic, self.image, decided)
            if portion and (nodes + write.nodes > STATES_AT_A_TIME or size + len(write.change.data) > COMMIT_BYTES):
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
        """Replace what was set for a broker, or with None for all. Raises `CoordinationError`."""
        before = self.image.configs.get(broker_id, {})
        await elsewhere(partial(set_broker_configs, self._coordination, broker_id, configs))
        self.apply(ConfigsChanged(broker_id=broker_id, configs=configs))
        self._tell_configured("all brokers" if broker_id is None else f"broker {broker_id}", before, configs)

    def _tell_configured(self, what: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        told = telling.configured(what, before, after)
        if told is not None:
            self._report(told)
