"""Work that makes new segments of a log from old ones, a little at a time on a worker."""

from collections.abc import Iterator
from typing import Any, Protocol

from ...ports.storage import Folder
from ...ports.words import Offset
from .log_swaps import Replacement


class SegmentWork(Protocol):
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
