"""The check by columns accepts only what the check of each record accepts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples

from barnabas.core.message import record_validation
from barnabas.core.message.batch_header import HEADER_SIZE, BatchHeader, parse_header
from barnabas.core.message.batch_writer import assemble_batch
from barnabas.core.message.record_validation import (
    UNIFORM_COUNT_MAX,
    RecordRules,
    are_records_uniform,
    check_records,
)
from barnabas.core.message.varint import encode_varint
from barnabas.core.traffic.steps import complete
from barnabas.ports.errors import ApiError


def record(
    number: int, *, value: bytes | None = b"v", key: bytes | None = None, delta: int = 0, more: bytes = b"\0"
) -> bytes:
    body = b"\0" + encode_varint(delta) + encode_varint(number)
    for part in (key, value):
        body += encode_varint(-1) if part is None else encode_varint(len(part)) + part
    body += more
    return encode_varint(len(body)) + body


def is_uniform(records: bytes, count: int, base_timestamp: int = 1_700_000_000_000) -> bool:
    return are_records_uniform(memoryview(records), header_of(records, count, base_timestamp))


def header_of(records: bytes, count: int, base_timestamp: int = 1_700_000_000_000) -> BatchHeader:
    batch = assemble_batch(
        records,
        count=count,
        codec=None,
        base_offset=0,
        last_offset_delta=max(0, count - 1),
        attributes=0,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    assert len(batch) == HEADER_SIZE + len(records)
    return parse_header(batch)


def is_valid(records: bytes, count: int) -> bool:
    header = header_of(records, count)
    try:
        complete(check_records(records, header, RecordRules(consecutive=True)))
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8_191, 8_192, 8_193, UNIFORM_COUNT_MAX])
@pytest.mark.parametrize(
    ("key", "value"), [(None, bytes(100)), (b"key", b"v" * 70), (b"", b""), (b"k" * 200, None), (None, None)]
)
def test_records_of_one_size_are_uniform(count: int, key: bytes | None, value: bytes | None) -> None:
    records = b"".join(record(number, key=key, value=value) for number in range(count))
    assert is_uniform(records, count)
    assert is_valid(records, count)


def test_deltas_of_time_that_grow_are_uniform() -> None:
    records = b"".join(record(number, delta=number // 3) for number in range(9_000))
    assert is_uniform(records, 9_000)
    assert is_uniform(b"".join(record(number, delta=-number) for number in range(50)), 50)


def test_records_of_many_sizes_and_records_with_headers_are_not_decided() -> None:
    sizes = random.Random(1)
    assert not is_uniform(b"".join(record(n, value=bytes(sizes.randrange(90))) for n in range(500)), 500)
    header = b"\x02" + encode_varint(1) + b"h" + encode_varint(1) + b"x"
    assert not is_uniform(b"".join(record(n, more=header) for n in range(100)), 100)
    assert not is_uniform(b"".join(record(n) for n in range(UNIFORM_COUNT_MAX + 1)), UNIFORM_COUNT_MAX + 1)
    assert not is_uniform(b"".join(record(n) for n in range(10)), 10, base_timestamp=2**63 - 10)
    assert not is_uniform(b"", 0)


@pytest.mark.parametrize("which", [0, 1, 40, 63, 64, 150, 299])
@pytest.mark.parametrize("change", range(13))
def test_one_wrong_byte_in_one_record_is_not_accepted(which: int, change: int) -> None:
    good = [record(n, key=b"key", value=b"val", delta=n) for n in range(300)]
    for flip in (1, 2, 0x40, 0x80):
        wrong = bytearray(good[which])
        wrong[change % len(wrong)] ^= flip
        records = b"".join((*good[:which], bytes(wrong), *good[which + 1 :]))
        assert not is_uniform(records, 300) or is_valid(records, 300)


def test_wrong_counts_offsets_and_ends_are_not_accepted() -> None:
    records = b"".join(record(n) for n in range(100))
    assert is_uniform(records, 100)
    for wrong, count in (
        (records, 99),
        (records, 101),
        (records[:-1], 100),
        (records + b"\0", 100),
        (b"".join(record(0) for _ in range(100)), 100),
        (b"".join(record(n + 1) for n in range(100)), 100),
        (b"".join(record(n if n < 70 else n + 1) for n in range(100)), 100),
    ):
        assert not is_uniform(wrong, count)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_what_is_uniform_passes_the_check_of_each_record(data: st.DataObject) -> None:
    draw = data.draw
    count = draw(st.integers(1, 200))
    key = draw(st.sampled_from([None, b"", b"key"]))
    width = draw(st.sampled_from([0, 1, 70]))
    step = draw(st.sampled_from([0, 1, 40, 10_000]))
    records = bytearray(b"".join(record(n, key=key, value=bytes(width), delta=n * step) for n in range(count)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(records) - 1))
        records[at] = draw(st.sampled_from([0, 1, 2, 3, records[at] ^ 1, records[at] ^ 0x80, 0x80, 0xFF]))
    count += draw(st.sampled_from([0, 0, 0, 1, -1]))
    if count > 0 and is_uniform(bytes(records), count):
        assert is_valid(bytes(records), count)


def test_tables_are_few() -> None:
    assert record_validation._RUNS_MAX == 8
    alternating = b"".join(record(n, value=bytes(10 + n % 2)) for n in range(400))
    assert is_valid(alternating, 400)
    assert not is_uniform(alternating, 400)
