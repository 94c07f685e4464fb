"""Flushes that appends wait for (facts B3: `flush.messages`, `flush.ms`)."""

from ....ports.types import TopicPartition
from ...log.manager.log_manager import LogManager
from ...log.partition_log.unified_log import UnifiedLog
from ..partition.partition import Partition
from ..purgatory import Purgatory


class DurableFlushes:
    """Flushes logs until what was appended is durable, and checks the purgatory. Owner thread only."""

    def __init__(self, logs: LogManager, purgatory: Purgatory) -> None:
        self._logs = logs
        self._purgatory = purgatory
        self._wanted: dict[TopicPartition, int] = {}
        logs.add_flush_listener(self._flushed)

    def begin_if_due(self, partition: Partition, now_ms: int) -> bool:
        """Return True if the append requires a flush, which is under way then; responses wait for it."""
        log = partition.log
        if not self._logs.flush_if_due(log, now_ms):
            return False
        self._wanted[partition.topic_partition] = log.log_end_offset
        return True

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that is removed."""
        self._wanted.pop(key, None)

    def _flushed(self, log: UnifiedLog) -> None:
        """Check the purgatory after a flush, and start another if more was appended during it."""
        key = log.topic_partition
        self._purgatory.check(key)
        wanted = self._wanted.get(key)
        if wanted is not None and log.recovery_point < wanted and log.failure is None:
            self._logs.flush(log)
        else:
            self.forget(key)
