"""Reading and writing the nodes of a topic. All of it may wait for the network; nothing here is kept in memory.

Crash-safe: a topic exists once its own node does, which comes in one commit with that of its configs, after the states
that it is restored with, and is removed last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from ...ports.coordination import (
    CHANGES_MAX,
    BadVersion,
    Coordination,
    CreateNode,
    DeleteNode,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
    NotEmpty,
    SetNode,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
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
    states_version: int | None = None
    """That of the node with the states; None: it is not there."""


def read_topics(coordination: Coordination, names: Sequence[str], report: Report) -> dict[str, StoredTopic]:
    """What these nodes say, without names that nothing has. What makes no sense is reported."""
    found = {name: _read_topic(coordination, name, report) for name in names}
    return {name: stored for name, stored in found.items() if stored is not None}


def read_own_nodes(coordination: Coordination, names: Sequence[str]) -> Mapping[str, tuple[Node | None, Node | None]]:
    """The nodes of these topics and of their configs."""
    topics = coordination.get_many([layout.topic_path(name) for name in names])
    configs = coordination.get_many([layout.topic_config_path(name) for name in names])
    return dict(zip(names, zip(topics, configs, strict=True), strict=True))


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
    states, version = ({}, None) if deleting else _read_states(coordination, topic, report)
    return StoredTopic(topic=topic, deleting=deleting, states=states, states_version=version)


def _read_states(
    coordination: Coordination, topic: Topic, report: Report
) -> tuple[Mapping[int, PartitionState], int | None]:
    try:
        node = coordination.get(layout.states_path(topic.name))
    except NoNode:
        return {}, None
    if not node.data:
        return _read_old_states(coordination, topic, report), node.version
    return states_in(topic, node.data, report), node.version


def states_in(topic: Topic, data: bytes, report: Report, *, may_be_ahead: bool = False) -> Mapping[int, PartitionState]:
    """What a node says of the partitions of a topic; nothing, which is reported, if it makes no sense.

    `may_be_ahead`: the topic may have more partitions by now than is known here.
    """
    path = layout.states_path(topic.name)
    try:
        topic_id, states = layout.decode_states(data)
    except ValueError as error:
        report(f"skipped {path}, which does not hold the states of partitions: {error}")
        return {}
    if topic_id != topic.topic_id:
        return {}  # of an earlier topic of this name
    unknown = sorted(states.keys() - topic.partitions.keys())
    if unknown and not may_be_ahead:
        report(f"{path} tells of partitions that topic {topic.name} has not: {unknown[:10]}")
    return {number: state for number, state in states.items() if number in topic.partitions}


def _read_old_states(coordination: Coordination, topic: Topic, report: Report) -> dict[int, PartitionState]:
    """Those that an older version kept in a node for each partition."""
    states = {}
    for name in children(coordination, layout.states_path(topic.name)):
        path = f"{layout.states_path(topic.name)}/{name}/state"
        try:
            partition = int(name)
            if layout.old_state_path(topic.name, partition) != path or partition not in topic.partitions:
                raise ValueError(f"topic {topic.name!r} has no partition {name!r}")
            states[partition] = layout.decode_old_state(coordination.get(path).data)
        except NoNode:
            continue
        except ValueError as error:
            report(f"skipped {path}, which does not hold a partition's state: {error}")
    return states


def create_topic(coordination: Coordination, topic: Topic, states: Mapping[int, PartitionState] | None = None) -> None:
    """Make the nodes of a topic, with states that its partitions may have already.

    Raises `ApiError(TOPIC_ALREADY_EXISTS)`, and leaves the nodes of the other topic alone then; after an interruption
    it can be done again.
    """
    own = CreateNode(layout.topic_path(topic.name), layout.encode_topic(topic))
    while True:
        _check_new(coordination, topic.name)
        _remove_old_states(coordination, topic.name)
        try:
            coordination.commit(
                [own, *_states_of_new(coordination, topic, states or {}), *_configs_of_new(coordination, topic)]
            )
            return
        except (NodeExists, NoNode, BadVersion, NotEmpty):  # another one makes the topic, or changed the nodes beside
            continue


def _states_of_new(coordination: Coordination, topic: Topic, states: Mapping[int, PartitionState]) -> list[NodeChange]:
    """What makes the node of a new topic's states right, whatever an earlier topic has left."""
    path, data = layout.states_path(topic.name), layout.encode_states(topic.topic_id, states)
    try:
        version = coordination.get(path).version
    except NoNode:
        return [CreateNode(path, data)] if states else []
    return [SetNode(path, data, version) if states else DeleteNode(path, version)]


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


def write_topic(coordination: Coordination, topic: Topic) -> None:
    """Replace the topic's own node, which must exist."""
    coordination.set(layout.topic_path(topic.name), layout.encode_topic(topic))


def rewrite_topic(coordination: Coordination, before: Topic, after: Topic, states: CreateNode | SetNode | None) -> None:
    """Replace the topic's own node, if it says what it did `before`, and the one of its states with it.

    Raises `BadVersion` when others have changed them, or an attempt before this one, whose answer was lost: what the
    states have become since then must not be undone.
    """
    path = layout.topic_path(after.name)
    try:
        node = coordination.get(path)
        is_stored = node.data == layout.encode_topic(after) and states is None
        if node.data != layout.encode_topic(before) and not is_stored:
            raise BadVersion(f"another broker has changed {path}")
        own = SetNode(path, layout.encode_topic(after), node.version)
        coordination.commit([own] if states is None else [own, states])
    except (NodeExists, NoNode) as error:
        raise BadVersion(str(error)) from error


def mark_deleting(coordination: Coordination, topic: Topic, brokers: Iterable[int]) -> None:
    """The topic is going. These brokers remove their logs of it, now or when they come back, and say so
    (`confirm_deleted`). Doing it again is harmless."""
    changes: list[NodeChange] = [SetNode(layout.topic_path(topic.name), layout.encode_topic(topic, deleting=True))]
    told = sorted(brokers)
    if told:
        made = CreateNode(layout.deleted_path(topic.topic_id), layout.encode_deleted(topic.name, told))
        with suppress(NodeExists):
            coordination.commit([*changes, made])
            return
    coordination.commit(changes)


def confirm_deleted(coordination: Coordination, topic_id: bytes, broker_id: int) -> None:
    """This broker has no logs of a deleted topic any more; the last one removes the node that asked for it."""
    path = layout.deleted_path(topic_id)
    while True:
        try:
            node = coordination.get(path)
            name, brokers = layout.decode_deleted(node.data)
            left = [broker for broker in brokers if broker != broker_id]
            if left:
                coordination.set(path, layout.encode_deleted(name, left), version=node.version)
            else:
                coordination.delete(path, version=node.version)
            return
        except BadVersion:
            continue
        except (NoNode, ValueError):
            return


def deleted_of(coordination: Coordination, broker_id: int) -> dict[bytes, str]:
    """The topics, id to name, that were deleted while this broker could not remove its logs of them."""
    names = children(coordination, layout.DELETED)
    nodes = coordination.get_many([f"{layout.DELETED}/{name}" for name in names])
    found = {}
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            topic, brokers = layout.decode_deleted(node.data)
            if broker_id in brokers:
                found[layout.decode_id(name)] = topic
        except ValueError:
            continue  # of no topic of ours
    return found


def write_configs(coordination: Coordination, topic: Topic) -> None:
    """Replace the configs of a topic."""
    put(coordination, layout.topic_config_path(topic.name), layout.encode_configs(topic.configs))


def write_states(
    coordination: Coordination, changes: Sequence[NodeChange], guards: Mapping[str, int] | None = None
) -> None:
    """Commit changes of nodes with states, all or none. Raises `BadVersion` if another one changed one of them, or a
    guard, in between; or has removed the topic of a node that is to be made."""
    try:
        topics = _topics_of(coordination, [change for change in changes if isinstance(change, CreateNode)])
        coordination.commit(changes, guards={**topics, **(guards or {})})
    except (NodeExists, NoNode) as error:
        raise BadVersion(str(error)) from error


def _topics_of(coordination: Coordination, made: Sequence[CreateNode]) -> Mapping[str, int]:
    """The own nodes of the topics whose states these are, with their versions: what is made for a topic that is gone
    would stay for ever. Raises `BadVersion` if one of them is."""
    names = [change.path.rpartition("/")[2] for change in made]
    nodes = coordination.get_many([layout.topic_path(name) for name in names]) if names else []
    found = {}
    for name, change, node in zip(names, made, nodes, strict=True):
        if node is None or not tells_of(node, name, layout.decode_states(change.data)[0]):
            raise BadVersion(f"topic {name} is not there any more")
        found[layout.topic_path(name)] = node.version
    return found


def tells_of(own: Node, name: str, topic_id: bytes) -> bool:
    """True if the own node of a topic is that of the one with this id, which is not being deleted."""
    try:
        topic, deleting = layout.decode_topic(name, own.data, {})
    except (ValueError, ApiError):
        return False
    return topic.topic_id == topic_id and not deleting


def states_change(topic: Topic, states: Mapping[int, PartitionState], version: int | None) -> CreateNode | SetNode:
    """What stores the states of a topic, if their node still has the version that is known; None: it is not there."""
    path, data = layout.states_path(topic.name), layout.encode_states(topic.topic_id, states)
    return CreateNode(path, data) if version is None else SetNode(path, data, version)


def remove_topic(coordination: Coordination, topic: Topic) -> None:
    """Remove all nodes of a topic that is marked as going, not those of a later one of its name. Doing it again is
    harmless."""
    paths = [layout.topic_path(topic.name), layout.states_path(topic.name), layout.topic_config_path(topic.name)]
    while True:
        own, *others = coordination.get_many(paths)
        if own is None or own.data != layout.encode_topic(topic, deleting=True):
            return
        _remove_old_states(coordination, topic.name)
        changes = [DeleteNode(paths[0], own.version)]
        changes += [
            DeleteNode(path, node.version) for path, node in zip(paths[1:], others, strict=True) if node is not None
        ]
        with suppress(NoNode, BadVersion, NotEmpty):
            coordination.commit(changes)
            return


def _remove_old_states(coordination: Coordination, name: str) -> None:
    """Those that an older version has left: no later one writes into these nodes."""
    above = layout.states_path(name)
    partitions = [f"{above}/{partition}" for partition in children(coordination, above)]
    if partitions:
        _remove_all(coordination, [f"{path}/state" for path in partitions])
        _remove_all(coordination, partitions)


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
