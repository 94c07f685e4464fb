"""Consumer groups by KIP-848 asked through the coordinator."""

from typing import Any

import pytest
from support.group_house import ID, OTHER_ID, House

from barnabas.core.coordinator.group.consumer_records import ConsumerRecord, encode_key
from barnabas.core.coordinator.log import Record
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from barnabas.ports.broker_api.groups import OffsetFetch, OffsetFetchGroup
from barnabas.ports.error_codes import ErrorCode as E

HEARTBEAT_MS, SESSION_MS, INTERVAL_MS = 5_000, 45_000, 1_000


@pytest.fixture
def house() -> House:
    made = House()
    made.topics = {"t": 6}
    return made


def assigned(result: ConsumerGroupHeartbeatResult) -> dict[bytes, list[int]] | None:
    if result.assignment is None:
        return None
    return {each.topic_id: list(each.partitions) for each in result.assignment}


def numbers(result: ConsumerGroupHeartbeatResult) -> list[int] | None:
    """The partitions of the topic `t`; None: as before."""
    found = assigned(result)
    return None if found is None else found.get(ID, [])


def beat(house: House, member: str, epoch: int = 0, **given: Any) -> ConsumerGroupHeartbeatResult:
    """A heartbeat that is answered without an error."""
    result = house.beat(member, epoch, **given).result
    assert isinstance(result, ConsumerGroupHeartbeatResult)
    assert result.error is E.NONE, result
    return result


def two_members(house: House) -> tuple[int, int]:
    """Let `a` and `b` have three partitions each; return their epochs."""
    beat(house, "a")
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    got = beat(house, "a", 2)
    assert numbers(got) == [0, 1, 2]
    a = beat(house, "a", 2, owned={ID: [0, 1, 2]})
    b = beat(house, "b", 2)
    assert (a.member_epoch, b.member_epoch, numbers(b)) == (3, 3, [3, 4, 5])
    return 3, 3


def test_change_reaches_all_members_within_the_heartbeat_interval(house: House) -> None:
    a, b = two_members(house)
    intervals = {beat(house, member, epoch).heartbeat_interval_ms for member, epoch in (("a", a), ("b", b))}
    assert len(intervals) == 2  # so that they do not stay together
    assert all(0.85 * HEARTBEAT_MS <= each <= 0.95 * HEARTBEAT_MS for each in intervals)


def test_static_member_with_nothing_new_is_answered_as_others_are(house: House) -> None:
    beat(house, "a", instance_id="i")
    before = house.appends
    assert beat(house, "a", 2, instance_id="i").member_epoch == 2
    assert beat(house, "a", 2).member_epoch == 2
    assert house.appends == before


# --- joining and what the answers say


def test_first_member_gets_all_partitions_in_its_first_answer(house: House) -> None:
    result = beat(house, "a")
    assert (result.member_id, result.member_epoch, result.heartbeat_interval_ms) == ("a", 2, HEARTBEAT_MS)
    assert assigned(result) == {ID: [0, 1, 2, 3, 4, 5]}
    assert house.describe_consumers().group_state == "Stable"


def test_assignment_is_absent_unless_it_has_changed_or_the_request_is_full(house: House) -> None:
    beat(house, "a")
    assert assigned(beat(house, "a", 2)) is None
    assert assigned(beat(house, "a", 2, owned={ID: range(6)})) is None
    full = beat(house, "a", 2, owned={ID: range(6)}, topics=["t"], rebalance_timeout_ms=30_000)
    assert numbers(full) == [0, 1, 2, 3, 4, 5]


def test_member_id_is_made_for_a_member_of_version_0_only(house: House) -> None:
    made = beat(house, "", makes_member_id=False)
    assert made.member_id is not None
    assert len(made.member_id) == 22
    assert beat(house, made.member_id, 2).member_epoch == 2
    assert house.beat("").error is E.INVALID_REQUEST


def test_second_member_within_the_interval_waits_for_the_next_assignment(house: House) -> None:
    beat(house, "a")
    b = beat(house, "b")
    assert (b.member_epoch, assigned(b)) == (2, {})
    assert house.describe_consumers().group_state == "Assigning"
    house.pass_time(INTERVAL_MS - 1)
    assert beat(house, "b", 2).member_epoch == 2
    house.pass_time(1)
    moved = beat(house, "b", 2)
    assert (moved.member_epoch, assigned(moved)) == (3, None)
    assert house.describe_consumers().group_state == "Reconciling"


def test_member_keeps_its_partitions_and_gives_up_the_others_before_another_has_them(house: House) -> None:
    beat(house, "a")
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    a = beat(house, "a", 2)
    assert (a.member_epoch, numbers(a)) == (2, [0, 1, 2])
    assert beat(house, "a", 2).member_epoch == 2, "a heartbeat without partitions confirms nothing"
    b = beat(house, "b", 2)
    assert (b.member_epoch, assigned(b)) == (3, None)
    a = beat(house, "a", 2, owned={ID: [0, 1, 2]})
    assert (a.member_epoch, assigned(a)) == (3, None)
    assert numbers(beat(house, "b", 3)) == [3, 4, 5]
    described = house.describe_consumers()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)


def test_member_that_still_has_a_partition_to_give_up_stays_where_it_is(house: House) -> None:
    beat(house, "a")
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    beat(house, "a", 2)
    assert beat(house, "a", 2, owned={ID: [0, 1, 2, 3]}).member_epoch == 2
    assert beat(house, "a", 2, owned={ID: [0, 1, 2]}).member_epoch == 3


def test_leaving_member_leaves_its_partitions_to_the_others(house: House) -> None:
    two_members(house)
    left = beat(house, "b", -1)
    assert (left.member_epoch, left.heartbeat_interval_ms, assigned(left)) == (-1, 0, None)
    house.pass_time(INTERVAL_MS)
    a = beat(house, "a", 3)
    assert (a.member_epoch, numbers(a)) == (4, [0, 1, 2, 3, 4, 5])
    beat(house, "a", -1)
    assert house.describe_consumers().group_state == "Empty"
    assert house.listed() == {"g": "Empty"}


def test_changed_subscription_raises_the_group_epoch(house: House) -> None:
    house.topics["u"], house.topic_ids["u"] = 2, OTHER_ID
    beat(house, "a")
    house.pass_time(INTERVAL_MS)
    result = beat(house, "a", 2, topics=["t", "u"])
    assert (result.member_epoch, assigned(result)) == (3, {ID: [0, 1, 2, 3, 4, 5], OTHER_ID: [0, 1]})
    assert beat(house, "a", 3, topics=["u", "t"]).member_epoch == 3
    house.pass_time(INTERVAL_MS)
    assert assigned(beat(house, "a", 3, topics=["u"])) == {OTHER_ID: [0, 1]}


def test_member_gives_up_an_unsubscribed_topic_before_the_next_target(house: House) -> None:
    beat(house, "a")
    given_up = beat(house, "a", 2, topics=[])
    assert (given_up.member_epoch, assigned(given_up)) == (2, {})
    assert house.describe_consumers().group_state == "Assigning"
    beat(house, "a", 2, owned={})
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    assert numbers(beat(house, "b", 2)) == [0, 1, 2, 3, 4, 5]


def test_topic_that_is_created_grows_or_goes_changes_the_assignment(house: House) -> None:
    first = beat(house, "a", topics=["t", "u"])
    assert assigned(first) == {ID: [0, 1, 2, 3, 4, 5]}
    house.pass_time(INTERVAL_MS)
    house.topics["u"], house.topic_ids["u"] = 1, OTHER_ID
    created = beat(house, "a", 2)
    assert (created.member_epoch, assigned(created)) == (3, {ID: [0, 1, 2, 3, 4, 5], OTHER_ID: [0]})
    house.pass_time(INTERVAL_MS)
    house.topics["u"] = 2
    assert assigned(beat(house, "a", 3)) == {ID: [0, 1, 2, 3, 4, 5], OTHER_ID: [0, 1]}
    house.pass_time(INTERVAL_MS)
    del house.topics["u"]
    gone = beat(house, "a", 4)
    assert (gone.member_epoch, assigned(gone)) == (4, {ID: [0, 1, 2, 3, 4, 5]})
    assert beat(house, "a", 4, owned={ID: range(6)}).member_epoch == 5


def test_topic_of_no_member_changes_nothing(house: House) -> None:
    beat(house, "a")
    house.pass_time(INTERVAL_MS)
    house.topics["u"], house.topic_ids["u"] = 1, OTHER_ID
    assert beat(house, "a", 2).member_epoch == 2


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
def test_request_with_a_wrong_field_is_invalid(house: House, given: dict[str, Any]) -> None:
    assert house.beat("a", **given).error is E.INVALID_REQUEST


def test_first_request_must_name_partitions_and_topics(house: House) -> None:
    def error(**given: Any) -> E:
        asked = house._ask(
            house.coordinator.consumer_group_heartbeat,
            ConsumerGroupHeartbeat(group_id="g", member_id="a", member_epoch=0, rebalance_timeout_ms=1, **given),
        )
        return asked.error

    assert error(topic_partitions=[]) is E.INVALID_REQUEST
    assert error(subscribed_topic_names=[]) is E.INVALID_REQUEST
    assert error(subscribed_topic_names=[], topic_partitions=[]) is E.NONE


def test_unknown_assignor_group_member_and_pattern_have_their_errors(house: House) -> None:
    assert house.beat("a", server_assignor="sticky").error is E.UNSUPPORTED_ASSIGNOR
    assert house.beat("a", subscribed_topic_regex="t(?=.)").error is E.INVALID_REGULAR_EXPRESSION
    assert house.beat("a", 1).error is E.GROUP_ID_NOT_FOUND
    assert house.beat("a", -1).error is E.GROUP_ID_NOT_FOUND
    beat(house, "a")
    assert house.beat("b", 2).error is E.UNKNOWN_MEMBER_ID
    assert house.beat("b", -1).error is E.UNKNOWN_MEMBER_ID
    assert house.listed() == {"g": "Stable"}


def test_refused_first_heartbeat_leaves_no_group(house: House) -> None:
    house = House(group_consumer_max_size=0)
    assert house.beat("a").error is E.GROUP_MAX_SIZE_REACHED
    assert house.listed() == {}


def test_group_at_its_maximum_size_refuses_new_members(house: House) -> None:
    house = House(group_consumer_max_size=1)
    beat(house, "a")
    assert house.beat("b").error is E.GROUP_MAX_SIZE_REACHED
    beat(house, "a")


def test_coordinator_without_memory_for_members_refuses_new_ones() -> None:
    house = House(members_max_bytes=5_000)
    beat(house, "a")
    beat(house, "b")
    assert house.beat("c").error is E.COORDINATOR_NOT_AVAILABLE
    beat(house, "a", 2)


def test_epochs_other_than_the_members_are_fenced(house: House) -> None:
    two_members(house)
    assert house.beat("a", 4).error is E.FENCED_MEMBER_EPOCH
    result = house.beat("a", 2).result
    assert (result.error, result.member_epoch, result.heartbeat_interval_ms) == (E.FENCED_MEMBER_EPOCH, 0, 0)


def test_heartbeat_after_a_lost_answer_is_accepted_with_the_previous_epoch(house: House) -> None:
    two_members(house)
    again = beat(house, "a", 2, owned={ID: [0, 1]}, topics=["t"], rebalance_timeout_ms=30_000)
    assert (again.member_epoch, numbers(again)) == (3, [0, 1, 2])
    assert house.beat("a", 2, owned={ID: [0, 4]}).error is E.FENCED_MEMBER_EPOCH
    assert house.beat("a", 1, owned={ID: [0]}).error is E.FENCED_MEMBER_EPOCH


def test_member_may_join_again_with_its_id_at_any_time(house: House) -> None:
    two_members(house)
    again = beat(house, "a")
    assert (again.member_epoch, numbers(again)) == (3, [0, 1, 2])
    assert house.describe_consumers().group_epoch == 3


def test_coordinator_elsewhere_or_loading(house: House) -> None:
    loading = House(load=False)
    assert loading.beat("a").error is E.NOT_COORDINATOR
    loading.coordinator.begin_load(loading.coordinator.partition_of("g"))
    assert loading.beat("a").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert loading.beat("a", -3).error is E.INVALID_REQUEST
    assert loading.describe_consumers().error is E.COORDINATOR_LOAD_IN_PROGRESS


# --- sessions and timers


def test_silent_member_is_removed_after_its_session(house: House) -> None:
    two_members(house)
    house.pass_time(SESSION_MS - 1)
    beat(house, "a", 3)
    house.pass_time(1)
    assert house.beat("b", 3).error is E.UNKNOWN_MEMBER_ID
    assert numbers(beat(house, "a", 3)) == [0, 1, 2, 3, 4, 5]


def test_member_that_does_not_give_up_its_partitions_in_time_is_removed(house: House) -> None:
    beat(house, "a", rebalance_timeout_ms=10_000)
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    beat(house, "a", 2)
    house.pass_time(5_000)
    assert beat(house, "a", 2).member_epoch == 2
    house.pass_time(5_000)
    assert house.beat("a", 2).error is E.UNKNOWN_MEMBER_ID
    assert numbers(beat(house, "b", 2)) == [0, 1, 2, 3, 4, 5]


def test_confirmed_member_has_no_rebalance_timeout_left(house: House) -> None:
    two_members(house)
    for _ in range(4):
        house.pass_time(30_000)
        beat(house, "a", 3)
        beat(house, "b", 3)


# --- static members


def test_static_member_returns_to_its_partitions_without_a_rebalance(house: House) -> None:
    beat(house, "a", instance_id="one")
    assert beat(house, "a", -2, instance_id="one").member_epoch == -2
    house.pass_time(INTERVAL_MS)
    back = beat(house, "b", instance_id="one")
    assert (back.member_epoch, numbers(back)) == (2, [0, 1, 2, 3, 4, 5])
    described = house.describe_consumers()
    assert [each.member_id for each in described.members] == ["b"]
    assert (described.group_epoch, described.members[0].instance_id) == (2, "one")
    assert house.restarted().describe_consumers() == described


def test_static_member_that_does_not_return_is_removed(house: House) -> None:
    beat(house, "a", instance_id="one")
    beat(house, "a", -2, instance_id="one")
    house.pass_time(SESSION_MS)
    assert house.describe_consumers().group_state == "Empty"


def test_instance_id_belongs_to_one_member(house: House) -> None:
    beat(house, "a", instance_id="one")
    assert house.beat("b", instance_id="one").error is E.UNRELEASED_INSTANCE_ID
    assert house.beat("b", 2, instance_id="one").error is E.FENCED_INSTANCE_ID
    assert house.beat("b", -1, instance_id="one").error is E.FENCED_INSTANCE_ID
    assert house.beat("a", 2, instance_id="two").error is E.UNKNOWN_MEMBER_ID
    assert beat(house, "a", instance_id="one").member_epoch == 2
    beat(house, "a", -1, instance_id="one")
    house.pass_time(INTERVAL_MS)
    assert beat(house, "b", instance_id="one").member_epoch == 4


# --- offsets


def test_commit_needs_a_member_and_its_epoch(house: House) -> None:
    two_members(house)

    def error(member: str, epoch: int, number: int = 0, **given: Any) -> E:
        given = {"knows_group_id_not_found": True, **given}
        result = house.commit("g", {("t", number): 5}, member=member, generation=epoch, **given).result
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


def test_member_commits_what_it_is_giving_up(house: House) -> None:
    beat(house, "a")
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    beat(house, "a", 2)
    given = {"member": "a", "generation": 2, "knows_group_id_not_found": True}
    assert house.commit("g", {("t", 5): 1}, **given).result.partitions[0].error is E.NONE  # type: ignore[arg-type]


def test_offsets_of_an_empty_group_may_be_set_by_anybody(house: House) -> None:
    beat(house, "a")
    beat(house, "a", -1)
    assert house.commit("g", {("t", 0): 7}).result.partitions[0].error is E.NONE
    assert house.committed("g", ("t", 0)) == {("t", 0): 7}


def test_fetch_of_offsets_needs_no_member_but_a_named_one_needs_its_epoch(house: House) -> None:
    two_members(house)

    def error(member: str | None, epoch: int) -> E:
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id="g", member_id=member, member_epoch=epoch)])
        return E(house._ask(house.coordinator.fetch_offsets, request).result.groups[0].error)

    assert error(None, -1) is E.NONE
    assert error("a", 3) is E.NONE
    assert error("a", 2) is E.STALE_MEMBER_EPOCH
    assert error("c", 3) is E.UNKNOWN_MEMBER_ID


def test_commit_in_a_transaction_hears_of_generations(house: House) -> None:
    two_members(house)

    def error(member: str, epoch: int, number: int = 0) -> E:
        result = house.commit_in(1, "g", {("t", number): 5}, member=member, generation=epoch).result
        return E(result.partitions[0].error)

    assert error("a", 3) is E.NONE
    assert error("", -1) is E.NONE
    assert error("a", 4) is E.ILLEGAL_GENERATION
    assert error("a", 2, 4) is E.ILLEGAL_GENERATION
    assert error("c", 3) is E.UNKNOWN_MEMBER_ID


# --- other types of groups


def test_empty_group_of_the_classic_protocol_is_replaced_with_its_offsets(house: House) -> None:
    member, generation = house.stable()
    house.commit("g", {("t", 0): 7}, member=member, generation=generation)
    house.leave("g", member)
    assert beat(house, "a").member_epoch == 2
    assert house.committed("g", ("t", 0)) == {("t", 0): 7}
    again = house.restarted()
    assert again.describe_consumers().group_state == "Stable"
    assert again.committed("g", ("t", 0)) == {("t", 0): 7}


def test_empty_consumer_group_is_replaced_by_one_of_the_classic_protocol(house: House) -> None:
    beat(house, "a")
    assert house.join().error is E.INCONSISTENT_GROUP_PROTOCOL
    beat(house, "a", -1)
    house.stable()
    assert house.describe().state == "Stable"
    assert house.describe_consumers().error is E.GROUP_ID_NOT_FOUND
    assert house.restarted().describe().state == "Stable"


def test_classic_requests_do_not_know_consumer_groups(house: House) -> None:
    beat(house, "a")
    assert house.heartbeat("g", "a", 2) is E.UNKNOWN_MEMBER_ID
    assert house.sync("g", "a", 2).error is E.UNKNOWN_MEMBER_ID
    assert house.leave("g", "a").members[0].error is E.UNKNOWN_MEMBER_ID
    described = house.describe()
    assert (described.error, described.state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group g is not a classic group."


def test_heartbeat_to_a_classic_group_with_members_is_refused(house: House) -> None:
    house.stable()
    assert house.beat("a").error is E.GROUP_ID_NOT_FOUND
    described = house.describe_consumers()
    assert (described.error, described.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


# --- what is written and loaded


def test_restarted_coordinator_has_the_same_group(house: House) -> None:
    two_members(house)
    again = house.restarted()
    again.topics = dict(house.topics)
    assert again.describe_consumers() == house.describe_consumers()
    assert beat(again, "a", 3).member_epoch == 3
    again.pass_time(SESSION_MS)
    assert again.describe_consumers().group_state == "Empty"


def test_restarted_coordinator_waits_for_what_a_member_gives_up(house: House) -> None:
    beat(house, "a")
    beat(house, "b")
    house.pass_time(INTERVAL_MS)
    beat(house, "a", 2)
    again = house.restarted()
    again.topics = dict(house.topics)
    assert assigned(beat(again, "b", 2)) is None
    assert beat(again, "a", 2, owned={ID: [0, 1, 2]}).member_epoch == 3
    assert numbers(beat(again, "b", 3)) == [3, 4, 5]
    third = House({partition: list(records) for partition, records in house.log.items()})
    third.topics = dict(house.topics)
    third.pass_time(30_000)
    assert third.beat("a", 2).error is E.UNKNOWN_MEMBER_ID


def records_of(house: House) -> list[Record]:
    return house.log[house.coordinator.partition_of("g")]


def test_member_that_leaves_and_group_that_is_deleted_have_tombstones_in_kafkas_order(house: House) -> None:
    beat(house, "a")
    before = len(records_of(house))
    beat(house, "a", -1)
    current, target, member, group = (
        ConsumerRecord.CURRENT_ASSIGNMENT,
        ConsumerRecord.TARGET_ASSIGNMENT_OF_MEMBER,
        ConsumerRecord.MEMBER,
        ConsumerRecord.GROUP,
    )
    left = records_of(house)[before:]
    assert left[:3] == [(encode_key(kind, "g", "a"), None) for kind in (current, target, member)]
    assert left[3][0] == encode_key(group, "g")
    assert left[3][1] is not None
    assert house.delete("g") == [E.NONE]
    assert records_of(house)[-1] == (encode_key(group, "g"), None)
    assert house.restarted().listed() == {}


def test_group_with_members_is_not_deleted(house: House) -> None:
    beat(house, "a")
    assert house.delete("g") == [E.NON_EMPTY_GROUP]


def test_heartbeat_that_changes_nothing_writes_nothing(house: House) -> None:
    beat(house, "a")
    before = house.appends
    for _ in range(5):
        beat(house, "a", 2)
    assert house.appends == before


def test_answer_waits_for_the_records_of_the_group(house: House) -> None:
    house.hold = True
    a = house.beat("a")
    b = house.beat("b")
    unchanged = house.beat("a", 2)  # what it says may not be in the log yet

    def waiting() -> list[bool]:
        return [asked.waits for asked in (a, b, unchanged)]

    assert waiting() == [True, True, True]
    house.finish()
    assert waiting() == [False, True, True]
    house.finish()
    assert waiting() == [False, False, False]


def test_member_whose_write_failed_tries_again_and_gets_the_same(house: House) -> None:
    house.error = E.NOT_ENOUGH_REPLICAS
    assert house.beat("a").error is E.COORDINATOR_NOT_AVAILABLE
    house.error = E.NONE
    again = beat(house, "a")
    assert numbers(again) == [0, 1, 2, 3, 4, 5]
    assert house.restarted().describe_consumers().members[0].member_epoch == again.member_epoch


def test_records_whose_append_failed_are_written_with_the_next_or_after_a_second(house: House) -> None:
    beat(house, "a")
    house.error = E.NOT_ENOUGH_REPLICAS
    assert house.beat("a", -1).error is E.COORDINATOR_NOT_AVAILABLE
    assert house.restarted().describe_consumers().group_state == "Stable"
    house.error = E.NONE
    house.pass_time(1_000)
    assert house.restarted().describe_consumers().group_state == "Empty"


def test_group_without_members_and_offsets_is_removed_in_time(house: House) -> None:
    beat(house, "a")
    beat(house, "a", -1)
    house.coordinator.start()
    house.pass_time(house.coordinator.config.offsets_retention_check_interval_ms)
    assert house.listed() == {}
    assert house.restarted().listed() == {}


def test_offsets_of_topics_that_members_read_do_not_expire() -> None:
    house = House(offsets_retention_ms=20_000, offsets_retention_check_interval_ms=1_000)
    house.topic_ids["u"] = OTHER_ID
    beat(house, "a")
    given: dict[str, Any] = {"member": "a", "generation": 2, "knows_group_id_not_found": True}
    house.commit("g", {("t", 0): 1, ("u", 0): 1}, **given)
    house.coordinator.start()
    for _ in range(5):
        house.pass_time(HEARTBEAT_MS)
        beat(house, "a", 2)
    assert house.committed("g") == {("t", 0): 1}


def test_restarted_coordinator_knows_static_members_and_the_assignor_they_ask_for(house: House) -> None:
    beat(house, "a", instance_id="i", server_assignor="range")
    other = house.restarted()
    other.topics = house.topics
    assert other.describe_consumers().assignor_name == "range"
    assert other.beat("b", instance_id="i").error is E.UNRELEASED_INSTANCE_ID
    beat(other, "a", -2, instance_id="i")
    assert numbers(beat(other, "b", instance_id="i")) == [0, 1, 2, 3, 4, 5]
    assert [each.member_id for each in other.describe_consumers().members] == ["b"]
