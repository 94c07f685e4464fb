"""How many of the batches of a range a client can read, by their headers alone: the records stay where they are."""

from struct import Struct

from ...ports.storage import Region, size_of
from ...ports.words import Buffer
from .batch_header import BATCH_LENGTH_MIN, CODEC_MASK, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

_FIELDS = Struct(">8xi4xb4xh")
"""The batch length, the magic byte and the attributes (facts B1)."""


def bytes_without_codec(records: Buffer | Region, codec_id: int, *, headers_max: int) -> tuple[int, int]:
    """(the bytes of the batches before the first one of that codec, how many headers were looked at).

    At most `headers_max` headers are looked at: what lies behind them does not count either. Neither does what follows
    a damaged header, unless it is the first: then the client is to find the damage.
    """
    size, position, looked = size_of(records), 0, 0
    while looked < headers_max and size - position >= HEADER_SIZE:
        length, magic, attributes = _FIELDS.unpack(_head(records, position))
        looked += 1
        if length < BATCH_LENGTH_MIN or magic != MAGIC:
            return position or size, looked
        if attributes & CODEC_MASK == codec_id:
            return position, looked
        position += LENGTH_OVERHEAD + length
    return (position if looked == headers_max and position < size else size), looked


def _head(records: Buffer | Region, position: int) -> Buffer:
    if isinstance(records, bytes | bytearray | memoryview):
        return records[position : position + _FIELDS.size]
    return records.read(position, _FIELDS.size)
