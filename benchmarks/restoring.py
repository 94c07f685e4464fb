"""Measure a restore from remote storage alone: `python benchmarks/restoring.py [GB]`.

The store is a folder with one topic of four partitions. Its own range reads, a copy of its files, and the restore are
measured in one run; before each of them the files leave the page cache.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from harness import broker

from barnabas.adapters.remote_folder import FolderRemoteStorage
from barnabas.app.mirror.restoring import TierRestore, read_partitions
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


def main() -> None:
    size = int(float(sys.argv[1]) * GB) if len(sys.argv) > 1 else 10 * GB
    with tempfile.TemporaryDirectory(dir=os.environ.get("WORK")) as name:
        work = Path(name)
        storage = FolderRemoteStorage(work / "store")
        fill(storage, size)
        forget(work)
        began, cpu = time.perf_counter(), time.process_time()
        total = read_ranges(storage)
        show("range reads of the store", total, began, cpu)
        forget(work)
        began, cpu = time.perf_counter(), time.process_time()
        shutil.copytree(work / "store", work / "copy")
        forget(work / "copy")
        show("copy of its files, with fsync", total, began, cpu)
        shutil.rmtree(work / "copy")
        forget(work)
        with broker(work / "new") as running:
            restore = TierRestore(storage, {"bootstrap.servers": running.bootstrap})
            parts = read_partitions(storage)
            first: list[float] = []
            began, cpu, before = time.perf_counter(), time.process_time(), running.cpu_seconds()
            restored = restore.restore("t", parts, lambda _size: first.append(time.perf_counter()))
            show("restore", restored.bytes, began, cpu)
            print(f"  the first records after {first[0] - began:.2f} s")
            print(f"  and {running.cpu_seconds() - before:.1f} s of CPU time in the broker")
            restore.close()


if __name__ == "__main__":
    main()
