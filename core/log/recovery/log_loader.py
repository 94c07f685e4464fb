"""Loads the segments of a partition folder: stale files, index checks, recovery (facts B3; Kafka: LogLoader)."""

from collections.abc import Callable, Mapping, Sequence

from ....ports.report import counted
from ....ports.storage import FileInfo, Folder
from ....ports.types import Offset, Position
from ....ports.values import frozen
from ..batch_scan import BadBatch, BatchIterator
from ..checkpoints import LogCheckpoint
from ..config import LogConfig
from ..log_format import RecoveryListener
from ..names import ABORTED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from ..producers.producer_state_manager import snapshot_offsets
from ..segment.damage import Gap, find_intact_batch, walk
from ..segment.offset_index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndex, IndexEntry
from ..segment.segment import NO_TIMESTAMP, Segment, SegmentFiles
from .quarantine import quarantine_files
from .stale_files import StaleFiles, parsed
from .stray_segments import quarantine_stray_segments

_PROGRESS_BYTES = 1 << 28
_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)


@frozen(kw_only=True)
class SegmentLoader:
    """Loads the segments of one folder. Raises `StorageError` throughout."""

    folder: Folder
    config: LogConfig
    now_ms: int
    report: Callable[[str], None]
    recovery: RecoveryListener

    def load(self, noted: LogCheckpoint, stopped_at: int | None) -> list[Segment]:
        """Return the segments, oldest first, after removing stale files and quarantining strays. `stopped_at`: see
        `quarantine_stray_segments`."""
        listing = StaleFiles(self.folder, self.report).clear()
        bases = sorted(base for base, kind, state in map(parsed, listing) if kind == LOG_SUFFIX and not state)
        segments = [self._segment(base, listing) for base in bases]
        return quarantine_stray_segments(self.folder, segments, noted.sealed, stopped_at=stopped_at, report=self.report)

    def _segment(self, base: int, listing: Mapping[str, FileInfo]) -> Segment:
        log, *others = (listing.get(segment_file(base, suffix)) for suffix in _SUFFIXES)
        assert log is not None
        index_bytes, time_index_bytes, aborted_bytes = (info.size if info is not None else -1 for info in others)
        return Segment(
            self.folder,
            Offset(base),
            files=SegmentFiles(log.size, index_bytes, time_index_bytes, log.modified_ms, aborted_bytes),
            now_ms=self.now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
            report=self.report,
        )

    # --- content of the segments

    def check_indexes(self, segment: Segment, listing: Mapping[str, FileInfo], next_base: int) -> None:
        """Rebuild the indexes of a segment with trusted batches, if they are missing or implausible.

        Checks only their ends, to be quick; a lookup checks the entries between.
        """
        problem = self._index_problem(segment, listing, next_base)
        if not problem:
            return
        self.report(f"{self.folder.name}/{segment.index.name}: {problem}; rebuilding the indexes")
        segment.rebuild_indexes()
        segment.write_indexes()
        segment.flush_indexes()
        if segment.aborted or any(header.control for _, header in segment.batches()):
            segment.aborted.mark_corrupt(problem)

    def _index_problem(self, segment: Segment, listing: Mapping[str, FileInfo], next_base: int) -> str | None:
        if not segment.size:
            return None
        for index, entry in ((segment.index, OFFSET_ENTRY), (segment.time_index, TIME_ENTRY)):
            info = listing.get(index.name)
            if info is None:
                return f"{index.name} is missing"
            if info.size % entry.size:
                return f"{index.name} has {info.size} bytes, not a multiple of {entry.size}"
        try:
            return self._end_problem(segment, segment.index.last(), segment.time_index.last(), next_base)
        except (CorruptIndex, BadBatch) as error:
            return str(error)

    def _end_problem(
        self, segment: Segment, last: IndexEntry | None, last_time: IndexEntry | None, next_base: int
    ) -> str | None:
        delta, position = last or (0, 0)
        if not (0 <= delta < next_base - segment.base_offset and 0 <= position < segment.size):
            return f"the last entry ({delta}, {position}) is outside the segment"
        # An entry comes at the latest with the first batch after this number of bytes.
        if position + self.config.index_interval_bytes + 2 * self.config.max_message_bytes < segment.size:
            return "entries are missing at the end"
        if last_time is None:
            return "the time index is empty" if segment.first_timestamp > NO_TIMESTAMP else None
        if not 0 <= last_time[1] < next_base - segment.base_offset:
            return f"the last time entry {last_time} is outside the segment"
        return None

    def load_end(self, segment: Segment, recovery_point: Offset) -> Offset | None:
        """Return the next offset of the newest segment after a clean shutdown, which left the recovery point there, if
        it is known; None when the segment must be recovered."""
        try:
            end = segment.load_end()
            if end == recovery_point or not recovery_point:
                return end
            raise BadBatch(segment.size, f"the next offset is {end}, expected {recovery_point}")
        except (CorruptIndex, BadBatch) as error:
            self.report(f"{self.folder.name}/{segment.names[0]} does not end like after a clean shutdown: {error}")
            return None

    def recover(
        self, segments: list[Segment], recovery_point: Offset, likely_end: int = -1
    ) -> tuple[list[Segment], Offset]:
        """Scan every segment that reaches above the recovery point: return (the remaining segments, the log end
        offset).

        At the first corrupt batch above the recovery point the segment is truncated and later ones are quarantined.
        Damage below it is not a torn write, since the batch was durable, and intact batches after it are retained. The
        same holds for segments after a gap above the recovery point, where the end of the previous one was never
        written.
        """
        end = segments[0].base_offset
        durable = max(snapshot_offsets(self.folder), default=0)  # written when all below is durable
        scanned, begun = 0, False
        for number, segment in enumerate(segments):
            later = segments[number + 1 :]
            if later and later[0].base_offset <= recovery_point:
                end = later[0].base_offset
                continue
            if segment.base_offset > end and number:
                if end >= recovery_point and segment.base_offset > durable:
                    self._quarantine(segments[number:], end)
                    segments[number - 1].resume()
                    segments[number - 1].next_offset = end
                    return segments[:number], end
                self.report(f"{self.folder.name}: offsets {end} to {segment.base_offset - 1} are missing")
            size, before = segment.size, end
            if not begun:
                self.recovery.begin_recovery(segments[:number], segment.base_offset)
                begun = True
            end, problem = self._recover_segment(
                segment, later[0].base_offset if later else None, recovery_point, likely_end
            )
            scanned += size
            if scanned >= _PROGRESS_BYTES:
                self.report(f"{self.folder.name}: recovering segment {number + 1} of {len(segments)}")
                scanned = 0
            if problem is None:
                continue
            self._quarantine(later, end)
            if not segment.size and segment.file.size:
                return self._without_last(segments[: number + 1], before, problem), before if number else end
            self.report(
                f"{self.folder.name}/{segment.names[0]}: truncated at its first corrupt batch {problem}; "
                f"{counted(size - segment.size, 'byte is', 'bytes are')} dropped"
            )
            return segments[: number + 1], end
        return segments, end

    def _quarantine(self, segments: Sequence[Segment], end: Offset) -> None:
        for segment in segments:
            segment.close()
            why = f"begins above offset {end}, where the log is truncated"
            quarantine_files(self.folder, segment.names, why, self.report)

    def _without_last(self, segments: list[Segment], end: Offset, problem: BadBatch) -> list[Segment]:
        """Quarantine the last segment, which does not begin with its batch but has intact ones."""
        last = segments.pop()
        last.close()
        quarantine_files(self.folder, last.names, f"does not begin with a batch of this log ({problem})", self.report)
        if segments and last.base_offset != end:
            segments[-1].resume()
            segments[-1].next_offset = end
        else:
            interval = self.config.index_interval_bytes
            began = Segment.create(
                self.folder, last.base_offset, now_ms=self.now_ms, index_interval_bytes=interval, report=self.report
            )
            segments.append(began)
        return segments

    def _recover_segment(
        self, segment: Segment, next_base: Offset | None, recovery_point: Offset, likely_end: int
    ) -> tuple[Offset, BadBatch | None]:
        """Return (next offset, damage at the end or None)."""
        end = segment.base_offset
        items = walk(
            segment.file,
            Position(0),
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
                    self.recovery.found(segment, *item)
                    yield item
                elif item.intact_behind:
                    segment.add_gap(item)
                else:
                    raise BadBatch(item.position, item.reason)

        problem = None
        segment.aborted.clear()
        try:
            segment.index_batches(good())
        except BadBatch as error:
            problem = error
            if segment.size or find_intact_batch(segment.file, Position(0), Position(segment.file.size)) is None:
                segment.file.truncate(segment.size)
        segment.next_offset = end
        if next_base is not None and problem is None:
            segment.next_offset = next_base
            segment.write_indexes()
        return end, problem
