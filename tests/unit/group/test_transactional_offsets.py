"""Positions of a group that belong to transactions: in memory, in the log, and read again."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.group_driver import Asked
from support.group_harness import ID, Harness

from barnabas.core.coordinator.group.offsets import GroupOffsets, PendingCommit
from barnabas.core.coordinator.group.records import StoredOffset
from barnabas.core.coordinator.log_loader import OpenRecords
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ALL = (A0, A1, B0)
P, Q = 7, 8
T0, T1 = ("t", 0), ("t", 1)
DAY_MS = 86_400_000


def errors(asked: Asked) -> list[E]:
    return [each.error for each in asked.result.partitions]


# --- the positions of one group


def test_transactional_offsets_count_after_commit() -> None:
    offsets = GroupOffsets({A0: StoredOffset(1)})
    offsets.written(offsets.prepare_commit({A0: StoredOffset(2), A1: StoredOffset(3)}, P))
    assert (offsets.get(A0), offsets.get(A1)) == (StoredOffset(1), None)
    assert [offsets.is_pending(each) for each in ALL] == [True, True, False]
    assert offsets.is_open(P)
    assert offsets.end(Q, committed=True) == 0
    assert offsets.end(P, committed=True) == 2
    assert (offsets.get(A0), offsets.get(A1)) == (StoredOffset(2), StoredOffset(3))
    assert not offsets.is_open(P)
    assert not any(map(offsets.is_pending, ALL))


def test_transactional_offsets_are_dropped_after_abort() -> None:
    offsets = GroupOffsets({A0: StoredOffset(1)})
    offsets.written(offsets.prepare_commit({A0: StoredOffset(2)}, P))
    assert offsets.end(P, committed=False) == 0
    assert offsets.get(A0) == StoredOffset(1)
    assert not offsets.is_pending(A0)


def test_later_log_record_wins_between_plain_and_transactional_commit() -> None:
    """The later record of the log counts, whenever the transaction ends."""
    offsets = GroupOffsets()
    offsets.written(offsets.prepare_commit({A0: StoredOffset(1)}, P))
    offsets.finish(offsets.prepare_commit({A0: StoredOffset(2)}), stored=True)
    assert (offsets.get(A0), offsets.is_pending(A0)) == (StoredOffset(2), True)
    offsets.end(P, committed=True)
    assert offsets.get(A0) == StoredOffset(2)
    offsets.finish(offsets.prepare_commit({A0: StoredOffset(3)}), stored=True)
    offsets.written(offsets.prepare_commit({A0: StoredOffset(4)}, P))
    offsets.end(P, committed=True)
    assert offsets.get(A0) == StoredOffset(4)


def test_a_long_transaction_keeps_one_position_of_a_partition() -> None:
    offsets = GroupOffsets()
    for number in range(1000):
        offsets.written(offsets.prepare_commit({(A0, A1)[number % 2]: StoredOffset(number)}, P))
    assert sum(len(commits) for commits in offsets._pending.values()) == 2
    assert len(offsets._open[P]) == 2
    assert offsets.end(P, committed=True) == 2
    assert (offsets.get(A0), offsets.get(A1)) == (StoredOffset(998), StoredOffset(999))


def test_marker_before_write_completion_commits_offset() -> None:
    offsets = GroupOffsets()
    commit = offsets.prepare_commit({A0: StoredOffset(1)}, P)
    offsets.end(P, committed=True)
    offsets.written(commit)
    assert (offsets.get(A0), offsets.is_pending(A0)) == (StoredOffset(1), False)


class Machine(RuleBasedStateMachine):
    """Plain commits and transactions of two producers, against the log as it is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = GroupOffsets()
        self.pending: list[tuple[PendingCommit, bool]] = []
        self.log: list[tuple[str, int, dict[TopicPartition, StoredOffset | None]]] = []
        self.count = 0

    def positions(self, partitions: set[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        self.count += 1
        return {each: StoredOffset(self.count) for each in sorted(partitions)}

    @rule(partitions=st.sets(st.sampled_from(ALL), min_size=1), is_stored=st.booleans())
    def commit(self, partitions: set[TopicPartition], is_stored: bool) -> None:
        positions = self.positions(partitions)
        self.pending.append((self.offsets.prepare_commit(dict(positions)), is_stored))
        if is_stored:
            self.log.append(("plain", 0, dict(positions)))

    @rule(which=st.integers(0, 5))
    def finish(self, which: int) -> None:
        if self.pending:
            commit, is_stored = self.pending.pop(which % len(self.pending))
            self.offsets.finish(commit, stored=is_stored)

    @rule(
        partitions=st.sets(st.sampled_from(ALL), min_size=1), producer=st.sampled_from([P, Q]), fate=st.integers(0, 3)
    )
    def commit_in(self, partitions: set[TopicPartition], producer: int, fate: int) -> None:
        positions = self.positions(partitions)
        commit = self.offsets.prepare_commit(dict(positions), producer)
        if not fate:
            self.offsets.finish(commit, stored=False)
            return
        self.log.append(("open", producer, dict(positions)))
        if fate > 1:
            self.offsets.written(commit)

    @rule(producer=st.sampled_from([P, Q]), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.offsets.end(producer, committed=committed)
        self.log.append(("committed" if committed else "aborted", producer, {}))

    @rule(partitions=st.sets(st.sampled_from(ALL)))
    def forget(self, partitions: set[TopicPartition]) -> None:
        self.offsets.forget(partitions)
        self.log.append(("plain", 0, dict.fromkeys(partitions)))

    @invariant()
    def memory_says_what_the_log_says(self) -> None:
        if self.pending:
            return
        said: dict[bytes, object] = {}
        names = {str(each).encode(): each for each in ALL}
        transactions = OpenRecords()
        for kind, producer, positions in self.log:
            records = {str(each).encode(): repr(position).encode() for each, position in positions.items()}
            if kind == "plain":
                transactions.overwrite(list(records))
                said |= records
            elif kind == "open":
                transactions.add_records(producer, list(records.items()))
            else:
                said |= dict(transactions.end(producer, committed=kind == "committed"))
        for name, each in names.items():
            assert repr(self.offsets.get(each)).encode() == said.get(name, b"None")
        held = {key for _, (key, _) in transactions.left()}
        # What a plain commit has overtaken is pending in memory for longer: its producer has not ended yet.
        assert held <= {name for name, each in names.items() if self.offsets.is_pending(each)}
        open_now = {producer for producer, _ in transactions.left()}
        assert open_now <= {producer for producer in (P, Q) if self.offsets.is_open(producer)}


TestMachine = Machine.TestCase


# --- of a coordinator


def test_from_the_request_to_the_marker() -> None:
    harness = Harness()
    harness.commit("g", {T0: 1})
    assert errors(harness.commit_in(P, "g", {T0: 5, T1: 6})) == [E.NONE, E.NONE]
    assert harness.producers == [(P, 3)]
    assert harness.committed("g", T0, T1) == {T0: 1, T1: -1}
    assert harness.committed("g", T0, T1, stable=True) == dict.fromkeys((T0, T1), E.UNSTABLE_OFFSET_COMMIT)
    harness.end_transaction("g", P)
    assert harness.committed("g", T0, T1, stable=True) == {T0: 5, T1: 6}
    harness.commit_in(P, "g", {T0: 7})
    harness.end_transaction("g", P, committed=False)
    assert harness.committed("g", stable=True) == {T0: 5, T1: 6}


def test_all_groups_of_a_partition_hear_of_its_marker() -> None:
    harness = Harness()
    groups = [f"g{number}" for number in range(9)]
    mine = [each for each in groups if harness.coordinator.partition_of(each) == harness.coordinator.partition_of("g0")]
    assert 1 < len(mine) < len(groups)
    for group in groups:
        harness.commit_in(P, group, {T0: 5})
    harness.commit_in(Q, "g0", {T1: 6})
    harness.end_transaction("g0", P)
    for group in groups:
        assert harness.committed(group, T0) == {T0: 5 if group in mine else -1}
    assert harness.committed("g0", T1, stable=True) == {T1: E.UNSTABLE_OFFSET_COMMIT}


@pytest.mark.parametrize("ended", ["committed", "aborted", "not yet"])
def test_the_next_coordinator_knows_how_they_stand(ended: str) -> None:
    harness = Harness()
    harness.commit("g", {T0: 1})
    harness.commit_in(P, "g", {T0: 5, T1: 6})
    if ended != "not yet":
        harness.end_transaction("g", P, committed=ended == "committed")
    later = harness.restarted()
    if ended == "not yet":
        assert later.committed("g", T0, T1, stable=True) == dict.fromkeys((T0, T1), E.UNSTABLE_OFFSET_COMMIT)
        assert later.committed("g", T0) == {T0: 1}
        later.end_transaction("g", P)
    assert later.committed("g", T0, stable=True) == {T0: 1 if ended == "aborted" else 5}
    assert later.restarted().committed("g") == later.committed("g")


def test_a_group_that_has_nothing_else_lives_as_long_as_its_transaction() -> None:
    harness = Harness(offsets_retention_ms=DAY_MS)
    harness.coordinator.start()
    harness.commit_in(P, "g", {T0: 5})
    harness.commit_in(P, "h", {T0: 5})
    harness.pass_time(3 * DAY_MS)
    assert harness.listed() == {"g": "Empty", "h": "Empty"}
    later = harness.restarted()
    assert later.listed() == {"g": "Empty", "h": "Empty"}
    later.end_transaction("g", P, committed=False)
    later.end_transaction("h", P)
    assert later.listed() == ({"h": "Empty"} if later.committed("h") else {})
    assert later.committed("g") == {}


def test_pending_transactional_offsets_do_not_expire() -> None:
    harness = Harness(offsets_retention_ms=DAY_MS)
    harness.coordinator.start()
    harness.commit("g", {T0: 1, T1: 2})
    harness.commit_in(P, "g", {T0: 5})
    harness.pass_time(3 * DAY_MS)
    assert harness.committed("g") == {T0: 1}
    harness.end_transaction("g", P, committed=False)
    harness.pass_time(DAY_MS)
    assert harness.listed() == {}
    assert harness.restarted().listed() == {}


def test_a_deleted_group_does_not_come_back_with_the_marker() -> None:
    harness = Harness()
    harness.commit_in(P, "g", {T0: 5})
    harness.commit_in(P, "h", {T0: 5})
    assert harness.delete("g") == [E.NONE]
    for each in (harness, harness.restarted()):
        each.end_transaction("g", P)
        assert each.committed("g") == {}
        each.end_transaction("h", P)
        assert each.committed("h") == {T0: 5}


def test_positions_go_with_their_topic() -> None:
    harness = Harness()
    harness.commit_in(P, "g", {T0: 5, ("u", 0): 6})
    harness.coordinator.partitions_deleted(ID, [TopicPartition("t", 0)])
    later = harness.restarted()
    for each in (harness, later):
        each.end_transaction("g", P)
        assert each.committed("g") == {("u", 0): 6}


@pytest.mark.parametrize(
    ("error", "observed"),
    [
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
    ],
)
def test_failed_offset_write_leaves_nothing_pending(error: E, observed: E) -> None:
    harness = Harness()
    harness.error = error
    assert errors(harness.commit_in(P, "g", {T0: 5})) == [observed]
    assert harness.listed() == {}
    assert not harness.coordinator._shard.transactions._groups.get(harness.coordinator.partition_of("g"))
    harness.error = E.NONE
    harness.commit_in(P, "g", {T0: 5})
    harness.error = error
    assert errors(harness.commit_in(P, "g", {T0: 6, T1: 7})) == [observed, observed]
    harness.end_transaction("g", P)
    assert harness.committed("g") == {T0: 5}


def test_timed_out_transactional_commit_follows_end_marker() -> None:
    harness = Harness()
    harness.error = E.REQUEST_TIMED_OUT
    assert errors(harness.commit_in(P, "g", {T0: 5})) == [E.COORDINATOR_NOT_AVAILABLE]
    for each in (harness, harness.restarted()):
        assert each.committed("g", T0, stable=True) == {T0: E.UNSTABLE_OFFSET_COMMIT}
        each.end_transaction("g", P)
        assert each.committed("g") == {T0: 5}


def test_coordinator_commits_offset_when_marker_precedes_write_completion() -> None:
    harness = Harness()
    harness.hold = True
    asked = harness.commit_in(P, "g", {T0: 5})
    harness.end_transaction("g", P)
    harness.finish()
    assert errors(asked) == [E.NONE]
    assert harness.committed("g", T0, stable=True) == {T0: 5}


def test_another_coordinator_forgets_what_was_open_here() -> None:
    harness = Harness()
    harness.commit_in(P, "g", {T0: 5})
    harness.coordinator.unload(harness.coordinator.partition_of("g"))
    assert errors(harness.commit_in(P, "g", {T0: 5})) == [E.NOT_COORDINATOR]
    harness.end_transaction("g", P)
    harness.load()
    assert harness.committed("g", T0, stable=True) == {T0: 5}


# --- who may (KIP-447)


def test_a_producer_that_says_of_which_member_it_is() -> None:
    harness = Harness()
    member, generation = harness.stable()
    assert errors(harness.commit_in(P, "g", {T0: 1}, member=member, generation=generation)) == [E.NONE]
    assert errors(harness.commit_in(P, "g", {T0: 2}, member=member, generation=generation - 1)) == [
        E.ILLEGAL_GENERATION
    ]
    assert errors(harness.commit_in(P, "g", {T0: 2}, member="who", generation=generation)) == [E.UNKNOWN_MEMBER_ID]
    assert errors(harness.commit_in(P, "g", {T0: 2}, member="who")) == [E.UNKNOWN_MEMBER_ID]
    assert errors(harness.commit_in(P, "x", {T0: 2}, member="who", generation=0)) == [E.ILLEGAL_GENERATION]
    harness.end_transaction("g", P)
    assert harness.committed("g") == {T0: 1}


def test_a_static_member_whose_place_is_taken() -> None:
    harness = Harness()
    member, generation = harness.stable(instance="i")
    fresh = harness.join("g", instance="i").result.member_id
    assert fresh != member
    refused = harness.commit_in(P, "g", {T0: 1}, member=member, generation=generation, instance="i")
    assert errors(refused) == [E.FENCED_INSTANCE_ID]
    accepted = harness.commit_in(P, "g", {T0: 1}, member=fresh, generation=generation, instance="i")
    assert errors(accepted) == [E.NONE]


def test_a_producer_that_says_nothing_may_always() -> None:
    """Requests before KIP-447 have no member: the transactional id stood for the partitions."""
    harness = Harness()
    harness.stable()
    assert errors(harness.commit_in(P, "g", {T0: 1})) == [E.NONE]
    assert errors(harness.commit("g", {T0: 1})) == [E.UNKNOWN_MEMBER_ID]


def test_a_commit_in_a_transaction_is_no_sign_of_life_of_the_member() -> None:
    harness = Harness()
    member, generation = harness.stable(session_ms=10_000)
    harness.pass_time(9_000)
    assert errors(harness.commit_in(P, "g", {T0: 1}, member=member, generation=generation)) == [E.NONE]
    harness.pass_time(2_000)
    assert harness.describe().state == "Empty"


def test_invalid_partition_is_answered_with_its_own_error() -> None:
    harness = Harness()
    assert errors(harness.commit_in(P, "g", {T0: 1, ("t", 100): 2})) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(harness.commit_in(P, "h", {("nowhere", 0): 2})) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.listed() == {"g": "Empty"}
    harness.end_transaction("g", P)
    assert harness.committed("g") == {T0: 1}


# --- the transaction's coordinator is asked (KIP-890)


def test_the_first_commit_of_a_transaction_is_verified() -> None:
    harness = Harness(verifies=True)
    first = harness.commit_in(P, "g", {T0: 1})
    (asked,) = harness.asked
    assert asked[:2] == ("x7", harness.coordinator.partition_of("g"))
    assert (first.result, harness.appends, harness.listed()) == (None, 0, {})
    asked[2](E.NONE)
    assert errors(first) == [E.NONE]
    assert errors(harness.commit_in(P, "g", {T0: 2})) == [E.NONE], "it is known now"
    harness.end_transaction("g", P)
    harness.commit_in(P, "g", {T0: 3})
    assert len(harness.asked) == 2
    assert harness.committed("g", T0, stable=True) == {T0: 2}


@pytest.mark.parametrize(
    ("said", "observed"),
    [
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_offsets_outside_the_transaction_are_not_written(said: E, observed: E) -> None:
    harness = Harness(verifies=True)
    asked = harness.commit_in(P, "g", {T0: 1})
    harness.asked.pop()[2](said)
    assert errors(asked) == [observed]
    assert (harness.appends, harness.listed()) == (0, {})


def test_a_marker_that_comes_while_the_coordinator_is_asked() -> None:
    harness = Harness(verifies=True)
    asked = harness.commit_in(P, "g", {T0: 1})
    harness.end_transaction("g", P)
    harness.asked.pop()[2](E.NONE)
    assert errors(asked) == [E.INVALID_TXN_STATE]
    assert harness.appends == 0


def test_change_during_verification_refuses_the_offsets() -> None:
    harness = Harness(verifies=True)
    member, generation = harness.stable()
    asked = harness.commit_in(P, "g", {T0: 1}, member=member, generation=generation)
    harness.leave("g", member)
    harness.asked.pop()[2](E.NONE)
    assert errors(asked) == [E.UNKNOWN_MEMBER_ID]
    elsewhere = harness.commit_in(P, "g", {T0: 1})
    harness.coordinator.unload(harness.coordinator.partition_of("g"))
    harness.asked.pop()[2](E.NONE)
    assert errors(elsewhere) == [E.NOT_COORDINATOR]


# --- version 2: the coordinator of the group adds the partition (KIP-890, part 2)


def test_the_first_commit_of_each_transaction_of_version_2_adds_the_partition() -> None:
    harness = Harness(verifies=True)
    first = harness.commit_in(P, "g", {T0: 1}, epoch=0, adds=True)
    harness.asked.pop()[2](E.NONE)
    assert errors(first) == [E.NONE]
    assert errors(harness.commit_in(P, "g", {T1: 1}, epoch=0, adds=True)) == [E.NONE]
    assert not harness.asked, "it is in the transaction"


def test_offsets_of_the_next_epoch_are_added_though_the_transaction_before_is_open() -> None:
    harness = Harness(verifies=True)
    harness.commit_in(P, "g", {T0: 1}, epoch=0, adds=True)
    harness.asked.pop()[2](E.NONE)
    following = harness.commit_in(P, "g", {T0: 2}, epoch=1, adds=True)
    (asked,) = harness.asked
    harness.end_transaction("g", P, epoch=1)
    assert harness.committed("g", T0) == {T0: 1}
    asked[2](E.NONE)
    assert errors(following) == [E.NONE], "the marker belongs to the transaction before"
    assert harness.committed("g", T0) == {T0: 1}
    harness.end_transaction("g", P, epoch=2)
    assert harness.committed("g", T0) == {T0: 2}


def test_offsets_whose_transaction_a_marker_has_ended_are_refused() -> None:
    harness = Harness(verifies=True)
    late = harness.commit_in(P, "g", {T0: 1}, epoch=0, adds=True)
    harness.end_transaction("g", P, epoch=1)
    harness.asked.pop()[2](E.NONE)
    assert errors(late) == [E.INVALID_TXN_STATE]
    fenced = harness.commit_in(P, "g", {T0: 1}, epoch=0, adds=True)
    harness.asked.pop()[2](E.PRODUCER_FENCED)
    assert errors(fenced) == [E.INVALID_PRODUCER_EPOCH]
    missing = harness.commit_in(P, "g", {T0: 1}, epoch=1, adds=True)
    harness.asked.pop()[2](E.INVALID_TXN_STATE)
    assert errors(missing) == [E.TRANSACTION_ABORTABLE]
    assert harness.appends == 0
