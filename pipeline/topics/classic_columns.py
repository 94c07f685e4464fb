"""Classic message sets as columns: each message with the position at which its outer entry begins."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from ...core.message.classic.entry import read_entry, read_plain_run
from ...core.message.classic.reader import SetDecoder
from ...core.message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ...ports.errors import ApiError
from .model import PartitionColumns

PIECE_BYTES = 1024 * 1024
"""Pieces are handed on when they have grown so far: many small wrappers make one, a large one several."""


class _Piece:
    """Columns that grow."""

    def __init__(self) -> None:
        self._offsets: list[list[int]] = []
        self._indexes: list[list[int | None]] = []
        self._values: list[list[bytes]] = []
        self._wrapped = False
        self.size_bytes = 0

    def plain(self, payloads: list[bytes], starts: list[int]) -> None:
        self._offsets.append(starts)
        self._indexes.append([None] * len(starts))
        self._values.append(payloads)
        self.size_bytes += sum(map(len, payloads))

    def wrapped(self, payloads: list[bytes], start: int, first: int) -> None:
        """`first`: how many messages of the wrapper came before these."""
        self._offsets.append([start] * len(payloads))
        self._indexes.append(list(range(first, first + len(payloads))))
        self._values.append(payloads)
        self._wrapped = True
        self.size_bytes += sum(map(len, payloads))

    def columns(self, next_offset: int) -> PartitionColumns:
        join = chain.from_iterable
        indexes = list(join(self._indexes)) if self._wrapped else ()
        values: list[bytes | None] = list(join(self._values))
        return PartitionColumns(
            next_offset, list(join(self._offsets)), (), (), (), values, (), indexes, size_bytes=self.size_bytes
        )


def classic_columns(
    data: bytes,
    codecs: Codecs,
    *,
    from_offset: int,
    upto: int,
    check_crc: bool = True,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[PartitionColumns]:
    """The messages of a set that begins at byte `from_offset` of its log, up to the entry that begins at `upto`.

    The last piece's `next_offset` is behind the last whole entry that was taken; before that, a piece that ends inside
    a wrapper leads back to the wrapper's start. Yields at least one piece, perhaps without rows. A part of an entry at
    the end is left out. Raises `ApiError` as iterating over a `ClassicMessageSet` does; the piece before that leads on
    to the entry that is wrong.
    """
    piece, position = _Piece(), 0
    try:
        while from_offset + position < upto:
            payloads, ends = read_plain_run(data, position, check_crc)
            if ends:
                starts = [from_offset + start for start in (position, *ends[:-1])]
                count = bisect_left(starts, upto)
                piece.plain(payloads[:count], starts[:count])
                position = ends[count - 1]
            else:
                entry = read_entry(data, position, check_crc=check_crc)
                if entry is None:
                    break
                if entry.codec_id:
                    start = from_offset + position
                    first = 0
                    for values in _opened(data[position : entry.end], codecs, check_crc):
                        piece.wrapped(values, start, first)
                        first += len(values)
                        if piece.size_bytes >= piece_bytes:
                            yield piece.columns(start)
                            piece = _Piece()
                else:
                    piece.plain([data[entry.payload_start : entry.end]], [from_offset + position])
                position = entry.end
            if piece.size_bytes >= piece_bytes:
                yield piece.columns(from_offset + position)
                piece = _Piece()
    except ApiError:
        yield piece.columns(from_offset + position)
        raise
    yield piece.columns(from_offset + position)


def _opened(wrapper: bytes, codecs: Codecs, check_crc: bool) -> Iterator[list[bytes]]:
    """The payloads in one wrapper, some at a time."""
    decoder = SetDecoder(codecs, "", -1, DECOMPRESSED_BYTES_MAX, check_crc)
    for run in decoder.runs(wrapper, 0):
        yield [message.value or b"" for message in run]
