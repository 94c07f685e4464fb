"""Retention: the question to a deletion policy, and the application of its answer."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from attrs import evolve

from ...ports.report import counted
from ...ports.types import TopicPartition
from ...ports.values import frozen
from ..message.message import Message
from .config import LogConfig


@frozen(kw_only=True)
class SegmentInfo:
    """A segment as a deletion policy sees it."""

    base_offset: int
    next_offset: int
    """Exclusive."""
    size_bytes: int
    largest_timestamp_ms: int
    """Largest timestamp of its records; the modification time of the file if no record has one."""
    active: bool
    """True for the newest segment. If it is deletable as well, the log rolls first and retains an empty one."""


Committed = Callable[[str, TopicPartition], int | None]
"""Returns the last known committed offset of a consumer group in a partition; None if it is unknown here, or the group
has committed nothing."""


def unknown_committed(_group: str, _partition: TopicPartition) -> None:
    """Return None for every group: where no coordinator can be asked."""


@frozen(kw_only=True)
class DeletionContext:
    """The input of a deletion policy's factory."""

    parameters: str = ""
    """The text after the first colon of deletion.policy."""
    partition: TopicPartition | None = None
    """The partition of the log; None if the policy is made for validation only, and never asked."""
    committed: Committed = unknown_committed


class DeletionPolicy(Protocol):
    """Decides which old segments to delete. Must be quick and without side effects; called on the owner thread."""

    def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
        """Return how many of the oldest segments may be deleted, 0 to `len(segments)`.

        `segments` are all segments, oldest first, including those above the high watermark, which the log retains
        in any case. An exception or an invalid answer is reported and deletes nothing.
        """
        ...


_AS_RETENTION = -2
"""The value of local.retention.* that stands for that of retention.*."""

LOOK_AGAIN_MS = 3_600_000
"""Pause between two passes of a `RecordPolicy` over a log, unless the policy has its own."""


class RecordPolicy(DeletionPolicy, Protocol):
    """A deletion policy that also deletes single messages in sealed segments of a log of batches.

    The cleaner calls it on a worker thread for every message. It may have `look_again_ms`.
    """

    def keeps(self, message: Message, *, now_ms: int) -> bool:
        """Return False to delete the message. An exception is reported; nothing is deleted until the next pass."""
        ...


def record_policy(policy: DeletionPolicy) -> RecordPolicy | None:
    """Return the policy if it decides on single messages, else None."""
    return cast(RecordPolicy, policy) if callable(getattr(policy, "keeps", None)) else None


def removable(
    policy: DeletionPolicy,
    segments: Sequence[SegmentInfo],
    bounds: tuple[int, int],
    now_ms: int,
    config: LogConfig,
    report: Callable[[str], None],
) -> tuple[int, bool]:
    """Return (number of leading segments to delete, True if an empty active one is deletable too), facts B3.

    `bounds`: segments that end at the first offset are deleted in any case; those that the policy releases, on a topic
    with cleanup.policy=delete, if they end at the second.
    """
    unread, high_watermark = bounds
    last = len(segments) - 1
    count, empty_one_too = 0, False
    while count < last and segments[count].next_offset <= unread:
        count += 1
    if "delete" in config.cleanup_policy:
        given_up = count_given_up(policy, segments, now_ms=now_ms, config=config, report=report)
        count = max(count, count_deletable(segments[:given_up], high_watermark))
        empty_one_too = given_up > last and not segments[last].size_bytes
    return count, empty_one_too


def local_retention_config(config: LogConfig) -> LogConfig:
    """Return the configuration by which segments of a tiered log are deleted here, once remote storage has them."""
    return evolve(
        config,
        retention_ms=config.retention_ms if config.local_retention_ms == _AS_RETENTION else config.local_retention_ms,
        retention_bytes=config.retention_bytes
        if config.local_retention_bytes == _AS_RETENTION
        else config.local_retention_bytes,
    )


def count_given_up(
    policy: DeletionPolicy,
    segments: Sequence[SegmentInfo],
    *,
    now_ms: int,
    config: LogConfig,
    report: Callable[[str], None],
) -> int:
    """Return how many leading segments the policy releases; a failure of it is reported and counts as none."""
    try:
        count = policy.deletable(segments, now_ms=now_ms, config=config)
    except Exception as error:  # noqa: BLE001  # a plugin's failure is reported and costs no data
        report(f"the deletion policy {config.deletion_policy!r} failed: {type(error).__name__}: {error}")
        return 0
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= len(segments):
        report(
            f"the deletion policy {config.deletion_policy!r} returned {count!r} for {counted(len(segments), 'segment')}"
        )
        return 0
    return count


def count_deletable(given_up: Sequence[SegmentInfo], high_watermark: int) -> int:
    """Return how many of these leading segments are deletable: below the high watermark, except an empty active one."""
    for index, segment in enumerate(given_up):
        if segment.next_offset > high_watermark or (segment.active and not segment.size_bytes):
            return index
    return len(given_up)
