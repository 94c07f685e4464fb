"""The `.txnindex` file of a segment: its aborted transactions (Kafka: TransactionIndex).

An entry is in the segment with the marker. The file exists only with entries, has no checksum, and is rebuilt from the
batches if it is corrupt.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from ....ports.storage import File, FileMissing, Folder, StorageError
from .offset_index import CorruptIndex

ENTRY = Struct(">hqqqq")
"""Version, producer id, first offset, last offset, last stable offset."""
VERSION = 0
_BLOCK_ENTRIES = 64
"""Entries per read."""
_CACHED_BLOCKS_MAX = 4
_LANDMARKS_MAX = 63
"""Number of cached first markers, since every search reads the same blocks first."""


class AbortedTxn(NamedTuple):
    """`last_offset` is that of the marker; all below `last_stable_offset` was stable once it was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_last_offset = attrgetter("last_offset")


class TransactionIndex:
    """Entries by marker offset, read from the file on demand. Owner thread only."""

    __slots__ = (
        "_base_offset",
        "_blocks",
        "_corruption",
        "_count",
        "_file",
        "_folder",
        "_landmarks",
        "_last_offset",
        "_name",
        "_unwritten",
    )

    def __init__(self, folder: Folder, name: str, base_offset: int, file_size: int = -1) -> None:
        """`file_size` is the size of the existing file, -1 without one."""
        self._folder = folder
        self._name = name
        self._base_offset = base_offset
        self._file: File | None = None
        self._count = max(0, file_size) // ENTRY.size
        self._unwritten: list[AbortedTxn] = []
        """Newest entries, whose write failed."""
        self._last_offset = -1
        """Marker offset of the newest entry, -1 if not read yet."""
        self._blocks: dict[int, list[AbortedTxn]] | None = None
        """Blocks that were read last; None before one is read: most segments have no aborted transactions."""
        self._landmarks: dict[int, int] | None = None
        """Marker offset of the first entry by block; None before one is read."""
        self._corruption = ""
        if file_size > 0 and file_size % ENTRY.size:
            self._corruption = f"{file_size} bytes are no multiple of {ENTRY.size}"

    @property
    def name(self) -> str:
        return self._name

    def __bool__(self) -> bool:
        """Return True if there may be entries."""
        return bool(self._count or self._unwritten or self._corruption)

    def mark_corrupt(self, why: str) -> None:
        """Mark the index as corrupt: it must be rebuilt before use."""
        self._corruption = why

    @property
    def is_marked_corrupt(self) -> bool:
        return bool(self._corruption)

    # --- writing

    def append(self, entry: AbortedTxn) -> None:
        """Add an aborted transaction; it stays in memory while writes fail."""
        if self._corruption:
            return  # rebuilding finds it
        self._unwritten.append(entry)
        self._last_offset = entry.last_offset
        try:
            self.write()
        except StorageError:
            return  # `write` at the roll or the close reports a lasting error

    def write(self) -> None:
        """Write the entries in memory to the file. Raises `StorageError`; they then stay in memory."""
        if self._unwritten:
            self.file().append(_packed(self._unwritten))
            if self._blocks is not None:
                self._blocks.pop(self._count // _BLOCK_ENTRIES, None)
            self._count += len(self._unwritten)
            self._unwritten.clear()

    def truncate(self, offset: int) -> None:
        """Remove the entries with a marker at `offset` or above. Raises `StorageError`."""
        self._last_offset = -1
        while self._unwritten and self._unwritten[-1].last_offset >= offset:
            self._unwritten.pop()
        try:
            keep = self._first_from(offset)
        except CorruptIndex as error:
            self.mark_corrupt(str(error))
            return
        if keep < self._count:
            self.file().truncate(keep * ENTRY.size)
            self._count = keep
            self._forget()

    def clear(self) -> None:
        """Remove all entries and the corrupt mark. Raises `StorageError`."""
        if self._file is not None or self:
            self.file().truncate(0)
        self._has_in_file(0)

    def replace(self, entries: Sequence[AbortedTxn]) -> None:
        """Replace all entries, in a file that is durable on return: a start trusts the index of a flushed segment.
        Raises `StorageError`; then nothing has changed."""
        self._folder.write_small(self._name, _packed(entries))
        self.close()
        self._file = None  # the previous one was replaced
        self._has_in_file(len(entries))

    def _has_in_file(self, count: int) -> None:
        self._count, self._last_offset, self._corruption = count, -1, ""
        self._unwritten.clear()
        self._forget()

    def _forget(self) -> None:
        self._blocks = self._landmarks = None

    # --- looking up

    def between(self, from_offset: int, upto: int) -> tuple[list[AbortedTxn], bool]:
        """Return (entries with records in [from_offset, upto), True if no later entry has any).

        Raises `CorruptIndex`, `StorageError`.
        """
        if self._corruption:
            raise CorruptIndex(self._corruption)
        found: list[AbortedTxn] = []
        if not self or self._newest_marker() < from_offset:
            return found, False
        number = self._first_from(from_offset)
        while number < self._count:
            block, at = divmod(number, _BLOCK_ENTRIES)
            entries = self._block(block)
            if _collect(entries[at:] if at else entries, upto, found):
                return found, True
            number += len(entries) - at
        later = [entry for entry in self._unwritten if entry.last_offset >= from_offset]
        return found, _collect(later, upto, found)

    def check(self) -> None:
        """Read all entries. Raises `CorruptIndex`, `StorageError`."""
        if self._corruption:
            raise CorruptIndex(self._corruption)
        self._forget()
        before = -1
        for number in range(0, self._count, _BLOCK_ENTRIES):
            entries = self._read(number, min(_BLOCK_ENTRIES, self._count - number))
            if entries[0].last_offset <= before:
                raise CorruptIndex(f"entry {number} is not above the previous one")
            before = entries[-1].last_offset

    def _newest_marker(self) -> int:
        if self._unwritten:
            return self._unwritten[-1].last_offset
        if self._last_offset < 0:
            self._last_offset = self._read(self._count - 1, 1)[0].last_offset
        return self._last_offset

    def _first_from(self, offset: int) -> int:
        """Return how many entries of the file have a marker below `offset`."""
        low, high = 0, (self._count + _BLOCK_ENTRIES - 1) // _BLOCK_ENTRIES
        while high - low > 1:
            middle = (low + high) // 2
            if self._first_marker(middle) < offset:
                low = middle
            else:
                high = middle
        if not high:
            return 0
        return low * _BLOCK_ENTRIES + bisect_left(self._block(low), offset, key=_last_offset)

    def _first_marker(self, block: int) -> int:
        if self._landmarks is None:
            self._landmarks = {}
        marker = self._landmarks.get(block)
        if marker is None:
            marker = self._read(block * _BLOCK_ENTRIES, 1)[0].last_offset
            if len(self._landmarks) < _LANDMARKS_MAX:
                self._landmarks[block] = marker
        return marker

    def _block(self, block: int) -> list[AbortedTxn]:
        if self._blocks is None:
            self._blocks = {}
        entries = self._blocks.get(block)
        if entries is None:
            if len(self._blocks) >= _CACHED_BLOCKS_MAX:
                self._blocks.clear()
            first = block * _BLOCK_ENTRIES
            entries = self._blocks[block] = self._read(first, min(_BLOCK_ENTRIES, self._count - first))
        return entries

    def _read(self, first: int, count: int) -> list[AbortedTxn]:
        data = self.file().read(first * ENTRY.size, count * ENTRY.size)
        if len(data) != count * ENTRY.size:
            raise CorruptIndex("it was truncated while it was read")
        entries: list[AbortedTxn] = []
        before = self._base_offset - 1
        for version, *fields in ENTRY.iter_unpack(data):
            entry = AbortedTxn(*fields)
            _, start, marker, stable = entry
            if version != VERSION or not (0 <= start < marker and before < marker and 0 <= stable <= marker + 1):
                raise CorruptIndex(f"entry {first + len(entries)} is invalid: {(version, *entry)}")
            before = marker
            entries.append(entry)
        return entries

    # --- the file

    def file(self) -> File:
        """Return the file, opened at the first use. Raises `StorageError`."""
        if self._file is None:
            self._file = self._folder.open(self._name)
        return self._file

    def index_files(self) -> list[File]:
        """Return the file if it exists. Raises `StorageError`."""
        return [self.file()] if self._file is not None or self else []

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


def _packed(entries: Sequence[AbortedTxn]) -> bytes:
    return b"".join([ENTRY.pack(VERSION, *entry) for entry in entries])


def _collect(entries: list[AbortedTxn], upto: int, found: list[AbortedTxn]) -> bool:
    """Add the entries with records below `upto`; return True if all later ones begin at `upto` or above."""
    for entry in entries:
        if entry.first_offset < upto:
            found.append(entry)
        if entry.last_stable_offset >= upto:
            return True
    return False
