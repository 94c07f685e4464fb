"""Reading and writing the nodes of a topic. All of it may wait for the network; nothing here is kept in memory.

Crash-safe: a topic exists once its own node does, which comes in one commit with that of its configs, after the states
that it is restored with, and is removed last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

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
from ..tree.tree import DATA_BYTES_MAX
from . import layout
from .brokers import children, configs_in, read_configs, remove
from .topics import PartitionState, Topic

Report = Callable[[str], None]


@frozen(kw_only=True)
class StoredTopic:
    """The content of a topic's nodes; `topic` is None if its own node is unreadable."""

    topic: Topic | None
    deleting: bool = False
    states: Mapping[int, PartitionState] = {}
    states_versions: Mapping[int, int] = {}
    """The versions of the nodes with these states, by number; a missing or unreadable node has none."""


def read_topics(coordination: Coordination, names: Sequence[str], report: Report) -> dict[str, StoredTopic]:
    """Return the topics of these names, without those that do not exist. Unreadable nodes are reported."""
    found: dict[str, StoredTopic] = {}
    live: list[Topic] = []
    for name, (own, configs) in read_own_nodes(coordination, names).items():
        if own is None:
            continue
        stored = found[name] = _decoded(name, own, configs, report)
        if stored.topic is not None and not stored.deleting:
            live.append(stored.topic)
    nodes = iter(coordination.get_many([path for topic in live for path in states_paths(topic)]))
    for topic in live:
        paths = states_paths(topic)
        own_nodes = list(islice(nodes, len(paths)))
        if None in own_nodes:
            _convert_old_states(coordination, topic, report)
            own_nodes = coordination.get_many(paths)
        states, versions = _states_of(topic, paths, own_nodes, report)
        found[topic.name] = StoredTopic(topic=topic, states=states, states_versions=versions)
    return found


def _decoded(name: str, own: Node, configs: Node | None, report: Report) -> StoredTopic:
    """Decode a topic without its states."""
    try:
        found = configs_in(configs, layout.topic_config_path(name), report)
        topic, deleting = layout.decode_topic(name, own.data, found)
    except (ValueError, ApiError) as error:
        report(f"skipped {layout.topic_path(name)}, which does not describe a topic: {error}")
        return StoredTopic(topic=None)
    return StoredTopic(topic=topic, deleting=deleting)


def _states_of(
    topic: Topic, paths: Sequence[str], nodes: Sequence[Node | None], report: Report
) -> tuple[Mapping[int, PartitionState], Mapping[int, int]]:
    states: dict[int, PartitionState] = {}
    versions: dict[int, int] = {}
    for number, (path, node) in enumerate(zip(paths, nodes, strict=True)):
        found = None if node is None else states_in(topic, path, node.data, report)
        if node is not None and found is not None:
            states |= found
            versions[number] = node.version
    return states, versions


def read_own_nodes(coordination: Coordination, names: Sequence[str]) -> Mapping[str, tuple[Node | None, Node | None]]:
    """Read the nodes of these topics and of their configs."""
    topics = coordination.get_many([layout.topic_path(name) for name in names])
    configs = coordination.get_many([layout.topic_config_path(name) for name in names])
    return dict(zip(names, zip(topics, configs, strict=True), strict=True))


def states_paths(topic: Topic) -> list[str]:
    """Return the paths of the nodes with the states of a topic's partitions, by number."""
    return [layout.states_path(topic.topic_id, node) for node in layout.states_nodes(len(topic.partitions))]


def states_in(
    topic: Topic, path: str, data: bytes, report: Report, *, may_be_ahead: bool = False
) -> Mapping[int, PartitionState] | None:
    """Return the partition states in a node; report an invalid node, and return None.

    `may_be_ahead`: the topic may have more partitions by now than is known here. What is said of them is returned, too:
    who changes a node writes all of it again.
    """
    try:
        topic_id, states = layout.decode_states(data)
        if topic_id != topic.topic_id:
            raise ValueError(f"it is about another topic, with the id {layout.encode_id(topic_id)}")
    except ValueError as error:
        report(f"skipped {path}, which does not hold the states of partitions: {error}")
        return None
    unknown = sorted(states.keys() - topic.partitions.keys())
    if unknown and not may_be_ahead:
        report(f"{path} has states of partitions that topic {topic.name} does not have: {unknown[:10]}")
    return states


def _convert_old_states(coordination: Coordination, topic: Topic, report: Report) -> None:
    """Move states that an earlier version stored by the topic's name into the nodes by its id.

    Several brokers may do it at once, and after an interruption it is done again: the old nodes no longer change.
    """
    path = layout.old_states_path(topic.name)
    try:
        old = coordination.get(path)
    except NoNode:
        return
    if not old.data:
        states = _read_old_states(coordination, topic, report)
    else:
        try:
            topic_id, states = layout.decode_states(old.data)
        except ValueError as error:
            report(f"skipped {path}, which does not hold the states of partitions: {error}")
            return
        if topic_id != topic.topic_id:
            states = {}  # of an earlier topic of this name
    for made in states_of_new(topic, states):
        _create_converted(coordination, topic, made)
    with suppress(NoNode, BadVersion, NotEmpty):
        _remove_old_states(coordination, topic.name)
        coordination.delete(path, version=old.version)


def _create_converted(coordination: Coordination, topic: Topic, made: CreateNode) -> None:
    """Create a node with states, unless another broker has, or the topic is gone."""
    while True:
        try:
            write_states(coordination, [made], topics=[topic])
            return
        except BadVersion:
            own, stored = coordination.get_many([layout.topic_path(topic.name), made.path])
            if stored is not None or own is None or not is_topic_node(own, topic.name, topic.topic_id):
                return


def _read_old_states(coordination: Coordination, topic: Topic, report: Report) -> dict[int, PartitionState]:
    """Return the states that an older version stored in a node for each partition."""
    states = {}
    above = layout.old_states_path(topic.name)
    for name in children(coordination, above):
        path = f"{above}/{name}/state"
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
    """Create the nodes of a topic, with states that its partitions may have already.

    Raises `ApiError(TOPIC_ALREADY_EXISTS)`, and leaves the nodes of the other topic unchanged; after an
    interruption it can be repeated. States that do not fit into the commit of the topic are written before it.
    """
    own = CreateNode(layout.topic_path(topic.name), layout.encode_topic(topic))
    stored = states_of_new(topic, states or {})
    ahead: list[CreateNode] = []
    while True:
        try:
            _check_new(coordination, topic.name)
        except ApiError:
            if not _is_stored(coordination, topic):
                _remove_all(coordination, [change.path for change in ahead])
            raise
        _remove_old(coordination, topic.name)
        changes: list[NodeChange] = [own, *stored, *_configs_of_new(coordination, topic)]
        if ahead or not fits_one_commit(changes):
            ahead = stored
            _create_ahead(coordination, stored)
            changes = [change for change in changes if change not in stored]
        try:
            coordination.commit(changes)
            return
        except (NodeExists, NoNode, BadVersion, NotEmpty):  # another broker creates the topic, or changed these nodes
            continue


def create_topics(coordination: Coordination, made: Sequence[tuple[Topic, Mapping[int, PartitionState]]]) -> bool:
    """Create the nodes of several topics, each with its states, in one commit.

    Return False, and create nothing, if that is too much for one commit, or a node of one of them exists.
    """
    changes: list[CreateNode] = []
    for topic, states in made:
        changes += [
            CreateNode(layout.topic_path(topic.name), layout.encode_topic(topic)),
            *states_of_new(topic, states),
        ]
        if topic.configs:
            changes.append(CreateNode(layout.topic_config_path(topic.name), layout.encode_configs(topic.configs)))
    if not fits_one_commit(changes):
        return False
    kinds = (layout.topic_path, layout.topic_config_path, layout.old_states_path)
    paths = [path(topic.name) for topic, _ in made for path in kinds]
    if any(node is not None for node in coordination.get_many(paths)):
        return False
    try:
        coordination.commit(changes)
    except (NodeExists, NoNode, BadVersion, NotEmpty):
        return False
    return True


def _is_stored(coordination: Coordination, topic: Topic) -> bool:
    try:
        return is_topic_node(coordination.get(layout.topic_path(topic.name)), topic.name, topic.topic_id)
    except NoNode:
        return False


def fits_one_commit(changes: Sequence[NodeChange]) -> bool:
    """Return True if all changes fit into one commit."""
    data = sum(len(change.data) for change in changes if not isinstance(change, DeleteNode))
    return len(changes) <= CHANGES_MAX and data <= DATA_BYTES_MAX


def _create_ahead(coordination: Coordination, nodes: Iterable[CreateNode]) -> None:
    """Create nodes with the states of a topic that does not exist yet; an earlier attempt may have created them."""
    for node in nodes:
        with suppress(NodeExists):
            coordination.create(node.path, node.data)


def states_of_new(topic: Topic, states: Mapping[int, PartitionState]) -> list[CreateNode]:
    """Return the nodes with these states of a topic that has none yet."""
    nodes = sorted({layout.states_node(number) for number in states})
    return [
        CreateNode(layout.states_path(topic.topic_id, node), encode_states_node(topic, node, states)) for node in nodes
    ]


def encode_states_node(topic: Topic, node: int, states: Mapping[int, PartitionState]) -> bytes:
    """Return the content of a node: the states that belong into it."""
    own = {number: states[number] for number in layout.partitions_of_node(node) if number in states}
    return layout.encode_states(topic.topic_id, own)


def _check_new(coordination: Coordination, name: str) -> None:
    path = layout.topic_path(name)
    with suppress(NoNode):
        coordination.get(path)
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the coordination tree has {path} already")


def _configs_of_new(coordination: Coordination, topic: Topic) -> list[NodeChange]:
    """Return the changes that store a new topic's configs, whatever node an earlier topic has left."""
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


def rewrite_topic(
    coordination: Coordination, before: Topic, after: Topic, states: Sequence[CreateNode | SetNode]
) -> None:
    """Replace the topic's own node, if it says what it did `before`, and nodes of its states with it.

    Raises `BadVersion` when others have changed them, or an attempt before this one, whose answer was lost: what the
    states have become since then must not be undone.
    """
    path = layout.topic_path(after.name)
    try:
        node = coordination.get(path)
        is_stored = node.data == layout.encode_topic(after) and not states
        if node.data != layout.encode_topic(before) and not is_stored:
            raise BadVersion(f"another broker has changed {path}")
        own = SetNode(path, layout.encode_topic(after), node.version)
        coordination.commit([own, *states])
    except (NodeExists, NoNode) as error:
        raise BadVersion(str(error)) from error


def mark_deleting(coordination: Coordination, topic: Topic, brokers: Iterable[int]) -> Topic:
    """Mark a topic as being deleted; return it as its node had it.

    `brokers`, and those that have or had replicas of it by now, remove their logs of it, now or when they are started,
    and confirm that with `confirm_deleted`. An empty `brokers` means that this broker is the only one. The same commit
    records that remote storage may have objects of a tiered topic.

    The call is idempotent. Raises `BadVersion` if another topic has this name by now, or none.
    """
    path = layout.topic_path(topic.name)
    holders = set(brokers)
    if not holders:
        own = SetNode(path, layout.encode_topic(topic, deleting=True))
        _commit_with_notes(coordination, own, _remote_notes(topic))
        return topic
    while True:
        try:
            node = coordination.get(path)
            stored, _ = layout.decode_topic(topic.name, node.data, topic.configs)
        except (NoNode, ValueError, ApiError) as error:
            raise BadVersion(f"topic {topic.name} no longer exists") from error
        if stored.topic_id != topic.topic_id:
            raise BadVersion(f"another broker has created topic {topic.name} again")
        holders.update(stored.log_holders)
        own = SetNode(path, layout.encode_topic(stored, deleting=True), node.version)
        note = CreateNode(layout.deleted_path(topic.topic_id), layout.encode_deleted(topic.name, sorted(holders)))
        try:
            _commit_with_notes(coordination, own, [note, *_remote_notes(topic)])
        except (BadVersion, NoNode):
            continue
        return stored


def _remote_notes(topic: Topic) -> list[CreateNode]:
    if "remote.storage.enable" not in topic.configs:
        return []
    return [CreateNode(layout.deleted_remote_path(topic.topic_id), layout.encode_deleted(topic.name, ()))]


def _commit_with_notes(coordination: Coordination, own: SetNode, notes: Sequence[CreateNode]) -> None:
    """Commit a change with the notes that an attempt before this one has not made: it made all of them, or none."""
    try:
        coordination.commit([own, *notes])
    except NodeExists:
        coordination.commit([own])


def deleted_in_remote_storage(coordination: Coordination) -> dict[bytes, str]:
    """Return the deleted topics, id to name, of which remote storage may still have objects."""
    names = children(coordination, layout.DELETED_REMOTE)
    nodes = coordination.get_many([f"{layout.DELETED_REMOTE}/{name}" for name in names])
    found = {}
    for name, node in zip(names, nodes, strict=True):
        with suppress(ValueError):  # of no topic of ours
            if node is not None:
                found[layout.decode_id(name)], _ = layout.decode_deleted(node.data)
    return found


def confirm_deleted_in_remote_storage(coordination: Coordination, topic_id: bytes) -> None:
    """Note that remote storage has no object of a deleted topic."""
    with suppress(NoNode):
        coordination.delete(layout.deleted_remote_path(topic_id))


def confirm_deleted(coordination: Coordination, topic_id: bytes, broker_id: int) -> None:
    """Note that this broker has removed its logs of a deleted topic; the last broker removes the node that requested
    it."""
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
    """Return the topics, id to name, that were deleted while this broker could not remove its logs of them."""
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


def write_configs(coordination: Coordination, before: Topic, after: Topic) -> None:
    """Replace the configs of a topic, if they are what they were `before`.

    Raises `BadVersion` if another broker has changed them or removed the topic: neither the change of another broker
    nor the configs of a later topic of the name may be overwritten.
    """
    path, data = layout.topic_config_path(after.name), layout.encode_configs(after.configs)
    (node,) = coordination.get_many([path])
    if configs_in(node, path, lambda _: None) != before.configs:
        raise BadVersion(f"another broker has changed {path}")
    change = CreateNode(path, data) if node is None else SetNode(path, data, node.version)
    write_states(coordination, [change], topics=[after])


def write_states(
    coordination: Coordination,
    changes: Sequence[NodeChange],
    guards: Mapping[str, int] | None = None,
    *,
    topics: Iterable[Topic] = (),
) -> None:
    """Commit changes of nodes with states, all or none. `topics`: those of which nodes are made.

    Raises `BadVersion` if another broker has changed a node or a guard, or removed one of the topics.
    """
    try:
        coordination.commit(changes, guards={**_guards_of(coordination, list(topics)), **(guards or {})})
    except (NodeExists, NoNode) as error:
        raise BadVersion(str(error)) from error


def _guards_of(coordination: Coordination, topics: Sequence[Topic]) -> Mapping[str, int]:
    """Return the versions of the topics' nodes, by path, as guards of a commit.

    Nodes that are created for a topic that was deleted would never be removed. Raises `BadVersion` if one was.
    """
    paths = [layout.topic_path(topic.name) for topic in topics]
    found = {}
    for topic, path, node in zip(topics, paths, coordination.get_many(paths) if paths else [], strict=True):
        if node is None or not is_topic_node(node, topic.name, topic.topic_id):
            raise BadVersion(f"topic {topic.name} no longer exists")
        found[path] = node.version
    return found


def read_live_topics(coordination: Coordination, names: Sequence[str]) -> dict[str, Topic | None]:
    """Return the topics of these names, without their configs; None if a topic does not exist or is being deleted.

    A heartbeat comes first, so that the reads are not older than the call. Topics with invalid nodes are omitted.
    """
    coordination.heartbeat()
    found: dict[str, Topic | None] = {}
    for name, node in zip(names, coordination.get_many([layout.topic_path(name) for name in names]), strict=True):
        if node is None:
            found[name] = None
            continue
        with suppress(ValueError, ApiError):
            topic, deleting = layout.decode_topic(name, node.data, {})
            found[name] = None if deleting else topic
    return found


def is_topic_node(own: Node, name: str, topic_id: bytes) -> bool:
    """Return True if a node is that of the topic with this id, and the topic is not being deleted."""
    try:
        topic, deleting = layout.decode_topic(name, own.data, {})
    except (ValueError, ApiError):
        return False
    return topic.topic_id == topic_id and not deleting


def states_change(
    topic: Topic, node: int, states: Mapping[int, PartitionState], version: int | None
) -> CreateNode | SetNode:
    """Return the change that stores the states of one node if it has `version`, or creates the node for None."""
    path, data = layout.states_path(topic.topic_id, node), encode_states_node(topic, node, states)
    return CreateNode(path, data) if version is None else SetNode(path, data, version)


def remove_topic(coordination: Coordination, topic: Topic) -> None:
    """Remove all nodes of a topic that is marked as being deleted, not those of a later topic of its name. The call
    is idempotent."""
    paths = [layout.topic_path(topic.name), layout.topic_config_path(topic.name), *states_paths(topic)]
    while True:
        own, *others = coordination.get_many(paths)
        if own is None or own.data != layout.encode_topic(topic, deleting=True):
            return
        _remove_old(coordination, topic.name)
        changes = [DeleteNode(paths[0], own.version)]
        changes += [
            DeleteNode(path, node.version) for path, node in zip(paths[1:], others, strict=True) if node is not None
        ]
        _remove_all(coordination, [change.path for change in changes[CHANGES_MAX:]])
        with suppress(NoNode, BadVersion, NotEmpty):
            coordination.commit(changes[:CHANGES_MAX])
            return


def _remove_old(coordination: Coordination, name: str) -> None:
    """Remove states that earlier versions have left by the name of a topic."""
    path = layout.old_states_path(name)
    try:
        node = coordination.get(path)
        _remove_old_states(coordination, name)
        coordination.delete(path, version=node.version)
    except (NoNode, BadVersion, NotEmpty):
        return


def _remove_old_states(coordination: Coordination, name: str) -> None:
    """Remove the states that an older version has left: no later version writes into these nodes."""
    above = layout.old_states_path(name)
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
    """Return the dynamic configs of brokers, by id; None: those of all brokers."""
    found: dict[int | None, dict[str, str]] = {}
    for name in children(coordination, layout.BROKER_CONFIGS):
        if name == layout.ALL_BROKERS:
            found[None] = read_configs(coordination, layout.broker_config_path(None), report)
        elif name.isascii() and name.isdecimal() and str(int(name)) == name:
            found[int(name)] = read_configs(coordination, layout.broker_config_path(int(name)), report)
        else:
            report(f"ignored {layout.BROKER_CONFIGS}/{name}, which is not of a broker")
    return found
