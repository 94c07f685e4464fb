"""A broker with 1,000 partitions of real batches: how it starts, what its recovery reads, and what a request costs.

To repeat: `make bench ARGS=many_partitions` (3 GB of disk for a minute); `PARTITIONS=100 MEGABYTES=10` for others.
"""

import os
import shutil
import struct
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from crc32c import crc32c
from harness import BareClient, Result, broker, fetch_frame, produce_frame, records_of

from barnabas import Admin, Message
from barnabas.core.log.producers.producer_state import ProducerStates
from barnabas.core.log.producers.snapshot import encode_snapshot
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.batch_writer import encode_batch

TOPIC = "many"
PARTITIONS = int(os.environ.get("PARTITIONS", "1000"))
BYTES_EACH = int(os.environ.get("MEGABYTES", "3")) << 20
SEGMENTS = 3
MESSAGES = 320
ROUNDS = 3_000
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def _content(base: int, size: int) -> tuple[bytes, int]:
    """Return about `size` bytes of batches of 200-byte messages that begin at `base`, and the offset where they end."""
    batch = bytearray(encode_batch([Message(value=os.urandom(200)) for _ in range(MESSAGES)], now_ms=1_700_000_000_000))
    content = bytearray()
    while len(content) < size:
        assign_offset(batch, base, 0)
        content += batch
        base += MESSAGES
    return bytes(content), base


def _fill(data: Path) -> int:
    """Write the segments of every partition; returns the log end offset that all have then."""
    contents: list[tuple[int, bytes]] = []
    end = 0
    for _ in range(SEGMENTS):
        base = end
        content, end = _content(base, BYTES_EACH // SEGMENTS)
        contents.append((base, content))
    for partition in range(PARTITIONS):
        folder = data / f"{TOPIC}-{partition}"
        for old in (*folder.glob("*.log"), *folder.glob("*.index"), *folder.glob("*.timeindex")):
            old.unlink()
        for base, content in contents:
            (folder / f"{base:020d}.log").write_bytes(content)
            if base:  # a roll leaves one
                (folder / f"{base:020d}.snapshot").write_bytes(encode_snapshot(ProducerStates()))
    return end


def _crash(data: Path, recovery_point: int) -> None:
    """Leave the folder as a power cut does, with this recovery point of every partition of the topic."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    lines = [f"{TOPIC} {partition} {recovery_point}" for partition in range(PARTITIONS)]
    (data / RECOVERY_POINTS).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def _plain_scan(data: Path) -> float:
    """Seconds to read the same files and to take their CRC-32C, piece by piece: what no recovery can beat."""
    started = time.perf_counter()
    for partition in range(PARTITIONS):
        for path in (data / f"{TOPIC}-{partition}").glob("*.log"):
            crc = 0
            with path.open("rb", buffering=0) as file:
                while piece := file.read(1 << 20):
                    crc = crc32c(piece, crc)
    return time.perf_counter() - started


class Start(NamedTuple):
    """Time from process start to ready. The second figure also holds on a busy machine."""

    seconds: float
    cpu_seconds: float


def _start(data: Path | None = None) -> Start:
    with broker(data) as running:
        return Start(running.seconds_to_ready, running.cpu_seconds())


def _starts(data: Path) -> list[Result]:
    megabytes = PARTITIONS * BYTES_EACH / 1e6
    with broker(data) as running, Admin(running.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    end = _fill(data)
    _crash(data, 0)
    whole = _start(data)
    plain = _plain_scan(data)
    in_order = min(_start(data) for _ in range(3))
    _crash(data, end)
    from_points, nothing = _start(data), _start()
    seconds, cpu_seconds = whole.seconds - nothing.seconds, whole.cpu_seconds - nothing.cpu_seconds
    return [
        Result(
            f"orderly stop, then start with {PARTITIONS} partitions",
            in_order.seconds,
            "s",
            3,
            at_least=False,
            details={"CPU s": in_order.cpu_seconds, "MB in all": megabytes},
        ),
        Result(
            "start after a crash, all durable / nothing durable",
            from_points.seconds / whole.seconds,
            details={
                "s from the recovery points": from_points.seconds,
                "CPU s": from_points.cpu_seconds,
                "s from the beginning": whole.seconds,
                "CPU s of it": whole.cpu_seconds,
            },
        ),
        Result("recovery scan", megabytes / seconds, "MB/s", 300, details={"MB per CPU s": megabytes / cpu_seconds}),
        Result("recovery scan / a plain CRC-32C of the files", plain / seconds, details={"s plain": plain}),
    ]


def _costs(data: Path) -> list[Result]:
    """Return a produce and a fetch at a broker with one partition and, in turn with it, at one with many, all in
    turn."""
    batch = bytes(encode_batch([Message(value=bytes(200))], now_ms=1_700_000_000_000))
    produce: dict[int, list[float]] = {1: [], PARTITIONS: []}
    fetch: dict[int, list[float]] = {1: [], PARTITIONS: []}
    with broker() as one, broker(data) as many:
        with Admin(one.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        clients = {1: BareClient(one.host, one.port), PARTITIONS: BareClient(many.host, many.port)}
        for number in range(ROUNDS):
            for count, client in clients.items():
                partition = number % count
                started = time.perf_counter()
                answer = client.exchange(produce_frame(TOPIC, partition, batch))
                produce[count].append(time.perf_counter() - started)
                (offset,) = struct.unpack_from(">q", answer, 4 + 4 + 2 + len(TOPIC) + 4 + 4 + 2)
                started = time.perf_counter()
                answer = client.exchange(fetch_frame(TOPIC, partition, offset, 4096))
                fetch[count].append(time.perf_counter() - started)
                if len(records_of(answer, TOPIC)) != len(batch):
                    raise RuntimeError(f"{TOPIC}-{partition}: offset {offset} was not read back")
        for client in clients.values():
            client.close()
        resident = many.resident_bytes() / 1e6
        details = {"MB with one": one.resident_bytes() / 1e6}
    memory = Result(f"memory with {PARTITIONS} written partitions", resident, "MB", 50, at_least=False, details=details)
    return [memory] + [
        _ratio(f"{name}: cost with {PARTITIONS} partitions per broker / with one", costs[PARTITIONS], costs[1])
        for name, costs in (("produce", produce), ("fetch", fetch))
    ]


def _ratio(name: str, many: list[float], few: list[float]) -> Result:
    many, few = many[PARTITIONS:], few[PARTITIONS:]  # the first round opens the files
    details = {"us of many": median(many) * 1e6, "us of one": median(few) * 1e6}
    return Result(name, median(many) / median(few), "", 1.3, at_least=False, details=details)


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", ignore_cleanup_errors=True) as scratch:
        data = Path(scratch) / "data"
        results = [*_starts(data), *_costs(data)]
        shutil.rmtree(data)
    return results
