"""The lock around the queue of an asynchronous classic producer, which its users' threads fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.client.effects import NEVER, Poll

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ....core.classic.producer.queue import RunQueue
    from ....core.classic.producer.run import Run


class RunDispatch:
    """Takes the batches that are due, with the lock held, and hands them on without it."""

    def __init__(
        self,
        queue: RunQueue,
        lock: AbstractContextManager[object],
        dispatch: Callable[[Sequence[Run]], None],
        has_room: Callable[[], bool],
        progress: Callable[[], None],
    ) -> None:
        """`has_room` is False while enough is under way: the code that makes room polls again."""
        self._queue = queue
        self._lock = lock
        self._dispatch = dispatch
        self._has_room = has_room
        self._progress = progress

    def poll(self, now_ms: float) -> Poll:
        while self._has_room():
            with self._lock:
                batch, wake_ms = self._queue.drain(now_ms), self._queue.wake_ms
            if not batch:
                return Poll([], wake_ms)
            self._dispatch(batch)
            self._progress()
        return Poll([], NEVER)
