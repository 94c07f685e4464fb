"""Fast reader of keys and values of uncompressed batches, for internal topics that are loaded as tables."""

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
"""Keys of end-transaction markers: version 0, type; the value is True for a commit."""
_MARKER, _TYPE_AT, _TYPE_END = 17, 5, 9
"""Size of a marker record, and the positions of its key."""


class TransactionSpan(NamedTuple):
    """Records of a transaction, or its end, in the columns.

    With `committed` None, the rows [start, end) belong to the transaction; else the transaction ended there.
    """

    start: int
    end: int
    producer_id: int
    committed: bool | None = None


class KeysAndValues:
    """Columns of keys and values, with the transactions in them, in log order."""

    __slots__ = ("keys", "transactions", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.transactions: list[TransactionSpan] = []


def read_plain_batches(data: bytes, position: int, from_offset: int, into: KeysAndValues) -> tuple[int, int]:
    """Append the records and markers of consecutive complete, valid and uncompressed batches to the columns.

    Returns the position of the first other batch, and the next offset: `decode_columns` reads that batch or reports its
    fault. No batch may begin below `from_offset`.
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
    """Return the position after the records.

    Unusual records (sizes of more than two bytes, headers) yield a position that does not match the end of the batch,
    or raise `IndexError`. Varints are read inline, since calls would double the time.
    """
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
