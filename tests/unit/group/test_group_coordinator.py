"""The coordinator: which groups are here, what is kept, what comes back."""

from typing import Any

import pytest
from support.group_driver import Asked
from support.group_harness import CALLER, ID, OTHER_ID, PARTITIONS, Harness

from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.records import StoredOffset, encode_group_key, encode_offset_key
from barnabas.core.coordinator.group.subscription import encode_assignment
from barnabas.ports.broker_api.groups import ListGroups, OffsetFetch, OffsetFetchGroup
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

DAY_MS = 24 * 3_600_000
READS_T = bytes.fromhex("0000 00000001 0001 74 ffffffff")


def _errors(asked: Asked) -> list[E]:
    return [each.error for each in asked.result.partitions]


# --- positions


def test_commit_is_acknowledged_after_append_completes() -> None:
    harness = Harness()
    harness.hold = True
    commit = harness.commit("g", {("t", 0): 7, ("t", 1): 8}, metadata="m")
    assert commit.waits
    assert harness.committed("g", ("t", 0)) == {("t", 0): -1}
    assert harness.committed("g", ("t", 0), ("u", 0), stable=True) == {
        ("t", 0): E.UNSTABLE_OFFSET_COMMIT,
        ("u", 0): -1,
    }
    harness.finish()
    assert _errors(commit) == [E.NONE, E.NONE]
    assert harness.committed("g") == {("t", 0): 7, ("t", 1): 8}
    assert harness.committed("g", ("t", 1), ("t", 2)) == {("t", 1): 8, ("t", 2): -1}
    assert harness.listed() == {"g": "Empty"}


def test_invalid_offset_does_not_affect_other_partitions() -> None:
    harness = Harness()
    commit = harness.commit("g", {("t", 0): 7, ("nothing", 0): 1, ("u", 2): 1})
    assert _errors(commit) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.committed("g") == {("t", 0): 7}


@pytest.mark.parametrize(("metadata", "fits"), [("x" * 4096, True), ("x" * 4097, False), ("\U0001f600" * 2049, False)])
def test_metadata_has_a_limit(metadata: str, fits: bool) -> None:
    commit = Harness().commit("g", {("t", 0): 7}, metadata=metadata)
    assert _errors(commit) == [E.NONE if fits else E.OFFSET_METADATA_TOO_LARGE]


def test_metadata_that_no_record_can_hold_is_too_large_whatever_the_limit() -> None:
    harness = Harness(offset_metadata_max_bytes=100_000)
    assert _errors(harness.commit("g", {("t", 0): 7}, metadata="é" * 16384)) == [E.OFFSET_METADATA_TOO_LARGE]
    assert _errors(harness.commit("g", {("t", 0): 7}, metadata="é" * 16383)) == [E.NONE]


def test_commit_for_unknown_topic_creates_no_group() -> None:
    harness = Harness()
    harness.commit("g", {("nothing", 0): 1})
    assert harness.listed() == {}
    assert harness.appends == 0


@pytest.mark.parametrize(
    ("log", "observed"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_failed_commit_append_maps_to_group_error(log: E, observed: E) -> None:
    harness = Harness()
    harness.error = log
    assert _errors(harness.commit("g", {("t", 0): 7, ("x", 0): 1})) == [observed, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.committed("g", ("t", 0)) == {("t", 0): -1}
    assert harness.listed() == {}


def test_members_commit_in_their_generation_only() -> None:
    harness = Harness()
    assert _errors(harness.commit("g", {("t", 0): 1}, member="m", generation=3)) == [E.ILLEGAL_GENERATION]
    member, generation = harness.stable()
    assert _errors(harness.commit("g", {("t", 0): 1}, member=member, generation=generation)) == [E.NONE]
    assert _errors(harness.commit("g", {("t", 0): 1}, member=member, generation=generation + 1)) == [
        E.ILLEGAL_GENERATION
    ]
    assert _errors(harness.commit("g", {("t", 0): 1})) == [E.UNKNOWN_MEMBER_ID]


def test_ten_thousand_positions_go_in_several_batches() -> None:
    harness = Harness()
    harness.topics["t" * 200] = 10_000
    commit = harness.commit("g", {("t" * 200, number): number for number in range(10_000)})
    assert set(_errors(commit)) == {E.NONE}
    assert 2 <= harness.appends <= 5
    assert len(harness.restarted().committed("g")) == 10_000


def test_the_nameless_group_of_old_clients_may_commit() -> None:
    harness = Harness()
    assert _errors(harness.commit("", {("t", 0): 1})) == [E.NONE]
    assert harness.committed("") == {("t", 0): 1}
    assert harness.join("").error is E.INVALID_GROUP_ID
    assert harness.heartbeat("", "m", 1) is E.INVALID_GROUP_ID
    assert harness.describe("").state == "Empty"
    assert harness.delete("") == [E.NONE]
    assert harness.listed() == {}


def test_offset_delete_skips_subscribed_topics() -> None:
    harness = Harness()
    member, generation = harness.stable(metadata=READS_T)
    harness.commit("g", {("t", 0): 1, ("u", 0): 2}, member=member, generation=generation)
    result = harness.delete_offsets("g", ("t", 0), ("u", 0), ("u", 1), ("x", 0))
    assert [each.error for each in result.partitions] == [
        E.GROUP_SUBSCRIBED_TO_TOPIC,
        E.NONE,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert harness.committed("g") == harness.restarted().committed("g") == {("t", 0): 1}
    harness.leave("g", member)
    assert harness.delete_offsets("g", ("t", 0)).partitions[0].error is E.NONE
    assert harness.committed("g") == harness.restarted().committed("g") == {}
    assert harness.delete_offsets("other", ("t", 0)).error is E.GROUP_ID_NOT_FOUND
    harness.stable("connectors", protocol_type="connect")
    assert harness.delete_offsets("connectors", ("t", 0)).error is E.NON_EMPTY_GROUP


def test_positions_of_deleted_topics_go() -> None:
    harness = Harness()
    harness.commit("g", {("t", 0): 1, ("u", 0): 2})
    harness.coordinator.partitions_deleted(ID, [TopicPartition("t", number) for number in range(100)])
    assert harness.committed("g") == harness.restarted().committed("g") == {("u", 0): 2}


def test_positions_stay_when_another_topic_of_the_name_is_deleted() -> None:
    harness = Harness()
    harness.commit("g", {("t", 0): 1})
    harness.coordinator.partitions_deleted(OTHER_ID, [TopicPartition("t", number) for number in range(100)])
    assert harness.committed("g") == harness.restarted().committed("g") == {("t", 0): 1}


def test_a_commit_that_is_being_written_for_the_next_topic_of_the_name_stays() -> None:
    harness = Harness()
    harness.commit("g", {("t", 0): 1})
    offsets = harness.coordinator._table.get("g").offsets  # type: ignore[union-attr]
    pending = offsets.prepare_commit({TopicPartition("t", 0): StoredOffset(2, topic_id=OTHER_ID)})
    harness.coordinator.partitions_deleted(ID, [TopicPartition("t", 0)])
    assert offsets.get(TopicPartition("t", 0)) is None
    (records,) = [entries for entries in harness.log.values() if entries]
    assert [value for _, value in records if value is None] == [], "a tombstone would come behind the new record"
    offsets.finish(pending, stored=True)
    assert offsets.get(TopicPartition("t", 0)) == StoredOffset(2, topic_id=OTHER_ID)


# --- time


def test_positions_expire_after_the_group_is_empty() -> None:
    harness = Harness()
    harness.coordinator.start()
    member, generation = harness.stable(session_ms=1_800_000)
    harness.commit("g", {("t", 0): 1}, member=member, generation=generation)
    for _ in range(8 * 24 * 2 + 1):
        assert harness.heartbeat("g", member, generation) is E.NONE
        harness.pass_time(1_799_000)
    assert harness.committed("g") == {("t", 0): 1}
    harness.leave("g", member)
    harness.pass_time(7 * DAY_MS - 1)
    assert harness.committed("g") == {("t", 0): 1}
    harness.pass_time(700_000)
    assert harness.listed() == harness.restarted().listed() == {}
    assert harness.restarted().committed("g", ("t", 0)) == {("t", 0): -1}
    harness.coordinator.close()
    assert not harness.scheduler.waiting


def test_the_time_of_becoming_empty_survives_a_restart() -> None:
    harness = Harness()
    member, generation = harness.stable()
    harness.commit("g", {("t", 0): 1}, member=member, generation=generation)
    harness.pass_time(5_000)
    harness.leave("g", member)
    harness.pass_time(3 * DAY_MS)
    later = harness.restarted()
    later.pass_time(harness.clock.monotonic_ms() - later.clock.monotonic_ms())
    later.coordinator.start()
    later.pass_time(4 * DAY_MS - 10_000)
    assert later.committed("g") == {("t", 0): 1}
    later.pass_time(700_000)
    assert later.listed() == {}


def test_a_commit_may_bring_its_own_retention() -> None:
    harness = Harness()
    harness.coordinator.start()
    harness.commit("g", {("t", 0): 1}, retention_ms=1000)
    harness.commit("h", {("t", 0): 1}, retention_ms=2**63 - 1)
    harness.pass_time(600_000)
    assert harness.listed() == {"h": "Empty"}


def test_thousands_of_groups_are_looked_at_in_turns() -> None:
    harness = Harness(offsets_retention_ms=0)
    for number in range(2500):
        harness.commit(f"g{number}", {("t", 0): 1})
    harness.coordinator.start()
    harness.pass_time(599_999)
    assert len(harness.listed()) == 2500
    harness.pass_time(2)
    assert harness.listed() == {}


def test_a_member_that_vanishes_is_noticed_without_any_request() -> None:
    harness = Harness()
    harness.stable()
    harness.pass_time(9_999)
    assert harness.describe().state == "Stable"
    harness.pass_time(1)
    assert harness.describe().state == "Empty"
    assert not harness.scheduler.waiting


# --- members


def test_a_member_id_is_the_client_id_and_a_uuid() -> None:
    harness = Harness()
    refused = harness.join(at_once=False)
    assert refused.error is E.MEMBER_ID_REQUIRED
    name, _, token = refused.result.member_id.partition("-")
    assert name == "app"
    assert [len(part) for part in token.split("-")] == [8, 4, 4, 4, 12]
    assert harness.join("g", refused.result.member_id, at_once=False).error is E.NONE
    assert harness.join("h", instance="i-1").result.member_id.startswith("i-1-")


@pytest.mark.parametrize(("session_ms", "fits"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_sessions_have_bounds(session_ms: int, fits: bool) -> None:
    assert Harness().join(session_ms=session_ms).error is (E.NONE if fits else E.INVALID_SESSION_TIMEOUT)


def test_groups_that_are_not_there() -> None:
    harness = Harness()
    assert harness.join("g", "m").error is E.UNKNOWN_MEMBER_ID
    assert harness.sync("g", "m", 1).error is E.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("g", "m", 1) is E.UNKNOWN_MEMBER_ID
    assert harness.leave("g", "m").members[0].error is E.UNKNOWN_MEMBER_ID
    assert (harness.describe().state, harness.describe().error) == ("Dead", E.NONE)
    assert harness.delete("g") == [E.GROUP_ID_NOT_FOUND]
    assert harness.listed() == {}


def test_names_that_no_record_can_hold() -> None:
    harness = Harness()
    for name in ("", "x" * 32768, "é" * 16384):
        assert harness.join(name).error is E.INVALID_GROUP_ID
        assert harness.heartbeat(name, "m", 1) is E.INVALID_GROUP_ID
    assert harness.join("g" * 32767).error is E.NONE


def test_metadata_that_no_record_can_hold_are_refused_at_once() -> None:
    harness = Harness(member_metadata_max_bytes=1000)
    assert harness.join(metadata=bytes(1001)).error is E.UNKNOWN_SERVER_ERROR
    assert harness.listed() == {}


def test_a_group_is_described() -> None:
    harness = Harness()
    member, _ = harness.stable(metadata=READS_T)
    described = harness.describe()
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    (observed,) = described.members
    assert (observed.member_id, observed.client_id, observed.client_host) == (member, "app", "/127.0.0.1")
    assert (observed.metadata, observed.assignment) == (READS_T, b"all")
    harness.join()
    described = harness.describe()
    assert (described.state, described.protocol, described.members[0].assignment) == ("PreparingRebalance", "", b"")


def test_groups_are_listed_by_state() -> None:
    harness = Harness()
    harness.stable("a")
    harness.commit("b", {("t", 0): 1})
    harness.join("c")
    assert harness.listed() == {"a": "Stable", "b": "Empty", "c": "CompletingRebalance"}
    assert harness.listed("stable", "EMPTY") == {"a": "Stable", "b": "Empty"}
    asked = Asked()
    harness.coordinator.list_groups(ListGroups(types=["consumer"]), CALLER, asked)
    assert asked.result.groups == []


def test_only_empty_groups_are_deleted() -> None:
    harness = Harness()
    member, generation = harness.stable("a")
    harness.commit("a", {("t", 0): 1}, member=member, generation=generation)
    harness.commit("b", {("t", 0): 1})
    assert harness.delete("a", "b", "c", "b", "") == [
        E.NON_EMPTY_GROUP,
        E.NONE,
        E.GROUP_ID_NOT_FOUND,
        E.NONE,
        E.GROUP_ID_NOT_FOUND,
    ]
    harness.leave("a", member)
    assert harness.delete("a") == [E.NONE]
    assert harness.listed() == harness.restarted().listed() == {}
    assert harness.delete() == []


# --- loading


def test_acknowledged_commit_survives_a_kill() -> None:
    harness = Harness()
    member, generation = harness.stable(metadata=READS_T)
    harness.commit("g", {("t", 0): 1, ("t", 1): 2}, member=member, generation=generation, metadata="note")
    harness.commit("simple", {("u", 1): 3})
    later = harness.restarted()
    assert later.committed("g") == {("t", 0): 1, ("t", 1): 2}
    assert later.committed("simple") == {("u", 1): 3}
    assert later.heartbeat("g", member, generation) is E.NONE
    assert later.sync("g", member, generation).result.assignment == b"all"
    assert later.describe().members == harness.describe().members
    later.pass_time(10_000)
    assert later.describe().state == "Empty"
    assert later.restarted().describe().state == "Empty"


def test_while_a_partition_is_read() -> None:
    harness = Harness(load=False)
    assert harness.join().error is E.NOT_COORDINATOR
    loadings = [harness.coordinator.begin_load(partition) for partition in range(PARTITIONS)]
    assert harness.join().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.sync("g", "m", 1).error is E.REBALANCE_IN_PROGRESS
    assert harness.heartbeat("g", "m", 1) is E.NONE
    assert harness.leave("g", "m").error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert _errors(harness.commit("g", {("t", 0): 1})) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert harness.fetch_error("g") is E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.describe().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.delete("g") == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert harness.delete_offsets("g").error is E.COORDINATOR_LOAD_IN_PROGRESS
    for loading in loadings:
        harness.coordinator.loaded(loading)
    assert harness.join().error is E.NONE


def test_the_error_of_a_group_is_that_of_each_of_its_partitions() -> None:
    """Answers before version 2 have no other place for it."""
    asked = Asked()
    wanted = OffsetFetchGroup(group_id="g", partitions=[TopicPartition("t", 1)])
    Harness(load=False).coordinator.fetch_offsets(OffsetFetch(groups=[wanted]), CALLER, asked)
    (group,) = asked.result.groups
    assert [each.error for each in group.partitions] == [group.error] == [E.NOT_COORDINATOR]


def test_a_partition_that_went_elsewhere_while_it_was_read_is_not_here() -> None:
    harness = Harness(load=False)
    partition = harness.coordinator.partition_of("g")
    stale = harness.coordinator.begin_load(partition)
    harness.coordinator.unload(partition)
    harness.coordinator.loaded(stale)
    assert harness.join().error is E.NOT_COORDINATOR
    stale = harness.coordinator.begin_load(partition)
    fresh = harness.coordinator.begin_load(partition)
    harness.coordinator.loaded(stale)
    assert harness.join().error is E.COORDINATOR_LOAD_IN_PROGRESS
    harness.coordinator.loaded(fresh)
    assert harness.coordinator.partitions == [partition]


def test_pending_group_requests_get_not_coordinator_at_unload() -> None:
    harness = Harness()
    member, generation = harness.stable()
    waiting = harness.join()
    harness.hold = True
    commit = harness.commit("g", {("t", 0): 1}, member=member, generation=generation)
    harness.coordinator.unload(harness.coordinator.partition_of("g"))
    assert waiting.error is E.NOT_COORDINATOR
    assert harness.heartbeat("g", member, generation) is E.NOT_COORDINATOR
    assert harness.listed() == {}
    harness.finish(E.NOT_LEADER_OR_FOLLOWER)
    assert _errors(commit) == [E.NOT_COORDINATOR]
    assert not harness.scheduler.waiting


def test_unreadable_group_records_are_skipped_and_reported() -> None:
    harness = Harness()
    harness.commit("g", {("t", 0): 1})
    partition = harness.coordinator.partition_of("g")
    harness.log[partition] += [(encode_group_key("x"), b"\x00\x63"), (b"\x00\x63", b"")]
    later = harness.restarted()
    assert later.committed("g") == {("t", 0): 1}
    assert later.listed() == {"g": "Empty"}
    assert any("2 records were left out" in line for line in later.reports)


def test_a_group_that_is_too_large_after_a_restart_shrinks() -> None:
    harness = Harness()
    first = harness.join().result
    second = harness.join()
    harness.join("g", first.member_id)
    harness.sync("g", first.member_id, second.result.generation_id)
    assert harness.describe().state == "Stable"
    later = harness.restarted(group_max_size=1)
    assert later.describe().state == "PreparingRebalance"
    joined = later.join("g", second.result.member_id)
    assert later.join("g", first.member_id).error is E.GROUP_MAX_SIZE_REACHED
    assert joined.error is E.NONE


def test_the_log_keeps_the_last_word() -> None:
    """Compacted or not, the log says the same."""
    harness = Harness()
    for number in range(5):
        harness.commit("g", {("t", 0): number})
    member, _ = harness.stable()
    harness.leave("g", member)
    partition = harness.coordinator.partition_of("g")
    records = harness.log[partition]
    compacted = dict(records)
    assert len(compacted) == 2 < len(records)
    harness.log[partition] = list(compacted.items())
    assert harness.restarted().committed("g") == {("t", 0): 4}
    assert harness.restarted().describe().state == "Empty"
    assert set(compacted) == {encode_offset_key("g", "t", 0), encode_group_key("g")}


# --- in between


def test_the_config_may_change() -> None:
    harness = Harness()
    harness.stable()
    harness.coordinator.config = GroupCoordinatorConfig(group_max_size=1)
    assert harness.join().error is E.GROUP_MAX_SIZE_REACHED
    assert harness.coordinator.config.group_max_size == 1


def test_failing_response_callback_is_reported_without_disturbing_group() -> None:
    harness = Harness()
    first = harness.join().result
    harness.sync("g", first.member_id, 1)

    def broken(result: Any) -> None:
        raise RuntimeError("gone")

    harness.join(reply=broken)
    assert harness.join("g", first.member_id).error is E.NONE
    assert harness.reports == ["__consumer_offsets: sending a response failed: RuntimeError: gone"]


def test_a_member_may_ask_again_from_within_its_answer() -> None:
    harness = Harness()
    first = harness.join().result
    observed: list[Any] = []

    join = harness.join()

    def joined(result: Any) -> None:
        observed.append(harness.sync("g", result.member_id, result.generation_id, {result.member_id: b"x"}))

    harness.join("g", first.member_id, reply=joined)
    (sync,) = observed
    assert sync.result.assignment == b"x"
    assert join.result.generation_id == 2
    assert harness.describe().state == "Stable"


def test_a_static_leader_that_comes_back_after_its_topic_grew_causes_a_rebalance() -> None:
    harness = Harness()
    harness.topics["t"] = 2
    leader = harness.join(instance="s", metadata=READS_T).result.member_id
    harness.sync("g", leader, 1, {leader: encode_assignment({"t": (0, 1)})})
    back = harness.join(instance="s", metadata=READS_T)
    assert back.result.generation_id == 1

    harness.topics["t"] = 3
    assert harness.join(instance="s", metadata=READS_T).result.generation_id == 2
    assert any("to lead, and no member has t-2" in line for line in harness.lines)
