"""Sparse offset and time indexes of a segment: sorted pairs in a file without a checksum (facts B3)."""

from bisect import bisect_left, bisect_right
from struct import Struct

from ....ports.errors import BarnabasError
from ....ports.storage import File, FileMissing, Folder, StorageError

OFFSET_ENTRY = Struct(">ii")
"""Offset - base offset of the segment, position in the segment's file."""
TIME_ENTRY = Struct(">qi")
"""Timestamp in ms, offset - base offset."""

IndexEntry = tuple[int, int]

_TAIL_ENTRIES = 512
"""Entries collected in memory before a write."""
_BLOCK_ENTRIES = 512
"""Entries read at once by the last step of a search."""


_LANDMARKS_MAX = 63
"""Number of cached entries, since every search reads the same entries first."""


class CorruptIndex(BarnabasError):
    """The index is corrupt and must be rebuilt from the segment (Kafka: CorruptIndexException)."""


class SparseIndex:
    """Entries sorted by both columns; the newest are in memory, the others are read on demand.

    Memory and time do not grow with the file: a search reads one entry per halving and then one block.
    """

    __slots__ = ("_entry", "_file", "_folder", "_landmarks", "_last", "_name", "_on_file", "_tail")

    def __init__(self, folder: Folder, name: str, entry: Struct, file_size: int = 0) -> None:
        """`file_size` is the size of the existing file; a truncated entry at its end is ignored."""
        self._folder = folder
        self._name = name
        self._entry = entry
        self._file: File | None = None
        self._on_file = max(0, file_size) // entry.size
        self._tail: list[IndexEntry] = []
        self._last: IndexEntry | None = None
        self._landmarks: dict[int, IndexEntry] | None = None
        """Entries that each search of a long file reads; None before the first one: most indexes are short or idle."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def count(self) -> int:
        return self._on_file + len(self._tail)

    def last(self) -> IndexEntry | None:
        """Return the newest entry, or None. Raises `CorruptIndex`, `StorageError`."""
        if self._last is None and self._on_file:
            self._last = self._read(self._on_file - 1)
        return self._last

    def append(self, entry: IndexEntry) -> None:
        """Add an entry larger than all others. Full blocks go to the file; while that fails they stay in memory."""
        self._tail.append(entry)
        self._last = entry
        if len(self._tail) % _TAIL_ENTRIES == 0:
            try:
                self.write()
            except StorageError:
                return  # the entries stay in memory; `write` at the roll or the close reports a lasting error

    def find(self, column: int, target: int) -> IndexEntry | None:
        """Return the last entry whose `column` is at most `target`. Raises `CorruptIndex`, `StorageError`."""
        tail = self._tail
        if tail and tail[0][column] <= target:
            return tail[bisect_right(tail, target, key=lambda entry: entry[column]) - 1]
        return self._search_file(column, target)[1]

    def before(self, column: int, target: int, back: int) -> IndexEntry | None:
        """Return the entry `back` places before the result of `find`, or None. Raises the errors of `find`."""
        tail = self._tail
        if tail and tail[0][column] <= target:
            number = self._on_file + bisect_right(tail, target, key=lambda entry: entry[column]) - 1 - back
        else:
            number = self._search_file(column, target)[0] - 1 - back
        if number < 0:
            return None
        return self._read(number) if number < self._on_file else tail[number - self._on_file]

    def after(self, column: int, target: int) -> IndexEntry | None:
        """Return the first entry whose `column` is at least `target`, or None. Raises the errors of `find`."""
        tail = self._tail
        if tail and tail[0][column] < target:
            number = bisect_left(tail, target, key=lambda entry: entry[column])
            return tail[number] if number < len(tail) else None
        number = self._search_file(column, target - 1)[0]
        if number < self._on_file:
            return self._read(number)
        return tail[0] if tail else None

    def truncate(self, column: int, bound: int) -> None:
        """Drop the entries whose `column` is `bound` or more. Raises `CorruptIndex`, `StorageError`."""
        while self._tail and self._tail[-1][column] >= bound:
            self._tail.pop()
        if not self._tail:
            keep, _ = self._search_file(column, bound - 1)
            if keep < self._on_file:
                self.file().truncate(keep * self._entry.size)
                self._on_file = keep
                self._landmarks = None
        self._last = self._tail[-1] if self._tail else None

    def clear(self) -> None:
        """Drop everything. Raises `StorageError`."""
        self.file().truncate(0)
        self._on_file = 0
        self._landmarks = None
        self._tail.clear()
        self._last = None

    def write(self) -> None:
        """Move the entries in memory to the file (made here if missing). Raises `StorageError`; they then stay."""
        file = self.file()
        whole = self._on_file * self._entry.size
        if file.size > whole:
            file.truncate(whole)
        if self._tail:
            pack = self._entry.pack
            file.append(b"".join([pack(*entry) for entry in self._tail]))
            self._on_file += len(self._tail)
            self._tail.clear()
            self._landmarks = None  # the searches now halve elsewhere

    def file(self) -> File:
        """Return the file, opened at the first use. Raises `StorageError`."""
        if self._file is None:
            self._file = self._folder.open(self._name)
        return self._file

    def rename(self, new: str) -> None:
        """Rename the file, if it exists. Raises `StorageError`."""
        try:
            self._folder.rename(self._name, new)
        except FileMissing:
            return
        self._name = new

    def close(self) -> None:
        """Release the file, without writing."""
        if self._file is not None:
            self._file.close()

    def _search_file(self, column: int, target: int) -> tuple[int, IndexEntry | None]:
        """Return (number of entries in the file with `column` at most `target`, the last of them)."""
        low, high = 0, self._on_file
        landmarks = self._landmarks
        while high - low > _BLOCK_ENTRIES:
            if landmarks is None:
                landmarks = self._landmarks = {}
            middle = (low + high) // 2
            entry = landmarks.get(middle)
            if entry is None:
                entry = self._read(middle)
                if len(landmarks) < _LANDMARKS_MAX:
                    landmarks[middle] = entry
            if entry[column] <= target:
                low = middle
            else:
                high = middle
        if low == high:
            return 0, None
        block = self._read_bytes(low, high - low)
        size, unpack = self._entry.size, self._entry.unpack_from
        found = bisect_right(range(high - low), target, key=lambda number: unpack(block, number * size)[column])
        return low + found, unpack(block, (found - 1) * size) if found else None

    def _read(self, number: int) -> IndexEntry:
        return self._entry.unpack(self._read_bytes(number, 1))

    def _read_bytes(self, first: int, count: int) -> bytes:
        size = self._entry.size
        data = self.file().read(first * size, count * size)
        if len(data) != count * size:
            raise CorruptIndex(f"{self._name} is shorter than before")
        return data
