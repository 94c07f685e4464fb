"""TCP on the reactor."""

import socket
from collections.abc import Callable, Mapping

from ...ports.errors import ClosedError
from ...ports.transport import (
    Address,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    ServerTls,
)
from .connecting import Connecting, Opened
from .connection import Shared
from .handshake import BoundedTls, Tls
from .listener import TcpListener
from .outbound import PagePipe
from .reactor import Reactor
from .reporting import to_the_log


class TcpTransport:
    """Fulfils `Transport`. `report` gets one line for each thing that went wrong on a connection or listener.

    `inherited`: by the address of a listener, an open port that other processes share; see `accept_inherited`.
    """

    def __init__(
        self,
        reactor: Reactor,
        report: Callable[[str], None] = to_the_log,
        inherited: Mapping[Address, socket.socket] | None = None,
    ) -> None:
        self._inherited = inherited or {}
        self._shared = Shared(reactor, report, PagePipe())
        self._listeners: list[TcpListener] = []
        self._closed = False
        reactor.at_stop(self.close)

    @property
    def open_connections(self) -> int:
        """Connections of both directions that are open now."""
        return len(self._shared.connections)

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        """Open a port (0: any free one). Raises `TransportError`; the text says what to change."""
        if self._closed:
            raise ClosedError("the transport is closed")
        if not (tls is None or isinstance(tls, BoundedTls)):
            raise TypeError(f"{type(tls).__name__} puts no TLS on sockets")
        listener = TcpListener(self._shared, address, accept, limits, tls)
        self._listeners.append(listener)
        return listener

    def accept_inherited(self) -> None:
        """Let the listeners accept connections at the inherited ports as well, which they close with their own."""
        for listener in self._listeners:
            if listener.address in self._inherited:
                listener.accept_at(self._inherited[listener.address])

    def connect(
        self, address: Address, opened: Opened, *, timeout_ms: float, limits: Limits, tls: ClientTls | None = None
    ) -> None:
        """Connect; `opened` is called once, on a later turn, with the connection or a `TransportError`."""
        if self._closed:
            raise ClosedError("the transport is closed")
        if not (tls is None or isinstance(tls, Tls)):
            raise TypeError(f"{type(tls).__name__} puts no TLS on sockets")
        Connecting(self._shared, address, opened, timeout_ms, limits, tls)

    def close(self) -> None:
        """Close all listeners and, at once, all connections; the reactor does it when it stops."""
        self._closed = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for attempt in list(self._shared.attempts):
            attempt.fail("the transport was closed")
        for connection in list(self._shared.connections):
            connection.abort(None)
