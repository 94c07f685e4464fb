"""A group's registries: its members, who owns which partition, and how far each has been read (facts A7, A8).

Everything here waits for the coordination service: it belongs off the reactor when that is `blocking`. Every function
may be repeated after a `CoordinationError`, also by a later life with the same fixed consumer id (`create_ephemeral`).

`ConfigError` is raised for group, consumer and topic names that cannot be part of a path.
"""

from collections.abc import Iterable, Mapping

from ....ports.coordination import Coordination, CoordinationError, NodeExists, NoNode
from ....ports.values import frozen
from . import layout, registries
from .layout import BrokerPartition, ClassicBroker, thread_id
from .registries import Report
from .subscription import ClassicSubscription

Owned = tuple[str, BrokerPartition]
"""A partition of a topic."""


class OwnershipConflict(CoordinationError):
    """Another thread owns a partition that we were to have: it has not given it up yet, or sees the group otherwise."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(f"{path} is owned by {owner[:200]!r}")
        self.path = path
        self.owner = owner


@frozen(kw_only=True)
class GroupView:
    """The state of a group that one member reads from the registries before it rebalances. Only live brokers count."""

    consumers: Mapping[str, Mapping[str, int]]
    """Consumer id → topic → number of streams."""
    partitions: Mapping[str, Mapping[int, int]]
    """Topic → broker id → number of partitions."""
    brokers: Mapping[int, ClassicBroker]

    def threads(self, topic: str) -> list[str]:
        """Return the ids of all threads of the group that are subscribed to the topic."""
        return [
            thread_id(consumer_id, number)
            for consumer_id, streams in self.consumers.items()
            for number in range(streams.get(topic, 0))
        ]

    def places(self, topic: str) -> list[BrokerPartition]:
        """Return the partitions of the topic."""
        counts = self.partitions.get(topic, {})
        return [BrokerPartition(broker_id, number) for broker_id, count in counts.items() for number in range(count)]


def check_ids(group: str, consumer_id: str | None = None) -> None:
    """Raise `ConfigError` when one of them cannot be part of a path."""
    layout.check_name("group id", group)
    if consumer_id is not None:
        layout.check_name("consumer id", consumer_id)


def register_consumer(
    coordination: Coordination, group: str, consumer_id: str, subscription: ClassicSubscription
) -> None:
    """Become a member until the session ends.

    Raises `NodeTaken` when another consumer of this id subscribed to something else.
    """
    check_ids(group, consumer_id)
    registries.create_ephemeral(coordination, layout.consumer_path(group, consumer_id), subscription.encode())


def unregister_consumer(coordination: Coordination, group: str, consumer_id: str) -> None:
    """Leave the group. Harmless for one that is no member."""
    check_ids(group, consumer_id)
    try:
        coordination.delete(layout.consumer_path(group, consumer_id))
    except NoNode:
        return


def read_group(coordination: Coordination, group: str, consumer_id: str | None, report: Report) -> GroupView:
    """Read a group, with the partitions of this consumer's topics, or of all members' topics for None.

    Members whose node makes no sense are reported and do not count.
    """
    check_ids(group, consumer_id)
    subscriptions = _read_subscriptions(coordination, group, report)
    filtered = any(each.topic_filter is not None for each in subscriptions.values())
    all_topics = registries.read_topic_names(coordination, report) if filtered else []
    consumers = {member: each.expand(all_topics) for member, each in subscriptions.items()}
    wanted = consumers.values() if consumer_id is None else [consumers.get(consumer_id, {})]
    topics = sorted({topic for streams in wanted for topic in streams})
    counts = registries.read_topics(coordination, topics, report)
    # Last: a broker is registered before its topics are, so one that is missing here is gone.
    brokers = registries.read_brokers(coordination, report)
    partitions = {
        topic: {broker_id: count for broker_id, count in counts[topic].items() if broker_id in brokers}
        for topic in topics
    }
    return GroupView(consumers=consumers, partitions=partitions, brokers=brokers)


def _read_subscriptions(coordination: Coordination, group: str, report: Report) -> dict[str, ClassicSubscription]:
    subscriptions = {}
    for name, path, data in registries.nodes_below(coordination, layout.consumer_ids_path(group), report):
        try:
            subscriptions[name] = ClassicSubscription.decode(data)
        except ValueError as error:
            report(f"skipped {path}, which is not a subscription: {error}")
    return subscriptions


def claim(coordination: Coordination, group: str, claims: Mapping[Owned, str]) -> None:
    """Become the owner of each partition by the thread it maps to: of all, or of none.

    Raises `OwnershipConflict` after giving up what was claimed. After any other `CoordinationError` some may still
    stand: `release` the same claims before the next try.
    """
    check_ids(group)
    for (topic, place), thread in claims.items():
        path = layout.owner_path(group, layout.check_name("topic", topic), place)
        try:
            registries.create_ephemeral(coordination, path, thread.encode())
        except registries.NodeTaken as error:
            release(coordination, group, claims)
            raise OwnershipConflict(path, error.content.decode(errors="replace")) from error


def release(coordination: Coordination, group: str, claims: Mapping[Owned, str]) -> None:
    """Give up the partitions; one without an owner, or of another thread, is left alone."""
    check_ids(group)
    for (topic, place), thread in claims.items():
        path = layout.owner_path(group, layout.check_name("topic", topic), place)
        registries.delete_own(coordination, path, thread.encode())


def read_owners(coordination: Coordination, group: str, topic: str, report: Report) -> dict[BrokerPartition, str]:
    """Read the owner of each partition of a topic that has one."""
    check_ids(group)
    path = layout.owners_path(group, layout.check_name("topic", topic))
    owners = {}
    for name, node_path, data in registries.nodes_below(coordination, path, report):
        try:
            owners[layout.decode_place(name)] = data.decode()
        except ValueError as error:
            report(f"skipped {node_path}, which is not an owner: {error}")
    return owners


def read_offset(
    coordination: Coordination, group: str, topic: str, place: BrokerPartition, report: Report
) -> int | None:
    """Read a committed offset; None if there is none, or if the node is malformed, which is reported."""
    check_ids(group)
    path = layout.offset_path(group, layout.check_name("topic", topic), place)
    node = registries.get(coordination, path)
    if node is None:
        return None
    try:
        return layout.decode_number(node.data, "offset")
    except ValueError as error:
        report(f"ignored the invalid committed offset in {path}: {error}")
        return None


def read_offsets(coordination: Coordination, group: str, owned: Iterable[Owned], report: Report) -> dict[Owned, int]:
    """`read_offset` of several; those without one are missing."""
    offsets = {}
    for topic, place in owned:
        offset = read_offset(coordination, group, topic, place, report)
        if offset is not None:
            offsets[topic, place] = offset
    return offsets


def read_topic_offsets(
    coordination: Coordination, group: str, topic: str, report: Report
) -> dict[BrokerPartition, int]:
    """Read all committed offsets of a topic, also those of brokers that no longer exist."""
    check_ids(group)
    path = layout.offsets_path(group, layout.check_name("topic", topic))
    offsets = {}
    for name, node_path, data in registries.nodes_below(coordination, path, report):
        try:
            offsets[layout.decode_place(name)] = layout.decode_number(data, "offset")
        except ValueError as error:
            report(f"ignored the invalid committed offset in {node_path}: {error}")
    return offsets


def write_offsets(coordination: Coordination, group: str, offsets: Mapping[Owned, int]) -> None:
    """Commit without regard to the owners of the partitions and to earlier commits (facts A8)."""
    check_ids(group)
    for (topic, place), offset in offsets.items():
        if offset < 0:
            raise ValueError(f"offset {offset} of {topic} {place} is negative")
        path = layout.offset_path(group, layout.check_name("topic", topic), place)
        _write(coordination, path, layout.encode_number(offset))


def _write(coordination: Coordination, path: str, data: bytes) -> None:
    while True:
        try:
            coordination.set(path, data)
            return
        except NoNode:
            try:
                coordination.create(path, data)
                return
            except NodeExists:
                continue  # made by another in between
