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
    """Return the bytes of the pieces in memory; regions are in files."""
    return sum(len(piece) for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))


class TransportError(BarnabasError):
    """The network failed: cannot listen, cannot connect, connection lost. The text names the address and the reason."""

    __module__ = "barnabas"


class ClosedUnanswered(TransportError):
    """The other side closed the connection before it answered: it may want TLS or SASL, or not speak TLS."""


class AuthenticationError(TransportError):
    """One side refused the identity of the other, Kafka's `AuthenticationException`: another attempt does not help."""

    __module__ = "barnabas"


class ConnectionAdmission(Protocol):
    """Limits the new connections of a listener, by their number, rate and address (KIP-612). Owner thread only."""

    def must_wait(self, resume: Callable[[], None]) -> bool:
        """Return True if no connection may be accepted now; `resume` is called once, when another look is due."""
        ...

    def admit(self, host: str) -> float | None:
        """Count a new connection from an address, and return None; or return after how many milliseconds the listener
        has to close it, without a byte read from it."""
        ...

    def release(self, host: str) -> None:
        """Forget an admitted connection, which has closed."""
        ...

    def on_handshake_failed(self) -> None:
        """The TLS handshake of an admitted connection has failed."""
        ...


@frozen(kw_only=True)
class Limits:
    """Bounds that the transport enforces."""

    frame_bytes_max: int = 104_857_600
    """A longer frame closes the connection before a byte of it is stored."""
    connections_max: int = 10_000
    """Further connections are accepted and closed at once, with one log line."""
    idle_ms: int = 600_000
    """A connection without traffic for this time, and without anything in flight, is closed; 0 = never."""
    held_bytes_max: int = 104_857_600
    """Reading from a connection pauses while more than this of it is in memory: unsent data without file regions, and
    the bytes that its handler holds. Two ends that both pause can wait for each other, so clients leave it high."""
    unsent_regions_max: int = 1000
    """Reading also pauses while more file regions than this wait to be sent."""
    all_held_bytes_max: int = 0
    """A bound on the memory of all connections of the transport, incomplete long frames included. Above it the
    transport does not read from connections that hold more than an equal share; 0 = no bound."""
    admission: ConnectionAdmission | None = None
    """Limits the new connections of a listener; None: only `connections_max` does. A transport without real addresses
    ignores it."""


class ServerTls(Protocol):
    """The TLS of a listener: certificate, trusted authorities, what is asked of clients. The composition makes it for
    the transport that it configures; others only hand it on."""

    def describe(self) -> str:
        """Return what a log line says of it: protocols and client authentication, no secrets."""
        ...


class ClientTls(Protocol):
    """The TLS of connections to other processes; see `ServerTls`."""

    def describe(self) -> str:
        """Return what a log line says of it, without secrets."""
        ...


class Connection(Protocol):
    """One connection. All of it belongs to the owner thread."""

    @property
    def peer(self) -> Address: ...

    @property
    def local(self) -> Address: ...

    @property
    def is_encrypted(self) -> bool:
        """True if the connection uses TLS."""
        ...

    @property
    def peer_subject(self) -> str | None:
        """The subject of the peer's verified certificate as RFC 2253 writes it; None without a certificate."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes given to `send` that are not sent yet."""
        ...

    @property
    def bytes_received(self) -> int:
        """Bytes received so far: frames with their lengths, without the overhead of TLS."""
        ...

    @property
    def bytes_sent(self) -> int:
        """Bytes sent so far; see `bytes_received`."""
        ...

    def send(self, pieces: Sequence[Piece]) -> None:
        """Queue one frame, made of the pieces one after the other; the length before it is written by the transport.

        Never blocks. Regions are sent without a copy where the technology can. The connection holds the buffers until
        they are sent: the caller must not change them. After `close` it does nothing.
        """
        ...

    def add_held_bytes(self, change: int) -> None:
        """Count bytes that the handler holds for this connection, such as pending requests; a negative number releases.

        They count like unsent bytes.
        """
        ...

    def limit_frames(self, bytes_max: int | None) -> None:
        """Close the connection at a longer frame from now on, before a byte of it is stored; None: as `Limits` say."""
        ...

    def pause(self) -> None:
        """Stop the delivery of frames until `resume`, at once. A handler so bounds the requests in flight."""
        ...

    def resume(self) -> None:
        """Undo `pause`; frames received meanwhile are delivered on a later turn."""
        ...

    def close(self, reason: str = "") -> None:
        """Close after the queued frames are sent or cannot be sent; the handler's `on_closed` follows.

        Twice is harmless.
        """
        ...


class ConnectionHandler(Protocol):
    """The callbacks of a connection.

    Frames that arrive together are delivered a few at a time, so that other connections get their turn in between.
    """

    def on_frame(self, content: memoryview) -> None:
        """Handle one whole frame, without its length.

        The memory is writable and belongs to the handler until it returns: copy what must live longer. An exception
        closes the connection with one log line.
        """
        ...

    def on_closed(self, error: TransportError | None) -> None:
        """Handle the end of the connection (None: an orderly close). Called exactly once, as the last call."""
        ...


class Listener(Protocol):
    """An open port."""

    @property
    def address(self) -> Address:
        """The address of the listener, with the real port when 0 was requested."""
        ...

    def close(self) -> None:
        """Stop accepting; open connections stay open."""
        ...


class Transport(Protocol):
    """A network, real or simulated."""

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        """Open a port (0: any free one); `accept` makes the handler of each new connection.

        With `tls`, `accept` is called after the handshake; a client that fails it costs one log line. Raises
        `TransportError` when the address cannot be used; the text says which process setting to change.
        """
        ...

    def connect(
        self,
        address: Address,
        opened: Callable[["Connection | TransportError"], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
        tls: ClientTls | None = None,
    ) -> None:
        """Connect; `opened` is called once, later, with the connection (it returns the handler) or with the error.

        With `tls`, `opened` is called after the handshake, for which the time of `timeout_ms` counts, too. The error
        is an `AuthenticationError` where one side refuses the certificate of the other.
        """
        ...
