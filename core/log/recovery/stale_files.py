"""Stale files of an interrupted deletion or cleaning: removed or completed, if nothing is lost by it."""

from collections.abc import Callable, Mapping

from ....ports.report import info, warning
from ....ports.storage import FileInfo, Folder
from ....ports.types import Offset, Position
from ..checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from ..config import LONG_MAX
from ..names import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    QUARANTINE_SUFFIX,
    SEGMENT_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ..segment.damage import Gap, walk
from .quarantine import quarantine_files

_OWN_FILES = {LEADER_EPOCHS, PARTITION_METADATA}
_SEGMENT_KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)


def parsed(name: str) -> tuple[int, str, str]:
    """Return (base offset, kind, state) of a segment file; the kind is empty for other files."""
    found = SEGMENT_FILE.fullmatch(name)
    return (int(found["base"]), found["kind"], found["state"] or "") if found is not None else (-1, "", "")


class StaleFiles:
    """The files of one folder. Raises `StorageError` throughout."""

    def __init__(self, folder: Folder, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        self._files: dict[str, FileInfo] = dict(folder.files())

    def clear(self) -> Mapping[str, FileInfo]:
        """Complete every interrupted change; return the remaining files."""
        beyond = [name for name in self._files if parsed(name)[0] >= LONG_MAX]
        for name in beyond:
            quarantine_files(self._folder, [name], "begins beyond all offsets", self._report)
        self._refresh()
        # Cleanings first: if one is corrupt, its source segments are needed.
        for base in sorted(base for base, kind, state in self._parsed() if (kind, state) == (LOG_SUFFIX, SWAP_SUFFIX)):
            self._finish_swap(base)
            self._refresh()
        for name in self._files:
            base, kind, state = parsed(name)
            temporary = name.endswith(".tmp") and _is_small_file(name.removesuffix(".tmp"))
            if (kind, state) == (ABORTED_SUFFIX, SWAP_SUFFIX):
                self._distrust_indexes(base)
            if temporary or state in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
                self._folder.delete(name)  # indexes of a swap are rebuilt
            elif not kind and name not in _OWN_FILES and QUARANTINE_SUFFIX not in name:
                self._report(f"{self._folder.name}/{name} is not a file of a log and is ignored")
        self._refresh()
        self._delete_orphans()
        return self._files

    def _refresh(self) -> None:
        self._files = dict(self._folder.files())

    def _parsed(self) -> list[tuple[int, str, str]]:
        return [parsed(name) for name in self._files]

    def _finish_swap(self, base: int) -> None:
        """Complete a replacement: the `.swap` file takes the place of the segments that it was cleaned from.

        A corrupt one does not, while these exist.
        """
        name = segment_file(base, LOG_SUFFIX)
        end, sound = self._examined(name + SWAP_SUFFIX, base)
        live = [other for other, kind, state in self._parsed() if kind == LOG_SUFFIX and not state]
        if not sound:
            following = min((other for other in live if other > base), default=LONG_MAX)
            if self._bring_back(base, following) or base in live:
                why = "is not a complete segment, and what it was made from is still there"
                quarantine_files(self._folder, [name + SWAP_SUFFIX], why, self._report)
                return
        for old in (other for other in live if base <= other < max(end, base + 1)):
            self._replace(old, end)
        self._distrust_indexes(base)  # they may belong to the replaced segment
        self._folder.rename(name + SWAP_SUFFIX, name)
        self._report(info(f"{self._folder.name}/{name}: an interrupted cleaning is completed"))

    def _distrust_indexes(self, base: int) -> None:
        """Delete one index, since a missing one makes loading rebuild all, that of aborted transactions included."""
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._folder.delete(segment_file(base, kind))

    def _bring_back(self, base: int, end: int) -> bool:
        """Restore the names of the segments of [base, end) that were to be deleted; False without any."""
        found = [name for name in self._files if parsed(name)[1:] == (LOG_SUFFIX, DELETED_SUFFIX)]
        wanted = sorted(name for name in found if base <= parsed(name)[0] < end)
        for name in wanted:
            back = name.removesuffix(DELETED_SUFFIX)
            if back not in self._files:
                self._folder.rename(name, back)
                self._report(warning(f"{self._folder.name}/{back} is restored, because its replacement is corrupt"))
        return bool(wanted)

    def _replace(self, old: int, end: int) -> None:
        """Delete a segment whose messages below `end` are in another one."""
        names = [segment_file(old, kind) for kind in _SEGMENT_KINDS]
        old_end, _ = self._examined(names[0], old)
        if old_end > end:
            why = f"ends at offset {old_end}, and its cleaned segment at {end}"
            quarantine_files(self._folder, names, why, self._report)
            return
        for name in self._files:
            if parsed(name)[0] == old and not parsed(name)[2]:
                self._folder.delete(name)

    def _examined(self, name: str, base: int) -> tuple[Offset, bool]:
        """Return (end offset of the batches of a segment, True if it consists of complete, plausible batches)."""
        file, size = self._folder.open(name, create=False), Position(self._files[name].size)
        end, sound = Offset(base), size > 0
        try:
            for item in walk(file, Position(0), size, expected=end, check_crc=True):
                if isinstance(item, Gap):
                    sound = False
                else:
                    end = item[1].next_offset
        finally:
            file.close()
        return end, sound

    def _delete_orphans(self) -> None:
        bases = {base for base, kind, state in self._parsed() if kind == LOG_SUFFIX and not state}
        for name in list(self._files):
            base, kind, state = parsed(name)
            if kind in _SEGMENT_KINDS and not state and base not in bases:
                self._report(f"{self._folder.name}/{name} belongs to no segment and is deleted")
                self._folder.delete(name)
                del self._files[name]


def _is_small_file(name: str) -> bool:
    """Return True for a file that is replaced as a whole, through a temporary name."""
    _, kind, state = parsed(name)
    return name in _OWN_FILES or (kind in (SNAPSHOT_SUFFIX, ABORTED_SUFFIX) and not state)
