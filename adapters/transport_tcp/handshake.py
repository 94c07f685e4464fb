"""The TLS handshake of a new connection, in steps as the socket becomes ready. What TLS is comes from outside."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ...ports.errors import ClosedError, Malformed
from ...ports.scheduler import Outcome
from ...ports.transport import TransportError
from ...ports.types import Buffer
from .polling import WRITE
from .reactor import Reactor

if TYPE_CHECKING:  # loaded with the first handshake
    from concurrent.futures import Executor


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
    def is_handshake_done(self) -> bool: ...

    @property
    def pending_bytes(self) -> int: ...

    def exchange_handshake(self) -> int:
        """Send and receive what the handshake needs. Returns the interest (READ or WRITE) that it waits for; 0:
        `compute_handshake` comes next, or the handshake is done. Raises `OSError`."""
        ...

    def start_computing(self) -> None: ...

    def compute_handshake(self) -> None:
        """Compute the next step. Any thread, between `start_computing` and `end_computing`. Raises `OSError` and
        `Malformed`."""
        ...

    def end_computing(self) -> None: ...

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
class BoundedTls(Tls, Protocol):
    """The TLS of a listener."""

    handshake_timeout_ms: float
    handshakes_max: int


class HandshakeWorker:
    """Computes handshakes on a thread of its own, one after the other, so that they do not hold up the reactor: a
    signature with a key of RSA 4096 takes 6 ms."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._executor: Executor | None = None
        reactor.at_stop(self.close)

    def compute(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` on the thread, then `done` on the reactor, with what it raised."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(1, thread_name_prefix="barnabas-handshake")

        def run() -> None:
            error = Outcome.of(work).error
            with suppress(ClosedError):
                self._reactor.call_soon(lambda: done(error))

        try:
            self._executor.submit(run)
        except RuntimeError:  # it, or the interpreter, ends
            done(TransportError("the transport was closed"))

    def close(self) -> None:
        """End the thread after its present step."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


class Handshake:
    """One handshake under way; calls `done` once: with None, or with what went wrong and whether it was an identity.

    The socket is watched until then, and stays open.
    """

    __slots__ = ("_done", "_interest", "_is_computing", "_reactor", "_sock", "_worker")

    def __init__(
        self,
        reactor: Reactor,
        sock: EncryptedSocket,
        done: Callable[[tuple[str, bool] | None], None],
        worker: HandshakeWorker | None = None,
    ) -> None:
        """Create it. `worker` computes the steps; None: the reactor does, for a client, which has few of them."""
        self._reactor = reactor
        self._sock = sock
        self._interest = 0
        self._is_computing = False
        self._worker = worker
        self._done: Callable[[tuple[str, bool] | None], None] | None = done

    def step(self, _events: int = WRITE) -> None:
        """Continue as far as possible without waiting."""
        if self._done is None:
            return
        if self._is_computing:
            self._watch(0)  # more has come already; it is received after this step
            return
        sock = self._sock
        try:
            while True:
                interest = sock.exchange_handshake()
                if interest:
                    self._watch(interest)
                    return
                if sock.is_handshake_done:
                    self._end(None)
                    return
                if self._worker is not None:
                    self._is_computing = True
                    sock.start_computing()
                    self._worker.compute(sock.compute_handshake, self._computed)
                    return
                sock.compute_handshake()
        except Malformed as error:
            self._end((str(error), True))
        except OSError as error:
            self._end(sock.explain(error))

    def _computed(self, error: BaseException | None) -> None:
        self._is_computing = False
        self._sock.end_computing()
        if self._done is None:
            return
        if error is None:
            self.step()
        elif isinstance(error, OSError):
            self._end(self._sock.explain(error))
        else:
            self._end((str(error), isinstance(error, Malformed)))

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
