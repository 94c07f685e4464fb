"""Keys and values of plain batches, quickly also where each batch has one record: of a log that is read as a table."""

from typing import NamedTuple

from crc32c import crc32c

from .batch_header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)

_MORE = 0x80
_NULL = 1
_OUTCOMES = {b"\0\0\0\0": False, b"\0\0\0\1": True}
"""Keys of the records in control batches that end transactions: version 0, the type (facts B1)."""
_MARKER, _TYPE_AT, _TYPE_END = 17, 5, 9
"""The bytes of such a record, and where its key stands."""


class TransactionSpan(NamedTuple):
    """What the transaction of a producer did at this place of the columns.

    `committed` None: the records [start, end) belong to it; else it ended there, so or so.
    """

    start: int
    end: int
    producer_id: int
    committed: bool | None = None


class KeysAndValues:
    """Two columns of equal length, and which parts of them belong to transactions, in the order of the log."""

    __slots__ = ("keys", "transactions", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.transactions: list[TransactionSpan] = []


def read_plain_batches(data: bytes, position: int, from_offset: int, into: KeysAndValues) -> tuple[int, int]:
    """Read batches that are whole, right and not compressed, as long as they come; their records go into the columns,
    what markers say beside them.

    Returns where the first other one begins (its position, and the offset to go on from): `decode_columns` reads it, or
    says what is wrong with it. No batch may reach below `from_offset`.
    """
    view, offset, end, keys, values = memoryview(data), from_offset, len(data), into.keys, into.values
    while position + HEADER_SIZE <= end:
        base, length, _, magic, crc, attributes, delta, _, _, producer_id, _, _, count = HEADER.unpack_from(
            data, position
        )
        records, stop = position + HEADER_SIZE, position + LENGTH_OVERHEAD + length
        if magic != MAGIC or attributes & CODEC_MASK or base < offset or not records <= stop <= end:
            break
        if not 0 < count <= delta + 1 or crc32c(view[position + CRC_COVERS_FROM : stop]) != crc:
            break
        before = len(keys)
        if attributes & CONTROL_BIT:
            outcome = (
                _OUTCOMES.get(data[records + _TYPE_AT : records + _TYPE_END]) if stop - records == _MARKER else None
            )
            if outcome is None:
                break
            into.transactions.append(TransactionSpan(before, before, producer_id, outcome))
            position, offset = stop, base + delta + 1
            continue
        try:
            reached = _read_records(data, records, count, keys, values)
        except IndexError:
            reached = -1
        if reached != stop:
            del keys[before:], values[before:]
            break
        if attributes & TRANSACTIONAL_BIT:
            into.transactions.append(TransactionSpan(before, len(keys), producer_id))
        position, offset = stop, base + delta + 1
    return position, offset


def _read_records(data: bytes, position: int, count: int, keys: list[bytes | None], values: list[bytes | None]) -> int:
    """Returns the position after them. Whatever is not as usual makes it another one than it should be, or raises
    `IndexError`: sizes beyond two bytes, headers. Varints are read in place, since calls would double the time."""
    for _ in range(count):
        position += 1 if data[position] < _MORE else 2  # the size: the position at the end shows whether it is right
        position += 1  # the attributes mean nothing
        while data[position] >= _MORE:  # difference of the timestamp
            position += 1
        position += 1
        while data[position] >= _MORE:  # difference of the offset
            position += 1
        position += 1
        position = _read_field(data, position, keys)
        position = _read_field(data, position, values)
        if data[position]:
            return -1
        position += 1
    return position


def _read_field(data: bytes, position: int, column: list[bytes | None]) -> int:
    raw = data[position]
    position += 1
    if raw >= _MORE:
        raw = raw & 0x7F | data[position] << 7
        position += 1
        if raw >= _MORE << 7:
            return len(data) + 1
    if raw & 1:
        column.append(None)
        return position if raw == _NULL else len(data) + 1
    end = position + (raw >> 1)
    column.append(data[position:end])
    return end
