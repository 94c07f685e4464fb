"""Classic logs for tests of the log."""

from collections.abc import Callable

from attrs import evolve
from support.classic_frames import message_set

from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.retention import DeletionPolicy
from barnabas.core.message.codec import Codecs
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.storage import Folder
from barnabas.ports.types import Buffer
from barnabas.testing.logs import bytes_of, open_log

OVERHEAD = 10
"""The bytes that a message adds to its payload."""


def classic(config: LogConfig | None = None) -> LogConfig:
    return evolve(config or LogConfig(), message_format="classic")


def open_classic(
    folder: Folder,
    *,
    recover: bool = True,
    now_ms: int = 0,
    config: LogConfig | None = None,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    codecs: Codecs | None = None,
    policy: DeletionPolicy | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> UnifiedLog:
    return open_log(
        folder,
        recover=recover,
        now_ms=now_ms,
        config=classic(config),
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        codecs=codecs or builtin_codecs(),
        policy=policy,
        report=report,
    )


def put_set(log: UnifiedLog, records: Buffer, *, now_ms: int = 1000) -> int:
    """Append a set; returns where it begins."""
    return log.append(memoryview(records), leader_epoch=0, now_ms=now_ms).base_offset


def put(log: UnifiedLog, *payloads: bytes, now_ms: int = 1000) -> int:
    """Append a set of these messages; returns where it begins."""
    return put_set(log, message_set(*payloads), now_ms=now_ms)


def flush(log: UnifiedLog, now_ms: int = 1000) -> None:
    """Flush a log in two steps, as the owner does."""
    work = log.flushes.begin_flush(now_ms)
    if work is not None:
        work()
        log.flushes.end_flush(work)


def visible(log: UnifiedLog, *, max_bytes: int = 1 << 20) -> bytes:
    """Return all bytes that readers see, read as a consumer reads."""
    found = bytearray()
    while log.log_start_offset + len(found) < log.readable_end:
        part = bytes_of(log, log.log_start_offset + len(found), max_bytes=max_bytes)
        assert part, "nothing is read below the readable end"
        found += part
    return bytes(found)


def content(folder: Folder, base_offset: int = 0) -> bytes:
    """Return the bytes of a segment file."""
    name = f"{base_offset:020d}.kafka"
    file = folder.open(name, create=False)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def overwrite(folder: Folder, base_offset: int, data: bytes) -> None:
    """Replace the content of a segment file."""
    file = folder.open(f"{base_offset:020d}.kafka")
    try:
        file.truncate(0)
        file.append(data)
    finally:
        file.close()
