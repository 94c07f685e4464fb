"""Takes snapshots of the cluster periodically, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ....ports.errors import BarnabasError
from .look import Look, Looker, Tab


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
