"""Flushes that a follower owes its leader (facts B3: `flush.messages`, `flush.ms`).

A leader takes what a follower asks next for what that has. Where the configuration asks for a flush, that must mean: on
the disk. So a follower asks for no more of a partition before it is (Kafka's followers flush before they ask, too).
"""

from collections.abc import Callable

from ....ports.types import TopicPartition
from ...log.manager.log_manager import LogManager
from ...log.partition_log.unified_log import UnifiedLog


class FollowerFlushes:
    """Owner thread only."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._waiting: dict[TopicPartition, tuple[UnifiedLog, int, Callable[[], None]]] = {}
        logs.add_flush_listener(self._flushed)

    def begin_if_due(self, log: UnifiedLog, now_ms: int, resume: Callable[[], None]) -> None:
        """What was appended may ask for a flush, which is under way then; `resume` is called when it is over."""
        if self._logs.flush_if_due(log, now_ms):
            self._waiting[log.topic_partition] = (log, log.log_end_offset, resume)

    def holds(self, log: UnifiedLog) -> bool:
        """True while what was appended is to become durable, and is not."""
        if not self._waiting:
            return False
        waiting = self._waiting.get(log.topic_partition)
        return waiting is not None and waiting[0] is log

    def forget(self, key: TopicPartition) -> None:
        """The partition is no more, and of a closed log no flush is told."""
        self._waiting.pop(key, None)

    def _flushed(self, log: UnifiedLog) -> None:
        """A flush is over. One that was under way when more was appended is followed by another."""
        waiting = self._waiting.get(log.topic_partition)
        if waiting is None or waiting[0] is not log:
            return
        _, end, resume = waiting
        if log.recovery_point < min(end, log.log_end_offset) and log.failure is None:
            self._logs.flush(log)
            return
        del self._waiting[log.topic_partition]
        resume()
