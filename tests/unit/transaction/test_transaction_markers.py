"""Partitions get the markers of a transaction, whatever happens to their leaders meanwhile."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from support.transaction_harness import ELSEWHERE, HERE, T0, T1, U0, TransactionHarness

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.coordinator.transaction.markers import MarkerSender, PartitionLookup
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkersResult, WrittenTxnMarker
from barnabas.ports.error_codes import ErrorCode as E


def begun(*partitions: object) -> tuple[TransactionHarness, tuple[int, int]]:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, *(partitions or (T0, U0)))  # type: ignore[arg-type]
    return harness, who


def test_each_leader_is_asked_once_about_all_that_it_leads() -> None:
    harness, who = begun(T0, T1, U0)
    harness.hold_markers = True
    harness.end(who)
    asked = {node: sorted(markers[0].partitions) for node, markers, _ in harness.asked_to_mark}
    assert asked == {HERE: [T0, T1], ELSEWHERE: [U0]}


def test_markers_of_concurrent_ends_are_batched_per_leader() -> None:
    harness = TransactionHarness()
    harness.hold_markers = True
    names = [f"p{number}" for number in range(20)]
    for name in names:
        who = harness.identity(name)
        harness.added(who, U0, name=name)
        harness.end(who, name=name)
    assert len(harness.asked_to_mark) == 2, "the maximum is in flight to one leader"
    harness.mark()
    harness.mark()
    assert sum(len(markers) for _, markers, _ in harness.asked_to_mark) == 18
    while harness.asked_to_mark:
        harness.mark()
    assert {harness.state(name) for name in names} == {"CompleteCommit"}


@pytest.mark.parametrize(
    "error",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
    ],
)
def test_retriable_marker_error_is_retried(error: E) -> None:
    harness, who = begun()
    harness.marker_error[U0] = error
    assert harness.end(who).error is E.NONE
    harness.pass_time(5000)
    assert harness.state() == "PrepareCommit"
    assert harness.markers == [(T0, *who, True)], "a broker with the marker gets no second one"
    del harness.marker_error[U0]
    harness.pass_time(1100)
    assert harness.state() == "CompleteCommit"
    assert not harness.reports


def test_a_leader_that_moves() -> None:
    harness, who = begun(U0)
    harness.hold_markers = True
    harness.end(who)
    harness.leaders[U0] = HERE
    harness.mark(lost=True)
    harness.pass_time(100)
    assert [node for node, _, _ in harness.asked_to_mark] == [HERE]
    harness.mark()
    assert harness.state() == "CompleteCommit"


def test_marker_waits_for_partition_without_leader() -> None:
    harness, who = begun()
    harness.leaders[U0] = -1
    harness.end(who)
    harness.pass_time(60_000)
    assert (harness.state(), harness.sender.without_leader) == ("PrepareCommit", 1)
    (line,) = harness.reports
    assert line == f"the marker of producer {who[0]}, epoch 0, cannot be written everywhere yet: no leader of u-0"
    harness.leaders[U0] = ELSEWHERE
    harness.pass_time(1100)
    assert (harness.state(), harness.sender.without_leader) == ("CompleteCommit", 0)


def test_a_partition_that_was_deleted_is_passed_over() -> None:
    harness, who = begun()
    del harness.leaders[U0]
    harness.end(who)
    harness.pass_time(1000)
    assert harness.state() == "PrepareCommit", "news of a topic may be late"
    harness.pass_time(3000)
    assert harness.state() == "CompleteCommit"
    assert harness.markers == [(T0, *who, True)]


def test_a_partition_that_this_broker_has_not_heard_of_gets_its_marker_when_it_has() -> None:
    harness, who = begun()
    leader = harness.leaders.pop(U0)
    harness.not_known_yet.add(U0)
    harness.end(who)
    harness.pass_time(60_000)
    assert (harness.state(), harness.markers) == ("PrepareCommit", [(T0, *who, True)])
    assert 10 < harness.asked_the_tree <= 30
    harness.leaders[U0] = leader
    harness.pass_time(1100)
    assert (harness.state(), harness.markers) == ("CompleteCommit", [(T0, *who, True), (U0, *who, True)])
    asked = harness.asked_the_tree
    harness.pass_time(10_000)
    assert harness.asked_the_tree == asked


def test_the_tree_is_asked_once_for_the_partitions_of_many_transactions() -> None:
    harness = TransactionHarness()
    names = [f"p{number}" for number in range(20)]
    identities = [harness.identity(name) for name in names]
    for name, who in zip(names, identities, strict=True):
        harness.added(who, U0, name=name)
    del harness.leaders[U0]
    for name, who in zip(names, identities, strict=True):
        harness.end(who, name=name)
    harness.pass_time(4000)
    assert {harness.state(name) for name in names} == {"CompleteCommit"}
    assert harness.asked_the_tree <= 2


def test_a_partition_that_comes_back_while_the_tree_is_asked_gets_its_marker() -> None:
    harness, who = begun()
    answers: list[Callable[[], None]] = []
    harness.sender._look_up = lambda partitions, looked: answers.append(
        lambda: looked(PartitionLookup(set(partitions)))
    )
    leader = harness.leaders.pop(U0)
    harness.end(who)
    harness.pass_time(3500)
    (answer,) = answers
    harness.leaders[U0] = leader
    answer()
    assert harness.state() == "PrepareCommit"
    harness.pass_time(1100)
    assert (harness.state(), harness.markers) == ("CompleteCommit", [(T0, *who, True), (U0, *who, True)])


def test_a_coordinator_that_knows_an_earlier_topic_of_the_name_waits_for_the_one_that_the_tree_has() -> None:
    """The leader of the deleted topic might still take the marker, which the new one would never get."""
    old, who = begun()
    old.hold_markers = True
    old.end(who)
    new = TransactionHarness(old.log, load=False)
    new.not_known_yet.add(U0)
    new.load()
    new.pass_time(30_000)
    assert (new.state(), new.markers) == ("PrepareCommit", [(T0, *who, True)])
    new.not_known_yet.clear()
    new.pass_time(1100)
    assert (new.state(), new.markers) == ("CompleteCommit", [(T0, *who, True), (U0, *who, True)])


def test_markers_of_a_coordinator_before_wait_until_the_tree_answers() -> None:
    old, who = begun()
    old.hold_markers = True
    old.end(who)
    new = TransactionHarness(old.log, load=False)
    new.tree_answers = False
    new.load()
    new.pass_time(30_000)
    assert (new.state(), new.markers) == ("PrepareCommit", [])
    new.tree_answers = True
    new.pass_time(1100)
    assert new.state() == "CompleteCommit"


def test_all_partitions_were_deleted_before_it_is_read() -> None:
    old, who = begun()
    old.hold_markers = True
    old.end(who)
    new = TransactionHarness(old.log, load=False)
    new.leaders.clear()
    new.load()
    new.pass_time(1000)
    assert (new.state(), new.markers) == ("CompleteCommit", [])


def test_a_partition_that_knows_a_later_producer_needs_no_marker() -> None:
    harness, who = begun()
    harness.marker_error[U0] = E.INVALID_PRODUCER_EPOCH
    harness.end(who)
    harness.run_until_idle()
    assert harness.state() == "CompleteCommit"


def test_fatal_marker_error_is_reported_once_and_retried() -> None:
    harness, who = begun()
    harness.marker_error[U0] = E.TRANSACTION_COORDINATOR_FENCED
    harness.end(who)
    harness.pass_time(20_000)
    assert harness.state() == "PrepareCommit"
    (line,) = harness.reports
    assert "TRANSACTION_COORDINATOR_FENCED" in line
    del harness.marker_error[U0]
    harness.pass_time(1100)
    assert harness.state() == "CompleteCommit"


def test_an_answer_that_leaves_things_out_is_no_answer() -> None:
    harness, who = begun(U0)
    harness.hold_markers = True
    harness.end(who)
    _, _, reply = harness.asked_to_mark.pop(0)
    reply(WriteTxnMarkersResult(markers=[]))
    harness.pass_time(100)
    assert harness.state() == "PrepareCommit"
    harness.mark()
    assert harness.state() == "CompleteCommit"


def test_more_partitions_than_one_request_takes() -> None:
    harness = TransactionHarness()
    many = [type(T0)("many", number) for number in range(2500)]
    harness.leaders.update(dict.fromkeys(many, ELSEWHERE))
    who = harness.identity()
    assert set(harness.added(who, *many)) == {E.NONE}
    harness.hold_markers = True
    harness.end(who)
    assert sorted(len(markers[0].partitions) for _, markers, _ in harness.asked_to_mark) == [500, 2000]
    harness.mark()
    harness.mark()
    assert harness.state() == "CompleteCommit"
    assert len(harness.markers) == 2500


def test_many_batches_for_partitions_that_are_led_here_are_written_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is alone answers itself at once: not one request within the other."""
    monkeypatch.setattr("barnabas.core.coordinator.transaction.markers._PARTITIONS_MAX", 1)
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    lines: list[str] = []
    ended: list[int] = []
    deepest = under_way = 0

    def write(markers: Sequence[TxnMarker], done: Callable[[Sequence[WrittenTxnMarker]], None], _: float) -> None:
        nonlocal deepest, under_way
        under_way += 1
        deepest = max(deepest, under_way)
        done([WrittenTxnMarker(producer_id=markers[0].producer_id, partitions=[PartitionOutcome(*T0, E.NONE)])])
        under_way -= 1

    sender = MarkerSender(
        own_id=HERE,
        leader_of=lambda _: HERE,
        look_up=lambda _, looked: looked(PartitionLookup()),
        write_here=write,
        submit=None,
        clock=clock,
        scheduler=scheduler,
        report=lines.append,
    )
    for number in range(500):
        marker = TxnMarker(producer_id=number, producer_epoch=0, committed=True, partitions=[T0], coordinator_epoch=0)
        sender.send(marker, partial(ended.append, number))
    scheduler.run_pending()
    assert ended == list(range(500)) and not lines
    assert deepest == 1
