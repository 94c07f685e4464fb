"""librdkafka into three brokers with acks=all, compared with one broker and acks=1, and with Apache Kafka's three; and
reading one partition of three brokers, compared with Apache Kafka's three."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from cluster import all_in_sync, cluster, wait_until
from harness import Result, broker, librdkafka_rate
from kafka_cluster import KafkaUnavailable, kafka_cluster

from barnabas import Admin

MESSAGES = 600_000
READ = 400_000
PARTITIONS = 3
ROUNDS = 3
TOPIC = "bench"


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
        with running as (bootstrap, _):
            yield bootstrap


def _best(bootstrap: str, acks: str, replicas: int) -> float:
    make_topic(bootstrap, replicas)
    settings: dict[str, object] = {"bootstrap.servers": bootstrap, "acks": acks}
    librdkafka_rate(settings, TOPIC, MESSAGES // 10, partitions=PARTITIONS)
    return max(librdkafka_rate(settings, TOPIC, MESSAGES, partitions=PARTITIONS) for _ in range(ROUNDS))


def _best_read(bootstrap: str) -> float:
    """Return messages per second that librdkafka reads from one partition, after what `_best` has written."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    rates = []
    for _ in range(ROUNDS + 1):
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        count = len(consumer.consume(1, 30))  # it is connected
        started = time.perf_counter()
        while count < READ:
            some = consumer.consume(1000, 30)
            assert some, "nothing came within 30 s"
            count += len(some)
        rates.append(READ / (time.perf_counter() - started))
        consumer.close()
    return max(rates)


def measure() -> list[Result]:
    with broker(None, f"num.partitions={PARTITIONS}") as one:
        alone = _best(one.bootstrap, "1", 1)
    with cluster() as three:
        replicated = _best(three.bootstrap, "all", 3)
        read = _best_read(three.bootstrap)
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
            theirs, their_read = _best(bootstrap, "all", 3), _best_read(bootstrap)
            name = "3 brokers, 3 replicas, acks=all / Apache Kafka's"
            results.append(Result(name, replicated / theirs, "", 2.0, details={"Apache Kafka msg/s": theirs}))
            details = {"msg/s": read, "Apache Kafka msg/s": their_read}
            results.append(
                Result("3 brokers, reading 1 partition / Apache Kafka's", read / their_read, "", 1.2, details=details)
            )
    return results
