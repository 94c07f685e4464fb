"""Received bytes, cut into frames.

All connections of a transport receive into one shared buffer: nothing is kept for a connection that is between two
frames. The beginning of a frame is kept in a buffer of the connection that is at most four times what has come,
whatever the length before it says. Long frames are received straight into that buffer.
"""

from bisect import insort
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Protocol

from ...ports.transport import TransportError

_LENGTH = Struct(">i")

SHARED_BYTES = 262_144
LARGE_BYTES = 65_536
"""A frame of which so much has come without being whole gets a buffer of its own."""
_GROWTH = 4
_SPARE_BYTES_MAX = 2_097_152
_SPARES_MAX = 4
_SHARED_START = 64
"""The offset of `shared` in its mapping. A large bytearray begins 16 bytes after the start of a page. A copy to it from
the start of another page takes fifteen times as long: each load follows a store to the same 12 bits of an address."""

_NOTHING = memoryview(bytearray())


class Receives(Protocol):
    """The part of a socket that is needed here."""

    def recv_into(self, buffer: memoryview, /) -> int: ...


class ReceiveBuffers:
    """The buffers that the connections of one transport share."""

    def __init__(self) -> None:
        # Of an anonymous mapping only the pages that have been written to take memory.
        mapping = mmap(-1, _SHARED_START + SHARED_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self.shared = memoryview(mapping)[_SHARED_START:]
        self._spares: list[memoryview] = []
        """The smallest first."""

    def allocate(self, size: int, frame_bytes: int) -> memoryview:
        """Return a buffer of at least `size` bytes for a long frame of `frame_bytes`.

        A spare that holds the whole frame is the best: its bytes are moved once. Fresh memory is only `size` bytes.
        """
        for least in (frame_bytes, size):
            for index, spare in enumerate(self._spares):
                if len(spare) >= least:
                    return self._spares.pop(index)
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer for the next long frame: fresh memory costs a page fault for every 4 KB.

        The largest ones stay: a small one would be of no use to longer frames.
        """
        if len(buffer) <= _SPARE_BYTES_MAX:
            insort(self._spares, buffer, key=len)
            if len(self._spares) > _SPARES_MAX:
                del self._spares[0]


class Inbound:
    """The receiving side of one connection.

    Use: `receive`, then `next_frame` until None or as long as frames are wanted, then `save_unread` unless `is_empty`.
    """

    __slots__ = ("_buffer", "_buffers", "_end", "_limit", "_start", "frame_bytes_max", "is_empty", "whole")

    def __init__(self, buffers: ReceiveBuffers, frame_bytes_max: int) -> None:
        self._buffers = buffers
        self.frame_bytes_max = frame_bytes_max
        self._buffer = _NOTHING
        self._start = self._end = 0
        self.is_empty = True
        """True if all that was received has been handed out, and no long frame is under way."""
        self.whole: memoryview | None = None
        """The content of a frame that the last `receive` brought, and nothing else; `next_frame` hands it out, too."""
        self._limit = 0
        """The end of a long frame, or of the present buffer for it; 0 when no long frame is under way."""

    @property
    def pending_bytes(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._start

    @property
    def long_frame_bytes(self) -> int:
        """The memory that a long frame takes which has come in part."""
        return len(self._buffer) if self._limit else 0

    def receive(self, sock: Receives) -> int:
        """Receive once; returns the number of bytes, 0 at the end of the stream. Raises what the socket raises.

        A frame that comes whole and alone, as most do, is in `whole`.
        """
        if self._limit:
            got = sock.recv_into(self._buffer[self._end : self._limit])
            self._end += got
            return got
        shared, unread = self._buffers.shared, self._end - self._start
        if unread:
            shared[:unread] = self._buffer[self._start : self._end]
            got = sock.recv_into(shared[unread:])
        else:
            got = sock.recv_into(shared)
            if got > 4 and got - 4 == _LENGTH.unpack_from(shared)[0] <= self.frame_bytes_max:
                self.whole = shared[4:got]
                return got
        if got:
            self._buffer, self._start, self._end = shared, 0, unread + got
            self.is_empty = False
        return got

    def next_frame(self) -> memoryview | None:
        """Return the content of the next whole frame, valid until the next call; None when more must come first.

        Raises `TransportError` when the length is not one of a frame (facts A1: zero and negative ones are refused).
        """
        start = self._start
        if self._end - start < 4:
            frame, self.whole = self.whole, None
            return frame
        size: int = _LENGTH.unpack_from(self._buffer, start)[0]
        if not 0 < size <= self.frame_bytes_max:
            spoken = _other_protocol(size.to_bytes(4, "big", signed=True))
            raise TransportError(f"a frame of {size} bytes is not allowed (1 to {self.frame_bytes_max}){spoken}")
        stop = start + 4 + size
        if stop > self._end:
            return None
        self._start = stop
        self.is_empty = stop == self._end and not self._limit
        return self._buffer[start + 4 : stop]

    def save_unread(self) -> None:
        """Keep what was not handed out in a place of this connection's own."""
        left = self._end - self._start
        if not left:
            self.clear()
            return
        shared = self._buffer is self._buffers.shared
        need = 4 + _LENGTH.unpack_from(self._buffer, self._start)[0] if left >= 4 else 4
        if self._limit:
            if self._end == self._limit and left < need:
                self._move(need)
        elif left >= LARGE_BYTES and left < need:
            self._move(need)
        elif shared:
            self._buffer = memoryview(bytearray(self._buffer[self._start : self._end]))
            self._start, self._end = 0, left

    def clear(self) -> None:
        """Forget what was not handed out."""
        if self._limit:
            self._buffers.give_back(self._buffer)
            self._limit = 0
        self._buffer = _NOTHING
        self._start = self._end = 0
        self.is_empty = True

    def _move(self, need: int) -> None:
        """Put the beginning of a long frame into a buffer that holds more of it."""
        left = self._end - self._start
        larger = self._buffers.allocate(min(need, left * _GROWTH), need)
        larger[:left] = self._buffer[self._start : self._end]
        if self._limit:
            self._buffers.give_back(self._buffer)
        self._buffer, self._start, self._end = larger, 0, left
        self._limit = min(need, len(larger))


def _other_protocol(begin: bytes) -> str:
    """Return a hint on the protocol that the other side speaks, if its first bytes show one; else an empty text."""
    if begin in (b"HTTP", b"GET ", b"POST", b"PUT ", b"HEAD"):
        return "; the other side speaks HTTP: is this the port of a broker?"
    if begin[:2] in (b"\x15\x03", b"\x16\x03"):
        return (
            "; the other side speaks TLS, this one does not: use a listener with TLS (SSL or SASL_SSL), or "
            "security.protocol=PLAINTEXT"
        )
    return ""
