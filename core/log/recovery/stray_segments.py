"""Segments that cannot be part of the log they lie in: beyond all offsets, behind its end, or inside of another one."""

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
    """The segments that make up the log; the others are set aside, so that what they hide is served.

    sealed:     segments that a start before has found to end where the next one begins: these are not read.
    stopped_at: where an orderly stop has left the end of the log, None where there was none. Raises `StorageError`.
    """
    neighbours = {(known.base_offset, known.next_base) for known in sealed}
    kept: list[Segment] = []
    for number, segment in enumerate(segments):
        base = segment.base_offset
        why = None
        if stopped_at is not None and base > stopped_at:
            why = f"begins behind the end of the log, which is {stopped_at}"
        elif kept and (kept[-1].base_offset, base) in neighbours:
            pass
        elif kept and _claimed_end(kept[-1]) > base and (end := _sure_end(kept[-1])) > base:
            goes_on = end == stopped_at or any(other.base_offset == end for other in segments[number + 1 :])
            if goes_on or _own_end(segment) <= end:
                why = f"lies inside of {kept[-1].names[0]}, whose batches go on to offset {end}"
            else:
                overlap = f"the offsets {base} to {end - 1} are in {kept[-1].names[0]}, too"
                report(warning(f"{segment.path}: {overlap}; those here are served"))
        if why is None:
            kept.append(segment)
        else:
            segment.close()
            quarantine_files(folder, segment.names, why, report)
    return kept


def _claimed_end(segment: Segment) -> Offset:
    """Where its batches end by their own word: a read or two of its tail."""
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
        return end  # what is damaged proves nothing
    return end


def _sure_end(segment: Segment) -> Offset:
    """Up to where intact batches follow each other without a gap, so that none of them lies about its offsets."""
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
