"""One end of a classic connection, whose other side is the test; and frames without the size before them."""

from collections.abc import Callable
from struct import pack
from typing import Any

from attrs import evolve
from support import classic_frames
from support.kafka_pair import HandScheduler, PairConnection, PairTransport, ScriptedBroker

from barnabas.adapters.wire_classic import ClassicLink, ClassicServer, connect_classic
from barnabas.ports.broker_api.classic import ClassicProduce, ClassicProducePartition
from barnabas.ports.broker_api.envelope import Caller, Request
from barnabas.ports.transport import Connection, ConnectionHandler, TransportError

TIMEOUT_MS = 8000


def bare(frame: bytes) -> bytes:
    """Return a whole frame without its size, which must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def fetch_answer(error: int, records: bytes = b"") -> bytes:
    return pack(">h", error) + records


def multi_answer(*blocks: tuple[int, bytes]) -> bytes:
    """Return the answer for blocks of (error code, records)."""
    return b"\0\0" + b"".join(pack(">ih", 2 + len(records), error) + records for error, records in blocks)


def offsets_answer(*offsets: int) -> bytes:
    return pack(f">hi{len(offsets)}q", 0, len(offsets), *offsets)


REQUESTS = {
    "produce": bare(classic_frames.produce("clicks", classic_frames.message_set(b"one", b"two"), 3)),
    "fetch": bare(classic_frames.fetch("test")),
    "multi_fetch": bare(classic_frames.multi_fetch([("a", 0, 5), ("Ünïcode", 1, 2**40), ("a", 2, 0)])),
    "multi_produce": bare(classic_frames.multi_produce([("a", -1, b""), ("b", 0, classic_frames.message_set(b"x"))])),
    "offsets": bare(classic_frames.offsets("test", -1, 10)),
}
"""One valid frame of each id."""


class KeepingBroker(ScriptedBroker):
    """Answers from its script, or keeps what it was asked; message sets are copied, since their memory is lost."""

    def submit(self, request: Any, caller: Caller, reply: Callable[[Any], None]) -> None:
        if isinstance(request, ClassicProduce):
            copies = [ClassicProducePartition(p.topic, p.partition, _copy(p.records)) for p in request.partitions]
            request = evolve(request, partitions=copies)
        super().submit(request, caller, reply)


def _copy(records: memoryview) -> memoryview:
    return memoryview(bytes(records))


class ClassicServerEnd:
    """A `ClassicServer` with one connection, whose other side is the test."""

    def __init__(self, script: Callable[[Any], Any] | None = None) -> None:
        self.broker = KeepingBroker(script)
        self.reports: list[str] = []
        self.server = ClassicServer(self.broker, listener="PLAIN", report=self.reports.append)
        self.connection = PairConnection(("broker", 9092), ("198.51.100.7", 4321))
        self.connection.handler = self.server.accept(self.connection)

    def send(self, frame: bytes) -> None:
        """Deliver a frame as the transport would, unless the handler has paused or closed."""
        self.connection.inbox.append(frame)
        self.run()

    def run(self) -> None:
        while self.connection.step():
            pass

    @property
    def answers(self) -> list[bytes]:
        return self.connection.sent


class SlowConnection(PairConnection):
    """A connection whose sent bytes count as unsent until the test takes them."""

    unsent = 0

    @property
    def unsent_bytes(self) -> int:
        return self.unsent

    def send(self, pieces: Any) -> None:
        if not self.is_closed:
            super().send(pieces)
            self.unsent += 4 + len(self.sent[-1])


class ClassicClientEnd:
    """A `ClassicLink`, and the test as its broker: it sees frames and answers with frames."""

    def __init__(self) -> None:
        self.transport = PairTransport()
        self.scheduler = HandScheduler()
        self.frames: list[bytes] = []
        self.connection: Connection | None = None
        self.transport._accept = self._accept
        self.opened: list[ClassicLink | TransportError] = []
        connect_classic(
            self.transport,
            self.scheduler,
            ("broker", 9092),
            request_timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=1000,
            opened=self.opened.append,
        )
        self.transport.run()

    def _accept(self, connection: Connection) -> ConnectionHandler:
        self.connection = connection
        return self

    def on_frame(self, content: memoryview) -> None:
        self.frames.append(bytes(content))

    def on_closed(self, error: TransportError | None) -> None: ...

    @property
    def link(self) -> ClassicLink:
        link = self.opened[0]
        assert isinstance(link, ClassicLink)
        return link

    def submit(self, request: Request[Any]) -> list[Any]:
        """Submit a request; return the list that gets the reply."""
        replies: list[Any] = []
        self.link.submit(request, Caller(), replies.append)
        self.run()
        return replies

    def run(self) -> None:
        """Run all tasks that are due, without time passing."""
        self.transport.run()
        self.scheduler.advance(0)
        self.transport.run()

    def answer(self, frame: bytes) -> None:
        assert self.connection is not None
        self.connection.send([frame])
        self.run()


class SlowLink:
    """A link on a connection from which the test takes what was sent."""

    def __init__(self) -> None:
        self.scheduler = HandScheduler()
        self.connection = SlowConnection(("client", 1), ("broker", 9092))
        self.link = ClassicLink(self.connection, self.scheduler, request_timeout_ms=TIMEOUT_MS)
        self.connection.handler = self.link

    def submit(self, request: Request[Any]) -> list[Any]:
        replies: list[Any] = []
        self.link.submit(request, Caller(), replies.append)
        return replies

    def take(self, size: int | None = None) -> None:
        """Let the network take bytes (None: all)."""
        self.connection.unsent -= self.connection.unsent if size is None else size
