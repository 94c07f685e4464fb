"""The coordinator by requests alone: identities, fences, transactions, markers (KIP-98, 360)."""

from collections.abc import Callable

import pytest
from support.group_driver import Asked
from support.transaction_harness import T0, T1, U0, TransactionHarness

from barnabas.core.coordinator.transaction.records import decode_value
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

LAST = 32766


def test_one_transaction_after_the_other() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    assert who == (100, 0)
    assert harness.state() == "Empty"
    assert harness.added(who, T0, U0) == [E.NONE, E.NONE]
    assert harness.state() == "Ongoing"
    assert harness.end(who).error is E.NONE
    assert sorted(harness.markers) == [(T0, 100, 0, True), (U0, 100, 0, True)]
    assert harness.state() == "CompleteCommit"
    assert harness.added(who, T1) == [E.NONE]
    assert harness.end(who, commit=False).error is E.NONE
    assert harness.markers[2:] == [(T1, 100, 0, False)]
    assert harness.state() == "CompleteAbort"
    assert not harness.reports


def test_an_answer_comes_when_the_record_is_in_the_log_and_not_before() -> None:
    harness = TransactionHarness()
    harness.hold = True
    asked = harness.init()
    assert asked.waits
    harness.finish()
    who = asked.result.producer_id, asked.result.producer_epoch
    adding = harness.add(who, T0)
    assert adding.waits
    assert harness.verified(who, T0) == [E.INVALID_TXN_STATE]
    harness.finish()
    assert adding.result.partitions[0].error is E.NONE
    assert harness.verified(who, T0) == [E.NONE]
    ending = harness.end(who)
    assert ending.waits
    assert not harness.markers
    harness.finish()
    assert ending.error is E.NONE
    assert harness.markers
    assert harness.state() == "PrepareCommit"
    harness.finish()
    assert harness.state() == "CompleteCommit"


def test_a_new_producer_fences_the_one_before() -> None:
    harness = TransactionHarness()
    old = harness.identity()
    new = harness.identity()
    assert new == (old[0], 1)
    assert harness.added(old, T0) == [E.PRODUCER_FENCED]
    assert harness.end(old).error is E.PRODUCER_FENCED
    assert harness.verified(old, T0) == [E.PRODUCER_FENCED]
    assert harness.added((7, 1), T0) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert harness.added(new, T0) == [E.NONE]
    assert harness.added((new[0], -1), T0) == [E.PRODUCER_FENCED]


def test_a_new_producer_aborts_what_the_one_before_has_begun_and_gets_its_identity_then() -> None:
    harness = TransactionHarness()
    old = harness.identity()
    harness.added(old, T0, U0)
    harness.hold_markers = True
    taking_over = harness.init()
    assert taking_over.waits
    assert harness.state() == "PrepareAbort"
    assert harness.end(old).error is E.PRODUCER_FENCED
    harness.mark()
    assert taking_over.waits
    harness.mark()
    assert (taking_over.result.producer_id, taking_over.result.producer_epoch) == (old[0], 2)
    assert sorted(harness.markers) == [(T0, old[0], 1, False), (U0, old[0], 1, False)]


def test_coordinator_does_not_wait_for_long() -> None:
    harness = TransactionHarness(patience_ms=500)
    old = harness.identity()
    harness.added(old, T0)
    harness.hold_markers = True
    taking_over = harness.init()
    other = harness.init()
    assert other.error is E.CONCURRENT_TRANSACTIONS, "one waits, not two"
    harness.pass_time(501)
    assert taking_over.error is E.CONCURRENT_TRANSACTIONS
    harness.mark()
    assert harness.identity() == (old[0], 2)


def test_the_next_transaction_waits_for_the_markers_of_the_one_before() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    assert harness.end(who).error is E.NONE
    adding = harness.add(who, T1)
    assert adding.waits
    harness.mark()
    assert adding.result.partitions[0].error is E.NONE
    assert harness.describe().topics == {"t": [1]}


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_end_and_the_next_begin_share_one_batch(commit: bool, v2: bool) -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0, v2=v2)
    harness.hold_markers = True
    ended = harness.end(who, commit=commit, v2=v2).result
    who = (who[0], who[1] + v2)
    assert not v2 or (ended.producer_id, ended.producer_epoch) == who
    adding = harness.add(who, T1, v2=v2)
    harness.hold = True
    harness.mark()
    [(_, records, _)] = harness.held
    states = [decode_value(value or b"") for _, value in records]
    assert [(each.state.word, sorted(each.partitions)) for each in states] == [
        ("CompleteCommit" if commit else "CompleteAbort", []),
        ("Ongoing", [T1]),
    ]
    assert states[1].client_transaction_version == (2 if v2 else 0)
    assert adding.waits
    assert harness.state() == ("PrepareCommit" if commit else "PrepareAbort")
    harness.finish()
    assert adding.result.partitions[0].error is E.NONE
    harness.hold = False
    new = harness.restarted()
    assert new.describe().topics == {"t": [1]}
    assert new.end(who, v2=v2).error is E.NONE
    new.run_until_idle()
    assert new.markers == [(T1, who[0], who[1] + v2, True)]


@pytest.mark.parametrize("v2", [False, True])
def test_completion_waits_a_little_for_the_next_begin_and_shares_its_batch(v2: bool) -> None:
    harness = TransactionHarness(completion_delay_ms=10)
    who = harness.identity()
    harness.added(who, T0, v2=v2)
    assert harness.end(who, v2=v2).error is E.NONE
    harness.pass_time(5)
    assert (harness.markers, harness.state()) == ([(T0, who[0], who[1] + v2, True)], "PrepareCommit")
    who = (who[0], who[1] + v2)
    harness.hold = True
    adding = harness.add(who, T1, v2=v2)
    [(_, records, _)] = harness.held
    assert [decode_value(value or b"").state.word for _, value in records] == ["CompleteCommit", "Ongoing"]
    harness.finish()
    assert adding.result.partitions[0].error is E.NONE
    harness.hold = False
    harness.hold_markers = True
    assert harness.end(who, v2=v2).error is E.NONE
    harness.pass_time(100)
    assert harness.state() == "PrepareCommit", "its own markers are missing, whatever was to be completed before"
    harness.mark()
    harness.pass_time(9)
    assert harness.state() == "PrepareCommit"
    harness.pass_time(2)
    assert harness.state() == "CompleteCommit"


def test_requests_other_than_a_begin_complete_the_transaction_at_once() -> None:
    harness = TransactionHarness(completion_delay_ms=1_000_000)
    who = harness.identity()
    requests: list[Callable[[], Asked]] = [
        lambda: harness.end(who),
        lambda: harness.add_offsets(who),
        lambda: harness.init("x", *who),
    ]
    for request in requests:
        assert harness.added(who, T0) == [E.NONE]
        assert harness.end(who).error is E.NONE
        assert harness.state() == "PrepareCommit"
        assert request().result.error is E.NONE
        assert harness.state() != "PrepareCommit"
    assert harness.state() == "Empty"


def test_kill_while_the_completion_waits_sends_the_markers_again() -> None:
    harness = TransactionHarness(completion_delay_ms=10)
    who = harness.identity()
    harness.added(who, T0)
    harness.end(who)
    new = harness.restarted()
    new.run_until_idle()
    assert new.markers == harness.markers == [(T0, *who, True)]
    assert new.state() == "CompleteCommit"
    harness.coordinator.close()
    harness.pass_time(100)
    assert not harness.held, "nothing is written by a coordinator that has gone"


def test_completion_that_could_not_be_written_is_tried_again() -> None:
    harness = TransactionHarness(completion_delay_ms=10)
    who = harness.identity()
    harness.added(who, T0)
    harness.end(who)
    harness.error = E.NOT_ENOUGH_REPLICAS
    harness.pass_time(50)
    assert (harness.state(), harness.coordinator.retrying) == ("PrepareCommit", 1)
    harness.error = E.NONE
    harness.pass_time(200)
    assert (harness.state(), harness.coordinator.retrying) == ("CompleteCommit", 0)


def test_the_end_is_written_again_where_the_batch_with_the_next_begin_failed() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    adding = harness.add(who, T1)
    harness.hold = True
    harness.mark()
    harness.finish(E.NOT_ENOUGH_REPLICAS)
    assert adding.result.partitions[0].error is E.COORDINATOR_NOT_AVAILABLE
    assert harness.state() == "PrepareCommit"
    harness.hold = False
    harness.pass_time(200)
    assert harness.state() == "CompleteCommit"
    assert harness.added(who, T1) == [E.NONE]


def test_the_end_is_written_without_a_next_begin_that_is_too_large() -> None:
    harness = TransactionHarness(record_max_bytes=60)
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    harness.leaders[TopicPartition("t" * 100, 0)] = 1
    adding = harness.add(who, TopicPartition("t" * 100, 0))
    harness.mark()
    assert adding.result.partitions[0].error is E.UNKNOWN_SERVER_ERROR
    harness.pass_time(200)
    assert harness.state() == "CompleteCommit"


def test_a_producer_that_was_fenced_meanwhile_begins_nothing() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    adding = harness.add((who[0], who[1] + 1), T1, v2=True)
    assert adding.waits
    harness.mark()
    assert adding.result.partitions[0].error is E.PRODUCER_FENCED
    assert harness.state() == "CompleteCommit"


@pytest.mark.parametrize(("first", "again"), [(True, E.NONE), (False, E.INVALID_TXN_STATE)])
def test_a_commit_that_is_said_twice(first: bool, again: E) -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    assert harness.end(who, commit=first).error is E.NONE
    assert harness.end(who, commit=True).error is again
    assert harness.end(who, commit=False).error is (E.INVALID_TXN_STATE if first else E.NONE)
    assert len(harness.markers) == 1


def test_a_commit_that_is_said_twice_while_the_markers_are_under_way() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    assert harness.end(who, commit=False).error is E.INVALID_TXN_STATE
    second = harness.end(who)
    assert second.waits
    harness.mark()
    assert second.error is E.NONE


def test_nothing_to_end() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    for commit in (True, False):
        assert harness.end(who, commit=commit).error is E.INVALID_TXN_STATE
    assert harness.end(who, name="nobody").error is E.INVALID_PRODUCER_ID_MAPPING
    assert harness.added(who, T0, name="nobody") == [E.INVALID_PRODUCER_ID_MAPPING]
    assert harness.verified(who, T0, name="nobody") == [E.INVALID_PRODUCER_ID_MAPPING]


def test_one_partition_that_is_refused_keeps_the_others_out() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    missing, internal = TopicPartition("t", 9), TopicPartition("__consumer_offsets", 0)
    assert harness.added(who, T0, missing, internal) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert harness.state() == "Empty"


def test_positions_of_a_group_belong_to_the_transaction() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    assert harness.add_offsets(who).error is E.NONE
    assert harness.describe().topics == {"t": [1]}  # where this harness keeps positions
    assert harness.add_offsets((who[0], 9)).error is E.PRODUCER_FENCED
    assert harness.add_offsets((9, 0)).error is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("name", "fields", "error"),
    [
        ("", {}, E.INVALID_REQUEST),
        ("x" * 40_000, {}, E.INVALID_REQUEST),
        ("x", {"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ("x", {"timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ("x", {"producer_id": 5}, E.INVALID_REQUEST),
        ("x", {"epoch": 5}, E.INVALID_REQUEST),
    ],
)
def test_requests_that_make_no_sense(name: str, fields: dict[str, int], error: E) -> None:
    harness = TransactionHarness()
    assert harness.init(name, **fields).error is error
    assert not any(harness.log.values())


# --- epochs (KIP-360)


def test_a_producer_asks_for_its_next_epoch_and_once_more_if_the_answer_was_lost() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    assert harness.identity("x", *who) == (who[0], 1)
    assert harness.identity("x", *who) == (who[0], 1), "the same answer"
    assert harness.identity("x", who[0], 1) == (who[0], 2)
    assert harness.init("x", *who).error is E.PRODUCER_FENCED
    assert harness.init("x", 77, 2).error is E.PRODUCER_FENCED


def test_once_a_transaction_has_begun_the_epoch_before_is_fenced() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    new = harness.identity("x", *who)
    harness.added(new, T0)
    assert harness.init("x", *who).error is E.PRODUCER_FENCED, "it would take the transaction of another one"
    assert harness.end(new).error is E.NONE
    assert harness.init("x", *who).error is E.PRODUCER_FENCED


def test_a_producer_that_asks_for_its_next_epoch_within_a_transaction() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    assert harness.identity("x", *who) == (who[0], 1)
    assert harness.markers == [(T0, who[0], 1, False)]


def test_unknown_transactional_id_gets_new_producer_id() -> None:
    """The producer may continue with a new id."""
    harness = TransactionHarness()
    assert harness.identity("x", 55, 3) == (100, 0)


def test_epochs_come_to_an_end_and_another_producer_id_follows() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    entry = harness.coordinator._table.get("x")
    assert entry is not None
    for epoch in (LAST - 1, LAST):  # 32 thousand times, in short
        entry.transaction.stored = type(entry.transaction.stored)(
            producer_id=who[0], producer_epoch=epoch - 1, timeout_ms=1000
        )
        assert harness.identity() == (who[0], epoch)
    assert harness.identity() == (101, 0)


def test_the_last_epoch_asks_for_the_next_one_and_once_more() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    entry = harness.coordinator._table.get("x")
    assert entry is not None
    entry.transaction.stored = type(entry.transaction.stored)(
        producer_id=who[0], producer_epoch=LAST, timeout_ms=60_000, updated_ms=harness.clock.now_ms()
    )
    last = (who[0], LAST)
    assert harness.added(last, T0) == [E.NONE]
    assert harness.identity("x") == (101, 0), "fenced with the reserved epoch, then a new id"
    assert harness.markers == [(T0, who[0], LAST + 1, False)]
    entry.transaction.stored = type(entry.transaction.stored)(producer_id=7, producer_epoch=LAST, timeout_ms=60_000)
    assert harness.identity("x", 7, LAST) == (102, 0)
    assert harness.identity("x", 7, LAST) == (102, 0), "the answer was lost"


def test_the_last_epoch_asks_for_the_next_one_in_the_middle_of_a_transaction() -> None:
    harness = TransactionHarness(abort_check_interval_ms=1000)
    who = harness.identity()
    entry = harness.coordinator._table.get("x")
    assert entry is not None
    entry.transaction.stored = type(entry.transaction.stored)(
        producer_id=who[0], producer_epoch=LAST, timeout_ms=60_000, updated_ms=harness.clock.now_ms()
    )
    assert harness.added((who[0], LAST), T0) == [E.NONE]
    assert harness.identity("x", who[0], LAST) == (101, 0), "the epoch that it was fenced with is reserved"
    assert harness.markers == [(T0, who[0], LAST + 1, False)]
    assert harness.identity("x", who[0], LAST) == (101, 0), "the answer was lost"
    assert harness.added((101, 0), T0) == [E.NONE]


def test_without_producer_ids_a_new_name_asks_again() -> None:
    harness = TransactionHarness()
    harness.next_id = None
    assert harness.init().error is E.COORDINATOR_LOAD_IN_PROGRESS
    harness.next_id = 5
    assert harness.identity() == (5, 0)


# --- time


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced() -> None:
    harness = TransactionHarness(abort_check_interval_ms=1000)
    who = harness.identity(timeout_ms=3000)
    harness.added(who, T0)
    harness.pass_time(3000)
    assert harness.state() == "Ongoing"
    harness.pass_time(1500)
    assert harness.state() == "CompleteAbort"
    assert harness.markers == [(T0, who[0], 1, False)]
    assert harness.end(who).error is E.PRODUCER_FENCED
    assert harness.identity("x") == (who[0], 2)
    (line,) = harness.lines
    assert line == "the transaction of 'x' is aborted: it has lasted 4000 ms, more than the 3000 ms that it was to last"
    assert not harness.reports, "an operator need not look at it"


def test_an_abort_that_cannot_be_written_is_tried_at_the_next_look() -> None:
    harness = TransactionHarness(abort_check_interval_ms=1000)
    who = harness.identity(timeout_ms=100)
    harness.added(who, T0)
    harness.error = E.NOT_ENOUGH_REPLICAS
    harness.pass_time(2500)
    assert harness.state() == "Ongoing"
    assert not harness.markers
    assert harness.reports
    harness.error = E.NONE
    harness.pass_time(1000)
    assert harness.markers == [(T0, who[0], 1, False)]


def test_idle_transactional_ids_expire() -> None:
    harness = TransactionHarness(id_expiration_ms=10_000, expiry_check_interval_ms=1000)
    harness.identity("idle")
    busy = harness.identity("busy", timeout_ms=900_000)
    harness.added(busy, T0, name="busy")
    harness.pass_time(11_500)
    assert harness.describe("idle").error is E.TRANSACTIONAL_ID_NOT_FOUND
    assert harness.state("busy") == "Ongoing"
    tombstones = [key for records in harness.log.values() for key, value in records if value is None]
    assert tombstones == [b"\x00\x00\x00\x04idle"]
    assert harness.identity("idle") == (102, 0)
    assert harness.restarted().describe("idle").producer_id == 102


# --- writes that fail


@pytest.mark.parametrize(
    ("failure", "observed"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_write_leaves_the_transaction_unchanged(failure: E, observed: E) -> None:
    harness = TransactionHarness()
    harness.error = failure
    assert harness.init().error is observed
    assert harness.describe().error is E.TRANSACTIONAL_ID_NOT_FOUND
    harness.error = E.NONE
    who = harness.identity()
    harness.error = failure
    assert harness.added(who, T0) == [observed]
    assert harness.state() == "Empty"
    harness.error = E.NONE
    harness.added(who, T0)
    harness.error = failure
    assert harness.end(who).error is observed
    assert not harness.markers
    harness.error = E.NONE
    assert harness.end(who).error is E.NONE
    assert harness.markers == [(T0, *who, True)]


def test_the_end_of_a_transaction_is_written_until_it_is() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.hold_markers = True
    harness.end(who)
    harness.error = E.NOT_ENOUGH_REPLICAS
    harness.mark()
    assert harness.state() == "PrepareCommit"
    assert harness.coordinator.retrying == 1
    harness.error = E.NONE
    harness.pass_time(200)
    assert harness.state() == "CompleteCommit"
    assert harness.coordinator.retrying == 0
    assert len(harness.markers) == 1


def test_too_many_partitions_for_one_record() -> None:
    harness = TransactionHarness(record_max_bytes=60)
    who = harness.identity()
    assert harness.added(who, T0) == [E.NONE]
    assert harness.added(who, T1, U0) == [E.UNKNOWN_SERVER_ERROR] * 2
    assert harness.end(who).error is E.NONE


def test_open_transactions_can_end_when_memory_limit_is_reached() -> None:
    harness = TransactionHarness(size_max_bytes=2150)
    who = harness.identity()
    assert harness.added(who, T0) == [E.NONE]
    other = harness.identity("other")
    assert harness.init("third").error is E.COORDINATOR_NOT_AVAILABLE
    assert harness.added(other, T0, name="other") == [E.COORDINATOR_NOT_AVAILABLE]
    assert harness.end(who).error is E.NONE
    assert harness.markers


def test_a_transaction_ends_though_its_producer_asks_again_and_again_for_more_than_memory_allows() -> None:
    harness = TransactionHarness(size_max_bytes=1200)
    who = harness.identity()
    assert harness.added(who, T0) == [E.NONE]
    harness.hold_markers = True
    harness.end(who)
    adding = harness.add(who, T0, T1)
    harness.mark()
    for _ in range(3):
        assert adding.result.partitions[0].error is E.COORDINATOR_NOT_AVAILABLE
        adding = harness.add(who, T0, T1)
        harness.pass_time(110)
    assert harness.state() == "CompleteCommit"
    assert harness.describe().topics == {}


# --- who asks


def test_list_transactions_filters_by_state_and_producer() -> None:
    harness = TransactionHarness()
    who = harness.identity("a")
    harness.identity("b")
    harness.added(who, T0, name="a")
    harness.pass_time(100)
    assert [(each.transactional_id, each.state) for each in harness.listed().transactions] == [
        ("a", "Ongoing"),
        ("b", "Empty"),
    ]
    assert [each.transactional_id for each in harness.listed(states=["Ongoing"]).transactions] == ["a"]
    assert [each.transactional_id for each in harness.listed(producer_ids=[101]).transactions] == ["b"]
    assert [each.transactional_id for each in harness.listed(duration_ms=50).transactions] == ["a"]
    assert not harness.listed(duration_ms=500).transactions
    assert harness.listed(states=["Odd"]).unknown_states == ["Odd"]
    assert [each.transactional_id for each in harness.listed(pattern="[b-z]|c+").transactions] == ["b"]
    assert len(harness.listed(pattern="").transactions) == 2
    assert harness.listed(pattern="(?=a)").error is E.INVALID_REGULAR_EXPRESSION


def test_a_transaction_is_described() -> None:
    harness = TransactionHarness()
    who = harness.identity(timeout_ms=7000)
    harness.added(who, T1, U0, T0)
    observed = harness.describe()
    assert (observed.state, observed.timeout_ms, observed.producer_id, observed.producer_epoch) == (
        "Ongoing",
        7000,
        *who,
    )
    assert observed.topics == {"t": [0, 1], "u": [0]}
    assert observed.start_ms == harness.clock.now_ms()
    assert harness.describe("nobody").error is E.TRANSACTIONAL_ID_NOT_FOUND
    harness.leads = False
    assert harness.describe().error is E.NOT_COORDINATOR


def test_start_time_of_ended_transaction_is_known() -> None:
    harness = TransactionHarness()
    who = harness.identity()
    began_ms = harness.clock.now_ms()
    harness.added(who, T0)
    harness.pass_time(700)
    harness.end(who)
    harness.run_until_idle()
    for each in (harness, harness.restarted()):
        assert (each.describe().state, each.describe().start_ms) == ("CompleteCommit", began_ms)
        assert not each.listed(duration_ms=50).transactions, "it lasts no longer"
    harness.identity()
    assert (harness.describe().state, harness.describe().start_ms) == ("Empty", -1)


def test_init_waiting_for_failed_end_append_gets_not_coordinator() -> None:
    """The append is not repeated while the log refuses it."""
    harness = TransactionHarness()
    who = harness.identity()
    harness.added(who, T0)
    harness.error = E.KAFKA_STORAGE_ERROR
    waiting = harness.init()
    harness.run_until_idle()
    assert waiting.error is E.NOT_COORDINATOR
    assert len(harness.reports) == 1
    assert harness.state() == "Ongoing"
    harness.error = E.NONE
    assert harness.identity() == (who[0], who[1] + 2)
