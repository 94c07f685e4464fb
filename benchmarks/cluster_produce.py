"""librdkafka into three brokers with acks=all, compared with one broker and acks=1, and with Apache Kafka's three."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import all_in_sync, cluster, wait_until
from confluent_kafka import Producer
from harness import MESSAGE_BYTES, Result, broker
from kafka_cluster import KafkaUnavailable, kafka_cluster

from barnabas import Admin

MESSAGES = 600_000
PARTITIONS = 3
ROUNDS = 3
TOPIC = "bench"


def produce(bootstrap: str, messages: int, acks: str) -> float:
    """Messages per second until all are acknowledged."""
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 5, "delivery.report.only.error": True}
        | {"queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000, "on_delivery": delivered}
    )
    producer.list_topics(TOPIC, timeout=30)
    payload = bytes(MESSAGE_BYTES)
    started = time.perf_counter()
    for number in range(messages):
        while True:
            try:
                producer.produce(TOPIC, payload, partition=number // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 20_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - started
    if left or failed:
        raise RuntimeError(f"{left} messages were not sent, {failed} failed")
    return messages / seconds


def make_topic(bootstrap: str, replicas: int) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=replicas)
        wait_until(lambda: all_in_sync(admin, TOPIC), 30, "replicas in sync")


@contextmanager
def _kafka() -> Iterator[str | None]:
    """The bootstrap of three brokers of Apache Kafka; None where it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        try:
            running = kafka_cluster(Path(scratch))
        except KafkaUnavailable as error:
            print(f"Apache Kafka cannot be had here: {error}", flush=True)
            yield None
            return
        with running as bootstrap:
            yield bootstrap


def _best(bootstrap: str, acks: str, replicas: int) -> float:
    make_topic(bootstrap, replicas)
    produce(bootstrap, MESSAGES // 10, acks)
    return max(produce(bootstrap, MESSAGES, acks) for _ in range(ROUNDS))


def measure() -> list[Result]:
    with broker(None, f"num.partitions={PARTITIONS}") as one:
        alone = _best(one.bootstrap, "1", 1)
    with cluster() as three:
        replicated = _best(three.bootstrap, "all", 3)
    results = [
        Result(
            "3 brokers, 3 replicas, acks=all / 1 broker, acks=1",
            replicated / alone,
            "",
            0.35,
            details={"3 brokers msg/s": replicated, "1 broker msg/s": alone},
        )
    ]
    with _kafka() as bootstrap:
        if bootstrap is not None:
            theirs = _best(bootstrap, "all", 3)
            name = "3 brokers, 3 replicas, acks=all / Apache Kafka's"
            results.append(Result(name, replicated / theirs, "", 1.0, details={"Apache Kafka msg/s": theirs}))
    return results
