"""Built-in deletion policies at the grain of segments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError

if TYPE_CHECKING:
    from ...core.log.config import LogConfig
    from ...core.log.retention import DeletionContext, SegmentInfo


class KafkaDeletionPolicy:
    """By size and by age, as Kafka does (facts B3).

    A segment goes if the log keeps `retention_bytes` or more without it, or if its largest timestamp is older than
    `retention_ms`; the first that stays keeps all after it.
    """

    def deletable(self, segments: "Sequence[SegmentInfo]", *, now_ms: int, config: "LogConfig") -> int:
        excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
        by_size = 0
        if config.retention_bytes >= 0:
            for segment in segments:
                excess -= segment.size_bytes
                if excess < 0:
                    break
                by_size += 1
        by_age = 0
        if config.retention_ms >= 0:
            for segment in segments:
                if now_ms - segment.largest_timestamp_ms <= config.retention_ms:
                    break
                by_age += 1
        return max(by_size, by_age)


class KeepAll:
    """Deletes nothing."""

    def deletable(self, segments: "Sequence[SegmentInfo]", *, now_ms: int, config: "LogConfig") -> int:  # noqa: ARG002
        return 0


class Consumed:
    """A segment goes when all of these consumer groups have committed positions behind it, and not before, however old
    or large the log is. A group that has committed nothing, or that cannot be asked, keeps everything."""

    def __init__(self, context: "DeletionContext") -> None:
        self._groups = [name.strip() for name in context.parameters.split(",") if name.strip()]
        if not self._groups:
            raise ConfigError("deletion.policy=consumed needs the groups to wait for, as in consumed:billing,audit")
        self._context = context

    def deletable(self, segments: "Sequence[SegmentInfo]", *, now_ms: int, config: "LogConfig") -> int:  # noqa: ARG002
        partition, committed = self._context.partition, self._context.committed
        if partition is None:
            return 0
        found = [committed(group, partition) for group in self._groups]
        read_up_to = min(-1 if position is None else position for position in found)
        return sum(segment.next_offset <= read_up_to for segment in segments)
