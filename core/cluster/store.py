"""Reading and writing the nodes of a topic. All of it may wait for the network; nothing here is kept in memory.

Crash-safe: a topic exists once its own node does, which comes in one commit with that of its configs, after the states
that it is restored with, and is removed last.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ...ports.coordination import (
    CHANGES_MAX,
    BadVersion,
    Coordination,
    CreateNode,
    DeleteNode,
    NodeChange,
    NodeExists,
    NoNode,
    SetNode,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
from ...ports.words import TopicPartition
from . import layout
from .brokers import children, put, read_configs, remove
from .topics import PartitionState, Topic

Report = Callable[[str], None]


@frozen(kw_only=True)
class StoredTopic:
    """What the nodes of a topic say; without `topic` its own node makes no sense."""

    topic: Topic | None
    deleting: bool = False
    states: Mapping[int, PartitionState] = {}


def read_topics(coordination: Coordination, names: Sequence[str], report: Report) -> dict[str, StoredTopic]:
    """What these nodes say, without names that nothing has. What makes no sense is reported."""
    found = {name: _read_topic(coordination, name, report) for name in names}
    return {name: stored for name, stored in found.items() if stored is not None}


def _read_topic(coordination: Coordination, name: str, report: Report) -> StoredTopic | None:
    path = layout.topic_path(name)
    try:
        data = coordination.get(path).data
        configs = read_configs(coordination, layout.topic_config_path(name), report)
        topic, deleting = layout.decode_topic(name, data, configs)
    except NoNode:
        return None
    except (ValueError, ApiError) as error:
        report(f"skipped {path}, which does not describe a topic: {error}")
        return StoredTopic(topic=None)
    return StoredTopic(
        topic=topic, deleting=deleting, states={} if deleting else _read_states(coordination, topic, report)
    )


def _read_states(coordination: Coordination, topic: Topic, report: Report) -> dict[int, PartitionState]:
    states = {}
    for name in children(coordination, layout.partitions_path(topic.name)):
        path = f"{layout.partitions_path(topic.name)}/{name}/state"
        try:
            node = coordination.get(path)
            partition = int(name)
            if layout.state_path(topic.name, partition) != path or partition not in topic.partitions:
                raise ValueError(f"topic {topic.name!r} has no partition {name!r}")
            state = layout.decode_state(node.data, node.version)
        except NoNode:
            continue
        except ValueError as error:
            report(f"skipped {path}, which does not hold a partition's state: {error}")
            continue
        states[partition] = state
    return states


def create_topic(coordination: Coordination, topic: Topic) -> None:
    """Raises `ApiError(TOPIC_ALREADY_EXISTS)`, and leaves the nodes of the other topic alone then."""
    restore_topic(coordination, topic, {})


def restore_topic(coordination: Coordination, topic: Topic, states: Mapping[int, PartitionState]) -> None:
    """Create a topic with partitions that may have a history. Raises as `create_topic`; after an interruption it can be
    done again."""
    _check_new(coordination, topic.name)
    remove_states(coordination, topic.name)
    made = [
        CreateNode(layout.state_path(topic.name, partition), layout.encode_state(state))
        for partition, state in states.items()
    ]
    for start in range(0, len(made), CHANGES_MAX):
        coordination.commit(made[start : start + CHANGES_MAX])
    own = CreateNode(layout.topic_path(topic.name), layout.encode_topic(topic))
    while True:
        try:
            coordination.commit([own, *_configs_of_new(coordination, topic)])
            return
        except (NodeExists, NoNode):  # another one made the topic, or made or removed the configs
            _check_new(coordination, topic.name)


def _check_new(coordination: Coordination, name: str) -> None:
    path = layout.topic_path(name)
    with suppress(NoNode):
        coordination.get(path)
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the coordination tree has {path} already")


def _configs_of_new(coordination: Coordination, topic: Topic) -> list[NodeChange]:
    """What makes the node of a new topic's configs right, whatever an earlier topic has left."""
    path = layout.topic_config_path(topic.name)
    data = layout.encode_configs(topic.configs)
    try:
        coordination.get(path)
    except NoNode:
        return [CreateNode(path, data)] if topic.configs else []
    return [SetNode(path, data) if topic.configs else DeleteNode(path)]


def write_topic(coordination: Coordination, topic: Topic, *, deleting: bool = False) -> None:
    """Replace the topic's own node, which must exist."""
    coordination.set(layout.topic_path(topic.name), layout.encode_topic(topic, deleting=deleting))


def write_configs(coordination: Coordination, topic: Topic) -> None:
    """Replace the configs of a topic."""
    put(coordination, layout.topic_config_path(topic.name), layout.encode_configs(topic.configs))


def write_state(coordination: Coordination, partition: TopicPartition, state: PartitionState) -> int:
    """Store a state, if nobody changed the one with `state.version`; returns its new version. Raises `BadVersion`."""
    path = layout.state_path(*partition)
    if state.version is not None:
        return coordination.set(path, layout.encode_state(state), version=state.version)
    try:
        coordination.create(path, layout.encode_state(state))
    except NodeExists as error:
        raise BadVersion(f"{path} exists already") from error
    return 0


def remove_topic(coordination: Coordination, name: str) -> None:
    """Remove all nodes of a topic. Doing it again is harmless."""
    remove_states(coordination, name)
    remove(coordination, layout.topic_config_path(name))
    remove(coordination, layout.topic_path(name))


def remove_states(coordination: Coordination, name: str) -> None:
    """Remove what is known of the leaders of a topic's partitions."""
    above = layout.partitions_path(name)
    partitions = [f"{above}/{partition}" for partition in children(coordination, above)]
    if partitions:
        _remove_all(coordination, [f"{path}/state" for path in partitions])
        _remove_all(coordination, partitions)
        remove(coordination, above)


def _remove_all(coordination: Coordination, paths: Sequence[str]) -> None:
    """Delete nodes that need not exist, many at once."""
    for start in range(0, len(paths), CHANGES_MAX):
        some = paths[start : start + CHANGES_MAX]
        try:
            coordination.commit([DeleteNode(path) for path in some])
        except NoNode:
            for path in some:
                remove(coordination, path)


def read_all_broker_configs(coordination: Coordination, report: Report) -> dict[int | None, dict[str, str]]:
    """What was set for brokers while they ran, by id; None: for all of them."""
    found: dict[int | None, dict[str, str]] = {}
    for name in children(coordination, layout.BROKER_CONFIGS):
        if name == layout.ALL_BROKERS:
            found[None] = read_configs(coordination, layout.broker_config_path(None), report)
        elif name.isascii() and name.isdecimal() and str(int(name)) == name:
            found[int(name)] = read_configs(coordination, layout.broker_config_path(int(name)), report)
        else:
            report(f"ignored {layout.BROKER_CONFIGS}/{name}, which is not of a broker")
    return found
