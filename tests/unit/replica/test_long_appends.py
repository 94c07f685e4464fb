"""Batches whose records take long to open are checked in turns, while others are served."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.message.record_validation import PIECE
from barnabas.core.replica.leader import appender
from barnabas.core.replica.leader.appender import LongAppends
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker

E = ErrorCode
ONE, OTHER = Caller(connection=1), Caller(connection=2)
LONG = 20 * PIECE
ZSTD = builtin_codecs().by_name("zstd")


class Harness:
    """A broker whose clock for long work shows one millisecond more each time that it is asked: every piece of work
    takes a turn."""

    def __init__(self, **configs: str) -> None:
        self.broker = ManualBroker()
        self.broker.create("t", 2, **(configs or {"cleanup_policy": "compact"}))
        self.replicas = self.broker.node.state.replicas
        self.long: LongAppends = self.replicas.append.__self__._long  # type: ignore[attr-defined]
        self.ms = 0.0
        self.long._steps._now_ms = self._tick
        self.log = self.replicas.partitions["t", 0].log

    def _tick(self) -> float:
        self.ms += 1.0
        return self.ms

    def send(self, records: Any, caller: Caller = ONE, partition: int = 0, **more: Any) -> list[ProduceResult]:
        view = memoryview(bytearray(records))
        request = Produce(partitions=[ProducePartition("t", partition, view)], **{"acks": 1, **more})
        answers = self.broker.submit(request, caller)
        view[:] = bytes(len(view))  # the memory is the connection's again
        return answers

    def run(self) -> None:
        self.broker.scheduler.run_pending()


def keyed(count: int, *, value: bytes = b"v", **more: Any) -> bytearray:
    return encode_columns([value] * count, keys=[b"k"] * count, **{"now_ms": 1, "codec": ZSTD, **more})


def outcome(answers: list[ProduceResult]) -> tuple[ErrorCode, int]:
    ((answer,),) = [each.partitions for each in answers]
    return answer.error, answer.base_offset


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_others_are_served_while_the_records_of_a_long_request_are_checked(harness: Harness) -> None:
    long = harness.send(keyed(LONG))
    assert not long, "it takes turns"
    assert outcome(harness.send(keyed(1), OTHER)) == (E.NONE, 0)
    assert outcome(harness.send(keyed(1), OTHER, partition=1)) == (E.NONE, 0)
    harness.run()
    assert outcome(long) == (E.NONE, 1)
    assert harness.log.log_end_offset == 1 + LONG
    assert (harness.long.copied_bytes, harness.replicas.is_appending(1)) == (0, False)


def test_a_turn_opens_a_bounded_number_of_records(harness: Harness) -> None:
    before = harness.ms
    harness.send(keyed(LONG))
    harness.run()
    assert harness.ms - before >= LONG / PIECE, "the clock is looked at behind every piece"


def test_produce_requests_of_one_connection_are_appended_in_order(harness: Harness) -> None:
    answers = [harness.send(keyed(LONG)), harness.send(keyed(1)), harness.send(keyed(LONG)), harness.send(keyed(1))]
    assert answers == [[], [], [], []]
    assert harness.replicas.is_appending(1)
    harness.run()
    assert [outcome(each) for each in answers] == [
        (E.NONE, 0),
        (E.NONE, LONG),
        (E.NONE, LONG + 1),
        (E.NONE, 2 * LONG + 1),
    ]


def test_a_long_batch_that_is_sent_again_meanwhile_is_appended_once(harness: Harness) -> None:
    numbers: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    first = harness.send(keyed(LONG, base_sequence=0, **numbers))
    again = harness.send(keyed(LONG, base_sequence=0, **numbers), OTHER)
    behind = harness.send(keyed(1, base_sequence=LONG, **numbers), OTHER)
    harness.run()
    assert [outcome(each) for each in (first, again, behind)] == [(E.NONE, 0), (E.NONE, 0), (E.NONE, LONG)]


def test_a_record_without_a_key_far_behind_is_refused_and_nothing_appended(harness: Harness) -> None:
    batch = encode_columns([b"v"] * LONG, keys=[b"k"] * (LONG - 1) + [None], now_ms=1, codec=ZSTD)
    answers = harness.send(batch)
    behind = harness.send(keyed(1))
    harness.run()
    assert outcome(answers) == (E.INVALID_RECORD, -1)
    assert [each.index for each in answers[0].partitions[0].record_errors] == [LONG - 1]
    assert outcome(behind) == (E.NONE, 0)


def test_a_topic_that_changes_meanwhile_has_the_batch_sent_again(harness: Harness) -> None:
    answers = harness.send(keyed(LONG))
    harness.broker.node.state.logs.get(TopicPartition("t", 0)).update_config(  # type: ignore[union-attr]
        harness.replicas.partitions["t", 1].log.config.__class__(message_timestamp_type="LogAppendTime")
    )
    harness.run()
    assert outcome(answers) == (E.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize("marked", [False, True])
def test_a_marker_that_comes_meanwhile_ends_the_transaction_before_the_batch(harness: Harness, marked: bool) -> None:
    asked: list[Callable[[ErrorCode], None]] = []
    harness.broker.node.api.verified_appends._verify = lambda *said: asked.append(said[-1])
    numbers: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    answers = harness.send(keyed(LONG, base_sequence=0, **numbers), transactional_id="orders")
    behind = harness.send(keyed(1, base_sequence=LONG, **numbers), transactional_id="orders")
    asked.pop()(E.NONE)
    assert not asked, "the batch behind waits until this one is appended"
    if marked:
        tp = TopicPartition("t", 0)
        marker = TxnMarker(producer_id=7, producer_epoch=0, committed=False, partitions=[tp])
        harness.broker.submit(WriteTxnMarkers(markers=[marker]))
    harness.run()
    if marked:
        assert outcome(answers)[0] is E.INVALID_TXN_STATE
        assert harness.log.log_end_offset == 1, "the marker alone"
        assert len(asked) == 1, "the batch behind begins another transaction, if its coordinator says so"
    else:
        assert [outcome(each) for each in (answers, behind)] == [(E.NONE, 0), (E.NONE, LONG)]
        assert harness.broker.node.api.verified_appends.waiting_bytes == 0


def test_batches_that_decompress_to_much_wait_for_each_other_and_hold_up_no_others(harness: Harness) -> None:
    bombs = [harness.send(keyed(PIECE, value=bytes(10_000)), Caller(connection=9 + each)) for each in range(4)]
    long = harness.send(keyed(LONG))
    assert not any(bombs)
    harness.run()
    assert outcome(long)[0] is E.NONE
    assert [outcome(each)[0] for each in bombs] == [E.NONE] * 4
    assert sorted([outcome(each)[1] for each in (*bombs, long)])[0] == 0
    assert harness.log.log_end_offset == LONG + 4 * PIECE


def test_more_than_the_memory_for_them_is_refused_for_now(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "COPIED_BYTES_MAX", 2 * (len(keyed(LONG)) + 1_000))
    answers = [harness.send(keyed(LONG), Caller(connection=9 + each)) for each in range(3)]
    harness.run()
    assert [outcome(each)[0] for each in answers] == [E.NONE, E.NONE, E.NOT_ENOUGH_REPLICAS]


@pytest.mark.parametrize("wanted", ["lz4", "uncompressed"])
def test_another_compression_is_made_on_a_worker(wanted: str) -> None:
    harness = Harness(compression_type=wanted)
    value = bytes(range(256)) * 4
    answers = harness.send(keyed(PIECE, value=value))
    assert not answers
    assert outcome(harness.send(keyed(1), OTHER)) == (E.NONE, 0)
    harness.run()
    assert outcome(answers) == (E.NONE, 1)
    assert harness.broker.values("t")[1:] == [value] * PIECE


def test_log_append_time_is_that_of_the_append() -> None:
    harness = Harness(cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    answers = harness.send(keyed(LONG))
    harness.broker.clock.advance(5_000)
    now_ms = harness.broker.clock.now_ms()
    harness.run()
    assert answers[0].partitions[0].log_append_time_ms == now_ms
