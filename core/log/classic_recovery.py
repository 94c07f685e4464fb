"""Checking the newest segment of a classic log: where its intact messages end, and what to do about the rest."""

from collections.abc import Callable

from ...ports.errors import ApiError
from ...ports.report import counted, warning
from ...ports.storage import File, Folder
from ...ports.words import Position
from ..message.classic.check import good_prefix
from ..message.classic.entry import LENGTH, OVERHEAD_BYTES
from ..message.classic.reader import read_header
from ..message.crc32 import crc32
from .classic_segment import ClassicSegment

SCAN_CHUNK_BYTES = 1 << 20
_BEGINNING = Position(0)


def recover_tail(
    folder: Folder, segment: ClassicSegment, report: Callable[[str], None], *, durable: Position, whole: bool
) -> bool:
    """Cut the newest segment at its first bad message (facts A4: shallow, sizes and CRCs); True if it was.

    durable: up to this position the segment was flushed once, as far as anybody noted it: damage there is reported, and
             no reason to drop what is behind it.
    whole:   look at all of it; else at what lies behind `durable`, if a message begins there.
    """
    name = f"{folder.name}/{segment.names[0]}"
    position, problem = _first_bad(segment, _BEGINNING if whole else durable)
    if problem is not None and not whole and position == durable:
        position, problem = _first_bad(segment, _BEGINNING)
    if problem is not None and position < durable:
        report(
            warning(
                f"{name} is damaged at position {position}: {problem}; it is left as it is up to position {durable}, "
                "since that was durable",
                first_offset=segment.offset_at(position),
            )
        )
        position, problem = _first_bad(segment, durable)
    if problem is None:
        return False
    dropped = segment.size - position
    segment.cut(segment.offset_at(position))
    lost = counted(dropped, "byte is", "bytes are")
    report(f"{name}: cut at its first bad message at position {position}: {problem}; {lost} dropped")
    return True


def _first_bad(segment: ClassicSegment, position: Position) -> tuple[Position, str | None]:
    """(where it is, what is wrong with it); the end and None, where all is well. Raises `StorageError`."""
    size = segment.size
    while position < size:
        good, problem, needs = good_prefix(segment.file.read(position, min(SCAN_CHUNK_BYTES, size - position)))
        position = Position(position + good)
        if problem is not None:
            return position, problem
        if good:
            continue
        if not 0 < needs <= size - position:
            return position, "it is cut"
        if not _large_entry_is_good(segment.file, position, needs):
            return position, "the CRC is wrong"
        position = Position(position + needs)
    return position, None


def _large_entry_is_good(file: File, position: Position, size: int) -> bool:
    """The CRC of an entry larger than a chunk, piece by piece."""
    end = position + size
    try:
        at, _, expected = read_header(file.read(position, OVERHEAD_BYTES), 0, size - LENGTH.size)
    except ApiError:
        return False
    at += position
    crc = 0
    while at < end:
        piece = file.read(at, min(SCAN_CHUNK_BYTES, end - at))
        if not piece:
            return False
        crc = crc32(piece, crc)
        at += len(piece)
    return crc == expected
