"""The loader's process as seen from outside: orders, answers, and whom one may kill."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 240.0


class Loader:
    """Starts with a Spark session of its own; all its processes are in one group."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        command = [sys.executable, "-P", "-m", "table_kills.loader", bootstrap, str(folder / "java.log")]
        self._errors = (folder / "loader.stderr").open("ab")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(folder)},
        )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.answer("ready")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):  # the last line of a killed process
                self._answers.put(json.loads(line))
        self._answers.put(None)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def order(self, **order: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def answer(self, *wanted: str) -> dict[str, Any]:
        """Return the next answer of these kinds, or `dead`. Raises `TimeoutError`."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self._answers.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"the loader does not say {' or '.join(wanted)}") from None
            if found is None:
                return {"event": "dead"}
            if found["event"] in wanted:
                return found

    def kill_driver(self) -> None:
        self.process.kill()

    def kill_java(self) -> bool:
        return self._kill("java", 1)

    def kill_worker(self) -> bool:
        """Kill one of the Python processes in which Spark's tasks run."""
        return self._kill("python", 2)

    def _kill(self, name: str, depth: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            above = psutil.Process(self.process.pid)
            found = [each for each in above.children() if each.name().startswith("java")]
            if depth == 2:
                found = [
                    each for java in found for each in java.children(recursive=True) if each.name().startswith(name)
                ]
            if found:
                found[-1].kill()
                return True
        return False

    def end(self) -> None:
        """With all that is of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
