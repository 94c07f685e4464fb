"""Group requests as no client would send them: each is answered or closes its connection, and others do not notice."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kafka_samples import SAMPLES
from support.long_tests import first_is_quick
from support.raw import RawConnection, frame
from support.raw_groups import AT_ONCE, RawMember, ask, framed, joining, read_result, wait_for_groups
from support.waiting import wait_for

from barnabas import Admin, Broker
from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.app.compose.broker import ServerOnDemand
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

TOPIC = "sound"
GROUP_KEYS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47)
LONG = "g" * 32_767
UNSENT_BYTES_MAX = 1_000_000
IN_FLIGHT_MAX = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        storage="memory",
        coordination="memory",
        socket_request_max_bytes=4_000_000,
        socket_unsent_max_bytes=UNSENT_BYTES_MAX,
        max_in_flight_requests_per_connection=IN_FLIGHT_MAX,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=4,
    ) as running:
        with Admin(running) as admin:
            admin.create_topic(TOPIC, partitions=1)
        wait_for_groups(running.bootstrap)
        yield running


@pytest.fixture
def neighbour(broker: Broker, request: pytest.FixtureRequest) -> Iterator[RawMember]:
    """Yield another member, which is served before and after."""
    member = RawMember(broker.bootstrap, f"neighbour of {request.node.name}", TOPIC)
    member.check()
    yield member
    member.check()
    member.leave()


@pytest.fixture
def connection(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def commit(*positions: OffsetCommitPartition, group: str = "bad", generation: int = -1, member: str = "") -> Any:
    return OffsetCommit(group_id=group, generation_id=generation, member_id=member, partitions=positions)


def at(topic: str = TOPIC, partition: int = 0, metadata: str | None = None) -> OffsetCommitPartition:
    return OffsetCommitPartition(topic, partition, 1, metadata=metadata)


REFUSED: list[tuple[str, Request[Any], list[E]]] = [
    ("no group", joining(""), [E.INVALID_GROUP_ID]),
    ("session too short", joining("bad", session_timeout_ms=1), [E.INVALID_SESSION_TIMEOUT]),
    ("negative session", joining("bad", session_timeout_ms=-(2**31)), [E.INVALID_SESSION_TIMEOUT]),
    ("longest session", joining("bad", session_timeout_ms=2**31 - 1), [E.INVALID_SESSION_TIMEOUT]),
    ("no protocols", joining("bad", protocols=[]), [E.INCONSISTENT_GROUP_PROTOCOL]),
    ("no protocol type", joining("bad", protocol_type=""), [E.INCONSISTENT_GROUP_PROTOCOL]),
    ("unknown member joins", joining("bad", "who"), [E.UNKNOWN_MEMBER_ID]),
    ("metadata of 3 MB", joining("bad", metadata=bytes(3_000_000)), [E.UNKNOWN_SERVER_ERROR]),
    ("sync of an unknown member", SyncGroup(group_id="bad", generation_id=1, member_id="who"), [E.UNKNOWN_MEMBER_ID]),
    ("sync of no group", SyncGroup(group_id="", generation_id=1, member_id="who"), [E.INVALID_GROUP_ID]),
    (
        "heartbeat of an unknown member",
        Heartbeat(group_id="bad", generation_id=1, member_id="who"),
        [E.UNKNOWN_MEMBER_ID],
    ),
    ("heartbeat of a long name", Heartbeat(group_id=LONG, generation_id=1, member_id=LONG), [E.UNKNOWN_MEMBER_ID]),
    (
        "leaving twice",
        LeaveGroup(group_id="bad", members=[LeavingMember(member_id="x")] * 2),
        [E.UNKNOWN_MEMBER_ID] * 2,
    ),
    ("commit to no topic", commit(at("nowhere")), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    ("commit to no partition", commit(at(partition=-1), at(partition=9)), [E.UNKNOWN_TOPIC_OR_PARTITION] * 2),
    ("too much to say", commit(at(metadata="m" * 4097)), [E.OFFSET_METADATA_TOO_LARGE]),
    ("commit of an unknown member", commit(at(), generation=1, member="who"), [E.ILLEGAL_GENERATION]),
    ("offsets of nothing", OffsetDelete(group_id="bad", partitions=[TopicPartition(TOPIC, 0)]), [E.GROUP_ID_NOT_FOUND]),
    ("ending what is not", DeleteGroups(group_ids=["bad", "bad", ""]), [E.GROUP_ID_NOT_FOUND] * 3),
]


def errors_of(result: Any) -> list[E]:
    """Return the errors of the items of a result, or its own."""
    items = getattr(result, "partitions", ()) or getattr(result, "groups", ()) or getattr(result, "members", ())
    return [item.error for item in items] if items and not getattr(result, "error", 0) else [result.error]


@pytest.mark.parametrize(("request_", "expected"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_nonsense_request_is_refused_and_leaves_no_group(
    broker: Broker, neighbour: RawMember, connection: RawConnection, request_: Request[Any], expected: list[E]
) -> None:
    assert errors_of(ask(connection, request_, AT_ONCE if isinstance(request_, JoinGroup) else None)) == expected
    listed = {each.group_id for each in ask(connection, ListGroups()).groups}
    assert not listed & {"bad", "", LONG}


def test_long_names_and_odd_bytes_are_names_and_bytes(neighbour: RawMember, connection: RawConnection) -> None:
    """Metadata belongs to the members: the broker looks into it, and finds nothing."""
    for group in (LONG, "ü\0\n", "../../etc"):
        for number, metadata in enumerate((b"\xff", b"\0\0\x7f\xff\xff\xff", bytes(5) + b"\x05")):
            joined = ask(connection, joining(group, metadata=metadata), AT_ONCE)
            assert joined.error is E.NONE
            assert joined.generation_id == 2 * number + 1
            member, generation = joined.member_id, joined.generation_id
            given = [MemberAssignment(member, b"\xff"), MemberAssignment("nobody", bytes(1_000_000))]
            sync = SyncGroup(group_id=group, generation_id=generation, member_id=member, assignments=given)
            assert ask(connection, sync).assignment == b"\xff"
            good = commit(at(metadata="ü" * 4000), group=group, generation=generation, member=member)
            assert errors_of(ask(connection, good)) == [E.NONE]
            late = commit(at(), group=group, generation=generation - 1, member=member)
            assert errors_of(ask(connection, late)) == [E.ILLEGAL_GENERATION]
            deleting = OffsetDelete(group_id=group, partitions=[TopicPartition(TOPIC, 0)])
            assert errors_of(ask(connection, deleting)) == [E.GROUP_SUBSCRIBED_TO_TOPIC]
            (described,) = ask(connection, DescribeGroups(group_ids=[group])).groups
            assert described.members[0].metadata == metadata
            ask(connection, LeaveGroup(group_id=group, members=[LeavingMember(member_id=member)]))
        assert errors_of(ask(connection, DeleteGroups(group_ids=[group]))) == [E.NONE]


def test_many_at_a_time_and_the_same_again(neighbour: RawMember, connection: RawConnection) -> None:
    names = [f"g{number}" for number in range(1_000)] + ["g0"] * 1_000
    assert {each.state for each in ask(connection, DescribeGroups(group_ids=names)).groups} == {"Dead"}
    assert len(ask(connection, FindCoordinator(keys=names)).coordinators) == 2_000
    assert ask(connection, FindCoordinator(keys=[])).coordinators == []
    wanted = OffsetFetchGroup(group_id="g0", partitions=[TopicPartition(TOPIC, 0)] * 1000)
    fetched = ask(connection, OffsetFetch(groups=[wanted] * 10)).groups
    assert [len(each.partitions) for each in fetched] == [1000], "a group is answered once"
    assert errors_of(ask(connection, commit(*[at()] * 1000, group="again"))) == [E.NONE] * 1000
    protocols = [GroupProtocol(str(number % 100), b"m") for number in range(1000)]
    assert ask(connection, joining("again", protocols=protocols)).error is E.MEMBER_ID_REQUIRED


@given(data=st.data())
def test_mutilated_group_requests(broker: Broker, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(GROUP_KEYS))
    version = data.draw(st.integers(*BY_KEY[key].versions))
    content = bytearray(framed(SAMPLES[key].at(version).request, version)[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    with RawConnection(broker.bootstrap) as connection:
        connection.send(len(content).to_bytes(4, "big") + content)
        connection.socket.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while connection.socket.recv(65_536):
                pass
    with RawConnection(broker.bootstrap) as connection:
        assert connection.exchange(frame(18, 0, b""))


@pytest.mark.parametrize("names", first_is_quick(["a group each", "one group", "a long group each"]))
def test_a_flood_of_joins(broker: Broker, neighbour: RawMember, connection: RawConnection, names: str) -> None:
    """Every member gets an id for its second request, and none sends it."""
    count = 50 if names == "a long group each" else 2_000
    long = "x" * 30_000 if names == "a long group each" else "flood "
    requests = [joining(names if names == "one group" else f"{long}{number}") for number in range(count)]
    ids = set()
    for start in range(0, count, 50):
        together = requests[start : start + 50]
        connection.send(b"".join(framed(request) for request in together))
        for request in together:
            joined = read_result(connection, request)
            assert joined.error is E.MEMBER_ID_REQUIRED
            ids.add(joined.member_id)
        if start % 500 == 0:
            neighbour.check()
    assert len(ids) == count


def test_joins_without_end_over_one_connection_wait_their_turn(
    broker: Broker, neighbour: RawMember, connection: RawConnection
) -> None:
    """The broker reads a limited number of requests that wait for other members from one connection."""
    stays = RawMember(broker.bootstrap, "crowd", TOPIC)
    connection.send(b"".join(framed(joining("crowd"), AT_ONCE) for _ in range(1000)))
    request = DescribeGroups(group_ids=["crowd"])
    wait_for(lambda: len(ask(stays.connection, request).groups[0].members) > IN_FLIGHT_MAX)
    neighbour.check()
    assert len(ask(stays.connection, request).groups[0].members) == 1 + IN_FLIGHT_MAX
    stays.leave()


def test_silent_and_half_sent_requests_are_closed(broker: Broker, neighbour: RawMember) -> None:
    silent = [RawConnection(broker.bootstrap) for _ in range(20)]
    for number, connection in enumerate(silent):
        connection.send(framed(joining("half", metadata=bytes(1000)))[: number * 50])
    neighbour.check()
    for connection in silent:
        connection.socket.close()


def test_client_that_never_reads_is_not_read_from(
    broker: Broker, neighbour: RawMember, connection: RawConnection
) -> None:
    """Answers that a client does not read do not accumulate: its requests do, at the sender."""
    large = RawMember(broker.bootstrap, "large", TOPIC, metadata=bytes(500_000))
    request = framed(DescribeGroups(group_ids=["large"])) * 100
    connection.socket.setblocking(False)
    sent = stuck = 0
    while stuck < 10:
        neighbour.check()
        try:
            sent += connection.socket.send(request)
            stuck = 0
        except BlockingIOError:
            stuck += 1
    assert sent > 0
    unsent = [each.unsent_bytes for each in _connections(broker)]
    assert UNSENT_BYTES_MAX < max(unsent) < 3 * UNSENT_BYTES_MAX
    large.leave()


def _connections(broker: Broker) -> list[Any]:
    assert broker._node is not None
    (on_demand,) = broker._node._servers
    assert isinstance(on_demand, ServerOnDemand)
    server = on_demand.made()
    assert isinstance(server, KafkaServer)
    return [each._connection for each in tuple(server.connections.values())]


def test_member_that_disconnects_while_waiting_stays_until_its_session_ends(
    broker: Broker, neighbour: RawMember, connection: RawConnection
) -> None:
    stays = RawMember(broker.bootstrap, "left alone", TOPIC)
    with RawConnection(broker.bootstrap) as gone:
        gone.send(framed(joining("left alone", session_timeout_ms=6_000), AT_ONCE))
        request = DescribeGroups(group_ids=["left alone"])
        wait_for(lambda: ask(stays.connection, request).groups[0].state != "Stable")
    again = ask(stays.connection, joining("left alone", stays.joined.member_id))
    assert again.generation_id == 2
    assert len(again.members) == 2
    stays.leave()
