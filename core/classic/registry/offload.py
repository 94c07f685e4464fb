"""Registry work, where it may wait for a network, happens off the reactor."""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ....ports.coordination import Coordination
from ....ports.scheduler import Outcome, Scheduler

T = TypeVar("T")


def run(
    scheduler: Scheduler, coordination: Coordination, work: Callable[[], T], done: Callable[[Outcome[T]], None]
) -> None:
    """Do `work`, a function of blocking coordination calls; `done` is called later on the owner thread.

    Owner thread only.
    """
    if coordination.blocking:
        scheduler.offload(work, done)
        return
    outcome = Outcome.of(work)
    scheduler.call_soon(lambda: done(outcome))


class Lane:
    """Registry work of one owner, one piece after the other: an older write never overtakes a newer one.

    What only such work touches needs no lock. Owner thread only.
    """

    def __init__(self, scheduler: Scheduler, coordination: Coordination) -> None:
        self._scheduler = scheduler
        self._coordination = coordination
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Outcome[Any]], None]]] = deque()
        self._busy = False

    def run(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        """Do `work` after what was given before; `done` is called later on the owner thread."""
        self._waiting.append((work, done))
        self._run_next()

    def _run_next(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        work, done = self._waiting.popleft()

        def finished(outcome: Outcome[Any]) -> None:
            self._busy = False
            try:
                done(outcome)
            finally:
                self._run_next()

        run(self._scheduler, self._coordination, work, finished)
