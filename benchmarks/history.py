"""`make bench-history`: a few ratios of a minute, compared with those of the runs before on this machine.

Each ratio is the CPU time of a fixed piece of Python and copying, which never changes, to the CPU time of one of our
works, in turns within each round: what slows the machine slows both. The median of the rounds is compared with the
lowest of the last runs on a machine of the same kind: on a shared machine the medians of one commit differ by a third
(`Producer.send_many`), so only what is lower than all that such runs gave says something about the code. With fewer
than `ENOUGH` runs nothing is judged: the command prints the ratios and adds them. A drop of more than 10 % is measured
up to two times more; if it stays, the command ends with 1, and the run is not added. `--show` prints the history,
`--file` names it.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from harness import MESSAGE_BYTES, BareClient, broker, fetch_frame, produce_frame, records_of

from barnabas import Admin, Consumer, Message, Producer
from barnabas.core.message.batch_writer import encode_batch

ROUNDS = 7
LAST = 10
"""The number of earlier runs that a run is compared with."""
ENOUGH = 5
"""The number of earlier runs that show how far runs of the same code differ."""
REFERENCE = 2
"""The version of the reference: ratios to another one are not compared."""
DROP = 0.10
ATTEMPTS = 3
TOPIC = "bench"
SINGLE_REQUESTS = 1_000
FETCHES, FETCH_BYTES = 60, 1_000_000
MESSAGES = 40_000
STARTS = 2

Work = Callable[[], float]
"""Does something, and returns the CPU seconds that it took."""


def reference() -> float:
    """Return the CPU seconds of a fixed piece of work: calls, dictionaries, small and large copies."""
    # The copies go into memory that exists: what a new large object costs depends on what the process has freed before
    # (mallopt(3), M_MMAP_THRESHOLD), and a second measurement in the process would not be like the first.
    data = bytes(1 << 20)
    target = memoryview(bytearray(data))
    counts: dict[int, int] = {}
    started = time.process_time()
    for number in range(60_000):
        key = number * 7919 % 1009
        counts[key] = counts.get(key, 0) + len(str(number).encode())
    for _ in range(200):
        target[:] = data
    return time.process_time() - started


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, to the nanosecond where Linux has it."""
    tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _of_children(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _start() -> float:
    """Return a broker process, until it is ready."""
    seconds = 0.0
    for _ in range(STARTS):
        with broker() as running:
            seconds += _cpu_seconds(running.process.pid)
    return seconds


def _help() -> float:
    command = [str(Path(sys.executable).parent / "barnabas"), "--help"]
    return sum(_of_children(command) for _ in range(STARTS))


@contextmanager
def works() -> Iterator[Mapping[str, Work]]:
    """Give the works that are measured: starts, requests to the broker, and our clients."""
    single = bytes(encode_batch([Message(value=bytes(MESSAGE_BYTES))], now_ms=1_700_000_000_000))
    batch = bytes(encode_batch([Message(value=os.urandom(MESSAGE_BYTES))] * 500, now_ms=1_700_000_000_000))
    values = [Message(value=bytes(MESSAGE_BYTES))] * 1_000
    with broker() as running:
        with Admin(running.bootstrap) as admin:
            for name in (TOPIC, "single", "clients"):
                admin.create_topic(name, partitions=1)
        client = BareClient(running.host, running.port)
        client.socket.settimeout(60)
        for _ in range(2 * FETCH_BYTES // len(batch)):
            client.exchange(produce_frame(TOPIC, 0, batch))
        pid = running.process.pid

        def by_broker(exchange: Callable[[], object], count: int) -> float:
            before = _cpu_seconds(pid)
            for _ in range(count):
                exchange()
            return _cpu_seconds(pid) - before

        def fetch() -> object:
            return records_of(client.exchange(fetch_frame(TOPIC, 0, 0, FETCH_BYTES)), TOPIC)

        def send() -> float:
            with Producer(running.bootstrap) as producer:
                before = time.process_time()
                for _ in range(MESSAGES // len(values)):
                    producer.send_many("clients", values, partition=0)
                producer.flush(60)
                return time.process_time() - before

        def receive() -> float:
            with Consumer(running.bootstrap) as consumer:
                consumer.assign("clients", partitions=[0], position="earliest")
                before, left = time.process_time(), MESSAGES
                while left > 0:
                    left -= len(consumer.poll_many(min(left, 1_000), timeout=60))
                return time.process_time() - before

        send()
        yield {
            "start of a broker": _start,
            "barnabas --help": _help,
            "broker: produce of one message": lambda: by_broker(
                lambda: client.exchange(produce_frame("single", 0, single)), SINGLE_REQUESTS
            ),
            "broker: fetch of 1 MB": lambda: by_broker(fetch, FETCHES),
            "Producer.send_many": send,
            "Consumer.poll_many": receive,
        }
        client.close()


def measured() -> dict[str, float]:
    """Return the median ratio of each work; more is better."""
    with works() as found:
        ratios: dict[str, list[float]] = {name: [] for name in found}
        for number in range(ROUNDS + 1):
            for name, work in found.items():
                before = reference()
                cost = work()
                if number:  # the first round warms up
                    ratios[name].append((before + reference()) / 2 / cost)
    return {name: round(median(each), 5) for name, each in ratios.items()}


def drops(ratios: Mapping[str, float], before: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the ratios that are more than `DROP` below the lowest of the last runs, as parts of that one.

    A work with fewer than `ENOUGH` earlier runs is not judged.
    """
    found = {}
    for name, ratio in ratios.items():
        earlier = [run[name] for run in before[-LAST:] if name in run]
        if len(earlier) >= ENOUGH and ratio < (1 - DROP) * min(earlier):
            found[name] = ratio / min(earlier)
    return found


def better(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the better of two runs, work by work: a disturbance makes a ratio worse, never better."""
    return {name: max(ratio, other.get(name, ratio)) for name, ratio in one.items()}


def machine() -> str:
    """Return the kind of machine: ratios of another processor or Python are others."""
    model = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def default_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("BENCH_HISTORY") or f"{cache}/barnabas/bench-history.json").expanduser()


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown"


def run(file: Path, measure: Callable[[], dict[str, float]] = measured) -> int:
    """Measure, compare and remember. Returns the exit code."""
    history: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    before = [each["ratios"] for each in history if each["machine"] == machine() and each.get("reference") == REFERENCE]
    ratios = measure()
    dropped = drops(ratios, before)
    for _ in range(ATTEMPTS - 1):
        if not dropped:
            break
        print(f"measured once more: {', '.join(dropped)}", flush=True)
        ratios = better(ratios, measure())
        dropped = drops(ratios, before)
    for name, ratio in ratios.items():
        earlier = [each[name] for each in before[-LAST:] if name in each]
        compared = (
            f"{ratio / min(earlier):.2f} of the lowest of {len(earlier)} runs" if earlier else "the first run here"
        )
        print(f"{name:<34} {ratio:>9.4f}  {compared}{'  DROPPED' if name in dropped else ''}", flush=True)
    if dropped:
        print(f"slower by more than {DROP:.0%}: {', '.join(dropped)} ({file})", flush=True)
        return 1
    if len(before) < ENOUGH:
        print(f"not judged: {len(before)} earlier runs, {ENOUGH} are needed ({file})", flush=True)
    entry = {
        "commit": _commit(),
        "time": int(time.time()),
        "machine": machine(),
        "reference": REFERENCE,
        "ratios": ratios,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as written:
        json.dump([*history, entry], written, indent=1)
    Path(written.name).replace(file)
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a few ratios with those of the runs before.")
    parser.add_argument("--file", type=Path, default=default_file())
    parser.add_argument("--show", action="store_true", help="print the history, and measure nothing")
    given = parser.parse_args()
    if given.show:
        print(given.file.read_text() if given.file.exists() else "[]")
        return
    sys.exit(run(given.file))


if __name__ == "__main__":
    main()
