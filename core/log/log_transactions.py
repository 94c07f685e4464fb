"""What readers of committed records need to know of a log: where all is decided, what was aborted (facts B2, B3)."""

from collections.abc import Callable, Sequence

from ...ports.storage import Folder
from ...ports.words import Offset, Position, TopicPartition
from .aborted_index import AbortedEntry
from .durability import Durability
from .producer_state import ProducerStates
from .producer_state_files import ProducerLedger
from .results import LogSlice
from .segment import Segment
from .segment_list import SegmentList
from .sparse_index import IndexDamaged


class LogTransactions:
    """The transactions of a `Log`, over what the other halves keep. Owner thread only."""

    topic_partition: TopicPartition
    _segments: SegmentList
    _end: Offset
    _ledger: ProducerLedger
    _durable: Durability
    _folder: Folder
    _report: Callable[[str], None]

    @property
    def producers(self) -> ProducerStates:
        """The producers that have written here with an id; none in a classic log."""
        return self._ledger.states

    def first_unstable_offset(self, high_watermark: int) -> Offset | None:
        """The first offset of a transaction that is under way, or that has ended at or above the high watermark."""
        opened = self._ledger.states.open
        first = opened.first_unstable(high_watermark) if opened.may_hold_back else None
        return None if first is None else Offset(first)

    @property
    def first_undecided_on_disk(self) -> int | None:
        """The first offset of a transaction that is under way, or that a power cut may leave so."""
        return self._ledger.states.open.first_not_durable(self._durable.recovery_point)

    def aborted(self, from_offset: int, upto: int) -> Sequence[AbortedEntry]:
        """The transactions that were aborted and have records in [from_offset, upto), in the order of their markers.

        Raises `StorageError`.
        """
        if not self._segments.may_have_aborted(from_offset):
            return ()
        return self._aborted(from_offset, upto)

    def aborted_in(self, from_offset: int, found: LogSlice) -> Sequence[AbortedEntry]:
        """The same for what a read from an offset gave, as narrow as the index tells. Raises `StorageError`."""
        if not self._segments.may_have_aborted(from_offset):
            return ()
        upto = self._segments.end_of_slice(found.segment_base_offset, Position(found.position + found.size), self._end)
        return self._aborted(from_offset, upto)

    def _aborted(self, from_offset: int, upto: int) -> Sequence[AbortedEntry]:
        try:
            return self._segments.aborted(from_offset, upto)
        except IndexDamaged:
            self._rebuild_damaged()
        return self._segments.aborted(from_offset, upto)

    def _rebuild_damaged(self) -> None:
        """All that cannot be used: where one is, others may be, and it is rare."""
        segments = [segment for segment in self._segments.items if isinstance(segment, Segment)]
        for segment in segments:
            try:
                segment.aborted.check()
            except IndexDamaged as error:
                self._report(f"{self._folder.name}/{segment.aborted.name} is damaged and rebuilt: {error}")
                self._ledger.rebuild_aborted(segments, segment, self._end)
