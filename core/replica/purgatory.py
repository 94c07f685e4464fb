"""Operations that wait for an event or for their time, whichever comes first (facts D8).

An event is told by its key (a partition); only the operations watched under that key are looked at, and each keeps what
it has already counted, so that an event costs the same however many partitions an operation waits for.
"""

from collections.abc import Callable, Hashable, Iterable

from ...ports.scheduler import Scheduler, Timer


class DelayedOperation:
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
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._waiting

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: float) -> None:
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

    def _is_done(self, operation: DelayedOperation, key: Hashable) -> bool:
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

    def _end(self, operation: DelayedOperation) -> None:
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
