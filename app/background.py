"""A reactor in a thread of its own, beside the user's."""

import threading
from collections.abc import Callable
from typing import Protocol

from ..ports.scheduler import Scheduler


class RunnableScheduler(Scheduler, Protocol):
    """A scheduler that a thread can be given to."""

    def run(self) -> None:
        """Turn until `stop`."""
        ...

    def stop(self) -> None:
        """End `run`. Callable from any thread; twice is harmless."""
        ...

    def abandon(self) -> None:
        """End `run` and do nothing more: as the death of the process would. Callable from any thread."""
        ...


class ReactorThread:
    """Runs `prepare` and then the reactor, in a background thread."""

    def __init__(self, reactor: RunnableScheduler, name: str, prepare: Callable[[], None] | None = None) -> None:
        self.reactor = reactor
        self._prepare = prepare
        self._prepared = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Returns when `prepare` is done. Raises what it raised; the thread has ended then."""
        self._thread.start()
        self._prepared.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def owns_caller(self) -> bool:
        """Return True when the calling thread is the reactor's."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the reactor and wait for its thread. Any thread but the reactor's."""
        self.reactor.stop()
        self.join()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            if self._prepare is not None:
                self._prepare()
        except BaseException as error:  # noqa: BLE001  `start` raises it in the caller's thread
            self._error = error
            self.reactor.stop()
            return
        finally:
            self._prepared.set()
        self.reactor.run()
