"""Reading batches: columns, slices of offsets, old and compacted batches, and everything malformed."""

import gzip
from pathlib import Path
from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import GOLDEN, NOW_MS, message_lists, with_right_crc

from barnabas import Message
from barnabas.core.message.batch_header import HEADER_SIZE, assign_offset, set_max_timestamp
from barnabas.core.message.batch_reader import Columns, decode_batch, decode_columns
from barnabas.core.message.batch_writer import assemble_batch, encode_batch, encode_columns
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.record_parser import parse_records
from barnabas.core.message.varint import encode_varint
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()


def record(offset_delta: int, value: bytes = b"v", *, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    """Return one record, encoded by a slow reference."""
    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += encode_varint(-1) if key is None else encode_varint(len(key)) + key
    body += encode_varint(len(value)) + value + b"\0"
    return encode_varint(len(body)) + body


def batch_of(records: bytes, count: int, *, last_offset_delta: int | None = None, base_offset: int = 0) -> bytearray:
    """Return a batch with a right CRC around the given records."""
    return assemble_batch(
        records,
        count=count,
        codec=None,
        base_offset=base_offset,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        attributes=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


def control_batch(offset: int) -> bytearray:
    batch = encode_batch([Message(b"\0\0\0\0\0\0", key=b"\0\0\0\1")], now_ms=NOW_MS, base_offset=offset)
    pack_into(">h", batch, 21, 0x30)
    return with_right_crc(batch)


def three_batches() -> bytes:
    """Offsets 0-9, 10-19 (zstd) and 20-29."""
    out = b""
    for base, codec in ((0, None), (10, CODECS.by_name("zstd")), (20, None)):
        values = [b"%d" % offset for offset in range(base, base + 10)]
        out += encode_columns(values, now_ms=base, base_offset=base, codec=codec)
    return out


@given(message_lists)
def test_columns_are_the_messages_turned(messages: list[Message]) -> None:
    batch = encode_batch(messages, now_ms=NOW_MS, base_offset=7)
    read = decode_batch(batch, NO_CODECS)
    columns = decode_columns(batch, NO_CODECS, with_headers=True)
    assert columns.values == [m.value for m in read]
    assert columns.keys == [m.key for m in read]
    assert columns.headers == [m.headers for m in read]
    assert columns.offsets == [m.offset for m in read]
    assert columns.timestamps == [m.timestamp_ms for m in read]
    assert columns.log_append_time == [False] * len(read)
    without = decode_columns(batch, NO_CODECS)
    assert (without.values, without.headers) == (columns.values, [])


@pytest.mark.parametrize(
    ("from_offset", "upto"), [(0, None), (5, None), (5, 25), (10, 20), (12, 13), (29, 99), (30, 99)]
)
def test_columns_of_a_slice_of_offsets(from_offset: int, upto: int | None) -> None:
    columns = decode_columns(three_batches(), CODECS, from_offset=from_offset, upto=upto)
    expected = list(range(30))[from_offset:upto]
    assert columns.offsets == expected
    assert columns.values == [b"%d" % offset for offset in expected]
    assert columns.timestamps == [offset // 10 * 10 for offset in expected]
    assert len(columns) == len(columns.keys) == len(columns.log_append_time) == len(expected)
    assert columns.next_offset == (30 if upto is None else min(30, upto))


def test_columns_of_several_reads() -> None:
    data = three_batches()
    first = decode_columns(data[:-1], CODECS)
    assert first.next_offset == 20
    both = decode_columns(data[first.valid_bytes :], CODECS, from_offset=first.next_offset, into=first)
    assert both is first
    assert both.offsets == list(range(30))
    assert both.valid_bytes == len(data)


def test_control_batches_are_left_out_but_take_their_offset() -> None:
    data = encode_columns([b"a"], now_ms=NOW_MS) + control_batch(1)
    columns = decode_columns(data, NO_CODECS)
    assert (columns.offsets, columns.next_offset) == ([0], 2)


def test_empty_record_set_returns_requested_offset_as_next() -> None:
    assert decode_columns(b"", NO_CODECS, from_offset=5).next_offset == 5
    assert len(Columns()) == 0


def test_log_append_time_is_every_records_time() -> None:
    batch = encode_columns([b"a", b"b"], timestamps=[1, 2], now_ms=0)
    set_max_timestamp(batch, 99, log_append_time=True)
    columns = decode_columns(batch, NO_CODECS)
    assert (columns.timestamps, columns.log_append_time) == ([99, 99], [True, True])


def test_a_compacted_batch_has_gaps() -> None:
    batch = batch_of(record(1, b"one") + record(4, b"four"), 2, last_offset_delta=6, base_offset=100)
    messages = decode_batch(batch, NO_CODECS)
    assert [(m.offset, m.value) for m in messages] == [(101, b"one"), (104, b"four")]
    columns = decode_columns(batch, NO_CODECS, from_offset=102)
    assert (columns.offsets, columns.next_offset) == ([104], 107)


def test_a_batch_that_compaction_emptied_is_stepped_over() -> None:
    data = batch_of(b"", 0, last_offset_delta=9) + batch_of(record(0), 1, base_offset=10)
    assert decode_batch(data, NO_CODECS) == []
    columns = decode_columns(data, NO_CODECS)
    assert (columns.offsets, columns.next_offset) == ([10], 11)


def test_a_header_key_that_is_no_utf8_is_read_with_replacements() -> None:
    batch = encode_batch([Message(b"v", headers=(("ab", b"x"),))], now_ms=NOW_MS)
    batch[batch.index(b"ab")] = 0xFF
    assert decode_batch(with_right_crc(batch), NO_CODECS)[0].headers == (("\ufffdb", b"x"),)


@pytest.mark.parametrize(
    ("records", "count"),
    [
        pytest.param(b"", 1, id="none where one is claimed"),
        pytest.param(record(0), 2, id="one where two are claimed"),
        pytest.param(record(0) + record(1), 1, id="two where one is claimed"),
        pytest.param(record(0) * 100, 2**31 - 1, id="enormous count"),
        pytest.param(record(0) + b"\0", 1, id="a byte too many"),
        pytest.param(record(0)[:-1], 1, id="a byte too few"),
        pytest.param(b"\x0c" + record(0)[1:], 1, id="record length too small"),
        pytest.param(b"\x10" + record(0)[1:] + b"\0\0", 1, id="record length too large"),
        pytest.param(b"\x0f" + record(0)[1:], 1, id="negative record length"),
        pytest.param(b"\x0e\0\0\0\3\2v\0", 1, id="negative key length"),
        pytest.param(b"\x0e\0\0\0\1\3v\0", 1, id="negative value length"),
        pytest.param(b"\x0e\0\0\0\1\2v\1", 1, id="negative header count"),
        pytest.param(b"\x12\0\0\0\1\2v\2\1\0", 1, id="null header key"),
        pytest.param(b"\x12\0\0\0\1\2v\2\0\3", 1, id="negative header value length"),
        pytest.param(b"\x10\0\0\0\1\2v\4\0", 1, id="fewer headers than claimed"),
        pytest.param(b"\x80" * 5 + b"\0" + record(0), 1, id="varint of six bytes"),
        pytest.param(b"\xff\xff\xff\xff\x7f" + record(0), 1, id="varint of more than 32 bits"),
        pytest.param(b"\x20\0" + b"\xff" * 10 + b"\1\0\1\0\0", 1, id="varlong of eleven bytes"),
        pytest.param(record(0, timestamp_delta=2**63 - 1), 1, id="timestamp beyond 64 bits"),
        pytest.param(record(1), 1, id="offset beyond the last"),
        pytest.param(record(-1), 1, id="offset before the base"),
        pytest.param(record(0, b"x" * 100)[:-1] + b"\2", 1, id="headers beyond the end of a plain record"),
        pytest.param(record(0, b"x" * 100)[:-10], 1, id="plain record cut"),
        pytest.param(record(0, b"x" * 100) + record(1, b"x" * 100)[:8], 2, id="plain record cut in its fixed part"),
        pytest.param(b"\xd4\1" + record(0, b"x" * 100)[2:], 1, id="plain record length wrong"),
    ],
)
def test_malformed_records_are_corrupt(records: bytes, count: int) -> None:
    batch = batch_of(records, count)
    for read in (
        lambda: decode_batch(batch, NO_CODECS),
        lambda: decode_batch(bytes(batch), NO_CODECS),
        lambda: decode_columns(batch, NO_CODECS, with_headers=True),
    ):
        with pytest.raises(ApiError) as caught:
            read()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_failed_read_leaves_whole_batches_in_the_columns() -> None:
    bad = bytearray(encode_columns([b"x"], now_ms=NOW_MS, base_offset=30))
    bad[-1] ^= 1
    columns = Columns()
    with pytest.raises(ApiError):
        decode_columns(three_batches() + bad, CODECS, into=columns)
    assert columns.next_offset == len(columns) == 30


@pytest.mark.parametrize("size", [0, 11, 12, 60, 61, 78])
def test_a_cut_batch_alone_cannot_be_decoded(size: int) -> None:
    for check_crc in (True, False):
        with pytest.raises(ApiError):
            decode_batch(GOLDEN[:size], NO_CODECS, check_crc=check_crc)


def test_the_bound_holds_for_every_codec() -> None:
    for name in CODECS.names:
        batch = encode_columns([bytes(1 << 20)], now_ms=NOW_MS, codec=CODECS.by_name(name))
        assert len(decode_batch(batch, CODECS, max_bytes=1_100_000)) == 1
        with pytest.raises(ApiError) as caught:
            decode_batch(batch, CODECS, max_bytes=1_000_000)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_unknown_codec_is_said_so() -> None:
    batch = encode_columns([b"v"], now_ms=NOW_MS, codec=CODECS.by_name("lz4"))
    with pytest.raises(ApiError) as caught:
        decode_batch(batch, NO_CODECS)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def _read_or_refuse(data: bytes | bytearray) -> None:
    """Whatever the bytes are: messages, or an `ApiError`; and the ways of reading agree."""
    try:
        messages = decode_batch(data, CODECS, max_bytes=1 << 20)
    except ApiError:
        return
    columns = decode_columns(data, CODECS, max_bytes=1 << 20)
    assert columns.values[: len(messages)] == [m.value for m in messages] or bool(data[22] & 0x20)


@given(st.binary(max_size=120), st.integers(0, 2**31 - 1) | st.integers(0, 12), st.integers(0, 40))
def test_arbitrary_records_never_raise_anything_but_api_errors(data: bytes, count: int, last: int) -> None:
    _read_or_refuse(batch_of(data, count, last_offset_delta=last))
    for with_headers in (True, False):
        try:
            records = parse_records(data, 0, len(data), count, with_headers=with_headers)
        except ApiError:
            continue
        assert len(records.values) == len(records.keys) == count


@given(message_lists, st.data())
def test_damaged_batches_with_right_crcs_never_raise_anything_but_api_errors(
    messages: list[Message], draw: st.DataObject
) -> None:
    codec = CODECS.by_name(draw.draw(st.sampled_from(("none", *CODECS.names))))
    batch = encode_batch(messages, now_ms=NOW_MS, codec=codec)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(21, len(batch) - 1))
        batch[at] = draw.draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0xFF, batch[at] ^ 1, batch[at] ^ 0x80)))
    _read_or_refuse(with_right_crc(batch))
    cut = batch[: draw.draw(st.integers(HEADER_SIZE, len(batch)))]
    pack_into(">i", cut, 8, len(cut) - 12)
    _read_or_refuse(with_right_crc(cut))


@given(st.binary(max_size=150))
def test_arbitrary_bytes_never_raise_anything_but_api_errors(data: bytes) -> None:
    for read in (lambda: decode_batch(data, CODECS), lambda: decode_columns(data, CODECS)):
        try:
            assert len(read()) == 0
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.data
@pytest.mark.parametrize("codec_name", ["none", *CODECS.names])
def test_real_events_come_back_byte_for_byte(data_dir: Path, codec_name: str) -> None:
    path = data_dir / "zeek_events.ndjson.gz"
    if not path.exists():
        pytest.skip("zeek_events.ndjson.gz is not among the data sets")
    lines = gzip.decompress(path.read_bytes()).splitlines()[:5000]
    batches = [
        encode_columns(
            lines[at : at + 500],
            timestamps=[NOW_MS + n // 7 for n in range(at, min(at + 500, len(lines)))],
            now_ms=NOW_MS,
            base_offset=at,
            codec=CODECS.by_name(codec_name),
        )
        for at in range(0, len(lines), 500)
    ]
    columns = decode_columns(b"".join(batches), CODECS)
    assert columns.values == lines
    assert columns.offsets == list(range(len(lines)))
    assert columns.timestamps == [NOW_MS + n // 7 for n in range(len(lines))]


def test_stamped_offsets_are_the_messages() -> None:
    batch = encode_columns([b"a", b"b"], now_ms=NOW_MS)
    assign_offset(batch, 2**62, 1)
    assert [m.offset for m in decode_batch(batch, NO_CODECS)] == [2**62, 2**62 + 1]
