"""What is missing of a log that was durable once: told at each start (facts B3 checkpoints)."""

from collections.abc import Sequence

from ...ports.report import Line, error
from ...ports.words import TopicPartition
from .format import LogFormat, LogSegment


def end_lost(partition: TopicPartition, end: int, recovery_point: int, log_format: LogFormat) -> Line:
    """The log ends below its recovery point. Where offsets count messages it goes on there, so that no offset that a
    consumer may know is given to another message."""
    goes_on = end if log_format.flushed_only else recovery_point
    text = f"{partition}: offsets {end} to {recovery_point - 1} are lost: the recovery-point checkpoint knows them, "
    return error(
        f"{text}but the log ends at {end}; it goes on at {goes_on}",
        partition=str(partition),
        first_offset=end,
        last_offset=recovery_point - 1,
    )


def without_empty_end(segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
    """The segments before one that is to be begun. Raises `StorageError`."""
    if segments[-1].size:
        segments[-1].seal()
        return segments
    segments[-1].delete()
    return segments[:-1]
