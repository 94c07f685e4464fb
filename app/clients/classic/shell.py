"""The part of a classic client that has threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....ports.scheduler import LendsTurns
from ..shared.blocking_shell import BlockingShell

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....core.client.effects import Part
    from ....ports.broker_api.envelope import Request
    from ....ports.scheduler import Scheduler
    from ...connector import Connector


class ClassicShell(BlockingShell):
    """A reactor, machines that are polled in time, and what to do when hanging up."""

    def __init__(self, connector: Connector) -> None:
        """Starts the reactor. Raises what `Connector.start` raises."""
        super().__init__(connector)
        self.hanging_up: list[Callable[[], None]] = []
        scheduler = connector.start()
        self._begin(scheduler, _no_links)
        self._lender = scheduler if isinstance(scheduler, LendsTurns) else None

    def drive(self, part: Part) -> None:
        """Poll this machine in time. It takes the lock itself, and asks brokers for nothing."""
        self._driver.add(part)

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` on this thread, if the reactor's thread sleeps, else on that one, unless the client is closed.
        Call without the lock."""
        if self._lender is None or not self._lender.run_here(work):
            self.post(work)

    @property
    def scheduler(self) -> Scheduler:
        """The reactor."""
        return self._scheduler

    def _close_links(self) -> None:
        for each in self.hanging_up:
            each()


def _no_links(node: int, _request: Request[Any], _reply: Callable[[Any], None]) -> None:
    raise AssertionError(f"a machine of the classic generation has its own links, and none to {node}")
