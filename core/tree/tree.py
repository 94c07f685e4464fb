"""The tree of nodes as plain data, as coordination adapters hold it in memory.

A change is planned first, which validates it without a change, and then applied: an adapter can make the planned
changes durable in between. The tree has no locks and no threads; the adapter provides them.
"""

from collections.abc import Iterable, Mapping, Sequence

from ...ports.coordination import (
    CHANGES_MAX,
    BadVersion,
    CoordinationError,
    CreateNode,
    DeleteNode,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
    NotEmpty,
    SetNode,
)
from ...ports.values import define, frozen

DATA_BYTES_MAX = 1_048_576


def check_path(path: str) -> None:
    """Raise `ValueError` for a path that the port does not allow.

    Parts '.' and '..' and unprintable characters are rejected as well, as in ZooKeeper.
    """
    if not path.startswith("/"):
        raise ValueError(f"a node's path begins with '/': {path!r}")
    parts = path[1:].split("/")
    if "" in parts:
        raise ValueError(f"a node's path has no empty part and no trailing '/': {path!r}")
    if "." in parts or ".." in parts:
        raise ValueError(f"a node's path has no part '.' or '..': {path!r}")
    if not path.isprintable():
        raise ValueError(f"a node's path has printable characters only: {path!r}")


def is_path(path: str) -> bool:
    """Return True for a path that `check_path` accepts; other programs may create nodes with invalid paths."""
    try:
        check_path(path)
    except ValueError:
        return False
    return True


def check_data(data: bytes) -> None:
    """Raise `ValueError` for data longer than the limit of a node."""
    if len(data) > DATA_BYTES_MAX:
        raise ValueError(f"a node holds at most {DATA_BYTES_MAX} bytes, not {len(data)}")


def check_commit(changes: Sequence[NodeChange], guards: Mapping[str, int]) -> None:
    """Raise `ValueError` for changes and guards that `Coordination.commit` rejects."""
    if len(changes) + len(guards) > CHANGES_MAX:
        raise ValueError(f"a commit has at most {CHANGES_MAX} changes and guards, not {len(changes) + len(guards)}")
    changed = [change.path for change in changes]
    for path in (*guards, *changed):
        check_path(path)
    named = set(guards).union(changed)
    if len(named) < len(guards) + len(changed):
        raise ValueError("the guards and changes of a commit are about different nodes")
    for path in changed:
        parent = parent_of(path)
        while parent:
            if parent in changed:
                raise ValueError(f"a commit changes {parent}, and {path} below it")
            parent = parent_of(parent)
    check_data(b"".join(change.data for change in changes if not isinstance(change, DeleteNode)))


def parent_of(path: str) -> str:
    """Return the path of the parent; "" for a node at the top."""
    return path[: path.rindex("/")]


def is_at_or_below(path: str, top: str) -> bool:
    """Return True if `path` is `top` or a descendant of it."""
    return path.startswith(top) and (len(path) == len(top) or path[len(top)] == "/")


@frozen(kw_only=True)
class Put:
    """A planned write of a node. `owner` is the session of an ephemeral node, None for a persistent one."""

    path: str
    data: bytes
    version: int
    owner: int | None = None


@frozen(kw_only=True)
class Remove:
    """A planned deletion of a node."""

    path: str


Change = Put | Remove


@define
class _Entry:
    data: bytes
    version: int
    owner: int | None
    children: set[str]


class Tree:
    """The nodes by path."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"": _Entry(b"", 0, None, set())}
        self.applied = 0
        """The number of calls of `apply`: while it stays the same, so do the nodes."""

    def plan_create(self, path: str, data: bytes, owner: int | None = None) -> list[Put]:
        """Plan the creation of the missing parents, topmost first, and of the node.

        Raises `NodeExists`, and `CoordinationError` below an ephemeral node.
        """
        check_path(path)
        check_data(data)
        if path in self._entries:
            raise NodeExists(path)
        plan = [Put(path=path, data=data, version=0, owner=owner)]
        parent = parent_of(path)
        while parent not in self._entries:
            plan.append(Put(path=parent, data=b"", version=0))
            parent = parent_of(parent)
        if self._entries[parent].owner is not None:
            raise CoordinationError(f"{parent} is ephemeral and cannot have children")
        plan.reverse()
        return plan

    def plan_set(self, path: str, data: bytes, version: int | None) -> list[Put]:
        """Plan new data for a node. Raises `NoNode`, `BadVersion`."""
        check_data(data)
        entry = self._checked(path, version)
        return [Put(path=path, data=data, version=entry.version + 1, owner=entry.owner)]

    def plan_delete(self, path: str, version: int | None) -> list[Remove]:
        """Plan the deletion of a node. Raises `NoNode`, `BadVersion`, `NotEmpty`."""
        if self._checked(path, version).children:
            raise NotEmpty(path)
        return [Remove(path=path)]

    def plan_commit(self, changes: Sequence[NodeChange], guards: Mapping[str, int]) -> list[Change]:
        """Plan all changes. Raises the error of `Coordination.commit` for the first rejected guard or change."""
        check_commit(changes, guards)
        for path, version in guards.items():
            self._checked(path, version)
        plan: dict[str, Change] = {}
        for change in changes:
            # No node of the commit is an ancestor of another one: each change can be planned on the current tree.
            for step in self._plan_change(change):
                plan.setdefault(step.path, step)  # a missing parent of two nodes is created once
        return list(plan.values())

    def _plan_change(self, change: NodeChange) -> Sequence[Change]:
        if isinstance(change, CreateNode):
            return self.plan_create(change.path, change.data)
        if isinstance(change, SetNode):
            return self.plan_set(change.path, change.data, change.version)
        return self.plan_delete(change.path, change.version)

    def plan_end(self, owner: int) -> list[Remove]:
        """Plan the deletion of all nodes of a session."""
        return [Remove(path=path) for path, entry in self._entries.items() if entry.owner == owner]

    def apply(self, changes: Sequence[Change]) -> dict[str, bool]:
        """Apply planned changes; return their paths in order, with True for created or deleted nodes."""
        touched: dict[str, bool] = {}
        self.applied += 1
        for change in changes:
            path = change.path
            known = self._entries.get(path)
            touched[path] = not (isinstance(change, Put) and known is not None)
            if isinstance(change, Put) and known is not None:
                known.data, known.version = change.data, change.version
                continue
            parent, name = parent_of(path), path[path.rindex("/") + 1 :]
            if isinstance(change, Put):
                self._entries[path] = _Entry(change.data, change.version, change.owner, set())
                self._entries[parent].children.add(name)
            else:
                del self._entries[path]
                self._entries[parent].children.discard(name)
        return touched

    def restore(self, nodes: Iterable[tuple[str, bytes, int]]) -> None:
        """Fill the tree with stored (path, data, version), in any order."""
        for path, data, version in sorted(nodes):
            self.apply([*self.plan_create(path, data)[:-1], Put(path=path, data=data, version=version)])

    def get(self, path: str) -> Node:
        """Return the node. Raises `NoNode`."""
        entry = self._checked(path, None)
        return Node(data=entry.data, version=entry.version, ephemeral=entry.owner is not None)

    def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """Return the nodes; None for a missing node."""
        found: list[Node | None] = []
        for path in paths:
            try:
                found.append(self.get(path))
            except NoNode:
                found.append(None)
        return found

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children. Raises `NoNode`."""
        return sorted(self._checked(path, None).children)

    def _checked(self, path: str, version: int | None) -> _Entry:
        entry = self._entries.get(path) if path else None
        if entry is None:
            check_path(path)  # that of a node is valid
            raise NoNode(path)
        if version is not None and version != entry.version:
            raise BadVersion(f"{path} has version {entry.version}, not {version}")
        return entry
