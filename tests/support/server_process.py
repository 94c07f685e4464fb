"""A server that is not ours in a process group of its own; its log says why it does not start."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.waiting import wait_for

START_PATIENCE_S = 300
END_PATIENCE_S = 120


class ServerProcess:
    """Inherit, and say by `serves` when the server is ready."""

    name: str

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def serves(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Returns at once; see `wait_ready`."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Returns once the server serves: alone, or as a member of a quorum."""
        try:
            wait_for(self._serves_or_ended, START_PATIENCE_S)
        except TimeoutError as error:
            text = (self._folder / "server.log").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"{self.name} did not start: {text}") from error

    def _serves_or_ended(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise TimeoutError("it ended")
        return self.serves()

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Stop all threads; connections stay open. The kernel stops them one by one: until then some still answer."""
        self._signal(signal.SIGSTOP)
        wait_for(lambda: _are_stopped(self.pid))

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """True from `start` to `kill` or `stop`."""
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        os.killpg(self._process.pid, how)
        try:
            self._process.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(END_PATIENCE_S)
        self._process = None


def _are_stopped(pid: int) -> bool:
    try:
        states = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:  # a thread has ended, or this system has no /proc
        return not Path("/proc/self/task").exists()
    return all(text.rpartition(")")[2].split()[0] == "T" for text in states)


def start_all(servers: Sequence[ServerProcess]) -> None:
    """Start servers that need each other, and wait for them; none is left running if one does not start."""
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready()
    except BaseException:
        for server in servers:
            server.kill()
        raise
