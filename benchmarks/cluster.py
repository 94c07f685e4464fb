"""Three brokers, as `barnabas cluster start` runs them, for the benchmarks of clusters."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from attrs import frozen
from harness import PROGRAM

from barnabas import Admin, ApiError

STOP_S = 60


@frozen
class RunningCluster:
    """A `barnabas cluster start` process, the brokers below it, and their etcd."""

    process: psutil.Process
    addresses: tuple[str, ...]
    data: Path

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def brokers(self) -> dict[int, psutil.Process]:
        """Broker id → process, of those that run now."""
        found = {}
        for child in self.process.children():
            for word in child.cmdline():
                if match := re.fullmatch(r"broker\.id=(\d+)", word):
                    found[int(match[1])] = child
        return found

    def etcd(self) -> list[psutil.Process]:
        return [child for child in self.process.children(recursive=True) if "etcd" in Path(child.cmdline()[0]).name]


@contextmanager
def cluster(
    *settings: str, brokers: int = 3, restart: bool = True, program: Path = PROGRAM
) -> Iterator[RunningCluster]:
    """Run a cluster on free ports; its folder goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        command = [str(program), "cluster", "start", "--data", scratch]
        command += ["--brokers", str(brokers), "--base-port", "0", "--log-level", "warning"]
        command += [] if restart else ["--no-restart"]
        for setting in settings:
            command += ["--set", setting]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("barnabas cluster ready "):
                raise RuntimeError(f"the cluster did not start: {line!r}")
            yield RunningCluster(psutil.Process(process.pid), tuple(line.split()[3].split(",")), Path(scratch))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)


def cpu_seconds(processes: Iterator[psutil.Process] | list[psutil.Process]) -> float:
    """Return the CPU time of all threads, to the nanosecond where Linux has it."""
    return sum(_cpu_seconds_of(process) for process in processes)


def _cpu_seconds_of(process: psutil.Process) -> float:
    tasks = Path(f"/proc/{process.pid}/task")
    if (tasks / str(process.pid) / "schedstat").exists():
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    times = process.cpu_times()
    return float(times.user + times.system)


def wait_until(condition: Callable[[], bool], patience_s: float, what: str, pause_s: float = 0.02) -> float:
    """Seconds that it took. Raises `TimeoutError`."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > patience_s:
            raise TimeoutError(f"{what}: not within {patience_s} s")
        time.sleep(pause_s)
    return time.perf_counter() - began


def all_in_sync(admin: Admin, topic: str) -> bool:
    """Return True when every partition has a leader and all its replicas in sync."""
    try:
        partitions = admin.describe_topics([topic])[0].partitions
    except ApiError:  # the broker that was asked does not know the new topic yet
        return False
    return all(p.leader >= 0 and len(p.isr) == len(p.replicas) for p in partitions)
