"""Measure a restore from remote storage alone: `python benchmarks/restoring.py [GB]`.

The store is a folder with one topic of four partitions. Its own range reads, a copy of its files, and the restore are
measured in one run; before each of them the files leave the page cache. The restore is the command, which is
killed at half of the bytes and run again; at the end the logs are compared with the store.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from harness import PROGRAM, broker

from barnabas.adapters.remote_folder import FolderRemoteStorage
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.tiering.manifest import (
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    encode_manifest,
    log_key,
    manifest_key,
    partition_folder,
)
from barnabas.ports.remote_storage import RemoteStorage
from barnabas.ports.types import TopicPartition

MB, GB = 1 << 20, 1 << 30
PARTITIONS = 4
SEGMENT_BYTES = 256 * MB
RANGE_BYTES = 4 * MB
TOPIC = TieredTopic(name="t", topic_id=bytes(range(16)), partitions=PARTITIONS)


def fill(storage: RemoteStorage, size: int) -> None:
    """Store partitions of together this size, in batches of 64 messages of 1,000 bytes."""
    messages = [Message(os.urandom(1000), timestamp_ms=1_700_000_000_000) for _ in range(64)]
    one = encode_batch(messages, now_ms=0)
    count = SEGMENT_BYTES // len(one)
    content = bytearray(one * count)
    for partition in range(PARTITIONS):
        key, offset = TopicPartition("t", partition), 0
        segments: list[RemoteSegment] = []
        folder = partition_folder(key, TOPIC.topic_id)
        while sum(each.size for each in segments) < size // PARTITIONS:
            for number in range(count):
                assign_offset(memoryview(content)[number * len(one) :], offset + number * len(messages), 0)
            segment = RemoteSegment(
                segment_id=f"{partition:02d}{len(segments):030d}",
                base_offset=offset,
                next_offset=offset + count * len(messages),
                size=len(content),
                max_timestamp=1_700_000_000_000,
                epochs=((0, offset),),
                leader_epoch=0,
                state=SegmentState.COPY_FINISHED,
            )
            storage.put(log_key(folder, segment), bytes(content))
            segments.append(segment)
            offset = segment.next_offset
        manifest = Manifest(
            topic=TOPIC, partition=partition, leader_epoch=0, epochs=((0, 0),), segments=tuple(segments)
        )
        storage.replace(manifest_key(key, TOPIC.topic_id), encode_manifest(manifest), None)


def forget(folder: Path) -> None:
    """Let the files leave the page cache."""
    for path in folder.rglob("*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_ranges(storage: RemoteStorage) -> int:
    """Read everything by ranges of the size that a restore asks for."""
    total = 0
    for each in [each for each in storage.list_objects("") if each.key.endswith(".log")]:
        for start in range(0, each.size, RANGE_BYTES):
            total += len(storage.get_range(each.key, start, RANGE_BYTES))
    return total


def show(what: str, size: int, began: float, cpu: float) -> None:
    took = time.perf_counter() - began
    print(f"{what}: {size / took / MB:.0f} MB/s, {took:.1f} s, {time.process_time() - cpu:.1f} s of CPU time here")


def size_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.log"))


def digest(paths: Iterable[Path]) -> str:
    """Return the hash of files one after the other."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(4 * MB):
                found.update(piece)
    return found.hexdigest()


def run_command(store: Path, bootstrap: str, stop_at: int | None, data: Path) -> tuple[float, float, int]:
    """Run the restore, until the logs have `stop_at` bytes; return seconds, CPU seconds, the most memory in bytes."""
    words = ["topics", "restore", "--bootstrap", bootstrap, "--from", f"file://{store}", "t"]
    began, peak = time.perf_counter(), 0
    with subprocess.Popen([str(PROGRAM), *words]) as command:
        process = psutil.Process(command.pid)
        cpu = 0.0
        while command.poll() is None:
            with suppress(psutil.Error):
                peak = max(peak, process.memory_info().rss)
                cpu = sum(process.cpu_times()[:2])
            if stop_at is not None and size_below(data) >= stop_at:
                command.kill()
                stop_at = None
            time.sleep(0.05)
    return time.perf_counter() - began, cpu, peak


def main() -> None:
    size = int(float(sys.argv[1]) * GB) if len(sys.argv) > 1 else 10 * GB
    with tempfile.TemporaryDirectory(dir=os.environ.get("WORK")) as name:
        work = Path(name)
        storage = FolderRemoteStorage(work / "store")
        fill(storage, size)
        forget(work)
        began, cpu = time.perf_counter(), time.process_time()
        total = read_ranges(storage)
        range_s = time.perf_counter() - began
        show("range reads of the store", total, began, cpu)
        forget(work)
        began, cpu = time.perf_counter(), time.process_time()
        shutil.copytree(work / "store", work / "copy")
        forget(work / "copy")
        copy_s = time.perf_counter() - began
        show("copy of its files, with fsync", total, began, cpu)
        shutil.rmtree(work / "copy")
        forget(work)
        with broker(work / "new") as running:
            before, took, cpu, peak = running.cpu_seconds(), 0.0, 0.0, 0
            for stop_at in (total // 2, None):
                run = run_command(work / "store", running.bootstrap, stop_at, work / "new")
                took, cpu, peak = took + run[0], cpu + run[1], max(peak, run[2])
                print(f"  {run[0]:.1f} s, then the logs have {size_below(work / 'new') / MB:.0f} MB", flush=True)
            print(f"restore: {total / took / MB:.0f} MB/s, {took:.1f} s, {cpu:.1f} s of CPU time in the command")
            ratios = f"{range_s / took:.2f}; / copy of its files, with fsync: {copy_s / took:.2f}"
            print(f"  rate of the restore / range reads of the store: {ratios}", flush=True)
            print(f"  and {running.cpu_seconds() - before:.1f} s in the broker")
            print(f"  at most {peak / MB:.0f} MB in the command, {running.resident_bytes() / MB:.0f} MB in the broker")
        for number in range(PARTITIONS):
            tp = TopicPartition("t", number)
            stored = sorted((work / "store" / partition_folder(tp, TOPIC.topic_id)).glob("*.log"))
            brought = sorted((work / "new" / f"t-{number}").glob("*.log"))
            print(f"partition {number} is as in the store: {digest(stored) == digest(brought)}")


if __name__ == "__main__":
    main()
