"""Progress of a stream, in addition to what Spark's API for Python data sources reports."""

import json
from collections.abc import Mapping
from typing import Any

from ..source.stream_plan import StreamOffsets
from ..topics.model import ClusterPartition


def offsets_behind_latest(source: Any) -> dict[str, str]:
    """Return the lag of a stream behind the ends of its topics' partitions: minOffsetsBehindLatest,
    maxOffsetsBehindLatest and avgOffsetsBehindLatest, as Spark's Kafka source has them among the metrics of its
    progress.

    `source` is one of `query.lastProgress.sources`, or of `event.progress.sources` in a `StreamingQueryListener`.
    Empty before the first batch. Python data sources cannot put metrics into the progress themselves.
    """
    behind = list(behind_latest(source).values())
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def behind_latest(source: Any) -> dict[ClusterPartition, int]:
    """Return the lag of each partition."""
    end, latest = (_offsets(source, name) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return {}
    return {
        place: offset
        - (0 if end.another(place.topic, latest.topic_ids.get(place.topic, "")) else end.positions.get(place, 0))
        for place, offset in latest.positions.items()
    }


def _offsets(source: Any, name: str) -> StreamOffsets | None:
    """Read offsets from Spark's progress, which has them as JSON in an object, or as a mapping in a mapping."""
    found = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(found, str):
        found = json.loads(found)
    return StreamOffsets.unpacked(found) if found and isinstance(found, Mapping) else None
