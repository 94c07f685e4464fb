"""Connections that carry frames: a 4-byte big-endian length, then that many bytes (the framing of both generations).

Everything here happens on the scheduler's owner thread: methods are called there and call back there.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from .errors import BarnabasError
from .storage import Region
from .types import Buffer
from .values import frozen

Address = tuple[str, int]
Piece = Buffer | Region


def memory_bytes(pieces: Sequence[Piece]) -> int:
    """Bytes of those pieces that are in memory; regions are in files."""
    return sum(len(piece) for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))


class TransportError(BarnabasError):
    """The network failed: cannot listen, cannot connect, connection lost. The text names the address and the reason."""


@frozen(kw_only=True)
class Limits:
    """Bounds that the transport enforces by itself."""

    frame_bytes_max: int = 104_857_600
    """A frame that says it is longer closes the connection before a byte of it is stored."""
    connections_max: int = 10_000
    """Further connections are accepted and closed at once, with one log line."""
    idle_ms: int = 600_000
    """A connection on which nothing was read or written for so long, and nothing is in flight, is closed; 0 = never."""
    held_bytes_max: int = 104_857_600
    """Reading from a connection pauses while more than this of it is in memory: what waits to be sent to it, without
    the regions of files, and what its handler keeps. Two ends that both pause can wait for each other: an end that
    asks leaves it high."""
    unsent_regions_max: int = 1000
    """The same for the number of file regions that wait to be sent."""
    all_held_bytes_max: int = 0
    """A bound on what all connections of the transport have in memory, long frames that have come in part included.
    Above it nothing is read from those that hold more than an equal share; 0 = no bound."""


class Connection(Protocol):
    """One connection. All of it belongs to the owner thread."""

    @property
    def peer(self) -> Address: ...

    @property
    def local(self) -> Address: ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes given to `send` that have not gone out yet."""
        ...

    def send(self, pieces: Sequence[Piece]) -> None:
        """Queue one frame, made of the pieces one after the other; the length before it is written by the transport.

        Never blocks. Regions go out without being copied where the technology can. The buffers are kept until sent: the
        caller does not change them. After `close` it does nothing.
        """
        ...

    def add_held_bytes(self, change: int) -> None:
        """The handler keeps so many bytes more for this connection than before, or less (a negative number): requests
        that wait for their answers, answers that wait for their turn. They count as what waits to be sent does."""
        ...

    def pause(self) -> None:
        """Deliver no more frames until `resume`: how a handler bounds what is in flight. Takes effect at once."""
        ...

    def resume(self) -> None:
        """Undo `pause`; frames that were received meanwhile are delivered on a later turn."""
        ...

    def close(self, reason: str = "") -> None:
        """Close after what was sent so far has gone out or cannot go out; `on_closed` of the handler follows.

        Twice is harmless.
        """
        ...


class ConnectionHandler(Protocol):
    """What the user of a connection provides.

    Frames of one connection that have come together are delivered a few at a time, so that others get their turn
    between them.
    """

    def on_frame(self, content: memoryview) -> None:
        """One whole frame, without its length. The memory is writable and is the handler's until it returns: what must
        live longer is copied. An exception closes the connection with one log line."""
        ...

    def on_closed(self, error: TransportError | None) -> None:
        """The connection is gone (None: closed by either side in order). Called exactly once; nothing follows it."""
        ...


class Listener(Protocol):
    """An open port."""

    @property
    def address(self) -> Address:
        """Where it listens, with the real port when 0 was asked for."""
        ...

    def close(self) -> None:
        """Accept no more; connections already made go on."""
        ...


class Transport(Protocol):
    """A way to reach other processes (or pretend to)."""

    def listen(self, address: Address, accept: Callable[[Connection], ConnectionHandler], limits: Limits) -> Listener:
        """Open a port (0: any free one); `accept` makes the handler of each new connection.

        Raises `TransportError` when the address cannot be used; the text says which process setting to change.
        """
        ...

    def connect(
        self,
        address: Address,
        opened: Callable[["Connection | TransportError"], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
    ) -> None:
        """Connect; `opened` is called once, later, with the connection (it returns the handler) or with the error."""
        ...
