"""Losses of durable data, which each start reports (facts B3 checkpoints)."""

from collections.abc import Iterator, Sequence

from ....ports.report import Line, error
from ....ports.types import TopicPartition
from ..checkpoints import SealedSegment
from ..log_format import LogSegment


def lost_end_line(partition: TopicPartition, end: int, recovery_point: int, *, continues: bool) -> Line:
    """Return the line for a log that ends below its recovery point. A log whose offsets count messages and that has no
    other replica `continues` at the recovery point, so that no known offset is assigned to another message."""
    text = f"{partition}: offsets {end} to {recovery_point - 1} are lost: the recovery point is {recovery_point}, "
    return error(
        f"{text}but the log ends at {end}; it continues at {recovery_point if continues else end}",
        partition=str(partition),
        first_offset=end,
        last_offset=recovery_point - 1,
    )


def missing_folder_line(path: str, partition: TopicPartition, recovery_point: int) -> Line:
    """Return the line for a missing partition that a clean shutdown left there."""
    text = f"{path}/{partition} is missing, with all records of the log below offset {recovery_point}"
    return error(text, partition=str(partition), last_offset=recovery_point - 1)


def lost_visible_line(partition: TopicPartition, end: int, high_watermark: int) -> Line:
    """Return the line for a log that was not shut down cleanly and lost records that consumers may have read."""
    text = f"{partition}: offsets {end} to {high_watermark - 1} are lost: consumers may have read them, but they were "
    return error(
        f"{text}not durable when the broker stopped",
        partition=str(partition),
        first_offset=end,
        last_offset=high_watermark - 1,
    )


def lost_segment_lines(
    partition: TopicPartition, known: Sequence[SealedSegment], segments: Sequence[LogSegment], *, in_order: bool
) -> Iterator[Line]:
    """Yield a line for each sealed segment of the last checkpoint that is missing or shorter now.

    Without a clean shutdown the oldest may have been deleted since then. Raises `StorageError`.
    """
    present = {segment.base_offset: segment for segment in segments}
    for sealed in known:
        segment = present.get(sealed.base_offset)
        if segment is None and not in_order and sealed.base_offset < segments[0].base_offset:
            continue
        if segment is not None and segment.size >= sealed.size:
            continue
        first, last = sealed.base_offset, sealed.next_base - 1
        found = "its segment is missing"
        if segment is not None:
            first = max((header.next_offset for _, header in segment.batches()), default=first)
            found = f"{segment.names[0]} has {segment.size} bytes and had {sealed.size}"
        if first > last:
            continue  # it was compacted, or had garbage after its last message
        yield error(
            f"{partition}: offsets {first} to {last} are lost: {found}",
            partition=str(partition),
            first_offset=first,
            last_offset=last,
        )


def drop_empty_end(segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
    """Seal or delete the last segment, for a new one after it; return the remaining ones. Raises `StorageError`."""
    if segments[-1].size:
        segments[-1].seal()
        return segments
    segments[-1].delete()
    return segments[:-1]
