"""The tree of nodes as plain data: what the coordination adapters of one process keep in memory.

A change is planned first, which checks it and changes nothing, and then applied: an adapter can make the planned
changes durable in between. No locks, no threads: the adapter brings them.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define

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
from ...ports.values import frozen

DATA_BYTES_MAX = 1_048_576


def check_path(path: str) -> None:
    """Raise `ValueError` for a path that the port does not allow.

    Besides, parts '.' and '..' and characters that cannot be printed are refused, as ZooKeeper does.
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
    """Whether `check_path` takes it: others may write what we cannot name."""
    try:
        check_path(path)
    except ValueError:
        return False
    return True


def check_data(data: bytes) -> None:
    """Raise `ValueError` when the data is longer than a node may hold."""
    if len(data) > DATA_BYTES_MAX:
        raise ValueError(f"a node holds at most {DATA_BYTES_MAX} bytes, not {len(data)}")


def check_commit(changes: Sequence[NodeChange], guards: Mapping[str, int]) -> None:
    """Raise `ValueError` for what `Coordination.commit` does not take."""
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
    """The path of the parent; "" for a node at the top."""
    return path[: path.rindex("/")]


def is_at_or_below(path: str, top: str) -> bool:
    """Whether `path` is `top` or stands somewhere below it."""
    return path.startswith(top) and (len(path) == len(top) or path[len(top)] == "/")


@frozen(kw_only=True)
class Put:
    """A node's new content. `owner` is the session of an ephemeral node, None for a persistent one."""

    path: str
    data: bytes
    version: int
    owner: int | None = None


@frozen(kw_only=True)
class Remove:
    """The end of a node."""

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

    def plan_create(self, path: str, data: bytes, owner: int | None = None) -> list[Put]:
        """The missing parents, topmost first, then the node.

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
        """The node with new data. Raises `NoNode`, `BadVersion`."""
        check_data(data)
        entry = self._checked(path, version)
        return [Put(path=path, data=data, version=entry.version + 1, owner=entry.owner)]

    def plan_delete(self, path: str, version: int | None) -> list[Remove]:
        """Raises `NoNode`, `BadVersion`, `NotEmpty`."""
        if self._checked(path, version).children:
            raise NotEmpty(path)
        return [Remove(path=path)]

    def plan_commit(self, changes: Sequence[NodeChange], guards: Mapping[str, int]) -> list[Change]:
        """All of the changes. Raises for the first guard or change that is refused, as `Coordination.commit` does."""
        check_commit(changes, guards)
        for path, version in guards.items():
            self._checked(path, version)
        plan: dict[str, Change] = {}
        for change in changes:
            # They are about nodes that do not lie above one another: each can be planned on the tree as it is.
            for step in self._plan_change(change):
                plan.setdefault(step.path, step)  # a parent that two of them miss is made once
        return list(plan.values())

    def _plan_change(self, change: NodeChange) -> Sequence[Change]:
        if isinstance(change, CreateNode):
            return self.plan_create(change.path, change.data)
        if isinstance(change, SetNode):
            return self.plan_set(change.path, change.data, change.version)
        return self.plan_delete(change.path, change.version)

    def plan_end(self, owner: int) -> list[Remove]:
        """The removal of everything a session owns."""
        return [Remove(path=path) for path, entry in self._entries.items() if entry.owner == owner]

    def apply(self, changes: Sequence[Change]) -> dict[str, bool]:
        """Make planned changes; returns their paths in this order, True for nodes that were made or deleted."""
        touched: dict[str, bool] = {}
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
        """Fill the tree with (path, data, version) that were stored before, in any order."""
        for path, data, version in sorted(nodes):
            self.apply([*self.plan_create(path, data)[:-1], Put(path=path, data=data, version=version)])

    def get(self, path: str) -> Node:
        """Raises `NoNode`."""
        entry = self._checked(path, None)
        return Node(data=entry.data, version=entry.version, ephemeral=entry.owner is not None)

    def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """As `get`; None where there is no node."""
        found: list[Node | None] = []
        for path in paths:
            try:
                found.append(self.get(path))
            except NoNode:
                found.append(None)
        return found

    def children(self, path: str) -> list[str]:
        """Sorted names. Raises `NoNode`."""
        return sorted(self._checked(path, None).children)

    def _checked(self, path: str, version: int | None) -> _Entry:
        check_path(path)
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path)
        if version is not None and version != entry.version:
            raise BadVersion(f"{path} has version {entry.version}, not {version}")
        return entry
