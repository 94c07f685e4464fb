"""Tiered storage: what copying costs a producer, and how fast a cold reader is beside the store's own range reads.

Plain and tiered topics take turns; CPU is that of the broker.
"""

import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from harness import MESSAGE_BYTES, BareClient, Result, broker, fetch_frame, next_offset, records_of

from barnabas import Admin
from barnabas.adapters.remote_folder import FolderRemoteStorage
from barnabas.adapters.remote_s3 import S3RemoteStorage
from barnabas.app.reserve_port import reserve_port
from barnabas.ports.remote_storage import RemoteStorage

MB = 1 << 20
ROUND_BYTES, ROUNDS = 48 * MB, 4
SEGMENT_BYTES = 16 * MB
CHUNK = MB
COPY_COST_MAX, COLD_GOAL = 0.05, 0.5


def _produce(bootstrap: str, topic: str) -> float:
    """Return the seconds until a round of records was acknowledged."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 262_144}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    producer.list_topics(topic, timeout=30)
    payload = bytes(MESSAGE_BYTES)
    began = time.perf_counter()
    for _ in range(ROUND_BYTES // MESSAGE_BYTES):
        producer.produce(topic, payload, partition=0)
        producer.poll(0)
    assert producer.flush(120) == 0
    return time.perf_counter() - began


def _read(client: BareClient, topic: str, end: int) -> tuple[int, float]:
    """Read a topic from its beginning; return bytes and seconds."""
    offset = size = 0
    began = time.perf_counter()
    while offset < end:
        records = records_of(client.exchange(fetch_frame(topic, 0, offset, CHUNK)), topic)
        size += len(records)
        offset = next_offset(records) if len(records) else offset
    return size, time.perf_counter() - began


def _read_store(storage: RemoteStorage) -> tuple[int, float]:
    """Read all segments in the store by ranges of a fetch."""
    size = 0
    began = time.perf_counter()
    for each in storage.list_objects(""):
        if each.key.endswith(".log"):
            for start in range(0, each.size, CHUNK):
                size += len(storage.get_range(each.key, start, CHUNK))
    return size, time.perf_counter() - began


TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "0", "file.delete.delay.ms": "0"}


def _settings(url: str) -> list[str]:
    return [
        "remote.log.storage.system.enable=true",
        f"remote.log.storage.manager.class.name={url}",
        "remote.log.manager.task.interval.ms=500",
        "log.retention.check.interval.ms=500",
        f"log.segment.bytes={SEGMENT_BYTES}",
    ]


def copying() -> list[Result]:
    """The store is in the broker's memory, so that its disk does not count."""
    seconds = {"plain": 0.0, "tiered": 0.0}
    cpu = {"plain": 0.0, "tiered": 0.0}
    with broker(None, *_settings("memory://benchmark")) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("plain", partitions=1)
            admin.create_topic("tiered", partitions=1, configs=TIERED)
        for number in range(ROUNDS):
            for topic in ("plain", "tiered") if number % 2 else ("tiered", "plain"):
                before = running.cpu_seconds()
                seconds[topic] += _produce(running.bootstrap, topic)
                time.sleep(2)  # what is left is copied
                cpu[topic] += running.cpu_seconds() - before
    total = ROUND_BYTES * ROUNDS / MB
    rates = {f"{name} MB/s": total / each for name, each in seconds.items()}
    more = 1000 * (cpu["tiered"] - cpu["plain"]) / total
    return [
        Result(
            "seconds of a producer with copying / without, less 1",
            seconds["tiered"] / seconds["plain"] - 1,
            "",
            COPY_COST_MAX,
            at_least=False,
            details=rates,
        ),
        Result("more CPU of the broker, ms per MB", more, details=cpu),
    ]


def cold_reads(name: str, url: str, storage: RemoteStorage, *settings: str) -> Result:
    """Read a topic that is in the store, one that is on the disk, and the store itself, in turns."""
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder), *_settings(url), *settings) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("plain", partitions=1)
            admin.create_topic("tiered", partitions=1, configs=TIERED)
        for topic in ("plain", "tiered", "plain", "tiered"):
            _produce(running.bootstrap, topic)
        logs = Path(folder) / "tiered-0"
        while len(list(logs.glob("*.log"))) > 1:
            time.sleep(0.1)
        end = int(next(logs.glob("*.log")).stem)
        client = BareClient(running.host, running.port)
        cold = store = local = 0.0
        for _ in range(5):
            size, took = _read(client, "tiered", end)
            cold += size / took / 5 / MB
            size, took = _read(client, "plain", end)
            local += size / took / 5 / MB
            size, took = _read_store(storage)
            store += size / took / 5 / MB
        client.close()
    details = {"cold MB/s": cold, "local MB/s": local, "store MB/s": store, "cold / local": cold / local}
    title = f"cold sequential read / range reads of the store, {name}"
    return Result(title, cold / store, "", COLD_GOAL, details=details)


def in_folder() -> Result:
    """The folder is in the page cache: its ranges cost a copy in memory."""
    with tempfile.TemporaryDirectory() as folder:
        return cold_reads("folder", f"file://{folder}", FolderRemoteStorage(Path(folder)))


def in_s3() -> Result:
    """Moto's server runs in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        with ExitStack() as ports:
            port = reserve_port("127.0.0.1", ports)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with (Path(folder) / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
            try:
                endpoint = f"http://127.0.0.1:{port}"
                _wait_and_put(f"{endpoint}/bucket")
                settings = {"endpoint": endpoint, "access.key.id": "x", "secret.access.key": "y"}
                given = [f"rsm.config.{name}={value}" for name, value in settings.items()]
                return cold_reads("S3 by moto", "s3://bucket/k", S3RemoteStorage("bucket", "k", settings), *given)
            finally:
                server.terminate()


def _wait_and_put(url: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


def measure() -> list[Result]:
    return [*copying(), in_folder(), in_s3()]


if __name__ == "__main__":
    for result in measure():
        print(result)
