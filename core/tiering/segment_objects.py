"""The second object of a remote segment: its indexes, the producers at its end, and the leader epochs up to there.

Each part has a byte with its kind and four with its size before it. Kafka stores five files; one object needs fewer
requests.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct
from typing import TypeVar

from ...ports.types import Buffer
from ..log.checkpoints import parse_epochs
from ..log.segment.offset_index import OFFSET_ENTRY, TIME_ENTRY
from ..log.segment.transaction_index import ENTRY, VERSION, AbortedTxn
from .manifest import Epochs

_MAGIC = b"BRI1"
_PART = Struct(">BI")
T = TypeVar("T")


class IndexType(IntEnum):
    """Kafka's IndexType."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4


def encode_parts(parts: Mapping[IndexType, Buffer]) -> bytes:
    found = [_MAGIC]
    for part, content in parts.items():
        found += [_PART.pack(part, len(content)), bytes(content)]
    return b"".join(found)


class SegmentIndexes:
    """The parts of one remote segment. Not frozen in form, but it never changes."""

    __slots__ = ("_aborted", "_base_offset", "_offsets", "_times", "epochs", "size", "snapshot")

    def __init__(self, content: bytes, base_offset: int) -> None:
        """Raises `ValueError` if the content is not of `encode_parts`."""
        parts = _decoded(content)
        self.size = len(content)
        self._base_offset = base_offset
        self._offsets = parts.get(IndexType.OFFSET, b"")
        self._times = parts.get(IndexType.TIMESTAMP, b"")
        self.snapshot = parts.get(IndexType.PRODUCER_SNAPSHOT)
        """The producers at the end of the segment, as a `.snapshot` file; None: unknown."""
        self.epochs: Epochs = (
            tuple(parse_epochs(parts[IndexType.LEADER_EPOCH])) if IndexType.LEADER_EPOCH in parts else ()
        )
        rows = parts.get(IndexType.TRANSACTION, b"")
        whole = rows[: len(rows) - len(rows) % ENTRY.size]
        self._aborted = [AbortedTxn(*row) for version, *row in ENTRY.iter_unpack(whole) if version == VERSION]

    def position_of(self, offset: int) -> int:
        """Return the position of a batch at or before the one with this offset."""
        size, unpack, content = OFFSET_ENTRY.size, OFFSET_ENTRY.unpack_from, self._offsets
        target = offset - self._base_offset
        count = _count_up_to(len(content) // size, lambda number: unpack(content, number * size)[0], target)
        # An entry has the last offset of its batch: one below the target comes before it.
        return max(0, unpack(content, (count - 1) * size)[1]) if count else 0

    def position_before_time(self, timestamp: int) -> int:
        """Return the position of a batch at or before the first one with a timestamp of at least `timestamp`."""
        size, unpack, content = TIME_ENTRY.size, TIME_ENTRY.unpack_from, self._times
        count = _count_up_to(len(content) // size, lambda number: unpack(content, number * size)[0], timestamp - 1)
        return self.position_of(self._base_offset + unpack(content, (count - 1) * size)[1]) if count else 0

    def aborted(self, from_offset: int, upto: int) -> tuple[list[AbortedTxn], bool]:
        """Return (aborted transactions with records in [from_offset, upto), True if no later segment has any)."""
        found: list[AbortedTxn] = []
        for each in self._aborted:
            if each.last_offset < from_offset:
                continue
            if each.first_offset < upto:
                found.append(each)
            if each.last_stable_offset >= upto:
                return found, True
        return found, False


def _decoded(content: bytes) -> dict[IndexType, bytes]:
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not the indexes of a segment")
    parts: dict[IndexType, bytes] = {}
    position = len(_MAGIC)
    while position < len(content):
        if position + _PART.size > len(content):
            raise ValueError("the indexes of a segment are cut")
        kind, size = _PART.unpack_from(content, position)
        position += _PART.size
        if position + size > len(content):
            raise ValueError("the indexes of a segment are cut")
        if kind in _KINDS:
            parts[IndexType(kind)] = content[position : position + size]
        position += size
    return parts


_KINDS = frozenset(IndexType)


def _count_up_to(count: int, value: Callable[[int], int], target: int) -> int:
    return bisect_right(range(count), target, key=value)
