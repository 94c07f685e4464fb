"""The coordinator by requests alone: identities, fences, transactions, markers (KIP-98, 360)."""

import pytest
from support.transaction_house import T0, T1, U0, TransactionHouse

from barnabas.core.coordinator.transaction.records import decode_value
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition

LAST = 32766


def test_one_transaction_after_the_other() -> None:
    house = TransactionHouse()
    who = house.identity()
    assert who == (100, 0)
    assert house.state() == "Empty"
    assert house.added(who, T0, U0) == [E.NONE, E.NONE]
    assert house.state() == "Ongoing"
    assert house.end(who).error is E.NONE
    assert sorted(house.markers) == [(T0, 100, 0, True), (U0, 100, 0, True)]
    assert house.state() == "CompleteCommit"
    assert house.added(who, T1) == [E.NONE]
    assert house.end(who, commit=False).error is E.NONE
    assert house.markers[2:] == [(T1, 100, 0, False)]
    assert house.state() == "CompleteAbort"
    assert not house.reports


def test_an_answer_comes_when_the_record_is_in_the_log_and_not_before() -> None:
    house = TransactionHouse()
    house.hold = True
    asked = house.init()
    assert asked.waits
    house.finish()
    who = asked.result.producer_id, asked.result.producer_epoch
    adding = house.add(who, T0)
    assert adding.waits
    assert house.verified(who, T0) == [E.INVALID_TXN_STATE]
    house.finish()
    assert adding.result.partitions[0].error is E.NONE
    assert house.verified(who, T0) == [E.NONE]
    ending = house.end(who)
    assert ending.waits
    assert not house.markers
    house.finish()
    assert ending.error is E.NONE
    assert house.markers
    assert house.state() == "PrepareCommit"
    house.finish()
    assert house.state() == "CompleteCommit"


def test_a_new_producer_fences_the_one_before() -> None:
    house = TransactionHouse()
    old = house.identity()
    new = house.identity()
    assert new == (old[0], 1)
    assert house.added(old, T0) == [E.PRODUCER_FENCED]
    assert house.end(old).error is E.PRODUCER_FENCED
    assert house.verified(old, T0) == [E.PRODUCER_FENCED]
    assert house.added((7, 1), T0) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert house.added(new, T0) == [E.NONE]
    assert house.added((new[0], -1), T0) == [E.PRODUCER_FENCED]


def test_a_new_producer_aborts_what_the_one_before_has_begun_and_gets_its_identity_then() -> None:
    house = TransactionHouse()
    old = house.identity()
    house.added(old, T0, U0)
    house.hold_markers = True
    taking_over = house.init()
    assert taking_over.waits
    assert house.state() == "PrepareAbort"
    assert house.end(old).error is E.PRODUCER_FENCED
    house.mark()
    assert taking_over.waits
    house.mark()
    assert (taking_over.result.producer_id, taking_over.result.producer_epoch) == (old[0], 2)
    assert sorted(house.markers) == [(T0, old[0], 1, False), (U0, old[0], 1, False)]


def test_coordinator_does_not_wait_for_long() -> None:
    house = TransactionHouse(patience_ms=500)
    old = house.identity()
    house.added(old, T0)
    house.hold_markers = True
    taking_over = house.init()
    other = house.init()
    assert other.error is E.CONCURRENT_TRANSACTIONS, "one waits, no more"
    house.pass_time(501)
    assert taking_over.error is E.CONCURRENT_TRANSACTIONS
    house.mark()
    assert house.identity() == (old[0], 2)


def test_the_next_transaction_waits_for_the_markers_of_the_one_before() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    assert house.end(who).error is E.NONE
    adding = house.add(who, T1)
    assert adding.waits
    house.mark()
    assert adding.result.partitions[0].error is E.NONE
    assert house.describe().topics == {"t": [1]}


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_end_and_the_next_begin_share_one_batch(commit: bool, v2: bool) -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0, v2=v2)
    house.hold_markers = True
    ended = house.end(who, commit=commit, v2=v2).result
    who = (who[0], who[1] + v2)
    assert not v2 or (ended.producer_id, ended.producer_epoch) == who
    adding = house.add(who, T1, v2=v2)
    house.hold = True
    house.mark()
    [(_, records, _)] = house.held
    states = [decode_value(value or b"") for _, value in records]
    assert [(each.state.word, sorted(each.partitions)) for each in states] == [
        ("CompleteCommit" if commit else "CompleteAbort", []),
        ("Ongoing", [T1]),
    ]
    assert states[1].client_transaction_version == (2 if v2 else 0)
    assert adding.waits
    assert house.state() == ("PrepareCommit" if commit else "PrepareAbort")
    house.finish()
    assert adding.result.partitions[0].error is E.NONE
    house.hold = False
    new = house.restarted()
    assert new.describe().topics == {"t": [1]}
    assert new.end(who, v2=v2).error is E.NONE
    new.settle()
    assert new.markers == [(T1, who[0], who[1] + v2, True)]


def test_the_end_is_written_again_where_the_batch_with_the_next_begin_failed() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    adding = house.add(who, T1)
    house.hold = True
    house.mark()
    house.finish(E.NOT_ENOUGH_REPLICAS)
    assert adding.result.partitions[0].error is E.COORDINATOR_NOT_AVAILABLE
    assert house.state() == "PrepareCommit"
    house.hold = False
    house.pass_time(200)
    assert house.state() == "CompleteCommit"
    assert house.added(who, T1) == [E.NONE]


def test_the_end_is_written_without_a_next_begin_that_is_too_large() -> None:
    house = TransactionHouse(record_max_bytes=60)
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    house.leaders[TopicPartition("t" * 100, 0)] = 1
    adding = house.add(who, TopicPartition("t" * 100, 0))
    house.mark()
    assert adding.result.partitions[0].error is E.UNKNOWN_SERVER_ERROR
    house.pass_time(200)
    assert house.state() == "CompleteCommit"


def test_a_producer_that_was_fenced_meanwhile_begins_nothing() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    adding = house.add((who[0], who[1] + 1), T1, v2=True)
    assert adding.waits
    house.mark()
    assert adding.result.partitions[0].error is E.PRODUCER_FENCED
    assert house.state() == "CompleteCommit"


@pytest.mark.parametrize(("first", "again"), [(True, E.NONE), (False, E.INVALID_TXN_STATE)])
def test_a_commit_that_is_said_twice(first: bool, again: E) -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    assert house.end(who, commit=first).error is E.NONE
    assert house.end(who, commit=True).error is again
    assert house.end(who, commit=False).error is (E.INVALID_TXN_STATE if first else E.NONE)
    assert len(house.markers) == 1


def test_a_commit_that_is_said_twice_while_the_markers_are_under_way() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    assert house.end(who, commit=False).error is E.INVALID_TXN_STATE
    second = house.end(who)
    assert second.waits
    house.mark()
    assert second.error is E.NONE


def test_nothing_to_end() -> None:
    house = TransactionHouse()
    who = house.identity()
    for commit in (True, False):
        assert house.end(who, commit=commit).error is E.INVALID_TXN_STATE
    assert house.end(who, name="nobody").error is E.INVALID_PRODUCER_ID_MAPPING
    assert house.added(who, T0, name="nobody") == [E.INVALID_PRODUCER_ID_MAPPING]
    assert house.verified(who, T0, name="nobody") == [E.INVALID_PRODUCER_ID_MAPPING]


def test_one_partition_that_is_refused_keeps_the_others_out() -> None:
    house = TransactionHouse()
    who = house.identity()
    missing, internal = TopicPartition("t", 9), TopicPartition("__consumer_offsets", 0)
    assert house.added(who, T0, missing, internal) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert house.state() == "Empty"


def test_positions_of_a_group_belong_to_the_transaction() -> None:
    house = TransactionHouse()
    who = house.identity()
    assert house.add_offsets(who).error is E.NONE
    assert house.describe().topics == {"t": [1]}  # where this house keeps positions
    assert house.add_offsets((who[0], 9)).error is E.PRODUCER_FENCED
    assert house.add_offsets((9, 0)).error is E.INVALID_PRODUCER_ID_MAPPING


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
    house = TransactionHouse()
    assert house.init(name, **fields).error is error
    assert not any(house.log.values())


# --- epochs (KIP-360)


def test_a_producer_asks_for_its_next_epoch_and_once_more_if_the_answer_was_lost() -> None:
    house = TransactionHouse()
    who = house.identity()
    assert house.identity("x", *who) == (who[0], 1)
    assert house.identity("x", *who) == (who[0], 1), "the same answer"
    assert house.identity("x", who[0], 1) == (who[0], 2)
    assert house.init("x", *who).error is E.PRODUCER_FENCED
    assert house.init("x", 77, 2).error is E.PRODUCER_FENCED


def test_once_a_transaction_has_begun_the_epoch_before_is_fenced() -> None:
    house = TransactionHouse()
    who = house.identity()
    new = house.identity("x", *who)
    house.added(new, T0)
    assert house.init("x", *who).error is E.PRODUCER_FENCED, "it would take the transaction of another one"
    assert house.end(new).error is E.NONE
    assert house.init("x", *who).error is E.PRODUCER_FENCED


def test_a_producer_that_asks_for_its_next_epoch_within_a_transaction() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    assert house.identity("x", *who) == (who[0], 1)
    assert house.markers == [(T0, who[0], 1, False)]


def test_unknown_transactional_id_gets_new_producer_id() -> None:
    """Its producer may go on, as someone new."""
    house = TransactionHouse()
    assert house.identity("x", 55, 3) == (100, 0)


def test_epochs_come_to_an_end_and_another_producer_id_follows() -> None:
    house = TransactionHouse()
    who = house.identity()
    entry = house.coordinator._table.get("x")
    assert entry is not None
    for epoch in (LAST - 1, LAST):  # 32 thousand times, in short
        entry.transaction.stored = type(entry.transaction.stored)(
            producer_id=who[0], producer_epoch=epoch - 1, timeout_ms=1000
        )
        assert house.identity() == (who[0], epoch)
    assert house.identity() == (101, 0)


def test_the_last_epoch_asks_for_the_next_one_and_once_more() -> None:
    house = TransactionHouse()
    who = house.identity()
    entry = house.coordinator._table.get("x")
    assert entry is not None
    entry.transaction.stored = type(entry.transaction.stored)(
        producer_id=who[0], producer_epoch=LAST, timeout_ms=60_000, updated_ms=house.clock.now_ms()
    )
    last = (who[0], LAST)
    assert house.added(last, T0) == [E.NONE]
    assert house.identity("x") == (101, 0), "fenced with the one epoch that nobody gets, then a new id"
    assert house.markers == [(T0, who[0], LAST + 1, False)]
    entry.transaction.stored = type(entry.transaction.stored)(producer_id=7, producer_epoch=LAST, timeout_ms=60_000)
    assert house.identity("x", 7, LAST) == (102, 0)
    assert house.identity("x", 7, LAST) == (102, 0), "the answer was lost"


def test_the_last_epoch_asks_for_the_next_one_in_the_middle_of_a_transaction() -> None:
    house = TransactionHouse(abort_check_interval_ms=1000)
    who = house.identity()
    entry = house.coordinator._table.get("x")
    assert entry is not None
    entry.transaction.stored = type(entry.transaction.stored)(
        producer_id=who[0], producer_epoch=LAST, timeout_ms=60_000, updated_ms=house.clock.now_ms()
    )
    assert house.added((who[0], LAST), T0) == [E.NONE]
    assert house.identity("x", who[0], LAST) == (101, 0), "the epoch that it was fenced with is nobody's"
    assert house.markers == [(T0, who[0], LAST + 1, False)]
    assert house.identity("x", who[0], LAST) == (101, 0), "the answer was lost"
    assert house.added((101, 0), T0) == [E.NONE]


def test_without_producer_ids_a_new_name_asks_again() -> None:
    house = TransactionHouse()
    house.next_id = None
    assert house.init().error is E.COORDINATOR_LOAD_IN_PROGRESS
    house.next_id = 5
    assert house.identity() == (5, 0)


# --- time


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced() -> None:
    house = TransactionHouse(abort_check_interval_ms=1000)
    who = house.identity(timeout_ms=3000)
    house.added(who, T0)
    house.pass_time(3000)
    assert house.state() == "Ongoing"
    house.pass_time(1500)
    assert house.state() == "CompleteAbort"
    assert house.markers == [(T0, who[0], 1, False)]
    assert house.end(who).error is E.PRODUCER_FENCED
    assert house.identity("x") == (who[0], 2)
    (line,) = house.lines
    assert line == "the transaction of 'x' is aborted: it has lasted 4000 ms, more than the 3000 ms that it was to last"
    assert not house.reports, "an operator need not look at it"


def test_an_abort_that_cannot_be_written_is_tried_at_the_next_look() -> None:
    house = TransactionHouse(abort_check_interval_ms=1000)
    who = house.identity(timeout_ms=100)
    house.added(who, T0)
    house.error = E.NOT_ENOUGH_REPLICAS
    house.pass_time(2500)
    assert house.state() == "Ongoing"
    assert not house.markers
    assert house.reports
    house.error = E.NONE
    house.pass_time(1000)
    assert house.markers == [(T0, who[0], 1, False)]


def test_idle_transactional_ids_expire() -> None:
    house = TransactionHouse(id_expiration_ms=10_000, expiry_check_interval_ms=1000)
    house.identity("idle")
    busy = house.identity("busy", timeout_ms=900_000)
    house.added(busy, T0, name="busy")
    house.pass_time(11_500)
    assert house.describe("idle").error is E.TRANSACTIONAL_ID_NOT_FOUND
    assert house.state("busy") == "Ongoing"
    tombstones = [key for records in house.log.values() for key, value in records if value is None]
    assert tombstones == [b"\x00\x00\x00\x04idle"]
    assert house.identity("idle") == (102, 0)
    assert house.restarted().describe("idle").producer_id == 102


# --- writes that fail


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_write_leaves_the_transaction_unchanged(failure: E, told: E) -> None:
    house = TransactionHouse()
    house.error = failure
    assert house.init().error is told
    assert house.describe().error is E.TRANSACTIONAL_ID_NOT_FOUND
    house.error = E.NONE
    who = house.identity()
    house.error = failure
    assert house.added(who, T0) == [told]
    assert house.state() == "Empty"
    house.error = E.NONE
    house.added(who, T0)
    house.error = failure
    assert house.end(who).error is told
    assert not house.markers
    house.error = E.NONE
    assert house.end(who).error is E.NONE
    assert house.markers == [(T0, *who, True)]


def test_the_end_of_a_transaction_is_written_until_it_is() -> None:
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.hold_markers = True
    house.end(who)
    house.error = E.NOT_ENOUGH_REPLICAS
    house.mark()
    assert house.state() == "PrepareCommit"
    assert house.coordinator.retrying == 1
    house.error = E.NONE
    house.pass_time(200)
    assert house.state() == "CompleteCommit"
    assert house.coordinator.retrying == 0
    assert len(house.markers) == 1


def test_too_many_partitions_for_one_record() -> None:
    house = TransactionHouse(record_max_bytes=60)
    who = house.identity()
    assert house.added(who, T0) == [E.NONE]
    assert house.added(who, T1, U0) == [E.UNKNOWN_SERVER_ERROR] * 2
    assert house.end(who).error is E.NONE


def test_open_transactions_can_end_when_memory_limit_is_reached() -> None:
    house = TransactionHouse(size_max_bytes=2150)
    who = house.identity()
    assert house.added(who, T0) == [E.NONE]
    other = house.identity("other")
    assert house.init("third").error is E.COORDINATOR_NOT_AVAILABLE
    assert house.added(other, T0, name="other") == [E.COORDINATOR_NOT_AVAILABLE]
    assert house.end(who).error is E.NONE
    assert house.markers


def test_a_transaction_ends_though_its_producer_asks_again_and_again_for_more_than_memory_allows() -> None:
    house = TransactionHouse(size_max_bytes=1200)
    who = house.identity()
    assert house.added(who, T0) == [E.NONE]
    house.hold_markers = True
    house.end(who)
    adding = house.add(who, T0, T1)
    house.mark()
    for _ in range(3):
        assert adding.result.partitions[0].error is E.COORDINATOR_NOT_AVAILABLE
        adding = house.add(who, T0, T1)
        house.pass_time(110)
    assert house.state() == "CompleteCommit"
    assert house.describe().topics == {}


# --- who asks


def test_list_transactions_filters_by_state_and_producer() -> None:
    house = TransactionHouse()
    who = house.identity("a")
    house.identity("b")
    house.added(who, T0, name="a")
    house.pass_time(100)
    assert [(each.transactional_id, each.state) for each in house.listed().transactions] == [
        ("a", "Ongoing"),
        ("b", "Empty"),
    ]
    assert [each.transactional_id for each in house.listed(states=["Ongoing"]).transactions] == ["a"]
    assert [each.transactional_id for each in house.listed(producer_ids=[101]).transactions] == ["b"]
    assert [each.transactional_id for each in house.listed(duration_ms=50).transactions] == ["a"]
    assert not house.listed(duration_ms=500).transactions
    assert house.listed(states=["Odd"]).unknown_states == ["Odd"]
    assert [each.transactional_id for each in house.listed(pattern="[b-z]|c+").transactions] == ["b"]
    assert len(house.listed(pattern="").transactions) == 2
    assert house.listed(pattern="(?=a)").error is E.INVALID_REGULAR_EXPRESSION


def test_a_transaction_is_described() -> None:
    house = TransactionHouse()
    who = house.identity(timeout_ms=7000)
    house.added(who, T1, U0, T0)
    told = house.describe()
    assert (told.state, told.timeout_ms, told.producer_id, told.producer_epoch) == ("Ongoing", 7000, *who)
    assert told.topics == {"t": [0, 1], "u": [0]}
    assert told.start_ms == house.clock.now_ms()
    assert house.describe("nobody").error is E.TRANSACTIONAL_ID_NOT_FOUND
    house.leads = False
    assert house.describe().error is E.NOT_COORDINATOR


def test_start_time_of_ended_transaction_is_known() -> None:
    house = TransactionHouse()
    who = house.identity()
    began_ms = house.clock.now_ms()
    house.added(who, T0)
    house.pass_time(700)
    house.end(who)
    house.settle()
    for each in (house, house.restarted()):
        assert (each.describe().state, each.describe().start_ms) == ("CompleteCommit", began_ms)
        assert not each.listed(duration_ms=50).transactions, "it lasts no longer"
    house.identity()
    assert (house.describe().state, house.describe().start_ms) == ("Empty", -1)


def test_init_waiting_for_failed_end_append_gets_not_coordinator() -> None:
    """It is not tried again and again as long as the log takes nothing."""
    house = TransactionHouse()
    who = house.identity()
    house.added(who, T0)
    house.error = E.KAFKA_STORAGE_ERROR
    waiting = house.init()
    house.settle()
    assert waiting.error is E.NOT_COORDINATOR
    assert len(house.reports) == 1
    assert house.state() == "Ongoing"
    house.error = E.NONE
    assert house.identity() == (who[0], who[1] + 2)
