"""The terminal: its keys and its screen while `top` runs, and its restoration afterwards."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from .keys import KeyReader

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
ESCAPE_S = 0.05
"""Maximum time between an Escape and the rest of a key that begins with it."""


class Terminal:
    """Shows lines and waits for keys; `wake` lets other threads interrupt the wait."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._keys = KeyReader()
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        self._before: list[Any] = []
        self._old_wakeup = -1
        self._old_resized: Any = None
        self.hung_up = False

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(self._in)
        # A signal (the window is resized, the process must end) interrupts the wait too.
        self._old_wakeup = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._old_resized = signal.signal(signal.SIGWINCH, lambda *_: None)
        try:
            tty.setraw(self._in)
            self._write(_ENTER)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        with suppress(OSError):  # the terminal is closed
            self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSAFLUSH, self._before)
        signal.set_wakeup_fd(self._old_wakeup)
        signal.signal(signal.SIGWINCH, self._old_resized)

    def wake(self) -> None:
        """Interrupt the wait, from any thread."""
        with suppress(BlockingIOError):  # it is interrupted already
            os.write(self._waker, b"\0")

    def size(self) -> tuple[int, int]:
        """Return the numbers of columns and lines."""
        found = os.get_terminal_size(self._out)
        return found.columns or 80, found.lines or 24

    def show(self, lines: Sequence[str]) -> None:
        """Overwrite the whole screen without flicker."""
        self._write(_HOME + "\r\n".join(line + _END_OF_LINE for line in lines) + _END_OF_SCREEN)

    def wait(self) -> list[str]:
        """Wait for keys and return them; none when it was interrupted."""
        limit = ESCAPE_S if self._keys.waits else None
        ready, _, _ = select.select([self._in, self._woken], [], [], limit)
        if not ready:
            return self._keys.flush()
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._in not in ready:
            return []
        try:
            data = os.read(self._in, 4096)
        except OSError:  # the other end of the terminal is closed
            data = b""
        self.hung_up = not data
        return self._keys.feed(data)

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(errors="replace"))
        while data:
            data = data[os.write(self._out, data) :]
