"""Stray segments, which cannot be part of their log: beyond all offsets, above its end, or inside another one."""

from collections.abc import Callable, Collection, Sequence

from ....ports.report import warning
from ....ports.storage import Folder
from ....ports.types import Offset, Position
from ...message.batch_header import HEADER_SIZE
from ..batch_scan import BadBatch, scan_batches
from ..checkpoints import SealedSegment
from ..segment.damage import Gap, walk
from ..segment.offset_index import CorruptIndex
from ..segment.segment import Segment
from .quarantine import quarantine_files


def quarantine_stray_segments(
    folder: Folder,
    segments: Sequence[Segment],
    sealed: Collection[SealedSegment] = (),
    *,
    stopped_at: int | None,
    report: Callable[[str], None],
) -> list[Segment]:
    """Return the segments of the log; the others are quarantined, since they would hide intact ones.

    sealed:     segments that an earlier start found to end where the next one begins: these are not read.
    stopped_at: log end offset of a clean shutdown, None without one. Raises `StorageError`.
    """
    neighbours = {(known.base_offset, known.next_base) for known in sealed}
    members: list[Segment] = []
    for number, segment in enumerate(segments):
        base = segment.base_offset
        why = None
        if stopped_at is not None and base > stopped_at:
            why = f"begins above the log end offset {stopped_at}"
        elif members and (members[-1].base_offset, base) in neighbours:
            pass
        elif members and _claimed_end(members[-1]) > base and (end := _sure_end(members[-1])) > base:
            continues = end == stopped_at or any(other.base_offset == end for other in segments[number + 1 :])
            if continues or _own_end(segment) <= end:
                why = f"lies inside {members[-1].names[0]}, whose batches reach to offset {end}"
            else:
                overlap = f"offsets {base} to {end - 1} are in {members[-1].names[0]} too"
                report(warning(f"{segment.path}: {overlap}; those here are served"))
        if why is None:
            members.append(segment)
        else:
            segment.close()
            quarantine_files(folder, segment.names, why, report)
    return members


def _claimed_end(segment: Segment) -> Offset:
    """Return the end offset by the last batch headers: one or two reads of the tail."""
    try:
        entry = segment.index.last()
    except CorruptIndex:
        entry = None
    start = Position(entry[1] if entry is not None and 0 <= entry[1] <= segment.size - HEADER_SIZE else 0)
    end = segment.base_offset
    try:
        for _, header in scan_batches(segment.file, start, segment.size):
            end = max(end, header.next_offset)
    except BadBatch:
        return end  # a corrupt batch proves nothing
    return end


def _sure_end(segment: Segment) -> Offset:
    """Return the end of the intact batches that follow each other without a gap, which proves their offsets."""
    end = segment.base_offset
    for item in walk(segment.file, Position(0), segment.size, expected=end, check_crc=True):
        if isinstance(item, Gap) or item[1].base_offset != end:
            break
        end = item[1].next_offset
    return end


def _own_end(segment: Segment) -> Offset:
    end = segment.base_offset
    for item in walk(segment.file, Position(0), segment.size, expected=end):
        if not isinstance(item, Gap):
            end = max(end, item[1].next_offset)
    return end
