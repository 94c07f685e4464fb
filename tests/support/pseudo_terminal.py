"""A command at a terminal of our own: its screen as text, and keys for it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from .process import COMMAND, PATIENCE_S

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)")
_END = "\x00the process has ended\x00"
_HOME, _WHOLE = "\x1b[H", "\x1b[J"
KEYS = {"up": "\x1b[A", "down": "\x1b[B", "enter": "\r", "esc": "\x1b", "backspace": "\x7f", "ctrl-c": "\x03"}


class AtTerminal:
    """`barnabas` (or another program) with these words, at a pseudo-terminal. Leaving it ends the process."""

    def __init__(
        self, words: Sequence[str | Path], *, program: str | Path = COMMAND, columns: int = 120, lines: int = 30
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self._theirs)
        self._written = ""
        self.process = subprocess.Popen(
            [str(program), *map(str, words)],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
            start_new_session=True,
        )

    def __enter__(self) -> "AtTerminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def restored(self) -> bool:
        """The terminal reads lines again, with echo, as it did before."""
        return termios.tcgetattr(self._theirs) == self.settings

    @property
    def written(self) -> str:
        """The end of what was written, escapes and all."""
        return self._written

    @property
    def screen(self) -> list[str]:
        """The lines of the last whole picture, without colours."""
        end = self._written.rfind(_WHOLE)
        start = self._written.rfind(_HOME, 0, max(0, end))
        return _ESCAPES.sub("", self._written[start:end]).split("\r\n") if end > 0 and start >= 0 else []

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if hasattr(self, "process"):  # it does not own the terminal, so the system sends it no signal
            self.process.send_signal(signal.SIGWINCH)

    def press(self, *keys: str) -> None:
        """Names of `KEYS`, or text."""
        for key in keys:
            os.write(self._ours, KEYS.get(key, key).encode())

    def wait_for(self, *wanted: str | Callable[[list[str]], object]) -> list[str]:
        """Return the screen, as soon as it has each of these texts and each of these conditions holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(each(self.screen) if callable(each) else each in "\n".join(self.screen) for each in wanted):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"{wanted} did not come; on the screen is:\n" + "\n".join(self.screen))
            self._read()
        return self.screen

    def ended(self) -> int:
        """Return the exit code, once the process has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        code = self.process.wait(1)
        os.write(self._theirs, _END.encode())  # behind all that the process wrote, which may still be on its way
        while _END not in self._written:
            assert self._read(PATIENCE_S), "the terminal keeps what was written"
        self._written = self._written.partition(_END)[0]
        return code

    def _read(self, limit_s: float = 0.1) -> bool:
        if not select.select([self._ours], [], [], limit_s)[0]:
            return False
        self._written = (self._written + os.read(self._ours, 65536).decode(errors="replace"))[-200_000:]
        return True
