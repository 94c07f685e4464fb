"""Threads of which only one runs at a time: each runs until it waits, so that everything has one order."""

from collections.abc import Callable
from threading import Lock, Thread, current_thread


class Killed(BaseException):
    """The machine that this code runs on has lost its power. Not an `Exception`: no program handles it."""


class CoroutineThread:
    """A thread that runs only while the thread of the simulation waits for it, and the other way round."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self.killed = False
        """True: code that waits in the thread gets `Killed` from now on."""
        self.ended = False
        self._run = run
        self._go, self._back = Lock(), Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """True in the thread itself."""
        return current_thread() is self._thread

    def step(self) -> None:
        """Let the thread run until it waits, or ends. Called by the thread of the simulation."""
        if self._thread.is_alive():
            self._go.release()
            self._back.acquire()
            if self.ended:
                self._thread.join()

    def wait(self) -> None:
        """Let the thread of the simulation run until the next `step`. Called by the thread itself. Raises `Killed`."""
        if not self.killed:
            self._back.release()
            self._go.acquire()
        if self.killed:
            raise Killed

    def kill(self) -> None:
        """Let the thread end by `Killed`, if it is not its own caller."""
        self.killed = True
        if not self.is_here:
            self.step()

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self.killed:
                self._run()
        except Killed:
            pass  # that is how it ends
        finally:
            self.ended = True
            self._back.release()
