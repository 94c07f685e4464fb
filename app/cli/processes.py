"""Child processes with a common log: restarted when they die, and stopped in order."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import TextIO

from ...ports.errors import BarnabasError
from ..logs import ROOT

logger = logging.getLogger(f"{ROOT}.app.processes")

READY = "barnabas ready "
STOP_PATIENCE_S = 60.0
"""Maximum time for a stop before the process is killed."""
ENDED_IN_ORDER = "ended with exit code 0"
RESTART_FIRST_S, RESTART_MAX_S = 0.5, 30.0
LASTING_S = 60.0
"""A process that ran for this time is restarted with the first pause again."""


class Lines:
    """Complete lines of several processes on one stream, each with its name: `broker-1 | ...`, or in the JSON
    object."""

    def __init__(self, stream: TextIO, names: Sequence[str], form: str) -> None:
        self._stream = stream
        self._width = max(map(len, names))
        self._json = form == "json"

    def put(self, name: str, line: str) -> None:
        if self._json and line.startswith("{"):
            self._stream.write(f'{{"node": "{name}", {line[1:]}\n')
        else:
            self._stream.write(f"{name:<{self._width}} | {line}\n")

    def flush(self) -> None:
        self._stream.flush()


class NamedLines:
    """A stream for `logging`: the lines of one name."""

    def __init__(self, lines: Lines, name: str) -> None:
        self._lines = lines
        self._name = name

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._lines.put(self._name, line)
        return len(text)

    def flush(self) -> None:
        self._lines.flush()


class ManagedProcess:
    """One process, which prints a line on standard output when it is ready."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        *,
        module: str = f"{__package__}.child",
        before: Callable[[], tuple[bytes, Sequence[int]]] = lambda: (b"", ()),
        started: Callable[[], None] = lambda: None,
    ) -> None:
        """`words`: the arguments of `module`, of a `barnabas` command by default. `before` is called before each start
        and returns what the process first reads on its standard input, and the descriptors that it inherits; `started`
        is called after it."""
        self.name = name
        self._words = words
        self._module = module
        self._before = before
        self._started = started
        self.process: subprocess.Popen[bytes] | None = None
        self.was_ready = False
        """True if it was ready once, also before a restart."""
        self.ready = False
        self.listeners: list[str] = []
        """The listeners in the line that it printed when it was ready."""
        self.began_s = 0.0
        self.pause_s = RESTART_FIRST_S
        self.due_s: float | None = None
        """Time of the next start."""

    def start(self) -> None:
        first, descriptors = self._before()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, *self._words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the parent, which stops them in order
                pass_fds=descriptors,
                env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            )
        finally:
            self._started()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, which its streams will show
            self.process.stdin.write(first)
            self.process.stdin.flush()
        self.ready, self.due_s, self.began_s = False, None, time.monotonic()

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            if number == signal.SIGTERM:
                self.process.send_signal(signal.SIGCONT)  # a stopped process would not receive it

    def end(self) -> str:
        """Handle the end of its streams; return how it ended."""
        assert self.process is not None
        code = self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process, self.ready = None, False
        if time.monotonic() - self.began_s > LASTING_S:
            self.pause_s = RESTART_FIRST_S
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class Processes:
    """Starts all processes and watches them on the calling thread, until SIGTERM or SIGINT."""

    def __init__(
        self,
        members: Sequence[ManagedProcess],
        lines: Lines,
        *,
        restart: bool,
        ready: Callable[[], None],
        wait_until_stable: Callable[[], None] | None = None,
    ) -> None:
        """`ready` is called once, when all are ready. At SIGUSR1 the processes are restarted one after the other;
        `wait_until_stable` waits, in a thread of its own, until the next one may stop. None: no such restart."""
        self._wait_until_stable = wait_until_stable
        self._restart_asked = False
        self._to_restart: list[ManagedProcess] = []
        self._restarting: ManagedProcess | None = None
        self._is_stable = Event()
        self._members = members
        self._lines = lines
        self._restart = restart
        self._ready: Callable[[], None] | None = ready
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, bytes] = {}
        self._signals = 0
        self._stopping: list[ManagedProcess] | None = None
        self._stop_by_s = 0.0
        self._failure: str | None = None

    def run(self) -> None:
        """Run until the end. Raises `BarnabasError` when one does not start, or when all have ended."""
        wakes, waker = os.pipe()
        os.set_blocking(waker, False)
        self._waker = waker
        self._selector.register(wakes, selectors.EVENT_READ)
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        if self._wait_until_stable is not None:
            before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_restart)
        old_waker = signal.set_wakeup_fd(waker)
        try:
            for member in self._members:
                self._start(member)
            while not self._done():
                self._turn(wakes)
        finally:
            for member in self._members:
                member.signal(signal.SIGKILL)  # only after an internal error is one left
            signal.set_wakeup_fd(old_waker)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._waker = -1
            os.close(wakes)
            os.close(waker)
            self._selector.close()
        if self._failure is not None:
            raise BarnabasError(self._failure)

    def _on_signal(self, *_: object) -> None:
        self._signals += 1

    def _on_restart(self, *_: object) -> None:
        self._restart_asked = True

    def _done(self) -> bool:
        return self._stopping is not None and not any(member.process for member in self._members)

    def _turn(self, wakes: int) -> None:
        for key, _ in self._selector.select(self._patience()):
            if key.data is None:
                os.read(wakes, 1024)
            else:
                self._read(key.fd, *key.data)
        if self._signals:
            self._signals = 0
            self._stop()
        self._continue_restart()
        now = time.monotonic()
        for member in self._members:
            if member.due_s is not None and now >= member.due_s:
                self._start(member)
        if self._stopping is not None and now >= self._stop_by_s:
            for member in self._members:
                if member.process is not None and member not in self._stopping:
                    logger.warning("%s does not stop; it is killed", member.name)
                    member.signal(signal.SIGKILL)
            self._stop_by_s = now + STOP_PATIENCE_S

    def _continue_restart(self) -> None:
        """Begin the restart of all that SIGUSR1 asks for, or stop the next one when the one before has settled."""
        if self._stopping is not None:
            return
        if self._restart_asked:
            self._restart_asked = False
            if not self._to_restart and self._restarting is None:
                logger.info("restarting all, one after the other")
                self._to_restart = list(reversed(self._members))
                self._restart_next()
        if self._is_stable.is_set():
            self._is_stable.clear()
            self._restart_next()

    def _restart_next(self) -> None:
        """Stop the last one first, as at the end; one that has died is restarted anyway."""
        self._restarting = None
        while self._to_restart:
            member = self._to_restart.pop(0)
            if member.ready:
                self._restarting = member
                member.signal(signal.SIGTERM)
                return
        logger.info("all are restarted")

    def _wait_for_restarted(self) -> None:
        def wait_until_stable() -> None:
            assert self._wait_until_stable is not None
            self._wait_until_stable()
            self._is_stable.set()
            with suppress(OSError):  # all has ended
                os.write(self._waker, b"\0")

        Thread(target=wait_until_stable, name="settle", daemon=True).start()

    def _patience(self) -> float | None:
        """Return the seconds until the next start or kill; None without one."""
        due = [member.due_s for member in self._members if member.due_s is not None]
        if self._stopping is not None:
            due.append(self._stop_by_s)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start(self, member: ManagedProcess) -> None:
        member.start()
        assert member.process is not None
        for stream in (member.process.stdout, member.process.stderr):
            assert stream is not None
            self._selector.register(stream, selectors.EVENT_READ, (member, stream))

    # --- output of the processes

    def _read(self, fd: int, member: ManagedProcess, stream: object) -> None:
        data = os.read(fd, 65_536)
        *lines, rest = (self._parts.pop(fd, b"") + data).split(b"\n")
        if data and rest:
            self._parts[fd] = rest
        elif rest:
            lines.append(rest)
        for line in lines:
            self._handle_line(member, line.decode(errors="replace"), stream)
        self._lines.flush()
        if not data:
            self._closed(member, stream)

    def _handle_line(self, member: ManagedProcess, line: str, stream: object) -> None:
        if member.process is None or stream is not member.process.stdout:
            self._lines.put(member.name, line)
            return
        if not line.startswith(READY):
            self._lines.put(member.name, line)
            return
        if member.was_ready:
            logger.info("%s is ready again", member.name)
        member.ready = member.was_ready = True
        member.listeners = line.removeprefix(READY).split()
        if member is self._restarting:
            self._wait_for_restarted()
        if self._ready is not None and all(each.ready for each in self._members):
            ready, self._ready = self._ready, None
            ready()

    def _closed(self, member: ManagedProcess, stream: object) -> None:
        self._selector.unregister(stream)  # type: ignore[arg-type]  # it was registered
        process = member.process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        (process.stdout if stream is process.stdout else process.stderr).close()
        if process.stdout.closed and process.stderr.closed:
            self._ended(member)

    # --- end of the processes

    def _ended(self, member: ManagedProcess) -> None:
        how = member.end()
        if self._stopping is not None:
            self._stop_next()
        elif member is self._restarting and how == ENDED_IN_ORDER:
            member.due_s = time.monotonic()
        elif not member.was_ready:
            self._fail(f"{member.name} did not start: it {how}, and says why above")
        elif not self._restart:
            logger.warning("%s %s", member.name, how)
            if not any(each.process for each in self._members):
                self._fail("no broker is left")
        else:
            logger.warning("%s %s; it starts again in %g s", member.name, how, member.pause_s)
            member.due_s = time.monotonic() + member.pause_s
            member.pause_s = min(2 * member.pause_s, RESTART_MAX_S)

    def _fail(self, text: str) -> None:
        self._failure = text
        self._stop()

    def _stop(self) -> None:
        """Stop one after the other, so that each can hand over its leaderships; a second signal stops all at once."""
        if self._stopping is None:
            for member in self._members:
                member.due_s = None
            self._stopping = list(self._members)
            self._stop_next()
            return
        while self._stopping:
            self._stop_next()

    def _stop_next(self) -> None:
        """Stop the last one first: the first one, which remains, then leads everything."""
        assert self._stopping is not None
        self._stop_by_s = time.monotonic() + STOP_PATIENCE_S
        while self._stopping:
            member = self._stopping.pop()
            if member.process is not None:
                member.signal(signal.SIGTERM)
                return
