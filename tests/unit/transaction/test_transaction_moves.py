"""Coordinators that move, are killed in every state, or have been replaced without having heard of it."""

from collections.abc import Callable
from typing import Any

import pytest
from support.transaction_harness import PARTITIONS, T0, T1, U0, TransactionHarness

from barnabas.ports.error_codes import ErrorCode as E


def killed(harness: TransactionHarness) -> TransactionHarness:
    """Return the next coordinator, which loads the log; nothing else remains."""
    new = harness.restarted()
    new.run_until_idle()
    return new


def test_killed_while_nothing_is_under_way() -> None:
    old = TransactionHarness()
    who = old.identity()
    new = killed(old)
    assert new.added(who, T0) == [E.NONE]
    assert new.end(who).error is E.NONE
    assert killed(new).state() == "CompleteCommit"
    assert killed(new).end(who).error is E.NONE, "a commit whose answer was lost"


def test_killed_within_a_transaction() -> None:
    old = TransactionHarness()
    who = old.identity()
    old.added(who, T0)
    new = killed(old)
    assert new.describe().topics == {"t": [0]}
    assert new.added(who, T1) == [E.NONE]
    assert new.end(who).error is E.NONE
    assert sorted(new.markers) == [(T0, *who, True), (T1, *who, True)]


def test_a_transaction_that_was_begun_before_a_kill_still_times_out() -> None:
    old = TransactionHarness()
    who = old.identity(timeout_ms=30_000)
    old.added(who, T0)
    new = old.restarted()
    new.pass_time(41_000)
    assert new.markers == [(T0, who[0], 1, False)]


@pytest.mark.parametrize("commit", [True, False])
def test_kill_after_prepare_before_markers_completes_at_new_coordinator(commit: bool) -> None:
    old = TransactionHarness()
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
    old = TransactionHarness()
    who = old.identity()
    old.added(who, T0, U0)
    old.hold_markers = True
    old.end(who, commit=commit)
    old.mark()
    assert len(old.markers) == 1
    new = killed(old)
    assert sorted(new.markers) == [(T0, *who, commit), (U0, *who, commit)], "once more, which does no harm"


def test_kill_after_all_markers_before_completion_record_completes() -> None:
    old = TransactionHarness()
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
    old = TransactionHarness()
    who = old.identity()
    old.added(who, T0)
    old.hold_markers = True
    old.init()
    new = killed(old)
    assert new.markers == [(T0, who[0], 1, False)]
    assert new.end(who).error is E.PRODUCER_FENCED
    assert new.identity() == (who[0], 2)


def test_the_markers_of_the_new_coordinator_have_its_epoch() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    harness.coordinator_epoch = 9
    harness.load()
    harness.run_until_idle()
    epochs = [marker.coordinator_epoch for _, markers, _ in harness.asked_to_mark for marker in markers]
    assert epochs == [5, 9]


def test_resigning_coordinator_fails_pending_requests_with_not_coordinator() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    waiting = harness.add(who, T1)
    for partition in range(PARTITIONS):
        harness.coordinator.unload(partition)
    assert waiting.result.partitions[0].error is E.NOT_COORDINATOR
    assert harness.init().error is E.NOT_COORDINATOR
    harness.mark()
    assert not any(b"\x04" in (value or b"")[16:17] for records in harness.log.values() for _, value in records)


def test_write_pending_at_resignation_is_not_acknowledged() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.hold = True
    adding = harness.add(who, T0)
    harness.coordinator.unload(harness.coordinator._table.partition_of("x"))
    assert adding.result.partitions[0].error is E.NOT_COORDINATOR
    harness.finish()  # it takes effect all the same, and is answered once


@pytest.mark.parametrize(
    "ask",
    [
        lambda harness, _: harness.init().error,
        lambda harness, who: harness.added(who, T0)[0],
        lambda harness, who: harness.verified(who, T0)[0],
        lambda harness, who: harness.add_offsets(who).error,
        lambda harness, who: harness.end(who).error,
        lambda harness, _: harness.describe().error,
    ],
    ids=["init", "add", "verify", "offsets", "end", "describe"],
)
def test_broker_that_is_not_coordinator_refuses(ask: Callable[[TransactionHarness, Any], E]) -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.leads = False
    assert ask(harness, who) is E.NOT_COORDINATOR, "replaced, and has not heard of it"
    harness.leads = True
    for partition in range(PARTITIONS):
        harness.coordinator.begin_load(partition, 6)
    assert ask(harness, who) is E.COORDINATOR_LOAD_IN_PROGRESS


def test_while_it_reads_it_lists_nothing() -> None:
    harness = TransactionHarness()
    harness.coordinator.begin_load(0, 6)
    assert harness.listed().error is E.COORDINATOR_LOAD_IN_PROGRESS
