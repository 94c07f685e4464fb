"""Live groups between the classic protocol and the one of consumers (KIP-848), and groups with members of both."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from attrs import evolve
from support.group_harness import ID, OTHER_ID, Harness

from barnabas.core.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from barnabas.core.coordinator.group.consumer_records import (
    ClassicMemberMetadata,
    ConsumerRecord,
    StoredConsumerGroup,
    StoredConsumerMember,
    encode_key,
    encode_member,
)
from barnabas.core.coordinator.record_fields import RecordReader
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeatResult
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

INTERVAL_MS, SESSION_MS, REBALANCE_MS = 1_000, 10_000, 30_000


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.topics = {"t": 6}
    return made


def metadata(owned: Iterable[int] = ()) -> bytes:
    return encode_subscription(Subscription(topics=["t"], owned=[TopicPartition("t", each) for each in owned]))


def assignment(*numbers: int, user_data: bytes | None = None) -> bytes:
    return encode_assignment(
        Assignment(partitions=[TopicPartition("t", each) for each in numbers], user_data=user_data)
    )


def classic_group(harness: Harness, shares: Mapping[str, bytes]) -> tuple[list[str], int]:
    """Make a stable classic group; return the member ids in the order of `shares`, and the generation."""
    names = list(shares)
    first = harness.join(metadata=metadata()).result.member_id
    joins = [harness.join(metadata=metadata()) for _ in names[1:]]
    again = harness.join(member=first, metadata=metadata())
    harness.pass_time(1)
    results = [again.result, *(each.result for each in joins)]
    ids = [each.member_id for each in results]
    generation = results[0].generation_id
    leader = next(each for each in results if each.leader == each.member_id)
    given = dict(zip(ids, shares.values(), strict=True))
    assert not harness.sync("g", leader.member_id, generation, given).error
    for member_id in ids:
        if member_id != leader.member_id:
            assert not harness.sync("g", member_id, generation).error
    return ids, generation


def beat(harness: Harness, member: str, epoch: int = 0, **given: Any) -> ConsumerGroupHeartbeatResult:
    result = harness.beat(member, epoch, **given).result
    assert isinstance(result, ConsumerGroupHeartbeatResult)
    assert result.error is E.NONE, result
    return result


def numbers(result: ConsumerGroupHeartbeatResult) -> list[int] | None:
    if result.assignment is None:
        return None
    return [number for each in result.assignment for number in each.partitions]


def joined(harness: Harness, member: str, owned: Iterable[int] = ()) -> int:
    """Let a classic member join again; returns its generation."""
    result = harness.join(member=member, metadata=metadata(owned)).result
    assert result.error is E.NONE, result
    assert (result.member_id, result.leader, list(result.members)) == (member, "", [])
    return int(result.generation_id)


def synced(harness: Harness, member: str, generation: int) -> list[int]:
    result = harness.sync("g", member, generation).result
    assert result.error is E.NONE, result
    return [each.partition for each in decode_assignment(result.assignment).partitions]


def commit_error(harness: Harness, positions: dict[tuple[str, int], int], member: str, generation: int) -> E:
    error = harness.commit("g", positions, member=member, generation=generation).result.partitions[0].error
    assert isinstance(error, E)
    return error


def mixed(harness: Harness) -> tuple[str, int]:
    """Make a group of a classic member with three partitions, and `a` with the others; return its id and generation."""
    (old,), _ = classic_group(harness, {"x": assignment(*range(6))})
    beat(harness, "a")
    generation = joined(harness, old)
    assert synced(harness, old, generation) == [0, 1, 2]
    assert numbers(beat(harness, "a", generation)) == [3, 4, 5]
    return old, generation


# --- up


def test_first_consumer_member_makes_a_consumer_group_whose_members_keep_their_partitions(harness: Harness) -> None:
    ids, generation = classic_group(harness, {"x": assignment(0, 1, 2), "y": assignment(3, 4, 5)})
    result = beat(harness, "a")
    assert (result.member_epoch, numbers(result)) == (generation + 1, [])
    described = harness.describe_consumers()
    assert described.group_state == "Reconciling"
    by_id = {each.member_id: each for each in described.members}
    assert [by_id[each].member_type for each in [*ids, "a"]] == [0, 0, 1]
    assert [list(by_id[each].assignment[0].partitions) for each in ids] == [[0, 1, 2], [3, 4, 5]]
    assert [by_id[each].member_epoch for each in ids] == [generation, generation]


def test_classic_member_gives_up_partitions_by_joining_again(harness: Harness) -> None:
    (old,), generation = classic_group(harness, {"x": assignment(*range(6))})
    beat(harness, "a")
    assert harness.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert commit_error(harness, {("t", 5): 7}, old, generation) is E.NONE
    new = joined(harness, old)
    assert new == generation + 1
    assert synced(harness, old, new) == [0, 1, 2]
    assert harness.heartbeat("g", old, new) is E.NONE
    assert numbers(beat(harness, "a", new)) == [3, 4, 5]
    assert harness.committed("g") == {("t", 5): 7}


def test_cooperative_member_keeps_its_generation_until_it_has_given_up_partitions(harness: Harness) -> None:
    (old,), generation = classic_group(harness, {"x": assignment(*range(6))})
    beat(harness, "a")
    assert joined(harness, old, range(6)) == generation
    assert synced(harness, old, generation) == [0, 1, 2]
    assert commit_error(harness, {("t", 5): 7}, old, generation) is E.NONE
    assert harness.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert numbers(beat(harness, "a", generation + 1)) is None, "the other one has not given up anything yet"
    assert joined(harness, old, range(3)) == generation + 1
    assert synced(harness, old, generation + 1) == [0, 1, 2]
    assert numbers(beat(harness, "a", generation + 1)) == [3, 4, 5]


def test_requests_that_wait_in_the_classic_group_are_answered_with_rebalance_in_progress(harness: Harness) -> None:
    (old,), _ = classic_group(harness, {"x": assignment(*range(6))})
    waiting = harness.join(metadata=metadata())
    assert waiting.waits
    beat(harness, "a")
    assert waiting.error is E.REBALANCE_IN_PROGRESS
    assert joined(harness, old) >= 2


def test_cooperative_members_keep_what_they_read_if_the_upgrade_meets_a_rebalance(harness: Harness) -> None:
    """Between JoinGroup and SyncGroup no member is assigned anything, and each still reads what it had."""
    ids, _ = classic_group(harness, {"x": assignment(0, 1, 2), "y": assignment(3, 4, 5)})
    third = harness.join(metadata=metadata())
    for member_id, owned in zip(ids, ([0, 1, 2], [3, 4, 5]), strict=True):
        harness.join(member=member_id, metadata=metadata(owned))
    assert third.error is E.NONE
    assert numbers(beat(harness, "a")) == []
    by_id = {each.member_id: each for each in harness.describe_consumers().members}
    assert [list(by_id[each].assignment[0].partitions) for each in ids] == [[0, 1, 2], [3, 4, 5]]


def test_metadata_of_classic_members_count_as_memory(harness: Harness) -> None:
    beat(harness, "a")
    before = harness.coordinator._runtime.size_bytes
    harness.join(metadata=metadata() + bytes(100_000))
    assert harness.coordinator._runtime.size_bytes - before > 100_000
    harness.coordinator.config = evolve(harness.coordinator.config, members_max_bytes=1)
    assert harness.join(metadata=metadata()).error is E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_policy_without_upgrade_leaves_the_group_classic(policy: str) -> None:
    harness = Harness(group_consumer_migration_policy=policy)
    harness.topics = {"t": 6}
    classic_group(harness, {"x": assignment(0)})
    assert harness.beat("a").error is E.GROUP_ID_NOT_FOUND
    assert harness.describe().state == "Stable"


@pytest.mark.parametrize("data", [assignment(0, user_data=b"own"), b"\0\3\0\0", b"nonsense that is longer"])
def test_assignment_that_the_coordinator_cannot_continue_leaves_the_group_classic(
    harness: Harness, data: bytes
) -> None:
    (old,), generation = classic_group(harness, {"x": data})
    assert harness.beat("a").error is E.GROUP_ID_NOT_FOUND
    assert harness.heartbeat("g", old, generation) is E.NONE


def test_data_of_a_sticky_assignor_do_not_keep_the_group_classic(harness: Harness) -> None:
    """librdkafka's adds them to each assignment."""
    first = harness.join(metadata=metadata(), protocol="cooperative-sticky").result
    given = {first.member_id: assignment(*range(6), user_data=b"former owners")}
    assert not harness.sync("g", first.member_id, first.generation_id, given).error
    assert numbers(beat(harness, "a")) == []
    assert sorted(each.member_id for each in harness.describe_consumers().members) == sorted(["a", first.member_id])


def test_group_of_another_protocol_type_is_not_upgraded(harness: Harness) -> None:
    harness.stable(protocol_type="connect")
    assert harness.beat("a").error is E.GROUP_ID_NOT_FOUND


def test_static_classic_member_is_replaced_by_its_successor_with_the_consumer_protocol(harness: Harness) -> None:
    first = harness.join(metadata=metadata(), instance="i").result
    assert not harness.sync("g", first.member_id, first.generation_id, {first.member_id: assignment(*range(6))}).error
    result = beat(harness, "a", instance_id="i")
    assert numbers(result) == [0, 1, 2, 3, 4, 5]
    assert [each.member_id for each in harness.describe_consumers().members] == ["a"]
    assert harness.heartbeat("g", first.member_id, first.generation_id) is not E.NONE


# --- members of both


def test_group_in_the_middle_of_a_rebalance_assigns_what_its_eager_members_have_given_up(harness: Harness) -> None:
    first = harness.join(metadata=metadata(), instance="i").result
    assert not harness.sync("g", first.member_id, first.generation_id, {first.member_id: b""}).error
    result = beat(harness, "a", instance_id="i")
    assert (result.member_epoch, numbers(result)) == (first.generation_id + 1, [0, 1, 2, 3, 4, 5])


def test_classic_member_that_joins_a_consumer_group_is_given_an_id_first(harness: Harness) -> None:
    beat(harness, "a")
    asked = harness.join(metadata=metadata(), at_once=False)
    assert asked.error is E.MEMBER_ID_REQUIRED
    generation = joined(harness, asked.result.member_id)
    assert generation == 2
    assert synced(harness, asked.result.member_id, generation) == []


def test_classic_member_gets_partitions_when_the_others_have_given_them_up(harness: Harness) -> None:
    beat(harness, "a")
    old = harness.join(metadata=metadata()).result.member_id
    harness.pass_time(INTERVAL_MS)
    assert harness.heartbeat("g", old, 2) is E.REBALANCE_IN_PROGRESS
    assert joined(harness, old) == 3
    assert synced(harness, old, 3) == []
    assert harness.heartbeat("g", old, 3) is E.NONE, "there is nothing to get yet"
    assert numbers(beat(harness, "a", 2)) == [0, 1, 2]
    beat(harness, "a", 2, owned={ID: [0, 1, 2]})
    assert harness.heartbeat("g", old, 3) is E.REBALANCE_IN_PROGRESS
    assert joined(harness, old) == 3
    assert synced(harness, old, 3) == [3, 4, 5]
    assert harness.heartbeat("g", old, 3) is E.NONE


def test_classic_member_commits_with_its_generation_only(harness: Harness) -> None:
    old, generation = mixed(harness)
    assert commit_error(harness, {("t", 0): 1}, old, generation) is E.NONE
    for other in (generation - 1, generation + 1):
        assert commit_error(harness, {("t", 0): 9}, old, other) is E.ILLEGAL_GENERATION
    assert harness.committed("g") == {("t", 0): 1}


def test_wrong_generation_and_ids_of_the_other_protocol_are_refused(harness: Harness) -> None:
    old, generation = mixed(harness)
    assert harness.heartbeat("g", old, generation + 1) is E.ILLEGAL_GENERATION
    assert harness.sync("g", old, generation - 1).error is E.ILLEGAL_GENERATION
    assert harness.heartbeat("g", "a", generation) is E.UNKNOWN_MEMBER_ID
    assert harness.join(member="a", metadata=metadata()).error is E.UNKNOWN_MEMBER_ID
    assert harness.sync("g", "nobody", generation).error is E.UNKNOWN_MEMBER_ID


def test_classic_member_with_another_protocol_type_or_unreadable_metadata_is_refused(harness: Harness) -> None:
    beat(harness, "a")
    assert harness.join(metadata=metadata(), protocol_type="connect").error is E.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(metadata=b"\0").error is E.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_that_leaves_gives_its_partitions_to_the_others(harness: Harness) -> None:
    old, generation = mixed(harness)
    left = harness.leave("g", old, "nobody")
    assert [each.error for each in left.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    harness.pass_time(INTERVAL_MS)
    assert numbers(beat(harness, "a", generation)) == [0, 1, 2, 3, 4, 5]


def test_classic_member_that_is_not_heard_of_loses_its_partitions_after_its_own_session(harness: Harness) -> None:
    _, generation = mixed(harness)
    harness.pass_time(SESSION_MS - 1)
    assert len(harness.describe_consumers().members) == 2
    harness.pass_time(1)
    assert numbers(beat(harness, "a", generation)) == [0, 1, 2, 3, 4, 5]


def test_classic_member_that_does_not_join_again_in_time_is_removed(harness: Harness) -> None:
    (old,), generation = classic_group(harness, {"x": assignment(*range(6))})
    beat(harness, "a")
    for _ in range(4):
        assert harness.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
        harness.pass_time(REBALANCE_MS / 4)
    assert [each.member_id for each in harness.describe_consumers().members] == ["a"]


def test_restarted_coordinator_knows_the_classic_members(harness: Harness) -> None:
    old, generation = mixed(harness)
    other = harness.restarted()
    other.topics = harness.topics
    assert other.heartbeat("g", old, generation) is E.NONE
    assert synced(other, old, generation) == [0, 1, 2]
    assert beat(other, "a", generation).member_epoch == generation
    other.pass_time(SESSION_MS)
    assert [each.member_id for each in other.describe_consumers().members] == ["a"]


def test_static_classic_member_returns_with_another_id_to_its_partitions(harness: Harness) -> None:
    harness.topics["u"], harness.topic_ids["u"] = 1, OTHER_ID
    beat(harness, "a", topics=["u"])
    first = harness.join(metadata=metadata(), instance="i").result
    harness.pass_time(INTERVAL_MS)
    joined_again = harness.join(member=first.member_id, metadata=metadata(), instance="i").result
    generation = joined_again.generation_id
    assert synced(harness, first.member_id, generation) == list(range(6))
    other = harness.join(metadata=metadata(), instance="i").result
    assert other.member_id != first.member_id
    assert synced(harness, other.member_id, other.generation_id) == list(range(6))
    assert harness.join(member=first.member_id, metadata=metadata(), instance="i").error is E.FENCED_INSTANCE_ID


# --- down


def test_last_consumer_member_that_leaves_makes_a_classic_group_of_the_others(harness: Harness) -> None:
    old, generation = mixed(harness)
    beat(harness, "a", -1)
    harness.pass_time(0)
    assert harness.describe().state == "PreparingRebalance"
    assert harness.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert commit_error(harness, {("t", 0): 3}, old, generation) is E.NONE
    again = harness.join(member=old, metadata=metadata()).result
    assert (again.error, again.leader, again.protocol_type) == (E.NONE, old, "consumer")
    assert again.generation_id > generation
    assert not harness.sync("g", old, again.generation_id, {old: assignment(*range(6))}).error
    assert harness.describe().state == "Stable"
    assert harness.restarted().describe().state == "Stable"


def test_last_consumer_member_that_is_not_heard_of_makes_a_classic_group_too(harness: Harness) -> None:
    old, generation = mixed(harness)
    for _ in range(9):
        harness.pass_time(5_000)
        harness.heartbeat("g", old, generation)
    assert harness.describe().state == "PreparingRebalance"


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_policy_without_downgrade_leaves_a_consumer_group_of_classic_members(policy: str) -> None:
    harness = Harness(group_consumer_migration_policy="bidirectional")
    harness.topics = {"t": 6}
    old, generation = mixed(harness)
    harness.coordinator.config = type(harness.coordinator.config)(
        group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy
    )
    beat(harness, "a", -1)
    harness.pass_time(INTERVAL_MS)
    assert harness.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert synced(harness, old, joined(harness, old)) == list(range(6))


def test_group_that_was_made_classic_becomes_a_consumer_group_again(harness: Harness) -> None:
    old, _ = mixed(harness)
    beat(harness, "a", -1)
    harness.pass_time(0)
    beat(harness, "b")
    assert {each.member_type for each in harness.describe_consumers().members} == {0, 1}
    assert synced(harness, old, joined(harness, old)) == [0, 1, 2]


def test_killed_coordinator_has_one_type_of_group_after_each_conversion(harness: Harness) -> None:
    """Records of the former type are gone, whatever the order in which a coordinator reads them."""
    mixed(harness)
    assert harness.restarted().describe_consumers().group_state == "Stable"
    beat(harness, "a", -1)
    harness.pass_time(0)
    assert harness.restarted().describe().state == "Stable"


def test_former_group_does_not_come_back_when_its_end_is_written_late(harness: Harness) -> None:
    old, _ = mixed(harness)
    beat(harness, "b")
    harness.error = E.NOT_ENOUGH_REPLICAS
    harness.beat("b", -1)
    harness.beat("a", -1)
    harness.pass_time(0)
    assert harness.describe().state == "PreparingRebalance"
    harness.error = E.NONE
    result = harness.join(member=old, metadata=metadata()).result
    assert not harness.sync("g", old, result.generation_id, {old: assignment(*range(6))}).error
    described = harness.restarted().describe()
    assert (described.state, [each.member_id for each in described.members]) == ("Stable", [old])
    assert harness.restarted().heartbeat("g", old, result.generation_id) is E.NONE


def test_group_whose_conversions_are_written_late_is_what_it_became_last(harness: Harness) -> None:
    (old,), _ = classic_group(harness, {"x": assignment(*range(6))})
    harness.error = E.NOT_ENOUGH_REPLICAS
    for _ in range(2):
        harness.beat("a")
        harness.beat("a", -1)
        harness.pass_time(0)
    harness.beat("a")
    harness.error = E.NONE
    harness.pass_time(INTERVAL_MS)
    epoch = joined(harness, old)
    assert numbers(beat(harness, "a")) is not None
    described = harness.restarted().describe_consumers()
    assert sorted(each.member_id for each in described.members) == sorted(["a", old])
    assert described.group_epoch == epoch


# --- the record


def test_record_of_a_classic_member_is_the_one_of_kafka() -> None:
    """The bytes are those of Kafka's own class."""
    member = StoredConsumerMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        subscribed_topic_names=("t",),
        rebalance_timeout_ms=7,
        classic=ClassicMemberMetadata(5, (("range", b"\1\2"),)),
    )
    data = encode_member(member)
    stored, key = StoredConsumerGroup(), RecordReader(encode_key(ConsumerRecord.MEMBER, "g", "m"))
    key.i16()
    key.text()
    stored.add(ConsumerRecord.MEMBER, key, data)
    assert stored.members["m"] == member
    assert data.hex() == "000000000263032f6802027400000000070001001101000000050206" + "72616e676503010200" + "00"
