"""The part of the coordination contract about commit: several changes as one."""

import threading
from typing import Any

import pytest

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
from ...ports.errors import ClosedError
from .coordination_harness import Harness, Recorder, Watch, exists


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
