"""Arrow columns of record batches: whatever is in them, the same as the reader record by record says."""

from collections.abc import Callable
from struct import pack_into
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import NOW_MS, with_right_crc

from barnabas import Message
from barnabas.app.clients.arrow.decode import ArrowColumns, decode_arrow, decode_set
from barnabas.core.log.compaction.log_cleaner import retain_records
from barnabas.core.message.batch_header import HEADER_SIZE, BatchHeader, parse_header, set_max_timestamp
from barnabas.core.message.batch_reader import Columns, decode_columns
from barnabas.core.message.batch_writer import encode_batch, encode_columns
from barnabas.core.message.message_set import MessageSet
from barnabas.core.message.record_scan import scan_records
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()

contents = st.none() | st.binary(max_size=9) | st.integers(50, 9000).map(lambda size: b"x" * size)
messages = st.builds(
    Message,
    contents,
    key=contents,
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    timestamp_ms=st.integers(NOW_MS, NOW_MS + 100) | st.integers(0, 2**62),
)
kinds = st.sampled_from(["plain", "gzip", "zstd", "log append time", "control", "thinned"])


def made(kind: str, content: list[Message], base_offset: int) -> bytearray:
    codec = CODECS.by_name(kind) if kind in ("gzip", "zstd") else None
    batch = encode_batch(content, now_ms=NOW_MS, base_offset=base_offset, codec=codec)
    if kind == "log append time":
        set_max_timestamp(batch, NOW_MS + 5, log_append_time=True)
    elif kind == "control":
        pack_into(">h", batch, 21, 0x30)
        batch = with_right_crc(batch)
    elif kind == "thinned":
        header, data = parse_header(batch), bytes(batch)
        records = scan_records(data, HEADER_SIZE, len(data), len(content))
        keep = [number % 2 for number in range(len(content))]
        batch = retain_records(header, data, HEADER_SIZE, records, keep if any(keep) else [1], codec=None)
    return batch


def in_a_row(parts: list[tuple[str, list[Message], int]]) -> bytes:
    out, offset = b"", 0
    for kind, content, gap in parts:
        out += made(kind, content, offset + gap)
        offset += gap + len(content)
    return out


def rows_of_columns(columns: Columns) -> list[tuple[Any, ...]]:
    headers = columns.headers or [()] * len(columns)
    contents = zip(columns.keys, columns.values, headers, strict=True)
    stamps = zip(columns.offsets, columns.timestamps, columns.log_append_time, strict=True)
    return [(*row, *stamp) for row, stamp in zip(contents, stamps, strict=True)]


def rows_of_arrow(columns: ArrowColumns) -> list[tuple[Any, ...]]:
    headers = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
    pairs = [tuple((pair["key"], pair["value"]) for pair in row or ()) for row in headers]
    contents = zip(columns.keys.to_pylist(), columns.values.to_pylist(), pairs, strict=True)
    stamps = zip(
        columns.offsets.tolist(), columns.timestamps_ms.tolist(), columns.log_append_time.tolist(), strict=True
    )
    return [(*row, *stamp) for row, stamp in zip(contents, stamps, strict=True)]


def outcome(rows: list[tuple[Any, ...]], read: Callable[[], int]) -> tuple[Any, ...]:
    try:
        next_offset = read()
    except ApiError as error:
        return rows, error.code, error.message
    return rows, next_offset


def compared(data: bytes, **how: Any) -> None:
    into, start = Columns(how.get("from_offset", 0)), how.get("from_offset", 0)
    right = outcome([], lambda: decode_columns(data, CODECS, into=into, **how).next_offset)
    found: list[tuple[Any, ...]] = []

    def read() -> int:
        reached: int = start
        for piece in decode_arrow(data, CODECS, **how):
            found.extend(rows_of_arrow(piece))
            assert reached <= piece.next_offset
            reached = piece.next_offset
        return reached

    assert outcome(found, read)[1:] == right[1:]
    assert found == rows_of_columns(into)


@given(
    parts=st.lists(st.tuples(kinds, st.lists(messages, min_size=1, max_size=70), st.integers(0, 3)), max_size=4),
    from_offset=st.just(0) | st.integers(0, 60),
    upto=st.none() | st.integers(0, 80),
    with_headers=st.booleans(),
    spoilt=st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)),
    check_crc=st.booleans(),
    cut=st.integers(0, 3),
)
def test_arrow_decoding_equals_record_reader(
    parts: list[tuple[str, list[Message], int]],
    from_offset: int,
    upto: int | None,
    with_headers: bool,
    spoilt: tuple[float, int] | None,
    check_crc: bool,
    cut: int,
) -> None:
    data = bytearray(in_a_row(parts))
    if spoilt is not None and data:
        data[int(spoilt[0] * len(data))] ^= spoilt[1]
    compared(
        bytes(data[: len(data) - cut]),
        from_offset=from_offset,
        upto=upto,
        with_headers=with_headers,
        check_crc=check_crc,
    )


@given(spoilt=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=3), key=contents)
def test_damage_within_records(spoilt: list[tuple[int, int]], key: bytes | None) -> None:
    data = bytearray(encode_batch([Message(b"v", key=key, headers=(("h", b"x"),))] * 3, now_ms=NOW_MS))
    for at, byte in spoilt:
        if HEADER_SIZE + at < len(data):
            data[HEADER_SIZE + at] = byte
    compared(bytes(with_right_crc(data)), with_headers=True)
    compared(bytes(with_right_crc(data)))


@given(
    runs=st.lists(
        st.tuples(st.sampled_from([0, 1, 50, 56, 57, 58, 200, 8180, 8190]), st.integers(1, 90)), min_size=1, max_size=3
    ),
    spoilt=st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)),
)
def test_records_of_one_size_in_a_row(runs: list[tuple[int, int]], spoilt: tuple[float, int] | None) -> None:
    values = [b"v" * size for size, count in runs for _ in range(count)]
    data = bytearray(encode_columns(values, now_ms=NOW_MS) + encode_columns(values[:20], now_ms=NOW_MS))
    if spoilt is not None:
        at = HEADER_SIZE + int(spoilt[0] * (len(data) - HEADER_SIZE))
        data[at] ^= spoilt[1]
    compared(bytes(data), check_crc=False)


@pytest.mark.parametrize("with_headers", [False, True])
def test_corrupt_batches_are_skipped_on_request(with_headers: bool) -> None:
    batches = [bytearray(encode_columns([b"%d" % n] * 5, now_ms=NOW_MS, base_offset=5 * n)) for n in range(3)]
    batches[1][HEADER_SIZE] ^= 0x40  # a record's length
    batches[1] = with_right_crc(batches[1])
    observed: list[tuple[int, ErrorCode]] = []

    def on_damage(header: BatchHeader, error: ApiError) -> None:
        observed.append((header.base_offset, error.code))

    pieces = list(decode_arrow(b"".join(batches), CODECS, on_damage=on_damage, with_headers=with_headers))
    assert [offset for piece in pieces for offset in piece.offsets.tolist()] == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert pieces[-1].next_offset == 15
    assert observed == [(5, ErrorCode.CORRUPT_MESSAGE)]


def test_names_of_headers_that_are_no_text() -> None:
    batch = encode_batch([Message(b"v", headers=(("\0", b"x"),))], now_ms=NOW_MS)
    batch[batch.index(b"\2\0\2x") + 1] = 0xFF
    compared(bytes(with_right_crc(batch)), with_headers=True)


def test_a_record_with_more_headers_than_are_read_in_rounds() -> None:
    batch = encode_batch([Message(b"v", headers=tuple((str(n), None) for n in range(100))), Message(b"w")], now_ms=0)
    compared(bytes(batch), with_headers=True)


def test_aborted_batches_are_left_out_of_a_set() -> None:
    data = in_a_row([("plain", [Message(b"a")], 0), ("plain", [Message(b"b")], 0), ("zstd", [Message(b"c")], 0)])
    batches = list(MessageSet(data).positioned_batches())
    chosen = MessageSet(data, CODECS, topic="t", partition=0, batches=[batches[0], batches[2]], next_offset=3)
    (piece,) = decode_set(chosen)
    assert (piece.values.to_pylist(), piece.next_offset) == ([b"a", b"c"], 3)
    assert piece.values.type == pa.binary()
