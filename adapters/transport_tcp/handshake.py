"""The TLS handshake of a new connection, in steps as the socket becomes ready. What TLS is comes from outside."""

import socket
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ...ports.errors import Malformed
from ...ports.types import Buffer
from .polling import WRITE
from .reactor import Reactor


class EncryptedSocket(Protocol):
    """A connected, non-blocking socket with TLS on it.

    `recv_into` and `send` behave as those of a socket, with one exception: a `send` that raised `BlockingIOError` must
    be repeated with the same bytes first.
    """

    is_reading_blocked: bool
    """True if reading cannot continue until the socket is writable."""

    def fileno(self) -> int: ...

    def getsockname(self) -> tuple[Any, ...]: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    @property
    def peer_subject(self) -> str | None: ...

    @property
    def pending_bytes(self) -> int: ...

    def step_handshake(self) -> int:
        """Return the interest (READ or WRITE) that the handshake waits for; 0: it is done. Raises `OSError`."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def send(self, content: Buffer, /) -> int: ...

    def close_in_order(self) -> None: ...

    def close_failed(self) -> None:
        """Close the socket after a handshake that failed; what TLS said of it still reaches the peer."""
        ...

    def close(self) -> None: ...

    def explain(self, error: OSError) -> tuple[str, bool]:
        """Return what an error means; True if one side refused the identity of the other."""
        ...


@runtime_checkable
class Tls(Protocol):
    """Puts TLS on connected sockets; it raises `OSError` for one that is gone already."""

    def wrap(self, sock: socket.socket, host: str) -> EncryptedSocket: ...


@runtime_checkable
class ListenerTls(Tls, Protocol):
    """The TLS of a listener."""

    handshake_timeout_ms: float
    handshakes_max: int


class Handshake:
    """One handshake under way; calls `done` once: with None, or with what went wrong and whether it was an identity.

    The socket is watched until then, and stays open.
    """

    __slots__ = ("_done", "_interest", "_reactor", "_sock")

    def __init__(
        self,
        reactor: Reactor,
        sock: EncryptedSocket,
        done: Callable[[tuple[str, bool] | None], None],
    ) -> None:
        self._reactor = reactor
        self._sock = sock
        self._interest = 0
        self._done: Callable[[tuple[str, bool] | None], None] | None = done

    def step(self, _events: int = WRITE) -> None:
        """Continue as far as possible without waiting."""
        if self._done is None:
            return
        try:
            interest = self._sock.step_handshake()
            if not interest:
                self._end(None)
        except Malformed as error:
            self._end((str(error), True))
        except OSError as error:
            self._end(self._sock.explain(error))
        else:
            self._watch(interest)

    def fail(self, reason: str) -> None:
        """End the handshake; harmless when it is over."""
        if self._done is not None:
            self._end((reason, False))

    def _end(self, problem: tuple[str, bool] | None) -> None:
        done, self._done = self._done, None
        self._watch(0)
        if done is not None:
            done(problem)

    def _watch(self, interest: int) -> None:
        if interest != self._interest:
            self._interest = interest
            self._reactor.watch(self._sock, interest, self.step)
