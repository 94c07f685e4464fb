"""A reactor in a thread of its own and the loading of what it runs.

Python's collector of cycles looks at new objects every 700 of them: at all that hundreds of modules make.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ..ports.scheduler import Scheduler

_begun: set[str] = set()


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Run the block, which loads modules when it is the first in the process for `what`, with the collector paused.

    What a first block makes stays for good. It is handed to the oldest generation unseen: the next collection of young
    objects, which follows at once, would take half the time that the pause saves. Later blocks run as usual, since the
    garbage that they may leave in the oldest generation is not counted.
    """
    if what in _begun or not gc.isenabled():
        yield
        return
    _begun.add(what)
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what the user froze must stay so
            gc.freeze()
            gc.unfreeze()
        gc.enable()


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
