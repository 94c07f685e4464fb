"""Messages to batches and back, against the golden bytes and against kio."""

import datetime
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64
from support.messages import GOLDEN, GOLDEN_MESSAGES, NOW_MS, header_lists, message_lists, sent, stamped

from barnabas import Message
from barnabas.core.message.batch_header import check_batch, parse_header
from barnabas.core.message.batch_reader import decode_batch, decode_columns
from barnabas.core.message.batch_writer import encode_batch, encode_columns
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()
codec_names = st.sampled_from(("none", *CODECS.names))
# What kio can hold: whole seconds within the calendar; its reader cuts milliseconds off.
kio_messages = st.tuples(
    st.none() | st.binary(max_size=100),
    st.none() | st.binary(max_size=20),
    header_lists,
    st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000),
).map(lambda fields: Message(*fields))


def test_the_golden_batch_is_written() -> None:
    assert encode_batch(GOLDEN_MESSAGES, now_ms=NOW_MS) == GOLDEN


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_golden_batch_is_read(kind: type[bytes]) -> None:
    messages = decode_batch(kind(GOLDEN), NO_CODECS, topic="t", partition=3)
    assert [sent(message) for message in messages] == GOLDEN_MESSAGES
    assert [(m.topic, m.partition, m.offset, m.timestamp_type) for m in messages] == [
        ("t", 3, 0, "CreateTime"),
        ("t", 3, 1, "CreateTime"),
    ]


@given(message_lists, codec_names, st.integers(0, 2**62))
def test_encoded_batch_is_decoded_unchanged(messages: list[Message], codec_name: str, base_offset: int) -> None:
    batch = encode_batch(messages, now_ms=NOW_MS, codec=CODECS.by_name(codec_name), base_offset=base_offset)
    read = decode_batch(batch, CODECS)
    assert [sent(message) for message in read] == stamped(messages)
    assert [message.offset for message in read] == list(range(base_offset, base_offset + len(messages)))
    times = [message.timestamp_ms or 0 for message in stamped(messages)]
    header = parse_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))
    assert header.codec_id == (0 if codec_name == "none" else CODECS.names.index(codec_name) + 1)


@given(message_lists)
def test_a_written_batch_passes_the_brokers_check(messages: list[Message]) -> None:
    assert check_batch(encode_batch(messages, now_ms=NOW_MS)).count == len(messages)


def _kio_record(message: Message, offset: int) -> Record:
    assert message.timestamp_ms is not None
    moment = datetime.datetime.fromtimestamp(message.timestamp_ms // 1000, datetime.UTC)
    return Record(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(moment),
        offset=i64(offset),
        key=message.key,
        value=message.value,
        headers=tuple(RecordHeader(key=key.encode(), value=value) for key, value in message.headers),
    )


@given(st.lists(kio_messages, min_size=1, max_size=70), st.integers(0, 2**40))
def test_kio_writes_the_same_bytes(messages: list[Message], base_offset: int) -> None:
    theirs = io.BytesIO()
    records = tuple(_kio_record(message, base_offset + index) for index, message in enumerate(messages))
    write_new_batch(
        theirs,
        NewRecordBatch(
            producer_id=i64(4000), producer_epoch=i16(3), base_sequence=i32(17), records=records, attributes=i16(0)
        ),
    )
    ours = encode_batch(messages, now_ms=0, producer_id=4000, producer_epoch=3, base_sequence=17)
    assert ours[8:] == theirs.getvalue()[8:]  # kio leaves the base offset 0


@given(st.lists(kio_messages, min_size=1, max_size=70), st.integers(0, 2**40))
def test_kio_reads_what_is_written(messages: list[Message], base_offset: int) -> None:
    ours = bytes(encode_batch(messages, now_ms=0, base_offset=base_offset))
    batch, size = read_batch(ours, 0)
    assert size == len(ours)
    assert batch.records == tuple(_kio_record(message, base_offset + index) for index, message in enumerate(messages))


@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 127, 128, 8170, 8175, 8176, 8191, 8192, 16_384, 3_000_000])
@pytest.mark.parametrize("count", [1, 2])
def test_values_at_the_edges_of_varint_sizes(size: int, count: int) -> None:
    messages = [Message(b"v" * size)] * count
    assert [m.value for m in decode_batch(encode_batch(messages, now_ms=NOW_MS), NO_CODECS)] == [b"v" * size] * count


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("value", [b"", b"x" * 100], ids=["empty", "100 bytes"])
def test_counts_at_the_edges_of_varint_sizes(count: int, value: bytes) -> None:
    columns = decode_columns(encode_columns([value] * count, now_ms=NOW_MS), NO_CODECS)
    assert columns.values == [value] * count
    assert columns.offsets == list(range(count))


def test_a_large_message_with_everything() -> None:
    message = Message(b"v" * 5_000_000, b"k" * 70_000, (("ключ" * 5000, b"h" * 70_000), ("", None)) * 100, -1)
    assert [sent(m) for m in decode_batch(encode_batch([message], now_ms=NOW_MS), NO_CODECS)] == [message]


def test_quick_and_general_paths_write_the_same() -> None:
    values = [b"v" * size for size in range(0, 8170, 37)]
    quick = encode_columns(values, now_ms=NOW_MS)
    general = encode_columns(values, now_ms=NOW_MS, headers=[()] * len(values))
    assert quick == general


def test_no_messages_are_no_batch() -> None:
    with pytest.raises(ValueError):
        encode_batch([], now_ms=NOW_MS)


@pytest.mark.parametrize("timestamps", [[2**63], [-(2**63) - 1], [-(2**62) - 1, 2**62]])
def test_timestamps_that_do_not_fit_are_refused(timestamps: list[int]) -> None:
    with pytest.raises(ApiError) as caught:
        encode_columns([b"v"] * len(timestamps), timestamps=timestamps, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_header_key_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        encode_batch([Message(b"v", headers=(("\ud800", b""),))], now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_the_producer_fields_are_written() -> None:
    batch = encode_batch(
        [Message(b"")], now_ms=NOW_MS, producer_id=5, producer_epoch=6, base_sequence=7, transactional=True
    )
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.transactional) == (5, 6, 7, True)
