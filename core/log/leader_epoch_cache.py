"""Leader epochs with their start offsets (KIP-101; Kafka: LeaderEpochFileCache)."""

from bisect import bisect_right
from collections.abc import Iterable

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochCache:
    """(epoch, start offset) pairs, both ascending. It has no files; `changed` is set for the owner to store it."""

    __slots__ = ("_epochs", "_starts", "changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.assign(epoch, start)
        self.changed = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """Return the newest epoch, -1 without one."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Assign `epoch` from `start_offset` on and drop conflicting entries. Negative epochs are ignored."""
        if epoch < 0 or (self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changed = True

    def found(self, epoch: int, offset: int) -> None:
        """Add the epoch of a stored batch at `offset`, and drop conflicting entries."""
        if epoch < 0 or self.epoch_at(offset) == epoch:
            return
        while self._epochs and (self._epochs[-1] > epoch or self._starts[-1] >= offset):
            self._epochs.pop()
            self._starts.pop()
        self.changed = True
        self.assign(epoch, offset)

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Have these entries instead of the present ones."""
        self.clear()
        for epoch, start in entries:
            self.assign(epoch, start)

    def clear(self) -> None:
        """Remove all entries."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self.changed = True

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of `offset`, -1 when unknown."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest epoch up to `epoch`, its end offset) for OffsetForLeaderEpoch; -1 = unknown."""
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        end = self._starts[above]
        return (self._epochs[above - 1] if above else epoch), end

    def truncate_from_end(self, offset: int) -> None:
        """Remove the entries at `offset` and above."""
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
            self.changed = True

    def truncate_from_start(self, offset: int) -> None:
        """Remove the entries below `offset`; the epoch of `offset` then begins there."""
        count = bisect_right(self._starts, offset)
        if count and (count > 1 or self._starts[0] < offset):
            del self._epochs[: count - 1], self._starts[: count - 1]
            self._starts[0] = offset
            self.changed = True
