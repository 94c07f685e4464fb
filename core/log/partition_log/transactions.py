"""The first unstable offset and the aborted transactions of a log, for read_committed readers (KIP-98)."""

from collections.abc import Sequence

from ....ports.types import Offset, Position
from ..segment.offset_index import CorruptIndex
from ..segment.segment import Segment
from ..segment.transaction_index import AbortedTxn
from .log_state import LogState
from .results import LogSlice


class LogTransactions:
    """Answers read_committed fetches. Owner thread only."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def first_unstable_offset(self, high_watermark: int) -> Offset | None:
        """Return the first offset of a transaction that is open, or whose marker is not below the high watermark."""
        opened = self._state.producers.states.open
        first = opened.first_unstable(high_watermark) if opened.may_hold_back else None
        return None if first is None else Offset(first)

    @property
    def first_undecided_on_disk(self) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not durable."""
        state = self._state
        return state.producers.states.open.first_not_durable(state.durable.recovery_point)

    def aborted(self, from_offset: int, upto: int) -> Sequence[AbortedTxn]:
        """Return the aborted transactions with records in [from_offset, upto), ordered by their markers.

        Raises `StorageError`.
        """
        if not self._state.segments.may_have_aborted(from_offset):
            return ()
        return self._aborted(from_offset, upto)

    def aborted_in(self, from_offset: int, found: LogSlice) -> Sequence[AbortedTxn]:
        """Return the aborted transactions of a read slice, bounded by the offset index. Raises `StorageError`."""
        state = self._state
        if not state.segments.may_have_aborted(from_offset):
            return ()
        end_position = Position(found.position + found.size)
        upto = state.segments.end_of_slice(found.segment_base_offset, end_position, state.end)
        return self._aborted(from_offset, upto)

    def _aborted(self, from_offset: int, upto: int) -> Sequence[AbortedTxn]:
        state = self._state
        try:
            return state.segments.aborted(from_offset, upto)
        except CorruptIndex:
            self._rebuild_damaged()
        return state.segments.aborted(from_offset, upto)

    def rebuild_marked_indexes(self) -> None:
        """Rebuild the transaction indexes that loading marked as corrupt. Raises `StorageError`."""
        if any(segment.aborted.is_marked_corrupt for segment in self._segments()):
            self._rebuild_damaged()

    def _segments(self) -> list[Segment]:
        return [segment for segment in self._state.segments.items if isinstance(segment, Segment)]

    def _rebuild_damaged(self) -> None:
        """Rebuild all corrupt transaction indexes: this is rare, and one is seldom alone."""
        state, segments = self._state, self._segments()
        wrong: list[Segment] = []
        for segment in segments:
            try:
                segment.aborted.check()
            except CorruptIndex as error:
                state.report(f"{state.folder.name}/{segment.aborted.name} is corrupt and is rebuilt: {error}")
                wrong.append(segment)
        state.producers.rebuild_transaction_indexes(segments, wrong, state.end)
