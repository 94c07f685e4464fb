"""One broker and workers on one machine: messages per second, and what a message costs in CPU time.

The servers run at once and are measured by turns, each by librdkafka, once with large batches and once with requests of
a few messages. The rate of one machine of two cores says little, since the clients take their share of both; the CPU
time per message says how rates grow with cores: where it stays the same, N workers on N free cores do N times as much.
What a server takes while it is idle, an etcd in the case of workers, is measured before and does not count.
"""

import time
from contextlib import ExitStack
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

    def __init__(self, running: RunningBroker) -> None:
        self._running = running
        self.rates: list[float] = []
        self.costs: list[float] = []
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        self.idle_cores = 0.0

    def measure_idle(self) -> None:
        before = self._cpu_seconds()
        time.sleep(IDLE_S)
        self.idle_cores = (self._cpu_seconds() - before) / IDLE_S

    def round(self, messages: int, settings: dict[str, object]) -> None:
        before = self._cpu_seconds()
        given = {"bootstrap.servers": self._running.bootstrap, "acks": "1", **settings}
        self.rates.append(librdkafka_rate(given, TOPIC, messages, partitions=PARTITIONS))
        idle_seconds = self.idle_cores * messages / self.rates[-1]
        self.costs.append((self._cpu_seconds() - before - idle_seconds) / messages * 1e6)

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the parent, the workers and their etcd."""
        processes = [self._running.process, *self._running.process.children(recursive=True)]
        return sum(times.user + times.system for times in map(psutil.Process.cpu_times, processes))


def measure() -> list[Result]:
    results = []
    for load, (messages, settings) in LOADS.items():
        with ExitStack() as stack:
            one = Side(stack.enter_context(broker()))
            several = Side(stack.enter_context(broker(None, f"workers={WORKERS}")))
            for side in (one, several):
                side.round(messages // 10, settings)
                side.rates.clear()
                side.costs.clear()
                side.measure_idle()
            for _ in range(ROUNDS):
                one.round(messages, settings)
                several.round(messages, settings)
        costs = {"1 broker us/msg": median(one.costs), "workers us/msg": median(several.costs)}
        costs |= {"1 broker idle cores": one.idle_cores, "workers idle cores": several.idle_cores}
        rates = {"1 broker msg/s": median(one.rates), "workers msg/s": median(several.rates)}
        cost = median(theirs / ours for theirs, ours in zip(several.costs, one.costs, strict=True))
        rate = median(theirs / ours for theirs, ours in zip(several.rates, one.rates, strict=True))
        name = f"{WORKERS} workers / 1 broker, {load}"
        results.append(Result(f"{name}: CPU per message", cost, "", 1.2, at_least=False, details=costs))
        results.append(Result(f"{name}: rate", rate, details=rates))
    return results


if __name__ == "__main__":
    for result in measure():
        print(result)
