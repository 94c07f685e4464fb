"""The prefix of a fetch whose batches use no codec that the client lacks, found by the headers alone."""

from struct import Struct

from ...ports.storage import Region, size_of
from ...ports.types import Buffer
from .batch_header import BATCH_LENGTH_MIN, CODEC_MASK, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

_FIELDS = Struct(">8xi4xb4xh")
"""Batch length, magic byte and attributes."""


def bytes_without_codec(records: Buffer | Region, codec_id: int, *, headers_max: int) -> tuple[int, int]:
    """Return (size of the batches before the first one with `codec_id`, number of headers read).

    At most `headers_max` headers are read, and batches beyond them are left out. Batches after a corrupt
    header are left out as well, unless it is the first: then the client reports the corruption.
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
