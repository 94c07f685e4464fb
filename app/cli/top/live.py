"""Runs `top` in a terminal: keys, snapshots and messages change the state, which is drawn on the screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Console

from ....ports.errors import BarnabasError
from ...clients.admin.admin import Admin
from ..command_config import connection_settings
from ..consume.progress import stopping
from .drawing import drawn
from .look import Look, Looker
from .state import TopState, arrived, failed, looked, pressed
from .tail import Tail
from .terminal import Terminal
from .view import view_of
from .watcher import Watcher

PATIENCE_MS = 5000
"""Timeout of a snapshot before it is reported that the cluster does not answer."""
LEAVE_S = 1.0

_Change = Callable[[TopState], TopState]


def run(bootstrap: str, interval_s: float, *, internal: bool) -> None:
    """Run until the user quits, a signal arrives, or the terminal is closed."""
    with stopping() as signals:
        config = connection_settings()
        admin = Admin(bootstrap, config={"default.api.timeout.ms": PATIENCE_MS, **config})
        try:
            with Terminal() as terminal:
                _Live(bootstrap, config, terminal, Looker(admin, internal=internal), interval_s).run(signals)
        finally:
            admin.close()


class _Live:
    def __init__(
        self, bootstrap: str, config: Mapping[str, Any], terminal: Terminal, looker: Looker, interval_s: float
    ) -> None:
        self._bootstrap = bootstrap
        self._config = config
        self._terminal = terminal
        self._watcher = Watcher(looker, interval_s, self._on_snapshot)
        self._changes: SimpleQueue[_Change] = SimpleQueue()
        self._state = TopState()
        self._tail: Tail | None = None
        self._colors = Console().color_system

    def run(self, signals: list[int]) -> None:
        self._watcher.start()
        try:
            while not (self._state.done or signals or self._terminal.hung_up):
                self._draw()
                for key in self._terminal.wait():
                    self._state = pressed(self._state, key, view_of(self._state).names)
                self._take_changes()
                self._follow()
        finally:
            self._watcher.stop()
            if self._tail is not None:
                self._tail.stop()
                self._tail.join(LEAVE_S)
            self._watcher.join(LEAVE_S)

    def _draw(self) -> None:
        width, height = self._terminal.size()
        self._terminal.show(drawn(view_of(self._state), width, height, self._colors))

    def _follow(self) -> None:
        """Request the content that is shown now."""
        state = self._state
        self._watcher.show(None if state.paused else (state.tab,))
        if self._tail is not None and self._tail.topic != state.opened:
            self._tail.stop()
            self._tail = None
        if state.opened is not None and self._tail is None:
            self._tail = Tail(self._bootstrap, self._config, state.opened, self._came)
            self._tail.start()
        if self._tail is not None:
            self._tail.rest(state.paused)
            if not state.paused and state.tailed is not self._tail.now:
                self._came(self._tail)

    # --- from other threads

    def _on_snapshot(self, found: Look | BarnabasError) -> None:
        if isinstance(found, BarnabasError):
            why = str(found)
            self._change(lambda state: failed(state, why))
        else:
            look = found
            self._change(lambda state: looked(state, look))

    def _came(self, tail: Tail) -> None:
        self._change(lambda state: arrived(state, tail.topic, tail.now))

    def _change(self, change: _Change) -> None:
        self._changes.put(change)
        self._terminal.wake()

    def _take_changes(self) -> None:
        while True:
            try:
                change = self._changes.get_nowait()
            except Empty:
                return
            self._state = change(self._state)
