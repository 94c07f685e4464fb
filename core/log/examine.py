"""Looking at the files of a log without opening it as one: what `barnabas log dump` and `barnabas log verify` tell."""

from collections.abc import Iterable, Iterator
from struct import Struct

from ...ports.errors import ApiError
from ...ports.values import frozen
from ...ports.words import Buffer, Offset, Position
from ..message.batch_header import HEADER_SIZE, BatchHeader, crc_valid, parse_header
from .config import LONG_MAX
from .damage import Gap, Memory, walk

_INDEX_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_CONTENT_DAMAGED = "the CRC-32C does not match the content"


@frozen
class Finding:
    """A batch at `position` of a segment, or what is wrong there; both for a batch whose content is damaged."""

    position: Position
    header: BatchHeader | None = None
    problem: str | None = None
    end: Position = Position(-1)
    """Where the next batch begins, of damage without a header."""


def examine_segment(content: Buffer, base_offset: int, below: int = LONG_MAX) -> Iterator[Finding]:
    """The batches of a segment file one after the other, and the damage between them, with the offsets that it costs.

    Checks header, CRC-32C, size, and that offsets only grow (facts B3). `below`: where the next segment begins.
    """
    whole = Position(0), Position(len(content))
    for item in walk(Memory(content), *whole, expected=Offset(base_offset), below=Offset(below)):
        if isinstance(item, Gap):
            yield Finding(item.position, None, f"{item.reason}; {item.lost}", item.end)
        else:
            position, header = item
            problem = None if crc_valid(content, header, position) else _CONTENT_DAMAGED
            yield Finding(position, header, problem)


def index_entries(content: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) pairs of an offset index file; a trailing part of an entry is left out."""
    whole = len(content) - len(content) % _INDEX_ENTRY.size
    return [
        (base_offset + delta, position) for delta, position in _INDEX_ENTRY.iter_unpack(memoryview(content)[:whole])
    ]


def time_index_entries(content: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp in ms, offset) pairs of a time index file; a trailing part of an entry is left out."""
    whole = len(content) - len(content) % _TIME_ENTRY.size
    return [
        (timestamp, base_offset + delta) for timestamp, delta in _TIME_ENTRY.iter_unpack(memoryview(content)[:whole])
    ]


def examine_index(
    index: Buffer, segment: Buffer, base_offset: int, damaged: Iterable[tuple[int, int]] = ()
) -> str | None:
    """What is wrong with an offset index, or None. Each entry must name a batch that holds its offset.

    `damaged`: from where to where the segment is, so that no entry can be checked there.
    """
    if len(index) % _INDEX_ENTRY.size:
        return f"{len(index)} bytes is no multiple of {_INDEX_ENTRY.size}"
    last_offset, last_position = base_offset - 1, -1
    for offset, position in index_entries(index, base_offset):
        if offset <= last_offset or position <= last_position:
            return f"the entry for offset {offset} at position {position} does not come after the one before"
        if not 0 <= position <= len(segment) - HEADER_SIZE:
            return f"the entry for offset {offset} points to position {position}, outside the segment"
        last_offset, last_position = offset, position
        if any(start <= position < end for start, end in damaged):
            continue
        try:
            header = parse_header(segment, position)
        except ApiError:
            return f"the entry for offset {offset} points to position {position}, where no batch begins"
        if not header.base_offset <= offset <= header.last_offset:
            return f"the entry for offset {offset} points to the batch {header.base_offset}..{header.last_offset}"
    return None


def examine_time_index(index: Buffer, base_offset: int, next_offset: int) -> str | None:
    """What is wrong with a time index, or None. Times and offsets grow and stay within the segment."""
    if len(index) % _TIME_ENTRY.size:
        return f"{len(index)} bytes is no multiple of {_TIME_ENTRY.size}"
    last_time, last_offset = -2, base_offset - 1
    for timestamp, offset in time_index_entries(index, base_offset):
        if timestamp < last_time or offset < last_offset:
            return f"the entry for time {timestamp} (offset {offset}) does not come after the one before"
        if not base_offset <= offset < max(next_offset, base_offset + 1):
            return f"the entry for time {timestamp} names offset {offset}, outside the segment"
        last_time, last_offset = timestamp, offset
    return None
