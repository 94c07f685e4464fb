"""Measure what moving costs: `python benchmarks/moving.py [MB] [ROUNDS]`.

An import with copies, with links, and with conversion of old messages against `cp` and fsync of the same files; an
identical mirror against bare fetches of the same bytes; and the stop of a cut-over under a producer that never rests.
All in one run, rounds interleaved; the best round of each counts.
"""

import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from confluent_kafka import Producer
from harness import PROGRAM, BareClient, RunningBroker, broker, fetch_frame, next_offset, records_of

from barnabas import Admin
from barnabas.app.mirror.identical import IdenticalMirror
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.types import TopicPartition

MB = 1 << 20
PARTITIONS = 4
VALUE_BYTES = 1000
BATCH_MESSAGES = 16
SEGMENT_BYTES = 64 * MB
LEGACY_SHARE = 4
"""Old messages are converted one by one, so fewer of them are enough."""
META = "version=1\nnode.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"


def batches(offset: int) -> tuple[bytes, int]:
    messages = [Message(os.urandom(VALUE_BYTES), timestamp_ms=1_700_000_000_000) for _ in range(BATCH_MESSAGES)]
    return bytes(encode_batch(messages, now_ms=0, base_offset=offset)), offset + BATCH_MESSAGES


def legacy(offset: int) -> tuple[bytes, int]:
    """Return one message of the format 1."""
    value = os.urandom(VALUE_BYTES)
    body = struct.pack(">bbqii", 1, 0, 1_700_000_000_000, -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), crc32(body)) + body, offset + 1


def make_folder(folder: Path, size: int, entry: Callable[[int], tuple[bytes, int]]) -> int:
    """Make a data folder of Kafka with closed segments; return its bytes."""
    folder.mkdir()
    (folder / "meta.properties").write_text(META)
    lines, total = [], 0
    for partition in range(PARTITIONS):
        place = folder / f"t-{partition}"
        place.mkdir()
        offset = written = 0
        while written < size // PARTITIONS:
            content = bytearray()
            with (place / f"{offset:020d}.log").open("wb") as segment:
                while len(content) < min(SEGMENT_BYTES, size // PARTITIONS - written):
                    made, offset = entry(offset)
                    content += made
                segment.write(content)
            written += len(content)
        lines.append(f"t {partition} {offset}")
        total += written
    (folder / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return total


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def copy_durably(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    for path in target.rglob("*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def import_into(source: Path, target: Path, *words: str) -> None:
    command = [str(PROGRAM), "import", str(source), "--into", str(target), "--json", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure_import(work: Path, size: int, rounds: int) -> None:
    new, old = work / "new", work / "old"
    sizes = {new: make_folder(new, size, batches), old: make_folder(old, size // LEGACY_SHARE, legacy)}
    start = timed(lambda: subprocess.run([str(PROGRAM), "import", "--help"], check=True, stdout=subprocess.DEVNULL))
    ways: dict[str, tuple[Path, Callable[[Path, Path], None]]] = {
        "cp and fsync": (new, copy_durably),
        "import, copies": (new, import_into),
        "import, links": (new, lambda source, target: import_into(source, target, "--link")),
        "import, conversion": (old, import_into),
    }
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    target = work / "target"
    for _ in range(rounds):
        for name, (source, way) in ways.items():
            began, used = time.perf_counter(), cpu_seconds()
            way(source, target)
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - used
            best[name] = min(best[name][0], seconds), min(best[name][1], cpu)
            shutil.rmtree(target)
    fastest = sizes[new] / best["cp and fsync"][0]
    for name, (seconds, cpu) in best.items():
        size = sizes[ways[name][0]]
        share = size / seconds / fastest
        print(
            f"{name:20} {size / MB / seconds:7.0f} MB/s, {share:.2f} of cp and fsync; "
            f"{size / MB / cpu:7.0f} MB for a second of CPU time ({seconds:.2f} s, {cpu:.2f} s)"
        )
    print(f"(the start of the command is in it: {start:.2f} s)")


def fetch_all(source: RunningBroker, ends: dict[int, int]) -> int:
    client = BareClient(source.host, source.port)
    total = 0
    for partition, end in ends.items():
        offset = 0
        while offset < end:
            records = records_of(client.exchange(fetch_frame("t", partition, offset, MB)), "t")
            total += len(records)
            offset = next_offset(records)
    client.close()
    return total


def fill(bootstrap: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.kbytes": 200_000})
    value = os.urandom(VALUE_BYTES)
    for number in range(size // VALUE_BYTES):
        while True:
            try:
                producer.produce("t", value, partition=number // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def mirror_all(source: RunningBroker, target: RunningBroker) -> float:
    made = IdenticalMirror({"bootstrap.servers": source.bootstrap}, {"bootstrap.servers": target.bootstrap}, topics="t")

    def copy() -> None:
        while not made.partitions or any(each.lag or each.source_end < 0 for each in made.partitions.values()):
            made.copy_once()

    try:
        made.begin()
        return timed(copy)
    finally:
        made.close()


def measure_mirror(size: int, rounds: int) -> None:
    with broker() as source:
        with Admin(source.bootstrap) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
            fill(source.bootstrap, size)
            latest = admin.list_offsets({TopicPartition("t", number): "latest" for number in range(PARTITIONS)})
            ends = {tp.partition: offset for tp, offset in latest.items()}
        bare = mirrored = float("inf")
        total = 0
        for _ in range(rounds):
            began = time.perf_counter()
            total = fetch_all(source, ends)
            bare = min(bare, time.perf_counter() - began)
            with broker() as target:
                mirrored = min(mirrored, mirror_all(source, target))
    print(f"{'bare fetch':20} {total / MB / bare:7.0f} MB/s")
    print(f"{'mirror --identical':20} {total / MB / mirrored:7.0f} MB/s, {bare / mirrored:.2f} of bare fetch")


def cut_over() -> float:
    """Return the seconds from the last record that the source takes to the first one that the target takes."""
    with broker() as source, broker() as target:
        with Admin(source.bootstrap) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        stop = threading.Event()

        def produce() -> None:
            producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 5})
            number = 0
            while not stop.is_set():
                producer.produce("t", bytes(VALUE_BYTES), partition=number % PARTITIONS)
                number += 1
                if number % 100 == 0:
                    producer.poll(0)
                    time.sleep(0.02)
            assert producer.flush(60) == 0

        writing = threading.Thread(target=produce)
        made = IdenticalMirror(
            {"bootstrap.servers": source.bootstrap}, {"bootstrap.servers": target.bootstrap}, topics="t"
        )
        mirroring = threading.Thread(target=made.run)
        writing.start()
        mirroring.start()
        try:
            time.sleep(5)
            began = time.perf_counter()
            stop.set()
            writing.join()
            made.stop()
            mirroring.join()
            made.promote("t")
            first = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0})
            first.produce("t", b"first", partition=0)
            assert first.flush(60) == 0
            seconds = time.perf_counter() - began
            del first  # it would complain about a broker that has stopped
            return seconds
        finally:
            stop.set()
            made.stop()
            writing.join()
            mirroring.join()
            made.close()


def main() -> None:
    size = int(sys.argv[1]) * MB if len(sys.argv) > 1 else 512 * MB
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        measure_import(Path(folder), size, rounds)
    measure_mirror(size, rounds)
    stops = sorted(cut_over() for _ in range(rounds))
    print(f"cut-over             {stops[0]:.2f} to {stops[-1]:.2f} s without a producer, {rounds} times")


if __name__ == "__main__":
    main()
