"""Measure memory, disk, file descriptors and CPU time of partitions, connections and traffic, for docs/capacity.md.

To repeat: `make bench ARGS=capacity`; `PARTITIONS=1000` for fewer. CPU time and bytes depend little on other work.
"""

import os
import socket
import tempfile
from pathlib import Path

from harness import MESSAGE_BYTES, Result, RunningBroker, broker, librdkafka_rate

from barnabas import Admin, Consumer, Producer

PARTITIONS = int(os.environ.get("PARTITIONS", "5000"))
CONNECTIONS = 1_000
MESSAGES = 1_000_000


def _disk_bytes(data: Path) -> int:
    """Return the bytes of the blocks in use; the lengths would count the holes of indexes."""
    return sum(path.lstat().st_blocks * 512 for path in data.rglob("*"))


def _of_partitions(data: Path) -> list[Result]:
    with broker(data) as running, Admin(running.bootstrap) as admin:
        before = running.resident_bytes(), running.process.num_fds(), _disk_bytes(data)
        for first in range(0, PARTITIONS, 500):
            admin.create_topic(f"many-{first}", partitions=min(500, PARTITIONS - first))
        empty = running.resident_bytes(), _disk_bytes(data)
        with Producer(running.bootstrap, delivery_timeout_ms=600_000) as producer:
            for number in range(PARTITIONS):
                producer.send(f"many-{number // 500 * 500}", bytes(MESSAGE_BYTES), partition=number % 500)
            producer.flush(600)
        written = running.resident_bytes(), running.process.num_fds(), _disk_bytes(data)
    each = PARTITIONS / 1000  # kilobytes of one are thousandths of a thousandth
    return [
        Result("memory of a partition without messages", (empty[0] - before[0]) / each / 1e6, "KB"),
        Result("memory of a partition with messages", (written[0] - before[0]) / each / 1e6, "KB"),
        Result("disk of a partition without messages", (empty[1] - before[2]) / each / 1e6, "KB"),
        Result("disk of a partition with one message", (written[2] - before[2]) / each / 1e6, "KB"),
        Result(f"file descriptors with {PARTITIONS} partitions", written[1], details={"before": before[1]}),
    ]


def _of_connections() -> list[Result]:
    with broker() as running:
        before = running.resident_bytes(), running.process.num_fds()
        opened = [socket.create_connection((running.host, running.port)) for _ in range(CONNECTIONS)]
        with Admin(running.bootstrap) as admin:
            admin.describe_cluster()  # the broker has taken all that came before
        after = running.resident_bytes(), running.process.num_fds()
        for each in opened:
            each.close()
    return [
        Result("memory of an idle connection", (after[0] - before[0]) / CONNECTIONS / 1e3, "KB"),
        Result("file descriptors of a connection", (after[1] - before[1]) / CONNECTIONS),
    ]


def _cpu_per_megabyte(running: RunningBroker, topic: str, settings: dict[str, object]) -> float:
    before = running.cpu_seconds()
    librdkafka_rate({"bootstrap.servers": running.bootstrap, **settings}, topic, MESSAGES)
    return (running.cpu_seconds() - before) * 1e3 / (MESSAGES * MESSAGE_BYTES / 1e6)


def _of_traffic(data: Path) -> list[Result]:
    with broker(data) as running:
        with Admin(running.bootstrap) as admin:
            for name in ("batches", "small"):
                admin.create_topic(name, partitions=1)
        _cpu_per_megabyte(running, "batches", {})  # warm
        batches = _cpu_per_megabyte(running, "batches", {})
        small = _cpu_per_megabyte(running, "small", {"batch.num.messages": 10, "linger.ms": 0})
        size = sum(path.stat().st_size for path in (data / "batches-0").glob("*.log"))
        before = running.cpu_seconds()
        with Consumer(running.bootstrap) as consumer:
            consumer.assign("batches", position="earliest")
            count = sum(1 for _ in consumer.messages(stop_at_end=True))
        fetched = (running.cpu_seconds() - before) * 1e3 / (count * MESSAGE_BYTES / 1e6)
    return [
        Result("broker's CPU per MB produced, full batches", batches, "ms"),
        Result("broker's CPU per MB produced, batches of 10", small, "ms"),
        Result("broker's CPU per MB fetched", fetched, "ms"),
        Result(f"disk per message of {MESSAGE_BYTES} bytes", size / count, "bytes"),
    ]


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as many, tempfile.TemporaryDirectory() as traffic:
        return [*_of_partitions(Path(many)), *_of_connections(), *_of_traffic(Path(traffic))]
