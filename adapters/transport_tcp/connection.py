"""One TCP connection on the reactor."""

import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

from ...core.traffic.memory_budget import Account, MemoryBudget
from ...ports.errors import BarnabasError
from ...ports.transport import Address, AuthenticationError, ConnectionHandler, Limits, Piece, TransportError
from .handshake import EncryptedSocket, HandshakeWorker
from .inbound import Inbound, ReceiveBuffers
from .outbound import Outbound, PagePipe
from .polling import READ, WRITE
from .reactor import Reactor
from .reporting import one_line
from .timers import HeapTimer

# Why no frames are delivered at present; any of them also stops reading.
_PAUSED = 1  # the handler asked for it
_HELD_BYTES = 2  # too much of it is in memory, or too many regions wait
_RESUMING = 4  # what was received meanwhile is delivered on the next turn
_CLOSING = 8  # closes when what was sent has gone out
_GONE = 16
_SHORT = 32  # too much is in memory altogether, and much of it is this connection's

_SLICE_SECONDS = 0.001
"""A turn delivers one frame of a connection, and further ones until this time has passed. Many small frames are
cheaper together: their answers share a system call, their records a batch."""
_TURN_SECONDS = 0.01
"""When this much of a turn has passed, each connection gets only one frame."""
_SLICES_TOGETHER = 4
"""The answers of this many slices leave together if no other connection has work: this one delays only itself."""
_STALLED_MS = 10_000.0

_FLUSH_EARLY_BYTES = 1_048_576
"""Answers to frames received together leave together, unless they exceed this size."""
_TOGETHER_BYTES = 65_536
"""Answers of several slices leave when they exceed this size."""
_COUNT_EARLY_BYTES = 16_384
"""Less than this is not counted answer by answer, where many are made together."""
_DISCARD_BYTES = 65_536
_DISCARDS_MAX = 16

_PEER_WENT_AWAY = {
    errno.ECONNRESET,
    errno.EPIPE,
    errno.ECONNABORTED,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENOTCONN,
}


def address_text(address: Address) -> str:
    """host:port, with brackets around an IPv6 host."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Attempt(Protocol):
    """An attempt to connect; see `Connecting`."""

    def fail(self, reason: str) -> None: ...


class Shared:
    """The reactor, buffers and memory budget that all connections of one transport share."""

    def __init__(self, reactor: Reactor, report: Callable[[str], None], page_pipe: PagePipe) -> None:
        self.reactor = reactor
        self.report = report
        self.buffers = ReceiveBuffers()
        self.memory = MemoryBudget()
        self.page_pipe = page_pipe
        self.handshake_worker = HandshakeWorker(reactor)
        self.connections: set[TcpConnection] = set()
        self.attempts: set[Attempt] = set()


class TcpConnection:
    """Fulfils `Connection`. Delayed answers hold this object: its descriptor may long belong to another connection."""

    __slots__ = (
        "_account",
        "_delivering",
        "_event_turn",
        "_forget",
        "_handler",
        "_handler_bytes",
        "_held",
        "_idle_timer",
        "_inbound",
        "_interest",
        "_is_gathering",
        "_is_receiving",
        "_last_active",
        "_limits",
        "_local",
        "_outbound",
        "_reactor",
        "_shared",
        "_slices",
        "_sock",
        "_tls",
        "bytes_received",
        "bytes_sent",
        "is_encrypted",
        "peer",
        "peer_subject",
    )

    def __init__(
        self,
        shared: Shared,
        sock: socket.socket | EncryptedSocket,
        peer: Address,
        limits: Limits,
        forget: Callable[[], None] | None = None,
    ) -> None:
        """Takes over a connected, non-blocking socket, with TLS after its handshake; `forget` is called when it is
        closed."""
        self.peer = peer
        self._tls = None if isinstance(sock, socket.socket) else sock
        self.is_encrypted = self._tls is not None
        self.peer_subject = None if self._tls is None else self._tls.peer_subject
        self.bytes_received = 0
        self.bytes_sent = 0
        self._shared = shared
        self._reactor = shared.reactor
        self._sock = sock
        self._limits = limits
        self._forget = forget
        self._handler: ConnectionHandler | None = None
        self._inbound = Inbound(shared.buffers, limits.frame_bytes_max)
        self._outbound = (
            Outbound(shared.page_pipe) if self._tls is None else Outbound(may_sendfile=False, may_gather=False)
        )
        self._handler_bytes = 0
        self._account = Account(shared.memory, limits.all_held_bytes_max, self._memory_is_free)
        self._held = 0
        self._interest = 0
        self._delivering = False
        self._is_gathering = False
        self._is_receiving = False
        self._event_turn = -1.0
        self._slices = 0
        """The number of slices whose answers wait for those of the next slice."""
        self._local: Address | None = None
        self._idle_timer: HeapTimer | None = None
        self._last_active = self._reactor.turn_time
        with suppress(OSError):  # fails when the peer is gone already; the first read shows that
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shared.connections.add(self)

    def start(self, handler: ConnectionHandler) -> None:
        """Deliver to `handler` from now on."""
        self._handler = handler
        if not self._held & _GONE:
            if not self._held:
                self._set_interest(self._interest | READ)
                if self._tls is not None:
                    self._receive_pending_later(self._tls)
            if self._limits.idle_ms:
                self._idle_timer = self._reactor.call_later(self._limits.idle_ms, self._check_idle)

    # --- Connection

    @property
    def local(self) -> Address:
        """The address of this end."""
        if self._local is None:
            self._local = ("", 0) if self._held & _GONE else self._sock.getsockname()[:2]
        return self._local

    @property
    def unsent_bytes(self) -> int:
        """Bytes given to `send` that have not gone out yet."""
        return self._outbound.unsent_bytes

    def send(self, pieces: Sequence[Piece]) -> None:
        """Queue one frame. It goes out now, or with other answers: those to the frames that came with this one, or
        those that come up in the same timers and callbacks."""
        if self._held & (_CLOSING | _GONE):
            return
        try:
            unsent = self._outbound.add(pieces)
        except BarnabasError as error:
            self._fail(error)
            return
        if unsent <= _COUNT_EARLY_BYTES and (self._delivering or self._is_gathering):
            return  # it is sent, or else counted, when these frames, or this turn, are done
        if self._must_flush(unsent):
            self._flush()
        elif unsent > _COUNT_EARLY_BYTES or not (self._delivering or self._is_gathering):
            self._count_memory()

    def _must_flush(self, unsent: int) -> bool:
        """Return False when something else will."""
        if self._interest & WRITE:
            return False
        if unsent > _FLUSH_EARLY_BYTES:
            return True
        if self._delivering or self._is_gathering:
            return False
        self._is_gathering = self._reactor.at_turn_end(self._flush_gathered)
        return not self._is_gathering

    def _flush_gathered(self) -> None:
        self._is_gathering = False
        if self._outbound.unsent_bytes and not self._held & _GONE and not self._interest & WRITE:
            self._flush()

    def add_held_bytes(self, change: int) -> None:
        """Count `change` bytes more, or fewer, as held by the handler."""
        self._handler_bytes += change
        if not self._held & _GONE:
            self._count_memory()

    def limit_frames(self, bytes_max: int | None) -> None:
        """Bound the frames from now on; None: by the limits of the connection."""
        self._inbound.frame_bytes_max = self._limits.frame_bytes_max if bytes_max is None else bytes_max

    def pause(self) -> None:
        """Deliver no frames until `resume`."""
        self._held |= _PAUSED  # reading ends when the next bytes come: most pauses are over before

    def resume(self) -> None:
        """Undo `pause`."""
        self._release(_PAUSED)

    def close(self, reason: str = "") -> None:
        """Close once what was sent has gone out; a `reason` is reported."""
        if self._held & (_CLOSING | _GONE):
            return
        if reason:
            self._shared.report(f"closing the connection to {address_text(self.peer)}: {reason}")
        self._held |= _CLOSING
        if not self._delivering:
            self._flush()

    def abort(self, error: TransportError | None) -> None:
        """Close at once; what has not gone out is dropped."""
        if self._held & _GONE:
            return
        self._held |= _GONE
        self._set_interest(0)
        self._sock.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._outbound.clear()
        self._account.close()
        if not self._delivering:
            self._inbound.clear()
        self._shared.connections.discard(self)
        if not self._shared.connections:
            self._shared.page_pipe.close()
        if self._forget is not None:
            self._forget()
        self._reactor.call_soon(lambda: self._notify_closed(error))

    def _notify_closed(self, error: TransportError | None) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_closed(error)

    # --- events

    def on_ready(self, events: int) -> None:
        """The reactor found the socket readable or writable."""
        self._event_turn = self._reactor.turn_time
        if events & READ:
            if not self._held:
                self._receive()
            elif self._held != _RESUMING:  # that is over within this turn
                self._set_interest(self._interest & ~READ)
        if events & WRITE and not self._held & _GONE:
            self._flush()

    def _receive(self) -> None:
        inbound = self._inbound
        try:
            got = inbound.receive(self._sock)
        except (BlockingIOError, InterruptedError):
            if self._tls is not None and self._tls.is_reading_blocked:
                self._set_interest(WRITE)
            return
        except OSError as error:
            self._lost(error)
            return
        if not got:
            cut = inbound.pending_bytes
            self.abort(self._error("the peer closed it in the middle of a frame") if cut else None)
            return
        self._last_active = self._reactor.turn_time
        self.bytes_received += got
        frame, inbound.whole = inbound.whole, None
        if frame is not None and self._handler is not None:
            self._deliver_one(self._handler, frame)
        else:
            self._deliver()
        if self._tls is not None:
            self._receive_pending_later(self._tls)

    def _deliver_one(self, handler: ConnectionHandler, frame: memoryview) -> None:
        """Do what `_deliver` does with a frame after which nothing else has come."""
        self._delivering = True
        try:
            handler.on_frame(frame)
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self._fail(error)
        finally:
            self._delivering = False
        if self._held & _GONE:
            return
        unsent = self._outbound.unsent_bytes
        if not self._interest & WRITE and (unsent or self._held & _CLOSING):
            self._flush()
        elif unsent or self._handler_bytes or self._account.held or self._held:
            self._count_memory()

    def _receive_pending_later(self, tls: EncryptedSocket) -> None:
        """Receive what TLS has decrypted and the shared buffer had no place for: no event reports it."""
        if not self._held & _GONE and tls.pending_bytes and not self._is_receiving:
            self._is_receiving = True
            self._reactor.call_soon(self._receive_pending)

    def _receive_pending(self) -> None:
        self._is_receiving = False
        if not self._held:
            self._receive()

    def _deliver(self, *, resumed: bool = False) -> None:
        """Hand out a turn's share of the frames that are whole, then send the answers to them together."""
        handler, inbound = self._handler, self._inbound
        if handler is None:
            return
        self._delivering = True
        began = 0.0
        try:
            while not self._held:
                content = inbound.next_frame()
                if content is None:
                    break
                if inbound.is_empty:
                    handler.on_frame(content)
                    break
                began = began or monotonic()
                handler.on_frame(content)
                if not inbound.pending_bytes:
                    break
                now = monotonic()
                if now - began >= _SLICE_SECONDS or now - self._reactor.turn_time >= _TURN_SECONDS:
                    self._resume_later()
        except Exception as error:  # noqa: BLE001  # reported; it costs this connection only
            self._fail(error)
        finally:
            self._delivering = False
            if self._held & _GONE:
                inbound.clear()
            elif not inbound.is_empty:
                inbound.save_unread()
        if self._held & _GONE:
            return
        if not self._interest & WRITE and (self._outbound.unsent_bytes or self._held & _CLOSING):
            if self._held == _RESUMING and self._may_deliver_next_slice(resumed=resumed):
                self._slices += 1
                self._count_memory()
            else:
                self._flush()
        elif (
            self._outbound.unsent_bytes
            or self._handler_bytes
            or self._account.held
            or self._held
            or not inbound.is_empty
        ):
            self._count_memory()

    def _may_deliver_next_slice(self, *, resumed: bool) -> bool:
        """Return True if the next slice may follow before the answers of this one leave: no other connection had a
        turn."""
        if self._slices + 1 >= _SLICES_TOGETHER or self._outbound.unsent_bytes > _TOGETHER_BYTES:
            return False
        own = resumed + (self._event_turn == self._reactor.turn_time)
        return self._reactor.load <= own

    def _flush(self) -> None:
        self._slices = 0
        before = self._outbound.unsent_bytes
        try:
            done = self._outbound.flush(self._sock)
        except OSError as error:
            self._lost(self._received_reason(error))
            return
        except BarnabasError as error:
            self._fail(error)
            return
        sent = before - self._outbound.unsent_bytes
        if sent:
            self.bytes_sent += sent
            self._last_active = self._reactor.turn_time
        if done and self._held & _CLOSING:
            self._close_in_order()
            return
        interest = self._interest & ~WRITE if done else self._interest | WRITE
        if self._tls is not None and self._tls.is_reading_blocked:
            self._tls.is_reading_blocked = False
            interest |= READ
        if interest != self._interest:
            self._set_interest(interest)
        if not done or self._handler_bytes or self._account.held or self._held or not self._inbound.is_empty:
            self._count_memory()

    def _count_memory(self) -> None:
        """Hold frames back while too much is in memory."""
        outbound, limits, account = self._outbound, self._limits, self._account
        held = outbound.unsent_bytes - outbound.region_bytes + self._handler_bytes
        if held > limits.held_bytes_max or outbound.regions > limits.unsent_regions_max:
            self._held |= _HELD_BYTES
        elif self._held & _HELD_BYTES:
            self._release(_HELD_BYTES)
        if not account.bytes_max:
            return
        long_frame = self._inbound.long_frame_bytes
        held += long_frame
        if held != account.held:
            account.set_held(held)
        elif not held:
            return  # it held nothing before: no connection waits for its memory
        led = account.has_priority
        if (account.held or led) and not self._held & _SHORT:
            if account.must_wait(in_a_request=long_frame > 0):
                self._held |= _SHORT
            elif account.has_priority and not led:
                self._watch_for_stall(self._inbound.pending_bytes)

    def _memory_is_free(self) -> None:
        self._release(_SHORT)
        if self._account.has_priority:
            self._watch_for_stall(self._inbound.pending_bytes)

    def _watch_for_stall(self, pending_bytes: int) -> None:
        """Check that bytes of this connection's request keep arriving: others wait for memory until it is complete."""

        def check() -> None:
            if self._held & _GONE or not self._account.has_priority:
                return
            if self._inbound.pending_bytes == pending_bytes:
                late = f"no further bytes within {_STALLED_MS:.0f} ms, while memory is short"
                self._fail(TransportError(f"{pending_bytes} bytes of a request, and {late}"))
            else:
                self._watch_for_stall(self._inbound.pending_bytes)

        self._reactor.call_later(_STALLED_MS, check)

    def _release(self, why: int) -> None:
        """One reason less to hold frames back."""
        if not self._held & why:
            return
        self._held &= ~why
        if not self._held and not self._delivering:
            self._resume_later()

    def _resume_later(self) -> None:
        if not self._held & _RESUMING:
            self._held |= _RESUMING
            self._reactor.call_soon(self._resume)

    def _resume(self) -> None:
        self._held &= ~_RESUMING
        if not self._held:
            self._deliver(resumed=True)
        elif self._slices and not self._held & _GONE and not self._interest & WRITE:
            self._flush()
        if not self._held:
            self._set_interest(self._interest | READ)
            if self._tls is not None:
                self._receive_pending_later(self._tls)

    def _check_idle(self) -> None:
        idle_seconds = self._limits.idle_ms / 1000.0
        quiet = self._reactor.turn_time - self._last_active
        if self._held & _PAUSED and not self._held & _CLOSING:
            quiet = 0.0  # the handler has requests in flight
        if quiet < idle_seconds:
            self._idle_timer = self._reactor.call_later((idle_seconds - quiet) * 1000.0, self._check_idle)
        elif self._outbound.unsent_bytes:
            self.abort(self._error(f"the peer took nothing for {quiet:.0f} s"))
        else:
            self.abort(None)

    # --- ends

    def _close_in_order(self) -> None:
        # Closing with unread bytes makes the system send a reset, which can take the last answer from the peer.
        discard = memoryview(bytearray(_DISCARD_BYTES))  # not the shared buffer: a handler may be reading from it now
        with suppress(OSError):
            if self._tls is not None:
                self._tls.close_in_order()
            elif isinstance(self._sock, socket.socket):
                self._sock.shutdown(socket.SHUT_WR)
            for _ in range(_DISCARDS_MAX):
                if not self._sock.recv_into(discard):
                    break
        self.abort(None)

    def _received_reason(self, error: OSError) -> OSError:
        """Return why the peer closed a connection with TLS that can no longer be written to, if it sent the reason."""
        if self._tls is not None:
            try:
                while self._tls.recv_into(memoryview(bytearray(_DISCARD_BYTES))):
                    pass
            except BlockingIOError:
                pass
            except OSError as reason:
                return reason
        return error

    def _lost(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if self._tls is not None and error.errno not in _PEER_WENT_AWAY:
            reason, is_refused = self._tls.explain(error)
            if is_refused:  # in TLS 1.3 a client learns this after its part of the handshake
                self._shared.report(f"connection to {address_text(self.peer)}: {reason}")
                self.abort(AuthenticationError(f"connection to {address_text(self.peer)} lost: {reason}"))
                return
        if error.errno not in _PEER_WENT_AWAY:
            self._shared.report(f"connection to {address_text(self.peer)}: {reason}")
        self.abort(self._error(reason))

    def _fail(self, error: Exception) -> None:
        """Something that the peer or the handler did wrong: one line, and the connection is gone."""
        text = str(error) if isinstance(error, TransportError) else one_line(error)
        self._shared.report(f"closing the connection to {address_text(self.peer)}: {text}")
        self.abort(self._error(text))

    def _error(self, text: str) -> TransportError:
        return TransportError(f"connection to {address_text(self.peer)} lost: {text}")

    def _set_interest(self, interest: int) -> None:
        if interest != self._interest:
            self._interest = interest
            self._reactor.watch(self._sock, interest, self.on_ready)
