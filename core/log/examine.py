"""Looking at the files of a log without opening it as one: what `barnabas log dump` tells."""

from collections.abc import Iterator
from struct import Struct

from ...ports.values import frozen
from ...ports.words import Buffer, Offset, Position
from ..message.batch_header import BatchHeader, crc_valid
from .config import LONG_MAX
from .damage import Gap, Memory, walk

_INDEX_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_CONTENT_DAMAGED = "the CRC-32C does not match the content"


@frozen
class BatchFinding:
    """A batch at `position` of a segment, or what is wrong there; both for a batch whose content is damaged."""

    position: Position
    header: BatchHeader | None = None
    problem: str | None = None
    end: Position = Position(-1)
    """Where the next batch begins, of damage without a header."""


def examine_segment(content: Buffer, base_offset: int, below: int = LONG_MAX) -> Iterator[BatchFinding]:
    """The batches of a segment file one after the other, and the damage between them, with the offsets that it costs.

    Checks header, CRC-32C, size, and that offsets only grow (facts B3). `below`: where the next segment begins.
    """
    whole = Position(0), Position(len(content))
    for item in walk(Memory(content), *whole, expected=Offset(base_offset), below=Offset(below)):
        if isinstance(item, Gap):
            yield BatchFinding(item.position, None, f"{item.reason}; {item.lost}", item.end)
        else:
            position, header = item
            problem = None if crc_valid(content, header, position) else _CONTENT_DAMAGED
            yield BatchFinding(position, header, problem)


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
