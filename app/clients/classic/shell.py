"""The part of a classic client that has threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.client.effects import NEVER
from ..waiting import WaitingRoom

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....core.client.effects import Part
    from ....ports.scheduler import Scheduler
    from ..connector import Connector


class ClassicShell(WaitingRoom):
    """A reactor, one machine that is polled in time if there is one, and what to do when hanging up."""

    def __init__(self, connector: Connector) -> None:
        """Starts the reactor. Raises what `Connector.start` raises."""
        super().__init__(connector)
        self.part: Part | None = None
        self.hanging_up: list[Callable[[], None]] = []
        self._scheduler = connector.start()

    @property
    def scheduler(self) -> Scheduler:
        """The reactor."""
        return self._scheduler

    def _turn(self) -> None:
        if not self._begin_turn() or self.part is None:
            return
        now = self.now_ms()
        wake_ms = self.part.poll(now).wake_ms
        if wake_ms < NEVER:
            self._wake_at(wake_ms, now)

    def _hang_up(self) -> None:
        for each in self.hanging_up:
            each()
