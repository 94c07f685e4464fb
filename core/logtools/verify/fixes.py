"""The fixes of a repair, each as a value. An interrupted fix may be repeated."""

from collections.abc import Callable

from ....ports.report import Line
from ....ports.storage import File, FileInfo, Folder
from ....ports.types import Offset, Position
from ....ports.values import frozen
from ...log.batch_scan import SCAN_CHUNK_BYTES
from ...log.names import (
    CLASSIC_SUFFIX,
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    QUARANTINE_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ...log.recovery.quarantine import quarantine_files
from ...log.recovery.stale_files import StaleFiles
from ...log.segment.segment import INT_MAX, Segment, SegmentFiles
from .findings import Fix
from .overlay_folder import copy_range

INDEX_INTERVAL_BYTES = 4096
_TEMPORARY = ".tmp"
RENAMED = "it is renamed to *.aside"
"""The remedy of `Quarantine`."""


def _ignore_line(_line: str | Line) -> None:
    """Ignore the line: the findings have it."""


@frozen
class FixSequence:
    """Applies several fixes in order; a repair applies each only once."""

    fixes: tuple[Fix, ...]

    def __call__(self, folder: Folder) -> None:
        for fix in self.fixes:
            fix(folder)


@frozen
class Quarantine:
    """Rename files, so that brokers ignore them and an administrator can inspect them."""

    names: tuple[str, ...]

    def __call__(self, folder: Folder) -> None:
        quarantine_files(folder, list(self.names), "", _ignore_line)
        folder.flush()


@frozen
class RemoveFiles:
    """Delete files whose content is also in other files."""

    names: tuple[str, ...]

    def __call__(self, folder: Folder) -> None:
        for name in self.names:
            folder.delete(name)
        folder.flush()


@frozen
class Write:
    """Replace a small file; `keep_old` quarantines the previous one."""

    name: str
    content: bytes
    keep_old: bool = False

    def __call__(self, folder: Folder) -> None:
        if self.keep_old and self.name in folder.files():
            write_copy(folder, self.name + QUARANTINE_SUFFIX, folder.read_small(self.name))
        folder.write_small(self.name, self.content)


@frozen
class FinishCleaning:
    """Complete an interrupted cleaning, like a start does, except that no segment is deleted."""

    def __call__(self, folder: Folder) -> None:
        StaleFiles(_QuarantiningFolder(folder), _ignore_line).clear()
        folder.flush()


@frozen
class RewriteSegment:
    """Rewrite a segment: without the parts that are cut out, which go to a file *.aside, and with restored bytes.

    The name of the segment refers to the old or the new content at any time.
    """

    name: str
    cuts: tuple[tuple[int, int], ...] = ()
    patches: tuple[tuple[int, bytes], ...] = ()
    """(position, correct bytes); they overlap neither each other nor the cuts."""

    def __call__(self, folder: Folder) -> None:
        source = folder.open(self.name, create=False)
        for start, end in self.cuts:
            write_range_copy(folder, source, start, end)
        last = self.cuts[-1:] if not self.patches and len(self.cuts) == 1 else ()
        for side in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            folder.delete(self.name.removesuffix(LOG_SUFFIX) + side)
        folder.flush()
        if last and last[0][1] == source.size:
            source.truncate(last[0][0])
            source.flush()
            source.close()
            return
        made = folder.open(self.name + CLEANED_SUFFIX)
        made.truncate(0)
        self._write(source, made)
        made.flush()
        made.close()
        source.close()
        folder.rename(self.name + CLEANED_SUFFIX, self.name)
        folder.flush()

    def _write(self, source: File, made: File) -> None:
        changes = [(start, end, b"") for start, end in self.cuts]
        changes += [(at, at + len(content), content) for at, content in self.patches]
        done = 0
        for start, end, content in sorted(changes):
            copy_range(source, done, start, made)
            made.append(content)
            done = end
        copy_range(source, done, source.size, made)


@frozen
class RebuildIndexes:
    """Rebuild the indexes of a segment."""

    base_offset: int

    def __call__(self, folder: Folder) -> None:
        name = segment_file(self.base_offset, LOG_SUFFIX)
        info = folder.files().get(name)
        if info is None:
            return
        segment = opened_segment(folder, self.base_offset, info)
        segment.rebuild_indexes()
        segment.write_indexes()
        segment.flush_indexes()
        segment.close()
        folder.flush()


@frozen
class BeginAt:
    """Create an empty segment at the offset where the log continues; remove an empty one that begins before it."""

    base_offset: int
    suffix: str = LOG_SUFFIX
    empty: tuple[str, ...] = ()

    def __call__(self, folder: Folder) -> None:
        begun = [segment_file(self.base_offset, self.suffix)]
        if self.suffix != CLASSIC_SUFFIX:
            begun += [segment_file(self.base_offset, side) for side in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        for name in begun:
            folder.open(name).close()
        for name in self.empty:
            folder.delete(name)
        folder.flush()


def opened_segment(
    folder: Folder, base_offset: int, info: FileInfo, report: Callable[[str], None] = _ignore_line
) -> Segment:
    """Open a segment without its indexes, which are not trusted."""
    segment = Segment(
        folder,
        Offset(base_offset),
        files=SegmentFiles(info.size, 0, 0, info.modified_ms),
        now_ms=info.modified_ms,
        index_interval_bytes=INDEX_INTERVAL_BYTES,
        report=report,
    )
    segment.next_offset = Offset(base_offset + INT_MAX + 1)
    return segment


def write_copy(folder: Folder, wanted: str, content: bytes) -> None:
    """Write a file for an administrator under that name, or one with a number, unless it exists. Raises as a file."""
    name, number = wanted, 1
    present = folder.files()
    while name in present:
        if present[name].size == len(content) and folder.read_small(name) == content:
            return
        number += 1
        name = f"{wanted}-{number}"
    folder.write_small(name, content)


def write_range_copy(folder: Folder, source: File, start: int, end: int) -> None:
    """Write a part of a segment, which may be large, to such a file; zeros are not written."""
    if not any(_chunk(source, at, end).strip(b"\0") for at in range(start, end, SCAN_CHUNK_BYTES)):
        return
    wanted = f"{source.name}.{start}-{end}{QUARANTINE_SUFFIX}"
    name, number = wanted, 1
    present = folder.files()
    while name in present:
        if present[name].size == end - start and _same(folder, name, source, start, end):
            return
        number += 1
        name = f"{wanted}-{number}"
    copy = folder.open(wanted + _TEMPORARY)
    copy.truncate(0)
    copy_range(source, start, end, copy)
    copy.flush()
    copy.close()
    folder.rename(wanted + _TEMPORARY, name)
    folder.flush()


def _same(folder: Folder, name: str, source: File, start: int, end: int) -> bool:
    copy = folder.open(name, create=False)
    try:
        return all(
            _chunk(source, at, end) == copy.read(Position(at - start), min(SCAN_CHUNK_BYTES, end - at))
            for at in range(start, end, SCAN_CHUNK_BYTES)
        )
    finally:
        copy.close()


def _chunk(source: File, at: int, end: int) -> bytes:
    return source.read(Position(at), min(SCAN_CHUNK_BYTES, end - at))


class _QuarantiningFolder:
    """A folder that quarantines segments instead of deleting them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.name = folder.name
        self.files, self.open, self.rename = folder.files, folder.open, folder.rename
        self.read_small, self.write_small = folder.read_small, folder.write_small
        self.write_all_small, self.flush = folder.write_all_small, folder.flush

    def delete(self, name: str) -> None:
        if LOG_SUFFIX not in name:
            self._folder.delete(name)
            return
        quarantine_files(self._folder, [name], "", _ignore_line)
