"""Tiered storage: what copying costs a producer, and how fast a cold reader is against the store's own range reads.

Plain and tiered topics take turns; CPU is that of the broker. `python benchmarks/tiered.py copying` (`uploads`, `cold`,
`hot`, `direct`) measures one thing; `make bench-tiered` all that has a goal, and a restore, within twelve minutes.
"""

import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from operator import sub, truediv
from pathlib import Path
from statistics import median, quantiles

import psutil
from confluent_kafka import Producer
from harness import (
    MESSAGE_BYTES,
    BareClient,
    Result,
    broker,
    fetch_frame,
    next_offset,
    produce_frame,
    records_of,
)
from s3_sink import s3_sink

from barnabas import Admin, SimpleConsumer
from barnabas.adapters.remote_folder import FolderRemoteStorage
from barnabas.adapters.remote_s3 import S3RemoteStorage
from barnabas.adapters.storage_fs import open_log_dir
from barnabas.app.certificates import DevelopmentAuthority
from barnabas.app.clients.arrow.decode import decode_arrow
from barnabas.app.reserve_port import reserve_port
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.tiering.manifest import RemoteSegment
from barnabas.core.tiering.segment_objects import CheckedBatches
from barnabas.ports.broker_api.offsets import LATEST_TIERED
from barnabas.ports.remote_storage import ObjectInfo, RemoteStorage
from barnabas.ports.types import Position, TopicPartition
from barnabas.testing.logs import batch

MB = 1 << 20
ROUND_BYTES = 48 * MB
COPY_ROUND_BYTES, COPY_ROUNDS = 192 * MB, 7
"""A round is long enough for its first segments to be copied while the others are produced."""
SEGMENT_BYTES = 16 * MB
CHUNK = MB
COPY_COST_MAX, COLD_GOAL, HOT_MAX = 0.05, 0.5, 1.1
READ_ROUNDS = 9
UPLOADS, UPLOAD_ROUNDS = 6, 15
PATIENCE_S = 60
HOT_ROUNDS, HOT_FETCHES, READERS, READER_RATE = 6, 300, 4, 20 * MB


def _produce(bootstrap: str, topic: str, size: int = ROUND_BYTES) -> float:
    """Return the seconds until a round of records was acknowledged."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 262_144}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    producer.list_topics(topic, timeout=30)
    payload = bytes(MESSAGE_BYTES)
    began = time.perf_counter()
    for _ in range(size // MESSAGE_BYTES):
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


def _segments(storage: RemoteStorage) -> list[ObjectInfo]:
    return [each for each in storage.list_objects("") if each.key.endswith(".log")]


def _read_store(storage: RemoteStorage) -> tuple[int, float]:
    """Read all segments in the store by ranges of a fetch."""
    size = 0
    began = time.perf_counter()
    for each in _segments(storage):
        for start in range(0, each.size, CHUNK):
            size += len(storage.get_range(each.key, start, CHUNK))
    return size, time.perf_counter() - began


def _forward(listening: socket.socket, storage: RemoteStorage) -> None:
    """Send the ranges that a client asks for: what a broker would be without anything of a broker."""
    connection, _ = listening.accept()
    keys = [each.key for each in _segments(storage)]
    while asked := connection.recv(8, socket.MSG_WAITALL):
        number, start = struct.unpack(">ii", asked)
        connection.sendall(storage.get_range(keys[number], start, CHUNK))


class Forwarder:
    """A process that reads ranges of a store, and sends them to a client as bare as that of the broker."""

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        listening = socket.create_server(("127.0.0.1", 0))
        self._process = get_context("fork").Process(target=_forward, args=(listening, storage), daemon=True)
        self._process.start()
        self._client = BareClient(*listening.getsockname())
        listening.close()

    def read(self) -> tuple[int, float]:
        """Read all segments; return bytes and seconds."""
        total = 0
        began = time.perf_counter()
        for number, each in enumerate(_segments(self._storage)):
            for start in range(0, each.size, CHUNK):
                size = min(CHUNK, each.size - start)
                self._client.socket.sendall(struct.pack(">ii", number, start))
                self._client.fill(size)
                total += size
        return total, time.perf_counter() - began

    def close(self) -> None:
        self._client.close()
        self._process.join(10)


TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "0", "file.delete.delay.ms": "0"}


def _settings(url: str) -> list[str]:
    return [
        "remote.log.storage.system.enable=true",
        f"remote.log.storage.manager.class.name={url}",
        "remote.log.manager.task.interval.ms=500",
        "log.retention.check.interval.ms=500",
        f"log.segment.bytes={SEGMENT_BYTES}",
    ]


def _memory() -> str | None:
    """Return a folder in memory, so that the disk is no part of the result; None where there is none."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and os.access(folder, os.W_OK) else None


def copying(name: str, url: str, *settings: str, store: int | None = None) -> list[Result]:
    """Plain and tiered topics take turns; both keep as many bytes on local disks, so that both delete as many.

    store: the process id of the store, whose CPU would be that of another machine."""
    local_bytes = str(4 * SEGMENT_BYTES)
    configs = {
        "plain": {"retention.bytes": local_bytes, "file.delete.delay.ms": "0"},
        "tiered": {"remote.storage.enable": "true", "local.retention.bytes": local_bytes, "file.delete.delay.ms": "0"},
    }
    seconds: dict[str, list[float]] = {topic: [] for topic in configs}
    cpu: dict[str, list[float]] = {topic: [] for topic in configs}
    within: list[float] = []
    of_store: list[float] = []
    size = COPY_ROUND_BYTES / MB
    with (
        tempfile.TemporaryDirectory(dir=_memory()) as data,
        broker(Path(data), *_settings(url), *settings) as running,
        Admin(running.bootstrap) as admin,
    ):
        for topic, given in configs.items():
            admin.create_topic(topic, partitions=1, configs=given)
        for number in range(COPY_ROUNDS + 1):
            for topic in ("plain", "tiered") if number % 2 else ("tiered", "plain"):
                tp = TopicPartition(topic, 0)
                before, store_before = running.cpu_seconds(), _cpu_seconds(store)
                start = admin.list_offsets({tp: "latest"})[tp]
                took = _produce(running.bootstrap, topic, COPY_ROUND_BYTES)
                if topic == "tiered":
                    copied = admin.list_offsets({tp: LATEST_TIERED})[tp] + 1
                    share = max(0, copied - start) * MESSAGE_BYTES / COPY_ROUND_BYTES
                    _wait_until_tiered(admin, tp, Path(data) / "tiered-0")
                time.sleep(0.5)
                if number:  # the first round is a warm-up
                    seconds[topic].append(took)
                    cpu[topic].append((running.cpu_seconds() - before) * 1000 / size)
                    if topic == "tiered":
                        within.append(share)
                        of_store.append((_cpu_seconds(store) - store_before) * 1000 / size)
    details = {f"{topic} MB/s": size / median(each) for topic, each in seconds.items()}
    details["copied before the last acknowledgement"] = median(within)
    return [
        Result(
            f"seconds of a producer with copying / without, less 1, {name}",
            median(map(truediv, seconds["tiered"], seconds["plain"])) - 1,
            "",
            COPY_COST_MAX,
            at_least=False,
            details=details,
        ),
        Result(
            f"more CPU of the broker, ms per MB, {name}",
            median(map(sub, cpu["tiered"], cpu["plain"])),
            details={f"{topic} ms/MB": median(each) for topic, each in cpu.items()}
            | {"of the store's own process ms/MB": median(of_store)},
        ),
    ]


def _cpu_seconds(process_id: int | None) -> float:
    """Return the CPU time of a process; 0 for none."""
    if process_id is None:
        return 0.0
    times = psutil.Process(process_id).cpu_times()
    return float(times.user + times.system)


def _wait_until_tiered(admin: Admin, tp: TopicPartition, logs: Path) -> None:
    """Wait until all closed segments are copied."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        active = max(int(each.stem) for each in logs.glob("*.log"))
        if admin.list_offsets({tp: LATEST_TIERED})[tp] + 1 >= active:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the segments of {tp} are not copied")
        time.sleep(0.05)


def _wait_until_copied(logs: Path) -> int:
    """Wait until remote storage alone has what is closed; return the offset behind it."""
    while len(list(logs.glob("*.log"))) > 1:
        time.sleep(0.1)
    return int(next(logs.glob("*.log")).stem)


def cold_reads(name: str, url: str, storage: RemoteStorage, *settings: str) -> Result:
    """Read a topic that is in the store, one that is on the disk, and the store itself, in turns."""
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder), *_settings(url), *settings) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("plain", partitions=1)
            admin.create_topic("tiered", partitions=1, configs=TIERED)
        for topic in ("plain", "tiered", "plain", "tiered"):
            _produce(running.bootstrap, topic)
        end = _wait_until_copied(Path(folder) / "tiered-0")
        client = BareClient(running.host, running.port)
        forwarder = Forwarder(storage)
        ways: dict[str, Callable[[], tuple[int, float]]] = {
            "cold": lambda: _read(client, "tiered", end),
            "local": lambda: _read(client, "plain", end),
            "store": lambda: _read_store(storage),
            "forwarded": forwarder.read,
        }
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(READ_ROUNDS):
            for way, read in ways.items():
                size, took = read()
                rates[way].append(size / took / MB)
        forwarder.close()
        client.close()
    found = {way: median(each) for way, each in rates.items()}
    details = {f"{way} MB/s": each for way, each in found.items()}
    details |= {f"cold / {way}": found["cold"] / found[way] for way in ("local", "store")}
    title = f"cold sequential read / range reads of the store sent over a socket, {name}"
    return Result(title, found["cold"] / found["forwarded"], "", COLD_GOAL, details=details)


def direct_reads() -> Result:
    """Measure a load that reads a cold topic to Arrow through the broker, or would from ranges of the store: CPU of
    both sides."""
    cpu: dict[str, list[float]] = {"through the broker": [], "its broker alone": [], "from the store": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as data,
        broker(Path(data), *_settings(f"file://{folder}")) as running,
    ):
        with Admin(running.bootstrap) as admin:
            admin.create_topic("tiered", partitions=1, configs=TIERED)
        for _ in range(4):
            _produce(running.bootstrap, "tiered")
        end = _wait_until_copied(Path(data) / "tiered-0")
        storage, codecs = FolderRemoteStorage(Path(folder)), NO_CODECS
        segments = _segments(storage)
        for _ in range(READ_ROUNDS):
            own, of_broker = time.process_time(), running.cpu_seconds()
            with SimpleConsumer(running.bootstrap) as consumer:
                rows = sum(len(table) for table in consumer.read_arrow("tiered", 0, 0, end))
            of_broker = running.cpu_seconds() - of_broker
            cpu["through the broker"].append(time.process_time() - own + of_broker)
            cpu["its broker alone"].append(of_broker)
            own = time.process_time()
            direct = sum(
                len(columns)
                for each in segments
                for columns in decode_arrow(storage.get_range(each.key, 0, each.size), codecs)
            )
            cpu["from the store"].append(time.process_time() - own)
            assert direct == rows == end, (direct, rows, end)
    size = sum(each.size for each in segments) / MB
    found = {f"{way}, ms/MB": 1000 * median(each) / size for way, each in cpu.items()}
    direct_cost = median(cpu["from the store"]) / median(cpu["through the broker"])
    return Result("CPU of a load from ranges of the store / through the broker", direct_cost, details=found)


def _read_at_pace(host: str, port: int, topic: str, end: int, began: Event, stop: Event, sizes: "Queue[int]") -> None:
    """Read a topic again and again, at a rate that leaves the machine room; then say how many bytes that were."""
    client = BareClient(host, port)
    began.set()
    offset = total = 0
    while not stop.is_set():
        due = time.perf_counter() + CHUNK / READER_RATE
        records = records_of(client.exchange(fetch_frame(topic, 0, offset, CHUNK)), topic)
        total += len(records)
        offset = next_offset(records) if len(records) else 0
        if offset >= end:
            offset = 0
        time.sleep(max(0.0, due - time.perf_counter()))
    client.close()
    sizes.put(total)


def _hot_fetches(client: BareClient, count: int) -> list[float]:
    """Return the seconds of fetches of one record each, which was produced just before."""
    found = []
    for _ in range(count):
        answer = client.exchange(produce_frame("hot", 0, bytes(batch(bytes(MESSAGE_BYTES)))))

        offset = int.from_bytes(answer[4 + 4 + 2 + 3 + 4 + 4 + 2 :][:8], "big")
        began = time.perf_counter()
        records = records_of(client.exchange(fetch_frame("hot", 0, offset, CHUNK)), "hot")
        found.append(time.perf_counter() - began)
        assert len(records)
        time.sleep(0.002)
    return found


def hot_fetches() -> Result:
    """Hot fetches during reads of old records, which come from the store or, for comparison, from local segments."""
    processes = get_context("fork")
    found: dict[str, list[float]] = {"alone": [], "plain": [], "tiered": []}
    read_bytes, seconds = dict.fromkeys(found, 0), dict.fromkeys(found, 0.0)
    cpu = dict.fromkeys(found, 0.0)
    sizes: Queue[int] = processes.Queue()
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as data,
        broker(Path(data), *_settings(f"file://{folder}")) as running,
    ):
        with Admin(running.bootstrap) as admin:
            admin.create_topic("hot", partitions=1, configs={"retention.ms": "-1"})
            admin.create_topic("plain", partitions=1)
            admin.create_topic("tiered", partitions=1, configs=TIERED)
        for topic in ("plain", "tiered", "plain", "tiered"):
            _produce(running.bootstrap, topic)
        end = _wait_until_copied(Path(data) / "tiered-0")
        client = BareClient(running.host, running.port)
        _hot_fetches(client, 200)
        for _ in range(HOT_ROUNDS):
            for topic, times in found.items():
                stop = processes.Event()
                begun = [processes.Event() for _ in range(READERS if topic != "alone" else 0)]
                place = running.host, running.port, topic, end
                readers = [processes.Process(target=_read_at_pace, args=(*place, each, stop, sizes)) for each in begun]
                for each in readers:
                    each.start()
                for event in begun:
                    event.wait(30)
                began, of_broker = time.perf_counter(), running.cpu_seconds()
                times.extend(_hot_fetches(client, HOT_FETCHES))
                stop.set()
                read_bytes[topic] += sum(sizes.get(timeout=30) for _ in readers)
                for each in readers:
                    each.join(30)
                seconds[topic] += time.perf_counter() - began
                cpu[topic] += running.cpu_seconds() - of_broker
        client.close()
    p99 = {name: quantiles(times, n=100)[98] * 1000 for name, times in found.items()}
    title = f"p99 of hot fetches, {READERS} readers of remote storage / {READERS} readers of local segments"
    details = {f"{name} ms": each for name, each in p99.items()}
    for name in ("plain", "tiered"):
        details[f"{name} MB/s"] = read_bytes[name] / seconds[name] / MB
        own_cpu = cpu[name] - cpu["alone"] * seconds[name] / seconds["alone"]
        details[f"{name} CPU of the broker, ms/MB"] = own_cpu * 1000 / (read_bytes[name] / MB)
    return Result(title, p99["tiered"] / p99["plain"], "", HOT_MAX, at_least=False, details=details)


def in_folder() -> Result:
    """Measure ranges of a folder in the page cache: its ranges cost a copy in memory."""
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


def copying_to_folder() -> list[Result]:
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        return copying("folder", f"file://{folder}")


def copying_to_s3() -> list[Result]:
    """Copy to a server that throws the bytes away, by HTTP and by HTTPS; its CPU would be that of another machine."""
    found = []
    keys = ["rsm.config.access.key.id=x", "rsm.config.secret.access.key=y"]
    with tempfile.TemporaryDirectory() as folder:
        authority = DevelopmentAuthority(Path(folder))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(authority.issue("store", ("127.0.0.1",), 2).path)
        os.environ["SSL_CERT_FILE"] = str(authority.path)
        for name, context, checksum in (
            ("HTTP", None, "sha256"),
            ("HTTP, CRC only", None, "crc64nvme"),
            ("HTTPS", tls, "crc64nvme"),
        ):
            with s3_sink(context) as (endpoint, store):
                settings = [f"rsm.config.endpoint={endpoint}", f"rsm.config.payload.checksum={checksum}", *keys]
                found += copying(f"S3 by {name}", "s3://bucket/k", *settings, store=store)
        del os.environ["SSL_CERT_FILE"]
    return found


def _segment() -> tuple[bytes, RemoteSegment]:
    """Return batches of a quarter of a megabyte, as a closed segment has them, and what a manifest says of it."""
    values = [os.urandom(MESSAGE_BYTES) for _ in range(1_200)]
    one, content, offset = bytearray(batch(*values)), bytearray(), 0
    while len(content) + len(one) <= SEGMENT_BYTES:
        one[:8], one[12:16] = offset.to_bytes(8, "big"), bytes(4)  # the CRC covers neither offset nor leader epoch
        content += one
        offset += len(values)
    remote = RemoteSegment(
        segment_id="00",
        base_offset=0,
        next_offset=offset,
        size=len(content),
        max_timestamp=1000,
        epochs=((0, 0),),
        leader_epoch=0,
        has_aborted=False,
    )
    return bytes(content), remote


def uploads() -> list[Result]:
    """Copy a segment by the adapter alone, without a broker: CPU by what protects the payload. The ways take turns."""
    content, remote = _segment()
    keys = {"access.key.id": "x", "secret.access.key": "y"}
    cpu: dict[str, list[float]] = {}
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(dir=_memory()))
        authority = DevelopmentAuthority(Path(folder))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(authority.issue("store", ("127.0.0.1",), 2).path)
        os.environ["SSL_CERT_FILE"] = str(authority.path)
        file = opened.enter_context(closing(open_log_dir(Path(folder) / "data"))).folder("tiered-0").open("0.log")
        file.append(content)
        stores = {}
        for scheme, context, ways in (
            ("HTTP", None, ("sha256", "crc64nvme")),
            ("HTTPS", tls, ("sha256", "none", "crc64nvme")),
        ):
            endpoint, _ = opened.enter_context(s3_sink(context))
            for way in ways:
                settings = {"endpoint": endpoint, "payload.checksum": way, **keys}
                stores[f"{scheme} {way}"] = S3RemoteStorage("bucket", "k", settings)
        del os.environ["SSL_CERT_FILE"]

        def read_and_check() -> None:
            CheckedBatches(file.region(Position(0), len(content)), remote).finish()

        def upload(storage: RemoteStorage) -> None:
            checked = CheckedBatches(file.region(Position(0), len(content)), remote)
            storage.put("segment", checked)
            checked.finish()

        works = {"read and check alone": read_and_check} | {way: partial(upload, each) for way, each in stores.items()}
        for number in range(UPLOAD_ROUNDS + 1):
            for way, work in works.items():
                began = time.process_time()
                for _ in range(UPLOADS):
                    work()
                if number:  # the first round is a warm-up
                    spent = (time.process_time() - began) * 1000 / (UPLOADS * len(content) / MB)
                    cpu.setdefault(way, []).append(spent)
    return [
        Result(
            f"CPU of an upload by {scheme}, {after} / {before}",
            median(map(truediv, cpu[f"{scheme} {after}"], cpu[f"{scheme} {before}"])),
            details={f"{way} ms/MB": median(each) for way, each in cpu.items() if way.split()[0] in (scheme, "read")},
        )
        for scheme, before, after in (("HTTP", "sha256", "crc64nvme"), ("HTTPS", "none", "crc64nvme"))
    ]


WORKS: dict[str, tuple[Callable[[], list[Result]], ...]] = {
    "copying": (copying_to_s3, copying_to_folder),
    "uploads": (uploads,),
    "cold": (lambda: [in_folder()], lambda: [in_s3()]),
    "hot": (lambda: [hot_fetches()],),
    "direct": (lambda: [direct_reads()],),
}


def measure() -> list[Result]:
    return [each for works in WORKS.values() for work in works for each in work()]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or WORKS:
        for work in WORKS[chosen]:
            for each in work():
                print(each.line(), flush=True)
