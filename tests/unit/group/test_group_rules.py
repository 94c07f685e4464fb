"""The rules of a group, one scenario a test."""

from math import inf

import pytest
from support.group_driver import REBALANCE_MS, SESSION_MS, Driver

from barnabas.core.coordinator.group.effects import StoreReason
from barnabas.core.coordinator.group.states import GroupState
from barnabas.core.coordinator.group.subscription import encode_assignment
from barnabas.ports.error_codes import ErrorCode as E


def test_the_first_member_leads_and_assigns() -> None:
    driver = Driver(hold=True)
    join = driver.join(protocols=[("range", b"topics")])
    assert (join.error, join.result.generation_id, join.result.protocol_name) == (E.NONE, 1, "range")
    assert join.result.leader == join.result.member_id == "m1"
    assert [(member.member_id, member.metadata) for member in join.result.members] == [("m1", b"topics")]
    assert driver.state() is GroupState.COMPLETING_REBALANCE

    sync = driver.sync("m1", {"m1": b"all"})
    assert sync.waits  # until it is kept
    driver.finish()
    assert (sync.result.assignment, sync.result.protocol_name) == (b"all", "range")
    assert driver.state() is GroupState.STABLE
    stored = driver.written[0].group
    assert (stored.generation, stored.leader, stored.members[0].assignment) == (1, "m1", b"all")


def test_join_response_lists_members_for_leader_only() -> None:
    driver = Driver()
    first = driver.join()
    second = driver.join()
    assert second.waits
    again = driver.join("m1")
    assert first.result.generation_id == 1
    assert again.result.generation_id == second.result.generation_id == 2
    assert [member.member_id for member in again.result.members] == ["m1", "m2"]
    assert second.result.members == ()
    assert second.result.leader == "m1"


def test_followers_wait_for_the_leaders_assignment() -> None:
    driver = Driver()
    driver.join()
    driver.join()
    driver.join("m1")
    follower = driver.sync("m2")
    assert follower.waits
    assert driver.sync("m1", {"m1": b"1", "stranger": b"?"}).result.assignment == b"1"
    assert follower.result.assignment == b""  # it was given nothing
    assert driver.sync("m2").result.assignment == b""


def test_an_id_is_required_of_clients_that_know_of_it() -> None:
    driver = Driver()
    join = driver.join(at_once=False)
    assert (join.error, join.result.member_id) == (E.MEMBER_ID_REQUIRED, "m1")
    assert driver.state() is GroupState.EMPTY
    assert driver.join("m1", at_once=False).result.generation_id == 1
    assert not driver.group.pending_members


def test_reserved_member_id_expires_after_session_timeout() -> None:
    driver = Driver()
    driver.join(at_once=False)
    driver.pass_time(SESSION_MS)
    assert driver.join("m1").error is E.UNKNOWN_MEMBER_ID
    assert driver.group.next_due_ms is None


def test_rebalance_waits_for_reserved_member_id() -> None:
    driver = Driver()
    (leader,) = driver.stable()
    driver.join(at_once=False)  # m2
    joined = driver.join()
    driver.join(leader)
    assert joined.waits
    driver.join("m2")
    assert joined.result.generation_id == 2
    assert len(driver.group.roster) == 3


def test_members_rejoin_after_rebalance_in_progress_heartbeat() -> None:
    driver = Driver()
    ids = driver.stable(2)
    assert [driver.heartbeat(each) for each in ids] == [E.NONE, E.NONE]
    third = driver.join()
    assert [driver.heartbeat(each) for each in ids] == [E.REBALANCE_IN_PROGRESS] * 2
    assert driver.sync(ids[0]).error is E.REBALANCE_IN_PROGRESS
    generation = driver.group.generation
    assert [driver.join(each).waits for each in ids] == [True, False]
    assert third.result.generation_id == generation + 1


def test_member_that_does_not_rejoin_is_removed_after_rebalance_timeout() -> None:
    driver = Driver()
    ids = driver.stable(2)
    third = driver.join(session_ms=60_000)
    rejoined = driver.join(ids[1], session_ms=60_000)
    driver.pass_time(SESSION_MS - 1)
    assert third.waits
    driver.heartbeat(ids[0])
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(ids[0])
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(ids[0])
    driver.pass_time(2)
    assert driver.now_ms < 1000 + REBALANCE_MS
    driver.pass_time(REBALANCE_MS)
    assert third.result.generation_id == rejoined.result.generation_id == 3
    assert ids[0] not in driver.group.roster
    assert third.result.leader == ids[1]


def test_a_member_that_vanishes_costs_one_session() -> None:
    driver = Driver()
    ids = driver.stable(3)
    start = driver.now_ms
    while driver.state() is GroupState.STABLE:
        driver.pass_time(1000)
        for each in ids[1:]:
            driver.heartbeat(each)
    assert driver.now_ms - start == SESSION_MS
    joins = [driver.join(each) for each in ids[1:]]
    assert all(join.result.generation_id == driver.group.generation for join in joins)
    assert driver.heartbeat(ids[0]) is E.UNKNOWN_MEMBER_ID


def test_a_short_session_counts_after_a_long_one() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.join(member, session_ms=1_000_000)
    driver.sync(member)
    driver.join(member, session_ms=500)
    driver.sync(member)
    driver.pass_time(499)
    assert driver.state() is GroupState.STABLE
    driver.pass_time(1)
    assert driver.state() is GroupState.EMPTY


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    driver = Driver()
    ids = driver.stable(2)
    generation = driver.group.generation
    assert driver.leave(*ids, "nobody") == [E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert driver.state() is GroupState.EMPTY
    assert driver.group.generation == generation + 1
    assert driver.written[-1].reason is StoreReason.EMPTIED
    assert driver.written[-1].group.members == []
    assert driver.group.protocol_type == "consumer"
    assert driver.group.next_due_ms is None


def test_a_waiting_member_that_leaves_is_answered() -> None:
    driver = Driver()
    driver.stable()
    waiting = driver.join()
    assert driver.leave("m2") == [E.NONE]
    assert waiting.error is E.UNKNOWN_MEMBER_ID


def test_leave_releases_reserved_member_id() -> None:
    driver = Driver()
    driver.join(at_once=False)
    assert driver.leave("m1") == [E.NONE]
    assert driver.leave("m1") == [E.UNKNOWN_MEMBER_ID]


def test_the_protocol_is_the_first_choice_of_most_among_the_common_ones() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=100)
    joins = [
        driver.join(protocols=[("a", b""), ("b", b"1"), ("c", b"")]),
        driver.join(protocols=[("c", b""), ("b", b"2")]),
        driver.join(protocols=[("b", b"3"), ("c", b"")]),
        driver.join(protocols=[("d", b""), ("b", b"4"), ("c", b"")]),
    ]
    driver.pass_time(REBALANCE_MS)
    assert {join.result.protocol_name for join in joins} == {"b"}
    assert [member.metadata for member in joins[0].result.members] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", [("range", b"")]), ("consumer", [("other", b"")]), ("consumer", []), ("", [("range", b"")])],
)
def test_without_a_common_protocol_there_is_no_way_in(protocol_type: str, protocols: list[tuple[str, bytes]]) -> None:
    driver = Driver()
    driver.stable()
    assert driver.join(protocol_type=protocol_type, protocols=protocols).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() is GroupState.STABLE


def test_an_empty_group_takes_another_type() -> None:
    driver = Driver()
    driver.leave(*driver.stable())
    assert driver.join(protocol_type="connect", protocols=[("x", b"")]).result.protocol_type == "connect"


def test_a_member_alone_may_change_its_protocols() -> None:
    driver = Driver()
    (member,) = driver.stable()
    assert driver.join(member, protocols=[("new", b"")]).result.protocol_name == "new"


def test_the_first_rebalance_waits_for_more_members() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3000)
    first = driver.join()
    driver.pass_time(2000)
    second = driver.join()
    driver.pass_time(2000)
    assert first.waits
    driver.pass_time(1999)
    assert second.waits
    driver.pass_time(1)
    assert first.result.generation_id == second.result.generation_id == 1


def test_initial_rebalance_delay_is_bounded_by_rebalance_timeout() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3000)
    first = driver.join(rebalance_ms=10_000)
    start = driver.now_ms
    while first.waits:
        driver.pass_time(1000)
        if first.waits:
            driver.join(rebalance_ms=10_000)
    assert driver.now_ms - start == 10_000


def test_an_unchanged_follower_gets_its_generation_again() -> None:
    driver = Driver()
    ids = driver.stable(2)
    generation = driver.group.generation
    join = driver.join(ids[1])
    assert (join.result.generation_id, join.result.members) == (generation, ())
    assert driver.state() is GroupState.STABLE
    assert driver.join(ids[1], protocols=[("range", b"other topics")]).waits
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_the_leader_may_ask_for_a_rebalance() -> None:
    driver = Driver()
    ids = driver.stable(2)
    assert driver.join(ids[0]).waits
    assert driver.heartbeat(ids[1]) is E.REBALANCE_IN_PROGRESS


def test_a_lost_answer_is_given_again_while_the_assignment_is_awaited() -> None:
    driver = Driver()
    first = driver.join()
    again = driver.join("m1")
    assert again.result == first.result
    assert len(again.result.members) == 1


def test_repeated_join_is_answered_once_each() -> None:
    driver = Driver()
    ids = driver.stable(2)
    first = driver.join(ids[0])
    second = driver.join(ids[0])
    assert first.error is E.REBALANCE_IN_PROGRESS
    assert second.waits
    driver.join(ids[1])
    follower = driver.sync(ids[1])
    follower_again = driver.sync(ids[1])
    assert follower.error is E.REBALANCE_IN_PROGRESS
    driver.sync(ids[0], {ids[1]: b"x"})
    assert follower_again.result.assignment == b"x"


def test_member_without_sync_is_removed_after_the_rebalance_timeout() -> None:
    driver = Driver(group_min_session_timeout_ms=1)
    ids = driver.stable(2)
    driver.join(ids[0], session_ms=100_000)
    driver.join(ids[1], session_ms=100_000)
    follower = driver.sync(ids[1])
    driver.pass_time(REBALANCE_MS)
    assert follower.error is E.REBALANCE_IN_PROGRESS
    assert ids[0] not in driver.group.roster
    assert driver.group.leader == ids[1]


def test_a_follower_that_does_not_fetch_its_assignment_is_out_too() -> None:
    driver = Driver()
    ids = driver.stable(2)
    driver.join(ids[0], session_ms=100_000)
    driver.join(ids[1], session_ms=100_000)
    driver.sync(ids[0], {})
    assert driver.state() is GroupState.STABLE
    driver.pass_time(REBALANCE_MS)
    assert ids[1] not in driver.group.roster
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_sync_checks_protocol_and_generation() -> None:
    driver = Driver()
    driver.join()
    assert driver.sync("m1", protocol=("consumer", "other")).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync("m1", protocol=("connect", "range")).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync("m1", generation=0).error is E.ILLEGAL_GENERATION
    assert driver.sync("m9").error is E.UNKNOWN_MEMBER_ID
    assert driver.sync("m1", protocol=("consumer", "range")).error is E.NONE


def test_failed_assignment_append_fails_sync_and_rebalances_again() -> None:
    driver = Driver(hold=True)
    driver.join()
    sync = driver.sync("m1", {"m1": b"x" * 10})
    driver.finish(E.UNKNOWN_SERVER_ERROR)
    assert sync.error is E.UNKNOWN_SERVER_ERROR
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert driver.join("m1").result.generation_id == 2


def test_assignment_stored_after_new_rebalance_is_ignored() -> None:
    driver = Driver(hold=True)
    driver.join()
    sync = driver.sync("m1", {"m1": b"old"})
    other = driver.join()
    assert sync.error is E.REBALANCE_IN_PROGRESS
    driver.join("m1")
    assert other.result.generation_id == 2
    driver.finish()
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_join_beyond_group_max_size_is_rejected() -> None:
    driver = Driver(group_max_size=2)
    ids = driver.stable(2)
    assert driver.join().error is E.GROUP_MAX_SIZE_REACHED
    assert driver.join(at_once=False).error is E.GROUP_MAX_SIZE_REACHED
    assert driver.state() is GroupState.STABLE
    assert driver.join(ids[0]).waits


def test_a_group_over_a_lowered_limit_keeps_the_first_to_come_back() -> None:
    driver = Driver()
    ids = driver.stable(3)
    driver.group.config = type(driver.group.config)(group_max_size=2)
    driver.carry_out(driver.group.shrink(driver.now_ms))
    assert driver.state() is GroupState.PREPARING_REBALANCE
    second_joins = [driver.join(ids[2]), driver.join(ids[1])]
    assert driver.join(ids[0]).error is E.GROUP_MAX_SIZE_REACHED
    assert {join.result.leader for join in second_joins} <= set(ids[1:])
    assert len(driver.group.roster) == 2


def test_a_join_without_an_id_is_dropped_after_five_minutes() -> None:
    driver = Driver()
    driver.join(rebalance_ms=1_000_000, session_ms=1_000_000)
    driver.sync("m1")
    stray = driver.join()
    driver.pass_time(300_000)
    assert stray.error is E.UNKNOWN_MEMBER_ID


# --- static members

TOPICS = [("range", b"\0\1\0\0\0\2\0\1t\0\1u\xff\xff\xff\xff")]
"""A subscription to t and u."""


def group_of_static_leader(*assigned: dict[str, tuple[int, ...]]) -> tuple[Driver, list[str]]:
    """Return a group whose static member "s" leads, with its member ids: the leader's first."""
    driver = Driver()
    first = driver.join(instance="s", protocols=TOPICS)
    joins = [first, *(driver.join(protocols=TOPICS) for _ in assigned[1:])]
    return driver, driver.settled(joins, [encode_assignment(each) for each in assigned])


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(1, static=["s"])
    generation = driver.group.generation
    back = driver.join(instance="s")
    assert (back.error, back.result.generation_id, back.result.leader) == (E.NONE, generation, leader)
    assert back.result.member_id != follower
    assert driver.state() is GroupState.STABLE
    assert driver.sync(back.result.member_id, instance="s").result.assignment == f"for {follower}".encode()
    assert driver.written[-1].reason is StoreReason.REPLACED
    assert {member.member_id for member in driver.written[-1].group.members} == {leader, back.result.member_id}
    for answer in (driver.heartbeat(follower, instance="s"), driver.sync(follower, instance="s").error):
        assert answer is E.FENCED_INSTANCE_ID
    assert driver.commit(follower, generation, "s") is E.FENCED_INSTANCE_ID
    assert driver.join(follower, instance="s").error is E.FENCED_INSTANCE_ID
    assert driver.heartbeat(follower) is E.UNKNOWN_MEMBER_ID


def test_a_static_leader_comes_back_and_need_not_assign() -> None:
    driver = Driver()
    (leader,) = driver.stable(0, static=["s"])
    back = driver.join(instance="s")
    assert back.result.leader == back.result.member_id != leader
    assert back.result.skip_assignment
    assert len(back.result.members) == 1
    older = driver.join(instance="s", can_skip=False)
    assert older.result.leader == back.result.member_id != older.result.member_id
    assert not older.result.skip_assignment
    assert older.result.members == ()


def test_a_static_member_with_other_topics_causes_a_rebalance() -> None:
    def topics(*names: str) -> list[tuple[str, bytes]]:
        listed = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in names)
        return [("range", b"\0\1" + len(names).to_bytes(4, "big") + listed + b"\xff\xff\xff\xff" + names[0].encode())]

    driver = Driver()
    driver.join(instance="s", protocols=topics("a", "b"))
    driver.sync("m1", {})
    assert driver.join(instance="s", protocols=topics("b", "a")).result.generation_id == 1
    assert driver.join(instance="s", protocols=topics("a")).result.generation_id == 2


def test_a_static_leader_that_comes_back_to_partitions_of_no_member_causes_one_rebalance() -> None:
    """The leader's first metadata have these partitions already, so it would not notice that they are new. A simulated
    group had partitions without a reader (seed 863 of the story `consumer-group`)."""
    driver, (leader, follower) = group_of_static_leader({"t": (0, 1)}, {"t": (2,)})
    driver.topics["t"] = 3
    back = driver.join(instance="s", protocols=TOPICS)
    assert back.result.skip_assignment
    assert driver.state() is GroupState.STABLE
    leader, generation = back.result.member_id, back.result.generation_id
    driver.topics["t"] = 4

    back = driver.join(instance="s", protocols=TOPICS)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    (cause,) = driver.group.causes.take_texts()[-1:]
    assert f"in place of {leader} to lead, and no member has t-3" in cause
    follows = driver.join(follower, protocols=TOPICS)
    leader = back.result.member_id
    assert (follows.result.generation_id, follows.result.leader) == (generation + 1, leader)
    assert not back.result.skip_assignment
    assert len(back.result.members) == 2
    driver.sync(
        leader, {leader: encode_assignment({"t": (0, 1)}), follower: encode_assignment({"t": (2,)})}
    )  # as its assignor says
    driver.sync(follower)
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat(leader, generation + 1, "s") is E.NONE
    assert driver.state() is GroupState.STABLE


def test_a_static_leader_that_comes_back_to_a_new_topic_of_its_own_causes_a_rebalance() -> None:
    driver, _ = group_of_static_leader({"t": (0, 1)}, {"t": (2,)})
    driver.topics["u"] = 1
    driver.join(instance="s", protocols=TOPICS)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert "no member has u-0" in driver.group.causes.take_texts()[-1]


@pytest.mark.parametrize(
    ("case", "topics"),
    [
        ("all is assigned", {"t": 3}),
        ("fewer partitions than assigned", {"t": 2}),
        ("an unknown topic", {}),
        ("a topic that no member subscribes to", {"t": 3, "v": 9}),
    ],
)
def test_a_static_leader_that_comes_back_to_known_partitions_skips_the_assignment(
    case: str, topics: dict[str, int]
) -> None:
    driver, _ = group_of_static_leader({"t": (0, 1)}, {"t": (2,)})
    driver.topics = topics
    assert driver.join(instance="s", protocols=TOPICS).result.skip_assignment, case


def test_a_static_follower_that_comes_back_leaves_new_partitions_to_the_leader() -> None:
    driver = Driver()
    leader, _ = driver.settled([driver.join(protocols=TOPICS), driver.join(instance="s", protocols=TOPICS)])
    driver.topics = {"t": 9}
    back = driver.join(instance="s", protocols=TOPICS)
    assert (back.error, back.result.leader, driver.group.generation) == (E.NONE, leader, back.result.generation_id)
    assert driver.state() is GroupState.STABLE


@pytest.mark.parametrize("unreadable", ["assignment", "subscription", "protocol type"])
def test_a_static_leader_that_comes_back_to_unreadable_bytes_skips_the_assignment(unreadable: str) -> None:
    kind = "connect" if unreadable == "protocol type" else "consumer"
    protocols = [("range", b"m")] if unreadable == "subscription" else TOPICS
    driver = Driver()
    driver.join(instance="s", protocols=protocols, protocol_type=kind)
    driver.sync("m1", {"m1": b"?" if unreadable == "assignment" else encode_assignment({"t": (0,)})})
    driver.topics = {"t": 2}
    assert driver.join(instance="s", protocols=protocols, protocol_type=kind).result.skip_assignment


@pytest.mark.parametrize("instance", [None, "s"])
def test_a_leader_that_joins_again_with_its_member_id_causes_a_rebalance(instance: str | None) -> None:
    """The leader then assigns new partitions itself, and the coordinator needs no comparison."""
    driver = Driver()
    leader = driver.join(instance=instance, protocols=TOPICS).result.member_id
    driver.sync(leader, {leader: encode_assignment({"t": (0,)})})
    again = driver.join(leader, instance=instance, protocols=TOPICS)
    assert (again.result.generation_id, again.result.skip_assignment) == (2, False)


def test_two_of_one_instance_the_later_one_stays() -> None:
    driver = Driver()
    driver.stable()
    first = driver.join(instance="s")
    second = driver.join(instance="s")
    assert first.error is E.FENCED_INSTANCE_ID
    driver.join("m1")
    assert second.result.generation_id == 2
    assert len(driver.group.roster) == 2


def test_a_static_member_that_is_away_stays_through_a_rebalance() -> None:
    driver = Driver()
    leader, away = driver.stable(1, static=["s"])
    driver.join(leader)
    third = driver.join(session_ms=100_000)
    driver.pass_time(SESSION_MS - 1)
    assert away in driver.group.roster
    driver.heartbeat(away, instance="s")
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(away, instance="s")
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat(away, instance="s")
    driver.pass_time(3)
    assert away in driver.group.roster
    assert third.result.generation_id == driver.group.generation
    assert driver.group.leader == leader
    driver.pass_time(SESSION_MS)
    assert away not in driver.group.roster


def test_when_only_a_static_member_is_left_its_session_ends_the_group() -> None:
    driver = Driver()
    leader, _ = driver.stable(1, static=["s"])
    driver.leave(leader)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.pass_time(SESSION_MS)
    assert driver.state() is GroupState.EMPTY


def test_a_static_member_leaves_by_its_instance_id() -> None:
    driver = Driver()
    _, static = driver.stable(1, static=["s"])
    assert driver.leave("other", instance="s") == [E.FENCED_INSTANCE_ID]
    assert driver.leave("", instance="t") == [E.UNKNOWN_MEMBER_ID]
    assert driver.leave("") == [E.UNKNOWN_MEMBER_ID]
    assert driver.leave("", instance="s") == [E.NONE]
    assert static not in driver.group.roster
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_failed_append_of_static_member_replacement_fails_join() -> None:
    driver = Driver()
    driver.stable(1, static=["s"])
    driver.hold = True
    back = driver.join(instance="s")
    driver.finish(E.NOT_COORDINATOR)
    assert back.error is E.NOT_COORDINATOR
    driver.hold = False
    assert driver.join(instance="s").error is E.NONE


def test_static_member_replaced_during_rebalance_joins_new_generation() -> None:
    driver = Driver()
    leader, _ = driver.stable(1, static=["s"])
    driver.hold = True
    back = driver.join(instance="s")
    driver.join(leader)
    assert back.result.generation_id == driver.group.generation
    driver.finish()
    assert driver.state() is GroupState.COMPLETING_REBALANCE


# --- commits, restoring, ending


def test_offset_commit_is_allowed_by_generation_and_member() -> None:
    driver = Driver()
    assert driver.commit() is E.NONE
    assert driver.commit("m1", 1) is E.UNKNOWN_MEMBER_ID
    driver.join()
    assert driver.commit("m1", 1) is E.REBALANCE_IN_PROGRESS
    driver.sync("m1")
    assert driver.commit("m1", 1) is E.NONE
    assert driver.commit("m1", 2) is E.ILLEGAL_GENERATION
    assert driver.commit("m1", -1) is E.ILLEGAL_GENERATION
    assert driver.commit() is E.UNKNOWN_MEMBER_ID
    driver.join()
    assert driver.commit("m1", 1) is E.NONE  # what it has read before the rebalance


def test_a_commit_keeps_a_member_alive() -> None:
    driver = Driver()
    (member,) = driver.stable()
    for _ in range(5):
        driver.pass_time(SESSION_MS - 1)
        assert driver.commit(member, 1) is E.NONE


def test_restored_group_continues_with_stored_members() -> None:
    driver = Driver()
    ids = driver.stable(1, static=["s"])
    stored = driver.written[-1].group
    group = type(driver.group).restored("g", driver.group.config, stored, now_ms=1_000_000)
    driver = Driver(group)
    driver.now_ms = 1_000_000
    assert [driver.heartbeat(each) for each in ids] == [E.NONE, E.NONE]
    assert driver.sync(ids[1]).result.assignment == f"for {ids[1]}".encode()
    assert driver.join(ids[1], instance="s").result.generation_id == stored.generation
    driver.pass_time(SESSION_MS)
    assert driver.state() is GroupState.EMPTY


def test_pending_joins_get_not_coordinator_when_group_is_unloaded() -> None:
    driver = Driver()
    ids = driver.stable(2)
    joins = [driver.join(ids[0]), driver.join()]
    driver.carry_out(driver.group.die(E.NOT_COORDINATOR))
    assert {join.error for join in joins} == {E.NOT_COORDINATOR}
    assert driver.heartbeat(ids[0]) is E.COORDINATOR_NOT_AVAILABLE
    assert driver.join().error is E.COORDINATOR_NOT_AVAILABLE
    assert driver.leave(ids[0]) == [E.COORDINATOR_NOT_AVAILABLE]
    assert (driver.group.next_due_ms or inf) == inf
