"""Reads the files of a log without opening the log: the input of `barnabas log dump`."""

from collections.abc import Iterator
from struct import Struct

from ...ports.errors import ApiError
from ...ports.types import Buffer, Offset, Position
from ...ports.values import frozen
from ..log.config import LONG_MAX
from ..log.segment.damage import Gap, SegmentBytes, walk
from ..message.batch_header import BatchHeader, is_crc_valid
from ..message.classic.entry import CODEC_MASK, LENGTH, MESSAGE_BYTES_MIN, read_header
from ..message.crc32 import crc32

_INDEX_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_CONTENT_DAMAGED = "the CRC-32C does not match the content"


@frozen
class BatchFinding:
    """A batch at `position` of a segment, or the problem there; both for a batch with corrupt content."""

    position: Position
    header: BatchHeader | None = None
    problem: str | None = None
    end: Position = Position(-1)
    """Position of the next batch after damage without a header."""


def examine_segment(content: Buffer, base_offset: int, below: int = LONG_MAX) -> Iterator[BatchFinding]:
    """Yield the batches of a segment file, and the damage between them, with the lost offsets.

    Checks header, CRC-32C, size, and that offsets increase (facts B3). `below`: base offset of the next segment.
    """
    whole = Position(0), Position(len(content))
    for item in walk(SegmentBytes(content), *whole, expected=Offset(base_offset), below=Offset(below)):
        if isinstance(item, Gap):
            yield BatchFinding(item.position, None, f"{item.reason}; {item.lost}", item.end)
        else:
            position, header = item
            problem = None if is_crc_valid(content, header, position) else _CONTENT_DAMAGED
            yield BatchFinding(position, header, problem)


def index_entries(content: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """Return the (offset, position) pairs of an offset index file, without an incomplete entry at its end."""
    whole = len(content) - len(content) % _INDEX_ENTRY.size
    return [
        (base_offset + delta, position) for delta, position in _INDEX_ENTRY.iter_unpack(memoryview(content)[:whole])
    ]


def time_index_entries(content: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """Return the (timestamp in ms, offset) pairs of a time index file, without an incomplete entry at its end."""
    whole = len(content) - len(content) % _TIME_ENTRY.size
    return [
        (timestamp, base_offset + delta) for timestamp, delta in _TIME_ENTRY.iter_unpack(memoryview(content)[:whole])
    ]


@frozen(kw_only=True)
class ClassicFinding:
    """A message at `position` of a segment, or the problem there; both for a message with corrupt content."""

    position: int
    size: int = 0
    """Size with the length field; 0 without a complete message."""
    magic: int = -1
    codec_id: int = -1
    payload_bytes: int = -1
    crc_valid: bool = False
    problem: str | None = None


def examine_classic_segment(content: Buffer) -> Iterator[ClassicFinding]:
    """Yield the outer messages of a segment file; end at the first position without one.

    Shallow, like recovery (facts A4): length, magic, CRC-32; compressed messages are not opened.
    """
    position, total = 0, len(content)
    while position < total:
        finding = _message(content, position, total)
        yield finding
        if not finding.size:
            return
        position += finding.size


def _message(content: Buffer, position: int, total: int) -> ClassicFinding:
    if position + LENGTH.size > total:
        return ClassicFinding(
            position=position,
            problem=f"the last message is truncated: its size field has only {total - position} bytes",
        )
    length = LENGTH.unpack_from(content, position)[0]
    size = LENGTH.size + length
    if length < MESSAGE_BYTES_MIN:
        return ClassicFinding(position=position, problem=f"no message begins here: it claims {length} bytes")
    if position + size > total:
        cut = f"the message is truncated: {total - position} of its {size} bytes exist"
        return ClassicFinding(position=position, problem=cut)
    try:
        payload_start, codec_id, crc = read_header(content, position, length)
    except ApiError as error:
        return ClassicFinding(position=position, problem=f"no message begins here: {error.message}")
    end = position + size
    crc_valid = crc32(content[payload_start:end]) == crc
    problem = "the CRC-32 does not match the content" if not crc_valid else None
    if problem is None and codec_id == CODEC_MASK:
        problem = f"unknown codec {codec_id}"
    return ClassicFinding(
        position=position,
        size=size,
        magic=content[position + LENGTH.size],
        codec_id=codec_id,
        payload_bytes=end - payload_start,
        crc_valid=crc_valid,
        problem=problem,
    )
