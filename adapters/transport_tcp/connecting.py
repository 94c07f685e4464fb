"""Connecting to another process: resolve the name, then try its addresses one after the other."""

import errno
import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

from ...ports.scheduler import Outcome
from ...ports.transport import (
    Address,
    AuthenticationError,
    ClosedUnanswered,
    Connection,
    ConnectionHandler,
    Limits,
    TransportError,
)
from .connection import Shared, TcpConnection, address_text
from .handshake import EncryptedSocket, Handshake, Tls
from .polling import WRITE
from .reporting import one_line
from .timers import HeapTimer

Opened = Callable[[Connection | TransportError], ConnectionHandler | None]
_AddressInfo = tuple[Any, ...]  # what getaddrinfo returns: family, type, protocol, name, socket address

_UNDER_WAY = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR}


class Connecting:
    """One attempt; calls `opened` exactly once, on a later turn, with a connection or an error.

    Each address gets an equal share of the time, so that one that does not answer leaves time for the next ones.
    """

    def __init__(
        self,
        shared: Shared,
        address: Address,
        opened: Opened,
        timeout_ms: float,
        limits: Limits,
        tls: Tls | None = None,
    ) -> None:
        self._shared = shared
        self._reactor = shared.reactor
        self._address = address
        self._opened: Opened | None = opened
        self._limits = limits
        self._tls = tls
        self._handshake: Handshake | None = None
        self._sock: socket.socket | None = None
        self._targets: list[_AddressInfo] = []
        self._failure = "no address found"
        self._until = monotonic() + timeout_ms / 1000.0
        self._patience: HeapTimer | None = None
        self._timer = self._reactor.call_later(timeout_ms, lambda: self.fail(f"no answer within {timeout_ms:.0f} ms"))
        shared.attempts.add(self)
        host, port = address
        numeric = _resolve(host, port, socket.AI_NUMERICHOST)
        if numeric is not None:
            self._targets = numeric
            self._reactor.call_soon(self._try_next)
        else:
            self._reactor.offload(lambda: look_up(host, port), self._resolved)

    def fail(self, reason: str) -> None:
        """Give up; harmless when it is over."""
        self._drop_socket()
        if self._handshake is not None:
            self._handshake.fail(reason)
        self._report_result(TransportError(f"cannot connect to {address_text(self._address)}: {reason}"))

    def _resolved(self, outcome: Outcome[list[_AddressInfo]]) -> None:
        if outcome.error is not None:
            reason = getattr(outcome.error, "strerror", None) or str(outcome.error)
            self.fail(f"the name cannot be resolved ({reason})")
        else:
            self._targets = list(outcome.value or [])
            self._try_next()

    def _try_next(self) -> None:
        while self._opened is not None:
            if not self._targets:
                self.fail(self._failure)
                return
            family, kind, protocol, _, target = self._targets.pop(0)
            try:
                self._sock = socket.socket(family, kind, protocol)
                self._sock.setblocking(False)
                code = self._sock.connect_ex(target)
            except (OSError, OverflowError) as error:
                self._failure = str(error)
                self._drop_socket()
                continue
            if code in _UNDER_WAY:
                self._reactor.watch(self._sock, WRITE, self._on_ready)
                if self._targets:
                    share_ms = (self._until - monotonic()) * 1000.0 / (len(self._targets) + 1)
                    self._patience = self._reactor.call_later(share_ms, self._out_of_patience)
                return
            if self._check(code):
                return

    def _on_ready(self, _events: int) -> None:
        if self._sock is not None and not self._check(self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            self._try_next()

    def _out_of_patience(self) -> None:
        self._failure = os.strerror(errno.ETIMEDOUT)
        self._drop_socket()
        self._try_next()

    def _check(self, code: int) -> bool:
        """Return True if the connection is established; otherwise this address has failed."""
        sock = self._sock
        if sock is None:
            return False
        if not code:
            try:
                peer = sock.getpeername()
                if peer != sock.getsockname():
                    self._reactor.watch(sock, 0, self._on_ready)
                    self._sock = None
                    self._end_patience()
                    self._connected(sock, (peer[0], peer[1]))
                    return True
                code = errno.ECONNREFUSED  # a loopback socket can connect to itself when no process listens
            except OSError as error:
                code = error.errno or errno.ENOTCONN
        self._failure = os.strerror(code)
        self._drop_socket()
        return False

    def _connected(self, sock: socket.socket, peer: Address) -> None:
        if self._tls is None:
            self._report_result(TcpConnection(self._shared, sock, peer, self._limits))
            return
        wrapped: EncryptedSocket = self._tls.wrap(sock, self._address[0])

        def done(problem: tuple[str, bool] | None) -> None:
            if problem is None:
                self._report_result(TcpConnection(self._shared, wrapped, peer, self._limits))
                return
            wrapped.close_failed()
            reason, is_refused = problem
            text = f"cannot connect to {address_text(self._address)}: {reason}"
            self._report_result(AuthenticationError(text) if is_refused else ClosedUnanswered(text))

        self._handshake = Handshake(self._shared.reactor, wrapped, done)
        self._handshake.step()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _drop_socket(self) -> None:
        self._end_patience()
        if self._sock is not None:
            self._reactor.watch(self._sock, 0, self._on_ready)
            self._sock.close()
            self._sock = None

    def _report_result(self, result: TcpConnection | TransportError) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            if isinstance(result, TcpConnection):
                result.abort(None)
            return
        self._timer.cancel()
        self._shared.attempts.discard(self)
        handler = None
        try:
            handler = opened(result)
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self._shared.report(f"connection to {address_text(self._address)}: {one_line(error)}")
        if isinstance(result, TcpConnection):
            if handler is None:
                result.abort(None)
            else:
                result.start(handler)


def look_up(host: str, port: int, flags: int = 0) -> list[_AddressInfo]:
    """Return the addresses of a host, as `socket.getaddrinfo`.

    An ASCII name is passed as bytes: a text loads the codec of international domain names, 0.4 MB, whatever it is.
    """
    name = host.encode() if host.isascii() else host
    return list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags))


def _resolve(host: str, port: int, flags: int) -> list[_AddressInfo] | None:
    """Return the addresses of a numeric host without a name lookup; None for a name."""
    try:
        return look_up(host, port, flags)
    except (OSError, UnicodeError):
        return None
