"""The checks that open records, and batches made again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import GOLDEN, NOW_MS, message_lists, with_right_crc

from barnabas import Message
from barnabas.core.message.batch_header import assign_offset, check_batch, parse_header, set_max_timestamp
from barnabas.core.message.batch_reader import decode_batch
from barnabas.core.message.batch_writer import assemble_batch, encode_batch, encode_columns
from barnabas.core.message.record_validation import (
    RECORD_ERRORS_MAX,
    InvalidRecords,
    decompress_records,
    rebuild_batch,
    validate_records,
)
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import Buffer

CODECS = builtin_codecs()
BOUND = 1 << 20
codec_names = st.sampled_from(("none", *CODECS.names))


def rebuilt(batch: Buffer, codec_name: str, *, consecutive: bool = True) -> bytearray:
    header = parse_header(batch)
    content = complete(decompress_records(batch, header, CODECS, max_bytes=BOUND))
    return complete(rebuild_batch(header, content, CODECS.by_name(codec_name), consecutive=consecutive))


def misnumbered(codec_name: str) -> bytearray:
    """Two records that both say that they are the second."""
    record = bytes.fromhex("0e000002 01 02 76 00")
    return assemble_batch(
        record * 2,
        count=2,
        codec=CODECS.by_name(codec_name),
        base_offset=0,
        last_offset_delta=1,
        attributes=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
    )


@given(message_lists, codec_names)
def test_good_records_pass_and_say_their_largest_timestamp(messages: list[Message], codec_name: str) -> None:
    batch = encode_batch(messages, now_ms=NOW_MS, codec=CODECS.by_name(codec_name))
    checked = validate_records(batch, CODECS, max_bytes=BOUND)
    times = [NOW_MS if m.timestamp_ms is None else m.timestamp_ms for m in messages]
    assert checked == (max(times), times.index(max(times)), True)


def test_records_without_a_key_are_named_on_a_compacted_topic() -> None:
    batch = encode_batch([Message(b"a", b"k"), Message(b"b"), Message(b"c")], now_ms=NOW_MS)
    validate_records(batch, CODECS, max_bytes=BOUND)
    with pytest.raises(InvalidRecords) as caught:
        validate_records(batch, CODECS, max_bytes=BOUND, need_keys=True)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [refused.index for refused in caught.value.record_errors] == [1, 2]


def test_an_empty_key_is_a_key() -> None:
    validate_records(encode_batch([Message(b"a", b"")], now_ms=NOW_MS), CODECS, max_bytes=BOUND, need_keys=True)


def test_timestamps_outside_the_window_are_named() -> None:
    times = [NOW_MS, NOW_MS - 11, -1, NOW_MS + 6, NOW_MS - 10, NOW_MS + 5]
    batch = encode_columns([b"v"] * len(times), timestamps=times, now_ms=0)
    with pytest.raises(InvalidRecords) as caught:
        validate_records(batch, CODECS, max_bytes=BOUND, now_ms=NOW_MS, before_max_ms=10, after_max_ms=5)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [refused.index for refused in caught.value.record_errors] == [1, 3]
    good = encode_columns([b"v"] * 4, timestamps=[times[i] for i in (0, 2, 4, 5)], now_ms=0)
    validate_records(good, CODECS, max_bytes=BOUND, now_ms=NOW_MS, before_max_ms=10, after_max_ms=5)


def test_record_errors_are_limited_to_first_ones() -> None:
    batch = encode_columns([b""] * 1000, now_ms=NOW_MS)
    with pytest.raises(InvalidRecords) as caught:
        validate_records(batch, CODECS, max_bytes=BOUND, need_keys=True)
    assert [refused.index for refused in caught.value.record_errors] == list(range(RECORD_ERRORS_MAX))


def test_misnumbered_records_are_refused_plain_and_renumbered_compressed() -> None:
    with pytest.raises(InvalidRecords) as caught:
        validate_records(misnumbered("none"), CODECS, max_bytes=BOUND)
    assert [refused.index for refused in caught.value.record_errors] == [0]
    batch = misnumbered("lz4")
    assert not validate_records(batch, CODECS, max_bytes=BOUND).consecutive
    new_batch = rebuilt(batch, "lz4", consecutive=False)
    header = check_batch(new_batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.codec_id) == (9, 1, 4, 3)
    assert [(m.offset, m.value, m.timestamp_ms) for m in decode_batch(new_batch, CODECS)] == [
        (0, b"v", NOW_MS),
        (1, b"v", NOW_MS),
    ]


@pytest.mark.parametrize("codec_name", ["none", "gzip", "zstd"])
def test_records_that_cannot_be_read_are_invalid_not_corrupt(codec_name: str) -> None:
    batch = encode_columns([b"value"] * 3, now_ms=NOW_MS, codec=CODECS.by_name(codec_name))
    batch[61] ^= 0x10
    with pytest.raises(ApiError) as caught:
        validate_records(with_right_crc(batch), CODECS, max_bytes=BOUND)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_bomb_is_too_large() -> None:
    batch = encode_columns([bytes(BOUND)], now_ms=NOW_MS, codec=CODECS.by_name("gzip"))
    for work in (
        lambda: validate_records(batch, CODECS, max_bytes=BOUND),
        lambda: rebuilt(batch, "none"),
    ):
        with pytest.raises(ApiError) as caught:
            work()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@given(message_lists, codec_names, codec_names)
def test_a_batch_in_another_codec_has_the_same_messages(messages: list[Message], before: str, after: str) -> None:
    batch = encode_batch(
        messages, now_ms=NOW_MS, codec=CODECS.by_name(before), producer_id=5, producer_epoch=6, base_sequence=7
    )
    assign_offset(batch, 1234, 8)
    new_batch = rebuilt(batch, after)
    assert decode_batch(new_batch, CODECS) == decode_batch(batch, CODECS)
    assert rebuilt(new_batch, "none") == rebuilt(batch, "none")
    same = ("base_offset", "leader_epoch", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id")
    old, new = parse_header(batch), parse_header(new_batch)
    assert [getattr(old, field) for field in same] == [getattr(new, field) for field in same]


def test_log_append_time_survives_another_codec() -> None:
    batch = bytearray(GOLDEN)
    set_max_timestamp(batch, NOW_MS, log_append_time=True)
    new_batch = rebuilt(batch, "snappy")
    assert [m.timestamp_ms for m in decode_batch(new_batch, CODECS)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("size", [0, 60, 61, 80])
def test_rebuild_of_truncated_batch_raises_api_error(size: int) -> None:
    with pytest.raises(ApiError):
        rebuilt(GOLDEN[:size], "none")
