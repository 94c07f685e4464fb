"""TCP fulfils the contract of a transport, and stands what comes over a real socket."""

import errno
import random
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from support.tcp_harness import FileRegion, TcpHarness

from barnabas.adapters.transport_tcp import connecting
from barnabas.adapters.transport_tcp.outbound import Outbound
from barnabas.ports.errors import ClosedError
from barnabas.ports.storage import Region
from barnabas.ports.transport import Connection, Limits, TransportError
from barnabas.testing.contracts.transport import (
    LIMITS,
    Bytes,
    RecordingHandler,
    ServerSide,
    TransportContract,
    all_ended,
    connect,
    echo,
    pair,
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TcpHarness]:
    harness = TcpHarness(tmp_path)
    yield harness
    harness.close()


class TestTcpTransport(TransportContract):
    pass


class TestTcpWithoutSendfile(TransportContract):
    @pytest.fixture(autouse=True)
    def _no_sendfile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "barnabas.adapters.transport_tcp.connection.Outbound", lambda _: Outbound(may_sendfile=False)
        )


@contextmanager
def raw_client(harness: TcpHarness, server: ServerSide) -> Iterator[socket.socket]:
    with socket.create_connection(server.listener.address) as sock:
        sock.setblocking(False)
        known = len(server.handlers)
        harness.run_until(lambda: len(server.handlers) > known)
        yield sock


def read_frames(harness: TcpHarness, sock: socket.socket, count: int) -> list[bytes]:
    received = bytearray()
    frames: list[bytes] = []

    def complete() -> bool:
        with suppress(BlockingIOError):
            received.extend(sock.recv(1_000_000))
        while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4])):
            frames.append(bytes(received[4:end]))
            del received[:end]
        return len(frames) >= count

    harness.run_until(complete)
    return frames


# --- what arrives


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 104_857_601, 2**31 - 1, 0x47455420])
def test_lengths_that_are_none_close_the_connection(harness: TcpHarness, size: int) -> None:
    server = ServerSide(harness, echo)
    with raw_client(harness, server) as sock:
        sock.send(struct.pack(">i", 5) + b"hello" + struct.pack(">i", size) + b"junk")
        harness.run_until(lambda: bool(server.handlers[0].ends))
    assert server.handlers[0].frames == [b"hello"]
    assert isinstance(server.handlers[0].ends[0], TransportError)
    assert len(harness.reports) == 1 and str(size) in harness.reports[0]


def test_frames_cut_anywhere_arrive_whole(harness: TcpHarness) -> None:
    server = ServerSide(harness, echo)
    chance = random.Random(3)
    sent = [chance.randbytes(chance.choice((1, 4, 50, 300))) for _ in range(60)]
    stream = b"".join(struct.pack(">i", len(content)) + content for content in sent)
    with raw_client(harness, server) as sock:
        position = 0
        while position < len(stream):
            step = chance.choice((1, 2, 3, 5, 40, 200))
            sock.send(stream[position : position + step])
            position += step
            harness.reactor.turn(5)
        assert read_frames(harness, sock, len(sent)) == sent


def test_random_bytes_on_one_connection_do_not_disturb_others(harness: TcpHarness) -> None:
    server = ServerSide(harness, echo, Limits(frame_bytes_max=1000))
    client = connect(harness, server.listener.address)
    chance = random.Random(5)
    for _ in range(30):
        with raw_client(harness, server) as sock:
            sock.send(chance.randbytes(200))
            handler = server.handlers[-1]
            sock.shutdown(socket.SHUT_WR)
            harness.run_until(partial(all_ended, [handler]))
    client.connection.send([b"hello"])
    harness.run_until(lambda: bool(client.frames))


def test_an_end_within_a_frame_is_an_error(harness: TcpHarness) -> None:
    server = ServerSide(harness)
    with raw_client(harness, server) as sock:
        sock.send(struct.pack(">i", 100) + b"half")
    harness.run_until(lambda: bool(server.handlers[0].ends))
    assert "middle of a frame" in str(server.handlers[0].ends[0])
    assert server.handlers[0].frames == []


def test_a_reset_is_an_error_without_a_line(harness: TcpHarness) -> None:
    server = ServerSide(harness)
    with raw_client(harness, server) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    harness.run_until(lambda: bool(server.handlers[0].ends))
    assert isinstance(server.handlers[0].ends[0], TransportError)
    assert harness.reports == []


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its own size from /proc")
def test_a_claimed_length_takes_no_memory(harness: TcpHarness) -> None:
    server = ServerSide(harness)
    socks = []
    before = _resident_bytes()
    for _ in range(300):
        sock = socket.create_connection(server.listener.address)
        sock.send(struct.pack(">i", 100_000_000) + b"x" * 1000)
        socks.append(sock)
        harness.reactor.turn(10)
    harness.run_until(lambda: len(server.handlers) == 300)
    harness.pass_ms(20)
    assert _resident_bytes() - before < 20_000_000
    for sock in socks:
        sock.close()
    harness.run_until(lambda: all(handler.ends for handler in server.handlers))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


# --- what goes out


def test_answers_that_come_up_in_one_turn_leave_together(harness: TcpHarness) -> None:
    """Answers of callbacks and timers are sent together, since each send is a system call."""
    server = ServerSide(harness)
    unsent: list[int] = []

    def answer(content: bytes) -> None:
        connection = server.handlers[0].connection
        connection.send([content])
        unsent.append(connection.unsent_bytes)

    with raw_client(harness, server) as sock:
        harness.reactor.call_soon(lambda: answer(b"one"))
        harness.reactor.call_soon(lambda: answer(b"two"))
        assert read_frames(harness, sock, 2) == [b"one", b"two"]
        harness.reactor.call_later(0, lambda: answer(b"three"))
        assert read_frames(harness, sock, 1) == [b"three"]
    assert unsent == [7, 14, 9]


def test_gathered_batches_are_sent_before_a_connection_closes(harness: TcpHarness) -> None:
    server = ServerSide(harness)

    def answer_and_close() -> None:
        server.handlers[0].connection.send([b"last"])
        server.handlers[0].connection.close()

    with raw_client(harness, server) as sock:
        harness.reactor.call_soon(answer_and_close)
        assert read_frames(harness, sock, 1) == [b"last"]
    harness.run_until(lambda: bool(server.handlers[0].ends))


def test_a_truncated_file_closes_the_connection(harness: TcpHarness) -> None:
    client, server = pair(harness)
    region = harness.region(b"x" * 500_000)
    region.truncate(300_000)
    client.connection.send([b"head", region])
    harness.run_until(lambda: bool(client.ends) and bool(server.ends))
    assert server.frames == []
    assert len(harness.reports) == 1 and "truncated" in harness.reports[0]


def test_a_peer_that_goes_away_while_a_file_is_sent(harness: TcpHarness) -> None:
    server = ServerSide(harness)
    with raw_client(harness, server) as sock:
        handler = server.handlers[0]
        for _ in range(3):
            handler.connection.send([harness.region(b"x" * 8_000_000)])
        assert handler.connection.unsent_bytes > 0
        sock.recv(1000)
    harness.run_until(lambda: bool(handler.ends))
    assert isinstance(handler.ends[0], TransportError)
    assert handler.connection.unsent_bytes == 0
    assert harness.reports == []


def test_answers_to_frames_that_came_together_leave_together(harness: TcpHarness) -> None:
    server = ServerSide(harness, echo)
    with raw_client(harness, server) as sock:
        sock.send((struct.pack(">i", 5) + b"hello") * 20)
        harness.run_until(lambda: len(server.handlers[0].frames) == 20)
        assert len(sock.recv(1000)) == 180


def answered_per_turn(harness: TcpHarness, server: ServerSide, sock: socket.socket, frames: int) -> list[int]:
    """Return how many of the answers leave in each turn, where a turn has one frame of a connection."""
    sock.send((struct.pack(">i", 5) + b"hello") * frames)
    counts: list[int] = []
    while sum(counts) < frames:
        harness.reactor.turn(100)
        with suppress(BlockingIOError):
            counts.append(0)
            counts[-1] = len(sock.recv(1000)) // 9
    return counts


def test_answers_of_several_slices_leave_together(harness: TcpHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.adapters.transport_tcp.connection._SLICE_SECONDS", 0.0)
    server = ServerSide(harness, echo)
    with raw_client(harness, server) as sock:
        assert answered_per_turn(harness, server, sock, 9) == [0, 0, 4, 0, 0, 0, 4, 1], "the first turn has two"


def test_answers_do_not_wait_for_the_turns_of_others(harness: TcpHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.adapters.transport_tcp.connection._SLICE_SECONDS", 0.0)
    server = ServerSide(harness, echo)
    with raw_client(harness, server) as other, raw_client(harness, server) as sock:

        def ask_again() -> None:
            other.send(struct.pack(">i", 1) + b"x")
            harness.reactor.call_soon(ask_again)

        ask_again()
        assert answered_per_turn(harness, server, sock, 9) == [2, *[1] * 7]


def test_answers_leave_when_their_connection_is_paused(harness: TcpHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another component pauses it, between two slices."""
    monkeypatch.setattr("barnabas.adapters.transport_tcp.connection._SLICE_SECONDS", 0.0)
    server = ServerSide(harness, echo)
    with raw_client(harness, server) as sock:
        sock.send((struct.pack(">i", 5) + b"hello") * 4)
        connection = server.handlers[0].connection
        harness.run_until(lambda: connection.unsent_bytes > 0)
        connection.pause()
        assert read_frames(harness, sock, 2) == [b"hello"] * 2
        connection.resume()
        assert read_frames(harness, sock, 2) == [b"hello"] * 2


def test_a_delayed_answer_never_goes_to_a_later_connection(harness: TcpHarness) -> None:
    server = ServerSide(harness)
    with raw_client(harness, server):
        old = server.handlers[0]
    harness.run_until(lambda: bool(old.ends))
    with raw_client(harness, server) as sock:
        old.connection.send([b"for somebody else"])
        server.handlers[1].connection.send([b"for you"])
        assert read_frames(harness, sock, 1) == [b"for you"]


def test_a_peer_that_takes_nothing_is_given_up(harness: TcpHarness) -> None:
    server = ServerSide(harness, limits=Limits(idle_ms=50))
    with raw_client(harness, server):
        handler = server.handlers[0]
        handler.connection.send([b"x" * 30_000_000])
        handler.connection.close()
        harness.run_until(lambda: bool(handler.ends))
    assert "took nothing" in str(handler.ends[0])


# --- listening and connecting


def test_ipv6_listener_echoes_frame(harness: TcpHarness) -> None:
    try:
        listener = harness.transport.listen(("::1", 0), lambda connection: RecordingHandler(connection, echo), LIMITS)
    except TransportError as error:
        pytest.skip(str(error))
    client = connect(harness, listener.address)
    assert client.connection.peer[0] == "::1"
    client.connection.send([b"hello"])
    harness.run_until(lambda: bool(client.frames))


def test_a_name_is_resolved_and_every_address_tried(harness: TcpHarness) -> None:
    server = ServerSide(harness, echo)
    client = connect(harness, ("localhost", server.listener.address[1]))
    client.connection.send([b"hello"])
    harness.run_until(lambda: bool(client.frames))


def _connect_error(harness: TcpHarness, host: str, port: int, timeout_ms: float = 5000) -> str:
    outcomes: list[Connection | TransportError] = []
    harness.transport.connect((host, port), outcomes.append, timeout_ms=timeout_ms, limits=LIMITS)
    harness.run_until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], TransportError)
    return str(outcomes[0])


def test_a_name_that_is_none(harness: TcpHarness) -> None:
    assert "cannot be resolved" in _connect_error(harness, "no-such-host.invalid", 1)
    assert "cannot connect" in _connect_error(harness, "not a name", 1)
    assert "cannot connect" in _connect_error(harness, "127.0.0.1", 70_000)


@contextmanager
def _silent() -> Iterator[int]:
    """A port of this machine that gives no answer: its backlog is full."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        yield silent.getsockname()[1]
        for filler in fillers:
            filler.close()


def test_connect_to_silent_port_times_out_without_leaking_resources(harness: TcpHarness) -> None:
    with _silent() as port:
        before = harness.open_things()
        assert "60 ms" in _connect_error(harness, "127.0.0.1", port, timeout_ms=60)
        assert harness.open_things() == before


def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    harness: TcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerSide(harness, echo)
    before = harness.open_things()
    with _silent() as port:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", each))
            for each in (port, server.listener.address[1])
        ]
        monkeypatch.setattr(connecting, "_resolve", lambda *_: list(found))
        outcomes: list[Connection | TransportError] = []
        harness.transport.connect(("two", 1), outcomes.append, timeout_ms=2000, limits=LIMITS)
        harness.run_until(lambda: bool(outcomes))
        assert not isinstance(outcomes[0], TransportError)
        harness.run_until(lambda: harness.open_things() == before)  # no caller wanted it


@pytest.mark.parametrize(
    ("host", "hint"),
    [("192.0.2.1", "does not have the address"), ("no-such-host.invalid", "check the host")],
)
def test_an_address_that_cannot_be_listened_on(harness: TcpHarness, host: str, hint: str) -> None:
    with pytest.raises(TransportError, match=hint):
        harness.transport.listen((host, 0), lambda _connection: pytest.fail("accepted"), LIMITS)


def test_without_descriptors_it_waits_and_accepts_later(harness: TcpHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerSide(harness, echo)
    monkeypatch.setattr("barnabas.adapters.transport_tcp.listener._BACK_OFF_MS", 20.0)
    real_accept, failures = socket.socket.accept, [1, 2, 3]

    def accept(self: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            failures.pop()
            raise OSError(errno.EMFILE, "Too many open files")
        return real_accept(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    client = connect(harness, server.listener.address)
    client.connection.send([b"hello"])
    harness.run_until(lambda: bool(client.frames))
    assert not failures
    assert len(harness.reports) == 1 and "ulimit" in harness.reports[0]


def test_stopping_closes_everything_once(harness: TcpHarness) -> None:
    server = ServerSide(harness, echo)
    clients = [connect(harness, server.listener.address) for _ in range(3)]
    attempts: list[Connection | TransportError] = []
    harness.transport.connect(
        ("localhost", server.listener.address[1]), attempts.append, timeout_ms=5000, limits=LIMITS
    )
    harness.reactor.stop()
    assert [client.ends for client in clients] == [[None]] * 3
    assert all(handler.ends == [None] for handler in server.handlers)
    assert len(attempts) == 1 and isinstance(attempts[0], TransportError)
    with pytest.raises(ClosedError):
        harness.transport.connect(("127.0.0.1", 1), attempts.append, timeout_ms=1, limits=LIMITS)
    with pytest.raises(ClosedError):
        harness.transport.listen(("127.0.0.1", 0), RecordingHandler, LIMITS)


def test_a_close_in_a_handler_of_another_connection_leaves_the_frame_alone(harness: TcpHarness) -> None:
    """The shared receive buffer belongs to the handler that runs."""
    seen: list[bytes] = []

    def each(recorder: RecordingHandler, content: memoryview) -> None:
        for other in server.handlers:
            if other is not recorder:
                other.connection.send([b"bye"])
                other.connection.close()
        seen.append(bytes(content))

    server = ServerSide(harness, each)
    with raw_client(harness, server) as first, raw_client(harness, server) as second:
        second.setblocking(True)
        second.sendall(b"\xff" * 3)  # unread bytes of the one that is closed
        first.send(struct.pack(">i", 1000) + b"a" * 1000)
        harness.run_until(lambda: bool(seen))
    assert seen == [b"a" * 1000]


def region_protocol_check(region: FileRegion, other: Bytes) -> tuple[Region, Region]:
    """Both kinds of test regions fulfil the port (for the type checker)."""
    return region, other


# --- memory that all connections share


def _halves(harness: TcpHarness, server: ServerSide, count: int, size: int) -> list[socket.socket]:
    """Peers that have sent a frame of `size` but for its last byte, or as much of that as is read from them."""
    peers = [socket.create_connection(server.listener.address) for _ in range(count)]
    for peer in peers:
        peer.setblocking(False)
        content = struct.pack(">i", size) + bytes(size - 1)
        sent = idle_turns = 0
        while sent < len(content) and idle_turns < 100:
            idle_turns += 1
            with suppress(BlockingIOError):
                sent += peer.send(content[sent:])
                idle_turns = 0
            harness.reactor.turn(2 if idle_turns else 0)
    return peers


def test_partial_frames_progress_one_at_a_time_under_memory_limit(harness: TcpHarness) -> None:
    server = ServerSide(harness, limits=Limits(all_held_bytes_max=1_000_000))
    clients = [connect(harness, server.listener.address) for _ in range(8)]
    for client in clients:
        client.connection.send([bytes(9_000_000)])
    harness.run_until(lambda: len(server.handlers) == 8 and all(handler.frames for handler in server.handlers))
    assert harness.reports == []


def test_connection_that_stops_within_a_frame_is_closed_while_memory_is_short(
    harness: TcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.adapters.transport_tcp.connection._STALLED_MS", 50.0)
    server = ServerSide(harness, limits=Limits(all_held_bytes_max=1_000_000))
    stalled = _halves(harness, server, 3, 20_000_000)
    client = connect(harness, server.listener.address)
    client.connection.send([b"small"])
    client.connection.send([bytes(5_000_000)])
    harness.run_until(lambda: any(len(handler.frames) == 2 for handler in server.handlers))
    assert any("memory is short" in line for line in harness.reports)
    for peer in stalled:
        peer.close()
