"""One broker and workers on one machine: messages per second, and what a message costs in CPU time.

The servers run at once and are measured by turns, each by librdkafka, once with large batches and once with requests of
a few messages. The rate of one machine of two cores says little, since the clients take their share of both; the CPU
time per message says how rates grow with cores: where it stays the same, N workers on N free cores do N times as much.
What a server takes while it is idle, an etcd in the case of workers, is measured before and does not count.

Two brokers that know nothing of each other, with a producer each, compared with one broker with two
producers, show what two processes on the same cores cost, without anything of workers.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
from harness import Result, RunningBroker, broker, librdkafka_rate

from barnabas import Admin

WORKERS = 2
PARTITIONS = 8
ROUNDS = 5
IDLE_S = 5.0
LOADS: dict[str, tuple[int, dict[str, object]]] = {
    "large batches": (1_000_000, {"linger.ms": 5}),
    "10 messages a request": (60_000, {"linger.ms": 5, "batch.num.messages": 10}),
}
TOPIC = "bench"


class Side:
    """One of the servers, and its figures of all rounds."""

    def __init__(self, *running: RunningBroker, producers: int = 1) -> None:
        """A server of one or more brokers, and the number of producers, of which each writes into one of them."""
        self._running = running
        self._bootstraps = [running[number % len(running)].bootstrap for number in range(producers)]
        self._partitions = PARTITIONS // producers
        self.rates: list[float] = []
        self.costs: list[float] = []
        for each in running:
            with Admin(each.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=PARTITIONS)
        self.idle_cores = 0.0

    def measure_idle(self) -> None:
        before = self._cpu_seconds()
        time.sleep(IDLE_S)
        self.idle_cores = (self._cpu_seconds() - before) / IDLE_S

    def round(self, messages: int, settings: dict[str, object]) -> None:
        before = self._cpu_seconds()

        def produce(bootstrap: str) -> None:
            given = {"bootstrap.servers": bootstrap, "acks": "1", **settings}
            librdkafka_rate(given, TOPIC, messages // len(self._bootstraps), partitions=self._partitions)

        started = time.perf_counter()
        with ThreadPoolExecutor() as threads:
            list(threads.map(produce, self._bootstraps))
        self.rates.append(messages / (time.perf_counter() - started))
        idle_seconds = self.idle_cores * messages / self.rates[-1]
        self.costs.append((self._cpu_seconds() - before - idle_seconds) / messages * 1e6)

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the parent, the workers and their etcd."""
        parents = [each.process for each in self._running]
        processes = [*parents, *(child for parent in parents for child in parent.children(recursive=True))]
        return sum(map(_nanoseconds, processes)) / 1e9


def _nanoseconds(process: psutil.Process) -> int:
    """Return the CPU time of all threads; the times of `psutil` have steps of 10 ms."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"))


def measure() -> list[Result]:
    results = []
    for load, (messages, settings) in LOADS.items():
        with ExitStack() as stack:
            one = Side(stack.enter_context(broker()))
            several = Side(stack.enter_context(broker(None, f"workers={WORKERS}")))
            shared = Side(stack.enter_context(broker()), producers=WORKERS)
            separate = Side(*(stack.enter_context(broker()) for _ in range(WORKERS)), producers=WORKERS)
            for side in (one, several, shared, separate):
                side.round(messages // 10, settings)
                side.rates.clear()
                side.costs.clear()
                side.measure_idle()
            for _ in range(ROUNDS):
                for side in (one, several, shared, separate):
                    side.round(messages, settings)
        costs = {"1 broker us/msg": median(one.costs), "workers us/msg": median(several.costs)}
        costs |= {"1 broker idle cores": one.idle_cores, "workers idle cores": several.idle_cores}
        rates = {"1 broker msg/s": median(one.rates), "workers msg/s": median(several.rates)}
        cost = median(theirs / ours for theirs, ours in zip(several.costs, one.costs, strict=True))
        rate = median(theirs / ours for theirs, ours in zip(several.rates, one.rates, strict=True))
        name = f"{WORKERS} workers / 1 broker, {load}"
        results.append(Result(f"{name}: CPU per message", cost, "", 1.2, at_least=False, details=costs))
        results.append(Result(f"{name}: rate", rate, details=rates))
        control = median(two / alone for two, alone in zip(separate.costs, shared.costs, strict=True))
        alone_costs = {"1 broker us/msg": median(shared.costs), "separate us/msg": median(separate.costs)}
        name = f"{WORKERS} separate brokers / 1 broker, {WORKERS} producers, {load}: CPU per message"
        results.append(Result(name, control, details=alone_costs))
    return results


if __name__ == "__main__":
    for result in measure():
        print(result)
