"""A cluster in processes of its own, as `barnabas cluster start` runs it."""

import os
import selectors
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from support.process import COMMAND
from support.waiting import wait_for

START_PATIENCE_S = 300
STOP_PATIENCE_S = 300


class ClusterProcess:
    """`barnabas cluster start` on free ports. Its log is kept for when something goes wrong."""

    def __init__(self, data: Path, *words: str) -> None:
        self.log_file = data.with_name(data.name + ".stderr")
        command = [str(COMMAND), "cluster", "start", "--data", str(data), "--base-port", "0", *words]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        self.ready_line = self._first_line()
        if not self.ready_line.startswith("barnabas cluster ready "):
            self.stop()
            raise RuntimeError(f"the cluster did not start: {self.log()}")
        self.addresses = self.ready_line.split()[3].split(",")
        self.bootstrap = ",".join(self.addresses)

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return self.process.stdout.readline().decode() if selector.select(START_PATIENCE_S) else ""

    def broker(self, number: int) -> psutil.Process:
        """Return the process of a broker, by its id."""
        words = f"broker.id={number}"
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = [each for each in psutil.Process(self.process.pid).children() if words in each.cmdline()]
            return bool(found)

        wait_for(look)
        return found[0]

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM, unless it has ended; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # its children see that it is gone, and stop
            self.process.wait(STOP_PATIENCE_S)
            raise
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()


@contextmanager
def cluster_process(data: Path, *words: str) -> Iterator[ClusterProcess]:
    """Run a cluster; stopped at the end if the test has not done so."""
    cluster = ClusterProcess(data, *words)
    try:
        yield cluster
    finally:
        cluster.stop()
