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
from ...ports.storage import JoinedBuffers, Region
from ...ports.types import Buffer
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
"""Bytes that are read at once."""
_SMALLER = 8
"""The smallest pieces, where there are many readers, are smaller by this factor."""
_PIECES = 16
"""The large pieces that are in memory; indexes have a bound of their own."""
_AHEAD, _AHEAD_OF_SEQUENCE = 1, 3
"""Pieces that are loaded before they are wanted: after the first read of a reader, and after later ones."""
_AHEAD_SHARE = 4
"""Pieces that are loaded early take at most such a part of the memory."""
_PRESSURE, _CALM, _UNREAD = 32, -256, 8
"""Pieces become smaller at `_PRESSURE`, larger at `_CALM`. One that leaves the cache counts `_UNREAD` if it is unread,
else -1."""


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

    records: Buffer | Region
    """A `Region` of memory where pieces meet, so that nothing is copied."""
    next_offset: int
    """An upper bound of the offsets in the records."""
    aborted: Sequence[AbortedTxn] = ()
    is_complete: bool = True
    """False: local segments may have further aborted transactions."""


Reading = Generator[_Piece | Callable[[], Any], Any, T]
"""Yields pieces to be loaded, and work for another thread."""


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
        piece_bytes: int = CHUNK_BYTES,
        resume: Callable[[Callable[[], None]], None] = lambda work: work(),
        on_failed: Callable[[], None] = lambda: None,
        delayed: Callable[[int, Callable[[], None]], None] = lambda _, start: start(),
    ) -> None:
        """piece_bytes: of what is loaded at once, while there are not too many readers.

        `resume` continues a read that has waited for a piece: others may wait for the same one. `on_failed` is called
        after a failed load. `delayed` starts a load of a size when the rate of loads allows it; indexes have the size
        0."""
        self._storage = storage
        self._offload = offload
        self._codecs = codecs
        self._pending_max = pending_max
        self._index_bytes_max = index_bytes_max
        self._resume = resume
        self._on_failed = on_failed
        self._delayed = delayed
        self._chunks: OrderedDict[_Piece, Buffer] = OrderedDict()
        """The loaded pieces in the order in which they leave: first those that were read to their end."""
        self._read: set[_Piece] = set()
        """Pieces of `_chunks` that were read to their end."""
        self._begun: set[_Piece] = set()
        """Pieces of `_chunks` that were read in part."""
        self._ahead: set[_Piece] = set()
        """Pieces, here or on their way, that nothing has asked for yet."""
        self._piece_bytes = self._piece_max = piece_bytes
        self._piece_min = piece_bytes // _SMALLER
        self._chunks_max = piece_bytes * _PIECES
        self._pressure = 0
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
        self._drive(self._reading(view, offset, max_bytes, committed), done)

    def find_first_at(
        self, view: RemoteView, timestamp: int, start: int, done: Callable[[Outcome[TimestampOffset | None]], None]
    ) -> None:
        """Find the first record at `timestamp` (ms) or later, from the offset `start` on."""
        self._drive(self._find_first_at(view, timestamp, start), done)

    # --- reads in pieces

    def _reading(self, view: RemoteView, offset: int, max_bytes: int, committed: bool) -> Reading[RemoteRecords | None]:
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
        is_sequence = self._piece_at(log_key(view.folder, segment), segment, position) in self._begun
        parts = yield from self._parts(view, segment, position, size)
        records = parts[0] if len(parts) == 1 else JoinedBuffers(parts)
        self._note_read(view, segment, position, size, first.size)
        self._read_ahead(view, segment, position + size, _AHEAD_OF_SEQUENCE if is_sequence else _AHEAD)
        upto = segment.next_offset
        if not committed:
            return RemoteRecords(records, upto)
        aborted, is_complete = yield from self._aborted(view, segment, offset, upto)
        return RemoteRecords(records, upto, aborted, is_complete)

    def _batch_of(
        self, view: RemoteView, segment: RemoteSegment, position: int, offset: int
    ) -> Reading[tuple[int, BatchHeader] | None]:
        """Return the position and header of the first batch that ends above `offset`, from a position on."""
        key = log_key(view.folder, segment)
        while position + HEADER_SIZE <= segment.size:
            piece = self._piece_at(key, segment, position)
            chunk, within = self._chunks.get(piece), position - piece.start
            if chunk is None or within + HEADER_SIZE > len(chunk):
                header = parse_header((yield from self._bytes(view, segment, position, HEADER_SIZE)))
            else:
                header = parse_header(chunk, within)
            if header.next_offset > offset:
                return position, header
            position += header.size
        return None

    def _bytes(self, view: RemoteView, segment: RemoteSegment, position: int, size: int) -> Reading[Buffer]:
        """Return a range of a segment, which is not copied if one piece has it."""
        parts = yield from self._parts(view, segment, position, size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _parts(self, view: RemoteView, segment: RemoteSegment, position: int, size: int) -> Reading[list[Buffer]]:
        """Return a range of a segment, as the parts of it that single pieces have."""
        end = min(position + size, segment.size)
        key = log_key(view.folder, segment)
        parts: list[Buffer] = []
        while position < end:
            piece = self._piece_at(key, segment, position)
            self._load_early(key, segment, piece.start + piece.size, end, _AHEAD_OF_SEQUENCE, ahead=False)
            chunk: Buffer = yield piece
            if len(chunk) < piece.size:
                raise ValueError(f"{key} has fewer than {segment.size} bytes")
            parts.append(memoryview(chunk)[position - piece.start : end - piece.start])
            position = piece.start + piece.size
        return parts

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
                    search = partial(find_first_record, bytes(batch), timestamp, self._codecs, from_offset=start)
                    found: tuple[int, int] | None = yield search
                    if found is not None:
                        at = epochs_between(segment.epochs, found[1], found[1] + 1)
                        return TimestampOffset(found[0], _offset(found[1]), at[0][0] if at else -1)
                position += header.size
        return None

    def _read_ahead(self, view: RemoteView, segment: RemoteSegment, position: int, pieces: int) -> None:
        """Load what a sequential reader needs next, unless it is here; nothing waits for it."""
        pieces = min(pieces, self._chunks_max // _AHEAD_SHARE // self._piece_bytes - len(self._ahead))
        left = pieces - self._load_early(log_key(view.folder, segment), segment, position, segment.size, pieces)
        following = view.manifest.find(segment.next_offset) if left > 0 else None
        if following is not None:
            self._load_unless_here(_indexes_of(view, following), ahead=False)
            self._load_early(log_key(view.folder, following), following, 0, following.size, left)

    def _load_early(
        self, key: str, segment: RemoteSegment, position: int, end: int, pieces: int, *, ahead: bool = True
    ) -> int:
        """Load pieces of a range, at most this number; return how many there were."""
        number = 0
        while position < end and number < pieces:
            piece = self._piece_at(key, segment, position)
            self._load_unless_here(piece, ahead=ahead)
            position = piece.start + piece.size
            number += 1
        return number

    def _load_unless_here(self, piece: _Piece, *, ahead: bool) -> None:
        is_here = piece in self._chunks or piece in self._indexes or piece in self._pending
        if not is_here and len(self._pending) < self._pending_max // 2:  # the rest is for those who wait
            if ahead:
                self._ahead.add(piece)
            self._load(piece, lambda _: None)

    # --- pieces

    def _piece_at(self, key: str, segment: RemoteSegment, position: int) -> _Piece:
        """Return the piece of the batches of a segment with a position: one that is here or on its way, or else one of
        the present size."""
        size = self._piece_bytes
        start = position - position % size
        present = _Piece(key, start, min(size, segment.size - start))
        if present in self._chunks or present in self._pending:
            return present
        size = self._piece_max
        while size >= self._piece_min:
            start = position - position % size
            piece = _Piece(key, start, min(size, segment.size - start))
            if piece in self._chunks or piece in self._pending:
                return piece
            size //= 2
        return present

    def _note_read(self, view: RemoteView, segment: RemoteSegment, position: int, size: int, batch_bytes: int) -> None:
        """Let pieces that were read to their end leave first: a sequential reader does not come back.

        batch_bytes: of a batch; the next read begins with the last one of this read if that is cut.
        """
        end = position + size
        key = log_key(view.folder, segment)
        while position < end:
            piece = self._piece_at(key, segment, position)
            position = piece.start + piece.size
            self._ahead.discard(piece)
            if piece in self._chunks:
                self._begun.add(piece)
                if end == segment.size or end - batch_bytes >= position:
                    self._read.add(piece)
                    self._chunks.move_to_end(piece, last=False)

    def _evict(self) -> None:
        """Free memory. Pieces that leave before they were read to their end show that there are more readers than
        pieces of this size have room."""
        while self._chunk_bytes > self._chunks_max and len(self._chunks) > 1:
            piece, chunk = self._chunks.popitem(last=False)
            self._chunk_bytes -= len(chunk)
            if piece in self._read:
                self._pressure -= 1
            elif self._piece_bytes // 2 < piece.size <= self._piece_bytes:
                self._pressure += _UNREAD
            self._read.discard(piece)
            self._begun.discard(piece)
            self._ahead.discard(piece)
            if self._pressure >= _PRESSURE:
                self._piece_bytes, self._pressure = max(self._piece_bytes // 2, self._piece_min), 0
            elif self._pressure <= _CALM:
                self._piece_bytes, self._pressure = min(self._piece_bytes * 2, self._piece_max), 0

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
            if not isinstance(piece, _Piece):
                self._offload(piece, partial(self._drive, reading, done))
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
        load = partial(self._offload, partial(_loaded, self._storage, piece), partial(self._came, piece))
        self._delayed(max(piece.size, 0), load)

    def _came(self, piece: _Piece, outcome: Outcome[Any]) -> None:
        waiting = self._pending.pop(piece, [])
        if outcome.error is not None:
            self._ahead.discard(piece)
            if not isinstance(outcome.error, ObjectMissing):
                self._on_failed()
        elif isinstance(outcome.value, SegmentIndexes):
            self._indexes[piece] = outcome.value
            self._index_bytes += outcome.value.size
            while self._index_bytes > self._index_bytes_max and len(self._indexes) > 1:
                self._index_bytes -= self._indexes.popitem(last=False)[1].size
        else:
            chunk: Buffer = outcome.get()
            self._chunks[piece] = chunk
            self._chunk_bytes += len(chunk)
            self._evict()
        for resume in waiting:
            self._resume(partial(resume, outcome))


def _offset(number: int) -> Any:
    return number


def _indexes_of(view: RemoteView, segment: RemoteSegment) -> _Piece:
    return _Piece(indexes_key(view.folder, segment), 0, -1, segment.base_offset)


def _loaded(storage: RemoteStorage, piece: _Piece) -> Buffer | SegmentIndexes:
    """Load a piece. Any thread. Raises `RemoteStorageError`."""
    if piece.size >= 0:
        return storage.get_range(piece.key, piece.start, piece.size)
    try:
        return SegmentIndexes(storage.read(piece.key).content, piece.base_offset)
    except ValueError as error:
        raise RemoteStorageError(f"{piece.key}: {error}") from error
