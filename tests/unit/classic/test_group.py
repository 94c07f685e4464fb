"""The registries of a group: members, owners and offsets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.adapters.coord_embedded import EmbeddedCoordination
from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.core.classic.rebalancer import RangeRebalancer, own_share
from barnabas.core.classic.registry import group
from barnabas.core.classic.registry.group import Owned, OwnershipConflict
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.classic.registry.registries import NodeTaken
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.classic.registry.topic_filter import TopicFilter
from barnabas.ports.coordination import Coordination, NoNode
from barnabas.ports.errors import ConfigError

ONE: Owned = ("t", BrokerPartition(0, 0))
TWO: Owned = ("t", BrokerPartition(0, 1))
TOPIC = ClassicSubscription.topics({"t": 2})


@pytest.fixture(params=["memory", "embedded"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordination]:
    made: Coordination = (
        MemoryTree().session() if request.param == "memory" else EmbeddedCoordination(str(tmp_path / "tree.db"))
    )
    yield made
    made.close()


@pytest.fixture
def observed() -> list[str]:
    return []


def _cluster(session: Coordination, topics: dict[str, dict[int, int]], brokers: tuple[int, ...] = (0,)) -> None:
    for broker in brokers:
        session.create(f"/brokers/ids/{broker}", f"h-1:h:{broker + 1}".encode())
    for topic, counts in topics.items():
        session.create(f"/brokers/topics/{topic}")
        for broker, count in counts.items():
            session.create(f"/brokers/topics/{topic}/{broker}", str(count).encode())


def test_a_member_stands_in_the_registry_with_its_subscription(session: Coordination) -> None:
    group.register_consumer(session, "g", "c", ClassicSubscription.topics({"a": 2, "b": 1}))
    node = session.get("/consumers/g/ids/c")
    assert (node.data, node.ephemeral) == (b'{ "a": 2,"b": 1 }', True)
    group.unregister_consumer(session, "g", "c")
    assert session.children("/consumers/g/ids") == []
    group.unregister_consumer(session, "g", "c")


def test_registering_again_is_harmless_and_a_clash_an_error(session: Coordination) -> None:
    group.register_consumer(session, "g", "c", TOPIC)
    group.register_consumer(session, "g", "c", TOPIC)
    with pytest.raises(NodeTaken, match="/consumers/g/ids/c"):
        group.register_consumer(session, "g", "c", ClassicSubscription.topics({"u": 1}))
    assert session.get("/consumers/g/ids/c").data == TOPIC.encode()


def test_the_view_of_a_member(session: Coordination, observed: list[str]) -> None:
    _cluster(session, {"t": {0: 3, 1: 1}, "u": {1: 2}, "other": {0: 1}}, brokers=(0, 1))
    group.register_consumer(session, "g", "c1", TOPIC)
    group.register_consumer(session, "g", "c2", ClassicSubscription.filter(TopicFilter.whitelist("t,u"), 1))
    group.register_consumer(session, "h", "c1", ClassicSubscription.topics({"other": 1}))
    view = group.read_group(session, "g", "c1", observed.append)
    assert view.consumers == {"c1": {"t": 2}, "c2": {"t": 1, "u": 1}}
    assert view.partitions == {"t": {0: 3, 1: 1}}
    assert sorted(view.brokers) == [0, 1]
    assert group.read_group(session, "g", "c2", observed.append).partitions == {"t": {0: 3, 1: 1}, "u": {1: 2}}
    assert group.read_group(session, "g", None, observed.append).partitions == {"t": {0: 3, 1: 1}, "u": {1: 2}}
    shares = own_share(view, "c1", RangeRebalancer())["t"]
    assert {thread: " ".join(map(str, places)) for thread, places in shares.items()} == {
        "c1-0": "0-0 0-1",
        "c1-1": "0-2",
    }
    assert not observed


def test_unregistered_consumer_sees_the_registered_ones(session: Coordination, observed: list[str]) -> None:
    _cluster(session, {"t": {0: 1}})
    group.register_consumer(session, "g", "c1", TOPIC)
    view = group.read_group(session, "g", "c2", observed.append)
    assert (view.consumers, view.partitions) == ({"c1": {"t": 2}}, {})
    assert group.read_group(session, "empty", None, observed.append).consumers == {}


def test_only_live_brokers_count(session: Coordination, observed: list[str]) -> None:
    _cluster(session, {"t": {0: 3, 1: 1}}, brokers=(1,))
    group.register_consumer(session, "g", "c", TOPIC)
    assert group.read_group(session, "g", "c", observed.append).partitions == {"t": {1: 1}}


def test_filters_expand_against_the_topics_of_now(session: Coordination, observed: list[str]) -> None:
    _cluster(session, {"t": {0: 1}, "secret": {0: 1}})
    group.register_consumer(session, "g", "c", ClassicSubscription.filter(TopicFilter.blacklist("s.*"), 1))
    assert group.read_group(session, "g", "c", observed.append).consumers == {"c": {"t": 1}}
    _cluster(session, {"u": {0: 2}}, brokers=())
    view = group.read_group(session, "g", "c", observed.append)
    assert (view.consumers, view.partitions) == ({"c": {"t": 1, "u": 1}}, {"t": {0: 1}, "u": {0: 2}})


def test_garbage_member_nodes_are_skipped_and_their_paths_reported(session: Coordination, observed: list[str]) -> None:
    _cluster(session, {"t": {0: 1}})
    group.register_consumer(session, "g", "good", TOPIC)
    for name, data in (("bad1", b"\xff\xfe"), ("bad2", b"*1*("), ("bad3", b'{"t": -1}'), ("bad4", b"")):
        session.create(f"/consumers/g/ids/{name}", data)
    assert list(group.read_group(session, "g", "good", observed.append).consumers) == ["good"]
    assert [text.split(",")[0] for text in observed] == [f"skipped /consumers/g/ids/bad{n}" for n in (1, 2, 3, 4)]


def test_a_claim_says_the_thread_and_goes_with_release(session: Coordination, observed: list[str]) -> None:
    claims = {ONE: "c-0", TWO: "c-1"}
    group.claim(session, "g", claims)
    node = session.get("/consumers/g/owners/t/0-0")
    assert (node.data, node.ephemeral) == (b"c-0", True)
    assert group.read_owners(session, "g", "t", observed.append) == {ONE[1]: "c-0", TWO[1]: "c-1"}
    group.claim(session, "g", claims)
    group.release(session, "g", claims)
    assert group.read_owners(session, "g", "t", observed.append) == {}
    group.release(session, "g", claims)
    group.claim(session, "g", {})
    assert not observed


def test_a_conflict_undoes_the_claim(session: Coordination, observed: list[str]) -> None:
    group.claim(session, "g", {TWO: "other-0"})
    with pytest.raises(OwnershipConflict, match="/consumers/g/owners/t/0-1 is owned by 'other-0'") as raised:
        group.claim(session, "g", {ONE: "c-0", TWO: "c-0", ("u", BrokerPartition(0, 0)): "c-0"})
    assert (raised.value.path, raised.value.owner) == ("/consumers/g/owners/t/0-1", "other-0")
    assert group.read_owners(session, "g", "t", observed.append) == {TWO[1]: "other-0"}
    assert group.read_owners(session, "g", "u", observed.append) == {}


def test_an_owner_of_another_kind_of_garbage_is_named(session: Coordination, observed: list[str]) -> None:
    session.create("/consumers/g/owners/t/0-0", b"\xff")
    session.create("/consumers/g/owners/t/nonsense", b"c-0")
    with pytest.raises(OwnershipConflict, match="0-0 is owned by '\ufffd'"):
        group.claim(session, "g", {ONE: "c-0"})
    assert group.read_owners(session, "g", "t", observed.append) == {}
    assert [text.split(",")[0] for text in observed] == [
        f"skipped /consumers/g/owners/t/{name}" for name in ("0-0", "nonsense")
    ]


def test_release_leaves_alone_what_others_own(session: Coordination, observed: list[str]) -> None:
    group.claim(session, "g", {ONE: "other-0"})
    group.release(session, "g", {ONE: "c-0", TWO: "c-0"})
    assert group.read_owners(session, "g", "t", observed.append) == {ONE[1]: "other-0"}


def test_groups_are_independent(session: Coordination, observed: list[str]) -> None:
    group.claim(session, "g", {ONE: "c-0"})
    group.claim(session, "h", {ONE: "d-0"})
    group.write_offsets(session, "g", {ONE: 5})
    assert group.read_offset(session, "h", *ONE, observed.append) is None


def test_offsets_are_text_and_survive(session: Coordination, observed: list[str]) -> None:
    assert group.read_offset(session, "g", *ONE, observed.append) is None
    group.write_offsets(session, "g", {ONE: 0, ("u", BrokerPartition(1, 12)): 2**40})
    node = session.get("/consumers/g/offsets/u/1-12")
    assert (node.data, node.ephemeral) == (b"1099511627776", False)
    group.write_offsets(session, "g", {ONE: 7})
    assert group.read_offset(session, "g", *ONE, observed.append) == 7
    assert group.read_offsets(session, "g", [ONE, TWO], observed.append) == {ONE: 7}
    assert group.read_topic_offsets(session, "g", "u", observed.append) == {BrokerPartition(1, 12): 2**40}
    assert not observed


def test_garbage_offsets_count_as_absent(session: Coordination, observed: list[str]) -> None:
    session.create("/consumers/g/offsets/t/0-0", b"-1")
    session.create("/consumers/g/offsets/t/0-1", b"12")
    session.create("/consumers/g/offsets/t/zero", b"12")
    assert group.read_offsets(session, "g", [ONE, TWO], observed.append) == {TWO: 12}
    assert len(observed) == 1 and "/consumers/g/offsets/t/0-0:" in observed[0]
    observed.clear()
    assert group.read_topic_offsets(session, "g", "t", observed.append) == {TWO[1]: 12}
    assert len(observed) == 2
    group.write_offsets(session, "g", {ONE: 3})
    assert group.read_offset(session, "g", *ONE, observed.append) == 3


def test_an_offset_below_zero_is_not_written(session: Coordination) -> None:
    with pytest.raises(ValueError, match="-1"):
        group.write_offsets(session, "g", {ONE: -1})
    with pytest.raises(NoNode):
        session.get("/consumers/g")


@pytest.mark.parametrize("bad", ["a/b", "", "..", "/", "a\n"])
def test_ids_that_are_no_part_of_a_path(bad: str, observed: list[str]) -> None:
    session = MemoryTree().session()
    for refused in (
        lambda: group.check_ids(bad),
        lambda: group.check_ids("g", bad),
        lambda: group.register_consumer(session, bad, "c", TOPIC),
        lambda: group.register_consumer(session, "g", bad, TOPIC),
        lambda: group.unregister_consumer(session, "g", bad),
        lambda: group.read_group(session, bad, None, observed.append),
        lambda: group.claim(session, bad, {ONE: "c-0"}),
        lambda: group.claim(session, "g", {(bad, ONE[1]): "c-0"}),
        lambda: group.release(session, bad, {ONE: "c-0"}),
        lambda: group.read_owners(session, "g", bad, observed.append),
        lambda: group.read_offset(session, bad, *ONE, observed.append),
        lambda: group.write_offsets(session, "g", {(bad, ONE[1]): 1}),
        lambda: group.read_topic_offsets(session, "g", bad, observed.append),
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            refused()
    with pytest.raises(NoNode):
        session.get("/consumers")
    session.close()


def test_every_member_of_a_session_that_expires_is_gone(observed: list[str]) -> None:
    tree = MemoryTree()
    ours, theirs = tree.session(), tree.session()
    group.register_consumer(ours, "g", "c", TOPIC)
    group.claim(ours, "g", {ONE: "c-0"})
    group.write_offsets(ours, "g", {ONE: 9})
    tree.expire(ours)
    assert group.read_group(theirs, "g", None, observed.append).consumers == {}
    group.claim(theirs, "g", {ONE: "d-0"})
    assert group.read_offset(theirs, "g", *ONE, observed.append) == 9
    group.release(ours, "g", {ONE: "c-0"})
    with pytest.raises(OwnershipConflict, match="d-0"):
        group.claim(ours, "g", {ONE: "c-0"})
    _close(ours, theirs)


def test_returning_consumer_replaces_nodes_of_its_expired_session(observed: list[str]) -> None:
    tree = MemoryTree()
    dead, ours = tree.session(), tree.session()
    for session in (dead, ours):
        group.register_consumer(session, "g", "c", TOPIC)
        group.claim(session, "g", {ONE: "c-0"})
    dead.close()
    assert list(group.read_group(ours, "g", None, observed.append).consumers) == ["c"]
    assert group.read_owners(ours, "g", "t", observed.append) == {ONE[1]: "c-0"}
    _close(ours)


def _close(*sessions: MemorySession) -> None:
    for session in sessions:
        session.close()
