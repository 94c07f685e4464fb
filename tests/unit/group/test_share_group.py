"""A share group: heartbeats, epochs, and the state of its partitions (KIP-932)."""

import pytest
from support.share_group_driver import ShareGroupDriver

from barnabas.core.coordinator.group.group import GroupType
from barnabas.core.coordinator.group.share_group import (
    PENDING_HEARTBEAT_INTERVAL_MS,
    ShareGroup,
    invalid_share_heartbeat,
)
from barnabas.core.coordinator.group.states import GroupState
from barnabas.core.share.persister import SharePartitionKey
from barnabas.ports.broker_api.groups import OffsetCommit, OffsetFetchGroup
from barnabas.ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResult,
    SharePartitionStart,
)
from barnabas.ports.broker_api.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from barnabas.ports.error_codes import ErrorCode


@pytest.fixture
def driver() -> ShareGroupDriver:
    driver = ShareGroupDriver()
    driver.topics.create("t", 2)
    return driver


def assigned(result: ShareGroupHeartbeatResult) -> dict[bytes, list[int]] | None:
    return None if result.assignment is None else {each.topic_id: list(each.partitions) for each in result.assignment}


def key(driver: ShareGroupDriver, partition: int, topic: str = "t") -> SharePartitionKey:
    return SharePartitionKey("g", driver.topics.topic_id(topic) or b"", partition)


# --- heartbeats


def test_first_member_gets_epoch_2_without_partitions_and_all_of_them_once_initialized(
    driver: ShareGroupDriver,
) -> None:
    topic_id = driver.topics.topic_id("t")
    first = driver.heartbeat("m", 0, "t")
    assert (first.error, first.member_id, first.member_epoch, assigned(first)) == (ErrorCode.NONE, "m", 2, {})
    assert first.heartbeat_interval_ms == PENDING_HEARTBEAT_INTERVAL_MS
    second = driver.heartbeat("m", 2)
    assert (second.member_epoch, assigned(second)) == (3, {topic_id: [0, 1]})
    assert second.heartbeat_interval_ms == 5_000
    assert driver.heartbeat("m", 3).assignment is None


def test_partitions_are_initialized_by_the_reset_rule_in_the_epoch_of_the_group(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    state = driver.persister.offsets[key(driver, 1)]
    assert (state.start_offset, state.state_epoch) == (-1, 2)


def test_added_partitions_begin_at_their_first_record(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.topics.grow("t", 3)
    epoch = driver.heartbeat("m", 2).member_epoch
    assert driver.persister.offsets[key(driver, 2)].start_offset == 0
    assert assigned(driver.heartbeat("m", epoch)) == {driver.topics.topic_id("t"): [0, 1, 2]}


def test_a_lost_answer_is_repeated_for_the_previous_epoch(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    lost = driver.heartbeat("m", 2)
    again = driver.heartbeat("m", 2)
    assert (again.member_epoch, again.assignment) == (lost.member_epoch, lost.assignment)


@pytest.mark.parametrize("epoch", [1, 7])
def test_a_member_with_another_epoch_is_fenced(driver: ShareGroupDriver, epoch: int) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", 2)
    result = driver.heartbeat("m", epoch)
    assert result.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert (result.member_epoch, result.heartbeat_interval_ms) == (0, 0)
    assert "must abandon all its partitions and rejoin" in (result.error_message or "")


def test_a_fenced_member_joins_again_with_its_id(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", 2)
    joined = driver.heartbeat("m", 0, "t")
    assert (joined.member_epoch, assigned(joined)) == (3, {driver.topics.topic_id("t"): [0, 1]})


def test_an_unknown_member_is_refused(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    for epoch in (5, -1):
        assert driver.heartbeat("n", epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_share_partitions_when_there_are_more_of_them(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m1", 0, "t")
    epochs = {each: driver.heartbeat(each, 0, "t").member_epoch for each in ("m2", "m3", "m4")}
    driver.tick(1000)
    found = [assigned(driver.heartbeat(each, epoch)) for each, epoch in {"m1": 2, **epochs}.items()]
    counts = [sum(numbers == [number] for each in found if each for numbers in each.values()) for number in (0, 1)]
    assert counts == [2, 2]


def test_full_group_refuses_a_new_member_and_accepts_a_known_one() -> None:
    driver = ShareGroupDriver(group_share_max_size=1)
    driver.topics.create("t", 1)
    driver.heartbeat("m", 0, "t")
    assert driver.heartbeat("n", 0, "t").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat("m", 0, "t").error is ErrorCode.NONE


def test_a_leaving_member_gives_its_partitions_to_the_others(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    epoch = driver.heartbeat("n", 0, "t").member_epoch
    left = driver.heartbeat("m", -1)
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, -1)
    driver.tick(1000)
    assert assigned(driver.heartbeat("n", epoch)) == {driver.topics.topic_id("t"): [0, 1]}


def test_a_silent_member_loses_its_session(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.tick(44_999)
    assert driver.group.member_count == 1
    epoch = driver.group.group_epoch
    driver.tick(1)
    assert (driver.group.member_count, driver.group.group_epoch) == (0, epoch + 1)
    assert driver.group.state is GroupState.EMPTY


def test_sessions_restart_where_heartbeats_could_not_be_answered(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.now_ms += 60_000
    driver.group.restart_sessions(driver.now_ms)
    driver.tick(44_999)
    assert driver.group.member_count == 1


def test_other_topics_of_a_member_raise_the_epoch(driver: ShareGroupDriver) -> None:
    driver.topics.create("u", 1)
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", 2)
    driver.tick(1000)
    changed = driver.heartbeat("m", 3, "u")
    assert assigned(changed) == {}
    assert assigned(driver.heartbeat("m", changed.member_epoch)) == {driver.topics.topic_id("u"): [0]}


def test_a_subscribed_topic_that_appears_is_assigned(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "later")
    epoch = driver.heartbeat("m", 2).member_epoch
    topic_id = driver.topics.create("later", 1)
    driver.tick(1000)
    epoch = driver.heartbeat("m", epoch).member_epoch
    assert assigned(driver.heartbeat("m", epoch)) == {topic_id: [0]}


def test_changes_within_the_assignment_interval_wait(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", 2)
    joined = driver.heartbeat("n", 0, "t")
    assert (joined.member_epoch, assigned(joined)) == (3, {})
    assert joined.heartbeat_interval_ms == PENDING_HEARTBEAT_INTERVAL_MS
    driver.tick(999)
    assert driver.heartbeat("n", 3).assignment is None
    driver.tick(1)
    assert len(assigned(driver.heartbeat("n", 3)) or {}) == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
    ],
)
def test_invalid_heartbeats_are_refused(fields: dict[str, object], text: str) -> None:
    valid: dict[str, object] = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    assert invalid_share_heartbeat(ShareGroupHeartbeat(**valid)) is None  # type: ignore[arg-type]
    error = invalid_share_heartbeat(ShareGroupHeartbeat(**{**valid, **fields}))  # type: ignore[arg-type]
    assert error is not None
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, text)


# --- writes


def test_a_failed_write_fails_the_heartbeat_and_is_made_up_for(driver: ShareGroupDriver) -> None:
    driver.write_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.heartbeat("m", 0, "t").error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (driver.log, driver.persister.offsets) == ({}, {})
    driver.write_error = ErrorCode.NONE
    driver.tick(1000)
    assert driver.loaded().members.keys() == {"m"}
    driver.heartbeat("m", 0, "t")
    assert len(driver.persister.offsets) == 2


def test_a_coordinator_that_loads_the_group_serves_its_members(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t", rack_id="r")
    driver.heartbeat("m", 2)
    before = driver.group.describe()
    driver.move()
    assert driver.group.describe() == before
    assert driver.heartbeat("m", 3).assignment is None
    driver.tick(45_000)
    assert driver.group.member_count == 0


def test_a_deleted_group_leaves_nothing_in_the_log(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    driver.log.update(driver.group.tombstones())
    assert not any(driver.log.values())
    assert driver.loaded().is_void


# --- the share coordinator


def test_a_failed_call_is_repeated_in_a_higher_epoch(driver: ShareGroupDriver) -> None:
    driver.is_automatic = False
    driver.heartbeat("m", 0, "t")
    (late,) = driver.calls
    driver.calls.clear()
    driver.end(late, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driver.heartbeat("m", 2).heartbeat_interval_ms == 5_000
    assert not driver.calls
    driver.tick(1000)
    driver.is_automatic = True
    driver.heartbeat("m", 2)
    assert driver.group.initialized == {driver.topics.topic_id("t"): {0, 1}}
    outcomes = driver.arrive(late)
    assert {each.error for each in outcomes} == {ErrorCode.FENCED_STATE_EPOCH}


def test_a_new_coordinator_repeats_the_call_in_a_higher_epoch(driver: ShareGroupDriver) -> None:
    driver.is_automatic = False
    driver.heartbeat("m", 0, "t")
    (late,) = driver.calls
    driver.calls.clear()
    driver.move()
    driver.is_automatic = True
    driver.heartbeat("m", 2)
    assert {each.state_epoch for each in driver.persister.offsets.values()} == {3}
    assert {each.error for each in driver.arrive(late)} == {ErrorCode.FENCED_STATE_EPOCH}


def test_state_of_an_earlier_group_with_a_higher_epoch_is_replaced_in_the_end(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    former = driver.persister.offsets.copy()
    for _ in range(4):
        driver.heartbeat("m", 0, "t")
        driver.heartbeat("m", -1)
    other = ShareGroupDriver()
    other.topics.create("t", 2)
    other.persister.offsets = {each: state.__class__(state_epoch=6) for each, state in former.items()}
    other.heartbeat("m", 0, "t")
    for _ in range(10):
        other.tick(1000)
        other.heartbeat("m", other.group.members["m"].member_epoch)
    assert other.group.initialized == {other.topics.topic_id("t"): {0, 1}}


def test_a_deleted_topic_is_forgotten(driver: ShareGroupDriver) -> None:
    driver.topics.create("u", 1)
    driver.heartbeat("m", 0, "t", "u")
    driver.apply(driver.group.forget_topics([driver.topics.delete("t")]))
    assert list(driver.loaded().state_partitions.initialized) == [driver.topics.topic_id("u")]
    driver.tick(1000)
    assert assigned(driver.heartbeat("m", 2)) == {driver.topics.topic_id("u"): [0]}
    driver.apply(driver.group.forget_topics([b"x" * 16]))


# --- administration


def alter(driver: ShareGroupDriver, *partitions: tuple[str, int, int]) -> AlterShareGroupOffsetsResult:
    request = AlterShareGroupOffsets(group_id="g", partitions=[SharePartitionStart(*each) for each in partitions])
    (result,) = driver.ask(lambda to: driver.group.alter_offsets(request, to))
    assert isinstance(result, AlterShareGroupOffsetsResult)
    return result


def delete(driver: ShareGroupDriver, *topics: str) -> DeleteShareGroupOffsetsResult:
    request = DeleteShareGroupOffsets(group_id="g", topics=topics)
    (result,) = driver.ask(lambda to: driver.group.delete_offsets(request, to))
    assert isinstance(result, DeleteShareGroupOffsetsResult)
    return result


def test_offsets_of_a_group_with_members_stay(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    assert alter(driver, ("t", 0, 5)).error is ErrorCode.NON_EMPTY_GROUP
    assert delete(driver, "t").error is ErrorCode.NON_EMPTY_GROUP


def test_altered_offsets_begin_in_a_higher_state_epoch(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    epoch = driver.group.group_epoch
    result = alter(driver, ("t", 0, 5), ("t", 7, 5), ("t", 1, -2), ("nope", 0, 1))
    assert result.error is ErrorCode.NONE
    assert [(each.topic, each.topic_id) for each in result.topics] == [
        ("t", driver.topics.topic_id("t")),
        ("nope", bytes(16)),
    ]
    outcomes = [(each.partition, each.error) for topic in result.topics for each in topic.partitions]
    assert outcomes == [
        (0, ErrorCode.NONE),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, ErrorCode.INVALID_REQUEST),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    state = driver.persister.offsets[key(driver, 0)]
    assert (state.start_offset, state.state_epoch) == (5, epoch + 1)
    assert driver.loaded().group.epoch == epoch + 1
    driver.heartbeat("m", 0, "t")
    assert driver.persister.offsets[key(driver, 0)].start_offset == 5


def test_a_partition_that_was_never_read_can_be_altered(driver: ShareGroupDriver) -> None:
    driver.topics.create("u", 1)
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    alter(driver, ("u", 0, 9))
    assert driver.persister.offsets[key(driver, 0, "u")].start_offset == 9
    driver.heartbeat("m", 0, "u")
    assert driver.persister.offsets[key(driver, 0, "u")].start_offset == 9


def test_the_error_of_the_share_coordinator_is_the_outcome(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    driver.is_automatic = False
    results: list[AlterShareGroupOffsetsResult] = []
    request = AlterShareGroupOffsets(group_id="g", partitions=[SharePartitionStart("t", 0, 5)])
    driver.apply(driver.group.alter_offsets(request, results.append))
    busy = alter(driver, ("t", 0, 6)).topics[0].partitions[0]
    assert busy.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.end(driver.calls.pop(), ErrorCode.NOT_COORDINATOR)
    assert results[0].topics[0].partitions[0].error is ErrorCode.NOT_COORDINATOR
    assert driver.group.initialized == {driver.topics.topic_id("t"): {0, 1}}


def test_deleted_offsets_begin_again_by_the_reset_rule(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    alter(driver, ("t", 0, 5))
    result = delete(driver, "t", "nope")
    assert [(each.topic, each.error) for each in result.topics] == [
        ("t", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert driver.persister.offsets == {}
    assert driver.loaded().state_partitions == driver.loaded().state_partitions.__class__()
    driver.heartbeat("m", 0, "t")
    assert driver.persister.offsets[key(driver, 0)].start_offset == -1


def test_an_interrupted_deletion_ends_before_the_topic_begins_again(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    driver.is_automatic = False
    driver.apply(driver.group.delete_offsets(DeleteShareGroupOffsets(group_id="g", topics=["t"]), lambda _: None))
    driver.calls.clear()
    driver.move()
    driver.is_automatic = True
    assert driver.loaded().state_partitions.deleting == {driver.topics.topic_id("t"): "t"}
    epoch = driver.heartbeat("m", 0, "t").member_epoch
    driver.heartbeat("m", epoch)
    assert driver.loaded().state_partitions.deleting == {}
    assert driver.group.initialized == {driver.topics.topic_id("t"): {0, 1}}


def test_all_state_goes_before_the_group(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    assert driver.ask(driver.group.delete_all_state) == [ErrorCode.NONE]
    assert driver.persister.offsets == {}
    assert driver.ask(driver.group.delete_all_state) == [ErrorCode.NONE]


def test_a_share_group_has_no_committed_offsets(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t")
    group = driver.group
    assert group.check_commit(OffsetCommit(group_id="g", partitions=[]), 0) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.check_fetch(OffsetFetchGroup(group_id="g")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.commit_validator("m", 2) is None
    assert (group.group_type, group.protocol_type) == (GroupType.SHARE, "share")


def test_an_empty_group_stays_until_it_is_deleted(driver: ShareGroupDriver) -> None:
    assert ShareGroup("g", driver.context).is_unused
    driver.heartbeat("m", 0, "t")
    driver.heartbeat("m", -1)
    assert not driver.group.is_unused
    driver.group.die(ErrorCode.NOT_COORDINATOR)
    assert driver.group.state is GroupState.DEAD


def test_a_described_group_names_members_and_topics(driver: ShareGroupDriver) -> None:
    driver.heartbeat("m", 0, "t", rack_id="r")
    driver.heartbeat("m", 2)
    described = driver.group.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.client_id, member.client_host) == ("m", "r", "c", "/h")
    assert [(each.topic_name, each.partitions) for each in member.assignment] == [("t", [0, 1])]
