"""Transactions on three brokers: the CPU time of small ones, and large ones compared with idempotent produce.

    python benchmarks/cluster_transactions.py [small | large | all] [OTHER | kafka]

OTHER is the folder with another version (a folder `barnabas` in it), which is measured in the same run; `kafka` is
Apache Kafka.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median

import psutil
from attrs import define, field
from cluster import all_in_sync, cluster, cpu_seconds, wait_until
from confluent_kafka import Producer
from harness import MESSAGE_BYTES, Result
from kafka_cluster import kafka_cluster

from barnabas import Admin
from barnabas.core.coordinator.table import partition_of

TOPIC, TRANSACTIONAL_ID = "bench", "bench"
SMALL, LARGE, MESSAGES, ROUNDS = 300, 40, 1_000, 6
GOAL_MS, GOAL_LARGE = 5.0, 0.6

_CONFIG = {"linger.ms": 1, "queue.buffering.max.messages": 500_000, "delivery.report.only.error": True, "log_level": 0}


@define
class Measured:
    """One cluster with its producers, and what each round of it took."""

    brokers: list[psutil.Process]
    plain: Producer
    transactional: Producer
    partition: int
    small_cpu_ms: list[float] = field(factory=list)
    small_ms: list[float] = field(factory=list)
    small_mean_ms: list[float] = field(factory=list)
    large: dict[str, list[float]] = field(factory=dict)

    @classmethod
    def start(cls, bootstrap: str, brokers: list[psutil.Process]) -> "Measured":
        with Admin(bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=3, replication_factor=3)
            wait_until(lambda: all_in_sync(admin, TOPIC), 30, "replicas in sync")
        servers = {"bootstrap.servers": bootstrap}
        transactional = Producer({**_CONFIG, **servers, "transactional.id": TRANSACTIONAL_ID})
        transactional.init_transactions(60)
        plain = Producer({**_CONFIG, **servers, "enable.idempotence": True})
        measured = cls(brokers, plain, transactional, _partition_elsewhere(bootstrap))
        measured.transactions(20, 1)
        measured.portions(2)
        return measured

    def transactions(self, count: int, messages: int) -> list[float]:
        """Commit transactions of that many messages; the milliseconds of each."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.transactional.begin_transaction()
            self._send(self.transactional, messages)
            self.transactional.commit_transaction(60)
            times.append((time.perf_counter() - began) * 1e3)
        return times

    def portions(self, count: int) -> None:
        """Send as many messages, without transactions, and wait for each portion."""
        for _ in range(count):
            self._send(self.plain, MESSAGES)
            if self.plain.flush(60):
                raise RuntimeError("not all messages were sent")

    def _cpu_ms(self) -> float:
        return cpu_seconds(self.brokers) * 1e3

    def _send(self, producer: Producer, messages: int) -> None:
        payload = bytes(MESSAGE_BYTES)
        for _ in range(messages):
            producer.produce(TOPIC, payload, partition=self.partition)

    def round_of_small(self) -> None:
        cpu = self._cpu_ms()
        times = self.transactions(SMALL, 1)
        self.small_cpu_ms.append((self._cpu_ms() - cpu) / SMALL)
        self.small_ms.append(median(times))
        self.small_mean_ms.append(fmean(times))

    def round_of_large(self) -> None:
        works: dict[str, Callable[[], object]] = {
            "transactions": lambda: self.transactions(LARGE, MESSAGES),
            "portions": lambda: self.portions(LARGE),
        }
        for name, work in works.items():
            cpu, began = self._cpu_ms(), time.perf_counter()
            work()
            self.large.setdefault(name, []).append(time.perf_counter() - began)
            self.large.setdefault(f"{name}, CPU", []).append(self._cpu_ms() - cpu)


def _partition_elsewhere(bootstrap: str) -> int:
    """Return a partition whose leader is not the coordinator, as of two in three: it costs two requests more."""
    with Admin(bootstrap) as admin:
        topic, log = admin.describe_topics([TOPIC, "__transaction_state"])
        coordinator = log.partitions[partition_of(TRANSACTIONAL_ID, len(log.partitions))].leader
        return next(each.partition for each in topic.partitions if each.leader != coordinator)


@contextmanager
def _started(other: str | None) -> Iterator[Measured]:
    """Measure this version, another one, or Apache Kafka."""
    if other == "kafka":
        with (
            tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch,
            kafka_cluster(Path(scratch)) as (bootstrap, processes),
        ):
            yield Measured.start(bootstrap, [psutil.Process(each) for each in processes])
        return
    if other is not None:
        os.environ["PYTHONPATH"] = other
    with cluster() as running:
        yield Measured.start(running.bootstrap, list(running.brokers().values()))


def measure(what: str = "all", other: str | None = None) -> list[Result]:
    with ExitStack() as stack:
        clusters = {"": stack.enter_context(_started(None))}
        if other is not None:
            clusters["other: "] = stack.enter_context(_started(other))
        for number in range(ROUNDS):
            for measured in list(clusters.values())[:: 1 if number % 2 else -1]:
                if what in ("small", "all"):
                    measured.round_of_small()
                if what in ("large", "all"):
                    measured.round_of_large()
        return [result for name, each in clusters.items() for result in _results(name, each)]


def _results(name: str, measured: Measured) -> list[Result]:
    results = []
    if measured.small_cpu_ms:
        details = {"least ms": min(measured.small_cpu_ms), "median latency ms": median(measured.small_ms)}
        details["transactions/s"] = 1e3 / median(measured.small_mean_ms)
        title = f"{name}3 brokers, a transaction of one record: CPU"
        results.append(Result(title, median(measured.small_cpu_ms), "ms", GOAL_MS, at_least=False, details=details))
    if measured.large:
        of = {key: median(values) for key, values in measured.large.items()}
        details = {
            "CPU ms of a transaction": of["transactions, CPU"] / LARGE,
            "of as many messages idempotent": of["portions, CPU"] / LARGE,
            "ms": of["transactions"] / LARGE * 1e3,
            "idempotent ms": of["portions"] / LARGE * 1e3,
        }
        title = f"{name}3 brokers, transactions of {MESSAGES:,} / idempotent, as many at a time"
        results.append(Result(title, of["portions"] / of["transactions"], "", GOAL_LARGE, details=details))
    return results


if __name__ == "__main__":
    for each in measure(*sys.argv[1:]):
        print(each.name, f"{each.ratio:.2f}", {key: round(value, 2) for key, value in each.details.items()})
