"""SIGTERM and SIGINT while a process starts: it ends in order, with exit code 0, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread, Timer
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_AGAIN_S = 0.05


class EndAtStart:
    """The handler: it raises `SystemExit(0)` on the main thread, so all that was opened is closed on the way out."""

    asked = False
    """True if a signal has come."""

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_IGN)  # what closes is not disturbed
        raise SystemExit(0)

    def again(self) -> None:
        """Python has swallowed the exception, since it came while an object was collected or a module imported."""
        for number in _NUMBERS:
            signal.signal(number, self)
        timer = Timer(_AGAIN_S, signal.raise_signal, [signal.SIGTERM])  # the main thread runs the handler
        timer.daemon = True
        timer.start()


def end_with_parent() -> None:
    """Stop this process, in order (SIGTERM), when the other end of its standard input is closed. Returns at once."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="parent", daemon=True).start()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """End what begins inside at SIGTERM or SIGINT. What then serves installs handlers of its own. Main thread only."""
    end = EndAtStart()
    before = {number: signal.signal(number, end) for number in _NUMBERS}
    hook = sys.unraisablehook

    def unraisable(failed: UnraisableHookArgs) -> None:
        if isinstance(failed.exc_value, SystemExit) and end.asked:
            end.again()
        else:
            hook(failed)

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
