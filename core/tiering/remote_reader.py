"""Reads of segments in remote storage: pieces of them are loaded on other threads, cached, and read ahead.

Everything here runs on the owner thread but the loads. A read asks for pieces (`Piece`) one after the other; each comes
from the cache, or is loaded once for all that wait for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...ports.errors import ApiError, BarnabasError
from ...ports.remote_storage import ObjectMissing, RemoteStorage, RemoteStorageError
from ...ports.scheduler import Outcome
from ...ports.values import frozen
from ..log.partition_log.results import TimestampOffset
from ..log.segment.segment_list import find_first_record
from ..log.segment.transaction_index import AbortedTxn
from ..message.batch_header import HEADER_SIZE, BatchHeader, parse_header
from ..message.codec import Codecs
from .manifest import Manifest, RemoteSegment, epochs_between, indexes_key, log_key
from .segment_objects import SegmentIndexes

T = TypeVar("T")
Offload = Callable[[Callable[[], Any], Callable[[Outcome[Any]], None]], None]
"""Runs work on another thread, as `Scheduler.offload` does."""

CHUNK_BYTES = 4_194_304
"""Bytes that are loaded at once."""
_CHUNKS_MAX_BYTES = 16 * CHUNK_BYTES
"""Bytes of loaded batches in memory; indexes have a bound of their own."""


class TooManyReads(BarnabasError):
    """More reads wait for remote storage than `remote.log.reader.max.pending.tasks` allows."""


class _Piece(NamedTuple):
    """A range of an object, or with a size of -1 its indexes."""

    key: str
    start: int
    size: int
    base_offset: int = -1


@frozen(kw_only=True)
class RemoteView:
    """A manifest, and the folder of the partition in remote storage."""

    folder: str
    manifest: Manifest


class RemoteRecords(NamedTuple):
    """Batches from the one with the wanted offset on; the last may be cut."""

    records: bytes
    next_offset: int
    """An upper bound of the offsets in the records."""
    aborted: Sequence[AbortedTxn] = ()
    is_complete: bool = True
    """False: local segments may have further aborted transactions."""


Reading = Generator[_Piece, Any, T]


class RemoteLogReader:
    """Owner thread only. `pending_max`: loads under way at most; `index_bytes_max`: of indexes in memory."""

    def __init__(
        self,
        storage: RemoteStorage,
        offload: Offload,
        codecs: Codecs,
        *,
        pending_max: int,
        index_bytes_max: int,
        on_loaded: Callable[[int], None] = lambda _: None,
        on_failed: Callable[[], None] = lambda: None,
        delayed: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`on_loaded` is called with the bytes of each load, `on_failed` after a failed one. `delayed` starts a load
        later, when the rate of loads allows it; None: at once."""
        self._storage = storage
        self._offload = offload
        self._codecs = codecs
        self._pending_max = pending_max
        self._index_bytes_max = index_bytes_max
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._delayed = delayed if delayed is not None else lambda start: start()
        self._chunks: OrderedDict[_Piece, bytes] = OrderedDict()
        self._indexes: OrderedDict[_Piece, SegmentIndexes] = OrderedDict()
        self._chunk_bytes = self._index_bytes = 0
        self._pending: dict[_Piece, list[Callable[[Outcome[Any]], None]]] = {}

    @property
    def pending(self) -> int:
        """Loads under way."""
        return len(self._pending)

    # --- what callers ask

    def read(
        self,
        view: RemoteView,
        offset: int,
        *,
        max_bytes: int,
        committed: bool,
        done: Callable[[Outcome[RemoteRecords | None]], None],
    ) -> None:
        """Read batches from the one with `offset` on, about `max_bytes`, the first whole; None if no segment has it.

        `committed`: with the aborted transactions. `done` may be called at once. Its error is a `RemoteStorageError`,
        `TooManyReads`, or `ValueError` for objects that are damaged.
        """
        self._drive(self._read(view, offset, max_bytes, committed), done)

    def find_first_at(
        self, view: RemoteView, timestamp: int, start: int, done: Callable[[Outcome[TimestampOffset | None]], None]
    ) -> None:
        """Find the first record at `timestamp` (ms) or later, from the offset `start` on."""
        self._drive(self._find_first_at(view, timestamp, start), done)

    # --- reads in pieces

    def _read(self, view: RemoteView, offset: int, max_bytes: int, committed: bool) -> Reading[RemoteRecords | None]:
        segment = view.manifest.find(offset)
        if segment is None:
            return None
        indexes: SegmentIndexes = yield _indexes_of(view, segment)
        found: tuple[int, BatchHeader] | None = None
        for position in dict.fromkeys((indexes.position_of(offset), 0)):  # 0: the index is wrong
            try:
                found = yield from self._batch_of(view, segment, position, offset)
            except ApiError:
                found = None
            if found is not None and found[1].base_offset <= offset:
                break
        if found is None:
            raise ValueError(f"{log_key(view.folder, segment)} lacks offset {offset}")
        position, first = found
        size = min(max(max_bytes, first.size), segment.size - position)
        records = yield from self._bytes(view, segment, position, size)
        self._read_ahead(view, segment, position + size)
        upto = segment.next_offset
        if not committed:
            return RemoteRecords(records, upto)
        aborted, is_complete = yield from self._aborted(view, segment, offset, upto)
        return RemoteRecords(records, upto, aborted, is_complete)

    def _batch_of(
        self, view: RemoteView, segment: RemoteSegment, position: int, offset: int
    ) -> Reading[tuple[int, BatchHeader] | None]:
        """Return the position and header of the first batch that ends above `offset`, from a position on."""
        while position + HEADER_SIZE <= segment.size:
            header = parse_header((yield from self._bytes(view, segment, position, HEADER_SIZE)))
            if header.next_offset > offset:
                return position, header
            position += header.size
        return None

    def _bytes(self, view: RemoteView, segment: RemoteSegment, position: int, size: int) -> Reading[bytes]:
        end = min(position + size, segment.size)
        parts: list[bytes | memoryview] = []
        for number in range(position // CHUNK_BYTES, (end - 1) // CHUNK_BYTES + 1 if end > position else 0):
            start = number * CHUNK_BYTES
            chunk: bytes = yield _chunk_of(view, segment, number)
            if start + len(chunk) < min(end, start + CHUNK_BYTES):
                raise ValueError(f"{log_key(view.folder, segment)} has fewer than {segment.size} bytes")
            parts.append(memoryview(chunk)[max(0, position - start) : end - start])
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _aborted(
        self, view: RemoteView, segment: RemoteSegment, from_offset: int, upto: int
    ) -> Reading[tuple[list[AbortedTxn], bool]]:
        """Return (aborted transactions, False if local segments may have more): a marker may be in a later segment."""
        found: dict[AbortedTxn, None] = {}
        at: RemoteSegment | None = segment
        while at is not None:
            if at.has_aborted:
                indexes: SegmentIndexes = yield _indexes_of(view, at)
                some, is_complete = indexes.aborted(from_offset, upto)
                found.update(dict.fromkeys(some))
                if is_complete:
                    return list(found), True
            at = view.manifest.find(at.next_offset)
        return list(found), False

    def _find_first_at(self, view: RemoteView, timestamp: int, start: int) -> Reading[TimestampOffset | None]:
        for segment in view.manifest.readable:
            if segment.next_offset <= start or segment.max_timestamp < timestamp:
                continue
            indexes: SegmentIndexes = yield _indexes_of(view, segment)
            position = indexes.position_before_time(timestamp)
            while position + HEADER_SIZE <= segment.size:
                header = parse_header((yield from self._bytes(view, segment, position, HEADER_SIZE)))
                if header.max_timestamp >= timestamp and header.last_offset >= start:
                    batch = yield from self._bytes(view, segment, position, header.size)
                    found = find_first_record(batch, timestamp, self._codecs, from_offset=start)
                    if found is not None:
                        at = epochs_between(segment.epochs, found[1], found[1] + 1)
                        return TimestampOffset(found[0], _offset(found[1]), at[0][0] if at else -1)
                position += header.size
        return None

    def _read_ahead(self, view: RemoteView, segment: RemoteSegment, position: int) -> None:
        """Load what a sequential reader needs next, unless it is here; nothing waits for it."""
        ahead = position + CHUNK_BYTES // 2
        following = segment if ahead < segment.size else view.manifest.find(segment.next_offset)
        pieces = [] if following is None else [_chunk_of(view, following, ahead // CHUNK_BYTES)]
        if following is not None and following is not segment:
            pieces = [_indexes_of(view, following), _chunk_of(view, following, 0)]
        for piece in pieces:
            if piece not in self._chunks and piece not in self._indexes and piece not in self._pending:
                self._load(piece, lambda _: None)

    # --- pieces

    def _drive(
        self, reading: Reading[T], done: Callable[[Outcome[T]], None], outcome: Outcome[Any] | None = None
    ) -> None:
        while True:
            try:
                if outcome is None:
                    piece = next(reading)
                elif outcome.error is not None:
                    piece = reading.throw(outcome.error)
                else:
                    piece = reading.send(outcome.value)
            except StopIteration as end:
                done(Outcome(value=end.value))
                return
            except Exception as error:  # noqa: BLE001  handed on
                done(Outcome(error=error))
                return
            cached = self._cached(piece)
            if cached is None:
                self._load(piece, partial(self._drive, reading, done))
                return
            outcome = Outcome(value=cached)

    def _cached(self, piece: _Piece) -> Any:
        cache: OrderedDict[_Piece, Any] = self._indexes if piece.size < 0 else self._chunks
        found = cache.get(piece)
        if found is not None:
            cache.move_to_end(piece)
        return found

    def _load(self, piece: _Piece, resume: Callable[[Outcome[Any]], None]) -> None:
        waiting = self._pending.get(piece)
        if waiting is not None:
            waiting.append(resume)
            return
        if len(self._pending) >= self._pending_max:
            resume(Outcome(error=TooManyReads(f"{self._pending_max} reads wait for remote storage already")))
            return
        self._pending[piece] = [resume]
        self._delayed(lambda: self._offload(partial(_loaded, self._storage, piece), partial(self._came, piece)))

    def _came(self, piece: _Piece, outcome: Outcome[Any]) -> None:
        waiting = self._pending.pop(piece, [])
        if outcome.error is not None:
            if not isinstance(outcome.error, ObjectMissing):
                self._on_failed()
        elif isinstance(outcome.value, SegmentIndexes):
            self._on_loaded(outcome.value.size)
            self._indexes[piece] = outcome.value
            self._index_bytes += outcome.value.size
            while self._index_bytes > self._index_bytes_max and len(self._indexes) > 1:
                self._index_bytes -= self._indexes.popitem(last=False)[1].size
        else:
            chunk = bytes(outcome.value or b"")
            self._on_loaded(len(chunk))
            self._chunks[piece] = chunk
            self._chunk_bytes += len(chunk)
            while self._chunk_bytes > _CHUNKS_MAX_BYTES and len(self._chunks) > 1:
                self._chunk_bytes -= len(self._chunks.popitem(last=False)[1])
        for resume in waiting:
            resume(outcome)


def _offset(number: int) -> Any:
    return number


def _indexes_of(view: RemoteView, segment: RemoteSegment) -> _Piece:
    return _Piece(indexes_key(view.folder, segment), 0, -1, segment.base_offset)


def _chunk_of(view: RemoteView, segment: RemoteSegment, number: int) -> _Piece:
    start = number * CHUNK_BYTES
    return _Piece(log_key(view.folder, segment), start, min(CHUNK_BYTES, segment.size - start))


def _loaded(storage: RemoteStorage, piece: _Piece) -> bytes | SegmentIndexes:
    """Load a piece. Any thread. Raises `RemoteStorageError`."""
    if piece.size >= 0:
        return storage.get_range(piece.key, piece.start, piece.size)
    try:
        return SegmentIndexes(storage.read(piece.key).content, piece.base_offset)
    except ValueError as error:
        raise RemoteStorageError(f"{piece.key}: {error}") from error
