"""How a log takes in a segment that was made from others of it, so that no crash costs anything (facts B3)."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ....ports.errors import BarnabasError
from ....ports.storage import FileMissing, Folder, StorageError
from ....ports.values import frozen
from ....ports.words import Offset
from ..log_format import LogSegment
from ..names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from ..segment.damage import NO_BOUND
from ..segment.segment import Segment, SegmentFiles
from ..segment.segment_list import SegmentList
from .log_state import LogState


class SegmentsChanged(BarnabasError):
    """What was to be replaced is not in the log any more."""


@frozen(kw_only=True)
class Replacement:
    """A segment that is ready to take the place of neighbours: its files are durable and have the suffix .cleaned."""

    base_offset: Offset
    next_offset: Offset
    """Exclusive: where the last of those that it replaces ends."""
    files: SegmentFiles
    names: Sequence[str]
    """Those it is going to have, that of the batches first."""
    replaced: Sequence[LogSegment]


class SegmentReplacer:
    """Owner thread only.

    Between the steps, the folder is made durable (`Folder.flush`) elsewhere:
    begin:  .cleaned → .swap; from then on a start completes the exchange.
    end:    what is replaced → .deleted, .swap → the real names.
    """

    __slots__ = ("_state", "_swap", "truncated_to")

    def __init__(self, state: LogState) -> None:
        self.truncated_to = NO_BOUND
        """The lowest offset that the log was cut at, since whoever cleans it has asked (and reset it)."""
        self._state = state
        self._swap: Replacement | None = None

    @property
    def under_way(self) -> bool:
        """True between the two: no segment may go."""
        return self._swap is not None

    def begin(self, swap: Replacement) -> None:
        """Raises `SegmentsChanged` where what is to be replaced is not in the log any more, `StorageError`; the log is
        as it was then."""
        self._place_of(swap)
        self._swap = swap
        try:
            _rename(self._state.folder, swap.names, CLEANED_SUFFIX, SWAP_SUFFIX)
        except StorageError:
            self._swap = None
            raise

    def end(self, now_ms: int) -> Sequence[LogSegment]:
        """Returns what was replaced; the owner deletes it after `file_delete_delay_ms`.

        Raises `SegmentsChanged` where the log was cut meanwhile. After a `StorageError` the log is out of use: opening
        it again completes the exchange.
        """
        swap, state = self._swap, self._state
        if swap is None:
            raise SegmentsChanged("the log was cut meanwhile")
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
        """Nothing from `offset` on counts any more. Raises `StorageError`."""
        self.truncated_to = min(self.truncated_to, offset)
        self.drop()

    def drop(self) -> None:
        """Give up the exchange that has begun, if there is one; the segments stay. Blocks. Raises `StorageError`.

        One that has failed half-way is not given up: what is replaced may have lost its name, and opening completes it.
        """
        if self._state.durable.failure is not None:
            return
        swap, self._swap = self._swap, None
        if swap is not None:
            folder = self._state.folder
            for name in swap.names:
                folder.delete(name + SWAP_SUFFIX)
            folder.flush()  # else it might come back, and bring back what is cut off next

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
        """The number of the first of the segments that are to be replaced."""
        items, count = self._state.segments.items, len(swap.replaced)
        at = next((number for number, item in enumerate(items) if item is swap.replaced[0]), len(items))
        if self._state.closed or items[at : at + count] != tuple(swap.replaced) or at + count >= len(items):
            raise SegmentsChanged("some of its segments are gone")
        return at


def _rename(folder: Folder, names: Sequence[str], old: str, new: str) -> None:
    """The file of the batches last: a start goes by it, and makes indexes where they are missing."""
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
        """Read and written by now."""
        ...

    @property
    def cleaned_to(self) -> Offset | None:
        """Once it is done: the log is compacted below; None: the work does not compact."""
        ...

    @property
    def stats(self) -> Any:
        """Once it is done: what it has done."""
        ...

    def steps(self) -> Iterator[Replacement | None]:
        """None after each piece of work; a `Replacement` is to be taken into the log before the next step.

        Raises `CannotClean`, `StorageError`; `abandon` then removes what was being made.
        """
        ...

    def abandon(self) -> None:
        """Remove what is being made. Raises `StorageError`."""
        ...
