"""The end of transactions of version 2 (KIP-890): each has an epoch of its own."""

import pytest
from attrs import evolve
from support.transaction_house import T0, T1, U0, TransactionHouse

from barnabas.core.coordinator.transaction.records import decode_value
from barnabas.core.coordinator.transaction.states import ENDS_IN_VERSION_2, TRANSITIONS, Event, TransactionState
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

LAST = 32766
Who = tuple[int, int]


def ended(house: TransactionHouse, who: Who, *, commit: bool = True) -> Who:
    """End the transaction; return the identity for the next one."""
    result = house.end(who, commit=commit, v2=True).result
    assert result.error is E.NONE, result
    return result.producer_id, result.producer_epoch


def error_of(house: TransactionHouse, who: Who, *, commit: bool = True) -> E:
    error: E = house.end(who, commit=commit, v2=True).error
    return error


def in_the_last_epoch() -> TransactionHouse:
    """A coordinator whose producer, of id 100, has the last epoch that one gets."""
    house = TransactionHouse(first_id=100, abort_check_interval_ms=1000)
    house.identity(timeout_ms=5000)
    entry = house.coordinator._table.get("x")
    assert entry is not None
    entry.transaction.stored = evolve(entry.transaction.stored, producer_epoch=LAST)
    return house


def begun(v2: bool = True) -> tuple[TransactionHouse, Who]:
    house = TransactionHouse()
    who = house.identity()
    assert house.added(who, T0, U0, v2=v2) == [E.NONE, E.NONE]
    return house, who


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch_and_the_markers_have_the_new_one(commit: bool) -> None:
    house, who = begun()
    after = ended(house, who, commit=commit)
    assert after == (who[0], 1)
    assert sorted(house.markers) == [(T0, who[0], 1, commit), (U0, who[0], 1, commit)]
    assert {each.transaction_version for each in house.sent} == {2}
    assert house.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert house.added(who, T1, v2=True) == [E.PRODUCER_FENCED]
    assert house.added(after, T1, v2=True) == [E.NONE]
    assert ended(house, after) == (who[0], 2)


@pytest.mark.parametrize("commit", [True, False])
def test_repeated_end_is_answered_with_the_present_identity(commit: bool) -> None:
    house, who = begun()
    after = ended(house, who, commit=commit)
    for _ in range(2):
        assert ended(house, who, commit=commit) == after
    assert error_of(house, who, commit=not commit) is E.INVALID_TXN_STATE
    assert len(house.markers) == 2


def test_repeated_end_is_answered_by_the_next_coordinator() -> None:
    house, who = begun()
    after = ended(house, who)
    following = house.restarted()
    assert ended(following, who) == after
    assert following.added(after, T0, v2=True) == [E.NONE]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_request_while_markers_are_written_is_answered_that_it_is_busy(epoch: int, commit: bool) -> None:
    house, who = begun()
    house.hold_markers = True
    ended(house, who)
    asked = house.end((who[0], epoch), commit=commit, v2=True)
    assert asked.waits
    house.pass_time(house.coordinator._config.patience_ms + 1)
    assert asked.error is E.CONCURRENT_TRANSACTIONS


def test_end_that_waits_for_the_markers_is_answered_after_them() -> None:
    house, who = begun()
    house.hold_markers = True
    after = ended(house, who)
    again = house.end(who, v2=True)
    while house.asked_to_mark:
        house.mark()
    assert (again.error, again.result.producer_epoch) == (E.NONE, after[1])


def test_commit_of_nothing_is_refused() -> None:
    house = TransactionHouse()
    who = house.identity()
    assert error_of(house, who) is E.INVALID_TXN_STATE
    house.added(who, T0, v2=True)
    after = ended(house, who)
    assert error_of(house, after) is E.INVALID_TXN_STATE


@pytest.mark.parametrize("earlier", [None, True, False])
def test_abort_of_nothing_raises_the_epoch_once(earlier: bool | None) -> None:
    """A producer that does not know whether its batches have arrived has them fenced."""
    house = TransactionHouse()
    who = house.identity()
    if earlier is not None:
        house.added(who, T0, v2=True)
        who = ended(house, who, commit=earlier)
    count = len(house.markers)
    after = ended(house, who, commit=False)
    assert after == (who[0], who[1] + 1)
    assert ended(house, who, commit=False) == after
    assert house.state() == "CompleteAbort"
    assert len(house.markers) == count


def test_older_epoch_and_other_id_are_refused() -> None:
    house, who = begun()
    who = ended(house, who)
    house.added(who, T0, v2=True)
    for commit in (True, False):
        assert error_of(house, (who[0], 0), commit=commit) is E.PRODUCER_FENCED
        assert error_of(house, (who[0], 9), commit=commit) is E.PRODUCER_FENCED
        assert error_of(house, (7, 1), commit=commit) is E.INVALID_PRODUCER_ID_MAPPING
    assert house.state() == "Ongoing"


def test_end_of_version_1_leaves_the_epoch_as_it_is() -> None:
    house, who = begun(v2=False)
    result = house.end(who).result
    assert (result.error, result.producer_id, result.producer_epoch) == (E.NONE, -1, -1)
    assert {(each.producer_epoch, each.transaction_version) for each in house.sent} == {(0, 0)}
    house.added(who, T0)
    assert house.end(who, commit=False).error is E.NONE
    assert house.end(who, commit=False).error is E.NONE


def test_producer_changes_the_version_between_transactions() -> None:
    house, who = begun(v2=False)
    after = ended(house, who)
    assert after == (who[0], 1)
    house.added(after, T0)
    assert house.end(after).error is E.NONE
    assert [each.transaction_version for each in house.sent][-1] == 0
    assert house.identity("x", *after) == (who[0], 2)


def test_lost_answer_of_version_2_does_not_revive_a_producer_fenced_by_one_of_version_1() -> None:
    house = TransactionHouse()
    zombie = house.identity()
    successor = house.identity()
    house.added(successor, T0)
    assert house.end(successor).error is E.NONE
    assert error_of(house, zombie) is E.PRODUCER_FENCED


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    house, last = in_the_last_epoch(), (100, LAST)
    house.added(last, T0, v2=True)
    house.hold_markers = True
    after = ended(house, last)
    assert after == (101, 0)
    assert house.describe().producer_id == 100
    adding = house.add(after, T1, v2=True)
    assert adding.waits, "the id of the next transaction is not yet that of the coordinator"
    house.mark()
    assert adding.result.partitions[0].error is E.NONE
    assert house.markers == [(T0, 100, LAST + 1, True)]
    assert house.added(last, T0, v2=True) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert error_of(house, last) is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("dies", ["before the markers", "after the markers"])
def test_change_of_the_producer_id_outlasts_a_coordinator(dies: str) -> None:
    house, last = in_the_last_epoch(), (100, LAST)
    house.added(last, T0, v2=True)
    house.hold_markers = dies == "before the markers"
    after = ended(house, last)
    following = house.restarted()
    assert ended(following, last) == after, "a repeated end"
    assert following.added(after, T0, v2=True) == [E.NONE]


def test_without_a_fresh_id_the_producer_asks_again() -> None:
    house = in_the_last_epoch()
    house.added((100, LAST), T0, v2=True)
    house.next_id = None
    assert error_of(house, (100, LAST)) is E.COORDINATOR_LOAD_IN_PROGRESS
    house.next_id = 200
    assert ended(house, (100, LAST)) == (200, 0)


def test_fence_raises_the_epoch_once() -> None:
    """KAFKA-19367: the end that a new producer brings about does not raise the epoch once more."""
    house, who = begun()
    assert house.identity() == (who[0], 2)
    assert {(each.producer_epoch, each.transaction_version) for each in house.sent} == {(1, 2)}


def test_transaction_that_takes_too_long_is_fenced_with_the_next_epoch() -> None:
    house = TransactionHouse(abort_check_interval_ms=1000)
    who = house.identity(timeout_ms=5000)
    house.added(who, T0, v2=True)
    house.pass_time(7000)
    assert house.state() == "CompleteAbort"
    assert [each[1:] for each in house.markers] == [(who[0], 1, False)]
    assert error_of(house, who) is E.INVALID_TXN_STATE
    assert ended(house, who, commit=False) == (who[0], 1)


def test_producer_fenced_in_the_last_epoch_gets_no_further_one() -> None:
    house, who = in_the_last_epoch(), (100, LAST)
    house.added(who, T0, v2=True)
    house.pass_time(7000)
    assert house.state() == "CompleteAbort"
    for epoch in (LAST, LAST + 1):
        assert error_of(house, (who[0], epoch), commit=False) is E.PRODUCER_FENCED
    assert house.identity() == (101, 0)


def test_offsets_partition_is_added_by_brokers_alone() -> None:
    house = TransactionHouse()
    offsets = TopicPartition("__consumer_offsets", 3)
    house.leaders[offsets] = 1
    who = house.identity()
    assert house.added(who, offsets) == [E.TOPIC_AUTHORIZATION_FAILED]
    assert house.added(who, offsets, v2=True) == [E.NONE]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_records_are_flexible_from_level_1_on_and_for_version_2(level: int) -> None:
    house = TransactionHouse()
    house.transaction_version = level
    who = house.identity()
    house.added(who, T0)
    house.end(who)
    house.added(who, T0, v2=True)
    ended(house, who)
    values = [value for records in house.log.values() for _, value in records if value is not None]
    versions = [value[1] for value in values]
    assert versions == [1 if level else 0] * 4 + [1] * 3
    assert [decode_value(value).client_transaction_version for value in values] == [0] * 4 + [2] * 3


def test_end_of_version_2_is_decided_in_every_state_without_markers() -> None:
    idle = [state for state in TransactionState if not state.is_decided]
    assert ENDS_IN_VERSION_2.keys() == {(state, event) for state in idle for event in (Event.COMMIT, Event.ABORT)}
    assert (
        ENDS_IN_VERSION_2[TransactionState.ONGOING, Event.COMMIT] is TRANSITIONS[TransactionState.ONGOING, Event.COMMIT]
    )
