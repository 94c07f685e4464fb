"""What a broker knows of its cluster and changes of it: an image in memory, and the coordination tree behind it.

The methods that write are changes for a `ChangeQueue` (or `complete`): they check, store off the owner thread, and only
then make the next image. One thread, the owner, calls everything here.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from attrs import evolve

from ...ports.coordination import Cancel, Coordination
from ...ports.words import TopicPartition
from . import layout, store, telling
from .brokers import broker_configs, children, live_brokers, set_broker_configs
from .change_queue import elsewhere
from .deltas import (
    BrokersChanged,
    ConfigsChanged,
    Delta,
    StatesChanged,
    TopicDeleting,
    TopicGone,
    TopicSet,
    TopicUnreadable,
)
from .image import ClusterImage, Contents
from .planning import check_configs_fit, check_new_name, plan_leader
from .store import StoredTopic
from .topics import BrokerRegistration, PartitionState, Topic

Told = Callable[[Delta, ClusterImage], None]
"""Called with a change, and the image before it."""

TOPICS_AT_A_TIME = 200
"""So many topics are read by one piece of work."""


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
            states={name: each.states for name, each in stored.items()},
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
            self.apply(TopicSet(topic=stored.topic, states=stored.states))

    async def reread_brokers(self, own: BrokerRegistration) -> None:
        """Let the brokers count that the tree shows, and `own`, which it may not show yet."""
        found = await elsewhere(partial(live_brokers, self._coordination, self._report))
        brokers = {**{broker.broker_id: broker for broker in found}, own.broker_id: own}
        if brokers != self.image.brokers:
            self.apply(BrokersChanged(brokers=brokers))

    async def reread_configs(self, broker_id: int | None) -> None:
        """Let what the tree says of the configs of a broker, or of all, count."""
        configs = await elsewhere(partial(broker_configs, self._coordination, broker_id, self._report))
        if configs != self.image.configs.get(broker_id, {}):
            self.apply(ConfigsChanged(broker_id=broker_id, configs=configs))

    # --- topics

    async def create(self, topic: Topic) -> None:
        """Store a planned topic. Raises `ApiError(TOPIC_ALREADY_EXISTS)`."""
        check_new_name(self.image, topic.name)
        await elsewhere(partial(store.create_topic, self._coordination, topic))
        self.apply(TopicSet(topic=topic, states={}))
        self._report(telling.made(topic))

    async def resize(self, topic: Topic) -> None:
        """Store a topic that `plan_partitions` gave, or with fewer partitions the one it was before."""
        before = self.image.topic(topic.name)
        await elsewhere(partial(store.write_topic, self._coordination, topic))
        self.apply(TopicSet(topic=topic))
        self._report(telling.resized(before, topic))

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the overrides of a topic. Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG."""
        before = self.image.topic(name)
        check_configs_fit(configs)
        topic = before.with_configs(configs)
        await elsewhere(partial(store.write_configs, self._coordination, topic))
        self.apply(TopicSet(topic=topic))
        self._tell_configured(f"topic {name}", before.configs, topic.configs)

    async def begin_delete(self, name: str) -> Topic:
        """Mark a topic as going: from now on it is unknown, also after a crash, but its name is not free yet.

        Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        topic = self.image.topic(name)
        await elsewhere(partial(store.write_topic, self._coordination, topic, deleting=True))
        self.apply(TopicDeleting(topic=topic))
        self._report(telling.deleted(topic))
        return topic

    async def finish_delete(self, name: str) -> None:
        """Remove all nodes of a topic that `begin_delete` marked; its name is free then. Doing it again is harmless."""
        await elsewhere(partial(store.remove_topic, self._coordination, name))
        self.apply(TopicGone(name=name))

    # --- leaders

    async def set_state(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        """Store a new state if nobody changed the one with `state.version`; returns it with its new version.

        Raises `BadVersion`; `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        self.image.state(partition)
        version = await elsewhere(partial(store.write_state, self._coordination, partition, state))
        stored = evolve(state, version=version)
        self.apply(StatesChanged(topic=partition.topic, states={partition.partition: stored}))
        return stored

    async def elect(self, partition: TopicPartition, live: Collection[int]) -> PartitionState:
        """Store what `plan_leader` says of a partition. Raises as `set_state`."""
        replicas = self.image.topic(partition.topic).partitions.get(partition.partition, ())
        return await self.set_state(partition, plan_leader(replicas, self.image.state(partition), live))

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
