"""Results of a log. They are named tuples, since every produce and fetch creates one."""

from typing import NamedTuple

from ....ports.storage import Region
from ....ports.types import Offset, Position


class AppendResult(NamedTuple):
    """The offsets of an appended batch. `log_append_time_ms` is -1 on CreateTime topics.

    Classic offsets are bytes: `last_offset` is the one of the last byte.
    """

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    messages: int = 0
    """Number of appended messages; 0 for a duplicate batch."""


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
    """Bytes and messages appended by a follower, and the new log end offset."""

    size: int
    messages: int
    log_end_offset: Offset
