"""A follower's log taking what its leader sent: batches of several sizes into the page cache, against a plain write."""

import tempfile
import time

from harness import Result

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message import Message
from barnabas.plugins.builtin.deletion import KeepAll
from barnabas.ports.types import TopicPartition

RESPONSE_BYTES = 1 << 20
TOTAL_BYTES = 256 << 20


def _responses(messages_in_batch: int) -> list[memoryview]:
    """Return the answers to fetches: batches of 200-byte messages, about a mebibyte together."""
    batch = bytearray(encode_batch([Message(bytes(200)) for _ in range(messages_in_batch)], now_ms=0))
    offset, responses = 0, []
    for _ in range(TOTAL_BYTES // RESPONSE_BYTES):
        batches = []
        for _ in range(RESPONSE_BYTES // len(batch)):
            assign_offset(batch, offset, 0)
            batches.append(bytes(batch))
            offset += messages_in_batch
        responses.append(memoryview(b"".join(batches)))
    return responses


def _into_log(responses: list[memoryview]) -> float:
    """Mebibytes per second."""
    with tempfile.TemporaryDirectory() as path:
        log_dir = open_log_dir(path)
        log = UnifiedLog.open(
            log_dir.folder("bench-0"),
            topic_partition=TopicPartition("bench", 0),
            config=LogConfig(),
            now_ms=0,
            recover=True,
            codecs=NO_CODECS,
            deletion_policy=KeepAll(),
        )
        started = time.perf_counter()
        for records in responses:
            log.append_replicated(records, now_ms=0)
        seconds = time.perf_counter() - started
        log.abandon()
        log_dir.close()
    return sum(map(len, responses)) / seconds / (1 << 20)


def _plain(responses: list[memoryview]) -> float:
    with tempfile.TemporaryFile(buffering=0) as file:
        started = time.perf_counter()
        for records in responses:
            file.write(records)
        return sum(map(len, responses)) / (time.perf_counter() - started) / (1 << 20)


def measure() -> list[Result]:
    rates: dict[str, float] = {}
    ratios = []
    for count in (1, 80, 4000):
        responses = _responses(count)
        plain, ours = (max(measured(responses) for _ in range(3)) for measured in (_plain, _into_log))
        rates[f"batches of {count}, MiB/s"] = ours
        ratios.append(ours / plain)
    return [Result("a follower's log / a plain write, batches of 80", ratios[1], details=rates)]


if __name__ == "__main__":
    print(measure())
