"""`make bench-goals`: everything that has a goal in docs/performance.md and a command, one after the other.

`ARGS="clients fetch"` chooses some. Each work runs in a process of its own and ends at its limit, so that the whole
takes 40 minutes at most, and less on a quiet machine. Exits with 0 whatever the figures are. `--tiered` (`make
bench-tiered`) has the goals of tiered storage in place of these, in 12 minutes at most.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen
from kafka_cluster import jars, model

_HERE = Path(__file__).resolve().parent
_BARNABAS = str(Path(sys.executable).parent / "barnabas")
_COMPARE = [
    _BARNABAS,
    "bench",
    "compare",
    "--peer",
    "kafka",
    "--clients",
    "librdkafka",
    "-n",
    "500000",
    "--rounds",
    "5",
]
STOP_S = 20


@frozen
class Work:
    """One command, and the seconds after which it is stopped."""

    name: str
    limit_s: int
    words: list[str]

    def run(self, env: Mapping[str, str]) -> None:
        print(f"\n=== {self.name} (at most {self.limit_s} s)", flush=True)
        began = time.monotonic()
        process = subprocess.Popen(self.words, env=dict(env), start_new_session=True)
        try:
            process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            print(f"{self.name}: stopped after {self.limit_s} s", flush=True)
            process.send_signal(signal.SIGINT)  # it stops its servers
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        print(f"--- {self.name}: {time.monotonic() - began:.0f} s", flush=True)


def _bench(name: str, limit_s: int) -> Work:
    return Work(name, limit_s, [sys.executable, str(_HERE / "run.py"), name])


WORKS = (
    _bench("start", 30),
    _bench("test_broker_start", 120),
    _bench("fetch", 60),
    _bench("clients", 240),
    Work("compare-1p", 180, [*_COMPARE, "--partitions", "1"]),
    Work("compare-4p", 180, [*_COMPARE, "--partitions", "4"]),
    _bench("java_clients", 180),
    _bench("cluster_produce", 180),
    _bench("cluster_latency", 180),
    Work("cluster_transactions", 180, [sys.executable, str(_HERE / "cluster_transactions.py"), "all", "kafka"]),
    _bench("transactions", 90),
    _bench("create_topics", 240),
    Work("peers", 180, [sys.executable, str(_HERE / "peers.py")]),
    _bench("many_partitions", 120),
    _bench("small_requests", 120),
)


def _tiered(name: str, limit_s: int) -> Work:
    return Work(name, limit_s, [sys.executable, str(_HERE / "tiered.py"), name])


TIERED = (
    _tiered("copying", 270),
    _tiered("cold", 120),
    _tiered("hot", 90),
    Work("restore", 200, [sys.executable, str(_HERE / "restoring.py"), "2"]),
)
"""At most 680 s, and `STOP_S` for each to stop."""


def _environment(scratch: Path) -> dict[str, str]:
    """Return the environment with KAFKA_HOME, from the jars that tests use where none is given."""
    env = dict(os.environ)
    if "KAFKA_HOME" not in env:
        try:
            folder = jars.broker_classpath().removesuffix("/*")
        except model.Unavailable as error:
            print(f"Apache Kafka cannot be had here: {error}", flush=True)
        else:
            (scratch / "libs").symlink_to(folder)
            env["KAFKA_HOME"] = str(scratch)
    return env


def main(chosen: list[str]) -> None:
    works = TIERED if chosen[:1] == ["--tiered"] else WORKS
    chosen = [each for each in chosen if each != "--tiered"]
    known = [work.name for work in works]
    if unknown := set(chosen) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        env = dict(os.environ) if works is TIERED else _environment(Path(scratch))
        for work in works:
            if not chosen or work.name in chosen:
                work.run(env)


if __name__ == "__main__":
    main(sys.argv[1:])
