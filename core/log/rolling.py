"""When the active segment is full (facts B3 roll)."""

from .config import LogConfig
from .segment import INT_MAX, Segment
from .sparse_index import OFFSET_ENTRY, TIME_ENTRY


def must_roll(
    segment: Segment,
    config: LogConfig,
    *,
    jitter_ms: int,
    size: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
) -> bool:
    """True if a batch of `size` bytes up to `last_offset` must go to a new segment; an empty one is never full."""
    if not segment.size:
        return False
    if segment.size + size > min(config.segment_bytes, INT_MAX):
        return True
    if last_offset - segment.base_offset > INT_MAX:
        return True
    if segment.index.count >= max(1, config.segment_index_bytes // OFFSET_ENTRY.size):
        return True
    if segment.time_index.count >= max(1, config.segment_index_bytes // TIME_ENTRY.size):
        return True
    first = segment.first_timestamp
    age_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    return age_ms > config.segment_ms - jitter_ms
