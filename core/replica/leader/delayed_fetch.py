"""Fetches that wait until there are enough bytes."""

from collections.abc import Callable, Hashable

from ....ports.broker_api.fetch import FetchPartition
from ....ports.errors import ApiError
from ....ports.storage import StorageError
from ..partition.partition import Partition
from ..purgatory import DelayedOperation
from .fetch_params import FetchParams


class FetchPartitionStatus:
    """One partition of a delayed fetch, and the bytes counted for it so far."""

    __slots__ = ("_check", "entry", "partition", "reading", "ready")

    def __init__(
        self,
        partition: Partition,
        entry: FetchPartition,
        reading: FetchParams,
        check: Callable[[Partition, FetchPartition], None],
    ) -> None:
        self.partition = partition
        self.entry = entry
        self.reading = reading
        self._check = check
        self.ready = 0

    def ready_bytes(self) -> int:
        """Return the number of bytes that a read could return now. Raises as `Partition.read` does."""
        if self.reading.held_back(self.partition):
            return 0
        return self.partition.ready_bytes(self.entry.offset, self.entry.max_bytes, self.reading.isolation)

    def rolled_past(self) -> bool:
        """Return True if waiting adds nothing to the result of a read."""
        return self.partition.rolled_past(self.entry.offset, self.reading.isolation)

    def look_again(self) -> int:
        """Return `ready_bytes` after a check. Raises `ApiError` when the reader may no longer read here."""
        self._check(self.partition, self.entry)
        return self.ready_bytes()


class DelayedFetch(DelayedOperation):
    """A fetch that waits for `min_bytes` in all its partitions together.

    It ends early when a partition gets an answer that waiting does not improve: leadership or epoch lost, the offset
    out of range, the log rolled on to another segment, or a high watermark that a follower has to know.
    """

    __slots__ = ("_awaited", "_missing")

    def __init__(
        self,
        awaited: dict[Hashable, FetchPartitionStatus],
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
            ready = entry.look_again()
            if entry.reading.needs_news(entry.partition):
                return True
        except (ApiError, StorageError):
            return True
        self._missing -= ready - entry.ready
        entry.ready = ready
        return self._missing <= 0 or (ready > 0 and entry.rolled_past())
