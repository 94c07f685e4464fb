"""Client and server joined by real transports: bytes arrive, slow and lost peers do not disturb others."""

import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from support.classic_frames import fetch, message_set, offsets, produce
from support.classic_wire import KeepingBroker
from support.waiting import PATIENCE_S

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.adapters.transport_memory import MemoryNetwork
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.adapters.wire_classic import ClassicLink, ClassicServer, connect_classic
from barnabas.ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResult,
)
from barnabas.ports.broker_api.envelope import Caller, Request
from barnabas.ports.scheduler import Scheduler
from barnabas.ports.storage import Region
from barnabas.ports.transport import Address, Limits, Transport, TransportError

HELLO = message_set(b"hello")
LARGE = 8_000_000
OFFSETS = ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=2)


def _fetch(*numbers: int) -> ClassicFetch:
    return ClassicFetch(partitions=[ClassicFetchPartition("t", number, 0, LARGE) for number in numbers])


def _produce(*sets: bytes) -> ClassicProduce:
    parts = [ClassicProducePartition("t", number, memoryview(records)) for number, records in enumerate(sets)]
    return ClassicProduce(partitions=parts)


class World:
    """A broker that the test scripts, behind a real transport."""

    def __init__(
        self,
        transport: Transport,
        clients: Transport,
        scheduler: Scheduler,
        host: str,
        turn: Callable[[], object],
        reports: list[str],
    ) -> None:
        self.clients = clients
        self.scheduler = scheduler
        self.turn = turn
        self.records: Region | bytes = HELLO
        self.broker = KeepingBroker(self._answer)
        self.reports = reports
        self.server = ClassicServer(self.broker, listener="here", report=self.reports.append)
        self.address: Address = transport.listen((host, 0), self.server.accept, Limits()).address

    def _answer(self, request: Any) -> Any:
        if isinstance(request, ClassicProduce):
            return ClassicProduceResult()
        if isinstance(request, ClassicFetch):
            part = ClassicFetchResultPartition(records=self.records)
            return ClassicFetchResult(partitions=[part] * len(request.partitions))
        return ClassicOffsetsResult(offsets=[25, 0])

    def link(self, request_timeout_ms: float = 20_000) -> ClassicLink:
        opened: list[ClassicLink | TransportError] = []
        connect_classic(
            self.clients,
            self.scheduler,
            self.address,
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=5000,
            opened=opened.append,
        )
        self.until(lambda: bool(opened))
        link = opened[0]
        assert isinstance(link, ClassicLink)
        return link

    def submit(self, link: ClassicLink, request: Request[Any]) -> list[Any]:
        replies: list[Any] = []
        link.submit(request, Caller(), replies.append)
        return replies

    def ask(self, link: ClassicLink, request: Request[Any]) -> Any:
        replies = self.submit(link, request)
        self.until(lambda: bool(replies))
        return replies[0]

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            self.turn()


class MemoryWorld(World):
    def __init__(self) -> None:
        scheduler = ManualScheduler(ManualClock())
        self.network = MemoryNetwork(scheduler)
        broker, clients = self.network.transport("broker"), self.network.transport("client")
        super().__init__(broker, clients, scheduler, "broker", lambda: scheduler.advance(1), [])


class TcpWorld(World):
    def __init__(self) -> None:
        self.reactor = Reactor(print)
        reports: list[str] = []
        transport = TcpTransport(self.reactor, reports.append)
        super().__init__(transport, transport, self.reactor, "127.0.0.1", lambda: self.reactor.turn(20), reports)

    def raw(self) -> socket.socket:
        """Return a plain socket, which does not speak the protocol."""
        peer = socket.create_connection(self.address, timeout=20)
        peer.setblocking(False)
        return peer

    def closed_by_broker(self, peer: socket.socket) -> bool:
        """Return True when the broker closes without a byte."""
        got: list[bytes] = []

        def over() -> bool:
            try:
                got.append(peer.recv(100))
            except BlockingIOError:
                return False
            except ConnectionError:
                got.append(b"")
            return True

        self.until(over)
        return got == [b""]


@pytest.fixture
def tcp() -> Iterator[TcpWorld]:
    world = TcpWorld()
    yield world
    world.reactor.stop()


@pytest.fixture(params=["memory", "tcp"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    made: World = request.getfixturevalue("tcp")
    return made


def test_every_request_there_and_back(world: World) -> None:
    link = world.link()
    assert world.ask(link, _produce(HELLO)) == ClassicProduceResult()
    assert world.ask(link, _produce(HELLO, b"", HELLO * 2)) == ClassicProduceResult()
    assert [part.records for part in world.ask(link, _fetch(0)).partitions] == [HELLO]
    assert [part.records for part in world.ask(link, _fetch(0, 1, 2)).partitions] == [HELLO] * 3
    assert list(world.ask(link, OFFSETS).offsets) == [25, 0]
    one, several = world.broker.requests[:2]
    assert [bytes(part.records) for part in one.partitions] == [HELLO]
    assert [bytes(part.records) for part in several.partitions] == [HELLO, b"", HELLO * 2]
    assert world.reports == []


def test_many_requests_at_once_are_answered_in_order(world: World) -> None:
    link = world.link()
    order: list[int] = []

    def noting(number: int) -> Callable[[Any], None]:
        return lambda result: order.append(number)

    for number in range(50):
        request: Request[Any] = OFFSETS if number % 3 else _fetch(*range(number % 2 + 1))
        link.submit(request, Caller(), noting(number))
        link.submit(_produce(HELLO), Caller(), lambda result: None)
    world.until(lambda: len(order) == 50 and len(world.broker.requests) == 100)
    assert order == list(range(50))
    assert [type(request) for request in world.broker.requests[1::2]] == [ClassicProduce] * 50


def test_a_link_that_is_closed_leaves_nothing_behind(world: World) -> None:
    """The sent messages arrive; Kafka 0.7 lost the last batch when it closed."""
    link = world.link()
    records = bytes(LARGE)
    replies = world.submit(link, _produce(records))
    link.close()
    world.until(lambda: bool(world.broker.requests) and not world.server.connections)
    assert [type(reply) for reply in replies] == [TransportError]
    assert world.broker.requests[0].partitions[0].records == records
    assert world.reports == []


def test_a_server_that_closes_fails_what_waits(world: World) -> None:
    world.broker.script = None
    link = world.link()
    replies = world.submit(link, _fetch(0))
    world.until(lambda: bool(world.broker.requests))
    assert world.server.close("") == 1
    world.until(lambda: bool(replies))
    assert isinstance(replies[0], TransportError)
    assert not link.is_open
    assert world.server.close("") == 0


def test_a_broker_that_does_not_take_a_produce_holds_the_next_ones_back(world: World) -> None:
    link = world.link()
    world.broker.script = None
    sent: list[Any] = []
    for _ in range(5):
        link.submit(_produce(bytes(LARGE)), Caller(), sent.append)
    world.until(lambda: bool(world.broker.requests))
    assert len(sent) < 4
    taken: list[int] = []
    while len(taken) < 5:
        world.until(lambda: len(world.broker.requests) > len(taken))
        world.broker.replies[len(taken)](ClassicProduceResult())
        taken.append(len(sent))
    world.until(lambda: len(sent) == 5)
    assert sent == [ClassicProduceResult()] * 5


def test_a_cut_network_ends_the_link_in_time() -> None:
    world = MemoryWorld()
    link = world.link(request_timeout_ms=1000)
    assert world.ask(link, _produce(HELLO)) == ClassicProduceResult()
    world.network.cut("broker", "client")
    replies = [world.submit(link, request) for request in (_produce(HELLO), _fetch(0))]
    world.until(lambda: all(replies))
    assert [type(reply[0]) for reply in replies] == [TransportError] * 2
    assert 1000 <= world.scheduler.clock.monotonic_ms() <= 1300  # type: ignore[attr-defined]  # it is the manual one


def test_a_lost_connection_fails_a_produce_that_had_not_left() -> None:
    world = MemoryWorld()
    link = world.link()
    world.network.cut("broker", "client")
    replies = world.submit(link, _produce(HELLO))
    world.network.lose_connections("broker")
    world.until(lambda: bool(replies))
    assert isinstance(replies[0], TransportError)


def test_a_file_goes_out_unchanged(tcp: TcpWorld, tmp_path: Path) -> None:
    log_dir = open_log_dir(str(tmp_path))
    file = log_dir.folder("t-0").open("log")
    content = b"".join(pack(">i", number) for number in range(LARGE // 4))
    file.append(content)
    tcp.records = file.region(4, LARGE - 8)
    assert tcp.records.fileno() >= 0
    link = tcp.link()
    for result in (tcp.ask(link, _fetch(0)), tcp.ask(link, _fetch(0, 1))):
        assert all(part.records == content[4:-4] for part in result.partitions)
    file.close()
    log_dir.close()


@pytest.mark.parametrize("size", [0, -1, -(2**31), 104_857_601, 2**31 - 1])
def test_sizes_that_are_none_close_the_connection(tcp: TcpWorld, size: int) -> None:
    with tcp.raw() as peer:
        peer.send(pack(">i", size) + fetch("t"))
        assert tcp.closed_by_broker(peer)
    assert tcp.broker.requests == []
    (line,) = tcp.reports
    assert str(size) in line
    assert world_still_answers(tcp)


def test_senseless_bytes_close_the_connection_with_one_line(tcp: TcpWorld) -> None:
    with tcp.raw() as peer:
        peer.send(pack(">ih", 2, 9) + fetch("t"))
        assert tcp.closed_by_broker(peer)
    assert len(tcp.reports) == 1
    assert tcp.broker.requests == []
    assert world_still_answers(tcp)


@pytest.mark.parametrize("frame", [produce("t", HELLO), fetch("t"), offsets("t", -1)])
def test_connection_closed_inside_a_request_submits_nothing(tcp: TcpWorld, frame: bytes) -> None:
    for size in (1, 3, 5, len(frame) // 2, len(frame) - 1):
        with tcp.raw() as peer:
            peer.send(frame[:size])
            tcp.until(lambda: len(tcp.server.connections) == 1)
        tcp.until(lambda: not tcp.server.connections)
    assert tcp.broker.requests == []
    assert world_still_answers(tcp)


def test_connection_closed_during_a_request_discards_the_response(tcp: TcpWorld) -> None:
    tcp.broker.script = None
    with tcp.raw() as peer:
        peer.send(fetch("t"))
        tcp.until(lambda: len(tcp.broker.requests) == 1)
    tcp.broker.replies[0](tcp._answer(tcp.broker.requests[0]))
    tcp.until(lambda: not tcp.server.connections)
    tcp.broker.script = tcp._answer
    assert world_still_answers(tcp)


def test_connection_closed_inside_a_response_fails_the_link(tcp: TcpWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        tcp.address = broker.getsockname()
        link = tcp.link()
        replies = tcp.submit(link, _fetch(0))
        served, _ = broker.accept()
        with served:
            served.sendall(pack(">ih", 100, 0) + HELLO)
        tcp.until(lambda: bool(replies))
    assert isinstance(replies[0], TransportError)
    assert not link.is_open


def test_client_that_does_not_read_responses_blocks_no_other_client(tcp: TcpWorld, tmp_path: Path) -> None:
    log_dir = open_log_dir(str(tmp_path))
    file = log_dir.folder("t-0").open("log")
    file.append(bytes(LARGE))
    tcp.records = file.region(0, LARGE)
    requests = 3 * Limits().unsent_regions_max
    with tcp.raw() as peer:
        tracemalloc.start()
        try:
            peer.sendall(fetch("t", max_bytes=LARGE) * requests)
            tcp.until(lambda: len(tcp.broker.requests) > 1)
            tcp.records = HELLO
            assert world_still_answers(tcp)
            asked = [each for each in tcp.broker.requests if each.partitions[0].max_bytes == LARGE]
            assert len(asked) < requests  # what waits for a slow reader is bounded
            assert tracemalloc.get_traced_memory()[1] < LARGE
        finally:
            tracemalloc.stop()
    tcp.until(lambda: len(tcp.server.connections) == 0)
    file.close()
    log_dir.close()


def world_still_answers(world: World) -> bool:
    link = world.link()
    answer = world.ask(link, ClassicFetch(partitions=[ClassicFetchPartition("other", 0, 0, 100)]))
    link.close()
    return bool(answer.partitions[0].records == HELLO)
