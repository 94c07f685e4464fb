"""The queue of an asynchronous classic producer without hooks (facts A6: queue.time, queue.size, batch.size)."""

from collections import deque

from ...client.effects import NEVER
from .run import Run


class RunQueue:
    """Runs between `send` and the requests. With hooks, `core.client.producer.hook_queue` stands in its place.

    A batch goes out when it has `batch_messages`, or `queue_ms` after the last one went.
    """

    def __init__(self, *, batch_messages: int, queue_ms: float) -> None:
        self._batch_messages = batch_messages
        self._queue_ms = queue_ms
        self._queue: deque[Run] = deque()
        self._last_ms: float | None = None
        self.waiting = 0
        """Messages in the queue."""
        self.hurry = 0
        """While this is > 0, a batch need not fill up."""

    def put(self, run: Run) -> bool:
        """Queue a run; True when the owner should be woken."""
        before = self.waiting
        self.waiting = before + run.count
        self._queue.append(run)
        return not before or self.waiting // self._batch_messages != before // self._batch_messages

    def drain(self, now_ms: float) -> list[Run]:
        """Take the batch that is to go out now; empty if none is, then `wake_ms` says when to look again."""
        if self._last_ms is None:
            self._last_ms = now_ms
        late = self.hurry or now_ms >= self._last_ms + self._queue_ms
        if not self.waiting or not (late or self.waiting >= self._batch_messages):
            return []
        self._last_ms = now_ms
        return self._take_batch()

    @property
    def wake_ms(self) -> float:
        """The time when the next batch is due at the latest; `NEVER` while nothing waits."""
        return self._last_ms + self._queue_ms if self.waiting and self._last_ms is not None else NEVER

    def _take_batch(self) -> list[Run]:
        batch, count = list[Run](), 0
        while self._queue and (not count or count + self._queue[0].count <= self._batch_messages):
            run = self._queue.popleft()
            batch.append(run)
            count += run.count
        self.waiting -= count
        return batch
