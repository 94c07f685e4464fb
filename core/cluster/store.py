"""Reading and writing the nodes of a topic. All of it may wait for the network; nothing here is kept in memory.

Crash-safe: a topic exists once its own node does, which is written last when it is created and removed last when it is
deleted.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from ...ports.coordination import BadVersion, Coordination, NodeExists, NoNode
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
from ...ports.words import TopicPartition
from ..tree.tree import DATA_BYTES_MAX
from . import layout
from .brokers import children, put, read_configs, remove
from .topics import PartitionState, Topic

Report = Callable[[str], None]


@frozen(kw_only=True)
class StoredTopic:
    """What the nodes of a topic say; without `topic` its own node makes no sense."""

    topic: Topic | None
    deleting: bool = False
    states: Mapping[TopicPartition, PartitionState] = {}


def read_topic(coordination: Coordination, name: str, report: Report) -> StoredTopic | None:
    """None when there is no such topic. What makes no sense is reported."""
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


def _read_states(coordination: Coordination, topic: Topic, report: Report) -> dict[TopicPartition, PartitionState]:
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
        states[TopicPartition(topic.name, partition)] = state
    return states


def create_topic(coordination: Coordination, topic: Topic) -> None:
    """Raises `ApiError(TOPIC_ALREADY_EXISTS)`, and leaves the nodes of the other topic alone then."""
    path = layout.topic_path(topic.name)
    exists = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the coordination tree has {path} already")
    with suppress(NoNode):
        coordination.get(path)
        raise exists
    remove_states(coordination, topic.name)
    configs = layout.topic_config_path(topic.name)
    if topic.configs:
        put(coordination, configs, encode_configs(topic.configs))
    else:
        remove(coordination, configs)
    try:
        coordination.create(path, layout.encode_topic(topic))
    except NodeExists as error:
        raise exists from error


def restore_topic(coordination: Coordination, topic: Topic, states: Mapping[int, PartitionState]) -> None:
    """Create a topic with partitions that have a history: their states are there before it. Raises as `create_topic`;
    after an interruption it can be done again."""
    path = layout.topic_path(topic.name)
    with suppress(NoNode):
        coordination.get(path)
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the coordination tree has {path} already")
    remove_states(coordination, topic.name)
    put(coordination, layout.topic_config_path(topic.name), encode_configs(topic.configs))
    for partition, state in states.items():
        write_state(coordination, TopicPartition(topic.name, partition), state)
    coordination.create(path, layout.encode_topic(topic))


def write_topic(coordination: Coordination, topic: Topic, *, deleting: bool = False) -> None:
    """Replace the topic's own node, which must exist."""
    coordination.set(layout.topic_path(topic.name), layout.encode_topic(topic, deleting=deleting))


def write_configs(coordination: Coordination, topic: Topic) -> None:
    """Raises `ApiError(INVALID_CONFIG)` for more than a node holds."""
    put(coordination, layout.topic_config_path(topic.name), encode_configs(topic.configs))


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
    partitions = children(coordination, layout.partitions_path(name))
    for partition in partitions:
        path = f"{layout.partitions_path(name)}/{partition}"
        remove(coordination, f"{path}/state")
        remove(coordination, path)
    if partitions:
        remove(coordination, layout.partitions_path(name))


def encode_configs(configs: Mapping[str, str]) -> bytes:
    """Raises `ApiError(INVALID_CONFIG)` for more than a node holds."""
    encoded = layout.encode_configs(configs)
    if len(encoded) > DATA_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"the configs do not fit into one node ({len(encoded)} bytes)")
    return encoded
