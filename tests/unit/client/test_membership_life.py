"""A member's life: how it joins, what it revokes for others, what removes it, and which errors its user gets."""

import re
from typing import Any

import pytest
from support.group_world import HEARTBEAT_MS, POLL_INTERVAL_MS, SESSION_MS, Consumer, World

from barnabas.core.client.group.consumer_coordinator import ClassicMembershipManager
from barnabas.core.client.group.consumer_protocol import Subscription, decode_subscription
from barnabas.core.client.group.events import Assigned, Failed, Lost, Revoke
from barnabas.core.client.group.membership import OwnedPartitions
from barnabas.ports.broker_api.groups import (
    Coordinator,
    FindCoordinator,
    FindCoordinatorResult,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    SyncGroup,
    SyncGroupResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

T = [TopicPartition("t", number) for number in range(8)]


def settled(world: World, *consumers: Consumer) -> None:
    world.run_until_idle()
    assert all(not consumer.errors for consumer in consumers)


def at_coordinator(world: World, kind: type[Any]) -> list[int]:
    return [node for _, node, request in world.requests if isinstance(request, kind)]


# --- coming in


def test_join_group_has_member_id_protocols_and_reason() -> None:
    world = World(t=1)
    a = world.join("a", "t", assignors=["sticky", "range"], max_poll_interval_ms=7_000, client_rack="r1")
    settled(world, a)
    first, second = world.of(JoinGroup)
    assert (first.member_id, second.member_id) == ("", a.membership.member_id)
    assert (first.group_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("g", SESSION_MS, 7_000)
    assert (first.protocol_type, [each.name for each in first.protocols]) == ("consumer", ["sticky", "range"])
    assert decode_subscription(first.protocols[1].metadata) == Subscription(topics=("t",), rack="r1")
    assert first.reason == "the consumer subscribes"
    (sync,) = world.of(SyncGroup)
    assert (sync.protocol_type, sync.protocol_name, sync.generation_id) == ("consumer", "sticky", 1)


def test_the_coordinator_may_be_any_broker_and_has_a_connection_of_its_own() -> None:
    world = World(brokers=3, t=1)
    world.home = 3
    a = world.join("a", "t")
    settled(world, a)
    assert set(at_coordinator(world, JoinGroup) + at_coordinator(world, SyncGroup)) == {3}
    assert a.view.address(3) == ("broker-3", 9092)
    assert len(a._free_ms) == 2  # of the bootstrap address and of the coordinator


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_is_not_there_yet_is_waited_for(code: ErrorCode) -> None:
    world = World(t=1)
    for _ in range(3):
        world.once(FindCoordinator, FindCoordinatorResult(coordinators=[Coordinator(key="g", error=code)]))
    world.once(JoinGroup, JoinGroupResult(error=code))
    world.once(SyncGroup, SyncGroupResult(error=code))
    a = world.join("a", "t")
    settled(world, a)
    assert len(a.reads) == 1
    assert world.now < 5_000


def test_a_coordinator_that_moves_is_found_again_and_nothing_is_lost() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    settled(world, a)
    world.home = 2
    world.pass_time(3 * HEARTBEAT_MS)
    assert at_coordinator(world, Heartbeat)[-1] == 2
    assert a.events == a.of(Assigned)
    assert len(world.of(JoinGroup)) == 2


@pytest.mark.parametrize("when", [0.5, 4.0, 6.0, 9.0, 12.0, 15.0, 400.0])
def test_broken_connections_at_any_moment_are_made_good(when: float) -> None:
    world = World(t=2)
    a = world.join("a", "t")
    world.pass_time(when)
    a.cut()
    settled(world, a)
    assert not a.of(Lost)


def test_a_silent_coordinator_is_looked_for_again() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    settled(world, a)
    silent = [True]
    ask = world.ask
    world.ask = lambda *given: None if silent[0] and isinstance(given[2], Heartbeat) else ask(*given)  # type: ignore[method-assign]  # it never answers
    finds = len(world.of(FindCoordinator))
    world.pass_time(SESSION_MS + HEARTBEAT_MS)
    assert len(world.of(FindCoordinator)) > finds
    silent[0] = False
    world.pass_time(SESSION_MS)
    settled(world, a)


# --- staying in


def test_heartbeats_continue_while_application_does_not_poll() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    settled(world, a)
    a.busy = True
    before = len(world.of(Heartbeat))
    world.pass_time(4 * SESSION_MS)
    assert len(world.of(Heartbeat)) - before == pytest.approx(4 * SESSION_MS / HEARTBEAT_MS, abs=2)
    a.busy = False
    world.pass_time(100)
    assert a.events == a.of(Assigned)


def test_a_user_that_does_not_poll_is_left_behind_and_comes_back() -> None:
    world = World(t=4)
    a, b = world.join("a", "t"), world.join("b", "t")
    settled(world, a, b)
    a.busy = True
    world.until(lambda: len(b.reads) == 4, POLL_INTERVAL_MS + 5_000)
    assert [leave.members[0].reason for leave in world.of(LeaveGroup)] == ["consumer poll timeout has expired"]
    commits = a.commit({T[0]: 5})
    world.pass_time(1)
    (failed,) = commits
    assert isinstance(failed, ApiError)
    assert failed.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert "max.poll.interval.ms=60000" in failed.message
    assert len(a.reads) == 2  # it does not know yet
    a.busy = False
    settled(world, a, b)
    (lost,) = a.of(Lost)
    assert len(lost.partitions) == 2
    assert "max.poll.records" in lost.reason
    assert (len(a.reads), len(b.reads)) == (2, 2)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("kind", ["range", "cooperative-sticky"])
def test_fenced_member_loses_its_partitions_and_rejoins(code: ErrorCode, kind: str) -> None:
    world = World(t=2)
    a = world.join("a", "t", assignors=[kind])
    settled(world, a)
    before = a.membership.member_id
    world.once(Heartbeat, HeartbeatResult(error=code))
    world.until(lambda: bool(a.of(Lost)))
    settled(world, a)
    assert [list(lost.partitions) for lost in a.of(Lost)] == [T[:2]]
    again = world.of(JoinGroup)[2]
    assert again.member_id == (before if code is ErrorCode.ILLEGAL_GENERATION else "")
    assert decode_subscription(again.protocols[0].metadata).owned == ()
    assert not a.of(Revoke)


@pytest.mark.parametrize("kind", [JoinGroup, SyncGroup])
@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
def test_rounds_that_end_badly_are_begun_again(kind: type[Any], code: ErrorCode) -> None:
    world = World(t=2)
    a = world.join("a", "t", assignors=["cooperative-sticky"])
    settled(world, a)
    b = world.join("b", "t", assignors=["cooperative-sticky"])
    result = JoinGroupResult(error=code) if kind is JoinGroup else SyncGroupResult(error=code)
    world.once(kind, result, of="a")
    settled(world, a, b)
    assert bool(a.of(Lost)) is (code is ErrorCode.UNKNOWN_MEMBER_ID)


# --- giving up


def test_the_group_waits_until_the_user_has_given_up_its_partitions() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    settled(world, a)
    a.holds_revocations = True
    b = world.join("b", "t")
    world.pass_time(3 * SESSION_MS)
    assert [list(revoke.partitions) for revoke in a.of(Revoke)] == [T[:2]]
    assert (b.reads, len(world.of(JoinGroup, "a"))) == ({}, 2)
    assert a.commit({T[0]: 3}) == []
    world.pass_time(50)
    assert world.harness.committed("g", T[0]) == {T[0]: 3}  # commits count until then
    a.membership.revoked_done()
    a.wake()
    settled(world, a, b)
    assert not a.of(Lost)


def test_member_that_never_revokes_is_removed() -> None:
    world = World(t=2)
    a = world.join("a", "t", max_poll_interval_ms=20_000)
    settled(world, a)
    a.holds_revocations = True
    b = world.join("b", "t")
    world.until(lambda: len(b.reads) == 2, 25_000)
    world.until(lambda: bool(a.of(Lost)))
    assert "given up its partitions" in a.of(Lost)[0].reason
    a.holds_revocations = False
    a.membership.revoked_done()
    settled(world, a, b)


def test_cooperative_members_give_up_only_what_moves() -> None:
    world = World(t=8)
    a, b = (world.join(name, "t", assignors=["cooperative-sticky"]) for name in "ab")
    settled(world, a, b)
    before = {name: set(each.reads) for name, each in (("a", a), ("b", b))}
    a.events.clear()
    b.events.clear()
    c = world.join("c", "t", assignors=["cooperative-sticky"])
    settled(world, a, b, c)
    assert [len(each.reads) for each in (a, b, c)] == [3, 3, 2]
    for name, each in (("a", a), ("b", b)):
        (revoke,) = each.of(Revoke)
        assert set(revoke.partitions) == before[name] - set(each.reads)
        assert len(revoke.partitions) == 1
        assert [dict(event.positions) for event in each.of(Assigned)] in ([{}, {}], [{}])
    c.leave()
    a.events.clear()
    settled(world, a, b)
    assert not a.of(Revoke)
    assert set(a.reads) > before["a"] - set(T) or len(a.reads) == 4


def test_an_eager_member_gives_up_everything() -> None:
    world = World(t=4)
    a = world.join("a", "t", assignors=["cooperative-sticky", "range"])
    settled(world, a)
    b = world.join("b", "t", assignors=["range"])
    settled(world, a, b)
    assert [list(revoke.partitions) for revoke in a.of(Revoke)] == [T[:4]]


def test_other_topics_are_subscribed_to_without_leaving() -> None:
    world = World(t=2, u=2, v=2)
    a = world.join("a", "t", "u", assignors=["cooperative-sticky"])
    settled(world, a)
    a.subscribe("u", "v")
    settled(world, a)
    assert [list(revoke.partitions) for revoke in a.of(Revoke)] == [T[:2]]
    assert {tp.topic for tp in a.reads} == {"u", "v"}
    a.subscribe("v", "u")
    assert a.membership.settled
    assert not world.of(LeaveGroup)


def test_a_change_in_the_middle_of_a_join_is_not_forgotten() -> None:
    world = World(t=1, u=1)
    a = world.join("a", "t")
    world.until(lambda: len(world.of(JoinGroup)) == 2)
    a.subscribe("u")
    settled(world, a)
    assert list(a.reads) == [TopicPartition("u", 0)]


# --- leaving


def test_leave_group_rebalances_without_session_timeout() -> None:
    world = World(t=2)
    a, b = world.join("a", "t"), world.join("b", "t")
    settled(world, a, b)
    member_id = a.membership.member_id
    done = a.leave()
    world.until(lambda: len(b.reads) == 2, 2 * HEARTBEAT_MS)
    assert done == [True]
    (leave,) = world.of(LeaveGroup)
    assert (leave.members[0].member_id, leave.members[0].reason) == (member_id, "the consumer unsubscribes")
    assert (a.membership.subscribed, a.membership.member_id, a.membership.assignment) == (False, "", [])


@pytest.mark.parametrize("known", [True, False], ids=["the connection is dead", "the coordinator is not known"])
def test_leave_group_is_sent_when_coordinator_is_reachable_again(known: bool) -> None:
    world = World(t=2)
    a, b = world.join("a", "t"), world.join("b", "t")
    settled(world, a, b)
    world.once(LeaveGroup if known else Heartbeat, TransportError("cut"), of="a")
    if not known:
        world.until(lambda: a.membership._finder.coordinator is None, 2 * HEARTBEAT_MS)
    done = a.leave()
    world.until(lambda: done == [True] and len(b.reads) == 2, 3 * HEARTBEAT_MS)


def test_leaving_does_not_wait_for_a_cluster_that_is_away() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    settled(world, a)
    world.scripts.append(lambda _consumer, _request: TransportError("away"))
    done = a.leave()
    world.until(lambda: done == [True], HEARTBEAT_MS)


def test_member_leaving_during_its_join_does_not_delay_others() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    settled(world, a)
    a.holds_revocations = True
    b = world.join("b", "t")
    world.until(lambda: len(world.of(JoinGroup, "b")) == 2)
    world.pass_time(10)
    assert b.leave() == []
    world.pass_time(10)
    assert len(world.of(LeaveGroup, "b")) == 1
    a.holds_revocations = False
    a.membership.revoked_done()
    a.wake()
    settled(world, a)
    assert len(world.harness.describe().members) == 1


def test_leaving_before_the_join_is_answered_leaves_no_member_behind() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    world.until(lambda: len(world.of(JoinGroup)) == 2)
    a.leave()
    world.pass_time(50)
    assert not world.harness.describe().members


def test_nothing_to_leave_is_done_at_once() -> None:
    world = World(t=1)
    assert world.join("a").leave() == [True]


def test_a_static_member_keeps_its_place_when_it_goes_and_comes_back() -> None:
    world = World(t=4)
    a, b = world.join("a", "t", instance="one"), world.join("b", "t")
    settled(world, a, b)
    reads_before = sorted(a.reads)
    assert a.leave() == [True]
    a.dead = True
    world.pass_time(SESSION_MS / 2)
    again = world.join("again", "t", instance="one")
    settled(world, again, b)
    assert sorted(again.reads) == reads_before
    assert not b.of(Revoke)
    assert not world.of(LeaveGroup)


def test_fenced_static_member_gets_repeated_fenced_instance_id_errors() -> None:
    world = World(t=1)
    a = world.join("a", "t", instance="one")
    settled(world, a)
    b = world.join("b", "t", instance="one")
    world.until(lambda: bool(a.errors))
    error = a.errors[0]
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.FENCED_INSTANCE_ID
    assert "'one'" in error.message
    a.subscribe("t")
    world.pass_time(100)
    assert len(a.errors) > 2
    assert (len(a.of(Lost)), a.reads, list(b.reads)) == (1, {}, T[:1])
    assert isinstance(a.membership.take_event(), Failed)


# --- what cannot be


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "(sticky, range)"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session.timeout.ms=10000"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "no permission to use group g"),
        (ErrorCode.INVALID_GROUP_ID, "'g'"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "group g"),
    ],
)
def test_fatal_join_errors_are_raised_once_and_join_is_retried(code: ErrorCode, said: str) -> None:
    world = World(t=1)
    world.once(JoinGroup, JoinGroupResult(error=code))
    a = world.join("a", "t", assignors=["sticky", "range"])
    world.until(lambda: bool(a.errors))
    error = a.errors[0]
    assert isinstance(error, ApiError)
    assert error.code is code
    assert said in error.message
    world.run_until_idle()
    assert len(a.errors) == 1


def test_denied_find_coordinator_fails_join_and_commit() -> None:
    world = World(t=1)
    refused = Coordinator(key="g", error=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="not you")
    world.once(FindCoordinator, FindCoordinatorResult(coordinators=[refused]))
    a = world.join("a", "t")
    commits = a.commit({T[0]: 1})
    world.until(lambda: bool(a.errors))
    assert "not you" in str(a.errors[0])
    assert [error.code for error in commits] == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_members_choose_what_all_of_them_know() -> None:
    world = World(t=2, u=2)
    a = world.join("a", "t", "u", assignors=["range", "roundrobin"])
    b = world.join("b", "t", "u", assignors=["roundrobin"])
    settled(world, a, b)
    assert world.of(SyncGroup)[-1].protocol_name == "roundrobin"
    c = world.join("c", "t", assignors=["sticky"])
    world.until(lambda: bool(c.errors))
    assert "choose another partition.assignment.strategy" in str(c.errors[0])
    c.vanish()
    settled(world, a, b)


def test_a_member_that_cannot_be_understood_gets_nothing() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    settled(world, a)
    garbage = world.harness.join("g", metadata=b"\x00\x01\xff", at_once=True)
    world.pass_time(3 * HEARTBEAT_MS)
    assert garbage.result.leader == a.membership.member_id
    assert (sorted(a.reads), a.errors) == (T[:2], [])
    assert [
        each.assignment for each in world.of(SyncGroup)[-1].assignments if each.member_id == garbage.result.member_id
    ]


def test_unreadable_assignment_is_reported_as_error() -> None:
    world = World(t=2)
    world.once(SyncGroup, SyncGroupResult(assignment=b"\x00\x00\x00\x00\x00\x09"))
    a = world.join("a", "t")
    world.until(lambda: bool(a.errors))
    assert re.search("assignment that cannot be read: an array of 9 elements", str(a.errors[0]))


def test_failing_assignor_is_reported_with_cause() -> None:
    world = World(t=2)
    a = world.join("a", "t")

    def fail(*_: object) -> None:
        raise LookupError("no idea")

    member = a.membership._member
    assert isinstance(member, ClassicMembershipManager)
    member._joiner._assignors["range"].assign = fail  # type: ignore[method-assign,assignment]  # as a plugin may
    world.until(lambda: bool(a.errors))
    assert str(a.errors[0]) == "assignor range failed for group g: LookupError('no idea')"
    assert isinstance(a.errors[0].__cause__, LookupError)


def test_partitions_lost_during_their_revocation_stay_lost_until_the_user_has_given_them_up() -> None:
    """The member may have joined again by then; a commit for them must not count as one of the new membership."""
    tp = TopicPartition("t", 0)
    owned = OwnedPartitions()
    owned.assigned.add(tp)
    owned.add_assignment({tp: None}, 1)
    owned.take_event()
    owned.revoke([tp], "the group is being rebalanced")
    owned.take_event()
    owned.lose_partitions("the member was removed")
    assert owned.has_lost
    assert owned.take_event() is None
    owned.revoked_done()
    assert not owned.has_lost
