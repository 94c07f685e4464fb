"""Offsets by timestamp, for ListOffsets and the classic OffsetRequest (facts A4, B3)."""

from collections.abc import Callable

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ClosedError
from ....ports.storage import StorageError
from ....ports.types import Offset
from ...traffic.steps import Steps
from ..segment.segment_list import FoundRecord, SegmentList
from .log_state import LogState
from .results import TimestampOffset


class TimestampLookup:
    """Finds offsets by timestamp. Owner thread only."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def offsets_before(self, time_ms: int, max_offsets: int, now_ms: int) -> list[Offset]:
        """Return base offsets, newest first, from the newest segment modified at `time_ms` or before on (facts A4).

        LATEST (-1) begins with the readable end, EARLIEST (-2) gives the oldest alone.
        """
        state = self._state
        found = state.segments.offsets_before(time_ms, state.start, state.readable_end, now_ms)
        return found[: max(0, max_offsets)]

    def find_first_at(self, timestamp: int) -> Steps[TimestampOffset | None]:
        """Find the first record at `timestamp` (ms) or later; None without one.

        In steps: batches are unpacked on a worker. Raises `StorageError`, `ApiError` CORRUPT_MESSAGE.
        """
        state = self._state
        return self._looking(lambda segments: segments.find_first_at(timestamp, state.start, state.end, state.codecs))

    def find_max_timestamp(self) -> Steps[TimestampOffset | None]:
        """Find the first record with the largest timestamp; None if no record has a timestamp."""
        state = self._state
        return self._looking(lambda segments: segments.find_max_timestamp(state.start, state.end, state.codecs))

    def _looking(self, find: Callable[[SegmentList], Steps[FoundRecord | None]]) -> Steps[TimestampOffset | None]:
        """Run `find` on the segments, and again if one of them was removed meanwhile."""
        state = self._state
        while True:
            present = state.segments
            try:
                found = yield from find(present)
            except (StorageError, ClosedError):
                if state.closed:
                    text = f"{state.topic_partition} was closed meanwhile"
                    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text) from None
                if set(present.items) <= set(state.segments.items):
                    raise
                continue
            if found is None:
                return None
            return TimestampOffset(found.timestamp, found.offset, state.epochs.epoch_at(found.offset))
