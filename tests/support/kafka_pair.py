"""Both ends of a connection in one test: a transport without sockets, a scheduler moved by hand, a scripted broker.

The memory of a delivered frame is overwritten as soon as its handler returns, so that using it later shows.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from barnabas.adapters.wire_kafka import KafkaLink, KafkaServer, connect_kafka
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.produce import Produce
from barnabas.ports.scheduler import Outcome
from barnabas.ports.storage import Region
from barnabas.ports.transport import (
    Address,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    Piece,
    ServerTls,
    TransportError,
)
from barnabas.ports.types import Position

T = TypeVar("T")


class MemoryRegion:
    """A region of bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    @property
    def position(self) -> Position:
        return Position(0)

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        return self._content[start:] if size is None else self._content[start : start + size]


def joined(pieces: Sequence[Piece]) -> bytes:
    """Return the frame that the pieces make."""
    return b"".join(bytes(p) if isinstance(p, bytes | bytearray | memoryview) else region_bytes(p) for p in pieces)


def region_bytes(region: Region) -> bytes:
    return region.read()


def normal(value: Any) -> Any:
    """Return the value such that sequences compare by content, whatever their types."""
    if attrs.has(type(value)):
        return type(value).__name__, {
            field.name: normal(getattr(value, field.name)) for field in attrs.fields(type(value)) if field.eq
        }
    if isinstance(value, list | tuple):
        return [normal(item) for item in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return normal(region_bytes(value)) if isinstance(value, MemoryRegion) else value


class HandTimer:
    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandScheduler:
    """Time passes only by `advance`."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._timers: list[HandTimer] = []

    @property
    def waiting(self) -> int:
        """Timers that will still run."""
        return sum(not timer.cancelled for timer in self._timers)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(self.now_ms + delay_ms, callback)
        self._timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        raise AssertionError("nothing here is offloaded")

    def advance(self, delay_ms: float) -> None:
        until = self.now_ms + delay_ms
        while True:
            due = [timer for timer in self._timers if timer.due_ms <= until and not timer.cancelled]
            if not due:
                break
            timer = min(due, key=lambda timer: timer.due_ms)
            self._timers.remove(timer)
            self.now_ms = timer.due_ms
            timer.callback()
        self.now_ms = until


class PairConnection:
    """One end. What it sends waits until `PairTransport.run`."""

    def __init__(self, local: Address, peer: Address) -> None:
        self.local = local
        self.peer = peer
        self.handler: ConnectionHandler | None = None
        self.other: PairConnection | None = None
        self.inbox: deque[bytes] = deque()
        self.sent: list[bytes] = []
        self.last_pieces: Sequence[Piece] = ()
        self.paused = False
        self.is_closed = False
        self.close_reason = ""
        self.held_bytes = 0
        self.frame_bytes_max: int | None = None
        self.is_encrypted = False
        self.peer_subject: str | None = None
        self.bytes_received = self.bytes_sent = 0

    @property
    def unsent_bytes(self) -> int:
        return 0

    def add_held_bytes(self, change: int) -> None:
        self.held_bytes += change

    def send(self, pieces: Sequence[Piece]) -> None:
        if self.is_closed:
            return
        content = joined(pieces)
        self.last_pieces = pieces
        self.sent.append(content)
        if self.other is not None:
            self.other.inbox.append(content)

    def limit_frames(self, bytes_max: int | None) -> None:
        self.frame_bytes_max = bytes_max

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self, reason: str = "") -> None:
        if not self.is_closed:
            self.is_closed = True
            self.close_reason = reason

    def deliver(self, content: bytes) -> None:
        """Give a frame to the handler, in memory that is lost afterwards."""
        memory = bytearray(content)
        assert self.handler is not None
        self.handler.on_frame(memoryview(memory))
        memory[:] = b"\xee" * len(memory)

    def step(self) -> bool:
        """Deliver one frame, or the end of the connection; False if there was nothing."""
        if self.inbox and not self.paused and not self.is_closed:
            self.deliver(self.inbox.popleft())
            return True
        if self.handler is not None and (self.is_closed or (self._other_closed() and not self.inbox)):
            self.is_closed = True
            handler, self.handler = self.handler, None
            handler.on_closed(None)
            return True
        return False

    def _other_closed(self) -> bool:
        return self.other is not None and self.other.is_closed


class PairListener:
    def __init__(self, address: Address) -> None:
        self.address = address

    def close(self) -> None: ...


Rewrite = Callable[[bytes], bytes]


class PairTransport:
    """Connections between a listener and clients in the same test."""

    def __init__(self) -> None:
        self._accept: Callable[[Connection], ConnectionHandler] | None = None
        self.ends: list[PairConnection] = []
        self._later: deque[Callable[[], None]] = deque()

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        self._accept = accept
        return PairListener(address)

    def connect(
        self,
        address: Address,
        opened: Callable[[Connection | TransportError], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
        tls: ClientTls | None = None,
    ) -> None:
        def open_both() -> None:
            if self._accept is None:
                opened(TransportError(f"no listener at {address}"))
                return
            client, server = PairConnection(("client", 1), address), PairConnection(address, ("client", 1))
            client.other, server.other = server, client
            self.ends += [client, server]
            server.handler = self._accept(server)
            client.handler = opened(client)

        self._later.append(open_both)

    def run(self) -> None:
        """Run until nothing is pending."""
        while True:
            if self._later:
                self._later.popleft()()
            elif not self._step():
                return

    def _step(self) -> bool:
        moved = [end.step() for end in list(self.ends)]
        return any(moved)


class ScriptedBroker:
    """Answers from `script`, or keeps what it was asked until the test replies."""

    def __init__(self, script: Callable[[Any], Any] | None = None) -> None:
        self.script = script
        self.requests: list[Any] = []
        self.callers: list[Caller] = []
        self.replies: list[Callable[[Any], None]] = []

    def submit(self, request: Any, caller: Caller, reply: Callable[[Any], None]) -> None:
        if isinstance(request, Produce):
            copies = [attrs.evolve(p, records=memoryview(bytes(p.records))) for p in request.partitions]
            request = attrs.evolve(request, partitions=copies)
        self.requests.append(request)
        self.callers.append(caller)
        if self.script is not None:
            reply(self.script(request))
        else:
            self.replies.append(reply)


def linked(server: KafkaServer) -> tuple[PairTransport, KafkaLink]:
    """Return a transport on which `server` listens, and a client's link to it."""
    transport = PairTransport()
    transport.listen(("broker", 9092), server.accept, Limits())
    opened: list[KafkaLink | TransportError] = []
    connect_kafka(
        transport,
        HandScheduler(),
        ("broker", 9092),
        client_id="pair",
        request_timeout_ms=1000,
        connect_timeout_ms=1000,
        opened=opened.append,
    )
    transport.run()
    (link,) = opened
    assert isinstance(link, KafkaLink)
    return transport, link
