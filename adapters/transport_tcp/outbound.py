"""Frames on their way out: gathered sends for buffers, `splice` and `sendfile` for file regions."""

import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from fcntl import fcntl
from struct import Struct
from typing import Protocol

from ...ports.storage import Region
from ...ports.transport import Piece, TransportError
from ...ports.types import Buffer

_LENGTH = Struct(">i")

_GATHER_MAX = 256
"""Buffers in one call to the system; Linux takes 1024."""
_INLINE_BYTES = 16_384
"""A region up to this size is read and sent with the buffers around it: one call to the system less than `sendfile`."""
_JOIN_BYTES = 16_384
"""No more than this is copied together to be sent."""
_READ_BYTES = 262_144
"""Without `sendfile`, this many bytes of a region are in memory at a time."""
_TURN_BYTES = 4_194_304
"""One connection may send this many bytes before others have their turn."""
_TLS_TURN_BYTES = 1_048_576
"""The share of a connection with TLS, where this thread encrypts each byte."""
_TLS_SEND_BYTES = 65_536
"""The most that TLS encrypts and sends at a time: four records."""

_SENDFILE = sys.platform == "linux"  # elsewhere os.sendfile has another signature
_SPLICE = _SENDFILE and hasattr(os, "splice")
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_PIPE_BYTES = 1_048_576
"""The most that a user without privileges gets (/proc/sys/fs/pipe-max-size)."""
_SPLICE_BYTES = 524_288
"""Less than this is sent by one `sendfile`: as fast, and a call to the system less."""


class PagePipe:
    """A pipe of 1 MB through which pages of files go to sockets without a copy (Linux: `splice`). Owner thread only.

    `sendfile` has a pipe of its own, which holds 64 KB: each of these wakes a client that waits for more. This pipe is
    empty between calls, so all connections of a reactor share it.
    """

    __slots__ = ("_is_possible", "_reads", "_writes")

    def __init__(self) -> None:
        self._reads = self._writes = -1
        self._is_possible = _SPLICE

    def send(self, target: int, source: int, position: int, size: int) -> int | None:
        """Send as much of a file's part as the pipe and the socket take at once; returns the number of bytes, 0 at the
        end of the file, None where there is no such pipe.

        Raises `BlockingIOError` if the socket takes nothing, and `OSError` from it or the file.
        """
        if self._reads < 0 and not self._open():
            return None
        moved = os.splice(source, self._writes, size, offset_src=position)
        sent = 0
        try:
            while sent < moved:
                sent += os.splice(self._reads, target, moved - sent)
        except (BlockingIOError, InterruptedError):
            if not sent:
                raise
        finally:
            if sent < moved:
                self.close()  # with what is left in it: it can be had from the file again
        return sent

    @property
    def is_open(self) -> bool:
        """False also after a call that left something in it, since the socket was full."""
        return self._reads >= 0

    def close(self) -> None:
        """Close the pipe until it is needed again."""
        if self._reads >= 0:
            os.close(self._reads)
            os.close(self._writes)
            self._reads = self._writes = -1

    __del__ = close

    def _open(self) -> bool:
        if self._is_possible:
            try:
                self._reads, self._writes = os.pipe()
                fcntl(self._writes, _SET_PIPE_SIZE, _PIPE_BYTES)
            except OSError:  # too many descriptors, or pages in pipes of this user
                self.close()
                self._is_possible = False
        return self._is_possible


class _RegionTail:
    """A region, and how much of it has gone out."""

    __slots__ = ("descriptor", "may_splice", "position", "region", "sent", "size")

    def __init__(self, region: Region, size: int, *, may_sendfile: bool) -> None:
        self.region = region
        self.size = size
        self.position = region.position
        self.sent = 0
        self.may_splice = True
        self.descriptor = region.fileno() if may_sendfile else -1
        """The file's descriptor, which the region holds open; -1 to send the bytes from memory."""

    def cut_short(self) -> TransportError:
        return TransportError(f"a file region of {self.size} bytes ended after {self.sent}: its file was truncated")


class Sends(Protocol):
    """The part of a socket with TLS that is needed here."""

    def send(self, content: Buffer, /) -> int: ...


class Outbound:
    """The sending side of one connection."""

    __slots__ = ("_items", "_may_gather", "_may_sendfile", "_pipe", "region_bytes", "regions", "unsent_bytes")

    def __init__(
        self, pipe: PagePipe | None = None, *, may_sendfile: bool = _SENDFILE, may_gather: bool = True
    ) -> None:
        """Without `may_gather` the socket is one with TLS, which has no `sendmsg`. `pipe`: None for `sendfile` only."""
        self._pipe = pipe
        self._may_gather = may_gather
        self._items: deque[Buffer | _RegionTail] = deque()
        self._may_sendfile = may_sendfile
        self.region_bytes = 0
        """The unsent bytes that are in files; the others are in memory."""
        self.regions = 0
        """Regions that have not gone out wholly."""
        self.unsent_bytes = 0

    def add(self, pieces: Sequence[Piece]) -> int:
        """Queue one frame; return `unsent_bytes`.

        Raises `StorageError` or `TransportError` when a small region cannot be read whole.
        """
        content_bytes = 0
        frame: list[Buffer | _RegionTail] = [b""]
        for piece in pieces:
            if isinstance(piece, (bytes, bytearray, memoryview)):
                size = len(piece)
                if size:
                    frame.append(piece)
            else:
                size = piece.size
                if size > _INLINE_BYTES:
                    frame.append(_RegionTail(piece, size, may_sendfile=self._may_sendfile))
                    self.regions += 1
                    self.region_bytes += size
                elif size:
                    frame.append(_read_whole(piece, size))
            content_bytes += size
        frame[0] = _LENGTH.pack(content_bytes)
        self._items.extend(frame)
        self.unsent_bytes = unsent = self.unsent_bytes + content_bytes + 4
        return unsent

    def flush(self, sock: "socket.socket | Sends") -> bool:
        """Send what the socket takes, up to a turn's share; True when nothing is left.

        Raises `OSError` from the socket, `StorageError` and `TransportError` for a region that cannot be read whole.
        """
        if not self.regions and self.unsent_bytes <= _JOIN_BYTES:
            items = self._items
            if not items:
                return True
            content = b"".join(items)  # type: ignore[arg-type]  # no regions among them; cheaper than to gather them
            try:
                sent = sock.send(content)
            except (BlockingIOError, InterruptedError):
                return False
            items.clear()
            self.unsent_bytes -= sent
            if sent == len(content):
                return True
            items.append(memoryview(content)[sent:])
            return False
        budget = _TURN_BYTES if self._may_gather else _TLS_TURN_BYTES
        while self._items:
            if budget <= 0:
                return False
            head = self._items[0]
            try:
                if not isinstance(sock, socket.socket):
                    if isinstance(head, _RegionTail):
                        self._read_ahead(head)
                    sent = self._send_encrypted(sock)
                elif isinstance(head, _RegionTail):
                    sent = self._send_region(sock, head)
                else:
                    sent = self._send_buffers(sock)
            except (BlockingIOError, InterruptedError):
                return False
            self.unsent_bytes -= sent
            budget -= sent
        return True

    def clear(self) -> None:
        """Forget what has not gone out, and let go of its files."""
        self._items.clear()
        self.unsent_bytes = self.region_bytes = self.regions = 0

    def _send_buffers(self, sock: socket.socket) -> int:
        items, batch, size = self._items, [], 0
        for item in items:
            if isinstance(item, _RegionTail):
                break  # without MSG_MORE: joined with the pages of the file, the head would make them dearer to send
            batch.append(item)
            size += len(item)
            if len(batch) == _GATHER_MAX:
                break
        if size <= _JOIN_BYTES:  # the head of a fetch's answer: cheaper than to gather it
            content = b"".join(batch)
            sent = sock.send(content)
            for _ in batch:
                items.popleft()
            if sent < size:
                items.appendleft(memoryview(content)[sent:])
            return sent
        sent = left = sock.sendmsg(batch)
        for buffer in batch:
            if left < len(buffer):
                if left:
                    items[0] = memoryview(buffer)[left:]
                break
            left -= len(buffer)
            items.popleft()
        return sent

    def _send_encrypted(self, sock: "Sends") -> int:
        """Send small buffers together, and long ones from where they are. After `BlockingIOError` the next call sends
        the same bytes first: nothing before them is added or taken away."""
        items, batch, size = self._items, [], 0
        for item in items:
            if isinstance(item, _RegionTail) or size == _TLS_SEND_BYTES:
                break
            part = memoryview(item)[: _TLS_SEND_BYTES - size] if size + len(item) > _TLS_SEND_BYTES else item
            batch.append(part)
            size += len(part)
        sent = left = sock.send(batch[0] if len(batch) == 1 else b"".join(batch))
        while left:
            first = items[0]
            assert not isinstance(first, _RegionTail)
            if left < len(first):
                items[0] = memoryview(first)[left:]
                break
            left -= len(first)
            items.popleft()
        return sent

    def _send_region(self, sock: socket.socket, tail: _RegionTail) -> int:
        if tail.descriptor < 0:
            self._read_ahead(tail)
            return self._send_buffers(sock)
        before, sent, pipe = tail.sent, None, self._pipe
        position, left = tail.position + before, tail.size - before
        if left >= _SPLICE_BYTES and pipe is not None and tail.may_splice:
            try:
                sent = pipe.send(sock.fileno(), tail.descriptor, position, left)
            finally:
                tail.may_splice = pipe.is_open  # once a socket is full, what it takes at a time is not worth a new pipe
        if sent is None:
            sent = os.sendfile(sock.fileno(), tail.descriptor, position, left)
        if not sent:
            raise tail.cut_short()
        tail.sent = before + sent
        self.region_bytes -= sent
        if tail.sent == tail.size:
            self._items.popleft()
            self.regions -= 1
        return sent

    def _read_ahead(self, tail: _RegionTail) -> None:
        """Put the next part of a region before it, in memory."""
        part = tail.region.read(tail.sent, min(_READ_BYTES, tail.size - tail.sent))
        if not part:
            raise tail.cut_short()
        tail.sent += len(part)
        self.region_bytes -= len(part)
        if tail.sent >= tail.size:
            self._items[0] = part
            self.regions -= 1
        else:
            self._items.appendleft(part)


def _read_whole(region: Region, size: int) -> bytes:
    content = region.read(0, size)
    if len(content) != size:
        raise TransportError(f"a file region of {size} bytes ended after {len(content)}: its file was truncated")
    return content
