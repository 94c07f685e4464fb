"""A log manager with a cleaner in memory, and what a reader makes of a compacted log."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve
from support.waiting import PATIENCE_S

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.core.log.compaction.log_cleaner import LogCleaner
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.retention import DeletionPolicy
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.message.codec import NO_CODECS, Codecs
from barnabas.core.message.message import Message
from barnabas.core.message.message_set import MessageSet
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
from barnabas.ports.types import Offset, TopicPartition
from barnabas.testing.logs import TP, batch, bytes_of

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=300,
    index_interval_bytes=0,
    min_cleanable_dirty_ratio=0.0,
    message_timestamp_after_max_ms=2**62,
)


class CleanedLogs:
    """`start`, then `stop` or `kill`, as often as wanted; time passes in `wait` alone."""

    def __init__(
        self, config: LogConfig = COMPACT, *, codecs: Codecs = NO_CODECS, policy: DeletionPolicy | None = None
    ) -> None:
        self.policy = policy or KafkaDeletionPolicy()
        self.clock = ManualClock()
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.config = config
        self.codecs = codecs
        self.settings = CleanerSettings(backoff_ms=1000)
        self.reports: list[str] = []
        self.leader_epoch = 0
        self.decided_to: Mapping[TopicPartition, Offset | None] = {}
        self.start()

    def start(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.disk.in_use = False
        self.manager = LogManager(
            [MemoryLogDir(self.disk)],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: self.config,
            codecs=self.codecs,
            policy_for=lambda _config, _partition: self.policy,
            report=self.reports.append,
            entropy=SeededEntropy(1),
        )
        self.manager.load()
        self.manager.start()
        self.cleaner = LogCleaner(
            self.manager.homes,
            settings=lambda: self.settings,
            decided_to=self._decided_to,
            clock=self.clock,
            scheduler=self.scheduler,
            codecs=self.codecs,
            entropy=SeededEntropy(2),
            report=self.reports.append,
        )
        self.cleaner.start()
        self.log = self.manager.create(TP)

    def _decided_to(self, partition: TopicPartition) -> Offset | None:
        return self.decided_to.get(partition, Offset(2**62))

    def stop(self) -> None:
        """In order."""
        stopped: list[bool] = []
        self.cleaner.stop(lambda: self.manager.stop(lambda: stopped.append(True)))
        self.wait(PATIENCE_S)
        assert stopped

    def kill(self, *, power_cut: bool = False) -> None:
        """Without a word; what follows is done to another disk."""
        self.disk = self.disk.after_crash(power_cut=power_cut)

    def configure(self, **values: Any) -> None:
        self.config = evolve(self.config, **values)
        for log in self.manager.logs().values():
            log.update_config(self.config)

    def put(
        self, *pairs: tuple[bytes | None, bytes | None], at: int | None = None, log: UnifiedLog | None = None
    ) -> int:
        """Append one batch of (key, value); returns its base offset."""
        now_ms = self.clock.now_ms()
        keys, values = zip(*pairs, strict=True)
        records = batch(*values, keys=keys, at=now_ms if at is None else at)
        return (log or self.log).append(records, leader_epoch=self.leader_epoch, now_ms=now_ms).base_offset

    def roll(self) -> None:
        """Have all that is there in sealed segments, and durable."""
        self.configure(segment_ms=1)
        self.wait(PATIENCE_S)
        self.put((b"rolled", b"%d" % self.clock.now_ms()))
        self.configure(segment_ms=2**62)
        self.wait(PATIENCE_S)

    def wait(self, ms: float) -> None:
        """Advance the clock in one step; timers that became due run at the end."""
        if ms > 1e6:
            self.clock.advance(ms - 1e5)
            ms = 1e5
        self.scheduler.advance(ms)

    def clean(self) -> None:
        """Roll, and let the cleaner have its time."""
        self.roll()
        self.wait(self.settings.backoff_ms + 1)
        self.wait(self.settings.backoff_ms + 1)


def messages_of(log: UnifiedLog, codecs: Codecs = NO_CODECS) -> list[Message]:
    """Return all messages, read as a consumer reads."""
    offset, found = log.log_start_offset, list[Message]()
    while offset < log.log_end_offset and (records := bytes_of(log, offset)):
        found += [message for message in MessageSet(records, codecs) if message.offset >= offset]
        offset = max(header.next_offset for _, header in whole_batches(records))
    return found


def last_values(log: UnifiedLog, codecs: Codecs = NO_CODECS) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key, without deleted keys, as a reader of all messages gets it."""
    found = {message.key: message.value for message in messages_of(log, codecs)}
    return {key: value for key, value in found.items() if value is not None}
