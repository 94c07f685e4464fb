"""The time from a produce of one record until it is acknowledged, 1,000 of them a second: three brokers with acks=all,
and one broker with acks=1, each compared with Apache Kafka's.

Each request has its time to leave, whether others are answered or not, and its latency counts from that time on: what
waits behind a slow answer is slow, too (no coordinated omission).

    python benchmarks/cluster_latency.py [three | one]
"""

import select
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from cluster import all_in_sync, cluster, wait_until
from harness import BareClient, Result, broker, produce_frame
from kafka_cluster import KafkaUnavailable, kafka_cluster

from barnabas import Admin, Message
from barnabas.core.message.batch_writer import encode_batch

TOPIC = "latency"
RATE, SECONDS, WARM_SECONDS, ROUNDS = 1_000, 4.0, 4.0, 3


def _leader(bootstrap: str, replicas: int) -> tuple[str, int]:
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, replication_factor=replicas)
        wait_until(lambda: all_in_sync(admin, TOPIC), 30, "replicas in sync")
        leader = admin.describe_topics([TOPIC])[0].partitions[0].leader
        node = next(each for each in admin.describe_cluster().brokers if each.node_id == leader)
        return node.host, node.port


def _latencies(client: BareClient, frame: bytes, seconds: float) -> list[float]:
    """Return milliseconds of each request at the rate."""
    total, sent, times = int(RATE * seconds), 0, list[float]()
    sock, started = client.socket, time.perf_counter()
    while len(times) < total:
        now = time.perf_counter()
        while sent < total and started + sent / RATE <= now:
            sock.sendall(frame)
            sent += 1
        wait = started + sent / RATE - time.perf_counter() if sent < total else 10.0
        if select.select([sock], [], [], max(0.0, wait))[0]:
            answer = client.receive()
            error = int.from_bytes(answer[4 + 4 + 2 + len(TOPIC) + 4 + 4 :][:2], "big", signed=True)
            if error:
                raise RuntimeError(f"produce failed with error {error}")
            times.append((time.perf_counter() - started - len(times) / RATE) * 1000.0)
    return times


def measure_one(bootstrap: str, replicas: int, acks: int) -> tuple[float, float]:
    """Return the median and the 99th percentile, each the best of some rounds, in milliseconds."""
    batch = bytes(encode_batch([Message(value=bytes(200))], now_ms=int(time.time() * 1000)))
    frame = produce_frame(TOPIC, 0, batch, acks=acks)
    client = BareClient(*_leader(bootstrap, replicas))
    client.socket.settimeout(30)
    _latencies(client, frame, WARM_SECONDS)
    rounds = [sorted(_latencies(client, frame, SECONDS)) for _ in range(ROUNDS)]
    client.close()
    return min(each[len(each) // 2] for each in rounds), min(each[int(len(each) * 0.99)] for each in rounds)


@contextmanager
def _kafka(brokers: int) -> Iterator[str | None]:
    """The bootstrap of brokers of Apache Kafka; None where it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        try:
            running = kafka_cluster(Path(scratch), brokers)
        except KafkaUnavailable as error:
            print(f"Apache Kafka cannot be had here: {error}", flush=True)
            yield None
            return
        with running as (bootstrap, _):
            yield bootstrap


def three() -> list[Result]:
    with cluster() as running:
        brokers = list(running.brokers().values())
        before = _cpu_seconds(brokers)
        p50, p99 = measure_one(running.bootstrap, 3, -1)
        per_message = (_cpu_seconds(brokers) - before) / (RATE * (WARM_SECONDS + SECONDS * ROUNDS)) * 1e6
    details = {"p99 ms": p99, "us of CPU a message, three brokers": per_message}
    with _kafka(3) as bootstrap:
        if bootstrap is not None:
            details["Apache Kafka ms"], details["Apache Kafka p99 ms"] = measure_one(bootstrap, 3, -1)
    return [
        Result("3 brokers, acks=all at 1,000/s: median", p50, "ms", 2.0, at_least=False, details=details),
        Result("3 brokers, acks=all at 1,000/s: p99", p99, "ms", 10.0, at_least=False),
    ]


def one() -> list[Result]:
    with broker(None) as running:
        p50, p99 = measure_one(running.bootstrap, 1, 1)
    with _kafka(1) as bootstrap:
        if bootstrap is None:
            return [Result("1 broker at 1,000/s: median", p50, "ms", details={"p99 ms": p99})]
        theirs, theirs_p99 = measure_one(bootstrap, 1, 1)
    details = {"ms": p50, "Apache Kafka ms": theirs}
    details_p99 = {"ms": p99, "Apache Kafka ms": theirs_p99}
    return [
        Result("1 broker at 1,000/s: median / Apache Kafka", p50 / theirs, "", 0.8, at_least=False, details=details),
        Result(
            "1 broker at 1,000/s: p99 / Apache Kafka", p99 / theirs_p99, "", 0.5, at_least=False, details=details_p99
        ),
    ]


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def measure() -> list[Result]:
    return three() + one()


if __name__ == "__main__":
    for result in {"three": three, "one": one}[sys.argv[1]]() if sys.argv[1:] else measure():
        print(result)
