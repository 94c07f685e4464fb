"""Batches whose records are not what their header says are refused, as far as looking at them costs little."""

from typing import Any

import pytest

from barnabas.core.log.check_budget import CheckBudget
from barnabas.core.message.batch_header import HEADER_SIZE, parse_header
from barnabas.core.message.batch_writer import assemble_batch, encode_columns
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

CODECS = builtin_codecs()
GOOD = "0e 00 00 00 01 02 76 00"
SECOND = "0e 00 00 02 01 02 76 00"


def batch(records: bytes, count: int, codec_name: str) -> bytearray:
    return assemble_batch(
        records,
        count=count,
        codec=CODECS.by_name(codec_name),
        base_offset=0,
        last_offset_delta=count - 1,
        attributes=0,
        base_timestamp=1,
        max_timestamp=1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


def send(broker: ManualBroker, records: bytearray, connection: int = 1) -> Any:
    request = Produce(partitions=[ProducePartition("t", 0, memoryview(records))], acks=1)
    answers = broker.submit(request, Caller(connection=connection))
    broker.scheduler.run_pending()
    return answers[0].partitions[0]


@pytest.fixture
def broker() -> ManualBroker:
    made = ManualBroker()
    made.create("t")
    return made


@pytest.mark.parametrize("codec_name", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    ("records", "count"),
    [
        (GOOD, 2),
        (GOOD + SECOND, 1),
        (GOOD + SECOND, 3),
        ("0e 00 00 00 01 02 76 01", 1),  # -1 headers
        ("0e 00 00 00 01 02 76 04", 1),  # two headers that are not there
        ("10 00 00 00 01 02 76 00", 1),  # a byte longer than it is
        ("0e 00 00 00 01 05 76 00", 1),  # a value of -3 bytes
    ],
)
def test_records_that_are_not_what_the_batch_says_are_refused(
    broker: ManualBroker, records: str, count: int, codec_name: str
) -> None:
    for connection in (1, 2):
        answer = send(broker, batch(bytes.fromhex(records), count, codec_name), connection)
        assert (answer.error, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert send(broker, batch(bytes.fromhex(GOOD + SECOND), 2, codec_name)).base_offset == 0


def test_more_records_than_the_bytes_can_hold_are_refused_however_busy_the_sender_is(broker: ManualBroker) -> None:
    for sent in range(2_000):
        good = send(broker, batch(bytes.fromhex(GOOD + SECOND), 2, "none"))
        assert good.base_offset == 2 * sent
    assert send(broker, batch(bytes.fromhex(GOOD), 2, "none")).error is ErrorCode.INVALID_RECORD
    assert send(broker, batch(bytes.fromhex(GOOD), 2**30, "none")).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [1, 10, 160, 9_000])
def test_checks_take_a_small_share_of_what_a_busy_sender_costs(count: int) -> None:
    header = parse_header(encode_columns([b"x" * 100] * count, now_ms=1))
    budget = CheckBudget()
    assert budget.is_due(header), "the first one always is"
    turns = 60_000
    checked = sum(count for _ in range(turns) if budget.is_due(header))
    allowed = 2_000 + turns * (1 + header.batch_length / 32_768) + 20_000
    assert 0 < checked <= allowed
    size = header.batch_length + HEADER_SIZE
    assert checked / turns < 2 + size / 20_000, "records for each append"


@pytest.mark.parametrize("wrong", [0, 1, 700, 2_999])
def test_a_wrong_record_in_a_first_batch_of_records_of_one_size_is_refused(broker: ManualBroker, wrong: int) -> None:
    count = 3_000
    good = encode_columns([b"x" * 100] * count, now_ms=1)
    records = bytearray(good[HEADER_SIZE:])
    wide = wrong >= 64  # the offset delta takes a byte more
    at = wrong * 109 + (wrong - 64 if wide else 0) + 6 + wide
    assert records[at] == 0xC8, "the length of the value"
    records[at] ^= 2
    bad = batch(bytes(records), count, "none")
    assert send(broker, bad).error is ErrorCode.INVALID_RECORD
    assert send(broker, batch(bytes(good[HEADER_SIZE:]), count, "none"), connection=2).base_offset == 0


def test_a_batch_of_records_of_one_size_is_checked_at_once(broker: ManualBroker) -> None:
    records = memoryview(encode_columns([b"x"] * 9_000, now_ms=1))
    request = Produce(partitions=[ProducePartition("t", 0, records)], acks=1)
    answers = broker.submit(request, Caller(connection=1))
    assert answers[0].partitions[0].base_offset == 0, "before anything else could run"


@pytest.mark.parametrize("count", [100, 9_000])
def test_checks_of_records_of_one_size_take_about_a_hundredth_of_what_a_busy_sender_costs(count: int) -> None:
    header = parse_header(encode_columns([b"x" * 100] * count, now_ms=1))
    budget = CheckBudget()
    turns, checked = 60_000, 0
    for turn in range(turns):
        if budget.is_due(header):
            budget.refund(header)
            checked += 1
        assert turn or checked == 1, "the first one always is"
    units = checked * (32 + count / 4)
    assert units <= 2_000 + turns * (1 + header.batch_length / 32_768) + 32 + count / 4
    assert checked > turns / (32 + count / 4), "as often as the budget allows"
