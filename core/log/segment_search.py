"""Finding a batch by the index; and where that and the batches contradict each other: a hole, damage, a wrong index."""

from typing import Protocol

from ...ports.storage import File
from ...ports.words import Offset, Position
from ..message.batch_header import HEADER_SIZE
from .batch_scan import LOOKUP_CHUNK_BYTES, BadBatch, scan_batches
from .damage import Gap, OffsetsDamaged, walk
from .sparse_index import IndexDamaged, SparseIndex

_BEGINNING = Position(0)
INT_MAX = 2**31 - 1


class Searched(Protocol):
    """What the search needs of a `Segment`."""

    index: SparseIndex
    base_offset: Offset
    next_offset: Offset
    size: Position
    gaps: tuple[Gap, ...]
    sparse: bool

    @property
    def file(self) -> File: ...

    @property
    def path(self) -> str: ...

    def note_gap(self, gap: Gap) -> None: ...


def lookup(segment: Searched, offset: Offset) -> tuple[Position, int] | None:
    """(position, size) of the first batch that ends above `offset`; None when all end below.

    What is found counts if the batch behind it begins where it should: of a sparse segment, not before it ends. Raises
    `IndexDamaged`, and `BadBatch` for any contradiction; `StorageError`.
    """
    base, end, size, sparse = segment.base_offset, segment.next_offset, segment.size, segment.sparse
    entry = segment.index.find(0, offset - base)
    delta, start = (entry[0], Position(entry[1])) if entry is not None else (INT_MAX, _BEGINNING)
    if entry is not None and not 0 <= start <= size - HEADER_SIZE:
        raise IndexDamaged(f"it points to position {start} of {size}")
    passed = segment.gaps and [gap for gap in segment.gaps if start < gap.end and gap.next_offset <= offset]
    begin, expected, found = passed[-1].end if passed else start, -1, None
    for position, header in scan_batches(segment.file, begin, size, chunk_bytes=LOOKUP_CHUNK_BYTES):
        if position == begin:
            if not passed and not base <= header.base_offset <= base + delta:
                raise IndexDamaged(f"its entry for {base + delta} points to a batch at {header.base_offset}")
        elif header.base_offset != expected and not (sparse and header.base_offset > expected):
            raise BadBatch(position, f"base offset {header.base_offset} where {expected} is expected")
        if found is not None:
            return found
        expected = header.base_offset + header.last_offset_delta + 1
        if expected > end:
            raise BadBatch(position, f"offsets up to {header.last_offset}, but the segment ends before")
        if expected > offset:
            found = position, header.size
    return found


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
