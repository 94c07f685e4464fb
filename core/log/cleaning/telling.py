"""What the log of the broker says of compaction."""

from ....ports.report import Line, counted, info
from ....ports.words import TopicPartition
from ..telling import in_units
from .cleaning import CleaningStats


def cleaned(partition: TopicPartition, stats: CleaningStats, took_ms: float, policy: str | None = None) -> Line:
    """A line for a log that is clean now; `policy`: which has looked at each message of it."""
    gone = stats.messages_read - stats.messages_kept
    what = "is compacted" if policy is None else f"was looked at by deletion.policy={policy}"
    text = (
        f"{partition} {what} below offset {stats.next_dirty}: {gone} of {counted(stats.messages_read, 'message')} went"
    )
    text += f", {in_units(stats.bytes_read)} became {in_units(stats.bytes_written)} in {took_ms / 1000:.1f} s"
    return info(
        text,
        partition=str(partition),
        next_dirty=stats.next_dirty,
        messages_read=stats.messages_read,
        messages_kept=stats.messages_kept,
        bytes_read=stats.bytes_read,
        bytes_written=stats.bytes_written,
        took_ms=round(took_ms),
    )
