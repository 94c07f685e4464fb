"""The entities in the coordination tree: ACLs, SCRAM credentials, client quotas, delegation tokens, configs of groups.

All functions may block on the network. An unreadable node is reported without its content, which may be secret.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import field

from ...ports.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    CreateNode,
    DeleteNode,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
    SetNode,
)
from ...ports.values import frozen
from . import layout
from .brokers import children
from .layout import EntityKind

Value = Mapping[str, object]
ChangeEntity = Callable[[Value | None], Value | None]
"""Return the value to store in place of the stored one; None: there is none."""
Report = Callable[[str], None]

ATTEMPTS = 20


class UnreadableEntity(CoordinationError):
    """The node of a security entity is unreadable, and was not replaced."""


@frozen
class StoredEntity:
    """The value in a node; None: it is unreadable."""

    value: Value | None = field(repr=False)


def list_entities(coordination: Coordination, report: Report) -> list[tuple[EntityKind, str]]:
    """Return the kinds and names of all entities; a tree without security costs two calls."""
    folders = {f"{layout.SECURITY}/{folder}" for folder in children(coordination, layout.SECURITY)}
    folders.add(layout.GROUP_CONFIGS)
    found = []
    for kind in EntityKind:
        if layout.entity_folder(kind) not in folders:
            continue
        for part in children(coordination, layout.entity_folder(kind)):
            try:
                found.append((kind, layout.decode_name(part)))
            except ValueError as error:
                report(f"ignored {layout.entity_folder(kind)}/{part}, which names no entity: {error}")
    return found


def read_entities(
    coordination: Coordination, wanted: Sequence[tuple[EntityKind, str]], report: Report
) -> dict[tuple[EntityKind, str], StoredEntity | None]:
    """Return the entities of these names; None: the tree has no such node."""
    paths = [layout.entity_path(kind, name) for kind, name in wanted]
    nodes = coordination.get_many(paths)
    return {
        key: None if node is None else StoredEntity(_value_in(node, path, report))
        for key, path, node in zip(wanted, paths, nodes, strict=True)
    }


def read_all_entities(coordination: Coordination, report: Report) -> dict[EntityKind, dict[str, Value | None]]:
    """Return the values of all entities, by kind and name; None: an unreadable one."""
    found: dict[EntityKind, dict[str, Value | None]] = {}
    for (kind, name), stored in read_entities(coordination, list_entities(coordination, report), report).items():
        if stored is not None:
            found.setdefault(kind, {})[name] = stored.value
    return found


def _value_in(node: Node, path: str, report: Report) -> Value | None:
    try:
        return layout.decode_entity(node.data)
    except ValueError as error:
        why = "it is not JSON" if isinstance(error, UnicodeDecodeError) else str(error).partition(":")[0]
        report(f"ignored {path}, which is unreadable: {why}; store it again, or delete the node")
        return None


def change_entities(
    coordination: Coordination, kind: EntityKind, changes: Mapping[str, ChangeEntity], replace_unreadable: bool
) -> dict[str, Value | None]:
    """Change entities in one commit, and return their new values (see `ClusterRegistry.change_entities`)."""
    paths = {name: layout.entity_path(kind, name) for name in changes}
    coordination.heartbeat()  # what is read from now on is not older than now: a refusal writes nothing to compare
    for _ in range(ATTEMPTS):
        nodes = coordination.get_many(list(paths.values()))
        values: dict[str, Value | None] = {}
        writes: list[NodeChange] = []
        for (name, path), node in zip(paths.items(), nodes, strict=True):
            before = None if node is None else _stored_value(node, path, replace_unreadable)
            after = values[name] = changes[name](before)
            write = None if after == before and (node is None or before is not None) else _write(path, node, after)
            if write is not None:
                writes.append(write)
        try:
            if writes:
                coordination.commit(writes)
        except (BadVersion, NodeExists, NoNode):
            continue  # another broker was quicker
        return values
    raise CoordinationError(f"others change {next(iter(paths.values()))} as often as it is tried")


def _stored_value(node: Node, path: str, replace_unreadable: bool) -> Value | None:
    try:
        return layout.decode_entity(node.data)
    except ValueError as error:
        if replace_unreadable:
            return None
        raise UnreadableEntity(f"{path} is unreadable; delete the node, then try again") from error


def _write(path: str, node: Node | None, value: Value | None) -> NodeChange | None:
    if value is None:
        return None if node is None else DeleteNode(path, node.version)
    data = layout.encode_entity(value)
    return CreateNode(path, data) if node is None else SetNode(path, data, node.version)
