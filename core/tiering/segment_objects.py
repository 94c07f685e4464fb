"""The objects of a remote segment: its batches, which are checked while they are stored; and a second one with its
indexes, the producers at its end, and the leader epochs up to there.

Each part of the second has a byte with its kind and four with its size before it. Kafka stores five files; one object
needs fewer requests.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct
from typing import TypeVar

from ...ports.errors import ApiError
from ...ports.storage import Region
from ...ports.types import Buffer
from ..log.checkpoints import parse_epochs
from ..log.segment.offset_index import OFFSET_ENTRY, TIME_ENTRY
from ..log.segment.transaction_index import ENTRY, VERSION, AbortedTxn
from ..message.batch_header import CRC_COVERS_FROM, HEADER_SIZE, LENGTH_OVERHEAD, parse_header
from ..message.crc32c import crc32c
from .manifest import Epochs, RemoteSegment

_MAGIC = b"BRI1"
_PART = Struct(">BI")
_LENGTH = Struct(">i")
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
        raise ValueError("the object does not have the indexes of a segment")
    parts: dict[IndexType, bytes] = {}
    position = len(_MAGIC)
    while position < len(content):
        if position + _PART.size > len(content):
            raise ValueError("the object with the indexes of the segment is truncated")
        kind, size = _PART.unpack_from(content, position)
        position += _PART.size
        if position + size > len(content):
            raise ValueError("the object with the indexes of the segment is truncated")
        if kind in _KINDS:
            parts[IndexType(kind)] = content[position : position + size]
        position += size
    return parts


_KINDS = frozenset(IndexType)


def _count_up_to(count: int, value: Callable[[int], int], target: int) -> int:
    return bisect_right(range(count), target, key=value)


class DamagedSegment(Exception):
    """A batch at or behind `offset` is not what was written; other replicas may have it intact."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the batch at offset {offset} is damaged")
        self.offset = offset


class CheckedBatches:
    """The batches of a closed segment, a `Region` that is checked while a store reads it: its local copies will be
    deleted.

    CRC, offsets and leader epoch of each batch must be right; the CRC does not cover the last two. What was not read
    from the beginning to the end, as where the system copies the file, `finish` reads. Nothing is read behind
    damage.
    """

    def __init__(self, batches: Region, remote: RemoteSegment) -> None:
        self._batches, self._remote = batches, remote
        self.size, self.position = remote.size, batches.position
        self.fileno = batches.fileno
        self._turn = [None]
        """Taken by the thread that checks. A store may read with several; `finish` reads what was not checked then."""
        self._begin()

    def _begin(self) -> None:
        remote = self._remote
        # (leader epoch, end of its offsets); below the first one are offsets of before the log start was raised.
        starts = [start for _, start in remote.epochs]
        bounds = [*starts[1:], remote.next_offset]
        self._spans = iter(zip((-1, *(epoch for epoch, _ in remote.epochs)), (*starts[:1], *bounds), strict=True))
        self._damaged_at = None if remote.epochs else remote.base_offset
        self._expected, self._until = next(self._spans, (-1, remote.next_offset))
        self._offset = remote.base_offset
        self._read_to = 0
        self._rest = bytearray()
        """The beginning of a batch whose end was not read yet."""

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Return bytes of the segment; none behind damage, so that a store does not get the rest."""
        if self._damaged_at is not None and start > 0:
            return b""
        left = self.size - start
        content = self._batches.read(start, left if size is None or size > left else size)
        try:
            self._turn.pop()  # atomic
        except IndexError:
            return content
        try:
            if start == 0:
                self._begin()
            if start == self._read_to and self._damaged_at is None:
                self._check(content)
                self._read_to += len(content)
        except DamagedSegment as error:
            self._damaged_at = error.offset
        finally:
            self._turn.append(None)
        return content

    def finish(self) -> None:
        """Check what was not read. Raises `DamagedSegment`."""
        while self._damaged_at is None and self._read_to < self.size:
            if not self.read(self._read_to, _CHECK_BYTES):
                break
        if self._damaged_at is None and self._read_to == self.size and not self._rest:
            return
        raise DamagedSegment(self._offset if self._damaged_at is None else self._damaged_at)

    def _check(self, content: bytes) -> None:
        """Check what comes next, as far as it has whole batches. Raises `DamagedSegment`."""
        at = 0
        while self._rest and at < len(content):
            wanted = self._length(self._rest) if len(self._rest) >= HEADER_SIZE else HEADER_SIZE
            taken = content[at : at + wanted - len(self._rest)]
            self._rest += taken
            at += len(taken)
            if len(self._rest) >= HEADER_SIZE and len(self._rest) == self._length(self._rest):
                whole, self._rest = memoryview(self._rest), bytearray()
                self._check_batch(whole, 0, len(whole))
        view, end = memoryview(content), len(content)
        while at + HEADER_SIZE <= end and (behind := at + self._length(view, at)) <= end:
            self._check_batch(view, at, behind)
            at = behind
        self._rest += view[at:]

    def _length(self, content: Buffer, at: int = 0) -> int:
        """Return the bytes of the batch whose header is at `at`. Raises `DamagedSegment` for more than there are."""
        length: int = LENGTH_OVERHEAD + _LENGTH.unpack_from(content, at + 8)[0]
        if not HEADER_SIZE <= length <= self.size:
            raise DamagedSegment(self._offset)
        return length

    def _check_batch(self, content: memoryview, at: int, end: int) -> None:
        try:
            header = parse_header(content, at)
        except ApiError:
            raise DamagedSegment(self._offset) from None
        begins, behind = header.base_offset, header.next_offset
        if not self._offset <= begins < behind <= self._remote.next_offset:
            raise DamagedSegment(self._offset)
        while begins >= self._until:
            self._expected, self._until = next(self._spans)
        if header.leader_epoch != self._expected != -1 or crc32c(content[at + CRC_COVERS_FROM : end]) != header.crc:
            raise DamagedSegment(self._offset)
        self._offset = behind


_CHECK_BYTES = 1_048_576
"""Bytes that a check reads at a time; larger reads fault in new pages of memory each time."""
