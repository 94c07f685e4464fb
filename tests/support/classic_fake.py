"""A classic broker on a real socket that a test looks into: it keeps every frame, and answers what the test says."""

from collections.abc import Callable, Sequence
from struct import pack, unpack_from
from typing import Any, Self

from support.ports import free_port

from barnabas import Producer
from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.app.background import ReactorThread
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.shared.protocols import AnyProducer
from barnabas.core.message.classic.reader import decode_set
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.transport import Connection, Limits, TransportError

Answer = Callable[[bytes], bytes | None]


class ProducedSet:
    """One message set of a produce or multi-produce, read without the code under test."""

    def __init__(self, topic: str, partition: int, records: bytes) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records

    @property
    def values(self) -> list[bytes | None]:
        return [message.value for message in decode_set(self.records, builtin_codecs())]

    @property
    def codecs(self) -> set[int]:
        """The codecs in the attributes of the outer messages."""
        found, at = set(), 0
        while at < len(self.records):
            found.add(self.records[at + 5] & 3)
            at += 4 + int.from_bytes(self.records[at : at + 4], "big")
        return found


def produced(frame: bytes) -> list[ProducedSet]:
    """Return the sets of a frame with id 0 or 3."""
    (request_id,) = unpack_from(">h", frame)
    at, count = 2, 1
    if request_id == 3:
        (count,), at = unpack_from(">h", frame, 2), 4
    else:
        assert request_id == 0
    sets = []
    for _ in range(count):
        (length,) = unpack_from(">h", frame, at)
        topic = frame[at + 2 : at + 2 + length].decode()
        at += 2 + length
        partition, size = unpack_from(">ii", frame, at)
        at += 8
        sets.append(ProducedSet(topic, partition, frame[at : at + size]))
        at += size
    assert at == len(frame)
    return sets


class FakeClassicBroker:
    """`with FakeClassicBroker() as broker`: listens on a free port of 127.0.0.1."""

    def __init__(self, answer: Answer = lambda frame: None) -> None:
        self.frames: list[bytes] = []
        self.answer = answer
        self.accepted = 0
        self.port = free_port()
        self._open: list[Connection] = []
        self._start()

    def _start(self) -> None:
        self._reactor = Reactor(lambda text: None, workers=1)
        self._transport = TcpTransport(self._reactor, lambda text: None)
        self._transport.listen(("127.0.0.1", self.port), self._accept, Limits())
        self._thread = ReactorThread(self._reactor, "fake-broker")
        self._thread.start()

    def _accept(self, connection: Connection) -> "_Handler":
        self.accepted += 1
        self._open.append(connection)
        return _Handler(self, connection)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def sets(self, topic: str | None = None) -> list[ProducedSet]:
        """Return all produced sets."""
        frames = list(self.frames)
        return [each for frame in frames for each in produced(frame) if topic in (None, each.topic)]

    def values(self, topic: str | None = None) -> list[bytes | None]:
        return [value for each in self.sets(topic) for value in each.values]

    def stop(self) -> None:
        """The process dies: its port is closed, its connections are reset."""
        self._thread.stop()

    def start_again(self) -> None:
        """On the same port."""
        self._start()

    def close_connection(self) -> None:
        """Close the open connections only."""
        connections, self._open = self._open, []
        for connection in connections:
            self._reactor.call_soon(connection.close)

    def pause(self) -> None:
        """Take nothing from the open connections."""
        connections = list(self._open)
        for connection in connections:
            self._reactor.call_soon(connection.pause)

    def resume(self) -> None:
        connections = list(self._open)
        for connection in connections:
            self._reactor.call_soon(connection.resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Handler:
    def __init__(self, broker: FakeClassicBroker, connection: Connection) -> None:
        self._broker = broker
        self._connection = connection

    def on_frame(self, content: memoryview) -> None:
        frame = bytes(content)
        self._broker.frames.append(frame)
        answer = self._broker.answer(frame)
        if answer is not None:
            self._connection.send([answer])

    def on_closed(self, error: TransportError | None) -> None:
        pass


def fetch_answer(*blocks: tuple[int, bytes]) -> bytes:
    """Return the answer to a fetch (one block) or a multi-fetch (several), without its length."""
    if len(blocks) == 1:
        return pack(">h", blocks[0][0]) + blocks[0][1]
    return pack(">h", 0) + b"".join(pack(">ih", 2 + len(records), error) + records for error, records in blocks)


def offsets_answer(offsets: Sequence[int], error: int = 0) -> bytes:
    return pack(">hi", error, len(offsets)) + b"".join(pack(">q", offset) for offset in offsets)


def listed(broker: FakeClassicBroker, **settings: Any) -> ClassicProducer:
    made: AnyProducer = Producer(broker_list=f"0:{broker.address}", plugins=(), **settings)
    assert isinstance(made, ClassicProducer)
    return made


def queued(broker: FakeClassicBroker, **settings: Any) -> ClassicProducer:
    return listed(broker, producer_type="async", **settings)


class FakeClassicCluster:
    """Fake brokers that stand in the registries."""

    def __init__(self, brokers: int, **topics: Sequence[int]) -> None:
        """Topic: how many partitions each broker has of it."""
        self.tree = MemoryTree()
        self.sessions = [self.tree.session() for _ in range(brokers)]
        self.brokers = [FakeClassicBroker() for _ in range(brokers)]
        for number in range(brokers):
            self.register(number)
            for topic, counts in topics.items():
                self.topic(topic, number, counts[number])

    def register(self, number: int) -> None:
        data = f"me-1:{self.brokers[number].address}".encode()
        self.sessions[number].create(f"/brokers/ids/{number}", data, ephemeral=True)

    def topic(self, name: str, number: int, count: int) -> None:
        if count:
            self.sessions[number].create(f"/brokers/topics/{name}/{number}", str(count).encode(), ephemeral=True)

    def kill(self, number: int) -> None:
        self.brokers[number].stop()
        self.sessions[number].close()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()
        for session in self.sessions:
            session.close()

    def producer(self, **settings: Any) -> ClassicProducer:
        made: AnyProducer = Producer(coordination=self.tree.session, plugins=(), **settings)
        assert isinstance(made, ClassicProducer)
        return made

    def values(self, topic: str | None = None) -> list[bytes | None]:
        return [value for broker in self.brokers for value in broker.values(topic)]
