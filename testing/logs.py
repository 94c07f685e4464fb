"""One log by hand: opened in a folder, appended to and read in the test's own thread, at the times that it says.

log = open_log(MemoryLogDir().folder("orders-0"))
put(log, b"one", b"two")
assert read_all(log) == [(0, b"one"), (1, b"two")]
"""

from collections.abc import Callable, Collection, Sequence

from ..core.log.checkpoints import SealedSegment
from ..core.log.config import LogConfig
from ..core.log.partition_log.unified_log import UnifiedLog
from ..core.log.retention import DeletionPolicy
from ..core.message.batch_writer import encode_batch
from ..core.message.codec import NO_CODECS, Codec, Codecs
from ..core.message.message import Message
from ..core.message.message_set import MessageSet
from ..plugins.builtin.deletion import KafkaDeletionPolicy
from ..ports.storage import Folder
from ..ports.types import Buffer, TopicPartition

TP = TopicPartition("t", 0)


def batch(
    *values: bytes | None,
    at: int | None = 1000,
    timestamps: Sequence[int | None] = (),
    keys: Sequence[bytes | None] = (),
    codec: Codec | None = None,
) -> memoryview:
    """Return a client's batch, as the log takes it; every message at time `at` unless `timestamps` are given."""
    messages = [
        Message(
            value=value,
            key=keys[number] if keys else None,
            timestamp_ms=timestamps[number] if timestamps else at,
        )
        for number, value in enumerate(values)
    ]
    return memoryview(encode_batch(messages, now_ms=0, codec=codec))


def numbered(
    *values: bytes, producer: int = 1, epoch: int = 0, sequence: int = 0, at: int = 1000, transactional: bool = False
) -> memoryview:
    """Return the batch of an idempotent producer."""
    messages = [Message(value, timestamp_ms=at) for value in values]
    encoded = encode_batch(
        messages,
        now_ms=0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return memoryview(encoded)


def open_log(
    folder: Folder,
    *,
    recover: bool = True,
    now_ms: int = 0,
    config: LogConfig | None = None,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    sealed: Collection[SealedSegment] = (),
    may_end_early: bool = False,
    codecs: Codecs = NO_CODECS,
    policy: DeletionPolicy | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> UnifiedLog:
    """Return the log `TP` in this folder, with what is there. `policy`: Kafka's, by default. Raises `StorageError`."""
    return UnifiedLog.open(
        folder,
        topic_partition=TP,
        config=config or LogConfig(),
        now_ms=now_ms,
        recover=recover,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        sealed=sealed,
        may_end_early=may_end_early,
        codecs=codecs,
        deletion_policy=policy or KafkaDeletionPolicy(),
        report=report,
    )


def put(log: UnifiedLog, *values: bytes | None, at: int | None = 1000, now_ms: int = 1000, epoch: int = 0) -> int:
    """Append one batch; returns its base offset."""
    return log.append(batch(*values, at=at), leader_epoch=epoch, now_ms=now_ms).base_offset


def bytes_of(log: UnifiedLog, offset: int, *, max_bytes: int = 1 << 20, limit: int | None = None) -> bytes:
    """Return the bytes of one read."""
    records = log.read(offset, max_bytes=max_bytes, limit=log.log_end_offset if limit is None else limit).records
    return records if isinstance(records, bytes) else records.read()


def messages_in(records: Buffer, codecs: Codecs = NO_CODECS) -> list[tuple[int, bytes | None]]:
    """(offset, value) of each message in a set."""
    return [(message.offset, message.value) for message in MessageSet(records, codecs)]


def read_all(
    log: UnifiedLog, start: int | None = None, *, max_bytes: int = 1 << 20, codecs: Codecs = NO_CODECS
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything from `start` on, read as a consumer reads."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    while offset < log.log_end_offset:
        part = [pair for pair in messages_in(bytes_of(log, offset, max_bytes=max_bytes), codecs) if pair[0] >= offset]
        if not part:
            break
        found += part
        offset = part[-1][0] + 1
    return found
