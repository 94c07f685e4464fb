"""Message sets of Kafka 0.8 to 0.10 (magic 0 and 1), which are only read: they become record batches.

Offsets, timestamps, keys, values and the codec stay as they are. A compressed entry becomes one batch; entries without
compression become one batch each, or share batches.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer
from .batch_header import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME_BIT, MAGIC, MAGIC_AT, NO_TIMESTAMP
from .batch_writer import INT_MAX, assemble_batch
from .codec import DECOMPRESSED_BYTES_MAX, Codecs
from .varint import SMALL, SMALL_LIMIT, encode_varint

ENTRY_OVERHEAD = 12
"""Size of the offset and the size of an entry, which the size does not count. Batches have the same two fields."""
HEAD_SIZE = MAGIC_AT + 1
"""Size of the part of an entry that ends with its magic byte, which is in the same place in batches."""
GROUP_BYTES = 1 << 14
"""The size of batches that take several entries."""
_GROUP_MAX = 10_000
_SIZE_AT = 8
_CRC_COVERS_FROM = 16
_FIXED = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_LENGTH = _EPOCH = Struct(">i")
_SIZE_MIN = {0: 14, 1: 22}
_LZ4_ID = 3
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


class LegacyEntry(NamedTuple):
    """An entry of a message set: a message, or with a codec several. `offset` is that of its last message."""

    offset: int
    size: int
    """Size of the whole entry in bytes."""
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class ConvertedRecords(NamedTuple):
    """Batches, and the size of what they were made from."""

    records: bytes
    consumed: int
    leader_epoch: int
    """The leader epoch of the last batch."""


_Message = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp, key and value."""


def is_legacy(data: Buffer, position: int = 0) -> bool:
    """Return True if an entry of magic 0 or 1 begins at the position."""
    return len(data) >= position + HEAD_SIZE and data[position + MAGIC_AT] in _SIZE_MIN


def entry_size(data: Buffer, position: int = 0) -> int:
    """Return the size that an entry or a batch claims to have; it may be wrong."""
    claimed = int.from_bytes(data[position + _SIZE_AT : position + ENTRY_OVERHEAD], "big", signed=True)
    return ENTRY_OVERHEAD + claimed


def read_entry(data: memoryview, position: int = 0) -> LegacyEntry:
    """Read the whole entry at the position. Raises `ApiError` CORRUPT_MESSAGE."""
    if len(data) < position + _FIXED.size:
        raise _corrupt("an entry is truncated")
    offset, size, crc, magic, attributes = _FIXED.unpack_from(data, position)
    if magic not in _SIZE_MIN:
        raise _corrupt(f"an entry of magic {magic} at offset {offset}")
    begin, end = position + _CRC_COVERS_FROM, position + ENTRY_OVERHEAD + size
    if size < _SIZE_MIN[magic] or end > len(data) or offset < 0:
        raise _corrupt(f"an entry of {size} bytes at offset {offset}")
    if crc32(data[begin:end]) != crc:
        raise _corrupt(f"the CRC-32 of the entry at offset {offset} does not match its content")
    at, timestamp = position + _FIXED.size, NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(data, at)
        at += _TIMESTAMP.size
    key, at = _field(data, at, end)
    value, at = _field(data, at, end)
    if at != end:
        raise _corrupt(f"key and value do not fill the entry at offset {offset}")
    return LegacyEntry(offset, ENTRY_OVERHEAD + size, magic, attributes, timestamp, key, value)


def convert_records(
    data: Buffer,
    codecs: Codecs,
    *,
    from_offset: int = 0,
    group_bytes: int = 0,
    leader_epoch: int | None = None,
    epoch_at: Callable[[int], int] = lambda _: -1,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> ConvertedRecords:
    """Convert the whole entries from the begin of `data` on; batches among them stay as they are.

    Ends before the first entry that is cut or cannot be read, so at 0 where nothing can. Messages below `from_offset`
    are left out. With `group_bytes`, entries without compression share batches of about that size. With `leader_epoch`,
    that of the batch before, converted batches have the epoch of their predecessor, or that which `epoch_at` knows for
    their offset; else they have none. Raises `ApiError` if the first entry cannot be read: CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE (beyond `max_bytes` decompressed), UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(data)
    out = bytearray()
    epoch = -1 if leader_epoch is None else leader_epoch

    def add(messages: Sequence[_Message], codec_id: int, time_type: int) -> None:
        nonlocal epoch
        epoch = max(epoch, epoch_at(messages[0][0]))
        out.extend(_batch(messages, codecs, codec_id, time_type, epoch))

    group: list[_Message] = []
    group_size = group_type = position = 0
    while len(view) - position >= HEAD_SIZE:
        size = entry_size(view, position)
        if size > len(view) - position:
            break
        try:
            entry = None if view[position + MAGIC_AT] == MAGIC and size >= HEADER_SIZE else read_entry(view, position)
            messages = [] if entry is None else _messages_of(entry, codecs, max_bytes)
        except ApiError:
            if position == 0:
                raise
            break
        time_type = 0 if entry is None else entry.attributes & LOG_APPEND_TIME_BIT if entry.magic else 0
        is_single = entry is not None and not entry.attributes & CODEC_MASK
        if group and (not is_single or time_type != group_type or group_size >= group_bytes):
            add(group, 0, group_type)
            group, group_size = [], 0
        if entry is None:
            if leader_epoch is not None:
                epoch = max(epoch, _EPOCH.unpack_from(view, position + ENTRY_OVERHEAD)[0])
            out += view[position : position + size]
        elif is_single:
            group += [each for each in messages if each[0] >= from_offset]
            group_size, group_type = group_size + size, time_type
            if len(group) >= _GROUP_MAX:
                group_size = group_bytes
        else:
            wanted = [each for each in messages if each[0] >= from_offset]
            if wanted:
                add(wanted, entry.attributes & CODEC_MASK, time_type)
        position += size
    if group:
        add(group, 0, group_type)
    return ConvertedRecords(bytes(out), position, epoch)


def _messages_of(entry: LegacyEntry, codecs: Codecs, max_bytes: int) -> list[_Message]:
    """Return the messages of an entry with their offsets and timestamps. Raises the errors of `convert_records`."""
    codec_id = entry.attributes & CODEC_MASK
    if not codec_id:
        return [(entry.offset, entry.timestamp, entry.key, entry.value)]
    if entry.value is None:
        raise _corrupt(f"the compressed entry at offset {entry.offset} is empty")
    packed = entry.value
    if codec_id == _LZ4_ID and entry.magic == 0:
        packed = _with_right_checksum(packed)
    view = memoryview(codecs.by_id(codec_id).decompress(packed, max_bytes))
    inner: list[LegacyEntry] = []
    position = 0
    while position < len(view):
        if not is_legacy(view, position):
            raise _corrupt(f"the compressed entry at offset {entry.offset} does not decompress to a message set")
        inner.append(read_entry(view, position))
        position += inner[-1].size
    if not inner or any(each.attributes & CODEC_MASK for each in inner):
        raise _corrupt(f"the compressed entry at offset {entry.offset} holds no plain messages")
    # Offsets within an entry are relative since magic 1; that of the entry is the last one's.
    first = entry.offset - inner[-1].offset if entry.magic == 1 else 0
    is_append_time = entry.magic == 1 and entry.attributes & LOG_APPEND_TIME_BIT
    return [
        (first + each.offset, entry.timestamp if is_append_time else each.timestamp, each.key, each.value)
        for each in inner
    ]


def _batch(messages: Sequence[_Message], codecs: Codecs, codec_id: int, time_type: int, epoch: int) -> bytearray:
    """Encode one batch of messages with rising offsets."""
    first, base_timestamp = messages[0][0], messages[0][1]
    if not 0 <= messages[-1][0] - first < INT_MAX:
        raise _corrupt(f"messages from offset {first} to {messages[-1][0]} in one entry")
    return assemble_batch(
        b"".join([_record(offset - first, time - base_timestamp, key, value) for offset, time, key, value in messages]),
        count=len(messages),
        codec=codecs.by_id(codec_id) if codec_id else None,
        base_offset=first,
        last_offset_delta=messages[-1][0] - first,
        attributes=time_type,
        base_timestamp=base_timestamp,
        max_timestamp=max(time for _, time, _, _ in messages),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        leader_epoch=epoch,
    )


def _record(offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0%b%b%b%b%b%b\0" % (
        encode_varint(timestamp_delta),
        _varint(offset_delta),
        b"\1" if key is None else _varint(len(key)),
        key or b"",
        b"\1" if value is None else _varint(len(value)),
        value or b"",
    )
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    return SMALL[number] if number < SMALL_LIMIT else encode_varint(number)


def _field(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    """Return (key or value, position after it)."""
    if at + _LENGTH.size > end:
        raise _corrupt("an entry without key or value")
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if length < 0 or at + length > end:
        raise _corrupt(f"a key or value of {length} bytes in an entry that has {end - at} left")
    return bytes(data[at : at + length]), at + length


def _with_right_checksum(frame: bytes) -> bytes:
    """Return an LZ4 frame with the checksum of its header that the format wants.

    Kafka's messages of magic 0 have the checksum of magic number and header, instead of the header alone.
    """
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        return frame
    end = 6 + (8 if frame[4] & 0x08 else 0)  # a content size is optional
    return frame[:end] + bytes(((_xxh32(frame[4:end]) >> 8) & 0xFF,)) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """Return the XXH32 of less than 16 bytes, with the seed 0."""
    mask, at = 0xFFFFFFFF, 0
    found = (374761393 + len(data)) & mask
    while at + 4 <= len(data):
        found = (found + int.from_bytes(data[at : at + 4], "little") * 3266489917) & mask
        found = (_rotated(found, 17) * 668265263) & mask
        at += 4
    for byte in data[at:]:
        found = (found + byte * 374761393) & mask
        found = (_rotated(found, 11) * 2654435761) & mask
    found = ((found ^ found >> 15) * 2246822519) & mask
    found = ((found ^ found >> 13) * 3266489917) & mask
    return found ^ found >> 16


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & 0xFFFFFFFF


def _corrupt(reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, reason)
