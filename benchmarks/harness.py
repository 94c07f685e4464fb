"""Helpers of the benchmarks: a broker in a process of its own, a bare Kafka client, and a form for results."""

import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from attrs import field, frozen
from confluent_kafka import Producer

MESSAGE_BYTES = 200
PROGRAM = Path(sys.executable).parent / "barnabas"


@frozen
class Result:
    """One line of the report. `ratio` is what the line is about; `bound` is the goal and `at_least` its direction."""

    name: str
    ratio: float
    unit: str = ""
    bound: float | None = None
    at_least: bool = True
    details: dict[str, float] = field(factory=dict)

    @property
    def met(self) -> bool | None:
        if self.bound is None:
            return None
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    def line(self) -> str:
        figure = f"{self.ratio:.3g} {self.unit}".strip()
        goal = ""
        if self.bound is not None:
            goal = f"{'≥' if self.at_least else '≤'} {self.bound:g}"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        details = "  ".join(f"{name} {value:,.4g}" for name, value in self.details.items())
        return f"{self.name:<52} {figure:>12}  {goal:>8}  {verdict:<7} {details}".rstrip()


@frozen
class RunningBroker:
    """A `barnabas serve` process."""

    process: psutil.Process
    host: str
    port: int
    seconds_to_ready: float

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(self.process.memory_info().rss)


def librdkafka_rate(settings: dict[str, object], topic: str, messages: int, *, partitions: int = 1) -> float:
    """Return messages per second that librdkafka produces with these settings, until all are acknowledged."""
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {"linger.ms": 5, "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000}
        | {"delivery.report.only.error": True, "on_delivery": delivered}
        | settings
    )
    producer.list_topics(topic, timeout=30)
    payload = bytes(MESSAGE_BYTES)
    started = time.perf_counter()
    for number in range(messages):
        while True:
            try:
                producer.produce(topic, payload, partition=number // 1000 % partitions)
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


@contextmanager
def broker(
    data: Path | None = None, *settings: str, scheme: str = "kafka", program: Path = PROGRAM
) -> Iterator[RunningBroker]:
    """Run a broker with a listener of that scheme on a free port; its folder goes afterwards unless it was given."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        command = [str(program), "serve", "--data", str(data or scratch)]
        command += ["--listen", f"{scheme}://127.0.0.1:0", "--log-level", "warning"]
        for setting in settings:
            command += ["--set", setting]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.perf_counter() - started
            if not line.startswith("barnabas ready "):
                raise RuntimeError(f"the broker did not start: {line!r}")
            host, _, port = line.split()[2].partition("://")[2].rpartition(":")
            yield RunningBroker(psutil.Process(process.pid), host, int(port), seconds)
        finally:
            process.terminate()
            process.wait(30)


class BareClient:
    """Kafka requests as plain bytes, so that the client's own cost stays small and the same for every server."""

    def __init__(self, host: str, port: int, *, buffer_bytes: int = 4 * 1024 * 1024) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(buffer_bytes)

    def close(self) -> None:
        self.socket.close()

    def exchange(self, frame: bytes) -> memoryview:
        """Send a frame (with its length), wait for the answer (without its length)."""
        self.socket.sendall(frame)
        return self.receive()

    def receive(self) -> memoryview:
        """Wait for an answer (without its length); valid until the next one."""
        self.fill(4)
        size = int.from_bytes(self.buffer[:4], "big")
        if size > len(self.buffer):
            self.buffer = bytearray(size)
        self.fill(size)
        return memoryview(self.buffer)[:size]

    def fill(self, size: int) -> None:
        """Receive this number of bytes into the buffer."""
        view = memoryview(self.buffer)
        done = 0
        while done < size:
            got = self.socket.recv_into(view[done:size])
            if got == 0:
                raise ConnectionError("the broker closed the connection")
            done += got


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    content = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    """Produce v3."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return _frame(0, 3, body)


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int, isolation: int = 0) -> bytes:
    """Fetch v11 (what knows zstd gets regions of files), answered at once; isolation 1: of committed records."""
    body = struct.pack(">iiiibii", -1, 0, 0, max_bytes, isolation, 0, -1) + struct.pack(">i", 1) + _text(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    return _frame(1, 11, body + struct.pack(">i", 0) + _text(""))


def records_of(answer: memoryview, topic: str) -> memoryview:
    """Return the record bytes of a Fetch v11 answer about one partition."""
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4
    _, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
    if error:
        raise RuntimeError(f"fetch failed with error {error}")
    at += 34 + 16 * max(0, aborted)
    _, size = struct.unpack_from(">ii", answer, at)
    return answer[at + 8 : at + 8 + size]


def next_offset(records: memoryview) -> int:
    """Return the offset after the last whole batch."""
    at, offset = 0, -1
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        offset = base + int(struct.unpack_from(">i", records, at + 23)[0]) + 1
        at += 12 + length
    return offset
