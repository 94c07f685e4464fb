"""An open port."""

import errno
import socket
from collections.abc import Callable
from functools import partial

from ...core.traffic.log_line_limit import LogLineLimit
from ...ports.transport import Address, Connection, ConnectionAdmission, ConnectionHandler, Limits, TransportError
from .connecting import look_up
from .connection import Shared, TcpConnection, address_text
from .handshake import BoundedTls, EncryptedSocket, Handshake
from .polling import READ, WhenReady
from .reporting import one_line

_BACKLOG = 1024
_ACCEPTS_PER_TURN = 64
_BACK_OFF_MS = 500.0
_HANDSHAKE_LINES = 10
"""Failed handshakes of one period that are reported one by one."""
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Accept = Callable[[Connection], ConnectionHandler]


class TcpListener:
    """Fulfils `Listener`."""

    def __init__(
        self, shared: Shared, address: Address, accept: Accept, limits: Limits, tls: BoundedTls | None = None
    ) -> None:
        self._shared = shared
        self._accept = accept
        self._limits = limits
        self._open_connections = 0
        self._refused = LogLineLimit(shared.reactor, shared.report, self._refused_more)
        self._tls = tls
        self._handshakes: dict[Handshake, None] = {}
        """The handshakes under way, the oldest first."""
        self._failed = LogLineLimit(shared.reactor, shared.report, self._failed_more, lines=_HANDSHAKE_LINES)
        self._out_of_resources = False
        self._closed = False
        self._admission = limits.admission
        self._throttled: set[socket.socket] = set()
        """The refused connections that are closed after a delay."""
        self._waiting = LogLineLimit(shared.reactor, shared.report, self._waited_more)
        own = open_port(address)
        bound = own.getsockname()
        self.address: Address = (bound[0], bound[1])
        """The address of the listener, with the real port."""
        self._ports: dict[socket.socket, WhenReady] = {}
        self.accept_at(own)

    def accept_at(self, port: socket.socket) -> None:
        """Accept connections at one more open port; it is closed with the listener."""
        if self._closed:
            port.close()
            return
        port.setblocking(False)
        self._ports[port] = partial(self._on_ready, port)
        self._watch(READ)

    def close(self) -> None:
        """Stop accepting connections; a second call has no effect."""
        if not self._closed:
            self._closed = True
            self._refused.close()
            self._failed.close()
            for handshake in tuple(self._handshakes):
                handshake.fail("the listener was closed")
            self._watch(0)
            for port in self._ports:
                port.close()
            self._waiting.close()
            for sock in self._throttled:
                sock.close()
            self._throttled.clear()

    def _watch(self, events: int) -> None:
        for port, on_ready in self._ports.items():
            self._shared.reactor.watch(port, events, on_ready)

    def _on_ready(self, port: socket.socket, _events: int) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._closed:
                return
            if self._admission is not None and self._admission.must_wait(self._accept_again):
                self._waiting.report_line(
                    f"listener {address_text(self.address)}: new connections wait, since max.connections or "
                    "max.connection.creation.rate is reached; raise it if they are wanted"
                )
                self._watch(0)
                return
            try:
                sock, peer = port.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            self._out_of_resources = False
            self._accept_connection(sock, (peer[0], peer[1]))

    def _accept_connection(self, sock: socket.socket, peer: Address) -> None:
        sock.setblocking(False)
        if self._open_connections >= self._limits.connections_max:
            self._refused.report_line(
                f"listener {address_text(self.address)}: refusing {address_text(peer)} and all that follow while "
                f"{self._limits.connections_max} connections are open; raise max.connections if they are wanted"
            )
            sock.close()
            return
        forget = self._forget_one
        if self._admission is not None:
            delay_ms = self._admission.admit(peer[0])
            if delay_ms is not None:
                self._close_later(sock, delay_ms)
                return
            forget = partial(self._release, self._admission, peer[0])
        self._open_connections += 1
        if self._tls is None:
            self._serve(sock, peer, forget)
        else:
            self._begin_handshake(self._tls, sock, peer, forget)

    def _begin_handshake(self, tls: BoundedTls, sock: socket.socket, peer: Address, forget: Callable[[], None]) -> None:
        try:
            wrapped = tls.wrap(sock, "")
        except OSError:  # the peer is gone already
            sock.close()
            forget()
            return

        def done(problem: tuple[str, bool] | None) -> None:
            timer.cancel()
            del self._handshakes[handshake]
            if problem is None:
                self._serve(wrapped, peer, forget)
                return
            wrapped.close_failed()
            forget()
            if self._admission is not None:
                self._admission.on_handshake_failed()
            if not self._closed:
                where = f"listener {address_text(self.address)}"
                self._failed.report_line(f"{where}: no TLS handshake with {address_text(peer)}: {problem[0]}")

        timeout_ms = tls.handshake_timeout_ms
        handshake = Handshake(self._shared.reactor, wrapped, done, self._shared.handshake_worker)
        timer = self._shared.reactor.call_later(
            timeout_ms, lambda: handshake.fail(f"it was not complete within {timeout_ms:.0f} ms")
        )
        self._handshakes[handshake] = None
        if len(self._handshakes) > tls.handshakes_max:
            next(iter(self._handshakes)).fail(f"more than {tls.handshakes_max} handshakes were in progress")
        handshake.step()

    def _failed_more(self, count: int) -> str:
        return f"listener {address_text(self.address)}: {count} more TLS handshakes failed"

    def _serve(self, sock: socket.socket | EncryptedSocket, peer: Address, forget: Callable[[], None]) -> None:
        connection = TcpConnection(self._shared, sock, peer, self._limits, forget)
        try:
            handler = self._accept(connection)
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self._shared.report(f"cannot serve {address_text(peer)}: {one_line(error)}")
            connection.abort(None)
        else:
            connection.start(handler)

    def _refused_more(self, count: int) -> str:
        where, limit = address_text(self.address), self._limits.connections_max
        return f"listener {where}: {count} more connections were refused, since {limit} are open"

    def _waited_more(self, count: int) -> str:
        return f"listener {address_text(self.address)}: new connections had to wait {count} more times"

    def _forget_one(self) -> None:
        self._open_connections -= 1

    def _release(self, admission: ConnectionAdmission, host: str) -> None:
        self._open_connections -= 1
        admission.release(host)

    def _close_later(self, sock: socket.socket, delay_ms: float) -> None:
        """Close a refused connection after the delay, for which its client waits with the next attempt."""
        self._throttled.add(sock)

        def close() -> None:
            self._throttled.discard(sock)
            sock.close()

        if delay_ms > 0:
            self._shared.reactor.call_later(delay_ms, close)
        else:
            close()

    def _cannot_accept(self, error: OSError) -> None:
        """Wait a little: the connection stays in the backlog, so that the socket remains readable."""
        if not self._out_of_resources:
            self._out_of_resources = True
            hint = "; raise the limit of open files (ulimit -n)" if error.errno in _OUT_OF_RESOURCES else ""
            self._shared.report(f"listener {address_text(self.address)} cannot accept: {error.strerror}{hint}")
        self._watch(0)
        self._shared.reactor.call_later(_BACK_OFF_MS, self._accept_again)

    def _accept_again(self) -> None:
        if not self._closed:
            self._watch(READ)


def open_port(address: Address) -> socket.socket:
    """Listen at an address. Raises `TransportError`; the text says what to change."""
    host, port = address
    where = address_text(address)
    try:
        found = look_up(host or "0.0.0.0", port, socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise TransportError(f"cannot listen on {where}: {error}; check the host and port in `listeners`") from error
    family, kind, protocol, _, target = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(target)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except (OSError, OverflowError) as error:
        sock.close()
        code = error.errno if isinstance(error, OSError) else None
        raise TransportError(f"cannot listen on {where}: {_advice(code, error)}") from error
    return sock


def _advice(code: int | None, error: Exception) -> str:
    if code == errno.EADDRINUSE:
        return "the port is in use; stop the process that has it, or change `listeners` (port 0 takes any free one)"
    if code == errno.EACCES:
        return "not permitted; use a port above 1023 in `listeners`, or give the process the right to this one"
    if code == errno.EADDRNOTAVAIL:
        return "this machine does not have the address; change the host in `listeners` (0.0.0.0 means all addresses)"
    if code in _OUT_OF_RESOURCES:
        return f"{error}; raise the limit of open files of the process (ulimit -n)"
    return f"{error}; change `listeners`"
