"""Where the newest batches of a segment lie exactly: readers at its end need neither index nor disk."""

from array import array
from bisect import bisect_right

from ...ports.words import Offset, Position
from ..message.batch_header import LONG_MAX

_MIN, _MAX = 384, 512
"""So many are remembered; beyond, the oldest are forgotten together."""


class RecentBatches:
    """Owner thread only."""

    __slots__ = ("_ends", "_positions", "floor")

    def __init__(self) -> None:
        self.floor = LONG_MAX
        """From this offset on `locate` can tell; LONG_MAX when nothing is remembered."""
        self._ends = array("q")
        self._positions = array("q")

    def add(self, base_offset: Offset, next_offset: Offset, position: Position) -> None:
        """A batch has come to the end of the segment."""
        ends = self._ends
        if len(ends) >= _MAX:
            cut = _MAX - _MIN
            self.floor = ends[cut - 1]
            del ends[:cut], self._positions[:cut]
        elif not ends:
            self.floor = base_offset
        ends.append(next_offset)
        self._positions.append(position)

    def locate(self, offset: Offset, size: int) -> tuple[Position, int] | None:
        """(position, size) of the first batch that ends above `offset`; None when all end below. `size`: of the
        segment."""
        index = bisect_right(self._ends, offset)
        positions = self._positions
        if index == len(positions):
            return None
        position = Position(positions[index])
        return position, (positions[index + 1] if index + 1 < len(positions) else size) - position
