"""The thread that tells watches and listeners."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread


class CallbackThread:
    """Runs callbacks one at a time in a thread of its own, which the first callback starts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._closed = False

    def __call__(self, callback: Callable[[], None]) -> None:
        """Run `callback` after those given before; after `close` it does nothing."""
        with self._lock:
            if self._closed:
                return
            self._queue.put(callback)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Let the thread end after what was given so far. Does not wait: a callback may be waiting for the caller."""
        with self._lock:
            self._closed = True
            self._queue.put(None)

    def _run(self) -> None:
        while (callback := self._queue.get()) is not None:
            callback()
