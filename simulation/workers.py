"""Work off the reactor: it takes simulated time, and may wait in its middle."""

from collections.abc import Callable
from typing import Any

from ..adapters.system import ManualScheduler
from ..ports.entropy import Entropy
from ..ports.errors import ClosedError
from ..ports.scheduler import Outcome
from .coroutine_thread import CoroutineThread, Killed
from .life import Life

Work = Callable[[], Any]


class _Worker:
    """A thread for one work after the other."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self.outcome: Outcome[Any] | None = None
        self.wait_ms = 0.0
        self.killed = False
        self._thread = CoroutineThread(self._run, "simulated-worker")

    def step(self) -> None:
        self._thread.step()

    def wait(self, ms: float) -> None:
        """Called by the thread itself."""
        self.wait_ms = ms
        self._thread.wait()
        if self.killed:
            raise ClosedError("the power was cut")

    def end(self) -> None:
        """End an idle worker."""
        self._thread.kill()

    def _run(self) -> None:
        while True:
            work = self.work
            assert work is not None
            try:
                self.outcome = Outcome(value=work())
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001  # it travels to `done`
                self.outcome = Outcome(error=error)
            self._thread.wait()


def _never(_work: Work) -> bool:
    return False


class Workers:
    """Offloaded work: it begins and ends after some time, and calls in it may let others go first."""

    def __init__(
        self,
        scheduler: ManualScheduler,
        entropy: Entropy,
        *,
        wait_ms_max: float,
        waits: float = 0.0,
        waits_within: Callable[[Work], bool] = _never,
    ) -> None:
        """`waits_within`: the works that may wait in their middle, which need a thread for that; `waits`: how likely
        each of their calls waits, on its way there and on its way back."""
        self._scheduler = scheduler
        self._entropy = entropy
        self._wait_ms_max = wait_ms_max
        self._waits = waits
        self._waits_within = waits_within
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, None] = {}
        self._current: _Worker | None = None

    def start(self, life: Life, work: Work, done: Callable[[Outcome[Any]], None]) -> None:
        """Do the work for a process, then call `done` with the outcome: both only while the process runs."""
        if not self._waits or not self._waits_within(work):

            def run() -> None:
                outcome = Outcome.of(work)
                self._scheduler.call_later(self._some_ms(life), lambda: life.run(lambda: done(outcome)))

            self._scheduler.call_later(self._some_ms(life), lambda: life.run(run))
            return

        def begin() -> None:
            worker = self._idle.pop() if self._idle else _Worker()
            worker.work, worker.outcome, worker.killed = work, None, False
            self._busy[worker] = None
            self._step(life, worker, done)

        self._scheduler.call_later(self._some_ms(life), lambda: life.run(begin))

    def pause(self) -> None:
        """Called by a call of the work: time passes, maybe. Raises `ClosedError` when the power is cut meanwhile."""
        worker = self._current
        if worker is None:
            return
        if worker.killed:
            raise ClosedError("the power was cut")
        if self._entropy.fraction() < self._waits:
            worker.wait(self._some_ms())

    @property
    def is_working(self) -> bool:
        """True within a work that may wait in its middle."""
        return self._current is not None

    def wait(self, ms: float) -> None:
        """Called by a call of the work: let so much time pass. Raises as `pause`."""
        if self._current is not None:
            self._current.wait(ms)

    def kill_current(self) -> None:
        """Called by a call of the work, whose process has been killed: its further calls raise `ClosedError`."""
        if self._current is not None:
            self._current.killed = True

    def close(self) -> None:
        """End all threads."""
        for worker in list(self._busy):
            worker.killed = True
            self._switch(worker)
            self._idle.append(worker)
        self._busy.clear()
        while self._idle:
            self._idle.pop().end()

    def _some_ms(self, life: Life | None = None) -> float:
        more_ms = 0.0 if life is None else life.work_ms_more
        return self._entropy.fraction() * (self._wait_ms_max + more_ms)

    def _switch(self, worker: _Worker) -> None:
        self._current = worker
        worker.step()
        self._current = None

    def _step(self, life: Life, worker: _Worker, done: Callable[[Outcome[Any]], None]) -> None:
        self._switch(worker)
        outcome = worker.outcome
        if outcome is not None:
            del self._busy[worker]
            self._idle.append(worker)
            self._scheduler.call_later(self._some_ms(life), lambda: life.run(lambda: done(outcome)))
            return

        def resume() -> None:
            if life.alive:
                life.run(lambda: self._step(life, worker, done))
            else:
                worker.killed = True
                self._step(life, worker, done)

        self._scheduler.call_later(worker.wait_ms, resume)
