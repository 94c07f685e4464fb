"""Apache Kafka's own Java tools, which measure producing and consuming, with a broker here and one of Apache Kafka.

Both brokers run at once and are measured by turns; a ratio is the median of those of the rounds. The records have 200
bytes, the topic one partition.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
from attrs import define, field
from cluster import cpu_seconds
from harness import MESSAGE_BYTES, Result, broker
from kafka_cluster import KafkaUnavailable, jars, kafka_cluster

from barnabas import Admin

RECORDS = 1_000_000
ROUNDS = 4
TOPIC = "bench"
LIMIT_S = 120


@define
class _Side:
    """A server, with what each round of it took."""

    bootstrap: str
    cpu: Callable[[], float]
    rates: dict[str, list[float]] = field(factory=dict)
    cpu_us: dict[str, list[float]] = field(factory=dict)

    def round(self, number: int) -> None:
        topic = f"{TOPIC}-{number}"
        with Admin(self.bootstrap) as admin:
            admin.create_topic(topic, partitions=1, replication_factor=1)
        words = ["--topic", topic, "--num-records", str(RECORDS)]
        sizes = ["--record-size", str(MESSAGE_BYTES), "--throughput", "-1"]
        server = ["--producer-props", f"bootstrap.servers={self.bootstrap}"]
        self._measure("produce", "ProducerPerformance", [*words, *sizes, *server], _produced)
        self._measure(
            "consume",
            "ConsumerPerformance",
            [*words, "--bootstrap-server", self.bootstrap, "--timeout", "60000"],
            _consumed,
        )

    def _measure(self, what: str, tool: str, words: list[str], rate: Callable[[str], float]) -> None:
        before = self.cpu()
        command = ["java", "-Xmx512m", "-cp", jars.broker_classpath(), f"org.apache.kafka.tools.{tool}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        self.rates.setdefault(what, []).append(rate(done.stdout))
        self.cpu_us.setdefault(what, []).append((self.cpu() - before) / RECORDS * 1e6)


def _produced(text: str) -> float:
    return float(re.findall(r"([\d.]+) records/sec", text)[-1])


def _consumed(text: str) -> float:
    """Return the records per second of the fetching, without the joining of the group."""
    names, values = [line.split(", ") for line in text.splitlines() if ", " in line][-2:]
    return float(dict(zip(names, values, strict=True))["fetch.nMsg.sec"])


def measure() -> Iterator[Result]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        ours = stack.enter_context(broker())
        try:
            bootstrap, pids = stack.enter_context(kafka_cluster(scratch, 1))
        except KafkaUnavailable as error:
            print(f"Apache Kafka cannot be had here: {error}", flush=True)
            return
        processes = [psutil.Process(pid) for pid in pids]
        sides = [_Side(ours.bootstrap, ours.cpu_seconds), _Side(bootstrap, lambda: cpu_seconds(processes))]
        for number in range(ROUNDS + 1):
            for side in sides[:: 1 if number % 2 else -1]:
                side.round(number)
    for what, goal in (("produce", 1.3), ("consume", 1.2)):
        rates, costs = ([getattr(side, name)[what][1:] for side in sides] for name in ("rates", "cpu_us"))
        details = {"msg/s": median(rates[0]), "Apache Kafka msg/s": median(rates[1])}
        details["CPU ratio"] = median(costs[0]) / median(costs[1])
        yield Result(f"Java {what} / Apache Kafka's rate", _median_ratio(*rates), "", goal, details=details)


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    return median(one / other for one, other in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    for each in measure():
        print(each.name, f"{each.ratio:.2f}", {key: round(value, 2) for key, value in each.details.items()})
