"""Contract suite for every adapter of `ports.coordination`.

An adapter's test file subclasses `CoordinationContract` with a fixture `harness`, and makes a state machine with
`machine_for`. The suite waits for callbacks from other threads, as adapters over a network take their time.
"""

from collections.abc import Callable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

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
    NotEmpty,
    SetNode,
)
from .coordination_below import BelowSuite
from .coordination_commits import CommitSuite
from .coordination_harness import Follower, Harness
from .coordination_nodes import NodeSuite
from .coordination_sessions import SessionSuite
from .coordination_watches import WatchSuite

__all__ = ["CoordinationContract", "Harness", "Opened", "machine_for"]


class CoordinationContract(NodeSuite, CommitSuite, WatchSuite, BelowSuite, SessionSuite):
    """All of it."""


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
TOPS: list[str] = ["/a", "/b", "/c"]
VERSIONS = st.none() | st.integers(0, 3)
GUARDS = st.tuples(PATHS, st.integers(0, 3))
CHANGES: st.SearchStrategy[NodeChange] = st.one_of(
    st.builds(CreateNode, PATHS, st.binary(max_size=4)),
    st.builds(SetNode, PATHS, st.binary(max_size=4), VERSIONS),
    st.builds(DeleteNode, PATHS, VERSIONS),
)


class Opened:
    """A fresh tree for one example of the machine: `session`, and how to begin again on the same data."""

    def __init__(self, session: Coordination, reopen: Callable[[], Coordination], close: Callable[[], None]) -> None:
        self.session = session
        self.reopen = reopen
        """Ends the session in order, and opens a new one on what is stored."""
        self.close = close


class _Expected:
    """The tree as a plain dict: path to (data, version, ephemeral)."""

    def __init__(self, nodes: dict[str, tuple[bytes, int, bool]] | None = None) -> None:
        self.nodes = dict(nodes or {})

    def children(self, path: str) -> list[str]:
        depth = path.count("/") + 1
        return sorted(p.split("/")[-1] for p in self.nodes if p.startswith(path + "/") and p.count("/") == depth)

    def create(self, path: str, data: bytes, ephemeral: bool) -> type[CoordinationError] | None:
        if path in self.nodes:
            return NodeExists
        parts = path.split("/")
        parents = ["/".join(parts[:count]) for count in range(2, len(parts))]
        if any(self.nodes.get(parent, (b"", 0, False))[2] for parent in parents):
            return CoordinationError
        for parent in parents:
            self.nodes.setdefault(parent, (b"", 0, False))
        self.nodes[path] = (data, 0, ephemeral)
        return None

    def refusal(self, path: str, version: int | None) -> type[CoordinationError] | None:
        if path not in self.nodes:
            return NoNode
        return BadVersion if version not in (None, self.nodes[path][1]) else None

    def set(self, path: str, data: bytes, version: int | None) -> type[CoordinationError] | None:
        refusal = self.refusal(path, version)
        if refusal is None:
            _, old_version, ephemeral = self.nodes[path]
            self.nodes[path] = (data, old_version + 1, ephemeral)
        return refusal

    def delete(self, path: str, version: int | None) -> type[CoordinationError] | None:
        refusal = self.refusal(path, version)
        if refusal is None and self.children(path):
            refusal = NotEmpty
        if refusal is None:
            del self.nodes[path]
        return refusal

    def change(self, change: NodeChange) -> type[CoordinationError] | None:
        if isinstance(change, CreateNode):
            return self.create(change.path, change.data, ephemeral=False)
        if isinstance(change, SetNode):
            return self.set(change.path, change.data, change.version)
        return self.delete(change.path, change.version)

    def has_parents(self, changes: list[NodeChange]) -> bool:
        parents = [change.path.rpartition("/")[0] for change in changes if isinstance(change, CreateNode)]
        return all(not parent or parent in self.nodes for parent in parents)


def _is_commit(changes: list[NodeChange], guards: dict[str, int]) -> bool:
    paths = [change.path for change in changes]
    return not any(path in guards or any(path.startswith(f"{other}/") for other in paths) for path in paths)


def machine_for(open_fresh: Callable[[], Opened]) -> type[RuleBasedStateMachine]:
    """A state machine that compares an adapter with a plain dict, over reopening."""

    class CoordinationMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.opened = open_fresh()
            self.session = self.opened.session
            self.expected = _Expected()
            self.follower = Follower(self.session, "/a")

        @rule()
        def the_follower_sees_the_same(self) -> None:
            below = {path: node[0] for path, node in self.expected.nodes.items() if f"{path}/".startswith("/a/")}
            self.follower.wait(below)

        def teardown(self) -> None:
            self.opened.close()

        def check(self, call: Callable[[], object], refusal: type[CoordinationError] | None) -> None:
            try:
                call()
            except CoordinationError as error:
                assert refusal is not None and type(error) is refusal, f"{error!r}, expected {refusal}"
            else:
                assert refusal is None, f"expected {refusal}"

        @rule(path=PATHS, data=st.binary(max_size=4), ephemeral=st.booleans())
        def create(self, path: str, data: bytes, ephemeral: bool) -> None:
            refusal = self.expected.create(path, data, ephemeral)
            self.check(lambda: self.session.create(path, data, ephemeral=ephemeral), refusal)

        @rule(path=PATHS, data=st.binary(max_size=4), version=VERSIONS)
        def set(self, path: str, data: bytes, version: int | None) -> None:
            refusal = self.expected.set(path, data, version)
            self.check(lambda: self.session.set(path, data, version=version), refusal)

        @rule(path=PATHS, version=VERSIONS)
        def delete(self, path: str, version: int | None) -> None:
            refusal = self.expected.delete(path, version)
            self.check(lambda: self.session.delete(path, version=version), refusal)

        @rule(changes=st.lists(CHANGES, max_size=3, unique_by=lambda change: change.path), guard=st.none() | GUARDS)
        def commit(self, changes: list[NodeChange], guard: tuple[str, int] | None) -> None:
            guards = dict([guard]) if guard is not None else {}
            refusal = next(filter(None, (self.expected.refusal(*each) for each in guards.items())), None)
            after = _Expected(self.expected.nodes)
            for change in changes:
                refusal = refusal or after.change(change)
            if not _is_commit(changes, guards) or (refusal and not self.expected.has_parents(changes)):
                return  # no commit, or one that may leave parents behind
            self.check(lambda: self.session.commit(changes, guards=guards), refusal)
            if refusal is None:
                self.expected = after

        @rule()
        def reopen(self) -> None:
            self.session = self.opened.reopen()
            self.follower = Follower(self.session, "/a")
            persistent = {path: node for path, node in self.expected.nodes.items() if not node[2]}
            self.expected.nodes = persistent

        @invariant()
        def same_tree(self) -> None:
            found: dict[str, tuple[bytes, int, bool]] = {}
            pending = [path for path in TOPS if path in self.expected.nodes]
            missing = [path for path in TOPS if path not in self.expected.nodes]
            while pending:
                path = pending.pop()
                node = self.session.get(path)
                found[path] = (node.data, node.version, node.ephemeral)
                names = self.session.children(path)
                assert names == self.expected.children(path)
                pending.extend(f"{path}/{name}" for name in names)
            assert found == self.expected.nodes
            for path in missing:
                self.check(partial(self.session.get, path), NoNode)
            paths = [*found, *missing]
            assert self.session.get_many(paths) == [self._node(path) for path in paths]

        def _node(self, path: str) -> Node | None:
            if path not in self.expected.nodes:
                return None
            data, version, ephemeral = self.expected.nodes[path]
            return Node(data=data, version=version, ephemeral=ephemeral)

    return CoordinationMachine
