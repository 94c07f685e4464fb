"""How many batches still belong into a segment (facts B3 roll), where several come at once."""

from collections.abc import Sequence

from ..message.batch_header import BatchHeader
from .config import LogConfig
from .segment import INT_MAX, Segment
from .sparse_index import OFFSET_ENTRY, TIME_ENTRY


def fitting(segment: Segment, headers: Sequence[BatchHeader], config: LogConfig, *, jitter_ms: int, now_ms: int) -> int:
    """How many of the batches, which follow each other, go into the segment; 0: it is full, and an empty one never is.

    As `Segment.must_roll` has it for each, but for the indexes: every batch is counted as if it had an entry, so that
    they may have room for more than is told here, if that is not 0.
    """
    index_bytes = config.segment_index_bytes
    index, times = segment.index, segment.time_index
    entries = min(index_bytes // OFFSET_ENTRY.size - index.count, index_bytes // TIME_ENTRY.size - times.count)
    first = segment.first_timestamp if segment.size else headers[0].max_timestamp
    end, base = int(segment.size), segment.base_offset
    bytes_max, age_max_ms = min(config.segment_bytes, INT_MAX), config.roll_ms - jitter_ms
    for number, header in enumerate(headers):
        end += header.size
        age_ms = header.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        full = end > bytes_max or number >= entries or age_ms > age_max_ms or header.last_offset - base > INT_MAX
        if full and (number or segment.size):
            return number
    return len(headers)
