"""Rows of statistics for `barnabas log stats`: by segment, partition and topic."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from ....core.logtools.stats.log_stats import LogStats


@frozen(kw_only=True)
class SegmentRow:
    """The statistics of one segment."""

    topic: str
    partition: int
    segment: str
    figures: "LogStats"


@frozen(kw_only=True)
class Gathered:
    """The statistics by segment, partition and topic; a topic's row has the partition -1."""

    segments: list[SegmentRow]
    partitions: list[SegmentRow]
    topics: list[SegmentRow]


def gather(rows: Iterable[SegmentRow]) -> Gathered:
    """Group the rows. Segments give up the memory of counting, since there may be very many."""
    from ....core.logtools.stats.log_stats import LogStats

    found = Gathered(segments=[], partitions=[], topics=[])
    groups: dict[tuple[str, int], LogStats] = {}
    for row in rows:
        for key, together in (((row.topic, row.partition), found.partitions), ((row.topic, -1), found.topics)):
            if key not in groups:
                groups[key] = LogStats()
                together.append(SegmentRow(topic=row.topic, partition=key[1], segment="", figures=groups[key]))
            groups[key].merge(row.figures)
        row.figures.end()
        found.segments.append(row)
    return found


def codecs_in_words(figures: "LogStats") -> str:
    """Format the codecs by messages, like `lz4 80%, none 20%`."""
    total = figures.codecs.total()
    return ",".join(f"{name}:{100 * count // total}%" for name, count in figures.codecs.most_common() if count)


def moment(timestamp_ms: int) -> str:
    """Format a timestamp in UTC, to the second."""
    from datetime import UTC, datetime

    if timestamp_ms < 0:
        return "-"
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms}ms"


def fields(row: SegmentRow) -> dict[str, object]:
    """Return the JSON object of a row."""
    figures = row.figures
    row_fields: dict[str, object] = {"topic": row.topic}
    if row.partition >= 0:
        row_fields["partition"] = row.partition
    if row.segment:
        row_fields["segment"] = row.segment
    row_fields |= {
        "segments": figures.segments,
        "bytes": figures.bytes,
        "batches": figures.batches,
        "messages": figures.messages,
        "markers": figures.markers,
        "transactional_messages": figures.transactional,
        "damaged_bytes": figures.damaged_bytes,
        "codecs": {
            name: {"messages": count, "bytes": figures.codec_bytes[name]} for name, count in figures.codecs.items()
        },
        "first_timestamp": figures.first_ms,
        "last_timestamp": figures.last_ms,
        "messages_per_second": figures.per_second(figures.messages),
        "bytes_per_second": figures.per_second(figures.bytes),
    }
    if figures.opened:
        row_fields |= {
            "keys": {
                "distinct": figures.keys.estimate(),
                "exact": figures.keys.is_exact,
                "messages_without": figures.without_key,
            },
            "messages_without_value": figures.without_value,
            "content_bytes": figures.content_bytes,
            "largest_message": figures.largest,
            "message_sizes": {f"{lowest(bits)}-{2**bits - 1}": count for bits, count in sorted(figures.sizes.items())},
        }
    return row_fields


def lowest(bits: int) -> int:
    """Return the smallest number with this number of bits."""
    return 1 << bits - 1 if bits else 0
