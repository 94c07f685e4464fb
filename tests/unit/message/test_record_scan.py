"""The scan of records for compaction, compared with a reader; batches that lose records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.log.compaction.log_cleaner import retain_records
from barnabas.core.message.batch_header import DELETE_HORIZON_BIT, HEADER_SIZE, is_crc_valid, parse_header
from barnabas.core.message.batch_reader import decode_batch
from barnabas.core.message.batch_writer import encode_batch, make_empty_batch
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message import Message
from barnabas.core.message.record_parser import parse_records
from barnabas.core.message.record_scan import scan_records
from barnabas.core.message.varint import undo_zigzag
from barnabas.ports.errors import ApiError

_bytes = st.one_of(st.none(), st.binary(max_size=9), st.integers(60, 70).map(bytes), st.just(bytes(9000)))
_headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
_messages = st.lists(
    st.builds(Message, value=_bytes, key=_bytes, headers=_headers, timestamp_ms=st.integers(-1, 2**50)),
    min_size=1,
    max_size=90,
)


def batch_of(messages: list[Message]) -> bytes:
    return bytes(encode_batch(messages, now_ms=0, producer_id=5, producer_epoch=1, base_sequence=7, base_offset=1000))


@given(_messages)
def test_record_scan_finds_what_readers_find(messages: list[Message]) -> None:
    batch = batch_of(messages)
    read = parse_records(batch, HEADER_SIZE, len(batch), len(messages))
    found = scan_records(batch, HEADER_SIZE, len(batch), len(messages))
    assert found.keys == read.keys
    assert found.offset_deltas == (read.offset_deltas or list(range(len(messages))))
    deltas = read.timestamp_deltas or [0] * len(messages)
    assert [undo_zigzag(raw) for raw in found.timestamp_deltas] == deltas
    assert found.nulls == [number for number, value in enumerate(read.values) if value is None]
    assert found.ends[-1] == len(batch)


@given(_messages, st.integers(0, 300), st.integers(0, 255))
def test_changed_byte_is_refused_or_leaves_consistent_records(messages: list[Message], at: int, byte: int) -> None:
    batch = bytearray(batch_of(messages))
    batch[HEADER_SIZE + at % (len(batch) - HEADER_SIZE)] = byte
    try:
        found = scan_records(bytes(batch), HEADER_SIZE, len(batch), len(messages))
    except ApiError:
        return
    assert found.ends == sorted(found.ends)
    assert found.ends[-1] == len(batch)


@given(_messages, st.lists(st.booleans(), min_size=90, max_size=90), st.none() | st.integers(0, 2**50))
def test_retained_records_of_a_batch_are_unchanged(
    messages: list[Message], chosen: list[bool], horizon: int | None
) -> None:
    batch = batch_of(messages)
    header = parse_header(batch)
    keep = [int(each) for each in chosen[: len(messages)]]
    keep[0] = max(keep[0], 1 - max(keep))
    records = scan_records(batch, HEADER_SIZE, len(batch), len(messages))
    thin = retain_records(header, batch, HEADER_SIZE, records, keep, codec=None, horizon_ms=horizon)
    left = parse_header(thin)
    assert is_crc_valid(thin, left)
    before = [message for message, stays in zip(decode_batch(batch, NO_CODECS), keep, strict=True) if stays]
    assert decode_batch(thin, NO_CODECS) == before
    assert left.max_timestamp == max(message.timestamp_ms or 0 for message in before)
    assert (left.base_offset, left.last_offset, left.count) == (header.base_offset, header.last_offset, len(before))
    assert (left.producer_id, left.producer_epoch, left.base_sequence) == (5, 1, 7)
    assert left.last_sequence == header.last_sequence
    if horizon is not None:
        assert left.attributes & DELETE_HORIZON_BIT
        assert left.base_timestamp == horizon


def test_batch_without_records_retains_its_header() -> None:
    header = parse_header(batch_of([Message(b"a", timestamp_ms=5), Message(b"b", timestamp_ms=9)]))
    empty = make_empty_batch(header)
    left = parse_header(empty)
    assert (len(empty), left.count, is_crc_valid(empty, left)) == (HEADER_SIZE, 0, True)
    assert (left.base_offset, left.last_offset, left.max_timestamp) == (1000, 1001, 9)
    assert (left.producer_id, left.last_sequence) == (5, header.last_sequence)
    assert decode_batch(empty, NO_CODECS) == []


@pytest.mark.parametrize("count", [0, 3, 10_000])
def test_another_count_is_refused(count: int) -> None:
    batch = batch_of([Message(b"a"), Message(b"b")])
    with pytest.raises(ApiError):
        scan_records(batch, HEADER_SIZE, len(batch), count)
