"""The first pass of a cleaning: the offset map, which has the last record of each key (facts B5)."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from struct import Struct
from typing import cast

from ....ports.errors import ApiError
from ...message.batch_header import HEADER_SIZE, BatchHeader
from ...message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ...message.control_records import EndTransactionMarker, read_marker
from ...message.record_scan import ScannedRecords, scan_records
from .cleaned_transactions import CleanedTransactions
from .cleaning_job import CannotClean, CleaningJob, read_chunks

SLOT_BYTES = 24
_PENDING_MAX = 20_000
"""Number of keys collected before they enter the table, so that a frequent key is hashed once for all of them."""
_HALVES = Struct("=QQ")
_PIECE_SLOTS = 1 << 16


class OffsetMap:
    """Maps key hashes to offsets, by open addressing in one array (Kafka: SkimpyOffsetMap).

    `secret` has up to 64 random bytes.
    """

    __slots__ = ("_count", "_limit", "_pending", "_start", "_table")

    def __init__(self, limit: int, secret: bytes, *, load_factor: float = 0.9) -> None:
        """`limit`: maximum number of keys, at least 1; the table is larger by the load factor."""
        from hashlib import blake2b  # with the first map: OpenSSL comes with it, 3.5 MB

        slots = max(int(limit / load_factor) + 1, limit + 1)
        self._table = array("Q", bytes(SLOT_BYTES)) * slots
        self._limit = limit
        self._count = 0
        self._pending: dict[bytes, int] = {}
        self._start = blake2b(digest_size=_HALVES.size, key=secret)

    def __len__(self) -> int:
        """Return the number of keys."""
        self._flush()
        return self._count

    def add(self, keys: Sequence[bytes], offsets: Iterable[int]) -> bool:
        """Add the keys with their offsets, which are higher than all before; the last one of a key counts.

        Return False, and add nothing, without room for all of them.
        """
        pending = self._pending
        if self._count + len(pending) + len(keys) > self._limit and not self._has_room(keys):
            return False
        pending.update(zip(keys, offsets, strict=False))
        if len(pending) > _PENDING_MAX:
            self._flush()
        return True

    def _has_room(self, keys: Sequence[bytes]) -> bool:
        self._flush()
        new = dict.fromkeys(keys)
        room = self._limit - self._count
        return len(new) <= room or self.latest(new).count(-1) <= room

    def latest(self, keys: Iterable[bytes]) -> list[int]:
        """Return the last offset of each of these keys, -1 for an unknown key."""
        self._flush()
        table, start, halves, end = self._table, self._start, _HALVES.unpack, len(self._table)
        slots = end // 3
        found: list[int] = []
        add = found.append
        for key in keys:
            hashed = start.copy()
            hashed.update(key)
            first, second = halves(hashed.digest())
            place = first % slots * 3
            while noted := table[place + 2]:
                if table[place] == first and table[place + 1] == second:
                    break
                place += 3
                if place == end:
                    place = 0
            add(noted - 1)
        return found

    def _flush(self) -> None:
        if not self._pending:
            return
        table, start, halves, end = self._table, self._start, _HALVES.unpack, len(self._table)
        slots = end // 3
        for key, offset in self._pending.items():
            hashed = start.copy()
            hashed.update(key)
            first, second = halves(hashed.digest())
            place = first % slots * 3
            while table[place + 2]:
                if table[place] == first and table[place + 1] == second:
                    break
                place += 3
                if place == end:
                    place = 0
            else:
                self._count += 1
                table[place] = first
                table[place + 1] = second
            table[place + 2] = offset + 1  # 0: an empty slot
        self._pending.clear()

    def offsets(self) -> Iterator[int]:
        """Yield all offsets, in no order."""
        self._flush()
        step = _PIECE_SLOTS * 3
        pieces = (self._table[at + 2 : at + step : 3] for at in range(0, len(self._table), step))
        return (noted - 1 for noted in chain.from_iterable(pieces) if noted)


_MARKS_SHARE = 16
"""A sixteenth of the memory has one byte per offset, so that these records are not hashed twice."""
LATEST = 1
HAS_NULLS = 2


def unpack_records(data: bytes, at: int, header: BatchHeader, codecs: Codecs) -> tuple[bytes, int, ScannedRecords]:
    """Return (bytes with the records of a batch, their position, the scanned records). Raises `CannotClean`."""
    begin, end = at + HEADER_SIZE, at + header.size
    try:
        if header.codec_id:
            codec = codecs.by_id(header.codec_id)
            data = bytes(codec.decompress(memoryview(data)[begin:end], DECOMPRESSED_BYTES_MAX))
            begin, end = 0, len(data)
        records = scan_records(data, begin, end, header.count)
    except ApiError as error:
        raise CannotClean(f"the records of the batch at offset {header.base_offset}: {error.message}") from error
    if max(records.offset_deltas, default=0) > header.last_offset_delta:
        raise CannotClean(f"a record of the batch at offset {header.base_offset} lies beyond its end")
    return data, begin, records


class OffsetMapBuilder:
    """Builds the offset map of the dirty part of a log, and then answers which records are the last of their keys."""

    def __init__(self, order: CleaningJob) -> None:
        self._order = order
        self._start = order.first_dirty
        span = max(1, order.upto - order.first_dirty)
        self._marks = bytearray(min(span, order.map_bytes // _MARKS_SHARE))
        room = int((order.map_bytes - len(self._marks)) // SLOT_BYTES * order.load_factor) - 1
        self._limit = max(1, min(room, span))
        self.map = OffsetMap(self._limit, order.secret, load_factor=order.load_factor)
        self.end = order.first_dirty
        """The map covers the offsets from the first dirty one up to here."""
        self.bytes_read = self.messages = 0

    @property
    def utilization(self) -> float:
        """Return the fill level of the map, of 1."""
        return len(self.map) / self._limit

    def build(self) -> Iterator[None]:
        """Read the dirty part until its end or until the map is full. Raises `CannotClean`, `StorageError`."""
        order = self._order
        dirty = [source for source in order.sources if source.next_offset > order.first_dirty]
        transactions = CleanedTransactions(order.aborted, dirty[0].base_offset if dirty else order.upto)
        for source in dirty:
            for data, batches in read_chunks(source, order.chunk_bytes):
                for at, header in batches:
                    if not self._add_batch(data, at, header, transactions):
                        self._check_progress()
                        yield from self._mark()
                        return
                    self.bytes_read += header.size
                    yield None
            self.end = source.next_offset
        yield from self._mark()

    def _check_progress(self) -> None:
        if self.end <= self._order.first_dirty:
            text = f"one batch has more keys than the offset map takes ({self._limit})"
            raise CannotClean(f"{text}; raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads")

    def _add_batch(self, data: bytes, at: int, header: BatchHeader, transactions: CleanedTransactions) -> bool:
        """Add the records of a batch; return False without room for them."""
        if header.control:
            transactions.is_marker_empty(header, read_marker_at(data, at, header))
        elif transactions.aborts(header) or not header.count or header.next_offset <= self._start:
            pass
        else:
            _, _, records = unpack_records(data, at, header, self._order.codecs)
            base, keys, deltas = header.base_offset, records.keys, records.offset_deltas
            if base < self._start or None in keys:
                wanted = [(key, delta) for key, delta in zip(keys, deltas, strict=True) if key is not None]
                wanted = [(key, delta) for key, delta in wanted if base + delta >= self._start]
                keys, deltas = [key for key, _ in wanted], [delta for _, delta in wanted]
            if not self.map.add(cast("Sequence[bytes]", keys), [base + delta for delta in deltas]):
                return False
            if records.nulls and 0 <= base - self._start < len(self._marks):
                self._marks[base - self._start] |= HAS_NULLS
            self.messages += header.count
        self.end = max(self.end, header.next_offset)
        return True

    def _mark(self) -> Iterator[None]:
        marks, start, size = self._marks, self._start, len(self._marks)
        for number, offset in enumerate(self.map.offsets()):
            if offset - start < size:
                marks[offset - start] |= LATEST
            if not number & 0xFFF:
                yield None

    def marks_of(self, header: BatchHeader) -> bytearray | None:
        """Return a byte per offset of a batch: `LATEST` if the record is the last of its key, and `HAS_NULLS` in the
        first one if the batch has tombstones. None: unknown, use the map."""
        first = header.base_offset - self._start
        if first < 0 or first + header.last_offset_delta >= len(self._marks) or header.next_offset > self.end:
            return None
        return self._marks[first : first + header.last_offset_delta + 1]


def read_marker_at(data: bytes, at: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Parse a control batch; return None if it ends no transaction. Raises `CannotClean`."""
    try:
        return read_marker(memoryview(data)[at:], header)
    except ApiError as error:
        raise CannotClean(f"the marker at offset {header.base_offset}: {error.message}") from error
