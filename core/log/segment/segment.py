"""One segment: a file of record batches with its offset index and time index (facts B3)."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from attrs import evolve

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import File, Folder, Region, StorageError
from ....ports.types import Offset, Position
from ...message.batch_header import HEADER_SIZE, LONG_MAX, BatchHeader
from ..batch_scan import LOOKUP_CHUNK_BYTES, BadBatch, BatchIterator, scan_batches
from ..config import LogConfig
from ..log_format import ValidatedBatch
from ..names import ABORTED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from .damage import NO_BOUND, Gap, OffsetsDamaged, walk
from .offset_index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndex, SparseIndex
from .transaction_index import TransactionIndex

_MIN, _MAX = 384, 512
"""Number of remembered batches; at the maximum, the oldest are forgotten together."""


_NONE = array("q")


class RecentBatches:
    """The positions of the newest batches, for lookups without an index. Owner thread only."""

    __slots__ = ("_ends", "_positions", "floor")

    def __init__(self) -> None:
        self.floor = LONG_MAX
        """The lowest offset that `locate` knows; LONG_MAX when it knows none."""
        self._ends = self._positions = _NONE  # most segments have none: they are closed

    def add(self, base_offset: Offset, next_offset: Offset, position: Position) -> None:
        """Add a batch at the end of the segment."""
        ends = self._ends
        if len(ends) >= _MAX:
            cut = _MAX - _MIN
            self.floor = ends[cut - 1]
            del ends[:cut], self._positions[:cut]
        elif not ends:
            self.floor = base_offset
            ends, self._positions = array("q"), array("q")
            self._ends = ends
        ends.append(next_offset)
        self._positions.append(position)

    def locate(self, offset: Offset, size: int) -> tuple[Position, int] | None:
        """Return (position, size) of the first batch that ends above `offset`; None when all end below. `size`: of the
        segment."""
        index = bisect_right(self._ends, offset)
        positions = self._positions
        if index == len(positions):
            return None
        position = Position(positions[index])
        return position, (positions[index + 1] if index + 1 < len(positions) else size) - position


class SegmentFiles(NamedTuple):
    """Sizes of the segment's files; -1 = missing."""

    log_bytes: int = 0
    index_bytes: int = -1
    time_index_bytes: int = -1
    modified_ms: int = 0
    aborted_bytes: int = -1


T = TypeVar("T")

NO_TIMESTAMP = -1
INT_MAX = 2**31 - 1
_BEGINNING = Position(0)


class Segment:
    """A segment of record batches. Owner thread only; regions and files already returned may go to other threads."""

    __slots__ = (
        "_file",
        "_first_timestamp",
        "_folder",
        "_largest",
        "_name",
        "_rebuilt",
        "_recent",
        "aborted",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "gaps",
        "index",
        "index_interval_bytes",
        "modified_ms",
        "next_offset",
        "report",
        "size",
        "sparse",
        "time_index",
    )

    def __init__(
        self,
        folder: Folder,
        base_offset: Offset,
        *,
        files: SegmentFiles,
        now_ms: int,
        index_interval_bytes: int,
        report: Callable[[str], None],
    ) -> None:
        self.base_offset = base_offset
        self.size = Position(files.log_bytes)
        """Position of the next batch."""
        self.created_ms = now_ms
        self.modified_ms = files.modified_ms
        self.index_interval_bytes = index_interval_bytes
        self.report = report
        self.bytes_since_entry = 0
        self.next_offset = min(Offset(base_offset + INT_MAX + 1), NO_BOUND) if files.log_bytes else base_offset
        """Upper bound of all batches: the base offset of the next segment or the log end offset, once that is known."""
        self.gaps: tuple[Gap, ...] = ()
        """Known damage, in order."""
        self.sparse = False
        """True if it is known to have gaps of a compaction, so that lookups need not check each twice."""
        self._folder = folder
        self._file: File | None = None
        self._name = segment_file(base_offset, LOG_SUFFIX)
        self.index = SparseIndex(folder, segment_file(base_offset, INDEX_SUFFIX), OFFSET_ENTRY, files.index_bytes)
        self.time_index = SparseIndex(
            folder, segment_file(base_offset, TIME_INDEX_SUFFIX), TIME_ENTRY, files.time_index_bytes
        )
        self.aborted = TransactionIndex(
            folder, segment_file(base_offset, ABORTED_SUFFIX), base_offset, files.aborted_bytes
        )
        self._largest: tuple[int, Offset] | None = None if files.log_bytes else (NO_TIMESTAMP, base_offset)
        self._first_timestamp: int | None = None
        self._rebuilt = False
        self._recent = RecentBatches()

    @classmethod
    def create(
        cls,
        folder: Folder,
        base_offset: Offset,
        *,
        now_ms: int,
        index_interval_bytes: int,
        report: Callable[[str], None],
    ) -> "Segment":
        """Create an empty segment and delete stale files of its name. Raises `StorageError`."""
        files = SegmentFiles(0, 0, 0, now_ms)
        segment = cls(
            folder, base_offset, files=files, now_ms=now_ms, index_interval_bytes=index_interval_bytes, report=report
        )
        for file in (segment.file, segment.index.file(), segment.time_index.file()):
            if file.size:
                file.truncate(0)
        folder.delete(segment.aborted.name)
        return segment

    @property
    def file(self) -> File:
        """Return the file of the batches, opened at the first use. Raises `StorageError`."""
        if self._file is None:
            self._file = self._folder.open(self._name, create=not self.size)
        return self._file

    @property
    def names(self) -> list[str]:
        return [self._name, self.index.name, self.time_index.name, self.aborted.name]

    @property
    def path(self) -> str:
        """Return the path for messages."""
        return f"{self._folder.name}/{self._name}"

    # --- writing

    def should_roll(
        self, admitted: ValidatedBatch, last_offset: Offset, config: LogConfig, *, jitter_ms: int, now_ms: int
    ) -> bool:
        """Return True if the batch must go to a new segment (facts B3 roll); an empty one is never full."""
        if not self.size:
            return False
        end = self.size + len(admitted.records)
        if end > config.segment_bytes or end > INT_MAX:
            return True
        if last_offset - self.base_offset > INT_MAX:
            return True
        index_bytes = config.segment_index_bytes
        if self.index.count >= index_bytes // OFFSET_ENTRY.size:
            return True
        if self.time_index.count >= index_bytes // TIME_ENTRY.size:
            return True
        first, header = self.first_timestamp, admitted.header
        age_ms = header.max_timestamp - first if first >= 0 and header is not None else now_ms - self.created_ms
        return age_ms > config.roll_ms - jitter_ms

    def append(self, admitted: ValidatedBatch, *, base_offset: Offset, now_ms: int) -> None:
        """Append one batch at `base_offset`; the segment is unchanged if it raises `StorageError`."""
        records, header = admitted.records, admitted.header
        assert header is not None
        position = self.file.append(records)
        last_offset = Offset(base_offset + header.last_offset_delta)
        self.next_offset = next_offset = Offset(last_offset + 1)
        self._recent.add(base_offset, next_offset, position)
        self._note(position, len(records), last_offset, header.max_timestamp)
        self.modified_ms = now_ms

    def append_run(self, records: memoryview, headers: Sequence[BatchHeader], *, now_ms: int) -> None:
        """Append batches with their offsets in one write; the segment is unchanged if it raises `StorageError`."""
        position = self.file.append(records)
        for header in headers:
            self._recent.add(header.base_offset, header.next_offset, position)
            self._note(position, header.size, header.last_offset, header.max_timestamp)
            position = Position(position + header.size)
        self.next_offset = headers[-1].next_offset
        self.modified_ms = now_ms

    def _note(self, position: Position, size: int, last_offset: Offset, max_timestamp: int) -> None:
        """Count a batch at the end of the segment, and add index entries if due (facts B3 .index, .timeindex)."""
        largest = self._largest
        if largest is None or not position or max_timestamp > largest[0]:
            largest = self._largest = (max_timestamp, last_offset)
        if not position:
            self._first_timestamp = max_timestamp
        if self.bytes_since_entry > self.index_interval_bytes:
            self.index.append((last_offset - self.base_offset, position))
            self._add_time_entry(largest)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        self.size = Position(position + size)

    def _add_time_entry(self, largest: tuple[int, Offset]) -> None:
        timestamp, offset = largest
        last = self.time_index.last()
        if timestamp > (last[0] if last is not None else NO_TIMESTAMP):
            self.time_index.append((timestamp, offset - self.base_offset))

    def write_indexes(self) -> None:
        """Complete the index files before a roll or close. Raises `StorageError`; may be called again."""
        self._trusting_indexes(lambda: self._add_time_entry(self._load_largest()))
        self.index.write()
        self.time_index.write()
        self.aborted.write()

    def flush_indexes(self) -> None:
        """Make rebuilt indexes durable: after a power cut a start trusts those of a flushed segment, half-written too.
        Raises `StorageError`."""
        for file in self.index_files():
            file.flush()

    def seal(self) -> None:
        """Make the segment inactive: write the indexes, and forget the positions of the newest batches."""
        self.write_indexes()
        self._recent = RecentBatches()

    # --- lookup

    def locate(self, offset: Offset) -> tuple[Position, int] | None:
        """Return (position, size) of the first batch that ends above `offset`; None when all end below.

        Raises `StorageError`, and `ApiError` CORRUPT_MESSAGE for damage in the segment.
        """
        if offset >= self._recent.floor:
            return self._recent.locate(offset, self.size)
        for gap in self.gaps:
            if gap.first_offset <= offset < gap.next_offset:
                raise OffsetsDamaged(self.path, gap)
        try:
            return lookup(self, offset)
        except CorruptIndex:
            return self._search(offset)
        except BadBatch:
            found = self._search(offset)
            self.sparse = not self.gaps
            return found

    def _search(self, offset: Offset) -> tuple[Position, int] | None:
        """Search where `lookup` met a contradiction: a gap, damage, or a wrong index."""
        try:
            return search(self, offset)
        except CorruptIndex as error:
            if not self._rebuilt:
                self._rebuild(error)
                return self.locate(offset)
        return search(self, offset, by_index=False)

    def locate_intact(self, offset: Offset) -> tuple[Position, int] | None:
        """Return (position, size) of the first readable batch that ends above `offset`, behind damage at the offset."""
        while offset < self.next_offset or not self.size:
            try:
                return self.locate(offset) if self.size else None
            except OffsetsDamaged as error:
                offset = error.next_offset
        return None

    def find_damage_after(self, position: Position) -> Position:
        """Return the position of the first known damage after a position; else the segment's size."""
        behind = self.gaps and [gap.position for gap in self.gaps if gap.position >= position]
        return behind[0] if behind else self.size

    def batches(self, position: Position = _BEGINNING, *, check_crc: bool = False) -> BatchIterator:
        """Yield the intact batches from the one at that position on. Raises `StorageError`.

        Without `check_crc` a batch counts as intact if its place is, whatever the rest of its header says.
        """
        expected = None if position else self.base_offset
        items = walk(self.file, position, self.size, expected=expected, below=self.next_offset, check_crc=check_crc)
        return self._intact(items)

    def add_gap(self, gap: Gap) -> None:
        """Add damage, and report it the first time."""
        if any(known.position <= gap.position < known.end for known in self.gaps):
            return
        self.gaps = tuple(sorted((*self.gaps, gap), key=lambda gap: gap.position))
        self.report(f"{self.path} is {gap}")

    def position_before(self, offset: Offset, entries: int) -> Position:
        """Return the position of a batch, `entries` index entries before the one for `offset`; 0 without such an entry.

        Raises `StorageError`, `CorruptIndex`.
        """
        entry = self.index.before(0, offset - self.base_offset, entries)
        if entry is None:
            return _BEGINNING
        if not 0 <= entry[1] <= self.size - HEADER_SIZE:
            raise CorruptIndex(f"it points to position {entry[1]} of {self.size}")
        return Position(entry[1])

    def batch_header(self, position: Position) -> BatchHeader:
        """Read the header of the batch there. Raises `StorageError`, `BadBatch`."""
        for _, header in scan_batches(self.file, position, self.size, chunk_bytes=HEADER_SIZE):
            return header
        raise BadBatch(position, "the segment ends")

    def region(self, position: Position, size: int) -> Region:
        return self.file.region(position, size)

    @property
    def largest_timestamp(self) -> int:
        """Return the largest timestamp of all records, -1 when none has one."""
        return self._load_largest()[0]

    def _load_largest(self) -> tuple[int, Offset]:
        """Return (largest timestamp, last offset of its batch); for a sealed segment, from the last time-index
        entry."""
        if self._largest is None:
            self._trusting_indexes(self._read_largest)
        assert self._largest is not None
        return self._largest

    def _read_largest(self) -> None:
        last = self.time_index.last()
        if last is None:
            self._largest = (NO_TIMESTAMP, self.base_offset)
        else:
            self._largest = (last[0], Offset(self.base_offset + last[1]))

    @property
    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, from which the age of the segment counts; -1 = none."""
        if self._first_timestamp is None:
            first = next(self.batches(), None)
            self._first_timestamp = first[1].max_timestamp if first is not None else NO_TIMESTAMP
        return self._first_timestamp

    def batches_since(self, timestamp: int) -> BatchIterator:
        """Yield the batches that may have the first record at `timestamp` or later, in order."""

        def start() -> Position:
            before = self.time_index.find(0, timestamp - 1)
            if before is None:
                return _BEGINNING
            found = self.locate_intact(Offset(self.base_offset + before[1] + 1))
            return found[0] if found is not None else self.size

        return self.batches(self._trusting_indexes(start))

    def largest_timestamp_batch(self) -> tuple[Position, int] | None:
        """Return (position, size) of the batch with the largest timestamp; None when no record has one."""
        timestamp, offset = self._load_largest()
        return self.locate_intact(offset) if timestamp != NO_TIMESTAMP else None

    # --- corrupt indexes

    def _trusting_indexes(self, use: Callable[[], T]) -> T:
        """Return the result of `use`; if it meets a corrupt index, rebuild the indexes and call it again."""
        try:
            return use()
        except CorruptIndex as error:
            if not self._rebuilt:
                self._rebuild(error)
        try:
            return use()
        except CorruptIndex as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self._folder.name}/{self.index.name}: {error}") from error

    def _rebuild(self, error: CorruptIndex) -> None:
        self._rebuilt = True  # a scan of the whole segment must not be repeated at every read
        self.report(f"{self._folder.name}/{self.index.name} is corrupt and is rebuilt: {error}")
        self.rebuild_indexes()
        try:
            self.index.write()
            self.time_index.write()
            self.flush_indexes()
        except StorageError as failed:
            self.report(f"{self._folder.name}/{self.index.name} is rebuilt in memory only: {failed}")

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the intact batches. Raises `StorageError`."""
        size = self.size
        batches = walk(self.file, _BEGINNING, size, expected=self.base_offset, below=self.next_offset)
        try:
            self.index_batches(self._intact(batches))
        finally:
            self.size = size

    def _intact(self, items: Iterator[tuple[Position, BatchHeader] | Gap]) -> BatchIterator:
        for item in items:
            if isinstance(item, Gap):
                self.add_gap(item)
            else:
                yield item

    def index_batches(self, batches: BatchIterator) -> None:
        """Rebuild the indexes from these batches, the first of the segment on.

        Afterwards the segment has the size of these batches, also if `batches` raises.
        """
        self.index.clear()
        self.time_index.clear()
        self.forget()
        self.size, self.bytes_since_entry = _BEGINNING, 0
        self._largest = (NO_TIMESTAMP, self.base_offset)
        for position, header in batches:
            self._note(position, header.size, header.last_offset, header.max_timestamp)

    def _check_offsets(self, position: Position, header: BatchHeader) -> None:
        """Raise `BadBatch` for offsets outside the range of the segment."""
        first, last = header.base_offset, header.last_offset
        if not self.base_offset <= first <= last <= self.base_offset + INT_MAX:
            raise BadBatch(position, f"offsets {first} to {last} in the segment with base offset {self.base_offset}")

    def load_end(self) -> Offset:
        """Read from the last index entry to the end, for further appends; return the next offset.

        Raises `BadBatch` when the segment does not end with a complete batch, `CorruptIndex`, `StorageError`.
        """
        self.forget()
        self._read_largest()
        largest = self._largest
        assert largest is not None
        entry = self.index.last()
        start = _BEGINNING if entry is None else Position(entry[1])
        if entry is not None and not 0 <= start <= self.size - HEADER_SIZE:
            raise CorruptIndex(f"it points to position {start} of {self.size}")
        next_offset = self.base_offset
        expected = None if entry is not None else self.base_offset
        for item in walk(self.file, start, self.size, expected=expected):
            if isinstance(item, Gap):
                raise BadBatch(item.position, item.reason)
            position, header = item
            if position == start and entry is not None and header.base_offset > self.base_offset + entry[0]:
                raise CorruptIndex(
                    f"its entry for {self.base_offset + entry[0]} points to a batch at {header.base_offset}"
                )
            self._check_offsets(position, header)
            next_offset = header.next_offset
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        self._largest = largest
        self.bytes_since_entry = self.size - start
        self.next_offset = next_offset
        return next_offset

    def forget(self) -> None:
        """Forget the positions of the newest batches."""
        self._recent = RecentBatches()
        self._first_timestamp = None
        self._largest = None

    # --- truncation and deletion

    def truncate(self, position: Position, offset: Offset) -> None:
        """Truncate the segment to `position`; the removed batches begin at `offset`. Raises `StorageError`."""
        self.file.truncate(position)
        self.size = position
        self.gaps = tuple(gap for gap in self.gaps if gap.end <= position)
        try:
            self.index.truncate(1, position)
            self.time_index.truncate(1, offset - self.base_offset)
        except CorruptIndex:
            self.rebuild_indexes()
        self.aborted.truncate(offset)
        self.resume()

    def resume(self) -> None:
        """Become the active segment again. Raises `StorageError`."""
        try:
            self.load_end()
        except (CorruptIndex, BadBatch):
            self.rebuild_indexes()

    def index_files(self) -> list[File]:
        """Return the opened index files of the segment. Raises `StorageError`."""
        return [self.index.file(), self.time_index.file(), *self.aborted.index_files()]

    def cut(self, offset: Offset) -> Offset:
        """Truncate to `offset`, without a batch that contains it, and become active again; return the new end offset.

        Raises `StorageError`.
        """
        found = self.locate_intact(offset)
        if found is None:
            self.resume()
            end = offset
        else:
            end = min(offset, self.batch_header(found[0]).base_offset)
            self.truncate(found[0], end)
        if not self.gaps:
            end = min(end, self.next_offset)  # compaction may have removed the batches before
        self.next_offset = end
        if self.gaps and self.gaps[-1].next_offset > end:  # the truncation was in the middle of damage
            last = self.gaps[-1]
            self.gaps = (*self.gaps[:-1], evolve(last, next_offset=max(last.first_offset, end)))
        return end

    def rename(self, suffix: str) -> None:
        """Append `suffix` to the names of its files. Raises `StorageError`."""
        self._folder.rename(self._name, self._name + suffix)
        self._name += suffix
        for index in (self.index, self.time_index, self.aborted):
            index.rename(index.name + suffix)

    def close(self) -> None:
        """Close the files without writing."""
        if self._file is not None:
            self._file.close()
        self.index.close()
        self.time_index.close()
        self.aborted.close()

    def delete(self) -> None:
        """Delete its files under their current names. Callable from any thread. Raises `StorageError`."""
        self.close()
        for name in self.names:
            self._folder.delete(name)


class SearchedSegment(Protocol):
    """The part of a `Segment` that the search uses."""

    index: SparseIndex
    base_offset: Offset
    next_offset: Offset
    size: Position
    gaps: tuple[Gap, ...]
    sparse: bool

    @property
    def file(self) -> File: ...

    @property
    def path(self) -> str: ...

    def add_gap(self, gap: Gap) -> None: ...


def lookup(segment: SearchedSegment, offset: Offset) -> tuple[Position, int] | None:
    """Return (position, size) of the first batch that ends above `offset`; None when all end below.

    The result is valid if the next batch begins where it should: in a sparse segment, not before the end of this one.
    Raises `CorruptIndex`, `BadBatch` for any contradiction; `StorageError`.
    """
    base, end, size, sparse = segment.base_offset, segment.next_offset, segment.size, segment.sparse
    entry = segment.index.find(0, offset - base)
    delta, start = (entry[0], Position(entry[1])) if entry is not None else (INT_MAX, _BEGINNING)
    if entry is not None and not 0 <= start <= size - HEADER_SIZE:
        raise CorruptIndex(f"it points to position {start} of {size}")
    passed = segment.gaps and [gap for gap in segment.gaps if start < gap.end and gap.next_offset <= offset]
    begin, expected, found = passed[-1].end if passed else start, -1, None
    for position, header in scan_batches(segment.file, begin, size, chunk_bytes=LOOKUP_CHUNK_BYTES):
        if position == begin:
            if not passed and not base <= header.base_offset <= base + delta:
                raise CorruptIndex(f"its entry for {base + delta} points to a batch at {header.base_offset}")
        elif header.base_offset != expected and not (sparse and header.base_offset > expected):
            raise BadBatch(position, f"base offset {header.base_offset} where {expected} is expected")
        if found is not None:
            return found
        expected = header.base_offset + header.last_offset_delta + 1
        if expected > end:
            raise BadBatch(position, f"last offset {header.last_offset} is beyond the end of the segment")
        if expected > offset:
            found = position, header.size
    return found


def search(segment: SearchedSegment, offset: Offset, *, by_index: bool = True) -> tuple[Position, int] | None:
    """Return (position, size) of the first batch that ends above `offset`; None when all end below. Adds damage.

    The search begins one index entry earlier than a lookup: so the batch of the entry is checked against the one before
    it, and an entry that points between batches is noticed. Raises `OffsetsDamaged`, `CorruptIndex`, `StorageError`.
    """
    start, meeting = _one_entry_earlier(segment, offset) if by_index else (_BEGINNING, -1)
    met = meeting < 0
    expected = None if start else segment.base_offset
    for item in walk(segment.file, start, segment.size, expected=expected, below=segment.next_offset):
        if isinstance(item, Gap):
            position, end = item.position, item.end
            if position == start > 0:
                raise CorruptIndex(f"no batch begins at position {start}")
        else:
            position, end = item[0], Position(item[0] + 1)
        met = met or position <= meeting < end
        if not met and position > meeting:
            raise CorruptIndex(f"it points to position {meeting}, where no batch begins")
        if isinstance(item, Gap):
            segment.add_gap(item)
            if offset < item.next_offset:
                raise OffsetsDamaged(segment.path, item)
        elif item[1].next_offset > offset:
            if not met:
                raise CorruptIndex(f"it points to position {meeting}, behind the batch for {offset}")
            return position, item[1].size
    return None


def _one_entry_earlier(segment: SearchedSegment, offset: Offset) -> tuple[Position, int]:
    """Return (start position, position of the index entry, which the search must meet); -1 without an entry."""
    entry = segment.index.find(0, offset - segment.base_offset)
    if entry is None:
        return _BEGINNING, -1
    earlier = segment.index.before(0, offset - segment.base_offset, 1) or (0, 0)
    if not 0 <= earlier[1] <= entry[1] <= segment.size - HEADER_SIZE:
        raise CorruptIndex(f"it points to position {entry[1]} of {segment.size}")
    return Position(earlier[1]), entry[1]


def count_fitting(
    segment: Segment, headers: Sequence[BatchHeader], config: LogConfig, *, jitter_ms: int, now_ms: int
) -> int:
    """Return how many of these consecutive batches fit into the segment; 0: it is full, and an empty one never is.

    The rules of `Segment.should_roll` apply to each, except that every batch counts as an index entry, so that more may
    fit than the result says if it is not 0.
    """
    index_bytes = config.segment_index_bytes
    index, times = segment.index, segment.time_index
    entries = min(index_bytes // OFFSET_ENTRY.size - index.count, index_bytes // TIME_ENTRY.size - times.count)
    first = segment.first_timestamp if segment.size else headers[0].max_timestamp
    end, base = int(segment.size), segment.base_offset
    bytes_max, age_max_ms = min(config.segment_bytes, INT_MAX), config.roll_ms - jitter_ms
    for number, header in enumerate(headers):
        end += header.size
        age_ms = header.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        full = end > bytes_max or number >= entries or age_ms > age_max_ms or header.last_offset - base > INT_MAX
        if full and (number or segment.size):
            return number
    return len(headers)
