"""Consumer groups by KIP-848 asked through the coordinator."""

from typing import Any

import pytest
from support.group_harness import ID, OTHER_ID, Harness

from barnabas.core.coordinator.group.consumer_records import ConsumerRecord, encode_key
from barnabas.core.coordinator.log import Record
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from barnabas.ports.broker_api.groups import OffsetFetch, OffsetFetchGroup
from barnabas.ports.error_codes import ErrorCode as E

HEARTBEAT_MS, SESSION_MS, INTERVAL_MS = 5_000, 45_000, 1_000


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.topics = {"t": 6}
    return made


def assigned(result: ConsumerGroupHeartbeatResult) -> dict[bytes, list[int]] | None:
    if result.assignment is None:
        return None
    return {each.topic_id: list(each.partitions) for each in result.assignment}


def numbers(result: ConsumerGroupHeartbeatResult) -> list[int] | None:
    """Return the partitions of the topic `t`; None: as before."""
    found = assigned(result)
    return None if found is None else found.get(ID, [])


def beat(harness: Harness, member: str, epoch: int = 0, **given: Any) -> ConsumerGroupHeartbeatResult:
    """Send a heartbeat that is answered without an error."""
    result = harness.beat(member, epoch, **given).result
    assert isinstance(result, ConsumerGroupHeartbeatResult)
    assert result.error is E.NONE, result
    return result


def two_members(harness: Harness) -> tuple[int, int]:
    """Let `a` and `b` have three partitions each; return their epochs."""
    beat(harness, "a")
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    got = beat(harness, "a", 2)
    assert numbers(got) == [0, 1, 2]
    a = beat(harness, "a", 2, owned={ID: [0, 1, 2]})
    b = beat(harness, "b", 2)
    assert (a.member_epoch, b.member_epoch, numbers(b)) == (3, 3, [3, 4, 5])
    return 3, 3


def test_change_reaches_all_members_within_the_heartbeat_interval(harness: Harness) -> None:
    a, b = two_members(harness)
    intervals = {beat(harness, member, epoch).heartbeat_interval_ms for member, epoch in (("a", a), ("b", b))}
    assert len(intervals) == 2  # so that they do not stay together
    assert all(0.85 * HEARTBEAT_MS <= each <= 0.95 * HEARTBEAT_MS for each in intervals)


def test_static_member_with_nothing_new_is_answered_as_others_are(harness: Harness) -> None:
    beat(harness, "a", instance_id="i")
    before = harness.appends
    assert beat(harness, "a", 2, instance_id="i").member_epoch == 2
    assert beat(harness, "a", 2).member_epoch == 2
    assert harness.appends == before


# --- joining and what the answers say


def test_first_member_gets_all_partitions_in_its_first_answer(harness: Harness) -> None:
    result = beat(harness, "a")
    assert (result.member_id, result.member_epoch, result.heartbeat_interval_ms) == ("a", 2, HEARTBEAT_MS)
    assert assigned(result) == {ID: [0, 1, 2, 3, 4, 5]}
    assert harness.describe_consumers().group_state == "Stable"


def test_assignment_is_absent_unless_it_has_changed_or_the_request_is_full(harness: Harness) -> None:
    beat(harness, "a")
    assert assigned(beat(harness, "a", 2)) is None
    assert assigned(beat(harness, "a", 2, owned={ID: range(6)})) is None
    full = beat(harness, "a", 2, owned={ID: range(6)}, topics=["t"], rebalance_timeout_ms=30_000)
    assert numbers(full) == [0, 1, 2, 3, 4, 5]


def test_assignment_is_sent_again_by_another_connection_until_it_is_confirmed(harness: Harness) -> None:
    beat(harness, "a", connection=1)
    assert assigned(beat(harness, "a", 2, connection=1)) is None
    assert numbers(beat(harness, "a", 2, connection=2)) == [0, 1, 2, 3, 4, 5], "the first answer may be lost"
    assert assigned(beat(harness, "a", 2, connection=2)) is None
    beat(harness, "a", 2, owned={ID: range(6)}, connection=2)
    assert assigned(beat(harness, "a", 2, connection=3)) is None


@pytest.mark.parametrize("is_given_up", [True, False])
def test_partitions_of_a_lost_answer_reach_a_member_that_sends_no_full_heartbeat(
    harness: Harness, is_given_up: bool
) -> None:
    beat(harness, "a", connection=1)
    beat(harness, "a", 2, owned={ID: range(6)}, connection=1)
    beat(harness, "b", connection=2)
    harness.pass_time(INTERVAL_MS)
    lost = beat(harness, "a", 2, connection=1)
    if is_given_up:
        assert numbers(lost) == [0, 1, 2]
        assert numbers(beat(harness, "a", 2, connection=3)) == [0, 1, 2]
        return
    beat(harness, "b", 2, connection=2)
    beat(harness, "a", 2, owned={ID: [0, 1, 2]}, connection=1)
    lost = beat(harness, "b", 3, connection=2)
    assert numbers(lost) == [3, 4, 5]
    assert numbers(beat(harness, "b", 3, connection=4)) == [3, 4, 5], "same epoch, and still without an owner"


@pytest.mark.parametrize("is_given_up", [True, False])
def test_partitions_of_an_answer_lost_before_the_coordinator_moves_reach_a_member_that_sends_no_full_heartbeat(
    harness: Harness, is_given_up: bool
) -> None:
    beat(harness, "a", connection=1)
    beat(harness, "a", 2, owned={ID: range(6)}, connection=1)
    beat(harness, "b", connection=2)
    harness.pass_time(INTERVAL_MS)
    beat(harness, "a", 2, connection=1)
    if not is_given_up:
        beat(harness, "b", 2, connection=2)
        beat(harness, "a", 2, owned={ID: [0, 1, 2]}, connection=1)
        beat(harness, "b", 3, connection=2)
    again = harness.restarted()
    again.topics = dict(harness.topics)
    if is_given_up:
        assert numbers(beat(again, "a", 2, connection=1)) == [0, 1, 2]
        assert assigned(beat(again, "a", 2, connection=1)) is None
    else:
        assert numbers(beat(again, "b", 3, connection=2)) == [3, 4, 5]


def test_late_heartbeat_does_not_give_up_what_its_member_has_got_since(harness: Harness) -> None:
    beat(harness, "a", connection=1)
    assert numbers(beat(harness, "a", connection=3)) == [0, 1, 2, 3, 4, 5], "the first answer may be lost"
    beat(harness, "b", connection=2)
    harness.pass_time(INTERVAL_MS)
    late = harness.beat("a", connection=1)
    assert late.error is E.COORDINATOR_NOT_AVAILABLE
    assert numbers(beat(harness, "b", 2, connection=2)) is None, "all partitions still belong to `a`"
    assert numbers(beat(harness, "a", 2, connection=3)) == [0, 1, 2]


def test_late_heartbeat_does_not_remove_a_member_that_has_joined_again(harness: Harness) -> None:
    beat(harness, "a", connection=1)
    beat(harness, "a", connection=3)
    assert harness.beat("a", -1, connection=1).error is E.COORDINATOR_NOT_AVAILABLE
    assert beat(harness, "a", 2, connection=3).member_epoch == 2


def test_member_id_is_made_for_a_member_of_version_0_only(harness: Harness) -> None:
    made = beat(harness, "", makes_member_id=False)
    assert made.member_id is not None
    assert len(made.member_id) == 22
    assert beat(harness, made.member_id, 2).member_epoch == 2
    assert harness.beat("").error is E.INVALID_REQUEST


def test_second_member_within_the_interval_waits_for_the_next_assignment(harness: Harness) -> None:
    beat(harness, "a")
    b = beat(harness, "b")
    assert (b.member_epoch, assigned(b)) == (2, {})
    assert harness.describe_consumers().group_state == "Assigning"
    harness.pass_time(INTERVAL_MS - 1)
    assert beat(harness, "b", 2).member_epoch == 2
    harness.pass_time(1)
    moved = beat(harness, "b", 2)
    assert (moved.member_epoch, assigned(moved)) == (3, None)
    assert harness.describe_consumers().group_state == "Reconciling"


def test_member_keeps_its_partitions_and_gives_up_the_others_before_another_has_them(harness: Harness) -> None:
    beat(harness, "a")
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    a = beat(harness, "a", 2)
    assert (a.member_epoch, numbers(a)) == (2, [0, 1, 2])
    assert beat(harness, "a", 2).member_epoch == 2, "a heartbeat without partitions confirms nothing"
    b = beat(harness, "b", 2)
    assert (b.member_epoch, assigned(b)) == (3, None)
    a = beat(harness, "a", 2, owned={ID: [0, 1, 2]})
    assert (a.member_epoch, assigned(a)) == (3, None)
    assert numbers(beat(harness, "b", 3)) == [3, 4, 5]
    described = harness.describe_consumers()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)


def test_member_that_still_has_a_partition_to_give_up_stays_where_it_is(harness: Harness) -> None:
    beat(harness, "a")
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    beat(harness, "a", 2)
    assert beat(harness, "a", 2, owned={ID: [0, 1, 2, 3]}).member_epoch == 2
    assert beat(harness, "a", 2, owned={ID: [0, 1, 2]}).member_epoch == 3


def test_leaving_member_leaves_its_partitions_to_the_others(harness: Harness) -> None:
    two_members(harness)
    left = beat(harness, "b", -1)
    assert (left.member_epoch, left.heartbeat_interval_ms, assigned(left)) == (-1, 0, None)
    harness.pass_time(INTERVAL_MS)
    a = beat(harness, "a", 3)
    assert (a.member_epoch, numbers(a)) == (4, [0, 1, 2, 3, 4, 5])
    beat(harness, "a", -1)
    assert harness.describe_consumers().group_state == "Empty"
    assert harness.listed() == {"g": "Empty"}


def test_changed_subscription_raises_the_group_epoch(harness: Harness) -> None:
    harness.topics["u"], harness.topic_ids["u"] = 2, OTHER_ID
    beat(harness, "a")
    harness.pass_time(INTERVAL_MS)
    result = beat(harness, "a", 2, topics=["t", "u"])
    assert (result.member_epoch, assigned(result)) == (3, {ID: [0, 1, 2, 3, 4, 5], OTHER_ID: [0, 1]})
    assert beat(harness, "a", 3, topics=["u", "t"]).member_epoch == 3
    harness.pass_time(INTERVAL_MS)
    assert assigned(beat(harness, "a", 3, topics=["u"])) == {OTHER_ID: [0, 1]}


def test_member_gives_up_an_unsubscribed_topic_before_the_next_target(harness: Harness) -> None:
    beat(harness, "a")
    given_up = beat(harness, "a", 2, topics=[])
    assert (given_up.member_epoch, assigned(given_up)) == (2, {})
    assert harness.describe_consumers().group_state == "Assigning"
    beat(harness, "a", 2, owned={})
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    assert numbers(beat(harness, "b", 2)) == [0, 1, 2, 3, 4, 5]


def test_topic_that_is_created_grows_or_goes_changes_the_assignment(harness: Harness) -> None:
    first = beat(harness, "a", topics=["t", "u"])
    assert assigned(first) == {ID: [0, 1, 2, 3, 4, 5]}
    harness.pass_time(INTERVAL_MS)
    harness.topics["u"], harness.topic_ids["u"] = 1, OTHER_ID
    created = beat(harness, "a", 2)
    assert (created.member_epoch, assigned(created)) == (3, {ID: [0, 1, 2, 3, 4, 5], OTHER_ID: [0]})
    harness.pass_time(INTERVAL_MS)
    harness.topics["u"] = 2
    assert assigned(beat(harness, "a", 3)) == {ID: [0, 1, 2, 3, 4, 5], OTHER_ID: [0, 1]}
    harness.pass_time(INTERVAL_MS)
    del harness.topics["u"]
    gone = beat(harness, "a", 4)
    assert (gone.member_epoch, assigned(gone)) == (4, {ID: [0, 1, 2, 3, 4, 5]})
    assert beat(harness, "a", 4, owned={ID: range(6)}).member_epoch == 5


def test_topic_of_no_member_changes_nothing(harness: Harness) -> None:
    beat(harness, "a")
    harness.pass_time(INTERVAL_MS)
    harness.topics["u"], harness.topic_ids["u"] = 1, OTHER_ID
    assert beat(harness, "a", 2).member_epoch == 2


# --- refused requests


@pytest.mark.parametrize(
    "given",
    [
        {"group": ""},
        {"epoch": -3},
        {"epoch": -2},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"owned": {ID: [0]}},
        {"topics": ["x" * 2_000_000]},
    ],
    ids=str,
)
def test_request_with_a_wrong_field_is_invalid(harness: Harness, given: dict[str, Any]) -> None:
    assert harness.beat("a", **given).error is E.INVALID_REQUEST


def test_first_request_must_name_partitions_and_topics(harness: Harness) -> None:
    def error(**given: Any) -> E:
        asked = harness._ask(
            harness.coordinator.consumer_group_heartbeat,
            ConsumerGroupHeartbeat(group_id="g", member_id="a", member_epoch=0, rebalance_timeout_ms=1, **given),
        )
        return asked.error

    assert error(topic_partitions=[]) is E.INVALID_REQUEST
    assert error(subscribed_topic_names=[]) is E.INVALID_REQUEST
    assert error(subscribed_topic_names=[], topic_partitions=[]) is E.NONE


def test_unknown_assignor_group_member_and_pattern_have_their_errors(harness: Harness) -> None:
    assert harness.beat("a", server_assignor="sticky").error is E.UNSUPPORTED_ASSIGNOR
    assert harness.beat("a", subscribed_topic_regex="t(?=.)").error is E.INVALID_REGULAR_EXPRESSION
    assert harness.beat("a", 1).error is E.GROUP_ID_NOT_FOUND
    assert harness.beat("a", -1).error is E.GROUP_ID_NOT_FOUND
    beat(harness, "a")
    assert harness.beat("b", 2).error is E.UNKNOWN_MEMBER_ID
    assert harness.beat("b", -1).error is E.UNKNOWN_MEMBER_ID
    assert harness.listed() == {"g": "Stable"}


def test_refused_first_heartbeat_leaves_no_group(harness: Harness) -> None:
    harness = Harness(group_consumer_max_size=0)
    assert harness.beat("a").error is E.GROUP_MAX_SIZE_REACHED
    assert harness.listed() == {}


def test_group_at_its_maximum_size_refuses_new_members(harness: Harness) -> None:
    harness = Harness(group_consumer_max_size=1)
    beat(harness, "a")
    assert harness.beat("b").error is E.GROUP_MAX_SIZE_REACHED
    beat(harness, "a")


def test_coordinator_without_memory_for_members_refuses_new_ones() -> None:
    harness = Harness(members_max_bytes=5_000)
    beat(harness, "a")
    beat(harness, "b")
    assert harness.beat("c").error is E.COORDINATOR_NOT_AVAILABLE
    beat(harness, "a", 2)


def test_epochs_other_than_the_members_are_fenced(harness: Harness) -> None:
    two_members(harness)
    assert harness.beat("a", 4).error is E.FENCED_MEMBER_EPOCH
    result = harness.beat("a", 2).result
    assert (result.error, result.member_epoch, result.heartbeat_interval_ms) == (E.FENCED_MEMBER_EPOCH, 0, 0)


def test_heartbeat_after_a_lost_answer_is_accepted_with_the_previous_epoch(harness: Harness) -> None:
    two_members(harness)
    again = beat(harness, "a", 2, owned={ID: [0, 1]}, topics=["t"], rebalance_timeout_ms=30_000)
    assert (again.member_epoch, numbers(again)) == (3, [0, 1, 2])
    assert harness.beat("a", 2, owned={ID: [0, 4]}).error is E.FENCED_MEMBER_EPOCH
    assert harness.beat("a", 1, owned={ID: [0]}).error is E.FENCED_MEMBER_EPOCH


def test_member_may_join_again_with_its_id_at_any_time(harness: Harness) -> None:
    two_members(harness)
    again = beat(harness, "a")
    assert (again.member_epoch, numbers(again)) == (3, [0, 1, 2])
    assert harness.describe_consumers().group_epoch == 3


def test_coordinator_elsewhere_or_loading(harness: Harness) -> None:
    loading = Harness(load=False)
    assert loading.beat("a").error is E.NOT_COORDINATOR
    loading.coordinator.begin_load(loading.coordinator.partition_of("g"))
    assert loading.beat("a").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert loading.beat("a", -3).error is E.INVALID_REQUEST
    assert loading.describe_consumers().error is E.COORDINATOR_LOAD_IN_PROGRESS


# --- sessions and timers


def test_silent_member_is_removed_after_its_session(harness: Harness) -> None:
    two_members(harness)
    harness.pass_time(SESSION_MS - 1)
    beat(harness, "a", 3)
    harness.pass_time(1)
    assert harness.beat("b", 3).error is E.UNKNOWN_MEMBER_ID
    assert numbers(beat(harness, "a", 3)) == [0, 1, 2, 3, 4, 5]


def test_member_that_does_not_give_up_its_partitions_in_time_is_removed(harness: Harness) -> None:
    beat(harness, "a", rebalance_timeout_ms=10_000)
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    beat(harness, "a", 2)
    harness.pass_time(5_000)
    assert beat(harness, "a", 2).member_epoch == 2
    harness.pass_time(5_000)
    assert harness.beat("a", 2).error is E.UNKNOWN_MEMBER_ID
    assert numbers(beat(harness, "b", 2)) == [0, 1, 2, 3, 4, 5]


def test_confirmed_member_has_no_rebalance_timeout_left(harness: Harness) -> None:
    two_members(harness)
    for _ in range(4):
        harness.pass_time(30_000)
        beat(harness, "a", 3)
        beat(harness, "b", 3)


# --- static members


def test_static_member_returns_to_its_partitions_without_a_rebalance(harness: Harness) -> None:
    beat(harness, "a", instance_id="one")
    assert beat(harness, "a", -2, instance_id="one").member_epoch == -2
    harness.pass_time(INTERVAL_MS)
    back = beat(harness, "b", instance_id="one")
    assert (back.member_epoch, numbers(back)) == (2, [0, 1, 2, 3, 4, 5])
    described = harness.describe_consumers()
    assert [each.member_id for each in described.members] == ["b"]
    assert (described.group_epoch, described.members[0].instance_id) == (2, "one")
    assert harness.restarted().describe_consumers() == described


def test_static_member_that_does_not_return_is_removed(harness: Harness) -> None:
    beat(harness, "a", instance_id="one")
    beat(harness, "a", -2, instance_id="one")
    harness.pass_time(SESSION_MS)
    assert harness.describe_consumers().group_state == "Empty"


def test_instance_id_belongs_to_one_member(harness: Harness) -> None:
    beat(harness, "a", instance_id="one")
    assert harness.beat("b", instance_id="one").error is E.UNRELEASED_INSTANCE_ID
    assert harness.beat("b", 2, instance_id="one").error is E.FENCED_INSTANCE_ID
    assert harness.beat("b", -1, instance_id="one").error is E.FENCED_INSTANCE_ID
    assert harness.beat("a", 2, instance_id="two").error is E.UNKNOWN_MEMBER_ID
    assert beat(harness, "a", instance_id="one").member_epoch == 2
    beat(harness, "a", -1, instance_id="one")
    harness.pass_time(INTERVAL_MS)
    assert beat(harness, "b", instance_id="one").member_epoch == 4


# --- offsets


def test_commit_needs_a_member_and_its_epoch(harness: Harness) -> None:
    two_members(harness)

    def error(member: str, epoch: int, number: int = 0, **given: Any) -> E:
        given = {"knows_group_id_not_found": True, **given}
        result = harness.commit("g", {("t", number): 5}, member=member, generation=epoch, **given).result
        return E(result.partitions[0].error)

    assert error("a", 3) is E.NONE
    assert error("a", 3, 5) is E.NONE
    assert error("a", 3, knows_group_id_not_found=False) is E.UNSUPPORTED_VERSION
    assert error("a", 4) is E.STALE_MEMBER_EPOCH
    assert error("a", 2) is E.NONE, "since epoch 2 it has the partition"
    assert error("a", 1) is E.STALE_MEMBER_EPOCH
    assert error("a", 2, 3) is E.STALE_MEMBER_EPOCH, "it has confirmed to have given it up"
    assert error("c", 3) is E.UNKNOWN_MEMBER_ID
    assert error("", -1) is E.UNKNOWN_MEMBER_ID


def test_member_commits_what_it_is_giving_up(harness: Harness) -> None:
    beat(harness, "a")
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    beat(harness, "a", 2)
    given = {"member": "a", "generation": 2, "knows_group_id_not_found": True}
    assert harness.commit("g", {("t", 5): 1}, **given).result.partitions[0].error is E.NONE  # type: ignore[arg-type]


def test_offsets_of_an_empty_group_may_be_set_by_anybody(harness: Harness) -> None:
    beat(harness, "a")
    beat(harness, "a", -1)
    assert harness.commit("g", {("t", 0): 7}).result.partitions[0].error is E.NONE
    assert harness.committed("g", ("t", 0)) == {("t", 0): 7}


def test_fetch_of_offsets_needs_no_member_but_a_named_one_needs_its_epoch(harness: Harness) -> None:
    two_members(harness)

    def error(member: str | None, epoch: int) -> E:
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id="g", member_id=member, member_epoch=epoch)])
        return E(harness._ask(harness.coordinator.fetch_offsets, request).result.groups[0].error)

    assert error(None, -1) is E.NONE
    assert error("a", 3) is E.NONE
    assert error("a", 2) is E.STALE_MEMBER_EPOCH
    assert error("c", 3) is E.UNKNOWN_MEMBER_ID


def test_commit_in_a_transaction_hears_of_generations(harness: Harness) -> None:
    two_members(harness)

    def error(member: str, epoch: int, number: int = 0) -> E:
        result = harness.commit_in(1, "g", {("t", number): 5}, member=member, generation=epoch).result
        return E(result.partitions[0].error)

    assert error("a", 3) is E.NONE
    assert error("", -1) is E.NONE
    assert error("a", 4) is E.ILLEGAL_GENERATION
    assert error("a", 2, 4) is E.ILLEGAL_GENERATION
    assert error("c", 3) is E.UNKNOWN_MEMBER_ID


# --- other types of groups


def test_empty_group_of_the_classic_protocol_is_replaced_with_its_offsets(harness: Harness) -> None:
    member, generation = harness.stable()
    harness.commit("g", {("t", 0): 7}, member=member, generation=generation)
    harness.leave("g", member)
    assert beat(harness, "a").member_epoch == 2
    assert harness.committed("g", ("t", 0)) == {("t", 0): 7}
    again = harness.restarted()
    assert again.describe_consumers().group_state == "Stable"
    assert again.committed("g", ("t", 0)) == {("t", 0): 7}


def test_empty_consumer_group_is_replaced_by_one_of_the_classic_protocol(harness: Harness) -> None:
    beat(harness, "a")
    assert harness.join().error is E.INCONSISTENT_GROUP_PROTOCOL
    beat(harness, "a", -1)
    harness.stable()
    assert harness.describe().state == "Stable"
    assert harness.describe_consumers().error is E.GROUP_ID_NOT_FOUND
    assert harness.restarted().describe().state == "Stable"


def test_classic_requests_do_not_know_consumer_groups(harness: Harness) -> None:
    beat(harness, "a")
    assert harness.heartbeat("g", "a", 2) is E.UNKNOWN_MEMBER_ID
    assert harness.sync("g", "a", 2).error is E.UNKNOWN_MEMBER_ID
    assert harness.leave("g", "a").members[0].error is E.UNKNOWN_MEMBER_ID
    described = harness.describe()
    assert (described.error, described.state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group g is not a classic group."


def test_heartbeat_to_a_classic_group_with_members_is_refused(harness: Harness) -> None:
    harness.stable()
    assert harness.beat("a").error is E.GROUP_ID_NOT_FOUND
    described = harness.describe_consumers()
    assert (described.error, described.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


# --- what is written and loaded


def test_restarted_coordinator_has_the_same_group(harness: Harness) -> None:
    two_members(harness)
    again = harness.restarted()
    again.topics = dict(harness.topics)
    assert again.describe_consumers() == harness.describe_consumers()
    assert beat(again, "a", 3).member_epoch == 3
    again.pass_time(SESSION_MS)
    assert again.describe_consumers().group_state == "Empty"


def test_restarted_coordinator_waits_for_what_a_member_gives_up(harness: Harness) -> None:
    beat(harness, "a")
    beat(harness, "b")
    harness.pass_time(INTERVAL_MS)
    beat(harness, "a", 2)
    again = harness.restarted()
    again.topics = dict(harness.topics)
    assert assigned(beat(again, "b", 2)) == {}
    assert beat(again, "a", 2, owned={ID: [0, 1, 2]}).member_epoch == 3
    assert numbers(beat(again, "b", 3)) == [3, 4, 5]
    third = Harness({partition: list(records) for partition, records in harness.log.items()})
    third.topics = dict(harness.topics)
    third.pass_time(30_000)
    assert third.beat("a", 2).error is E.UNKNOWN_MEMBER_ID


def records_of(harness: Harness) -> list[Record]:
    return harness.log[harness.coordinator.partition_of("g")]


def test_member_that_leaves_and_group_that_is_deleted_have_tombstones_in_kafkas_order(harness: Harness) -> None:
    beat(harness, "a")
    before = len(records_of(harness))
    beat(harness, "a", -1)
    current, target, member, group = (
        ConsumerRecord.CURRENT_ASSIGNMENT,
        ConsumerRecord.TARGET_ASSIGNMENT_OF_MEMBER,
        ConsumerRecord.MEMBER,
        ConsumerRecord.GROUP,
    )
    left = records_of(harness)[before:]
    assert left[:3] == [(encode_key(kind, "g", "a"), None) for kind in (current, target, member)]
    assert left[3][0] == encode_key(group, "g")
    assert left[3][1] is not None
    assert harness.delete("g") == [E.NONE]
    assert records_of(harness)[-1] == (encode_key(group, "g"), None)
    assert harness.restarted().listed() == {}


def test_group_with_members_is_not_deleted(harness: Harness) -> None:
    beat(harness, "a")
    assert harness.delete("g") == [E.NON_EMPTY_GROUP]


def test_heartbeat_that_changes_nothing_writes_nothing(harness: Harness) -> None:
    beat(harness, "a")
    before = harness.appends
    for _ in range(5):
        beat(harness, "a", 2)
    assert harness.appends == before


def test_answer_waits_for_the_records_of_the_group(harness: Harness) -> None:
    harness.hold = True
    a = harness.beat("a")
    b = harness.beat("b")
    unchanged = harness.beat("a", 2)  # what it says may not be in the log yet

    def waiting() -> list[bool]:
        return [asked.waits for asked in (a, b, unchanged)]

    assert waiting() == [True, True, True]
    harness.finish()
    assert waiting() == [False, True, True]
    harness.finish()
    assert waiting() == [False, False, False]


def test_member_whose_write_failed_tries_again_and_gets_the_same(harness: Harness) -> None:
    harness.error = E.NOT_ENOUGH_REPLICAS
    assert harness.beat("a").error is E.COORDINATOR_NOT_AVAILABLE
    harness.error = E.NONE
    again = beat(harness, "a")
    assert numbers(again) == [0, 1, 2, 3, 4, 5]
    assert harness.restarted().describe_consumers().members[0].member_epoch == again.member_epoch


def test_records_whose_append_failed_are_written_with_the_next_or_after_a_second(harness: Harness) -> None:
    beat(harness, "a")
    harness.error = E.NOT_ENOUGH_REPLICAS
    assert harness.beat("a", -1).error is E.COORDINATOR_NOT_AVAILABLE
    assert harness.restarted().describe_consumers().group_state == "Stable"
    harness.error = E.NONE
    harness.pass_time(1_000)
    assert harness.restarted().describe_consumers().group_state == "Empty"


def test_group_without_members_and_offsets_is_removed_in_time(harness: Harness) -> None:
    beat(harness, "a")
    beat(harness, "a", -1)
    harness.coordinator.start()
    harness.pass_time(harness.coordinator.config.offsets_retention_check_interval_ms)
    assert harness.listed() == {}
    assert harness.restarted().listed() == {}


def test_offsets_of_topics_that_members_read_do_not_expire() -> None:
    harness = Harness(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=1_000)
    harness.topic_ids["u"] = OTHER_ID
    beat(harness, "a")
    given: dict[str, Any] = {"member": "a", "generation": 2, "knows_group_id_not_found": True}
    harness.commit("g", {("t", 0): 1, ("u", 0): 1}, **given)
    harness.coordinator.start()
    for _ in range(5):
        harness.pass_time(HEARTBEAT_MS)
        beat(harness, "a", 2)
    assert harness.committed("g") == {("t", 0): 1}


def test_restarted_coordinator_knows_static_members_and_the_assignor_they_ask_for(harness: Harness) -> None:
    beat(harness, "a", instance_id="i", server_assignor="range")
    other = harness.restarted()
    other.topics = harness.topics
    assert other.describe_consumers().assignor_name == "range"
    assert other.beat("b", instance_id="i").error is E.UNRELEASED_INSTANCE_ID
    beat(other, "a", -2, instance_id="i")
    assert numbers(beat(other, "b", instance_id="i")) == [0, 1, 2, 3, 4, 5]
    assert [each.member_id for each in other.describe_consumers().members] == ["b"]
