"""Flushes that a follower must finish before its next fetch (facts B3: `flush.messages`, `flush.ms`).

The leader regards all records below a follower's fetch offset as replicated. Where the configuration requires a flush,
these records must be on the disk. So a follower fetches a partition again only after that flush (Kafka's followers
flush before they fetch, too).
"""

from collections.abc import Callable

from ....ports.types import TopicPartition
from ...log.manager.log_manager import LogManager
from ...log.partition_log.unified_log import UnifiedLog


class FollowerFlushes:
    """The flushes that followed partitions wait for. Owner thread only."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._waiting: dict[TopicPartition, tuple[UnifiedLog, int, Callable[[], None]]] = {}
        logs.add_flush_listener(self._flushed)

    def begin_if_due(self, log: UnifiedLog, now_ms: int, resume: Callable[[], None]) -> None:
        """Start a flush if the append requires one; `resume` is called when it is over."""
        if self._logs.flush_if_due(log, now_ms):
            self._waiting[log.topic_partition] = (log, log.log_end_offset, resume)

    def holds(self, log: UnifiedLog) -> bool:
        """Return True while appended records must become durable, and are not."""
        if not self._waiting:
            return False
        waiting = self._waiting.get(log.topic_partition)
        return waiting is not None and waiting[0] is log

    def forget(self, key: TopicPartition) -> None:
        """Forget a removed partition: a closed log reports no flush."""
        self._waiting.pop(key, None)

    def _flushed(self, log: UnifiedLog) -> None:
        """Resume after a flush, or start another one if more was appended during it."""
        waiting = self._waiting.get(log.topic_partition)
        if waiting is None or waiting[0] is not log:
            return
        _, end, resume = waiting
        if log.recovery_point < min(end, log.log_end_offset) and log.failure is None:
            self._logs.flush(log)
            return
        del self._waiting[log.topic_partition]
        resume()
