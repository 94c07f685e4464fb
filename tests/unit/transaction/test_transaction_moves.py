"""Coordinators that move, are killed in every state, or have been replaced without having heard of it."""

from collections.abc import Callable
from typing import Any

import pytest
from support.transaction_house import PARTITIONS, T0, T1, U0, TransactionHouse

from barnabas.ports.error_codes import ErrorCode as E


def killed(house: TransactionHouse) -> TransactionHouse:
    """What the next coordinator makes of the log; nothing else is left."""
    new = house.restarted()
    new.settle()
    return new


def test_killed_while_nothing_is_under_way() -> None:
    old = TransactionHouse()
    who = old.identity()
    new = killed(old)
    assert new.added(who, T0) == [E.NONE]
    assert new.end(who).error is E.NONE
    assert killed(new).state() == "CompleteCommit"
    assert killed(new).end(who).error is E.NONE, "a commit whose answer was lost"


def test_killed_within_a_transaction() -> None:
    old = TransactionHouse()
    who = old.identity()
    old.added(who, T0)
    new = killed(old)
    assert new.describe().topics == {"t": [0]}
    assert new.added(who, T1) == [E.NONE]
    assert new.end(who).error is E.NONE
    assert sorted(new.markers) == [(T0, *who, True), (T1, *who, True)]


def test_a_transaction_that_was_begun_before_a_kill_still_times_out() -> None:
    old = TransactionHouse()
    who = old.identity(timeout_ms=30_000)
    old.added(who, T0)
    new = old.restarted()
    new.pass_time(41_000)
    assert new.markers == [(T0, who[0], 1, False)]


@pytest.mark.parametrize("commit", [True, False])
def test_kill_after_prepare_before_markers_completes_at_new_coordinator(commit: bool) -> None:
    old = TransactionHouse()
    who = old.identity()
    old.added(who, T0, U0)
    old.hold_markers = True
    assert old.end(who, commit=commit).error is E.NONE
    new = killed(old)
    assert sorted(new.markers) == [(T0, *who, commit), (U0, *who, commit)]
    assert new.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert new.added(who, T1) == [E.NONE]


@pytest.mark.parametrize("commit", [True, False])
def test_kill_after_some_markers_resends_all_markers(commit: bool) -> None:
    old = TransactionHouse()
    who = old.identity()
    old.added(who, T0, U0)
    old.hold_markers = True
    old.end(who, commit=commit)
    old.mark()
    assert len(old.markers) == 1
    new = killed(old)
    assert sorted(new.markers) == [(T0, *who, commit), (U0, *who, commit)], "once more, which does no harm"


def test_kill_after_all_markers_before_completion_record_completes() -> None:
    old = TransactionHouse()
    who = old.identity()
    old.added(who, T0)
    old.hold_markers = True
    old.end(who)
    old.hold = True
    old.mark()
    assert old.state() == "PrepareCommit"
    new = killed(old)
    assert new.markers == [(T0, *who, True)]
    assert new.state() == "CompleteCommit"


def test_killed_while_a_producer_is_fenced() -> None:
    old = TransactionHouse()
    who = old.identity()
    old.added(who, T0)
    old.hold_markers = True
    old.init()
    new = killed(old)
    assert new.markers == [(T0, who[0], 1, False)]
    assert new.end(who).error is E.PRODUCER_FENCED
    assert new.identity() == (who[0], 2)


def test_the_markers_of_the_new_coordinator_have_its_epoch() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    house.coordinator_epoch = 9
    house.load()
    house.settle()
    epochs = [marker.coordinator_epoch for _, markers, _ in house.asked_to_mark for marker in markers]
    assert epochs == [5, 9]


def test_resigning_coordinator_fails_pending_requests_with_not_coordinator() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    waiting = house.add(who, T1)
    for partition in range(PARTITIONS):
        house.coordinator.unload(partition)
    assert waiting.result.partitions[0].error is E.NOT_COORDINATOR
    assert house.init().error is E.NOT_COORDINATOR
    house.mark()
    assert not any(b"\x04" in (value or b"")[16:17] for records in house.log.values() for _, value in records)


def test_write_pending_at_resignation_is_not_acknowledged() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.hold = True
    adding = house.add(who, T0)
    house.coordinator.unload(house.coordinator._table.partition_of("x"))
    assert adding.result.partitions[0].error is E.NOT_COORDINATOR
    house.finish()  # it comes all the same, and is told once


@pytest.mark.parametrize(
    "ask",
    [
        lambda house, _: house.init().error,
        lambda house, who: house.added(who, T0)[0],
        lambda house, who: house.verified(who, T0)[0],
        lambda house, who: house.add_offsets(who).error,
        lambda house, who: house.end(who).error,
        lambda house, _: house.describe().error,
    ],
    ids=["init", "add", "verify", "offsets", "end", "describe"],
)
def test_broker_that_is_not_coordinator_refuses(ask: Callable[[TransactionHouse, Any], E]) -> None:
    house = TransactionHouse()
    who = house.identity()
    house.leads = False
    assert ask(house, who) is E.NOT_COORDINATOR, "replaced, and has not heard of it"
    house.leads = True
    for partition in range(PARTITIONS):
        house.coordinator.begin_load(partition, 6)
    assert ask(house, who) is E.COORDINATOR_LOAD_IN_PROGRESS


def test_while_it_reads_it_lists_nothing() -> None:
    house = TransactionHouse()
    house.coordinator.begin_load(0, 6)
    assert house.listed().error is E.COORDINATOR_LOAD_IN_PROGRESS
