"""Scan of the keys and positions of the records of a batch, for compaction.

The loop reads every varint inline: calls would double the time, and compaction scans every record of a log.
"""

from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .varint import LONG_BYTES_MAX, read_raw, undo_zigzag

RECORD_SIZE_MIN = 7


class ScannedRecords(NamedTuple):
    """Columns of one batch; deltas are relative to base offset and base timestamp."""

    keys: list[bytes | None]
    offset_deltas: list[int]
    timestamp_deltas: list[int]
    """Zig-zag encoded, as stored."""
    ends: list[int]
    """End position of each record."""
    nulls: list[int]
    """Indexes of the records without a value: the tombstones of a compacted log."""


def scan_records(data: bytes, start: int, end: int, count: int) -> ScannedRecords:
    """Scan the `count` records that fill data[start:end], skipping values and headers.

    Raises `ApiError` CORRUPT_MESSAGE unless the records fill the range exactly.
    """
    if count * RECORD_SIZE_MIN > end - start:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records cannot be in {end - start} bytes")
    records = ScannedRecords([], [], [], [], [])
    try:
        position = _scan(data, start, count, records)
    except IndexError:
        position = -1
    if position != end:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the {count} records do not fill {end - start} bytes")
    return records


def _scan(data: bytes, position: int, count: int, records: ScannedRecords) -> int:
    add_key, add_offset = records.keys.append, records.offset_deltas.append
    add_time, add_end = records.timestamp_deltas.append, records.ends.append
    for number in range(count):
        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        record_end, position = position + (raw >> 1), position + 1  # past the attributes, which mean nothing yet

        time, position = data[position], position + 1
        if time > 0x7F:
            two, at = (high := data[position]) < 0x80, position - 1
            time, position = (time & 0x7F | high << 7, position + 1) if two else read_raw(data, at, LONG_BYTES_MAX)

        offset, position = data[position], position + 1
        if offset > 0x7F:
            two, at = (high := data[position]) < 0x80, position - 1
            offset, position = (offset & 0x7F | high << 7, position + 1) if two else read_raw(data, at)

        size, position = data[position], position + 1
        if size > 0x7F:
            size, position = read_raw(data, position - 1)
        if size == 1:
            key = None
        else:
            key_end = position + (size >> 1)
            key, position = data[position:key_end], key_end
        if raw & 1 or offset & 1 or (size & 1 and size != 1) or position >= record_end:
            raise _malformed(raw, offset, size)
        if data[position] == 1:
            records.nulls.append(number)
        add_key(key)
        add_offset(offset >> 1)
        add_time(time)
        add_end(record_end)
        position = record_end
    return position


def _malformed(length: int, offset: int, key: int) -> ApiError:
    text = f"a record of {undo_zigzag(length)} bytes, at offset delta {undo_zigzag(offset)}"
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{text}, with a key of {undo_zigzag(key)} bytes")
