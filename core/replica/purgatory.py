"""The purgatory: operations that wait for an event or for their timeout, whichever comes first (facts D8).

The key of an event is a partition. An event checks only the operations that are watched under its key. Each operation
keeps what it has counted, so that an event costs the same however many partitions an operation waits for.
"""

from collections.abc import Callable, Hashable, Iterable

from ...ports.scheduler import Scheduler, Timer


class DelayedOperation:
    """One delayed operation. `finish` is called once: when `check` returns True, at the timeout, or when it is given
    up.

    `failed` is called when `finish` has raised, so that the client still gets an answer.
    """

    __slots__ = ("_failed", "_finish", "_keys", "_timer", "finished")

    def __init__(self, finish: Callable[[], None], failed: Callable[[], None]) -> None:
        self._finish = finish
        self._failed = failed
        self._keys: tuple[Hashable, ...] = ()
        self._timer: Timer | None = None
        self.finished = False

    def check(self, key: Hashable) -> bool:
        """Return True if the operation need not wait any longer, after an event under `key`."""
        raise NotImplementedError


class Purgatory:
    """The delayed operations. Owner thread only.

    `report` is called with the error of an operation that raised. The error is not raised to the caller of `check`,
    which serves another client's request.
    """

    def __init__(self, scheduler: Scheduler, report: Callable[[BaseException], None]) -> None:
        self._scheduler = scheduler
        self._report = report
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._listeners: dict[Hashable, tuple[Callable[[Hashable], None], ...]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        """Return the number of waiting operations."""
        return self._waiting

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: float) -> None:
        """Let `operation` wait, at most `timeout_ms`. The caller has found that it cannot finish yet."""
        operation._keys = tuple(keys)
        for key in operation._keys:
            self._watched.setdefault(key, {})[operation] = None
        self._waiting += 1
        operation._timer = self._scheduler.call_later(timeout_ms, lambda: self.end(operation))

    def add_listener(self, key: Hashable, listener: Callable[[Hashable], None]) -> None:
        """Call `listener` with each event under `key`, before the operations that wait for it.

        A fetch session waits for many partitions time and again, and would else be watched under each of them each
        time.
        """
        self._listeners[key] = (*self._listeners.get(key, ()), listener)

    def remove_listener(self, key: Hashable, listener: Callable[[Hashable], None]) -> None:
        """Undo `add_listener`; a no-op where the listener is unknown."""
        left = tuple(each for each in self._listeners.get(key, ()) if each != listener)
        if left:
            self._listeners[key] = left
        else:
            self._listeners.pop(key, None)

    def check(self, key: Hashable) -> None:
        """Notify the listeners of `key`, and check the operations that are watched under it, after an event there."""
        for listener in self._listeners.get(key, ()):
            try:
                listener(key)
            except Exception as error:  # noqa: BLE001  reported; the event belongs to another request
                self._report(error)
        watched = self._watched.get(key)
        if watched:
            for operation in tuple(watched):
                if not operation.finished and self._is_done(operation, key):
                    self.end(operation)

    def _is_done(self, operation: DelayedOperation, key: Hashable) -> bool:
        try:
            return operation.check(key)
        except Exception as error:  # noqa: BLE001  reported; the event belongs to another request
            self._report(error)
            return True

    def finish_all(self, key: Hashable) -> None:
        """Finish all operations that wait under `key`: the partition is removed, or the connection is closed."""
        for operation in tuple(self._watched.get(key, ())):
            self.end(operation)

    def close(self) -> None:
        """Finish all operations."""
        for key in tuple(self._watched):
            self.finish_all(key)

    def end(self, operation: DelayedOperation) -> None:
        """Finish an operation now; a no-op if it has finished."""
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
        except Exception as error:  # noqa: BLE001  reported; the event belongs to another request
            self._report(error)
            operation._failed()
