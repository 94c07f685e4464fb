"""What a log answers. Named tuples: one is made for every produce and every fetch."""

from typing import NamedTuple

from ....ports.storage import Region
from ....ports.words import Offset, Position


class AppendResult(NamedTuple):
    """Where a batch went. `log_append_time_ms` is -1 on CreateTime topics.

    Classic offsets are bytes: `last_offset` is the one of the last byte.
    """

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    messages: int = 0
    """How many were appended; none of a batch that was there already, which a producer has sent again."""


class LogSlice(NamedTuple):
    """Batches of one segment, from `position` in its file on; the last may be cut by the size limit."""

    records: Region | bytes
    segment_base_offset: Offset = Offset(-1)
    position: Position = Position(0)

    @property
    def size(self) -> int:
        return len(self.records) if isinstance(self.records, bytes) else self.records.size


EMPTY_SLICE = LogSlice(b"")


class TimestampOffset(NamedTuple):
    """A record found by its timestamp; the epoch is -1 when unknown."""

    timestamp: int
    offset: Offset
    leader_epoch: int


class ReplicatedAppendResult(NamedTuple):
    """What was appended: bytes, messages, and where the log ends now."""

    size: int
    messages: int
    log_end_offset: Offset
