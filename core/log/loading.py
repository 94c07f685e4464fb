"""From the files of a partition's folder to its segments: leftovers, index checks, recovery (facts B3)."""

from collections.abc import Callable, Mapping

from attrs import field

from ...ports.storage import FileInfo, Folder
from ...ports.values import frozen
from ..message.batch_header import BatchHeader
from .batch_scan import BadBatch, BatchIterator, scan_batches
from .checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from .config import LogConfig
from .damage import Gap, walk
from .names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from .segment import NO_TIMESTAMP, Segment
from .segment_files import SegmentFiles
from .sparse_index import OFFSET_ENTRY, TIME_ENTRY, Entry, IndexDamaged

_OWN_FILES = {LEADER_EPOCHS, PARTITION_METADATA}
_PROGRESS_BYTES = 1 << 28


@frozen(kw_only=True)
class Loader:
    """Loads the segments of one folder. Raises `StorageError` throughout."""

    folder: Folder
    config: LogConfig
    now_ms: int
    report: Callable[[str], None]
    seen: Callable[[BatchHeader], None] = field(default=lambda _header: None)
    """Told of every batch that recovery finds good."""

    def load(self) -> list[Segment]:
        """The segments, oldest first, unopened; leftovers of an interrupted deletion or cleaning are cleared away."""
        files = self._clear_leftovers()
        self._finish_swaps(files)
        listing = self.folder.files()
        bases = sorted(base for base, kind, state in map(_parsed, listing) if kind == LOG_SUFFIX and not state)
        self._delete_orphans(listing, set(bases))
        return [self._segment(base, listing) for base in bases]

    def _segment(self, base: int, listing: Mapping[str, FileInfo]) -> Segment:
        log, *indexes = (listing.get(segment_file(base, s)) for s in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        assert log is not None
        index_bytes, time_index_bytes = (info.size if info is not None else -1 for info in indexes)
        return Segment(
            self.folder,
            base,
            files=SegmentFiles(log.size, index_bytes, time_index_bytes, log.modified_ms),
            now_ms=self.now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
            report=self.report,
        )

    def _clear_leftovers(self) -> Mapping[str, FileInfo]:
        files = dict(self.folder.files())
        for name in list(files):
            _base, kind, state = _parsed(name)
            temporary = name.endswith(".tmp") and _is_small_file(name.removesuffix(".tmp"))
            if temporary or state in (DELETED_SUFFIX, CLEANED_SUFFIX):
                self.folder.delete(name)
                del files[name]
            elif not kind and name not in _OWN_FILES:
                self.report(f"{self.folder.name}/{name} is no file of a log and is left alone")
        return files

    def _finish_swaps(self, files: Mapping[str, FileInfo]) -> None:
        """A `.swap` file is a finished cleaning: it takes the place of the segments it was made from."""
        swaps = sorted(base for base, kind, state in map(_parsed, files) if (kind, state) == (LOG_SUFFIX, SWAP_SUFFIX))
        for name in files:
            _base, kind, state = _parsed(name)
            if state == SWAP_SUFFIX and kind != LOG_SUFFIX:
                self.folder.delete(name)  # indexes are rebuilt
        for base in swaps:
            name = segment_file(base, LOG_SUFFIX)
            end = self._end_of(name + SWAP_SUFFIX, base, files[name + SWAP_SUFFIX].size)
            for old_base, kind, state in map(_parsed, files):
                if kind and not state and base <= old_base < max(end, base + 1):
                    self.folder.delete(segment_file(old_base, kind))
            self.folder.rename(name + SWAP_SUFFIX, name)
            self.report(f"{self.folder.name}/{name}: an interrupted cleaning is completed")

    def _end_of(self, name: str, base: int, size: int) -> int:
        file = self.folder.open(name, create=False)
        try:
            for _, header in scan_batches(file, 0, size):
                base = header.next_offset
        except BadBatch as error:
            self.report(f"{self.folder.name}/{name} is damaged {error}")
        finally:
            file.close()
        return base

    def _delete_orphans(self, listing: Mapping[str, FileInfo], bases: set[int]) -> None:
        for name in listing:
            base, kind, state = _parsed(name)
            if kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and not state and base not in bases:
                self.report(f"{self.folder.name}/{name} belongs to no segment and is deleted")
                self.folder.delete(name)

    # --- what the segments hold

    def check_indexes(self, segment: Segment, listing: Mapping[str, FileInfo], next_base: int) -> None:
        """Rebuild the indexes of a segment whose batches are trusted, if they are missing or cannot be right.

        Looks at their ends only, to be quick; entries between are checked when a lookup comes upon them.
        """
        problem = self._index_problem(segment, listing, next_base)
        if not problem:
            return
        self.report(f"{self.folder.name}/{segment.index.name}: {problem}; rebuilding the indexes")
        segment.rebuild_indexes()
        segment.write_indexes()

    def _index_problem(self, segment: Segment, listing: Mapping[str, FileInfo], next_base: int) -> str | None:
        if not segment.size:
            return None
        for index, entry in ((segment.index, OFFSET_ENTRY), (segment.time_index, TIME_ENTRY)):
            info = listing.get(index.name)
            if info is None:
                return f"{index.name} is missing"
            if info.size % entry.size:
                return f"{index.name} has {info.size} bytes, no multiple of {entry.size}"
        try:
            return self._end_problem(segment, segment.index.last(), segment.time_index.last(), next_base)
        except (IndexDamaged, BadBatch) as error:
            return str(error)

    def _end_problem(self, segment: Segment, last: Entry | None, last_time: Entry | None, next_base: int) -> str | None:
        delta, position = last or (0, 0)
        if not (0 <= delta < next_base - segment.base_offset and 0 <= position < segment.size):
            return f"the last entry ({delta}, {position}) is outside the segment"
        # An entry comes at the latest with the first batch after so many bytes.
        if position + self.config.index_interval_bytes + 2 * self.config.max_message_bytes < segment.size:
            return "entries are missing at the end"
        if last_time is None:
            return "the time index is empty" if segment.first_timestamp > NO_TIMESTAMP else None
        if not 0 <= last_time[1] < next_base - segment.base_offset:
            return f"the last time entry {last_time} is outside the segment"
        return None

    def load_end(self, segment: Segment, recovery_point: int) -> int | None:
        """The next offset of the newest segment after an orderly stop, which has left the recovery point there, if it
        is known; None when the segment must be recovered after all."""
        try:
            end = segment.load_end()
            if end == recovery_point or not recovery_point:
                return end
            raise BadBatch(segment.size, f"the next offset is {end}, and was {recovery_point}")
        except (IndexDamaged, BadBatch) as error:
            self.report(f"{self.folder.name}/{segment.names[0]} does not end as an orderly stop leaves it: {error}")
            return None

    def recover(self, segments: list[Segment], recovery_point: int, likely_end: int = -1) -> tuple[list[Segment], int]:
        """Scan every segment that reaches beyond the recovery point: (the segments that stay, the log end offset).

        At the first bad batch from the recovery point on the segment is cut and all later ones are deleted. What is
        damaged below was durable: no torn write, and no reason to give up what is intact behind it.
        """
        end = segments[0].base_offset
        scanned = 0
        for number, segment in enumerate(segments):
            later = segments[number + 1 :]
            if later and later[0].base_offset <= recovery_point:
                end = later[0].base_offset
                continue
            if segment.base_offset > end and number:
                self.report(f"{self.folder.name}: offsets {end} to {segment.base_offset - 1} are not there")
            size = segment.size
            end, problem = self._recover_segment(
                segment, later[0].base_offset if later else None, recovery_point, likely_end
            )
            scanned += size
            if scanned >= _PROGRESS_BYTES:
                self.report(f"{self.folder.name}: recovering, {number + 1} of {len(segments)} segments")
                scanned = 0
            if problem is not None:
                gone = sum(other.size for other in later)
                self.report(
                    f"{self.folder.name}/{segment.names[0]}: cut at its first bad batch {problem}; "
                    f"{size - segment.size} bytes and {len(later)} later segments with {gone} bytes are dropped"
                )
                for other in later:
                    other.delete()
                return segments[: number + 1], end
        return segments, end

    def _recover_segment(
        self, segment: Segment, next_base: int | None, recovery_point: int, likely_end: int
    ) -> tuple[int, BadBatch | None]:
        """(the next offset, what was found at the cut or None)."""
        end = segment.base_offset
        items = walk(
            segment.file,
            0,
            segment.size,
            expected=end,
            below=segment.next_offset if next_base is None else min(next_base, segment.next_offset),
            check_crc=True,
            bridge_below=recovery_point,
            likely_end=likely_end if next_base is None else next_base,
        )

        def good() -> BatchIterator:
            nonlocal end
            for item in items:
                if not isinstance(item, Gap):
                    end = item[1].next_offset
                    self.seen(item[1])
                    yield item
                elif item.intact_behind:
                    segment.note_gap(item)
                else:
                    raise BadBatch(item.position, item.reason)

        problem = None
        try:
            segment.index_batches(good())
        except BadBatch as error:
            problem = error
            segment.file.truncate(segment.size)
        segment.next_offset = end
        if next_base is not None and problem is None:
            segment.next_offset = next_base
            segment.write_indexes()
        return end, problem


def _is_small_file(name: str) -> bool:
    """True for a file that is written as a whole, by way of another name."""
    return name in _OWN_FILES or _parsed(name)[1:] == (SNAPSHOT_SUFFIX, "")


def _parsed(name: str) -> tuple[int, str, str]:
    """(base offset, kind, state) of a segment's file; kind is empty for other files."""
    found = SEGMENT_FILE.fullmatch(name)
    return (int(found["base"]), found["kind"], found["state"] or "") if found is not None else (-1, "", "")
