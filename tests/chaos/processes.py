"""Clients that run in processes (`chaos.child`), so that one that deadlocks holds up neither the others nor the run."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen
from chaos.clients import Worker
from chaos.history import Commit, History, Poll, Replacement
from support.waiting import PATIENCE_S

TESTS = Path(__file__).resolve().parents[1]
REACT_S = 20.0
"""Any client that is alive answers a question that needs no broker within this time, on a busy machine too."""
DEBUGGER_S = 60.0
FRAMES = 14


@frozen
class Program:
    """The program of a process: the class of `chaos.child`, and its arguments."""

    where: str
    settings: dict[str, Any]


class Child:
    """One process. `on_report` is called on a thread of the parent with the kind and value of each line."""

    def __init__(self, program: Program, on_report: Callable[[str, Any], None]) -> None:
        self._on_report = on_report
        self._reaction = threading.Event()
        self._abandoned = False
        self.answer = ""
        """The last answer of the client."""
        self.failure = ""
        """The error that ended the client."""
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "chaos.child", program.where, json.dumps(program.settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def reacts(self, patience_s: float | None = None) -> bool:
        """Ask what a client can answer without a broker; return False if it has no answer within `REACT_S`."""
        self._reaction.clear()
        self._send_command("react")
        return self._reaction.wait(REACT_S if patience_s is None else patience_s) or self.has_ended

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ask_to_stop(self) -> None:
        self._send_command("stop")

    def wait(self, patience_s: float) -> bool:
        """Return True if the process has ended, and all that it reported has been handled."""
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        self._thread.join()
        self._close()
        return True

    def kill(self) -> None:
        """kill -9; what the process has reported before is handled."""
        self._abandoned = True
        self._process.kill()
        self.wait(PATIENCE_S)

    def _send_command(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has ended

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # a word that it never read
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        ended = False
        with self._process.stdout as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # it was killed while it wrote
                kind, value = json.loads(line)
                if kind == "reaction":
                    self.answer = value
                    self._reaction.set()
                elif kind == "died":
                    self.failure = value
                elif kind == "ended":
                    ended = True
                else:
                    self._on_report(kind, value)
        code = self._process.wait()
        if not (ended or self._abandoned or self.failure):
            self.failure = f"the process ended with {code}"
        if self.failure:
            self._on_report("failed", self.failure)

    def stacks(self) -> str:
        """Return the stacks of librdkafka's threads, or what each thread waits for where there is no debugger."""
        debugger = shutil.which("gdb")
        if debugger is not None:
            words = [debugger, "-p", str(self.pid), "-batch", "-nx", "-ex", f"thread apply all bt {FRAMES}"]
            try:
                done = subprocess.run(words, capture_output=True, timeout=DEBUGGER_S, check=False, text=True)
            except subprocess.TimeoutExpired:
                return "the debugger did not come to an end"
            text = done.stdout
            if "\nThread " in text:
                return text[text.index("\nThread ") + 1 :]
        waits = []
        for task in sorted(Path(f"/proc/{self.pid}/task").glob("*")):
            try:
                name, place = (task / "comm").read_text().strip(), (task / "wchan").read_text().strip()
            except OSError:
                continue
            waits.append(f"{name} waits in {place}")
        return "\n".join(waits)


class ReaderProcess(Worker):
    """A reader of librdkafka in a process; what it reports is appended to the history of this one.

    `replace` kills the process and starts a fresh one: a member of a group continues from the group's committed
    offsets, a reader of the complete topic begins at its start.
    """

    role = "chaos.clients:ReaderRole"

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        clock: Callable[[], float],
        *,
        group: str | None = None,
        protocol: str = "classic",
        role: str | None = None,
    ) -> None:
        super().__init__(name, history, bootstrap, clock)
        settings = {"name": name, "bootstrap": bootstrap, "group": group, "protocol": protocol}
        self._program = Program(role or self.role, settings)
        self._group = group
        self._sessions_before = self._session = 0
        self._lock = threading.Lock()
        self.child: Child | None = None
        self.given = 0
        """Number of messages that all processes of this reader were given."""
        if group is not None:
            history.groups[name] = group

    def start(self) -> None:
        with self._lock:
            if not self.stopping.is_set():
                self.child = Child(self._program, self._on_report)

    def replace(self) -> None:
        """Kill the process, and start a fresh one."""
        self.abandon_process()
        self._sessions_before = self._session + 1
        self.start()

    def abandon_process(self) -> None:
        with self._lock:
            child = self.child
        if child is not None:
            child.kill()

    def abandon(self) -> None:
        super().abandon()
        self.abandon_process()

    def stop(self, patience_s: float) -> None:
        """Raises what it died of, and `TimeoutError` if it reacts and does not stop; see `chaos.watchdog`."""
        self.stopping.set()
        child = self.child
        if child is None:
            return
        child.ask_to_stop()
        if not child.wait(patience_s):
            if child.reacts():
                child.kill()
                raise TimeoutError(f"{self.name} does not stop, though it reacts: {child.answer}")
            stacks = child.stacks()
            child.kill()
            self.history.replaced.append(Replacement(self.name, self.now(), "it did not react when it closed", stacks))
        if child.failure:
            raise RuntimeError(f"{self.name} died: {child.failure}")

    def _on_report(self, kind: str, value: Any) -> None:
        began = time.monotonic() - self.now()  # the processes of a machine share this clock
        if kind == "polls":
            for session, partition, offset, text, at_s in value:
                self._session = self._sessions_before + session
                self.history.polls.append(Poll(self.name, self._session, partition, offset, text, at_s - began))
            self.given += len(value)
        elif kind == "commits":
            self.history.commits += [Commit(str(self._group), p, offset, at_s - began) for p, offset, at_s in value]
        elif kind == "resets":
            self.history.resets += value
        elif kind == "failed":
            self.failure = RuntimeError(value)
