"""Registry work, where it may wait for a network, happens off the reactor."""

from collections.abc import Callable
from typing import TypeVar

from ...ports.coordination import Coordination
from ...ports.scheduler import Outcome, Scheduler

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
    try:
        outcome = Outcome(value=work())
    except Exception as error:  # noqa: BLE001  handed on, as `offload` does
        outcome = Outcome(error=error)
    scheduler.call_soon(lambda: done(outcome))
