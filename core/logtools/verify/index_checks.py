"""Checks of the indexes of a segment against its batches (facts B3)."""

from abc import ABC, abstractmethod
from struct import Struct

from ....ports.types import Buffer
from ...message.batch_header import BatchHeader

_NO_TIMESTAMP = -1
_SPARSE_BYTES = 4096 + 2 * 1_048_588
"""Maximum distance of two entries, with the defaults of Kafka."""


class _IndexCheck(ABC):
    _entry: Struct

    def __init__(self, content: Buffer, base_offset: int) -> None:
        self.problem: str | None = None
        self._content = content
        self._base = base_offset
        self._count = len(content) // self._entry.size
        self._next = 0
        if len(content) % self._entry.size:
            self.problem = f"{len(content)} bytes are no multiple of {self._entry.size}"
        elif not self._in_order():
            self._next = self._count

    def _in_order(self) -> bool:
        before: tuple[int, int] | None = None
        for number, entry in enumerate(self._entry.iter_unpack(self._content)):
            one: tuple[int, int] = (entry[0], entry[1])
            if before is not None and not self._follows(one, before):
                self.problem = f"entry {number}, {one}, is not above the previous one, {before}"
                return False
            before = one
        return True

    @abstractmethod
    def _follows(self, one: tuple[int, int], before: tuple[int, int]) -> bool: ...

    def _at(self, number: int) -> tuple[int, int]:
        one, other = self._entry.unpack_from(self._content, number * self._entry.size)
        return one, other


class OffsetIndexCheck(_IndexCheck):
    """Checks an offset index. `problem` is the first one; call `end` last."""

    _entry = Struct(">ii")

    def __init__(self, content: Buffer, base_offset: int) -> None:
        super().__init__(content, base_offset)
        self._widest = self._last = 0

    def _follows(self, one: tuple[int, int], before: tuple[int, int]) -> bool:
        return one[0] > before[0] and one[1] > before[1]

    def batch(self, position: int, header: BatchHeader) -> None:
        while self._next < self._count and self.problem is None:
            delta, place = self._at(self._next)
            if place > position:
                return
            offset = self._base + delta
            if place < position:
                self.problem = f"the entry for offset {offset} points to position {place}, where no batch begins"
            elif not header.base_offset <= offset <= header.last_offset:
                self.problem = f"the entry for offset {offset} points to the batch at {header.base_offset}"
                self.problem += str(header.last_offset)
            self._took(place)

    def _took(self, place: int) -> None:
        self._widest, self._last = max(self._widest, place - self._last), place
        self._next += 1

    def cut(self, position: int, end: int) -> None:
        """Exclude the entries for these bytes; call it before the next batch."""
        while self._next < self._count and self._at(self._next)[1] < end:
            if self._at(self._next)[1] < position:
                break
            self._took(self._at(self._next)[1])

    def end(self, size: int) -> str | None:
        """Check the end of the index; `size` is that of the segment."""
        if self.problem is None and self._next < self._count:
            delta, place = self._at(self._next)
            self.problem = f"the entry for offset {self._base + delta} points to position {place}, outside the segment"
        if self.problem is None and size - self._last > max(_SPARSE_BYTES, 2 * self._widest):
            self.problem = f"entries are missing: the last one points to position {self._last} of {size}"
        return self.problem


class TimeIndexCheck(_IndexCheck):
    """Checks a time index. `problem` is the first one; call `end` last."""

    _entry = Struct(">qi")

    def __init__(self, content: Buffer, base_offset: int) -> None:
        super().__init__(content, base_offset)
        self._largest = _NO_TIMESTAMP

    def _follows(self, one: tuple[int, int], before: tuple[int, int]) -> bool:
        return one[0] >= before[0] and one[1] >= before[1]

    def batch(self, _position: int, header: BatchHeader) -> None:
        self._largest = max(self._largest, header.max_timestamp)
        while self._next < self._count and self.problem is None:
            timestamp, delta = self._at(self._next)
            offset = self._base + delta
            if offset > header.last_offset:
                return
            self._next += 1
            if offset < header.base_offset:
                self.problem = f"the entry for time {timestamp} has offset {offset}, which is in no batch"
            elif timestamp != header.max_timestamp:
                self.problem = f"the entry for time {timestamp} has offset {offset}, whose batch has "
                self.problem += f"{header.max_timestamp}"

    def pass_over(self, first_offset: int, next_offset: int) -> None:
        """Exclude the entries for these offsets; call it before the next batch."""
        while self._next < self._count and first_offset <= self._base + self._at(self._next)[1] < next_offset:
            self._next += 1

    def end(self) -> str | None:
        if self.problem is not None:
            return self.problem
        if self._next < self._count:
            timestamp, delta = self._at(self._next)
            return f"the entry for time {timestamp} has offset {self._base + delta}, outside the segment"
        last = self._at(self._count - 1)[0] if self._count else _NO_TIMESTAMP
        if last < self._largest:
            return f"it ends with time {last}, but a batch has {self._largest}"
        return None
