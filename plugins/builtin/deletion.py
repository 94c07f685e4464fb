"""The built-in deletion policies."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.log.config import LogConfig
    from ...core.log.retention import DeletionPolicy, SegmentInfo


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


_POLICIES: "dict[str, Callable[[], DeletionPolicy]]" = {"kafka": KafkaDeletionPolicy, "none": KeepAll}
DELETION_POLICY_NAMES = tuple(_POLICIES)


def builtin_deletion_policy(name: str) -> "DeletionPolicy | None":
    """The policy of this name, None if there is none."""
    made = _POLICIES.get(name)
    return made() if made is not None else None
