"""Log lines of retention."""

from collections.abc import Mapping, Sequence

from ....ports.report import Line, counted, info
from ....ports.types import TopicPartition
from ..log_format import LogSegment

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def retention(removed: Mapping[TopicPartition, Sequence[LogSegment]]) -> list[Line]:
    """Return a line for each topic of which a check has deleted segments."""
    by_topic: dict[str, list[LogSegment]] = {}
    partitions: dict[str, int] = {}
    for partition, segments in removed.items():
        by_topic.setdefault(partition.topic, []).extend(segments)
        partitions[partition.topic] = partitions.get(partition.topic, 0) + 1
    return [_line(topic, segments, partitions[topic]) for topic, segments in by_topic.items()]


def _line(topic: str, segments: Sequence[LogSegment], partitions: int) -> Line:
    size = sum(segment.size for segment in segments)
    text = f"topic {topic}: retention deletes {counted(len(segments), 'segment')} ({in_units(size)})"
    text += f" from {counted(partitions, 'partition')}"
    return info(text, topic=topic, segments=len(segments), partitions=partitions, bytes=size)


def in_units(size: float) -> str:
    """Return a size with a binary unit: 1536 → 1.5 KiB."""
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"
