"""Message sets of magic 0 and 1 become record batches. aiokafka's builder is the independent writer."""

import struct
from collections.abc import Sequence
from zlib import crc32

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from barnabas.core.message.batch_header import is_crc_valid, parse_header
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.legacy_records import convert_records, entry_size, is_legacy, read_entry
from barnabas.core.message.message import Message
from barnabas.core.message.message_set import MessageSet
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()
NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4"}
FIELDS: list[tuple[int, bytes | None, bytes | None]] = [
    (1_500_000_000_000 + number * (-1) ** number, None if number % 3 == 0 else b"k%d" % number, value)
    for number, value in enumerate([b"a", None, b"", b"long" * 3000, b"e", b"f"])
]


def entries(magic: int, codec: int, first: int = 0) -> bytes:
    """Entries with consecutive offsets from `first` on; compressed ones are one entry, as brokers stored it."""
    if (magic, codec) == (0, 3):
        return lz4_of_magic_0(entries(0, 0, first), first)
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, (timestamp, key, value) in enumerate(FIELDS):
        offset = number if magic and codec else first + number  # those within an entry are relative since magic 1
        assert builder.append(offset, timestamp if magic else None, key, value) is not None
    made = bytearray(builder.build())
    if codec:
        made[:8] = struct.pack(">q", first + len(FIELDS) - 1)
    return bytes(made)


def lz4_of_magic_0(inner: bytes, first: int) -> bytes:
    """Return an entry as Kafka wrote it: the checksum in the frame's header violates the format."""
    frame = bytearray(CODECS.by_id(3).compress(inner))
    frame[6] ^= 0xFF
    body = struct.pack(">bbii", 0, 3, -1, len(frame)) + frame
    made = bytearray(struct.pack(">qiI", first + len(FIELDS) - 1, 4 + len(body), 0) + body)
    sealed(made)
    return bytes(made)


def messages(data: bytes) -> list[Message]:
    converted = convert_records(data, CODECS, group_bytes=1 << 14)
    assert converted.consumed == len(data)
    position = 0
    while position < len(converted.records):
        header = parse_header(converted.records, position)
        assert is_crc_valid(converted.records, header, position)
        assert header.leader_epoch == header.producer_id == -1
        position += header.size
    return list(MessageSet(converted.records, CODECS))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", NAMES, ids=NAMES.values())
def test_offsets_timestamps_keys_and_values_stay(magic: int, codec: int) -> None:
    found = messages(entries(magic, codec, 7))
    times = [each[0] if magic else -1 for each in FIELDS]
    assert [each.offset for each in found] == list(range(7, 7 + len(FIELDS)))
    assert [each.timestamp_ms for each in found] == times
    assert [(each.key, each.value) for each in found] == [each[1:] for each in FIELDS]
    batch = parse_header(convert_records(entries(magic, codec, 7), CODECS, group_bytes=1 << 14).records)
    assert (batch.codec_id, batch.max_timestamp) == (codec, max(times))


def test_entries_share_batches_only_if_asked() -> None:
    data = entries(1, 0)
    assert len(list(MessageSet(convert_records(data, CODECS).records).batches())) == len(FIELDS)
    assert len(list(MessageSet(convert_records(data, CODECS, group_bytes=1 << 20).records).batches())) == 1


def test_gaps_of_compaction_stay() -> None:
    data = entries(1, 0)
    sizes = cuts(data)
    remaining = data[: sizes[1]] + data[sizes[3] : sizes[4]]
    assert [each.offset for each in messages(remaining)] == [0, 3]


def cuts(data: bytes) -> Sequence[int]:
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + read_entry(memoryview(data), found[-1]).size)
    return found


def test_log_append_time_is_that_of_the_entry() -> None:
    data = bytearray(entries(1, 1))
    data[17] |= 8
    struct.pack_into(">q", data, 18, 42)
    sealed(data)
    assert {each.timestamp_ms for each in messages(bytes(data))} == {42}
    batch = parse_header(convert_records(data, CODECS).records)
    assert batch.log_append_time
    assert batch.max_timestamp == 42


def sealed(entry: bytearray) -> None:
    """Set the CRC of the first entry."""
    struct.pack_into(">I", entry, 12, crc32(entry[16 : entry_size(entry)]))


def test_batches_among_entries_stay_as_they_are() -> None:
    batch = bytes(encode_batch([Message(b"new")], now_ms=5, base_offset=6))
    data = entries(1, 0) + batch + entries(0, 3, 7)
    converted = convert_records(data, CODECS, group_bytes=1 << 14)
    assert batch in converted.records
    assert [each.offset for each in MessageSet(converted.records, CODECS)] == list(range(13))


def test_messages_below_an_offset_are_left_out() -> None:
    for data in (entries(1, 0), entries(1, 1)):
        converted = convert_records(data, CODECS, from_offset=4)
        assert [each.offset for each in MessageSet(converted.records, CODECS)] == [4, 5]
        assert converted.consumed == len(data)


def test_a_cut_or_damaged_entry_ends_the_conversion() -> None:
    whole, more = entries(1, 0), entries(1, 1, 6)
    for tail in (more[:-1], more[:16], more[:-1] + b"\xff"):
        converted = convert_records(whole + tail, CODECS)
        assert converted.consumed == len(whole)
    with pytest.raises(ApiError, match="CRC-32"):
        convert_records(more[:-1] + b"\xff", CODECS)
    assert convert_records(more[:-1], CODECS).consumed == 0


def test_every_damaged_byte_is_found_or_harmless() -> None:
    """The CRC covers all from the magic byte on."""
    data = entries(1, 0)
    size = entry_size(data)
    for position in range(12, size):
        changed = bytearray(data[:size])
        changed[position] ^= 0x55
        with pytest.raises(ApiError):
            convert_records(changed, CODECS)


def test_an_entry_within_an_entry_must_be_plain() -> None:
    inner = bytearray(entries(1, 1))
    outer = bytearray(entries(1, 1))
    wrapped = CODECS.by_id(1).compress(bytes(inner))
    body = struct.pack(">bbqi", 1, 1, 0, -1) + struct.pack(">i", len(wrapped)) + wrapped
    outer = bytearray(struct.pack(">qiI", 5, 4 + len(body), 0) + body)
    sealed(outer)
    with pytest.raises(ApiError, match="plain"):
        convert_records(outer, CODECS)


def test_is_legacy_by_the_magic_byte() -> None:
    assert is_legacy(entries(0, 0))
    assert is_legacy(entries(1, 0))
    assert not is_legacy(bytes(encode_batch([Message(b"")], now_ms=0)))
    assert not is_legacy(entries(1, 0)[:16])
