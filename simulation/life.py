"""The scheduler of one process: it ends with the power, and may stand still in between."""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ..adapters.system import ManualScheduler
from ..ports.errors import ClosedError
from ..ports.scheduler import Outcome, Timer
from .coroutine_thread import Killed

T = TypeVar("T")
Callback = Callable[[], None]


class WorkerPool(Protocol):
    """The threads that do the work off the reactor: see `Workers`."""

    def start(self, life: "Life", work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None: ...


class _LifeTimer:
    """Can be cancelled also after its time, while the life stands still."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self.callback()


class Life:
    """Fulfils `Scheduler` for one process, from its start to its end."""

    def __init__(self, scheduler: ManualScheduler, workers: WorkerPool) -> None:
        self.alive = True
        self.ran = False
        """Something of this process has run since an observer set it to False."""
        self.work_ms_more = 0.0
        """Settable: work off the reactor begins and ends later by up to this time."""
        self.rate: Callable[[], float] = lambda: 1.0
        """Settable: the rate at which the clock of its timers runs."""
        self._scheduler = scheduler
        self._workers = workers
        self._held: deque[Callback] | None = None

    def run(self, callback: Callback) -> None:
        """Run the callback now, or when the process continues; never if the process has ended."""
        if not self.alive:
            return
        if self._held is None:
            self.enter(callback)
        else:
            self._held.append(callback)

    def enter(self, callback: Callback) -> None:
        """Run the callback now, as far as it comes: the process may be killed in its middle."""
        self.ran = True
        try:
            callback()
        except (Killed, ClosedError):
            if self.alive:
                raise

    def stand_still(self) -> None:
        """Run nothing until `resume`."""
        if self._held is None:
            self._held = deque()

    def resume(self) -> None:
        """Continue the process: callbacks that became due meanwhile run now, in their order."""
        held, self._held = self._held, None
        for callback in held or ():
            self.run(callback)

    @property
    def still(self) -> bool:
        return self._held is not None

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        timer = _LifeTimer(callback)
        self._scheduler.call_later(delay_ms / self.rate(), lambda: self.run(timer.fire))
        return timer

    def call_soon(self, callback: Callback) -> None:
        if not self.alive:
            raise ClosedError("the power was cut")
        self._scheduler.call_soon(lambda: self.run(callback))

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        self._workers.start(self, work, done)
