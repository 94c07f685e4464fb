"""Brokers and topics in the registries, garbage of other writers included."""

from collections.abc import Iterator

import pytest
from support.coordination_faults import FaultyCoordination

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.core.classic.registry import registries
from barnabas.core.classic.registry.layout import ClassicBroker
from barnabas.core.classic.registry.registries import NodeTaken
from barnabas.ports.coordination import CoordinationError


@pytest.fixture
def session() -> Iterator[MemorySession]:
    session = MemoryTree().session()
    yield session
    session.close()


@pytest.fixture
def observed() -> list[str]:
    return []


def test_an_empty_tree_has_nothing(session: MemorySession, observed: list[str]) -> None:
    assert registries.read_brokers(session, observed.append) == {}
    assert registries.read_topic_names(session) == []
    assert registries.read_topic(session, "t", observed.append) == {}
    assert registries.children(session, "/a") == []
    assert registries.get(session, "/a") is None
    assert not observed


def test_brokers_and_topics(session: MemorySession, observed: list[str]) -> None:
    session.create("/brokers/ids/2", b"h-1:h:92")
    session.create("/brokers/topics/t/2", b"4")
    session.create("/brokers/topics/u/2", b"0")
    assert registries.read_brokers(session, observed.append) == {
        2: ClassicBroker(broker_id=2, creator_id="h-1", host="h", port=92)
    }
    assert registries.read_topic_names(session) == ["t", "u"]
    assert registries.read_topics(session, ["t", "u", "v"], observed.append) == {"t": {2: 4}, "u": {2: 0}, "v": {}}
    assert not observed


def test_garbage_registry_nodes_are_skipped_and_their_paths_reported(
    session: MemorySession, observed: list[str]
) -> None:
    for name, data in (("2", b"h-1:h:92"), ("3", b"?"), ("x", b"h-1:h:92"), ("02", b"h-2:h:1"), ("4", b"\xff")):
        session.create(f"/brokers/ids/{name}", data)
    assert list(registries.read_brokers(session, observed.append)) == [2]
    assert [path for path in ("02", "3", "4", "x") if f"/brokers/ids/{path}," in " ".join(observed)] == [
        "02",
        "3",
        "4",
        "x",
    ]
    observed.clear()
    for name, data in (("2", b"1"), ("3", b"-1"), ("4", b"100001"), ("x", b"1"), ("02", b"9"), ("5", b"")):
        session.create(f"/brokers/topics/t/{name}", data)
    assert registries.read_topic(session, "t", observed.append) == {2: 1}
    assert len(observed) == 5
    assert all(text.startswith("skipped /brokers/topics/t/") for text in observed)


class _Foreign(MemorySession):
    """A tree with nodes whose names the port refuses, as another client can create them in etcd."""

    def children(self, path: str) -> list[str]:
        return ["", "a\x00b", *super().children(path)]


def test_names_that_no_path_can_hold_are_skipped(observed: list[str]) -> None:
    session = _Foreign(MemoryTree(), None)
    session.create("/brokers/ids/2", b"h-1:h:92")
    session.create("/brokers/topics/t/2", b"4")
    assert list(registries.read_brokers(session, observed.append)) == [2]
    assert registries.read_topic_names(session, observed.append) == ["t"]
    assert registries.read_topic_names(session) == ["t"]
    assert registries.read_topic(session, "t", observed.append) == {2: 4}
    assert len(observed) == 6
    assert "/brokers/ids/'a\\x00b'" in observed[1]


def test_node_deleted_during_a_read_is_missing(session: MemorySession, observed: list[str]) -> None:
    session.create("/brokers/ids/1", b"h-1:h:1")
    session.create("/brokers/ids/2", b"h-1:h:2")
    racing = FaultyCoordination(session)
    racing.before("get", 1, lambda: session.delete("/brokers/ids/1"))
    assert list(registries.read_brokers(racing, observed.append)) == [2]
    assert not observed


def test_an_ephemeral_node_of_other_content_is_taken(session: MemorySession) -> None:
    session.create("/brokers/ids/1", b"theirs")
    with pytest.raises(NodeTaken, match="/brokers/ids/1 is taken: it says b'theirs'") as raised:
        registries.create_ephemeral(session, "/brokers/ids/1", b"ours")
    assert (raised.value.path, raised.value.content) == ("/brokers/ids/1", b"theirs")


def test_an_ephemeral_node_whose_answer_was_lost_is_ours(session: MemorySession) -> None:
    losing = FaultyCoordination(session)
    losing.fail("create")
    with pytest.raises(CoordinationError, match="lost"):
        registries.create_ephemeral(losing, "/a", b"ours")
    registries.create_ephemeral(losing, "/a", b"ours")
    assert session.get("/a").ephemeral


def test_ephemeral_node_of_dead_session_is_recreated_in_current_session() -> None:
    tree = MemoryTree()
    dead, session = tree.session(), tree.session()
    for each in (dead, session):
        registries.create_ephemeral(each, "/brokers/ids/1", b"ours")
    dead.close()
    assert session.get("/brokers/ids/1").data == b"ours"
    session.close()


def test_a_node_that_goes_away_in_between_is_made_again(session: MemorySession) -> None:
    session.create("/a", b"theirs")
    racing = FaultyCoordination(session)
    racing.before("get", 1, lambda: session.delete("/a"))
    registries.create_ephemeral(racing, "/a", b"ours")
    assert session.get("/a").data == b"ours"
