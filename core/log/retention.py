"""Which old segments may go: what a deletion policy is asked, and how its answer is taken."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from ...ports.report import counted
from ...ports.types import TopicPartition
from ...ports.values import frozen
from ..message.message import Message
from .config import LogConfig


@frozen(kw_only=True)
class SegmentInfo:
    """What a deletion policy learns of a segment."""

    base_offset: int
    next_offset: int
    """Exclusive."""
    size_bytes: int
    largest_timestamp_ms: int
    """Of its records; when the file was changed where no record has a timestamp."""
    active: bool
    """The newest segment. If it may go as well, the log rolls first, so that an empty one takes its place."""


Committed = Callable[[str, TopicPartition], int | None]
"""How far a consumer group has come in a partition: the offset it reads next, as last heard. None: not known here and
now, or it has committed nothing."""


def unknown_committed(_group: str, _partition: TopicPartition) -> None:
    """Of every group, where nobody can be asked."""


@frozen(kw_only=True)
class DeletionContext:
    """What a deletion policy may know when it is made."""

    parameters: str = ""
    """What stands behind the first colon of deletion.policy."""
    partition: TopicPartition | None = None
    """Whose log it is for; None: it is made to see if it can be, and never asked."""
    committed: Committed = unknown_committed


class DeletionPolicy(Protocol):
    """Decides about old segments. Quick, without side effects; asked on the owner thread at every retention check."""

    def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
        """How many of the oldest segments may go, 0 to `len(segments)`.

        `segments` are all of the log, oldest first, those not yet below the high watermark too: the log keeps these
        whatever the answer. An exception or a senseless answer is reported and deletes nothing.
        """
        ...


LOOK_AGAIN_MS = 3_600_000
"""How long after one pass of a `RecordPolicy` through a log the next one begins, where it does not say so itself."""


class RecordPolicy(DeletionPolicy, Protocol):
    """A deletion policy that also lets single messages go, wherever they stand in sealed segments of a log of batches.

    The cleaner asks it, on a worker thread, about every message that it meets. It may have `look_again_ms`.
    """

    def keeps(self, message: Message, *, now_ms: int) -> bool:
        """False: the message goes. An exception is reported; nothing goes then, until the next pass."""
        ...


def record_policy(policy: DeletionPolicy) -> RecordPolicy | None:
    """The policy, if it looks at single messages."""
    return cast(RecordPolicy, policy) if callable(getattr(policy, "keeps", None)) else None


def removable(
    policy: DeletionPolicy,
    segments: Sequence[SegmentInfo],
    bounds: tuple[int, int],
    now_ms: int,
    config: LogConfig,
    report: Callable[[str], None],
) -> tuple[int, bool]:
    """(how many leading segments go, True if an empty active one would go too), facts B3.

    `bounds`: what ends at the first offset goes in any case; what the policy gives up, where the topic deletes, goes if
    it ends at the second.
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


def count_given_up(
    policy: DeletionPolicy,
    segments: Sequence[SegmentInfo],
    *,
    now_ms: int,
    config: LogConfig,
    report: Callable[[str], None],
) -> int:
    """How many leading segments the policy gives up; a failure of it is reported and counts as none."""
    try:
        count = policy.deletable(segments, now_ms=now_ms, config=config)
    except Exception as error:  # noqa: BLE001  # a plugin's failure is reported and costs no data
        report(f"the deletion policy {config.deletion_policy!r} failed: {type(error).__name__}: {error}")
        return 0
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= len(segments):
        report(
            f"the deletion policy {config.deletion_policy!r} answered {count!r} for {counted(len(segments), 'segment')}"
        )
        return 0
    return count


def count_deletable(given_up: Sequence[SegmentInfo], high_watermark: int) -> int:
    """How many of these leading segments may go at all: below the high watermark, and not if empty and active."""
    for index, segment in enumerate(given_up):
        if segment.next_offset > high_watermark or (segment.active and not segment.size_bytes):
            return index
    return len(given_up)
