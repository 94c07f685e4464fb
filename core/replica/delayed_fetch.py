"""Reads that wait until there is enough."""

from collections.abc import Callable, Hashable

from ...ports.errors import ApiError
from ...ports.storage import StorageError
from .isolation import FetchIsolation
from .partition import Partition
from .purgatory import Delayed


class AwaitedPartition:
    """One partition of a delayed fetch, and the bytes counted for it so far."""

    __slots__ = ("current_leader_epoch", "isolation", "max_bytes", "offset", "partition", "ready")

    def __init__(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.isolation = isolation
        self.ready = 0

    def ready_bytes(self) -> int:
        """How much a read could give now. Raises as `Partition.read` does."""
        return self.partition.ready_bytes(self.offset, self.max_bytes, self.isolation)

    def rolled_past(self) -> bool:
        """True if waiting adds nothing to what a read gives."""
        return self.partition.rolled_past(self.offset, self.isolation)


class DelayedFetch(Delayed):
    """A fetch that waits for `min_bytes` in all its partitions together.

    It ends early when a partition gets an answer that waiting does not improve: leadership or epoch lost, the offset
    out of range, or the log rolled on to another segment.
    """

    __slots__ = ("_awaited", "_missing")

    def __init__(
        self,
        awaited: dict[Hashable, AwaitedPartition],
        min_bytes: int,
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self._awaited = awaited
        self._missing = min_bytes - sum(entry.ready for entry in awaited.values())

    def check(self, key: Hashable) -> bool:
        entry = self._awaited.get(key)
        if entry is None:
            return False
        try:
            entry.partition.check_leader(entry.current_leader_epoch)
            ready = entry.ready_bytes()
        except (ApiError, StorageError):
            return True
        self._missing -= ready - entry.ready
        entry.ready = ready
        return self._missing <= 0 or (ready > 0 and entry.rolled_past())
