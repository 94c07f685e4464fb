"""Operations that wait for an event or for their time, whichever comes first (facts D8).

An event is told by its key (a partition); only the operations watched under that key are looked at, and each keeps what
it has already counted, so that an event costs the same however many partitions an operation waits for.
"""

from collections.abc import Callable, Hashable, Iterable

from ...ports.errors import ApiError
from ...ports.scheduler import Scheduler, Timer
from ...ports.storage import StorageError
from .partition import Partition


class Delayed:
    """One operation. `finish` is called once: when `check` says so, when its time is up, or when it is given up.

    `failed` is called when `finish` has raised: whoever asked waits for an answer all the same.
    """

    __slots__ = ("_failed", "_finish", "_keys", "_timer", "finished")

    def __init__(self, finish: Callable[[], None], failed: Callable[[], None]) -> None:
        self._finish = finish
        self._failed = failed
        self._keys: tuple[Hashable, ...] = ()
        self._timer: Timer | None = None
        self.finished = False

    def check(self, key: Hashable) -> bool:
        """Something happened under `key`: True if the operation need not wait any longer."""
        raise NotImplementedError


class Purgatory:
    """The operations that wait. Owner thread only.

    `report` is told of an operation that raised: an event is another client's request, which must not suffer.
    """

    def __init__(self, scheduler: Scheduler, report: Callable[[BaseException], None]) -> None:
        self._scheduler = scheduler
        self._report = report
        self._watched: dict[Hashable, dict[Delayed, None]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._waiting

    def watch(self, operation: Delayed, keys: Iterable[Hashable], timeout_ms: float) -> None:
        """Let `operation` wait, at most `timeout_ms`. The caller has found that it cannot finish yet."""
        operation._keys = tuple(keys)
        for key in operation._keys:
            self._watched.setdefault(key, {})[operation] = None
        self._waiting += 1
        operation._timer = self._scheduler.call_later(timeout_ms, lambda: self._end(operation))

    def check(self, key: Hashable) -> None:
        """Something happened under `key`."""
        watched = self._watched.get(key)
        if watched:
            for operation in tuple(watched):
                if not operation.finished and self._is_done(operation, key):
                    self._end(operation)

    def _is_done(self, operation: Delayed, key: Hashable) -> bool:
        try:
            return operation.check(key)
        except Exception as error:  # noqa: BLE001  reported; the event belongs to somebody else
            self._report(error)
            return True

    def finish_all(self, key: Hashable) -> None:
        """Finish whatever waits under `key`: the partition is gone, or the one who asked."""
        for operation in tuple(self._watched.get(key, ())):
            self._end(operation)

    def close(self) -> None:
        """Finish everything that waits."""
        for key in tuple(self._watched):
            self.finish_all(key)

    def _end(self, operation: Delayed) -> None:
        if operation.finished:
            return
        operation.finished = True
        self._waiting -= 1
        if operation._timer is not None:
            operation._timer.cancel()
        for key in operation._keys:
            watched = self._watched.get(key)
            if watched is not None:
                watched.pop(operation, None)
                if not watched:
                    del self._watched[key]
        try:
            operation._finish()
        except Exception as error:  # noqa: BLE001  reported; the event belongs to somebody else
            self._report(error)
            operation._failed()


class DelayedProduce(Delayed):
    """An append that is answered when the in-sync replicas have it, and the disk where that was asked for.

    `pending` maps partitions to what they must reach; what is left in it when the operation finishes has timed out.
    """

    __slots__ = ("pending",)

    def __init__(
        self, pending: dict[Hashable, "Required"], finish: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        super().__init__(finish, failed)
        self.pending = pending

    def check(self, key: Hashable) -> bool:
        required = self.pending.get(key)
        if required is not None and required.reached():
            del self.pending[key]
        return not self.pending


class Required:
    """What one partition must reach: a high watermark, and a recovery point (0: none)."""

    __slots__ = ("high_watermark", "leader_epoch", "partition", "recovery_point")

    def __init__(self, partition: Partition, high_watermark: int, recovery_point: int = 0) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.high_watermark = high_watermark
        self.recovery_point = recovery_point

    def reached(self) -> bool:
        """True also when the leadership or the disk is lost: then there is nothing to wait for."""
        partition = self.partition
        return (
            self.lost()
            or self.failed()
            or (partition.high_watermark >= self.high_watermark and partition.log.recovery_point >= self.recovery_point)
        )

    def failed(self) -> bool:
        """True if it was to become durable, and cannot."""
        log = self.partition.log
        return log.recovery_point < self.recovery_point and log.failure is not None

    def lost(self) -> bool:
        """True if this broker does not lead the partition in the epoch of the append any more."""
        return not self.partition.is_leader or self.partition.leader_epoch != self.leader_epoch


class AwaitedPartition:
    """One partition of a delayed fetch, and the bytes counted for it so far."""

    __slots__ = ("current_leader_epoch", "max_bytes", "offset", "partition", "ready")

    def __init__(self, partition: Partition, offset: int, max_bytes: int, current_leader_epoch: int) -> None:
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.ready = 0


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
        partition = entry.partition
        try:
            partition.check_leader(entry.current_leader_epoch)
            ready = partition.ready_bytes(entry.offset, entry.max_bytes)
        except (ApiError, StorageError):
            return True
        self._missing -= ready - entry.ready
        entry.ready = ready
        return self._missing <= 0 or (ready > 0 and partition.rolled_past(entry.offset))
