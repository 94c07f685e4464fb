"""Looks at the cluster every so often, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ....ports.errors import BarnabasError
from .look import Look, Looker, Tab


class Watcher:
    """One look at once, and then one each `interval_s`, for as long as it is not told to rest."""

    def __init__(self, looker: Looker, interval_s: float, told: Callable[[Look | BarnabasError], None]) -> None:
        """`told` is called from that thread."""
        self._looker = looker
        self._interval_s = interval_s
        self._told = told
        self._tabs: Sequence[Tab] | None = ("topics",)
        self._changed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, tabs: Sequence[Tab] | None) -> None:
        """What to ask for from now on, at once where it is something else; None: nothing."""
        if tabs != self._tabs:
            self._tabs = tabs
            self._changed.set()

    def stop(self) -> None:
        """Ask no more. A question that is under way ends when its `Admin` is closed."""
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
            found: Look | BarnabasError = self._looker.look(tabs)
        except BarnabasError as error:
            found = error
        if not self._stopping:
            self._told(found)
