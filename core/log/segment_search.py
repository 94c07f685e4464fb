"""Finding a batch where the index and the batches contradict each other: a hole, damage, or a wrong index."""

from typing import Protocol

from ...ports.storage import File
from ...ports.words import Offset, Position
from ..message.batch_header import HEADER_SIZE
from .damage import Gap, OffsetsDamaged, walk
from .sparse_index import IndexDamaged, SparseIndex

_BEGINNING = Position(0)


class Searched(Protocol):
    """What the search needs of a `Segment`."""

    index: SparseIndex
    base_offset: Offset
    next_offset: Offset
    size: Position

    @property
    def file(self) -> File: ...

    @property
    def path(self) -> str: ...

    def note_gap(self, gap: Gap) -> None: ...


def search(segment: Searched, offset: Offset, *, by_index: bool = True) -> tuple[Position, int] | None:
    """(position, size) of the first batch that ends above `offset`; None when all end below. Notes damage on the way.

    Begins one index entry earlier than a lookup does: so the batch that the entry names is seen from before, and an
    entry that no way leads to is wrong. Raises `OffsetsDamaged`, `IndexDamaged`, `StorageError`.
    """
    start, meeting = _one_entry_earlier(segment, offset) if by_index else (_BEGINNING, -1)
    met = meeting < 0
    expected = None if start else segment.base_offset
    for item in walk(segment.file, start, segment.size, expected=expected, below=segment.next_offset):
        if isinstance(item, Gap):
            position, end = item.position, item.end
            if position == start > 0:
                raise IndexDamaged(f"no batch begins at position {start}")
        else:
            position, end = item[0], Position(item[0] + 1)
        met = met or position <= meeting < end
        if not met and position > meeting:
            raise IndexDamaged(f"it points to position {meeting}, where no batch begins")
        if isinstance(item, Gap):
            segment.note_gap(item)
            if offset < item.next_offset:
                raise OffsetsDamaged(segment.path, item)
        elif item[1].next_offset > offset:
            if not met:
                raise IndexDamaged(f"it points to position {meeting}, behind the batch for {offset}")
            return position, item[1].size
    return None


def _one_entry_earlier(segment: Searched, offset: Offset) -> tuple[Position, int]:
    """Where to begin, and the place that the index gives, which is to be met on the way; -1: it gives none."""
    entry = segment.index.find(0, offset - segment.base_offset)
    if entry is None:
        return _BEGINNING, -1
    earlier = segment.index.before(0, offset - segment.base_offset, 1) or (0, 0)
    if not 0 <= earlier[1] <= entry[1] <= segment.size - HEADER_SIZE:
        raise IndexDamaged(f"it points to position {entry[1]} of {segment.size}")
    return Position(earlier[1]), entry[1]
