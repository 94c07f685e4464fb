"""The budget for record checks that no topic asks for: docs/design/log.md, 'Validation budget'."""

from ..message.batch_header import CODEC_MASK, BatchHeader
from ..message.record_validation import PIECE

UNIFORM_MIN = 64
"""The number of records from which on it is worth trying whether a batch is uniform."""
_LEFT_MAX = 2_000
"""About 1.2 ms."""
_UNIFORM_SHIFT = 2
"""A record of a uniform batch is charged a quarter of a unit, four times what it takes: large batches often are, and
their checks stay near 1 % of the cost of an append."""


class CheckBudget:
    """The budget of one sender.

    The unit is a record that is checked, about 0.6 us. A sender begins with some; an append earns what 3 % of its own
    cost pays for. As long as anything is left, all records of a batch are checked: the first batches always are.
    """

    __slots__ = ("left",)

    def __init__(self, left: float = _LEFT_MAX) -> None:
        self.left = left

    def is_due(self, header: BatchHeader) -> bool:
        """Return True if all records of this batch must be checked."""
        size = header.batch_length
        left = self.left + 1 + (size >> 15)
        if left <= 0:
            self.left = left
            return False
        self.left = min(left, _LEFT_MAX) - _cost(header)
        return True

    def refund(self, header: BatchHeader) -> None:
        """Return what a batch that `is_due` cost less than expected, since its records were found uniform."""
        self.left += _cost(header) - 32 - (header.count >> _UNIFORM_SHIFT)


def _cost(header: BatchHeader) -> int:
    """Return the cost of checking all records of a batch."""
    # Decompression costs as much as the check of a record for each 64 bytes; one that takes turns costs twice.
    cost = 32 + header.count + (header.batch_length >> 6 if header.attributes & CODEC_MASK else 0)
    return 2 * cost if header.count > PIECE else cost


class AlwaysChecked(CheckBudget):
    """Checks every batch: for batches that are validated in steps anyway."""

    __slots__ = ()

    def is_due(self, header: BatchHeader) -> bool:  # noqa: ARG002
        return True

    def refund(self, header: BatchHeader) -> None:
        """Return nothing: these checks have no limit."""
