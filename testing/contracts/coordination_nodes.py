"""The part of the coordination contract about create, get, set, delete, children, close."""

import threading
from collections.abc import Callable

import pytest

from ...ports.coordination import BadVersion, CoordinationError, CreateNode, Node, NodeExists, NoNode, NotEmpty
from ...ports.errors import BarnabasError, ClosedError
from .coordination_harness import Harness, Recorder, exists

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
