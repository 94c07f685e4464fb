"""What a listing of a partition's folder tells of one segment."""

from typing import NamedTuple


class SegmentFiles(NamedTuple):
    """Sizes of its files; -1 = missing."""

    log_bytes: int = 0
    index_bytes: int = -1
    time_index_bytes: int = -1
    modified_ms: int = 0
    aborted_bytes: int = -1
