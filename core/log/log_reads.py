"""What readers of a log see: batches from an offset on, and offsets by time. It changes nothing."""

from collections.abc import Callable

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import Offset, TopicPartition
from ..message.codec import Codecs
from ..traffic.steps import Steps
from .durability import Durability
from .format import LogFormat, LogSegment
from .leader_epochs import LeaderEpochs
from .results import EMPTY_SLICE, LogSlice, TimestampOffset
from .segment_list import FoundRecord, SegmentList, among_present

_new = tuple.__new__  # once in every fetch, for half of what the named tuple's own takes


class LogReads:
    """The reading half of a `Log`, over what the other half keeps. Owner thread only."""

    topic_partition: TopicPartition
    epochs: LeaderEpochs
    closed: bool
    _segments: SegmentList
    _start: Offset
    _end: Offset
    _format: LogFormat
    _durable: Durability
    _codecs: Codecs

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Oldest first; the last is the active one."""
        return self._segments.items

    @property
    def readable_end(self) -> Offset:
        """Where readers stop (exclusive): the log end, or in a classic log what is durable (facts A4)."""
        return self._durable.recovery_point if self._format.flushed_only else self._end

    def read(self, offset: int, *, max_bytes: int, limit: int, whole_first_batch: bool = True) -> LogSlice:
        """Batches from the one that holds `offset` on, below `limit` (exclusive; whole batches), of one segment.

        About `max_bytes`: the last batch may be cut there. The first comes whole even if larger, or with
        `whole_first_batch` off not at all. Empty at and above the limit. A classic log gives bytes from exactly
        `offset` on, `max_bytes` at most, whatever begins or ends there. Raises `ApiError` OFFSET_OUT_OF_RANGE, or
        CORRUPT_MESSAGE where the log is damaged; `StorageError`.
        """
        end = self.readable_end
        if not self._start <= offset <= end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has offsets {self._start} to {end}, not {offset}",
            )
        place = self._segments.find(Offset(offset), Offset(limit) if limit < end else end, self._end)
        if place is None:
            return EMPTY_SLICE
        number, position, first_batch_size, end_position = place
        left = end_position - position
        size = left if left < max_bytes else max_bytes
        if size < first_batch_size:
            if not whole_first_batch:
                return EMPTY_SLICE
            size = first_batch_size
        segment = self._segments.items[number]
        return _new(LogSlice, (segment.region(position, size), segment.base_offset, position))

    def available_bytes(self, offset: int, limit: int, max_bytes: int) -> int:
        """How many bytes reads from `offset` up to `limit` could give, at most `max_bytes`; 0 outside the log."""
        if offset < self._start:
            return 0
        return self._segments.available_bytes(
            Offset(offset), min(Offset(limit), self.readable_end), self._end, max_bytes
        )

    def offsets_before(self, time_ms: int, max_offsets: int, now_ms: int) -> list[Offset]:
        """Segments' first offsets, newest first, from the newest segment changed at `time_ms` or before on (facts A4).

        LATEST (-1) begins with the readable end, EARLIEST (-2) gives the oldest alone.
        """
        found = self._segments.offsets_before(time_ms, self._start, self.readable_end, now_ms)
        return found[: max(0, max_offsets)]

    def offset_for_timestamp(self, timestamp: int) -> Steps[TimestampOffset | None]:
        """The first record whose timestamp is at least `timestamp`, ms (facts B3); None when there is none.

        In steps: batches are unpacked on a worker. Raises `StorageError`, `ApiError` CORRUPT_MESSAGE.
        """
        return self._looking(lambda segments: segments.first_at(timestamp, self._start, self._end, self._codecs))

    def max_timestamp_offset(self) -> Steps[TimestampOffset | None]:
        """The first record with the largest timestamp of all; None when no record has one. As above."""
        return self._looking(lambda segments: segments.first_at_largest(self._start, self._end, self._codecs))

    def _looking(self, find: Callable[[SegmentList], Steps[FoundRecord | None]]) -> Steps[TimestampOffset | None]:
        return self._with_epoch((yield from among_present(self, lambda: self._segments, find)))

    def _with_epoch(self, found: FoundRecord | None) -> TimestampOffset | None:
        if found is None:
            return None
        return TimestampOffset(found.timestamp, found.offset, self.epochs.epoch_at(found.offset))
