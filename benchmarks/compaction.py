"""Compaction of 200-byte messages, batched as producers batch them: its speed, what it costs others, what it saves.

The speed is that of one thread of a process that does nothing else, by its CPU time, against the scan that recovery
makes of the same log. What it costs others: produce and fetch of another topic while a log is compacted, against the
same before. What it saves: the start of a broker whose `__consumer_offsets` has taken a million commits of 10,000 keys.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from attrs import evolve
from group_wire import ask, frame_of, wait_for_coordinator
from harness import BareClient, Result, RunningBroker, broker, fetch_frame, produce_frame

from barnabas import Admin
from barnabas.adapters.storage_fs import open_log_dir
from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.core.log.compaction.log_cleaner import Cleaner, measure_log, plan_cleaning
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.groups import OffsetCommit, OffsetCommitPartition, OffsetFetch, OffsetFetchGroup
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import Folder
from barnabas.ports.types import Offset, TopicPartition

BYTES = int(os.environ.get("BENCH_COMPACTION_MB", "300")) * 1_000_000
BATCH_MESSAGES = 80
VALUE_BYTES = 170
SEGMENT_BYTES = 100_000_000
NOW_MS = 1_700_000_000_000
WINDOW_S = 0.5
WINDOWS = 9
RATE, NEARLY_NONE = "log.cleaner.io.max.bytes.per.second", "1000000"
GROUPS, TOPIC_PARTITIONS, COMMITS = 100, 100, 1_000_000


def _batches(keys: int, count: int) -> Iterator[bytearray]:
    chance, noise = random.Random(1), os.urandom(1 << 16)
    for number in range(count):
        places = [chance.randrange(60_000) for _ in range(BATCH_MESSAGES)]
        yield encode_columns(
            [noise[place : place + VALUE_BYTES] for place in places],
            keys=[b"user-%09d" % chance.randrange(keys) for _ in places],
            timestamps=[NOW_MS + number + each for each in range(BATCH_MESSAGES)],
            now_ms=0,
        )


def _opened(folder: Folder) -> UnifiedLog:
    return UnifiedLog.open(
        folder,
        topic_partition=TopicPartition("t", 0),
        config=LogConfig(segment_bytes=SEGMENT_BYTES),
        now_ms=NOW_MS,
        recover=True,
        codecs=NO_CODECS,
        deletion_policy=KafkaDeletionPolicy(),
    )


@contextmanager
def _cpu(spent: dict[str, float], name: str) -> Iterator[None]:
    began = time.process_time()
    yield
    spent[name] = time.process_time() - began


def _speed(name: str, keys: int) -> Result:
    """MB of log a second of CPU."""
    spent: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        log_dir = open_log_dir(scratch)
        folder = log_dir.folder("t-0")
        log = _opened(folder)
        for batch in _batches(keys, BYTES // 15_500):
            log.append(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
        log.flushes.now()
        log.abandon()
        with _cpu(spent, "scan"):
            log = _opened(folder)
        size = log.size_bytes
        log.update_config(evolve(log.config, cleanup_policy=frozenset({"compact"})))
        log.flushes.now()
        measured = measure_log(log, Offset(0), log.log_end_offset, NOW_MS)
        with _cpu(spent, "clean"):
            order = plan_cleaning(measured, CleanerSettings(), now_ms=NOW_MS, codecs=NO_CODECS, secret=os.urandom(32))
            cleaning = Cleaner(order)
            for step in cleaning.steps():
                if step is not None:
                    log.replacer.begin_replacement(step)
                    folder.flush()
                    log.replacer.end_replacement(NOW_MS)
        stats = cleaning.stats
        log.close()
        log_dir.close()
    rate = stats.bytes_read / spent["clean"] / 1e6
    scan = size / spent["scan"] / 1e6
    details = {"recovery scan MB/s": scan, "ratio": rate / scan, "MB": stats.bytes_read / 1e6}
    details["kept %"] = 100 * stats.messages_retained / stats.messages_read
    return Result(f"compaction, {name}", rate, "MB/s", 30, details=details)


# --- what it costs others


def _rate(client: BareClient, frame: Callable[[], bytes], nbytes: Callable[[memoryview], int]) -> float:
    """MB a second."""
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < WINDOW_S:
        done += nbytes(client.exchange(frame()))
    return done / (time.perf_counter() - began) / 1e6


def _produce_and_fetch(running: RunningBroker) -> tuple[float, float]:
    client = BareClient(running.host, running.port)
    batch = bytes(encode_columns([bytes(200)] * BATCH_MESSAGES, now_ms=NOW_MS))
    produce, fetch = produce_frame("others", 0, batch), fetch_frame("others", 0, 0, 100_000)
    try:
        produced = _rate(client, lambda: produce, lambda _: len(batch))
        return produced, _rate(client, lambda: fetch, len)
    finally:
        client.close()


def _fill(running: RunningBroker, topic: str, size: int) -> None:
    client = BareClient(running.host, running.port)
    for batch in _batches(200_000, size // 15_500):
        client.exchange(produce_frame(topic, 0, bytes(batch)))
    client.close()


def _cost() -> list[Result]:
    """Windows with and without, in turn: other work on the machine meets both."""
    settings = ("log.cleaner.backoff.ms=10", f"log.segment.bytes={SEGMENT_BYTES // 4}", f"{RATE}={NEARLY_NONE}")
    with broker(None, *settings) as running, Admin(running.bootstrap) as admin:
        admin.create_topic("t", partitions=1, configs={"cleanup.policy": "compact"})
        admin.create_topic("others", partitions=1, configs={"retention.ms": "-1"})
        _fill(running, "t", BYTES)
        _produce_and_fetch(running)
        pairs = []
        for _ in range(WINDOWS):
            without = _produce_and_fetch(running)
            admin.alter_configs(ResourceKind.BROKER, "1", {RATE: "1e12"})
            pairs.append((without, _produce_and_fetch(running)))
            admin.alter_configs(ResourceKind.BROKER, "1", {RATE: NEARLY_NONE})
    results = []
    for number, name in enumerate(("produce", "fetch")):
        ratios = [during[number] / without[number] for without, during in pairs]
        details = {"MB/s without": median(without[number] for without, _ in pairs)}
        details |= {"least": min(ratios), "most": max(ratios)}
        results.append(Result(f"{name} while a log is compacted", median(ratios), "", 0.8, details=details))
    return results


# --- what it saves


def _commit(client: BareClient, group: int, offset: int) -> None:
    places = [OffsetCommitPartition("bench", number, offset, 0, "") for number in range(TOPIC_PARTITIONS)]
    request = OffsetCommit(group_id=f"g{group}", generation_id=-1, member_id="", partitions=places)
    answer = client.exchange(frame_of(request, 7))
    if bytes(answer[-2:]) != b"\0\0":
        raise RuntimeError("a commit failed")


def _served_after(data: Path, *settings: str) -> tuple[float, float]:
    """Seconds from the start of the process to ready, and to the positions of every group."""
    began = time.perf_counter()
    with broker(data, *settings) as running:
        ready = time.perf_counter() - began
        client = BareClient(running.host, running.port)
        for group in range(GROUPS):
            wait_for_coordinator(client, f"g{group}")
            asked = OffsetFetch(groups=[OffsetFetchGroup(group_id=f"g{group}", partitions=None)])
            while (found := ask(client, asked, 7).groups[0]).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                time.sleep(0.005)
            if len(found.partitions) != TOPIC_PARTITIONS:
                raise RuntimeError(f"group g{group} has {len(found.partitions)} positions: {found}")
        served = time.perf_counter() - began
        client.close()
    return ready, served


def _size(data: Path) -> float:
    return sum(file.stat().st_size for file in data.rglob("__consumer_offsets-*/*.log")) / 1e6


def _start() -> list[Result]:
    small = "offsets.topic.segment.bytes=200000"
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        data = Path(scratch)
        with broker(data, small, "log.cleaner.threads=0") as running:
            with Admin(running.bootstrap) as admin:
                admin.create_topic("bench", partitions=TOPIC_PARTITIONS)
            client = BareClient(running.host, running.port)
            for group in range(GROUPS):
                wait_for_coordinator(client, f"g{group}")
            for number in range(COMMITS // TOPIC_PARTITIONS):
                _commit(client, number % GROUPS, number)
            client.close()
        full = _size(data)
        _, slow = _served_after(data, "log.cleaner.threads=0")
        with broker(data, "log.cleaner.backoff.ms=50"):
            while _size(data) > full / 4:
                time.sleep(0.1)
            time.sleep(1)
        left = _size(data)
        ready, served = min(_served_after(data, "log.cleaner.threads=0") for _ in range(3))
    details = {"s to ready": ready, "s without compaction": slow, "MB": left, "MB before": full}
    return [Result("start with 1,000,000 commits of 10,000 keys", served, "s", 1.0, at_least=False, details=details)]


def measure() -> list[Result]:
    return [_speed("100,000 keys", 100_000), _speed("all keys different", 10**9), *_cost(), *_start()]
