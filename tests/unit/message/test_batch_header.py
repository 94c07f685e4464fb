"""The header of a batch, and the checks of a client's batch that need no record."""

from contextlib import suppress
from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import GOLDEN, NOW_MS, with_right_crc

from barnabas import Message
from barnabas.core.message.batch_header import (
    HEADER_SIZE,
    assign_offset,
    check_batch,
    check_timestamps,
    is_crc_valid,
    parse_header,
    set_max_timestamp,
)
from barnabas.core.message.batch_reader import decode_batch
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.codecs import ZstdCodec, builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import Offset

ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, PRODUCER_ID_AT, COUNT_AT = 21, 23, 43, 57


def _changed(at: int, layout: str, value: int) -> bytearray:
    batch = bytearray(GOLDEN)
    pack_into(layout, batch, at, value)
    return with_right_crc(batch)


def _code(batch: bytes | bytearray | memoryview, **options: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check_batch(batch, **options)  # type: ignore[arg-type]  # the tests' own options
    return caught.value.code


def test_the_golden_header_is_read() -> None:
    header = parse_header(GOLDEN)
    assert (header.size, header.count, header.last_offset, header.next_offset) == (len(GOLDEN), 2, 1, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1_600_000_000_000, 1_600_000_000_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (-1, -1, -1, -1)
    assert (header.codec_id, header.log_append_time, header.transactional, header.control) == (0, False, False, False)
    assert is_crc_valid(GOLDEN, header)


def test_a_header_is_read_where_it_stands() -> None:
    assert parse_header(b"before" + GOLDEN[:HEADER_SIZE], 6) == parse_header(GOLDEN)


def test_last_sequence_wraps_after_int32_maximum() -> None:
    batch = encode_batch([Message(b"")] * 3, now_ms=NOW_MS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_header(batch).last_sequence == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_good_batch_passes(kind: type[bytes]) -> None:
    assert check_batch(kind(GOLDEN)) == parse_header(GOLDEN)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="nothing"),
        pytest.param(GOLDEN[:12], ErrorCode.CORRUPT_MESSAGE, id="a piece of a header"),
        pytest.param(GOLDEN[:-1], ErrorCode.CORRUPT_MESSAGE, id="cut"),
        pytest.param(GOLDEN + GOLDEN, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(GOLDEN[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE, id="wrong CRC"),
        pytest.param(_changed(16, ">b", 1), ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(_changed(8, ">i", 48), ErrorCode.CORRUPT_MESSAGE, id="length below the header's"),
        pytest.param(_changed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE, id="negative length"),
        pytest.param(_changed(8, ">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE, id="enormous length"),
        pytest.param(_changed(0, ">q", 5), ErrorCode.INVALID_RECORD, id="base offset"),
        pytest.param(_changed(COUNT_AT, ">i", 0), ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(_changed(COUNT_AT, ">i", -2), ErrorCode.INVALID_RECORD, id="negative count"),
        pytest.param(_changed(COUNT_AT, ">i", 3), ErrorCode.INVALID_RECORD, id="count and last offset differ"),
        pytest.param(_changed(LAST_OFFSET_DELTA_AT, ">i", -1), ErrorCode.INVALID_RECORD, id="negative last offset"),
        pytest.param(_changed(ATTRIBUTES_AT, ">h", 0x20), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(_changed(ATTRIBUTES_AT, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP, id="log-append time"),
        pytest.param(_changed(PRODUCER_ID_AT, ">q", 7), ErrorCode.INVALID_RECORD, id="producer without sequence"),
    ],
)
def test_a_bad_batch_is_refused(batch: bytes, code: ErrorCode) -> None:
    assert _code(batch) is code


def test_a_batch_over_the_bound_is_too_large() -> None:
    assert check_batch(GOLDEN, max_bytes=len(GOLDEN)).size == len(GOLDEN)
    assert _code(GOLDEN, max_bytes=len(GOLDEN) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_a_client_that_knows_it() -> None:
    batch = encode_batch([Message(b"value")], now_ms=NOW_MS, codec=ZstdCodec())
    assert check_batch(batch, codecs=builtin_codecs()).codec_id == 4
    assert _code(batch, allows_zstd=False) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert _code(batch, codecs=NO_CODECS) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("timestamp", [NOW_MS - 11, NOW_MS + 6, 2**63 - 1, 0, -2])
def test_timestamps_of_the_header_must_be_in_the_window(timestamp: int) -> None:
    header = parse_header(encode_batch([Message(b"", timestamp_ms=timestamp)], now_ms=NOW_MS))
    with pytest.raises(ApiError) as caught:
        check_timestamps(header.base_timestamp, header.max_timestamp, now_ms=NOW_MS, before_max_ms=10, after_max_ms=5)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp", [NOW_MS - 10, NOW_MS + 5, -1])
def test_timestamps_in_the_window_and_no_timestamp_pass(timestamp: int) -> None:
    header = parse_header(encode_batch([Message(b"", timestamp_ms=timestamp)], now_ms=NOW_MS))
    check_timestamps(header.base_timestamp, header.max_timestamp, now_ms=NOW_MS, before_max_ms=10, after_max_ms=5)


def test_offset_and_epoch_are_stamped_in_place_without_touching_the_crc() -> None:
    room = bytearray(b"\xee" * 10 + GOLDEN)
    assign_offset(memoryview(room), 2**40, 7, 10)
    header = parse_header(room, 10)
    assert (header.base_offset, header.leader_epoch) == (2**40, 7)
    assert is_crc_valid(room, header, 10)
    assert header._replace(base_offset=Offset(0), leader_epoch=0) == parse_header(GOLDEN)


def test_log_append_time_is_stamped_in_place() -> None:
    batch = bytearray(GOLDEN)
    set_max_timestamp(memoryview(batch), NOW_MS, log_append_time=True)
    header = parse_header(batch)
    assert (header.log_append_time, header.max_timestamp) == (True, NOW_MS)
    assert is_crc_valid(batch, header)
    for message in decode_batch(batch, NO_CODECS):
        assert (message.timestamp_ms, message.timestamp_type) == (NOW_MS, "LogAppendTime")
    set_max_timestamp(batch, 1_600_000_000_005, log_append_time=False)
    assert batch == GOLDEN


@given(st.binary(max_size=200), st.integers(0, 80))
def test_arbitrary_bytes_never_raise_anything_but_api_errors(data: bytes, position: int) -> None:
    with suppress(ApiError):
        assert parse_header(data, min(position, len(data))).magic == 2
    with suppress(ApiError):
        assert check_batch(data).size == len(data)


@given(st.integers(0, len(GOLDEN) * 8 - 1))
def test_a_flipped_bit_is_seen_unless_it_is_in_the_leader_epoch(bit: int) -> None:
    batch = bytearray(GOLDEN)
    batch[bit // 8] ^= 1 << bit % 8
    if 12 <= bit // 8 < 16:
        check_batch(batch)
    else:
        _code(batch)
