"""The network inside the process fulfils the contract, and makes the faults that a test asks for."""

from collections.abc import Callable, Iterator

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.adapters.transport_memory import MemoryNetwork, MemoryTransport, NetworkFaults
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.ports.storage import Region
from barnabas.ports.transport import Connection, TransportError
from barnabas.testing.contracts.transport import (
    LIMITS,
    Bytes,
    RecordingHandler,
    ServerSide,
    TransportContract,
    connect,
    echo,
    pair,
)

SLOW = NetworkFaults(latency_ms_min=1, latency_ms_max=10)


class MemoryHarness:
    def __init__(self, faults: NetworkFaults | None = None, seed: int = 1) -> None:
        self.reports: list[str] = []
        self.scheduler = ManualScheduler(ManualClock())
        self.network = MemoryNetwork(self.scheduler, SeededEntropy(seed), faults, self.reports.append)
        self.transport: MemoryTransport = self.network.transport("client")

    def run_until(self, condition: Callable[[], bool]) -> None:
        self.scheduler.run_until(condition)

    def pass_ms(self, ms: float) -> None:
        self.scheduler.advance(ms)

    def open_things(self) -> int:
        return len(self.network.connections) + len(self.network.attempts) + self.scheduler.waiting

    def region(self, content: bytes) -> Region:
        return Bytes(content)


class TestMemoryTransport(TransportContract):
    @pytest.fixture(params=["perfect", "slow"])
    def harness(self, request: pytest.FixtureRequest) -> Iterator[MemoryHarness]:
        yield MemoryHarness(SLOW if request.param == "slow" else None)


def _across(
    faults: NetworkFaults | None = None, seed: int = 1
) -> tuple[MemoryHarness, RecordingHandler, RecordingHandler]:
    """Return a connection between the nodes `client` and `broker`."""
    harness = MemoryHarness(faults, seed)
    harness.transport = harness.network.transport("broker")
    server = ServerSide(harness, echo)
    harness.transport = harness.network.transport("client")
    client = connect(harness, server.listener.address)
    harness.run_until(lambda: bool(server.handlers))
    return harness, client, server.handlers[0]


def test_a_cut_link_holds_frames_until_it_heals() -> None:
    harness, client, server = _across()
    harness.network.cut("client", "broker")
    client.connection.send([b"one"])
    client.connection.send([b"two"])
    harness.pass_ms(1000)
    assert server.frames == []
    assert client.connection.unsent_bytes == 14
    harness.network.heal_all()
    harness.run_until(lambda: len(client.frames) == 2)
    assert server.frames == [b"one", b"two"]


def test_connecting_over_a_cut_link_takes_until_it_heals_or_the_time_is_over() -> None:
    harness, client, _ = _across()
    harness.network.cut("broker", "client")
    outcomes: list[Connection | TransportError] = []
    address = client.connection.peer
    harness.transport.connect(address, outcomes.append, timeout_ms=100, limits=LIMITS)
    harness.pass_ms(99)
    assert outcomes == []
    harness.pass_ms(2)
    assert isinstance(outcomes[0], TransportError) and "100 ms" in str(outcomes[0])
    harness.transport.connect(address, outcomes.append, timeout_ms=100, limits=LIMITS)
    harness.pass_ms(50)
    harness.network.heal("client", "broker")
    harness.pass_ms(1)
    assert len(outcomes) == 2 and not isinstance(outcomes[1], TransportError)


def test_a_lost_connection_ends_with_an_error_on_both_sides() -> None:
    harness, client, server = _across()
    client.connection.send([b"on its way"])
    assert harness.network.lose_connections("client", "broker") == 1
    harness.run_until(lambda: bool(client.ends) and bool(server.ends))
    assert isinstance(client.ends[0], TransportError)
    assert isinstance(server.ends[0], TransportError)
    assert server.frames == []


def test_connect_to_crashed_node_is_refused() -> None:
    harness, client, server = _across()
    address = client.connection.peer
    harness.network.crash("broker")
    harness.run_until(lambda: bool(client.ends) and bool(server.ends))
    outcomes: list[Connection | TransportError] = []
    harness.transport.connect(address, outcomes.append, timeout_ms=100, limits=LIMITS)
    harness.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], TransportError) and "refused" in str(outcomes[0])


def _history(seed: int) -> list[object]:
    harness, client, server = _across(NetworkFaults(latency_ms_max=20, drop_chance=0.01), seed)
    for number in range(300):
        client.connection.send([b"%d" % number])
        harness.pass_ms(1)
    return [client.frames, server.frames, len(client.ends), len(server.ends), harness.scheduler.clock.monotonic_ms()]


def test_a_seed_replays_the_same_faults() -> None:
    assert _history(1) == _history(1)
    assert len({repr(_history(seed)) for seed in range(5)}) > 1


def test_bytes_before_a_connection_loss_arrive_in_order() -> None:
    for seed in range(20):
        frames = _history(seed)[1]
        assert isinstance(frames, list)
        assert frames == [b"%d" % number for number in range(len(frames))]


def test_frame_memory_is_invalid_after_handler_returns() -> None:
    received: list[memoryview] = []
    harness = MemoryHarness()
    client, _ = pair(harness, lambda _recorder, content: received.append(content))
    client.connection.send([b"hello"])
    harness.run_until(lambda: bool(received))
    harness.pass_ms(1)
    assert bytes(received[0]) != b"hello"


def test_memory_transport_runs_on_reactor() -> None:
    reactor = Reactor()
    network = MemoryNetwork(reactor)
    transport = network.transport()
    answers: list[bytes] = []

    class Client:
        def on_frame(self, content: memoryview) -> None:
            answers.append(bytes(content))
            reactor.stop()

        def on_closed(self, error: TransportError | None) -> None: ...

    def opened(outcome: Connection | TransportError) -> Client | None:
        assert not isinstance(outcome, TransportError)
        outcome.send([b"hello"])
        return Client()

    listener = transport.listen(("127.0.0.1", 0), lambda connection: RecordingHandler(connection, echo), LIMITS)
    transport.connect(listener.address, opened, timeout_ms=1000, limits=LIMITS)
    reactor.run()
    assert answers == [b"hello"]
