"""A member of a share group and a plain consumer: librdkafka's `ShareConsumer` and `Consumer` read the same small
messages of one partition, each in a process and a group of its own, by turns.

At our broker, and at Apache Kafka's where its jars and Java are there: for each the ratio of the two rates. Both
brokers store the states of the records with every acknowledgement. The time runs from the first message to the last;
the best of the rounds counts.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka as confluent
from harness import Result, broker
from kafka_cluster import KafkaUnavailable, kafka_cluster

from barnabas import Admin, Producer
from barnabas.ports.broker_api.configs import ResourceKind

TOPIC = "bench"
MESSAGE_BYTES = 100
MESSAGES = 300_000
BATCH = 500
ROUNDS = 3
GOAL = 0.5
PATIENCE_S = 120
CLIENTS = ("Consumer", "ShareConsumer")


def _rate(client: str, bootstrap: str, group: str) -> float:
    """Return messages per second, from the first to the last."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group}
    consumer: Any
    if client == "Consumer":
        consumer = confluent.Consumer({**settings, "auto.offset.reset": "earliest"})
    else:
        consumer = confluent.ShareConsumer(settings)
    consumer.subscribe([TOPIC])
    count, before, first = 0, 0, 0.0
    deadline = time.monotonic() + PATIENCE_S
    while count < MESSAGES:
        found = consumer.consume(BATCH, 1.0) if client == "Consumer" else consumer.poll(1.0)
        if found and not first:
            first, before = time.perf_counter(), len(found)
        count += len(found)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{client} has got {count} messages")
    rate = (count - before) / (time.perf_counter() - first)
    consumer.close()
    return rate


def _run(client: str, bootstrap: str, group: str) -> float:
    command = [sys.executable, __file__, client, bootstrap, group]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S + 60)
    return float(json.loads(answer.stdout))


def _measured(bootstrap: str) -> dict[str, float]:
    """Return the best rate of each client at one broker."""
    rates = dict.fromkeys(CLIENTS, 0.0)
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic(TOPIC, partitions=1)
        for _ in range(MESSAGES // BATCH):
            producer.send_many(TOPIC, [bytes(MESSAGE_BYTES)] * BATCH, partition=0)
        producer.flush()
        for _ in range(ROUNDS):
            for client in CLIENTS:
                group = f"bench-{uuid4()}"
                if client == "ShareConsumer":
                    admin.alter_configs(ResourceKind.GROUP, group, {"share.auto.offset.reset": "earliest"})
                rates[client] = max(rates[client], _run(client, bootstrap, group))
    return rates


@contextmanager
def _kafka() -> Iterator[str | None]:
    """The address of a broker of Apache Kafka; None where there is none."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        try:
            running = kafka_cluster(Path(scratch), 1, settings=settings)
        except KafkaUnavailable as error:
            print(f"without Apache Kafka: {error}", flush=True)
            yield None
            return
        with running as (bootstrap, _):
            yield bootstrap


def measure() -> Iterable[Result]:
    with broker(None, "group.initial.rebalance.delay.ms=0") as running:
        ours = _measured(running.bootstrap)
    yield Result(
        "share fetch, ShareConsumer / Consumer", ours["ShareConsumer"] / ours["Consumer"], bound=GOAL, details=ours
    )
    with _kafka() as bootstrap:
        if bootstrap is not None:
            theirs = _measured(bootstrap)
            ratio = theirs["ShareConsumer"] / theirs["Consumer"]
            yield Result("share fetch at Apache Kafka, ShareConsumer / Consumer", ratio, details=theirs)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(_rate(*sys.argv[1:])))
    else:
        for result in measure():
            print(result)
