"""The queue of an asynchronous classic producer without hooks (facts A6: queue.time, queue.size, batch.size)."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ...client.effects import NEVER, Poll
from .run import Run


class RunQueue:
    """Runs between `send` and the requests. With hooks, `core.client.producer.hook_queue` stands in its place.

    A batch goes out when it has `batch_messages`, or `queue_ms` after the last one went.
    """

    def __init__(
        self,
        dispatch: Callable[[Sequence[Run]], None],
        has_room: Callable[[], bool],
        progress: Callable[[], None],
        *,
        batch_messages: int,
        queue_ms: float,
        lock: AbstractContextManager[object],
    ) -> None:
        """`dispatch` and `progress` are called without the lock; `has_room` is False while enough is under way."""
        self._dispatch = dispatch
        self._has_room = has_room
        self._progress = progress
        self._batch_messages = batch_messages
        self._queue_ms = queue_ms
        self._lock = lock
        self._queue: deque[Run] = deque()
        self._last_ms = -NEVER
        self.waiting = 0
        """Messages in the queue."""
        self.hurry = 0
        """While > 0 a batch need not fill up."""

    def put(self, run: Run) -> bool:
        """Queue a run; True when the owner should be woken. With the lock held."""
        before = self.waiting
        self.waiting = before + run.count
        self._queue.append(run)
        return not before or self.waiting // self._batch_messages != before // self._batch_messages

    def poll(self, now_ms: float) -> Poll:
        if self._last_ms == -NEVER:
            self._last_ms = now_ms
        while self._has_room():
            with self._lock:
                late = self.hurry or now_ms >= self._last_ms + self._queue_ms
                if not self.waiting or not (late or self.waiting >= self._batch_messages):
                    break
                batch = self._take_batch()
            self._last_ms = now_ms
            self._dispatch(batch)
            self._progress()
        else:
            return Poll([], NEVER)  # whoever makes room comes back here
        return Poll([], self._last_ms + self._queue_ms if self.waiting else NEVER)

    def _take_batch(self) -> list[Run]:
        batch, count = [], 0
        while self._queue and (not count or count + self._queue[0].count <= self._batch_messages):
            run = self._queue.popleft()
            batch.append(run)
            count += run.count
        self.waiting -= count
        return batch
