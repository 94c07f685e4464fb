"""Contract suite for every adapter of `ports.coordination`.

An adapter's test file subclasses `CoordinationContract` with a fixture `harness`, and makes a state machine with
`machine_for`. The suite waits for callbacks from other threads, as adapters over a network take their time.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ...ports.coordination import (
    CHANGES_MAX,
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
from ...ports.errors import BarnabasError, ClosedError
from .coordination_harness import Follower, Harness, Recorder, Watch, exists
from .coordination_sessions import BelowSuite, SessionSuite

__all__ = ["CoordinationContract", "Harness", "Opened", "machine_for"]


# The part of the coordination contract about commit: several changes as one.


class CommitSuite:
    """commit."""

    def test_all_changes_are_made(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/old", b"1")
        session.create("/gone")
        session.create("/any")
        session.set("/any", b"1")
        changes: list[NodeChange] = [
            CreateNode("/new", b"x"),
            SetNode("/old", b"2", 0),
            DeleteNode("/gone", 0),
            SetNode("/any", b"2"),
        ]
        session.commit(changes)
        assert session.get("/new") == Node(data=b"x", version=0)
        assert session.get("/old") == Node(data=b"2", version=1)
        assert session.get("/any") == Node(data=b"2", version=2)
        assert not exists(session, "/gone")

    def test_missing_parents_of_new_nodes_are_made(self, harness: Harness) -> None:
        session = harness.session()
        session.commit([CreateNode("/a/b/c", b"1"), CreateNode("/a/b/d", b"2"), CreateNode("/e/f")])
        assert session.children("/a/b") == ["c", "d"]
        assert session.get("/a/b") == Node(data=b"", version=0)
        assert session.get("/a/b/d").data == b"2"
        assert session.children("/e") == ["f"]

    def test_guards_are_compared(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/epoch", b"7")
        session.commit([CreateNode("/first")], guards={"/epoch": 0})
        session.set("/epoch", b"8")
        with pytest.raises(BadVersion, match="/epoch"):
            session.commit([CreateNode("/second"), DeleteNode("/first")], guards={"/epoch": 0})
        with pytest.raises(NoNode, match="/nothing"):
            session.commit([DeleteNode("/first")], guards={"/nothing": 0})
        assert exists(session, "/first")
        assert not exists(session, "/second")
        session.commit([CreateNode("/second")], guards={"/epoch": 1})
        assert session.get("/epoch") == Node(data=b"8", version=1)

    @pytest.mark.parametrize(
        ("refused", "error"),
        [
            (CreateNode("/there"), NodeExists),
            (SetNode("/missing", b""), NoNode),
            (SetNode("/there", b"", 1), BadVersion),
            (DeleteNode("/missing"), NoNode),
            (DeleteNode("/there", 5), BadVersion),
            (DeleteNode("/full"), NotEmpty),
            (CreateNode("/brief/child"), CoordinationError),
        ],
    )
    def test_one_refusal_refuses_all(
        self, harness: Harness, refused: NodeChange, error: type[CoordinationError]
    ) -> None:
        session = harness.session()
        session.create("/there", b"old")
        session.create("/full/child")
        session.create("/brief", ephemeral=True)
        session.create("/other")
        for changes in ([CreateNode("/new"), refused, DeleteNode("/other")], [refused, SetNode("/other", b"new")]):
            with pytest.raises(error):
                session.commit(changes)
        assert not exists(session, "/new")
        assert session.get("/there") == Node(data=b"old", version=0)
        assert session.get("/other") == Node(data=b"", version=0)

    def test_commit_raises_first_refusal(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/there")
        with pytest.raises(NodeExists, match="/there"):
            session.commit([CreateNode("/new"), CreateNode("/there"), SetNode("/missing", b"")])
        with pytest.raises(BadVersion, match="/there"):
            session.commit([SetNode("/missing", b"")], guards={"/there": 3})

    def test_an_ephemeral_node_stays_ephemeral(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", ephemeral=True)
        session.create("/b", ephemeral=True)
        session.commit([SetNode("/a", b"1", 0), CreateNode("/c")], guards={"/b": 0})
        assert session.get("/a") == Node(data=b"1", version=1, ephemeral=True)
        session.commit([DeleteNode("/a", 1)])
        assert not exists(session, "/a")

    @pytest.mark.parametrize(
        ("changes", "guards", "text"),
        [
            ([CreateNode("/a"), DeleteNode("/a")], {}, "different"),
            ([SetNode("/a", b"")], {"/a": 0}, "different"),
            ([CreateNode("/a"), CreateNode("/a/b/c")], {}, "below"),
            ([CreateNode("a")], {}, "path"),
            ([], {"/a/": 0}, "path"),
            ([CreateNode("/a", bytes(600_000)), CreateNode("/b", bytes(600_000))], {}, "1048576"),
            ([CreateNode(f"/a{number}") for number in range(CHANGES_MAX)], {"/b": 0}, str(CHANGES_MAX)),
        ],
    )
    def test_what_is_no_commit(self, harness: Harness, changes: Any, guards: dict[str, int], text: str) -> None:
        with pytest.raises(ValueError, match=text):
            harness.session().commit(changes, guards=guards)

    def test_commit_of_largest_size_succeeds(self, harness: Harness) -> None:
        session = harness.session()
        half = CHANGES_MAX // 2
        session.commit([CreateNode(f"/parents/{number}/child") for number in range(CHANGES_MAX)])
        deleted: list[NodeChange] = [DeleteNode(f"/parents/{number}/child", 0) for number in range(half)]
        session.commit(deleted, guards={f"/parents/{number}/child": 0 for number in range(half, CHANGES_MAX)})
        assert [session.children(f"/parents/{number}") for number in (0, half)] == [[], ["child"]]

    def test_watches_see_changes_of_commit(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/parent/gone")
        session.create("/set")
        parent, changed, new = (Watch(session, path) for path in ("/parent", "/set", "/new"))
        session.commit([DeleteNode("/parent/gone"), SetNode("/set", b"1"), CreateNode("/new")])
        parent.wait(b"", [])
        changed.wait(b"1", [])
        new.wait(b"", [])

    def test_one_of_racing_commits_wins(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/epoch")
        won: Recorder[str] = Recorder()
        lost: Recorder[type[CoordinationError]] = Recorder()

        def race(name: str) -> None:
            try:
                session.commit([SetNode("/epoch", name.encode(), 0), CreateNode(f"/by/{name}")])
                won(name)
            except CoordinationError as error:
                lost(type(error))

        threads = [threading.Thread(target=race, args=(f"t{index}",)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won.calls) == 1
        assert lost.calls == [BadVersion] * 3
        assert session.get("/epoch") == Node(data=won.calls[0].encode(), version=1)
        assert session.children("/by") == won.calls

    def test_a_closed_session_commits_nothing(self, harness: Harness) -> None:
        session = harness.session()
        session.close()
        with pytest.raises(ClosedError):
            session.commit([CreateNode("/a")])


# The part of the coordination contract about create, get, set, delete, children, close.

BAD_PATHS = ["", "a", "a/b", "/a/", "//", "/a//b", "/", "/a/../b", "/./a", "/a\x00b"]


class NodeSuite:
    """create, get, set, delete, children."""

    def test_says_whether_calls_may_wait_for_a_network(self, harness: Harness) -> None:
        assert isinstance(harness.session().blocking, bool)

    def test_a_created_node_can_be_read(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"content")
        assert session.get("/a") == Node(data=b"content", version=0, ephemeral=False)

    def test_a_node_may_be_empty(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        assert session.get("/a") == Node(data=b"", version=0)

    def test_data_is_any_bytes_up_to_one_mebibyte(self, harness: Harness) -> None:
        session = harness.session()
        data = bytes(range(256)) * 4096
        session.create("/a", data)
        assert session.get("/a").data == data
        assert session.set("/a", data[::-1]) == 1
        assert session.get("/a").data == data[::-1]

    def test_more_data_is_refused_and_changes_nothing(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"old")
        with pytest.raises(ValueError, match="1048576"):
            session.create("/b/c", bytes(1_048_577))
        with pytest.raises(ValueError, match="1048576"):
            session.set("/a", bytes(1_048_577))
        assert not exists(session, "/b")
        assert session.get("/a") == Node(data=b"old", version=0)

    def test_missing_parents_are_made_as_persistent_empty_nodes(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a/b/c", b"x", ephemeral=True)
        assert session.get("/a") == Node(data=b"", version=0, ephemeral=False)
        assert session.get("/a/b") == Node(data=b"", version=0, ephemeral=False)
        assert session.get("/a/b/c") == Node(data=b"x", version=0, ephemeral=True)

    def test_a_node_is_created_once(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a/b", b"first")
        for path in ("/a", "/a/b"):
            with pytest.raises(NodeExists, match=path):
                session.create(path, b"second")
            with pytest.raises(NodeExists):
                session.create(path, b"second", ephemeral=True)
        assert session.get("/a").data == b""
        assert session.get("/a/b").data == b"first"

    def test_an_ephemeral_node_cannot_have_children(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", ephemeral=True)
        with pytest.raises(CoordinationError):
            session.create("/a/b")
        with pytest.raises(CoordinationError):
            session.create("/a/b/c")
        assert session.children("/a") == []
        session.delete("/a")

    def test_many_nodes_are_read_in_the_order_of_their_paths(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"1")
        session.create("/b", b"2", ephemeral=True)
        session.set("/a", b"3")
        found = session.get_many(["/b", "/missing/one", "/a", "/b"])
        b = Node(data=b"2", version=0, ephemeral=True)
        assert found == [b, None, Node(data=b"3", version=1), b]
        assert session.get_many([]) == []
        with pytest.raises(ValueError, match="path"):
            session.get_many(["/a", "/a/"])

    def test_more_nodes_are_read_than_a_service_reads_at_once(self, harness: Harness) -> None:
        session = harness.session()
        for start in range(0, 320, 40):
            session.commit([CreateNode(f"/many/{number}", b"%d" % number) for number in range(start, start + 40)])
        paths = [f"/many/{number}" for number in range(1100)]
        found = session.get_many(paths)
        assert [node and node.data for node in found] == [b"%d" % number for number in range(320)] + [None] * 780

    def test_versions_count_the_sets(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"0")
        for version in range(1, 5):
            assert session.set("/a", b"%d" % version) == version
            assert session.get("/a") == Node(data=b"%d" % version, version=version)

    def test_setting_the_same_data_counts(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"same")
        assert session.set("/a", b"same") == 1
        assert session.get("/a").version == 1

    def test_a_child_does_not_change_its_parents_version(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        session.create("/a/b")
        session.set("/a/b", b"x")
        session.delete("/a/b")
        assert session.get("/a") == Node(data=b"", version=0)

    def test_a_node_created_again_begins_at_version_0(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"x")
        session.set("/a", b"y")
        session.delete("/a")
        session.create("/a", b"z")
        assert session.get("/a") == Node(data=b"z", version=0)

    def test_set_compares_the_version(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"0")
        assert session.set("/a", b"1", version=0) == 1
        for wrong in (0, 2, 7):
            with pytest.raises(BadVersion, match="/a"):
                session.set("/a", b"lost", version=wrong)
        assert session.set("/a", b"2", version=1) == 2
        assert session.set("/a", b"3", version=None) == 3
        assert session.get("/a") == Node(data=b"3", version=3)

    def test_an_ephemeral_node_stays_ephemeral_when_set(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", b"x", ephemeral=True)
        assert session.set("/a", b"y") == 1
        assert session.get("/a") == Node(data=b"y", version=1, ephemeral=True)

    def test_delete_compares_the_version(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        session.set("/a", b"1")
        with pytest.raises(BadVersion, match="/a"):
            session.delete("/a", version=0)
        assert exists(session, "/a")
        session.delete("/a", version=1)
        assert not exists(session, "/a")

    def test_a_node_with_children_cannot_be_deleted(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a/b")
        with pytest.raises(NotEmpty, match="/a"):
            session.delete("/a")
        session.delete("/a/b")
        session.delete("/a")
        assert not exists(session, "/a")

    def test_missing_nodes(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        for path in ("/b", "/a/b", "/x/y/z"):
            with pytest.raises(NoNode, match=path):
                session.get(path)
            with pytest.raises(NoNode, match=path):
                session.set(path, b"")
            with pytest.raises(NoNode, match=path):
                session.set(path, b"", version=0)
            with pytest.raises(NoNode, match=path):
                session.delete(path)
            with pytest.raises(NoNode, match=path):
                session.delete(path, version=0)
            with pytest.raises(NoNode, match=path):
                session.children(path)

    def test_children_are_the_sorted_names_of_direct_children(self, harness: Harness) -> None:
        session = harness.session()
        for path in ("/a/c", "/a/b/deep/er", "/a/a10", "/a/a9", "/ab", "/a-b/c"):
            session.create(path)
        session.create("/a/é", ephemeral=True)
        assert session.children("/a") == ["a10", "a9", "b", "c", "é"]
        assert session.children("/a/b") == ["deep"]
        assert session.children("/ab") == []

    def test_names_may_hold_what_topics_and_groups_hold(self, harness: Harness) -> None:
        session = harness.session()
        for name in ("a.b", "a_b", "a-b", "__x", "<default>", "a b", "ü", "%41", "0-0", "a*?[x]", "...", "x:y@z,{}"):
            session.create(f"/names/{name}", name.encode())
            assert session.get(f"/names/{name}").data == name.encode()
        assert len(session.children("/names")) == 12

    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_bad_paths_are_refused(self, harness: Harness, path: str) -> None:
        session = harness.session()
        calls: list[Callable[[], object]] = [
            lambda: session.create(path),
            lambda: session.get(path),
            lambda: session.set(path, b""),
            lambda: session.delete(path),
            lambda: session.children(path),
            lambda: session.watch(path, lambda: None),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="path"):
                call()

    def test_many_threads_may_call(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/counter", b"0")
        lost: Recorder[BaseException] = Recorder()

        def count_up(name: str) -> None:
            try:
                for number in range(10):
                    session.create(f"/counted/{name}/{number}")
                    while True:
                        node = session.get("/counter")
                        try:
                            session.set("/counter", b"%d" % (int(node.data) + 1), version=node.version)
                            break
                        except BadVersion:
                            continue
            except BarnabasError as error:
                lost(error)

        threads = [threading.Thread(target=count_up, args=(f"t{index}",)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lost.calls == []
        assert session.get("/counter") == Node(data=b"40", version=40)
        assert [len(session.children(f"/counted/t{index}")) for index in range(4)] == [10] * 4

    def test_closing(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a", ephemeral=True)
        session.close()
        session.close()
        calls: list[Callable[[], object]] = [
            lambda: session.create("/b"),
            lambda: session.get("/a"),
            lambda: session.get_many(["/a"]),
            lambda: session.get_many([]),
            lambda: session.set("/a", b""),
            lambda: session.delete("/a"),
            lambda: session.children("/a"),
            lambda: session.watch("/a", lambda: None),
            lambda: session.watch_below("/a", lambda paths: None),
            session.heartbeat,
            lambda: session.add_session_listener(lambda state: None),
        ]
        for call in calls:
            with pytest.raises(ClosedError):
                call()


# The part of the coordination contract about watches.


class WatchSuite:
    """watch, listen."""

    def test_watch_reports_every_kind_of_change(self, harness: Harness) -> None:
        session = harness.session()
        watch = Watch(session, "/a")
        session.create("/a", b"1")
        watch.wait(b"1", [])
        session.set("/a", b"2")
        watch.wait(b"2", [])
        session.create("/a/x")
        watch.wait(b"2", ["x"])
        session.create("/a/y", ephemeral=True)
        watch.wait(b"2", ["x", "y"])
        session.delete("/a/x")
        watch.wait(b"2", ["y"])
        session.delete("/a/y")
        watch.wait(b"2", [])
        session.delete("/a")
        watch.wait(None, None)
        session.create("/a", b"again")
        watch.wait(b"again", [])

    def test_watch_reports_node_created_as_missing_parent(self, harness: Harness) -> None:
        session = harness.session()
        watch, parents_watch = Watch(session, "/a/b"), Watch(session, "/a")
        session.create("/a/b/c")
        watch.wait(b"", ["c"])
        parents_watch.wait(b"", ["b"])

    def test_watch_reports_last_of_many_changes(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        watch = Watch(session, "/a")
        for number in range(100):
            session.set("/a", b"%d" % number)
        watch.wait(b"99", [])

    def test_calls_come_one_at_a_time_from_a_thread_of_the_adapter(self, harness: Harness) -> None:
        session = harness.session()
        seen: Recorder[str] = Recorder()
        inside = threading.Lock()

        def changed(name: str) -> None:
            assert inside.acquire(blocking=False)
            seen(name)
            inside.release()

        session.watch("/a", lambda: changed("a"))
        session.watch("/b", lambda: changed("b"))
        for number in range(20):
            session.create(f"/a/{number}")
            session.create(f"/b/{number}")
        session.create("/a/last")
        session.create("/b/last")
        seen.wait(lambda seen: {"a", "b"} <= set(seen))
        assert threading.get_ident() not in seen.threads

    def test_a_watch_may_call_the_session(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        session.watch("/a", lambda: None if exists(session, "/made") else session.create("/made"))
        made = Watch(session, "/made")
        session.set("/a", b"1")
        made.wait(b"", [])

    def test_two_watches_of_one_node_both_report(self, harness: Harness) -> None:
        session = harness.session()
        first, second = Watch(session, "/a"), Watch(session, "/a")
        session.create("/a", b"1")
        first.wait(b"1", [])
        second.wait(b"1", [])

    def test_cancelled_watch_reports_nothing(self, harness: Harness) -> None:
        session = harness.session()
        cancelled, other = Watch(session, "/a"), Watch(session, "/a")
        cancelled.cancel()
        cancelled.cancel()
        session.create("/a", b"1")
        other.wait(b"1", [])
        session.set("/a", b"2")
        other.wait(b"2", [])
        assert cancelled.seen.calls == []

    def test_a_watch_that_raises_does_not_silence_the_others(self, harness: Harness) -> None:
        session = harness.session()

        def broken() -> None:
            raise RuntimeError("a broken watch")

        session.watch("/a", broken)
        watch = Watch(session, "/a")
        session.create("/a", b"1")
        watch.wait(b"1", [])
        session.set("/a", b"2")
        watch.wait(b"2", [])


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
    """Return a state machine that compares an adapter with a plain dict, over reopening."""

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
