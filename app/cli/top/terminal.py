"""The terminal: its keys and its screen while `top` runs, and its restoration afterwards."""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

_NAMED = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_LONGEST = 32


class KeyReader:
    """Stores the bytes of an incomplete key."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def waits(self) -> bool:
        """Return True after an Escape: it is the Esc key, or begins another key whose rest follows at once."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the complete keys: letters, or names such as "up" and "esc". Unknown ones are left out."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        keys = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                keys.append(_NAMED.get(text[at], text[at]))
                at += 1
                continue
            found = _SEQUENCE.match(text, at)
            if found is not None:
                keys.append(_NAMED.get(found[0], ""))
                at = found.end()
                continue
            unfinished = _UNFINISHED.match(text, at)
            if unfinished is not None and unfinished.end() == len(text) and len(text) - at <= _LONGEST:
                self._rest = text[at:]
                break
            keys.append("esc")
            at += 1
        return [key for key in keys if key]

    def flush(self) -> list[str]:
        """Return the Esc key, since nothing followed the Escape."""
        rest, self._rest = self._rest, ""
        return ["esc", *rest[1:]] if rest else []


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
