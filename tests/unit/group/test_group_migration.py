"""Live groups between the classic protocol and the one of consumers (KIP-848), and groups with members of both."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from attrs import evolve
from support.group_house import ID, OTHER_ID, House

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
def house() -> House:
    made = House()
    made.topics = {"t": 6}
    return made


def metadata(owned: Iterable[int] = ()) -> bytes:
    return encode_subscription(Subscription(topics=["t"], owned=[TopicPartition("t", each) for each in owned]))


def assignment(*numbers: int, user_data: bytes | None = None) -> bytes:
    return encode_assignment(
        Assignment(partitions=[TopicPartition("t", each) for each in numbers], user_data=user_data)
    )


def classic_group(house: House, shares: Mapping[str, bytes]) -> tuple[list[str], int]:
    """A stable classic group; returns the member ids in the order of `shares`, and the generation."""
    names = list(shares)
    first = house.join(metadata=metadata()).result.member_id
    joins = [house.join(metadata=metadata()) for _ in names[1:]]
    again = house.join(member=first, metadata=metadata())
    house.pass_time(1)
    results = [again.result, *(each.result for each in joins)]
    ids = [each.member_id for each in results]
    generation = results[0].generation_id
    leader = next(each for each in results if each.leader == each.member_id)
    given = dict(zip(ids, shares.values(), strict=True))
    assert not house.sync("g", leader.member_id, generation, given).error
    for member_id in ids:
        if member_id != leader.member_id:
            assert not house.sync("g", member_id, generation).error
    return ids, generation


def beat(house: House, member: str, epoch: int = 0, **given: Any) -> ConsumerGroupHeartbeatResult:
    result = house.beat(member, epoch, **given).result
    assert isinstance(result, ConsumerGroupHeartbeatResult)
    assert result.error is E.NONE, result
    return result


def numbers(result: ConsumerGroupHeartbeatResult) -> list[int] | None:
    if result.assignment is None:
        return None
    return [number for each in result.assignment for number in each.partitions]


def joined(house: House, member: str, owned: Iterable[int] = ()) -> int:
    """Let a classic member join again; returns its generation."""
    result = house.join(member=member, metadata=metadata(owned)).result
    assert result.error is E.NONE, result
    assert (result.member_id, result.leader, list(result.members)) == (member, "", [])
    return int(result.generation_id)


def synced(house: House, member: str, generation: int) -> list[int]:
    result = house.sync("g", member, generation).result
    assert result.error is E.NONE, result
    return [each.partition for each in decode_assignment(result.assignment).partitions]


def commit_error(house: House, positions: dict[tuple[str, int], int], member: str, generation: int) -> E:
    error = house.commit("g", positions, member=member, generation=generation).result.partitions[0].error
    assert isinstance(error, E)
    return error


def mixed(house: House) -> tuple[str, int]:
    """A classic member with three partitions, and the member `a` with the others; its id and generation."""
    (old,), _ = classic_group(house, {"x": assignment(*range(6))})
    beat(house, "a")
    generation = joined(house, old)
    assert synced(house, old, generation) == [0, 1, 2]
    assert numbers(beat(house, "a", generation)) == [3, 4, 5]
    return old, generation


# --- up


def test_first_consumer_member_makes_a_consumer_group_whose_members_keep_their_partitions(house: House) -> None:
    ids, generation = classic_group(house, {"x": assignment(0, 1, 2), "y": assignment(3, 4, 5)})
    result = beat(house, "a")
    assert (result.member_epoch, numbers(result)) == (generation + 1, [])
    described = house.describe_consumers()
    assert described.group_state == "Reconciling"
    by_id = {each.member_id: each for each in described.members}
    assert [by_id[each].member_type for each in [*ids, "a"]] == [0, 0, 1]
    assert [list(by_id[each].assignment[0].partitions) for each in ids] == [[0, 1, 2], [3, 4, 5]]
    assert [by_id[each].member_epoch for each in ids] == [generation, generation]


def test_classic_member_gives_up_partitions_by_joining_again(house: House) -> None:
    (old,), generation = classic_group(house, {"x": assignment(*range(6))})
    beat(house, "a")
    assert house.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert commit_error(house, {("t", 5): 7}, old, generation) is E.NONE
    new = joined(house, old)
    assert new == generation + 1
    assert synced(house, old, new) == [0, 1, 2]
    assert house.heartbeat("g", old, new) is E.NONE
    assert numbers(beat(house, "a", new)) == [3, 4, 5]
    assert house.committed("g") == {("t", 5): 7}


def test_cooperative_member_keeps_its_generation_until_it_has_given_up_partitions(house: House) -> None:
    (old,), generation = classic_group(house, {"x": assignment(*range(6))})
    beat(house, "a")
    assert joined(house, old, range(6)) == generation
    assert synced(house, old, generation) == [0, 1, 2]
    assert commit_error(house, {("t", 5): 7}, old, generation) is E.NONE
    assert house.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert numbers(beat(house, "a", generation + 1)) is None, "the other one has not given up anything yet"
    assert joined(house, old, range(3)) == generation + 1
    assert synced(house, old, generation + 1) == [0, 1, 2]
    assert numbers(beat(house, "a", generation + 1)) == [3, 4, 5]


def test_requests_that_wait_in_the_classic_group_are_answered_with_rebalance_in_progress(house: House) -> None:
    (old,), _ = classic_group(house, {"x": assignment(*range(6))})
    waiting = house.join(metadata=metadata())
    assert waiting.waits
    beat(house, "a")
    assert waiting.error is E.REBALANCE_IN_PROGRESS
    assert joined(house, old) >= 2


def test_cooperative_members_keep_what_they_read_if_the_upgrade_meets_a_rebalance(house: House) -> None:
    """Between JoinGroup and SyncGroup no member is assigned anything, and each still reads what it had."""
    ids, _ = classic_group(house, {"x": assignment(0, 1, 2), "y": assignment(3, 4, 5)})
    third = house.join(metadata=metadata())
    for member_id, owned in zip(ids, ([0, 1, 2], [3, 4, 5]), strict=True):
        house.join(member=member_id, metadata=metadata(owned))
    assert third.error is E.NONE
    assert numbers(beat(house, "a")) == []
    by_id = {each.member_id: each for each in house.describe_consumers().members}
    assert [list(by_id[each].assignment[0].partitions) for each in ids] == [[0, 1, 2], [3, 4, 5]]


def test_metadata_of_classic_members_count_as_memory(house: House) -> None:
    beat(house, "a")
    before = house.coordinator._runtime.size_bytes
    house.join(metadata=metadata() + bytes(100_000))
    assert house.coordinator._runtime.size_bytes - before > 100_000
    house.coordinator.config = evolve(house.coordinator.config, members_max_bytes=1)
    assert house.join(metadata=metadata()).error is E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_policy_without_upgrade_leaves_the_group_classic(policy: str) -> None:
    house = House(group_consumer_migration_policy=policy)
    house.topics = {"t": 6}
    classic_group(house, {"x": assignment(0)})
    assert house.beat("a").error is E.GROUP_ID_NOT_FOUND
    assert house.describe().state == "Stable"


@pytest.mark.parametrize("data", [assignment(0, user_data=b"own"), b"\0\3\0\0", b"nonsense that is longer"])
def test_assignment_that_the_coordinator_cannot_continue_leaves_the_group_classic(house: House, data: bytes) -> None:
    (old,), generation = classic_group(house, {"x": data})
    assert house.beat("a").error is E.GROUP_ID_NOT_FOUND
    assert house.heartbeat("g", old, generation) is E.NONE


def test_data_of_a_sticky_assignor_do_not_keep_the_group_classic(house: House) -> None:
    """librdkafka's adds them to each assignment."""
    first = house.join(metadata=metadata(), protocol="cooperative-sticky").result
    given = {first.member_id: assignment(*range(6), user_data=b"former owners")}
    assert not house.sync("g", first.member_id, first.generation_id, given).error
    assert numbers(beat(house, "a")) == []
    assert sorted(each.member_id for each in house.describe_consumers().members) == sorted(["a", first.member_id])


def test_group_of_another_protocol_type_is_not_upgraded(house: House) -> None:
    house.stable(protocol_type="connect")
    assert house.beat("a").error is E.GROUP_ID_NOT_FOUND


def test_static_classic_member_is_replaced_by_its_successor_with_the_consumer_protocol(house: House) -> None:
    first = house.join(metadata=metadata(), instance="i").result
    assert not house.sync("g", first.member_id, first.generation_id, {first.member_id: assignment(*range(6))}).error
    result = beat(house, "a", instance_id="i")
    assert numbers(result) == [0, 1, 2, 3, 4, 5]
    assert [each.member_id for each in house.describe_consumers().members] == ["a"]
    assert house.heartbeat("g", first.member_id, first.generation_id) is not E.NONE


# --- members of both


def test_group_in_the_middle_of_a_rebalance_assigns_what_its_eager_members_have_given_up(house: House) -> None:
    first = house.join(metadata=metadata(), instance="i").result
    assert not house.sync("g", first.member_id, first.generation_id, {first.member_id: b""}).error
    result = beat(house, "a", instance_id="i")
    assert (result.member_epoch, numbers(result)) == (first.generation_id + 1, [0, 1, 2, 3, 4, 5])


def test_classic_member_that_joins_a_consumer_group_is_given_an_id_first(house: House) -> None:
    beat(house, "a")
    asked = house.join(metadata=metadata(), at_once=False)
    assert asked.error is E.MEMBER_ID_REQUIRED
    generation = joined(house, asked.result.member_id)
    assert generation == 2
    assert synced(house, asked.result.member_id, generation) == []


def test_classic_member_gets_partitions_when_the_others_have_given_them_up(house: House) -> None:
    beat(house, "a")
    old = house.join(metadata=metadata()).result.member_id
    house.pass_time(INTERVAL_MS)
    assert house.heartbeat("g", old, 2) is E.REBALANCE_IN_PROGRESS
    assert joined(house, old) == 3
    assert synced(house, old, 3) == []
    assert house.heartbeat("g", old, 3) is E.NONE, "there is nothing to get yet"
    assert numbers(beat(house, "a", 2)) == [0, 1, 2]
    beat(house, "a", 2, owned={ID: [0, 1, 2]})
    assert house.heartbeat("g", old, 3) is E.REBALANCE_IN_PROGRESS
    assert joined(house, old) == 3
    assert synced(house, old, 3) == [3, 4, 5]
    assert house.heartbeat("g", old, 3) is E.NONE


def test_classic_member_commits_with_its_generation_only(house: House) -> None:
    old, generation = mixed(house)
    assert commit_error(house, {("t", 0): 1}, old, generation) is E.NONE
    for other in (generation - 1, generation + 1):
        assert commit_error(house, {("t", 0): 9}, old, other) is E.ILLEGAL_GENERATION
    assert house.committed("g") == {("t", 0): 1}


def test_wrong_generation_and_ids_of_the_other_protocol_are_refused(house: House) -> None:
    old, generation = mixed(house)
    assert house.heartbeat("g", old, generation + 1) is E.ILLEGAL_GENERATION
    assert house.sync("g", old, generation - 1).error is E.ILLEGAL_GENERATION
    assert house.heartbeat("g", "a", generation) is E.UNKNOWN_MEMBER_ID
    assert house.join(member="a", metadata=metadata()).error is E.UNKNOWN_MEMBER_ID
    assert house.sync("g", "nobody", generation).error is E.UNKNOWN_MEMBER_ID


def test_classic_member_with_another_protocol_type_or_unreadable_metadata_is_refused(house: House) -> None:
    beat(house, "a")
    assert house.join(metadata=metadata(), protocol_type="connect").error is E.INCONSISTENT_GROUP_PROTOCOL
    assert house.join(metadata=b"\0").error is E.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_that_leaves_gives_its_partitions_to_the_others(house: House) -> None:
    old, generation = mixed(house)
    left = house.leave("g", old, "nobody")
    assert [each.error for each in left.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    house.pass_time(INTERVAL_MS)
    assert numbers(beat(house, "a", generation)) == [0, 1, 2, 3, 4, 5]


def test_classic_member_that_is_not_heard_of_loses_its_partitions_after_its_own_session(house: House) -> None:
    _, generation = mixed(house)
    house.pass_time(SESSION_MS - 1)
    assert len(house.describe_consumers().members) == 2
    house.pass_time(1)
    assert numbers(beat(house, "a", generation)) == [0, 1, 2, 3, 4, 5]


def test_classic_member_that_does_not_join_again_in_time_is_removed(house: House) -> None:
    (old,), generation = classic_group(house, {"x": assignment(*range(6))})
    beat(house, "a")
    for _ in range(4):
        assert house.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
        house.pass_time(REBALANCE_MS / 4)
    assert [each.member_id for each in house.describe_consumers().members] == ["a"]


def test_restarted_coordinator_knows_the_classic_members(house: House) -> None:
    old, generation = mixed(house)
    other = house.restarted()
    other.topics = house.topics
    assert other.heartbeat("g", old, generation) is E.NONE
    assert synced(other, old, generation) == [0, 1, 2]
    assert beat(other, "a", generation).member_epoch == generation
    other.pass_time(SESSION_MS)
    assert [each.member_id for each in other.describe_consumers().members] == ["a"]


def test_static_classic_member_returns_with_another_id_to_its_partitions(house: House) -> None:
    house.topics["u"], house.topic_ids["u"] = 1, OTHER_ID
    beat(house, "a", topics=["u"])
    first = house.join(metadata=metadata(), instance="i").result
    house.pass_time(INTERVAL_MS)
    joined_again = house.join(member=first.member_id, metadata=metadata(), instance="i").result
    generation = joined_again.generation_id
    assert synced(house, first.member_id, generation) == list(range(6))
    other = house.join(metadata=metadata(), instance="i").result
    assert other.member_id != first.member_id
    assert synced(house, other.member_id, other.generation_id) == list(range(6))
    assert house.join(member=first.member_id, metadata=metadata(), instance="i").error is E.FENCED_INSTANCE_ID


# --- down


def test_last_consumer_member_that_leaves_makes_a_classic_group_of_the_others(house: House) -> None:
    old, generation = mixed(house)
    beat(house, "a", -1)
    house.pass_time(0)
    assert house.describe().state == "PreparingRebalance"
    assert house.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert commit_error(house, {("t", 0): 3}, old, generation) is E.NONE
    again = house.join(member=old, metadata=metadata()).result
    assert (again.error, again.leader, again.protocol_type) == (E.NONE, old, "consumer")
    assert again.generation_id > generation
    assert not house.sync("g", old, again.generation_id, {old: assignment(*range(6))}).error
    assert house.describe().state == "Stable"
    assert house.restarted().describe().state == "Stable"


def test_last_consumer_member_that_is_not_heard_of_makes_a_classic_group_too(house: House) -> None:
    old, generation = mixed(house)
    for _ in range(9):
        house.pass_time(5_000)
        house.heartbeat("g", old, generation)
    assert house.describe().state == "PreparingRebalance"


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_policy_without_downgrade_leaves_a_consumer_group_of_classic_members(policy: str) -> None:
    house = House(group_consumer_migration_policy="bidirectional")
    house.topics = {"t": 6}
    old, generation = mixed(house)
    house.coordinator.config = type(house.coordinator.config)(
        group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy
    )
    beat(house, "a", -1)
    house.pass_time(INTERVAL_MS)
    assert house.heartbeat("g", old, generation) is E.REBALANCE_IN_PROGRESS
    assert synced(house, old, joined(house, old)) == list(range(6))


def test_group_that_was_made_classic_becomes_a_consumer_group_again(house: House) -> None:
    old, _ = mixed(house)
    beat(house, "a", -1)
    house.pass_time(0)
    beat(house, "b")
    assert {each.member_type for each in house.describe_consumers().members} == {0, 1}
    assert synced(house, old, joined(house, old)) == [0, 1, 2]


def test_killed_coordinator_has_one_type_of_group_after_each_conversion(house: House) -> None:
    """Records of the former type are gone, whatever the order in which a coordinator reads them."""
    mixed(house)
    assert house.restarted().describe_consumers().group_state == "Stable"
    beat(house, "a", -1)
    house.pass_time(0)
    assert house.restarted().describe().state == "Stable"


def test_former_group_does_not_come_back_when_its_end_is_written_late(house: House) -> None:
    old, _ = mixed(house)
    beat(house, "b")
    house.error = E.NOT_ENOUGH_REPLICAS
    house.beat("b", -1)
    house.beat("a", -1)
    house.pass_time(0)
    assert house.describe().state == "PreparingRebalance"
    house.error = E.NONE
    result = house.join(member=old, metadata=metadata()).result
    assert not house.sync("g", old, result.generation_id, {old: assignment(*range(6))}).error
    described = house.restarted().describe()
    assert (described.state, [each.member_id for each in described.members]) == ("Stable", [old])
    assert house.restarted().heartbeat("g", old, result.generation_id) is E.NONE


def test_group_whose_conversions_are_written_late_is_what_it_became_last(house: House) -> None:
    (old,), _ = classic_group(house, {"x": assignment(*range(6))})
    house.error = E.NOT_ENOUGH_REPLICAS
    for _ in range(2):
        house.beat("a")
        house.beat("a", -1)
        house.pass_time(0)
    house.beat("a")
    house.error = E.NONE
    house.pass_time(INTERVAL_MS)
    epoch = joined(house, old)
    assert numbers(beat(house, "a")) is not None
    described = house.restarted().describe_consumers()
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
