"""Runs `top` in a terminal: keys, snapshots and messages change the state, which is drawn on the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from queue import Empty, SimpleQueue
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ....ports.errors import BarnabasError
from ...clients.admin.admin import Admin
from ..command_config import connection_settings
from ..consume.progress import stopping
from .look import Look, Looker, Tab
from .state import TopState, arrived, failed, looked, pressed
from .tail import Tail
from .terminal import Terminal
from .view import View, view_of


class Watcher:
    """Takes a snapshot now, and then every `interval_s`, while it is not paused."""

    def __init__(self, looker: Looker, interval_s: float, on_snapshot: Callable[[Look | BarnabasError], None]) -> None:
        """`on_snapshot` is called from that thread."""
        self._looker = looker
        self._interval_s = interval_s
        self._on_snapshot = on_snapshot
        self._tabs: Sequence[Tab] | None = ("topics",)
        self._changed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, tabs: Sequence[Tab] | None) -> None:
        """Set the requested tabs, and request at once if they change; None: pause."""
        if tabs != self._tabs:
            self._tabs = tabs
            self._changed.set()

    def stop(self) -> None:
        """Stop requesting. A running request ends when its `Admin` is closed."""
        self._stopping = True
        self._changed.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            tabs = self._tabs
            if tabs is not None:
                self._look(tabs)
            self._changed.wait(self._interval_s)

    def _look(self, tabs: Sequence[Tab]) -> None:
        try:
            found: Look | BarnabasError = self._looker.take_snapshot(tabs)
        except BarnabasError as error:
            found = error
        if not self._stopping:
            self._on_snapshot(found)


AROUND = 5
"""Number of lines that are not rows: head, tabs, notice, column names, foot."""
_RIGHT = {"partitions", "messages/s", "bytes/s", "end", "size", "members", "lag", "leaders", "replicas", "in_sync"}
KEY_WIDTH = 30
"""Number of shown columns of a key, so that there is room for the value."""


def drawn(view: View, width: int, height: int, color_system: str | None) -> list[str]:
    """Return `height` lines with colour escapes, none wider than `width`."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=True,
        color_system=color_system,  # type: ignore[arg-type]  # one of its own names, or None
        legacy_windows=False,
        highlight=False,
    )
    lines = [
        Text(view.head, style="bold"),
        Text.assemble(*_tabs(view.tabs)),
        Text(view.notice, style="bold red"),
    ]
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    room = max(1, height - AROUND)
    console.print(_table(view, room))
    body = out.getvalue().split("\n")[: height - 1]
    body += [""] * (height - 1 - len(body))
    out.seek(0)
    out.truncate()
    console.print(Text(view.foot, style="dim"), no_wrap=True, overflow="ellipsis", crop=True, end="")
    return [*body, out.getvalue()][-height:]


def _tabs(tabs: Sequence[tuple[str, bool]]) -> list[tuple[str, str]]:
    return [(f" {name} ", "reverse" if active else "") for name, active in tabs]


def first_shown(selected: int, rows: int, room: int) -> int:
    """Return the index of the first shown row, so that the selected one is visible."""
    return max(0, min(selected - room // 2, rows - room))


def _table(view: View, room: int) -> Table:
    """Lay out only the visible rows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="bold cyan")
    for column in view.columns:
        table.add_column(
            column.upper(),
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column in _RIGHT else "left",
            max_width=KEY_WIDTH if column == "key" else None,
            ratio=1 if column == view.columns[-1] else None,
        )
    first = first_shown(view.selected, len(view.rows), room)
    for number, row in enumerate(view.rows[first : first + room], first):
        table.add_row(*(Text(cell) for cell in row.cells), style="reverse" if number == view.selected else "")
    return table


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
