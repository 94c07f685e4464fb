"""A program that runs as long as we do: started again when it dies, gone when we are, however we went."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from ...ports.coordination import CoordinationError
from ..repeated_failure import RepeatedFailure

RESTART_FIRST_S, RESTART_MAX_S = 0.2, 5.0
DEATHS_REPORTED = 3
"""The successive deaths that are each reported; of further ones, one line a minute is enough."""
LONG_LIFE_S = 60.0
"""A process that has run this long has a short pause before its next start."""
STOP_PATIENCE_S = 10.0
LOG_BYTES_MAX = 8 * 1024 * 1024
_LAST_WORDS_BYTES = 16_384

_GUARD = """
exec 3<&0 </dev/null
"$@" 3<&- &
program=$!
(if read -r _ <&3; then kill -TERM "$program"; read -r _ <&3; fi; kill -KILL "$program") 2>/dev/null &
guard=$!
exec 3<&-
wait "$program"
code=$?
kill "$guard"
exit "$code"
"""
"""The shell between this process and the program. A line from the pipe stops the program in order, and the end of the
pipe, which comes with the end of this process, kills it. (PR_SET_PDEATHSIG is Linux's alone and ends with a thread.)"""


class SupervisedProcess:
    """`report` gets a line when it dies and is started again. Its output is added to the file `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        report: Callable[[str], None],
        *,
        may_restart: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_restart` raises `CoordinationError` while it must not be started again."""
        self._name = name
        self.command = command
        """The command of the next start."""
        self._may_restart = may_restart
        self._log = log
        self._report = report
        self._failure = RepeatedFailure(report, first=DEATHS_REPORTED)
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = Event()
        self._keeper = Thread(target=self._keep, name=f"kept-{name}", daemon=True)
        self.deaths = 0
        """The number of unexpected ends."""

    def start(self) -> None:
        """Start the process, once. Raises `CoordinationError` when it cannot be started at all."""
        self._launch()
        self._keeper.start()

    def stop(self) -> None:
        """Stop in order, or after `STOP_PATIENCE_S` by force. A second call has no effect."""
        with self._lock:  # from here on none is started
            self._stopping.set()
            process = self._process
        if process is None or process.stdin is None:
            return
        with suppress(OSError, ValueError):  # it has ended just now
            process.stdin.write(b"stop\n")
            process.stdin.flush()
        self._keeper.join(STOP_PATIENCE_S)
        if self._keeper.is_alive():
            self._report(f"{self._name} does not stop within {STOP_PATIENCE_S:.0f} s and is killed")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            self._keeper.join()

    def last_words(self) -> list[str]:
        """The last lines of its log."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _LAST_WORDS_BYTES))
                return log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return [f"{self._log} cannot be read: {error.strerror}"]

    def _launch(self) -> None:
        try:
            if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
                self._log.replace(self._log.with_name(f"{self._log.name}.1"))
            with self._log.open("ab") as log, self._lock:
                if self._stopping.is_set():
                    return
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARD, self._name, *self.command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C ends this process, which then stops the program
                )
        except OSError as error:
            raise CoordinationError(f"{self._name} cannot be started: {error}") from error

    def _keep(self) -> None:
        pause_s = RESTART_FIRST_S
        while True:
            began = monotonic()
            code = self._wait()
            if monotonic() - began > LONG_LIFE_S:
                pause_s = RESTART_FIRST_S
                self._failure = RepeatedFailure(self._report, first=DEATHS_REPORTED)
            if self._stopping.is_set():
                return
            self.deaths += 1
            self._failure.failed(f"{self._name} ended ({_how(code)}) and is started again; its log is {self._log}")
            while True:
                if self._stopping.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, RESTART_MAX_S)
                try:
                    self._may_restart()
                    self._launch()
                    break
                except CoordinationError as error:
                    self._failure.failed(str(error))

    def _wait(self) -> int:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        code = process.wait()
        with suppress(OSError):
            process.stdin.close()  # the end of a program whose shell was killed alone
        return code


def _how(code: int) -> str:
    if code < 0 or code > 128:
        return f"killed by signal {-code if code < 0 else code - 128}"
    return f"exit code {code}"
