"""One pass over a segment of batches: which are intact, which can be restored, and which must be cut out.

Base offset, length, leader epoch and magic of a batch are not covered by its CRC (facts B1). If the content is intact
and the neighbours leave only one possibility, these are restored, and nothing is lost.
"""

from collections.abc import Callable, Iterator

from ....ports.storage import File
from ....ports.types import Offset, Position
from ....ports.values import frozen
from ...log.batch_scan import SCAN_CHUNK_BYTES, BatchIterator, crc_matches
from ...log.config import LONG_MAX
from ...log.segment.damage import Gap, walk
from ...log.segment.segment import INT_MAX
from ...message.batch_header import CRC_COVERS_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader

_OUTSIDE_CRC = 17


@frozen
class Excision:
    """Bytes [position, end) without a batch of this log."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    """Exclusive; -1 if the end of the loss is unknown."""
    messages: int | None
    reason: str


@frozen
class Patch:
    """The correct bytes at `position`."""

    position: int
    content: bytes
    first_offset: int
    next_offset: int
    reason: str


class SegmentScan:
    """Iterate `batches` once; the other attributes are valid afterwards."""

    def __init__(
        self,
        file: File,
        size: int,
        base_offset: Offset,
        next_base: int | None,
        likely_end: int,
        belongs: Callable[[int, int], bool] = lambda _offset, _crc: False,
    ) -> None:
        """`next_base`: base offset of the next segment; `likely_end`: see `walk`. `belongs` returns whether a batch
        with this offset and CRC is missing in another segment, or is there too."""
        self.file, self.size, self.base_offset = file, size, base_offset
        self.end = base_offset
        """The offset after the last batch."""
        self.batch_count = self.message_count = 0
        self.has_holes = False
        """True if offsets are missing between intact batches, as after a compaction."""
        self.cuts: list[Excision] = []
        self.patches: list[Patch] = []
        self._next_base = next_base
        self._below = Offset(min(base_offset + INT_MAX + 1, LONG_MAX if next_base is None else next_base))
        self._likely_end = likely_end
        self._belongs = belongs

    def batches(self) -> BatchIterator:
        """Yield the good batches, restored ones included. Raises `StorageError`."""
        items = walk(
            self.file,
            Position(0),
            Position(self.size),
            expected=self.base_offset,
            below=self._below,
            check_crc=True,
            likely_end=self._likely_end,
        )
        after_damage = False
        for item in items:
            if isinstance(item, Gap):
                for place in self._restored(item):
                    self._count(place[1])
                    yield place
                self.end = max(self.end, item.next_offset if item.intact_behind else self.end)
                after_damage = True
            else:
                self.has_holes = self.has_holes or (item[1].base_offset > self.end and not after_damage)
                after_damage = False
                self._count(item[1])
                yield item

    def _count(self, header: BatchHeader) -> None:
        self.end = header.next_offset
        self.batch_count += 1
        self.message_count += header.count

    def _restored(self, gap: Gap) -> Iterator[tuple[Position, BatchHeader]]:
        position, expected = gap.position, gap.first_offset
        following: int = gap.next_offset
        if not gap.intact_behind:
            following = self._likely_end if self._next_base is None else self._next_base
        while position < gap.end:
            header = self._restore(position, gap.end, expected, following)
            if header is None:
                break
            outside = HEADER.pack(*header)[:_OUTSIDE_CRC]
            if self.file.read(position, _OUTSIDE_CRC) != outside:
                self.patches.append(Patch(position, outside, header.base_offset, header.next_offset, gap.reason))
            yield position, header
            position, expected = Position(position + header.size), header.next_offset
        if position < gap.end:
            self.cuts.append(self._cut(gap, position, expected))

    def _restore(self, position: Position, end: int, expected: Offset, following: int) -> BatchHeader | None:
        """Return the batch with its only possible base offset, length and magic; None if that is uncertain."""
        head = self.file.read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE or position + HEADER_SIZE > end:
            return None
        found = BatchHeader._make(HEADER.unpack(head))
        sizes = dict.fromkeys(size for size in (found.size, end - position) if HEADER_SIZE <= size <= end - position)
        whole = (found._replace(batch_length=size - LENGTH_OVERHEAD, magic=MAGIC) for size in sizes)
        header = next((one for one in whole if crc_matches(self.file, position, one)), None)
        if header is None or header.last_offset_delta < 0 or header.count < 0:
            return None
        claimed, last = header.base_offset, header.last_offset_delta
        if expected + last + 1 == following or (following < 0 and (claimed ^ expected).bit_count() == 1):
            base = expected
        elif expected <= claimed:
            base = claimed
        else:
            return None
        if base + last >= self._below or (following >= 0 and base + last >= following):
            return None
        if base != claimed and (self._stands_at(claimed, header.crc) or self._belongs(claimed, header.crc)):
            return None
        return header._replace(base_offset=Offset(base))

    def _stands_at(self, offset: int, crc: int) -> bool:
        """Return True if the segment has this batch at its offset: the found one is a copy."""
        for item in walk(self.file, Position(0), Position(self.size), expected=self.base_offset, below=self._below):
            if not isinstance(item, Gap) and item[1].base_offset == offset:
                return item[1].crc == crc
        return False

    def _cut(self, gap: Gap, position: int, expected: int) -> Excision:
        if gap.intact_behind:
            lost = max(0, gap.next_offset - expected)
            return Excision(position, gap.end, expected, max(expected, gap.next_offset), lost, gap.reason)
        if self._next_base is not None:
            lost = max(0, self._next_base - expected)
            return Excision(position, gap.end, expected, expected + lost, lost, gap.reason)
        next_offset, messages = self._claimed(position, gap.end, expected)
        if next_offset < 0 and self._likely_end > expected:
            next_offset, messages = self._likely_end, self._likely_end - expected
        return Excision(position, gap.end, expected, next_offset, messages, gap.reason)

    def _claimed(self, position: int, end: int, expected: int) -> tuple[int, int | None]:
        """Return (next offset, messages) by the headers of damaged batches, as far as they follow each other."""
        first, messages = expected, 0
        while position + HEADER_SIZE <= end:
            header = BatchHeader._make(HEADER.unpack(self.file.read(position, HEADER_SIZE)))
            plausible = header.magic == MAGIC and header.batch_length >= CRC_COVERS_FROM
            if not plausible or header.base_offset != expected or not 0 < header.count <= header.last_offset_delta + 1:
                break
            expected, messages, position = header.next_offset, messages + header.count, position + header.size
        if expected == first and not self._has_content(position, end):
            return first, 0
        return (expected, messages) if expected > first else (-1, None)

    def _has_content(self, position: int, end: int) -> bool:
        """Return False if there are only zeros."""
        pieces = range(position, end, SCAN_CHUNK_BYTES)
        return any(self.file.read(at, min(SCAN_CHUNK_BYTES, end - at)).strip(b"\0") for at in pieces)
