"""The coordinator: which groups are here, what is kept, what comes back."""

from typing import Any

import pytest
from support.group_driver import Asked
from support.group_house import CALLER, ID, OTHER_ID, PARTITIONS, House

from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.records import StoredOffset, encode_group_key, encode_offset_key
from barnabas.ports.broker_api.groups import ListGroups, OffsetFetch, OffsetFetchGroup
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

DAY_MS = 24 * 3_600_000
READS_T = bytes.fromhex("0000 00000001 0001 74 ffffffff")


def _errors(asked: Asked) -> list[E]:
    return [each.error for each in asked.result.partitions]


# --- positions


def test_commit_is_acknowledged_after_append_completes() -> None:
    house = House()
    house.hold = True
    commit = house.commit("g", {("t", 0): 7, ("t", 1): 8}, metadata="m")
    assert commit.waits
    assert house.committed("g", ("t", 0)) == {("t", 0): -1}
    assert house.committed("g", ("t", 0), ("u", 0), stable=True) == {
        ("t", 0): E.UNSTABLE_OFFSET_COMMIT,
        ("u", 0): -1,
    }
    house.finish()
    assert _errors(commit) == [E.NONE, E.NONE]
    assert house.committed("g") == {("t", 0): 7, ("t", 1): 8}
    assert house.committed("g", ("t", 1), ("t", 2)) == {("t", 1): 8, ("t", 2): -1}
    assert house.listed() == {"g": "Empty"}


def test_invalid_offset_does_not_affect_other_partitions() -> None:
    house = House()
    commit = house.commit("g", {("t", 0): 7, ("nothing", 0): 1, ("u", 2): 1})
    assert _errors(commit) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert house.committed("g") == {("t", 0): 7}


@pytest.mark.parametrize(("metadata", "fits"), [("x" * 4096, True), ("x" * 4097, False), ("\U0001f600" * 2049, False)])
def test_metadata_has_a_limit(metadata: str, fits: bool) -> None:
    commit = House().commit("g", {("t", 0): 7}, metadata=metadata)
    assert _errors(commit) == [E.NONE if fits else E.OFFSET_METADATA_TOO_LARGE]


def test_metadata_that_no_record_can_hold_is_too_large_whatever_the_limit() -> None:
    house = House(offset_metadata_max_bytes=100_000)
    assert _errors(house.commit("g", {("t", 0): 7}, metadata="é" * 16384)) == [E.OFFSET_METADATA_TOO_LARGE]
    assert _errors(house.commit("g", {("t", 0): 7}, metadata="é" * 16383)) == [E.NONE]


def test_commit_for_unknown_topic_creates_no_group() -> None:
    house = House()
    house.commit("g", {("nothing", 0): 1})
    assert house.listed() == {}
    assert house.appends == 0


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_failed_commit_append_maps_to_group_error(log: E, told: E) -> None:
    house = House()
    house.error = log
    assert _errors(house.commit("g", {("t", 0): 7, ("x", 0): 1})) == [told, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert house.committed("g", ("t", 0)) == {("t", 0): -1}
    assert house.listed() == {}


def test_members_commit_in_their_generation_only() -> None:
    house = House()
    assert _errors(house.commit("g", {("t", 0): 1}, member="m", generation=3)) == [E.ILLEGAL_GENERATION]
    member, generation = house.stable()
    assert _errors(house.commit("g", {("t", 0): 1}, member=member, generation=generation)) == [E.NONE]
    assert _errors(house.commit("g", {("t", 0): 1}, member=member, generation=generation + 1)) == [E.ILLEGAL_GENERATION]
    assert _errors(house.commit("g", {("t", 0): 1})) == [E.UNKNOWN_MEMBER_ID]


def test_ten_thousand_positions_go_in_several_batches() -> None:
    house = House()
    house.topics["t" * 200] = 10_000
    commit = house.commit("g", {("t" * 200, number): number for number in range(10_000)})
    assert set(_errors(commit)) == {E.NONE}
    assert 2 <= house.appends <= 5
    assert len(house.restarted().committed("g")) == 10_000


def test_the_nameless_group_of_old_clients_may_commit() -> None:
    house = House()
    assert _errors(house.commit("", {("t", 0): 1})) == [E.NONE]
    assert house.committed("") == {("t", 0): 1}
    assert house.join("").error is E.INVALID_GROUP_ID
    assert house.heartbeat("", "m", 1) is E.INVALID_GROUP_ID
    assert house.describe("").state == "Empty"
    assert house.delete("") == [E.NONE]
    assert house.listed() == {}


def test_offset_delete_skips_subscribed_topics() -> None:
    house = House()
    member, generation = house.stable(metadata=READS_T)
    house.commit("g", {("t", 0): 1, ("u", 0): 2}, member=member, generation=generation)
    result = house.delete_offsets("g", ("t", 0), ("u", 0), ("u", 1), ("x", 0))
    assert [each.error for each in result.partitions] == [
        E.GROUP_SUBSCRIBED_TO_TOPIC,
        E.NONE,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert house.committed("g") == house.restarted().committed("g") == {("t", 0): 1}
    house.leave("g", member)
    assert house.delete_offsets("g", ("t", 0)).partitions[0].error is E.NONE
    assert house.committed("g") == house.restarted().committed("g") == {}
    assert house.delete_offsets("other", ("t", 0)).error is E.GROUP_ID_NOT_FOUND
    house.stable("connectors", protocol_type="connect")
    assert house.delete_offsets("connectors", ("t", 0)).error is E.NON_EMPTY_GROUP


def test_positions_of_deleted_topics_go() -> None:
    house = House()
    house.commit("g", {("t", 0): 1, ("u", 0): 2})
    house.coordinator.partitions_deleted(ID, [TopicPartition("t", number) for number in range(100)])
    assert house.committed("g") == house.restarted().committed("g") == {("u", 0): 2}


def test_positions_stay_when_another_topic_of_the_name_is_deleted() -> None:
    house = House()
    house.commit("g", {("t", 0): 1})
    house.coordinator.partitions_deleted(OTHER_ID, [TopicPartition("t", number) for number in range(100)])
    assert house.committed("g") == house.restarted().committed("g") == {("t", 0): 1}


def test_a_commit_that_is_being_written_for_the_next_topic_of_the_name_stays() -> None:
    house = House()
    house.commit("g", {("t", 0): 1})
    offsets = house.coordinator._table.get("g").offsets  # type: ignore[union-attr]
    pending = offsets.prepare_commit({TopicPartition("t", 0): StoredOffset(2, topic_id=OTHER_ID)})
    house.coordinator.partitions_deleted(ID, [TopicPartition("t", 0)])
    assert offsets.get(TopicPartition("t", 0)) is None
    (records,) = [entries for entries in house.log.values() if entries]
    assert [value for _, value in records if value is None] == [], "a tombstone would come behind the new record"
    offsets.finish(pending, stored=True)
    assert offsets.get(TopicPartition("t", 0)) == StoredOffset(2, topic_id=OTHER_ID)


# --- time


def test_positions_expire_after_the_group_is_empty() -> None:
    house = House()
    house.coordinator.start()
    member, generation = house.stable(session_ms=1_800_000)
    house.commit("g", {("t", 0): 1}, member=member, generation=generation)
    for _ in range(8 * 24 * 2 + 1):
        assert house.heartbeat("g", member, generation) is E.NONE
        house.pass_time(1_799_000)
    assert house.committed("g") == {("t", 0): 1}
    house.leave("g", member)
    house.pass_time(7 * DAY_MS - 1)
    assert house.committed("g") == {("t", 0): 1}
    house.pass_time(700_000)
    assert house.listed() == house.restarted().listed() == {}
    assert house.restarted().committed("g", ("t", 0)) == {("t", 0): -1}
    house.coordinator.close()
    assert not house.scheduler.waiting


def test_the_time_of_becoming_empty_survives_a_restart() -> None:
    house = House()
    member, generation = house.stable()
    house.commit("g", {("t", 0): 1}, member=member, generation=generation)
    house.pass_time(5_000)
    house.leave("g", member)
    house.pass_time(3 * DAY_MS)
    later = house.restarted()
    later.pass_time(house.clock.monotonic_ms() - later.clock.monotonic_ms())
    later.coordinator.start()
    later.pass_time(4 * DAY_MS - 10_000)
    assert later.committed("g") == {("t", 0): 1}
    later.pass_time(700_000)
    assert later.listed() == {}


def test_a_commit_may_bring_its_own_retention() -> None:
    house = House()
    house.coordinator.start()
    house.commit("g", {("t", 0): 1}, retention_ms=1000)
    house.commit("h", {("t", 0): 1}, retention_ms=2**63 - 1)
    house.pass_time(600_000)
    assert house.listed() == {"h": "Empty"}


def test_thousands_of_groups_are_looked_at_in_turns() -> None:
    house = House(offsets_retention_ms=0)
    for number in range(2500):
        house.commit(f"g{number}", {("t", 0): 1})
    house.coordinator.start()
    house.pass_time(599_999)
    assert len(house.listed()) == 2500
    house.pass_time(2)
    assert house.listed() == {}


def test_a_member_that_vanishes_is_noticed_without_any_request() -> None:
    house = House()
    house.stable()
    house.pass_time(9_999)
    assert house.describe().state == "Stable"
    house.pass_time(1)
    assert house.describe().state == "Empty"
    assert not house.scheduler.waiting


# --- members


def test_a_member_id_is_the_client_id_and_a_uuid() -> None:
    house = House()
    refused = house.join(at_once=False)
    assert refused.error is E.MEMBER_ID_REQUIRED
    name, _, token = refused.result.member_id.partition("-")
    assert name == "app"
    assert [len(part) for part in token.split("-")] == [8, 4, 4, 4, 12]
    assert house.join("g", refused.result.member_id, at_once=False).error is E.NONE
    assert house.join("h", instance="i-1").result.member_id.startswith("i-1-")


@pytest.mark.parametrize(("session_ms", "fits"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_sessions_have_bounds(session_ms: int, fits: bool) -> None:
    assert House().join(session_ms=session_ms).error is (E.NONE if fits else E.INVALID_SESSION_TIMEOUT)


def test_groups_that_are_not_there() -> None:
    house = House()
    assert house.join("g", "m").error is E.UNKNOWN_MEMBER_ID
    assert house.sync("g", "m", 1).error is E.UNKNOWN_MEMBER_ID
    assert house.heartbeat("g", "m", 1) is E.UNKNOWN_MEMBER_ID
    assert house.leave("g", "m").members[0].error is E.UNKNOWN_MEMBER_ID
    assert (house.describe().state, house.describe().error) == ("Dead", E.NONE)
    assert house.delete("g") == [E.GROUP_ID_NOT_FOUND]
    assert house.listed() == {}


def test_names_that_no_record_can_hold() -> None:
    house = House()
    for name in ("", "x" * 32768, "é" * 16384):
        assert house.join(name).error is E.INVALID_GROUP_ID
        assert house.heartbeat(name, "m", 1) is E.INVALID_GROUP_ID
    assert house.join("g" * 32767).error is E.NONE


def test_metadata_that_no_record_can_hold_are_refused_at_once() -> None:
    house = House(member_metadata_max_bytes=1000)
    assert house.join(metadata=bytes(1001)).error is E.UNKNOWN_SERVER_ERROR
    assert house.listed() == {}


def test_a_group_is_described() -> None:
    house = House()
    member, _ = house.stable(metadata=READS_T)
    described = house.describe()
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    (told,) = described.members
    assert (told.member_id, told.client_id, told.client_host) == (member, "app", "/127.0.0.1")
    assert (told.metadata, told.assignment) == (READS_T, b"all")
    house.join()
    described = house.describe()
    assert (described.state, described.protocol, described.members[0].assignment) == ("PreparingRebalance", "", b"")


def test_groups_are_listed_by_state() -> None:
    house = House()
    house.stable("a")
    house.commit("b", {("t", 0): 1})
    house.join("c")
    assert house.listed() == {"a": "Stable", "b": "Empty", "c": "CompletingRebalance"}
    assert house.listed("stable", "EMPTY") == {"a": "Stable", "b": "Empty"}
    asked = Asked()
    house.coordinator.list_groups(ListGroups(types=["consumer"]), CALLER, asked)
    assert asked.result.groups == []


def test_only_empty_groups_are_deleted() -> None:
    house = House()
    member, generation = house.stable("a")
    house.commit("a", {("t", 0): 1}, member=member, generation=generation)
    house.commit("b", {("t", 0): 1})
    assert house.delete("a", "b", "c", "b", "") == [
        E.NON_EMPTY_GROUP,
        E.NONE,
        E.GROUP_ID_NOT_FOUND,
        E.NONE,
        E.GROUP_ID_NOT_FOUND,
    ]
    house.leave("a", member)
    assert house.delete("a") == [E.NONE]
    assert house.listed() == house.restarted().listed() == {}
    assert house.delete() == []


# --- loading


def test_acknowledged_commit_survives_a_kill() -> None:
    house = House()
    member, generation = house.stable(metadata=READS_T)
    house.commit("g", {("t", 0): 1, ("t", 1): 2}, member=member, generation=generation, metadata="note")
    house.commit("simple", {("u", 1): 3})
    later = house.restarted()
    assert later.committed("g") == {("t", 0): 1, ("t", 1): 2}
    assert later.committed("simple") == {("u", 1): 3}
    assert later.heartbeat("g", member, generation) is E.NONE
    assert later.sync("g", member, generation).result.assignment == b"all"
    assert later.describe().members == house.describe().members
    later.pass_time(10_000)
    assert later.describe().state == "Empty"
    assert later.restarted().describe().state == "Empty"


def test_while_a_partition_is_read() -> None:
    house = House(load=False)
    assert house.join().error is E.NOT_COORDINATOR
    loadings = [house.coordinator.begin_load(partition) for partition in range(PARTITIONS)]
    assert house.join().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert house.sync("g", "m", 1).error is E.REBALANCE_IN_PROGRESS
    assert house.heartbeat("g", "m", 1) is E.NONE
    assert house.leave("g", "m").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert _errors(house.commit("g", {("t", 0): 1})) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert house.fetch_error("g") is E.COORDINATOR_LOAD_IN_PROGRESS
    assert house.describe().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert house.delete("g") == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert house.delete_offsets("g").error is E.COORDINATOR_LOAD_IN_PROGRESS
    for loading in loadings:
        house.coordinator.loaded(loading)
    assert house.join().error is E.NONE


def test_the_error_of_a_group_is_that_of_each_of_its_partitions() -> None:
    """Answers before version 2 have no other place for it."""
    asked = Asked()
    wanted = OffsetFetchGroup(group_id="g", partitions=[TopicPartition("t", 1)])
    House(load=False).coordinator.fetch_offsets(OffsetFetch(groups=[wanted]), CALLER, asked)
    (group,) = asked.result.groups
    assert [each.error for each in group.partitions] == [group.error] == [E.NOT_COORDINATOR]


def test_a_partition_that_went_elsewhere_while_it_was_read_is_not_here() -> None:
    house = House(load=False)
    partition = house.coordinator.partition_of("g")
    stale = house.coordinator.begin_load(partition)
    house.coordinator.unload(partition)
    house.coordinator.loaded(stale)
    assert house.join().error is E.NOT_COORDINATOR
    stale = house.coordinator.begin_load(partition)
    fresh = house.coordinator.begin_load(partition)
    house.coordinator.loaded(stale)
    assert house.join().error is E.COORDINATOR_LOAD_IN_PROGRESS
    house.coordinator.loaded(fresh)
    assert house.coordinator.partitions == [partition]


def test_pending_group_requests_get_not_coordinator_at_unload() -> None:
    house = House()
    member, generation = house.stable()
    waiting = house.join()
    house.hold = True
    commit = house.commit("g", {("t", 0): 1}, member=member, generation=generation)
    house.coordinator.unload(house.coordinator.partition_of("g"))
    assert waiting.error is E.NOT_COORDINATOR
    assert house.heartbeat("g", member, generation) is E.NOT_COORDINATOR
    assert house.listed() == {}
    house.finish(E.NOT_LEADER_OR_FOLLOWER)
    assert _errors(commit) == [E.NOT_COORDINATOR]
    assert not house.scheduler.waiting


def test_unreadable_group_records_are_skipped_and_reported() -> None:
    house = House()
    house.commit("g", {("t", 0): 1})
    partition = house.coordinator.partition_of("g")
    house.log[partition] += [(encode_group_key("x"), b"\x00\x63"), (b"\x00\x63", b"")]
    later = house.restarted()
    assert later.committed("g") == {("t", 0): 1}
    assert later.listed() == {"g": "Empty"}
    assert any("2 records were left out" in line for line in later.reports)


def test_a_group_that_is_too_large_after_a_restart_shrinks() -> None:
    house = House()
    first = house.join().result
    second = house.join()
    house.join("g", first.member_id)
    house.sync("g", first.member_id, second.result.generation_id)
    assert house.describe().state == "Stable"
    later = house.restarted(group_max_size=1)
    assert later.describe().state == "PreparingRebalance"
    kept = later.join("g", second.result.member_id)
    assert later.join("g", first.member_id).error is E.GROUP_MAX_SIZE_REACHED
    assert kept.error is E.NONE


def test_the_log_keeps_the_last_word() -> None:
    """Compacted or not, the log says the same."""
    house = House()
    for number in range(5):
        house.commit("g", {("t", 0): number})
    member, _ = house.stable()
    house.leave("g", member)
    partition = house.coordinator.partition_of("g")
    records = house.log[partition]
    compacted = dict(records)
    assert len(compacted) == 2 < len(records)
    house.log[partition] = list(compacted.items())
    assert house.restarted().committed("g") == {("t", 0): 4}
    assert house.restarted().describe().state == "Empty"
    assert set(compacted) == {encode_offset_key("g", "t", 0), encode_group_key("g")}


# --- in between


def test_the_config_may_change() -> None:
    house = House()
    house.stable()
    house.coordinator.config = GroupCoordinatorConfig(group_max_size=1)
    assert house.join().error is E.GROUP_MAX_SIZE_REACHED
    assert house.coordinator.config.group_max_size == 1


def test_failing_response_callback_is_reported_without_disturbing_group() -> None:
    house = House()
    first = house.join().result
    house.sync("g", first.member_id, 1)

    def broken(result: Any) -> None:
        raise RuntimeError("gone")

    house.join(reply=broken)
    assert house.join("g", first.member_id).error is E.NONE
    assert house.reports == ["__consumer_offsets: sending a response failed: RuntimeError: gone"]


def test_a_member_may_ask_again_from_within_its_answer() -> None:
    house = House()
    first = house.join().result
    told: list[Any] = []

    join = house.join()

    def joined(result: Any) -> None:
        told.append(house.sync("g", result.member_id, result.generation_id, {result.member_id: b"x"}))

    house.join("g", first.member_id, reply=joined)
    (sync,) = told
    assert sync.result.assignment == b"x"
    assert join.result.generation_id == 2
    assert house.describe().state == "Stable"
