"""The end of transactions of version 2 (KIP-890): each has an epoch of its own."""

import pytest
from attrs import evolve
from support.transaction_harness import T0, T1, U0, TransactionHarness

from barnabas.core.coordinator.transaction.records import decode_value
from barnabas.core.coordinator.transaction.states import ENDS_IN_VERSION_2, TRANSITIONS, Event, TransactionState
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

LAST = 32766
Who = tuple[int, int]


def ended(harness: TransactionHarness, who: Who, *, commit: bool = True) -> Who:
    """End the transaction; return the identity for the next one."""
    result = harness.end(who, commit=commit, v2=True).result
    assert result.error is E.NONE, result
    return result.producer_id, result.producer_epoch


def error_of(harness: TransactionHarness, who: Who, *, commit: bool = True) -> E:
    error: E = harness.end(who, commit=commit, v2=True).error
    return error


def in_the_last_epoch() -> TransactionHarness:
    """Return a coordinator whose producer, of id 100, has the last epoch."""
    harness = TransactionHarness(first_id=100, abort_check_interval_ms=1000)
    harness.identity(timeout_ms=5000)
    entry = harness.coordinator._table.get("x")
    assert entry is not None
    entry.transaction.stored = evolve(entry.transaction.stored, producer_epoch=LAST)
    return harness


def begun(v2: bool = True) -> tuple[TransactionHarness, Who]:
    harness = TransactionHarness()
    who = harness.identity()
    assert harness.added(who, T0, U0, v2=v2) == [E.NONE, E.NONE]
    return harness, who


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch_and_the_markers_have_the_new_one(commit: bool) -> None:
    harness, who = begun()
    after = ended(harness, who, commit=commit)
    assert after == (who[0], 1)
    assert sorted(harness.markers) == [(T0, who[0], 1, commit), (U0, who[0], 1, commit)]
    assert {each.transaction_version for each in harness.sent} == {2}
    assert harness.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert harness.added(who, T1, v2=True) == [E.PRODUCER_FENCED]
    assert harness.added(after, T1, v2=True) == [E.NONE]
    assert ended(harness, after) == (who[0], 2)


@pytest.mark.parametrize("commit", [True, False])
def test_repeated_end_is_answered_with_the_present_identity(commit: bool) -> None:
    harness, who = begun()
    after = ended(harness, who, commit=commit)
    for _ in range(2):
        assert ended(harness, who, commit=commit) == after
    assert error_of(harness, who, commit=not commit) is E.INVALID_TXN_STATE
    assert len(harness.markers) == 2


def test_repeated_end_is_answered_by_the_next_coordinator() -> None:
    harness, who = begun()
    after = ended(harness, who)
    following = harness.restarted()
    assert ended(following, who) == after
    assert following.added(after, T0, v2=True) == [E.NONE]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_request_while_markers_are_written_is_answered_that_it_is_busy(epoch: int, commit: bool) -> None:
    harness, who = begun()
    harness.hold_markers = True
    ended(harness, who)
    asked = harness.end((who[0], epoch), commit=commit, v2=True)
    assert asked.waits
    harness.pass_time(harness.coordinator._config.patience_ms + 1)
    assert asked.error is E.CONCURRENT_TRANSACTIONS


def test_end_that_waits_for_the_markers_is_answered_after_them() -> None:
    harness, who = begun()
    harness.hold_markers = True
    after = ended(harness, who)
    again = harness.end(who, v2=True)
    while harness.asked_to_mark:
        harness.mark()
    assert (again.error, again.result.producer_epoch) == (E.NONE, after[1])


def test_commit_of_nothing_is_refused() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    assert error_of(harness, who) is E.INVALID_TXN_STATE
    harness.added(who, T0, v2=True)
    after = ended(harness, who)
    assert error_of(harness, after) is E.INVALID_TXN_STATE


@pytest.mark.parametrize("earlier", [None, True, False])
def test_abort_of_nothing_raises_the_epoch_once(earlier: bool | None) -> None:
    """A producer that does not know whether its batches have arrived has them fenced."""
    harness = TransactionHarness()
    who = harness.identity()
    if earlier is not None:
        harness.added(who, T0, v2=True)
        who = ended(harness, who, commit=earlier)
    count = len(harness.markers)
    after = ended(harness, who, commit=False)
    assert after == (who[0], who[1] + 1)
    assert ended(harness, who, commit=False) == after
    assert harness.state() == "CompleteAbort"
    assert len(harness.markers) == count


def test_older_epoch_and_other_id_are_refused() -> None:
    harness, who = begun()
    who = ended(harness, who)
    harness.added(who, T0, v2=True)
    for commit in (True, False):
        assert error_of(harness, (who[0], 0), commit=commit) is E.PRODUCER_FENCED
        assert error_of(harness, (who[0], 9), commit=commit) is E.PRODUCER_FENCED
        assert error_of(harness, (7, 1), commit=commit) is E.INVALID_PRODUCER_ID_MAPPING
    assert harness.state() == "Ongoing"


def test_end_of_version_1_leaves_the_epoch_as_it_is() -> None:
    harness, who = begun(v2=False)
    result = harness.end(who).result
    assert (result.error, result.producer_id, result.producer_epoch) == (E.NONE, -1, -1)
    assert {(each.producer_epoch, each.transaction_version) for each in harness.sent} == {(0, 0)}
    harness.added(who, T0)
    assert harness.end(who, commit=False).error is E.NONE
    assert harness.end(who, commit=False).error is E.NONE


def test_producer_changes_the_version_between_transactions() -> None:
    harness, who = begun(v2=False)
    after = ended(harness, who)
    assert after == (who[0], 1)
    harness.added(after, T0)
    assert harness.end(after).error is E.NONE
    assert [each.transaction_version for each in harness.sent][-1] == 0
    assert harness.identity("x", *after) == (who[0], 2)


def test_lost_answer_of_version_2_does_not_revive_a_producer_fenced_by_one_of_version_1() -> None:
    harness = TransactionHarness()
    zombie = harness.identity()
    successor = harness.identity()
    harness.added(successor, T0)
    assert harness.end(successor).error is E.NONE
    assert error_of(harness, zombie) is E.PRODUCER_FENCED


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    harness, last = in_the_last_epoch(), (100, LAST)
    harness.added(last, T0, v2=True)
    harness.hold_markers = True
    after = ended(harness, last)
    assert after == (101, 0)
    assert harness.describe().producer_id == 100
    adding = harness.add(after, T1, v2=True)
    assert adding.waits, "the id of the next transaction is not yet that of the coordinator"
    harness.mark()
    assert adding.result.partitions[0].error is E.NONE
    assert harness.markers == [(T0, 100, LAST + 1, True)]
    assert harness.added(last, T0, v2=True) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert error_of(harness, last) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("dies", ["before the markers", "after the markers"])
def test_change_of_the_producer_id_outlasts_a_coordinator(dies: str) -> None:
    harness, last = in_the_last_epoch(), (100, LAST)
    harness.added(last, T0, v2=True)
    harness.hold_markers = dies == "before the markers"
    after = ended(harness, last)
    following = harness.restarted()
    assert ended(following, last) == after, "a repeated end"
    assert following.added(after, T0, v2=True) == [E.NONE]


def test_without_a_fresh_id_the_producer_asks_again() -> None:
    harness = in_the_last_epoch()
    harness.added((100, LAST), T0, v2=True)
    harness.next_id = None
    assert error_of(harness, (100, LAST)) is E.COORDINATOR_LOAD_IN_PROGRESS
    harness.next_id = 200
    assert ended(harness, (100, LAST)) == (200, 0)


def test_fence_raises_the_epoch_once() -> None:
    """KAFKA-19367: the end that a new producer brings about does not raise the epoch once more."""
    harness, who = begun()
    assert harness.identity() == (who[0], 2)
    assert {(each.producer_epoch, each.transaction_version) for each in harness.sent} == {(1, 2)}


def test_transaction_that_takes_too_long_is_fenced_with_the_next_epoch() -> None:
    harness = TransactionHarness(abort_check_interval_ms=1000)
    who = harness.identity(timeout_ms=5000)
    harness.added(who, T0, v2=True)
    harness.pass_time(7000)
    assert harness.state() == "CompleteAbort"
    assert [each[1:] for each in harness.markers] == [(who[0], 1, False)]
    assert error_of(harness, who) is E.INVALID_TXN_STATE
    assert ended(harness, who, commit=False) == (who[0], 1)


def test_producer_fenced_in_the_last_epoch_gets_no_further_one() -> None:
    harness, who = in_the_last_epoch(), (100, LAST)
    harness.added(who, T0, v2=True)
    harness.pass_time(7000)
    assert harness.state() == "CompleteAbort"
    for epoch in (LAST, LAST + 1):
        assert error_of(harness, (who[0], epoch), commit=False) is E.PRODUCER_FENCED
    assert harness.identity() == (101, 0)


def test_offsets_partition_is_added_by_brokers_alone() -> None:
    harness = TransactionHarness()
    offsets = TopicPartition("__consumer_offsets", 3)
    harness.leaders[offsets] = 1
    who = harness.identity()
    assert harness.added(who, offsets) == [E.TOPIC_AUTHORIZATION_FAILED]
    assert harness.added(who, offsets, v2=True) == [E.NONE]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_records_are_flexible_from_level_1_on_and_for_version_2(level: int) -> None:
    harness = TransactionHarness()
    harness.transaction_version = level
    who = harness.identity()
    harness.added(who, T0)
    harness.end(who)
    harness.added(who, T0, v2=True)
    ended(harness, who)
    values = [value for records in harness.log.values() for _, value in records if value is not None]
    versions = [value[1] for value in values]
    assert versions == [1 if level else 0] * 4 + [1] * 3
    assert [decode_value(value).client_transaction_version for value in values] == [0] * 4 + [2] * 3


def test_end_of_version_2_is_decided_in_every_state_without_markers() -> None:
    idle = [state for state in TransactionState if not state.is_decided]
    assert ENDS_IN_VERSION_2.keys() == {(state, event) for state in idle for event in (Event.COMMIT, Event.ABORT)}
    assert (
        ENDS_IN_VERSION_2[TransactionState.ONGOING, Event.COMMIT] is TRANSITIONS[TransactionState.ONGOING, Event.COMMIT]
    )
