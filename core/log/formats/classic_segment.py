"""One segment of a classic log: `<20 digits>.kafka`, exactly the message-set bytes as they came (facts A4)."""

from collections.abc import Callable

from ....ports.errors import ApiError
from ....ports.report import counted, warning
from ....ports.storage import File, Folder, Region
from ....ports.types import Offset, Position
from ...message.classic.entry import LENGTH, OVERHEAD_BYTES
from ...message.classic.reader import read_header
from ...message.classic.validation import find_valid_prefix
from ...message.crc32 import crc32
from ..batch_scan import BatchIterator
from ..config import LogConfig
from ..log_format import ValidatedBatch
from ..names import CLASSIC_SUFFIX, segment_file

NO_TIMESTAMP = -1
_BEGINNING = Position(0)


class ClassicSegment:
    """A `LogSegment` whose offsets are positions in the log, so that it needs no index."""

    __slots__ = (
        "_file",
        "_first_append_ms",
        "_folder",
        "_name",
        "base_offset",
        "index_interval_bytes",
        "modified_ms",
        "size",
    )

    def __init__(self, folder: Folder, base_offset: Offset, *, size: int, modified_ms: int) -> None:
        self.base_offset = base_offset
        self.size = Position(size)
        self.modified_ms = modified_ms
        self.index_interval_bytes = 0
        self._first_append_ms: int | None = None
        self._folder = folder
        self._file: File | None = None
        self._name = segment_file(base_offset, CLASSIC_SUFFIX)

    @property
    def file(self) -> File:
        """Return the file, opened at the first use. Raises `StorageError`."""
        if self._file is None:
            self._file = self._folder.open(self._name, create=not self.size)
        return self._file

    @property
    def names(self) -> list[str]:
        return [self._name]

    @property
    def largest_timestamp(self) -> int:
        """Return -1: classic messages have no timestamp."""
        return NO_TIMESTAMP

    def should_roll(
        self,
        admitted: ValidatedBatch,  # noqa: ARG002  so that a segment may exceed its size by one message set
        last_offset: Offset,  # noqa: ARG002
        config: LogConfig,
        *,
        jitter_ms: int,
        now_ms: int,
    ) -> bool:
        if self.size > config.segment_bytes:
            return True
        first = self._first_append_ms
        return first is not None and self.size > 0 and now_ms - first > config.segment_ms - jitter_ms

    def append(self, admitted: ValidatedBatch, *, base_offset: Offset, now_ms: int) -> None:  # noqa: ARG002
        self.file.append(admitted.records)
        self.size = Position(self.size + len(admitted.records))
        self.modified_ms = now_ms
        if self._first_append_ms is None:
            self._first_append_ms = now_ms

    def position_of(self, offset: Offset) -> Position:
        """Convert an offset of the log into a position in the file (facts A4)."""
        return Position(offset - self.base_offset)

    def offset_at(self, position: Position) -> Offset:
        """Convert a position in the file into an offset of the log."""
        return Offset(self.base_offset + position)

    def locate(self, offset: Offset) -> tuple[Position, int] | None:
        """Return any byte: a reader notices by the CRC that no message begins there (facts A4)."""
        position = self.position_of(offset)
        return (position, 0) if 0 <= position < self.size else None

    locate_intact = locate

    def find_damage_after(self, position: Position) -> Position:  # noqa: ARG002  readers cannot pass damage: recovery cuts it off
        return self.size

    def region(self, position: Position, size: int) -> Region:
        return self.file.region(position, size)

    def batches(self) -> BatchIterator:
        return iter(())

    def batches_since(self, timestamp: int) -> BatchIterator:  # noqa: ARG002
        return iter(())

    def largest_timestamp_batch(self) -> tuple[Position, int] | None:
        return None

    def seal(self) -> None:
        """Do nothing."""

    def write_indexes(self) -> None:
        """Do nothing: there are no indexes."""

    def index_files(self) -> list[File]:
        return []

    def cut(self, offset: Offset) -> Offset:
        """Truncate the file at any byte. Raises `StorageError`."""
        position = max(_BEGINNING, min(self.position_of(offset), self.size))
        if position < self.size:
            self.file.truncate(position)
            self.size = position
        return self.offset_at(position)

    def rename(self, suffix: str) -> None:
        """Rename the file. Raises `StorageError`."""
        self._folder.rename(self._name, self._name + suffix)
        self._name += suffix

    def close(self) -> None:
        """Release the file without writing."""
        if self._file is not None:
            self._file.close()

    def delete(self) -> None:
        """Remove the file. Callable from any thread. Raises `StorageError`."""
        self.close()
        self._folder.delete(self._name)


SCAN_CHUNK_BYTES = 1 << 20


def recover_tail(
    folder: Folder, segment: ClassicSegment, report: Callable[[str], None], *, durable: Position, whole: bool
) -> bool:
    """Truncate the newest segment at its first corrupt message (facts A4: shallow, sizes and CRCs); True if it was.

    durable: the segment was flushed up to this position, as far as is known. Damage below it is reported and does not
             cause truncation.
    whole:   scan all of it; else only what lies above `durable`, if a message begins there.
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
    report(f"{name}: truncated at its first corrupt message at position {position}: {problem}; {lost} dropped")
    return True


def _first_bad(segment: ClassicSegment, position: Position) -> tuple[Position, str | None]:
    """Return (position, problem) of the first corrupt message; the end and None without one. Raises `StorageError`."""
    size = segment.size
    while position < size:
        good, problem, needs = find_valid_prefix(segment.file.read(position, min(SCAN_CHUNK_BYTES, size - position)))
        position = Position(position + good)
        if problem is not None:
            return position, problem
        if good:
            continue
        if not 0 < needs <= size - position:
            return position, "it is truncated"
        if not _large_entry_is_good(segment.file, position, needs):
            return position, "the CRC is wrong"
        position = Position(position + needs)
    return position, None


def _large_entry_is_good(file: File, position: Position, size: int) -> bool:
    """Check the CRC of an entry larger than a chunk, piece by piece."""
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
