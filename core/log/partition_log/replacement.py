"""Crash-safe replacement of segments of a log by a cleaned one (Kafka: UnifiedLog.replaceSegments)."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ....ports.errors import BarnabasError
from ....ports.storage import FileMissing, Folder, StorageError
from ....ports.types import Offset
from ....ports.values import frozen
from ..log_format import LogSegment
from ..names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from ..segment.damage import NO_BOUND
from ..segment.segment import Segment, SegmentFiles
from ..segment.segment_list import SegmentList
from .log_state import LogState


class SegmentsChanged(BarnabasError):
    """The segments to be replaced are no longer in the log."""


@frozen(kw_only=True)
class Replacement:
    """A segment that replaces adjacent ones: its files are durable and have the suffix .cleaned."""

    base_offset: Offset
    next_offset: Offset
    """Exclusive end of the last replaced segment."""
    files: SegmentFiles
    names: Sequence[str]
    """Final file names, that of the batches first."""
    replaced: Sequence[LogSegment]


class SegmentReplacer:
    """Replaces segments in two steps. Owner thread only.

    Between the steps, another thread flushes the folder:
    begin_replacement: .cleaned → .swap; from then on a start completes the replacement.
    end_replacement:   replaced files → .deleted, .swap → the final names.
    """

    __slots__ = ("_state", "_swap", "truncated_to")

    def __init__(self, state: LogState) -> None:
        self.truncated_to = NO_BOUND
        """Lowest truncation offset since the cleaner last reset it."""
        self._state = state
        self._swap: Replacement | None = None

    @property
    def under_way(self) -> bool:
        """Return True between the two steps, when no segment may be deleted."""
        return self._swap is not None

    def begin_replacement(self, swap: Replacement) -> None:
        """Begin the replacement. Raises `SegmentsChanged`, `StorageError`; the log is unchanged then."""
        self._place_of(swap)
        self._swap = swap
        try:
            _rename(self._state.folder, swap.names, CLEANED_SUFFIX, SWAP_SUFFIX)
        except StorageError:
            self._swap = None
            raise

    def end_replacement(self, now_ms: int) -> Sequence[LogSegment]:
        """Complete the replacement; return the old segments, to be deleted after `file_delete_delay_ms`.

        Raises `SegmentsChanged` if the log was truncated meanwhile. After a `StorageError` the log is out of use:
        opening it again completes the replacement.
        """
        swap, state = self._swap, self._state
        if swap is None:
            raise SegmentsChanged("the log was truncated meanwhile")
        at = self._place_of(swap)
        try:
            for segment in swap.replaced:
                segment.rename(DELETED_SUFFIX)
            _rename(state.folder, swap.names, SWAP_SUFFIX, "")
        except StorageError as error:
            state.durable.failure = error
            raise
        made = self._opened(swap, now_ms)
        items = state.segments.items
        state.segments = SegmentList((*items[:at], made, *items[at + len(swap.replaced) :]))
        self._swap = None
        state.durable.new_names = True
        for segment in swap.replaced:
            segment.close()
        state.producers.delete_snapshots_at([segment.base_offset for segment in swap.replaced[1:]])
        return swap.replaced

    def note_truncation(self, offset: Offset) -> None:
        """Note a truncation to `offset`, which aborts a replacement. Raises `StorageError`."""
        self.truncated_to = min(self.truncated_to, offset)
        self.drop()

    def drop(self) -> None:
        """Abort a begun replacement; the segments stay. Blocks. Raises `StorageError`.

        One that failed half-way is completed at the next opening, since replaced files may have lost their names.
        """
        if self._state.durable.failure is not None:
            return
        swap, self._swap = self._swap, None
        if swap is not None:
            folder = self._state.folder
            for name in swap.names:
                folder.delete(name + SWAP_SUFFIX)
            folder.flush()  # a reappearing file would restore records that are truncated next

    def _opened(self, swap: Replacement, now_ms: int) -> Segment:
        state = self._state
        made = Segment(
            state.folder,
            swap.base_offset,
            files=swap.files,
            now_ms=now_ms,
            index_interval_bytes=state.config.index_interval_bytes,
            report=state.report,
        )
        made.next_offset = swap.next_offset
        return made

    def _place_of(self, swap: Replacement) -> int:
        """Return the index of the first segment to be replaced."""
        items, count = self._state.segments.items, len(swap.replaced)
        at = next((number for number, item in enumerate(items) if item is swap.replaced[0]), len(items))
        if self._state.closed or items[at : at + count] != tuple(swap.replaced) or at + count >= len(items):
            raise SegmentsChanged("some of the segments are no longer in the log")
        return at


def _rename(folder: Folder, names: Sequence[str], old: str, new: str) -> None:
    """Rename the files, that of the batches last: loading relies on it and rebuilds missing indexes."""
    for name in reversed(names):
        try:
            folder.rename(name + old, name + new)
        except FileMissing:
            if name is names[0]:
                raise


class SegmentRewrite(Protocol):
    """A compaction, a pass of a deletion policy, or the repair of a segment."""

    @property
    def folder(self) -> Folder: ...

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written so far."""
        ...

    @property
    def cleaned_to(self) -> Offset | None:
        """End of the compacted part after completion; None if the work does not compact."""
        ...

    @property
    def stats(self) -> Any:
        """Statistics after completion."""
        ...

    def steps(self) -> Iterator[Replacement | None]:
        """Yield None after each piece of work, and a `Replacement` to apply to the log before the next step.

        Raises `CannotClean`, `StorageError`; `abandon` then removes the unfinished segment.
        """
        ...

    def abandon(self) -> None:
        """Delete the unfinished segment. Raises `StorageError`."""
        ...
