"""Contract suite for transports."""

import random
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol

import pytest

from ...ports.scheduler import Scheduler
from ...ports.storage import Region
from ...ports.transport import (
    Address,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    Piece,
    Transport,
    TransportError,
)
from ...ports.types import Position

LIMITS = Limits()


class TransportHarness(Protocol):
    """One transport, and what drives it."""

    reports: list[str]

    @property
    def transport(self) -> Transport: ...

    @property
    def scheduler(self) -> Scheduler: ...

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until `condition` holds; fails when it never does."""
        ...

    def pass_ms(self, ms: float) -> None:
        """Let that much time pass on the scheduler."""
        ...

    def open_things(self) -> int:
        """Return the number of connections that the transport still knows, and of their sockets and timers."""
        ...

    def region(self, content: bytes) -> Region:
        """Return a region of a file with this content, as the storage used with this transport would give it."""
        ...


class Bytes:
    """A region in memory."""

    def __init__(self, content: bytes, size: int | None = None) -> None:
        self._content = content
        self._size = len(content) if size is None else size

    @property
    def size(self) -> int:
        return self._size

    @property
    def position(self) -> Position:
        return Position(0)

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        end = self._size if size is None else min(self._size, start + size)
        return self._content[start:end]


class RecordingHandler:
    """A handler that keeps what it gets."""

    def __init__(
        self, connection: Connection, each: Callable[["RecordingHandler", memoryview], None] | None = None
    ) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.ends: list[TransportError | None] = []
        self._each = each

    def on_frame(self, content: memoryview) -> None:
        assert not self.ends, "a frame after the end"
        assert not content.readonly
        self.frames.append(bytes(content))
        if self._each is not None:
            self._each(self, content)

    def on_closed(self, error: TransportError | None) -> None:
        self.ends.append(error)


def has_frames(recorder: RecordingHandler, count: int) -> bool:
    return len(recorder.frames) == count


def _has_frames_or_end(recorder: RecordingHandler, count: int) -> bool:
    return has_frames(recorder, count) or bool(recorder.ends)


def all_have_frames(recorders: list[RecordingHandler]) -> bool:
    return all(recorder.frames for recorder in recorders)


def all_ended(recorders: list[RecordingHandler]) -> bool:
    return all(recorder.ends for recorder in recorders)


def echo(recorder: RecordingHandler, content: memoryview) -> None:
    recorder.connection.send([bytes(content)])


class ServerSide:
    """A listener, and the handlers of its connections."""

    def __init__(
        self,
        harness: TransportHarness,
        each: Callable[[RecordingHandler, memoryview], None] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.handlers: list[RecordingHandler] = []
        self._each = each
        self.listener: Listener = harness.transport.listen(("127.0.0.1", 0), self._accept, limits)

    def _accept(self, connection: Connection) -> ConnectionHandler:
        self.handlers.append(RecordingHandler(connection, self._each))
        return self.handlers[-1]


def connect(harness: TransportHarness, address: Address, limits: Limits = LIMITS) -> RecordingHandler:
    """Return a connection that stands."""
    result: list[RecordingHandler | TransportError] = []

    def opened(outcome: Connection | TransportError) -> ConnectionHandler | None:
        if isinstance(outcome, TransportError):
            result.append(outcome)
            return None
        recorder = RecordingHandler(outcome)
        result.append(recorder)
        return recorder

    harness.transport.connect(address, opened, timeout_ms=5000, limits=limits)
    assert not result, "opened within the call"
    harness.run_until(lambda: bool(result))
    assert isinstance(result[0], RecordingHandler), result[0]
    return result[0]


def pair(
    harness: TransportHarness,
    each: Callable[[RecordingHandler, memoryview], None] | None = None,
    limits: Limits = LIMITS,
) -> tuple[RecordingHandler, RecordingHandler]:
    """Return a client's and a server's end; `limits` are the server's."""
    server = ServerSide(harness, each, limits)
    client = connect(harness, server.listener.address)
    harness.run_until(lambda: bool(server.handlers))
    server.listener.close()
    return client, server.handlers[0]


def _end_of_attempt(harness: TransportHarness, address: Address) -> list[TransportError | None]:
    """Connect; the list gets the error of the attempt, or the end of the connection (with TLS the first)."""
    ends: list[TransportError | None] = []

    class Ending(RecordingHandler):
        def on_closed(self, error: TransportError | None) -> None:
            ends.append(error)

    def opened(outcome: Connection | TransportError) -> ConnectionHandler | None:
        if isinstance(outcome, TransportError):
            ends.append(outcome)
            return None
        return Ending(outcome)

    harness.transport.connect(address, opened, timeout_ms=5000, limits=LIMITS)
    return ends


class TransportContract:
    """Inherit, and give a fixture `harness`."""

    many_connections = 1000
    """The number of connections that must leave nothing behind, a multiple of 50; an adapter with long handshakes may
    set it."""

    def test_a_frame_arrives_whole(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        client.connection.send([b"he", bytearray(b"ll"), memoryview(b"o"), b""])
        harness.run_until(lambda: bool(server.frames))
        assert server.frames == [b"hello"]

    def test_both_ends_know_each_other(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        assert client.connection.peer == server.connection.local
        assert client.connection.local == server.connection.peer
        assert client.connection.peer[0] == "127.0.0.1"

    def test_many_small_frames_keep_their_order(self, harness: TransportHarness) -> None:
        client, server = pair(harness, echo)
        sent = [b"%d" % number for number in range(5000)]
        for content in sent:
            client.connection.send([content])
        harness.run_until(lambda: len(client.frames) == len(sent))
        assert server.frames == sent
        assert client.frames == sent

    def test_bytes_received_and_sent_count_frames_with_their_lengths(self, harness: TransportHarness) -> None:
        client, server = pair(harness, echo)
        assert (server.connection.bytes_received, server.connection.bytes_sent) == (0, 0)
        sizes = [1, 300, 70_000, 400_000]
        for size in sizes:
            client.connection.send([bytes(size)])
        harness.run_until(lambda: len(client.frames) == len(sizes))
        total = sum(sizes) + 4 * len(sizes)
        for end in (client.connection, server.connection):
            assert (end.bytes_received, end.bytes_sent) == (total, total)

    @pytest.mark.parametrize("size", [65_530, 65_536, 262_139, 262_140, 262_141, 1_048_576, 5_000_003])
    def test_large_frames_arrive_whole(self, harness: TransportHarness, size: int) -> None:
        client, server = pair(harness, echo)
        content = random.Random(size).randbytes(size)
        for part in (b"before", content, b"between", content, b"after"):
            client.connection.send([part])
        harness.run_until(lambda: len(client.frames) == 5)
        assert server.frames == [b"before", content, b"between", content, b"after"]
        assert client.frames == server.frames

    def test_frames_of_mixed_sizes(self, harness: TransportHarness) -> None:
        client, server = pair(harness, echo)
        chance = random.Random(7)
        sent = [chance.randbytes(chance.choice((1, 3, 200, 5000, 70_000, 200_000, 400_000))) for _ in range(150)]
        for content in sent:
            client.connection.send([content])
        harness.run_until(lambda: len(client.frames) == len(sent))
        assert server.frames == sent
        assert client.frames == sent

    def test_a_frame_of_many_pieces(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        pieces = [bytes([number % 256]) * (number % 7) for number in range(3000)]
        client.connection.send(pieces)
        harness.run_until(lambda: bool(server.frames))
        assert server.frames == [b"".join(pieces)]

    @pytest.mark.parametrize("size", [1, 1000, 16_384, 16_385, 300_000, 9_000_001])
    def test_file_regions_go_out_between_buffers(self, harness: TransportHarness, size: int) -> None:
        client, server = pair(harness)
        content = random.Random(size).randbytes(size)
        pieces: list[Piece] = [
            b"head",
            harness.region(content),
            b"middle",
            harness.region(content[: size // 2]),
            b"tail",
        ]
        client.connection.send(pieces)
        client.connection.send([b"next"])
        harness.run_until(lambda: len(server.frames) == 2)
        assert server.frames == [b"head" + content + b"middle" + content[: size // 2] + b"tail", b"next"]

    @pytest.mark.parametrize("size", [1, 16_385, 3_000_000])
    def test_regions_without_a_file_go_out_too(self, harness: TransportHarness, size: int) -> None:
        client, server = pair(harness)
        content = random.Random(size).randbytes(size)
        client.connection.send([b"head", Bytes(content), b"", Bytes(b""), b"tail"])
        harness.run_until(lambda: bool(server.frames))
        assert server.frames == [b"head" + content + b"tail"]

    @pytest.mark.parametrize("size", [100, 2_000_000])
    def test_a_region_that_became_shorter_closes_the_connection(self, harness: TransportHarness, size: int) -> None:
        client, server = pair(harness)
        client.connection.send([b"head", Bytes(b"x" * (size // 2), size)])
        harness.run_until(lambda: bool(server.ends) and bool(client.ends))
        assert server.frames == []
        assert isinstance(client.ends[0], TransportError)
        assert len(harness.reports) == 1

    def test_the_memory_of_a_frame_may_be_changed(self, harness: TransportHarness) -> None:
        def each(recorder: RecordingHandler, content: memoryview) -> None:
            content[0:1] = b"X"
            recorder.connection.send([bytes(content)])

        client, _ = pair(harness, each)
        for size in (5, 100_000):
            client.connection.send([b"a" * size])
        harness.run_until(lambda: len(client.frames) == 2)
        assert client.frames == [b"X" + b"a" * 4, b"X" + b"a" * 99_999]

    # --- pause and resume

    def test_a_pause_takes_effect_at_once(self, harness: TransportHarness) -> None:
        client, server = pair(harness, lambda recorder, _content: recorder.connection.pause())
        for number in range(10):
            client.connection.send([b"%d" % number])
        for seen in range(1, 11):
            harness.run_until(partial(has_frames, server, seen))
            harness.pass_ms(2)
            assert len(server.frames) == seen
            server.connection.resume()
            assert len(server.frames) == seen, "delivered within resume"
        assert server.frames == [b"%d" % number for number in range(10)]

    def test_large_frames_wait_while_paused(self, harness: TransportHarness) -> None:
        client, server = pair(harness, lambda recorder, _content: recorder.connection.pause())
        sent = [bytes([number]) * size for number, size in enumerate((10, 300_000, 20, 1_500_000, 100_000, 30))]
        for content in sent:
            client.connection.send([content])
        for seen in range(1, 7):
            harness.run_until(partial(has_frames, server, seen))
            server.connection.resume()
        assert server.frames == sent

    def test_a_pause_within_a_frame_that_ends_in_it_holds_nothing_up(self, harness: TransportHarness) -> None:
        def each(recorder: RecordingHandler, content: memoryview) -> None:
            recorder.connection.pause()
            echo(recorder, content)
            recorder.connection.resume()

        client, _ = pair(harness, each)
        for number in range(100):
            client.connection.send([b"%d" % number])
        harness.run_until(lambda: len(client.frames) == 100)

    def test_a_paused_connection_still_sends(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        server.connection.pause()
        server.connection.send([b"news"])
        harness.run_until(lambda: bool(client.frames))
        assert client.frames == [b"news"]

    def test_reading_stops_while_too_much_is_unsent(self, harness: TransportHarness) -> None:
        limits = Limits(held_bytes_max=1_000_000)
        answer = b"a" * 400_000
        client, server = pair(harness, lambda recorder, _content: recorder.connection.send([answer]), limits)
        client.connection.pause()
        for _ in range(200):
            client.connection.send([b"q"])
        harness.run_until(lambda: server.connection.unsent_bytes > 1_000_000)
        harness.pass_ms(20)
        assert server.connection.unsent_bytes <= 1_000_000 + len(answer) + 4
        assert len(server.frames) < 200
        client.connection.resume()
        harness.run_until(lambda: len(client.frames) == 200)
        assert server.connection.unsent_bytes == 0

    def test_frames_that_came_together_keep_no_other_connection_waiting(self, harness: TransportHarness) -> None:
        order: list[bytes] = []

        def each(_recorder: RecordingHandler, content: memoryview) -> None:
            order.append(bytes(content))
            until = monotonic() + 0.001
            while b"other" not in order and monotonic() < until:
                pass

        server = ServerSide(harness, each)
        first, second = (connect(harness, server.listener.address) for _ in range(2))
        harness.run_until(lambda: len(server.handlers) == 2)
        for handler in server.handlers:
            handler.connection.pause()
        for _ in range(500):
            first.connection.send([b"one of many"])
        second.connection.send([b"other"])
        harness.pass_ms(50)
        for handler in server.handlers:
            handler.connection.resume()
        harness.run_until(lambda: len(order) == 501)
        assert order.index(b"other") < 100

    def test_what_the_handler_keeps_counts_as_unsent(self, harness: TransportHarness) -> None:
        client, server = pair(
            harness, lambda recorder, _: recorder.connection.add_held_bytes(400), Limits(held_bytes_max=1000)
        )
        for _ in range(10):
            client.connection.send([b"q"])
        harness.run_until(lambda: len(server.frames) == 3)
        harness.pass_ms(5)
        assert len(server.frames) == 3
        server.connection.add_held_bytes(-400)
        harness.run_until(lambda: len(server.frames) == 4)
        server.connection.add_held_bytes(-1200)
        assert len(server.frames) == 4, "delivered within keep"
        harness.run_until(lambda: len(server.frames) == 7)

    def test_regions_take_no_memory_but_their_number_is_bounded(self, harness: TransportHarness) -> None:
        region = harness.region(bytes(3_000_000))
        limits = Limits(held_bytes_max=1_000_000, unsent_regions_max=5)
        client, server = pair(harness, lambda recorder, _content: recorder.connection.send([region]), limits)
        client.connection.pause()
        for _ in range(50):
            client.connection.send([b"q"])
        harness.run_until(lambda: server.connection.unsent_bytes > 12_000_000)
        harness.pass_ms(20)
        assert 5 < len(server.frames) < 20
        client.connection.resume()
        harness.run_until(lambda: len(client.frames) == 50)

    def test_too_much_in_memory_altogether_stops_those_who_have_most_of_it(self, harness: TransportHarness) -> None:
        def each(recorder: RecordingHandler, content: memoryview) -> None:
            recorder.connection.send([bytes(700_000) if bytes(content) == b"much" else b"little"])

        server = ServerSide(harness, each, Limits(held_bytes_max=100_000_000, all_held_bytes_max=4_000_000))
        hogs = [connect(harness, server.listener.address) for _ in range(3)]
        modest = connect(harness, server.listener.address)
        for hog in hogs:
            hog.connection.pause()
            for _ in range(60):
                hog.connection.send([b"much"])
        harness.run_until(lambda: sum(each.connection.unsent_bytes for each in server.handlers) > 4_000_000)
        for turn in range(50):
            modest.connection.send([b"question"])
            harness.run_until(partial(has_frames, modest, turn + 1))
        held = [handler.connection.unsent_bytes for handler in server.handlers if handler.connection.unsent_bytes]
        assert len(held) == 3
        assert sum(held) < 4_000_000 + 3 * 1_048_576 + 3 * 700_004  # TCP gathers a megabyte before it looks
        assert min(held) > 0.2 * max(held)
        for hog in hogs:
            hog.connection.resume()
        harness.run_until(lambda: all(len(hog.frames) == 60 for hog in hogs))

    def test_nothing_is_unsent_in_the_end(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        client.connection.send([b"x" * 3_000_000])
        assert client.connection.unsent_bytes <= 3_000_004
        harness.run_until(lambda: bool(server.frames))
        assert client.connection.unsent_bytes == 0

    # --- ends

    def test_closing_notifies_both_ends_once(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        client.connection.close()
        assert client.ends == [], "called within close"
        client.connection.close()
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        harness.pass_ms(5)
        assert client.ends == [None]
        assert server.ends == [None]
        assert harness.reports == []

    def test_what_was_sent_before_the_close_arrives(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        content = random.Random(1).randbytes(8_000_000)
        client.connection.send([content])
        client.connection.send([harness.region(content)])
        client.connection.close()
        client.connection.send([b"too late"])
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        assert server.frames == [content, content]
        assert (client.ends, server.ends) == ([None], [None])

    def test_an_answer_before_the_close_arrives_though_more_was_asked(self, harness: TransportHarness) -> None:
        def each(recorder: RecordingHandler, content: memoryview) -> None:
            recorder.connection.send([b"no"])
            recorder.connection.close("that is enough")

        client, server = pair(harness, each)
        for _ in range(100):
            client.connection.send([b"question"])
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        assert len(server.frames) == 1
        assert client.frames == [b"no"]
        assert len(harness.reports) == 1 and "that is enough" in harness.reports[0]

    def test_a_close_with_a_peer_that_reads_nothing_yet(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        client.connection.pause()
        server.connection.send([b"y" * 12_000_000])
        server.connection.close()
        harness.pass_ms(10)
        client.connection.resume()
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        assert [len(content) for content in client.frames] == [12_000_000]

    def test_calls_on_a_closed_connection_do_nothing(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        client.connection.close()
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        for end in (client, server):
            end.connection.send([b"x", Bytes(b"y")])
            end.connection.pause()
            end.connection.resume()
            end.connection.close()
            assert end.connection.unsent_bytes == 0
        harness.pass_ms(2)
        assert len(client.ends) == len(server.ends) == 1

    def test_a_handler_that_raises_costs_its_connection_only(self, harness: TransportHarness) -> None:
        def each(recorder: RecordingHandler, content: memoryview) -> None:
            if bytes(content) == b"bad":
                raise RuntimeError("cannot")
            echo(recorder, content)

        server = ServerSide(harness, each)
        first, second = (connect(harness, server.listener.address) for _ in range(2))
        first.connection.send([b"bad"])
        first.connection.send([b"good"])
        harness.run_until(lambda: bool(first.ends))
        second.connection.send([b"good"])
        harness.run_until(lambda: bool(second.frames))
        assert first.frames == []
        harness.run_until(lambda: any(handler.ends for handler in server.handlers))
        ends = [end for handler in server.handlers for end in handler.ends]
        assert len(ends) == 1 and isinstance(ends[0], TransportError)
        assert len(harness.reports) == 1 and "RuntimeError" in harness.reports[0] and "cannot" in harness.reports[0]

    def test_an_accept_that_raises_costs_its_connection_only(self, harness: TransportHarness) -> None:
        def accept(connection: Connection) -> ConnectionHandler:
            raise RuntimeError("no room")

        listener = harness.transport.listen(("127.0.0.1", 0), accept, LIMITS)
        client = connect(harness, listener.address)
        harness.run_until(lambda: bool(client.ends))
        assert len(harness.reports) == 1 and "no room" in harness.reports[0]

    def test_too_long_a_frame_closes_the_connection(self, harness: TransportHarness) -> None:
        client, server = pair(harness, limits=Limits(frame_bytes_max=1000))
        client.connection.send([b"x" * 1000])
        client.connection.send([b"x" * 1001])
        client.connection.send([b"x"])
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        assert server.frames == [b"x" * 1000]
        assert isinstance(server.ends[0], TransportError)
        assert len(harness.reports) == 1 and "1001" in harness.reports[0]

    def test_an_empty_frame_closes_the_connection(self, harness: TransportHarness) -> None:
        client, server = pair(harness)
        client.connection.send([])
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        assert server.frames == []
        assert len(harness.reports) == 1

    def test_an_idle_connection_is_closed(self, harness: TransportHarness) -> None:
        for idle_ms in (60, 600, 6000):  # a busy machine may stand still for longer, and the connection is idle
            client, server = pair(harness, echo, Limits(idle_ms=idle_ms))
            for _ in range(3):
                harness.pass_ms(idle_ms * 0.4)
                client.connection.send([b"still here"])
            harness.run_until(partial(_has_frames_or_end, client, 3))
            if not server.ends:
                break
        assert (len(client.frames), server.ends) == (3, [])
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))
        assert (client.ends, server.ends) == ([None], [None])

    def test_a_paused_connection_is_not_idle(self, harness: TransportHarness) -> None:
        client, server = pair(harness, limits=Limits(idle_ms=20))
        server.connection.pause()
        harness.pass_ms(80)
        assert server.ends == []
        server.connection.resume()
        harness.run_until(lambda: bool(client.ends) and bool(server.ends))

    # --- listening and connecting

    def test_a_port_in_use_is_a_clear_error(self, harness: TransportHarness) -> None:
        server = ServerSide(harness)
        host, port = server.listener.address
        assert port > 0
        with pytest.raises(TransportError, match=f"{port}.*in use"):
            harness.transport.listen((host, port), lambda _connection: pytest.fail("accepted"), LIMITS)
        server.listener.close()
        again = harness.transport.listen((host, port), lambda _connection: pytest.fail("accepted"), LIMITS)
        assert again.address == (host, port)
        again.close()
        again.close()

    def test_connect_without_listener_fails(self, harness: TransportHarness) -> None:
        server = ServerSide(harness)
        address = server.listener.address
        server.listener.close()
        outcomes: list[Connection | TransportError] = []
        harness.transport.connect(address, outcomes.append, timeout_ms=5000, limits=LIMITS)
        assert outcomes == []
        harness.run_until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], TransportError)
        assert str(address[1]) in str(outcomes[0])

    def test_a_closed_listener_leaves_its_connections(self, harness: TransportHarness) -> None:
        server = ServerSide(harness, echo)
        client = connect(harness, server.listener.address)
        harness.run_until(lambda: bool(server.handlers))
        server.listener.close()
        client.connection.send([b"still there?"])
        harness.run_until(lambda: bool(client.frames))

    def test_connections_beyond_the_limit_are_closed_with_one_line(self, harness: TransportHarness) -> None:
        server = ServerSide(harness, echo, Limits(connections_max=2))
        connections = [connect(harness, server.listener.address) for _ in range(2)]
        harness.run_until(lambda: len(server.handlers) == 2)
        ends = [_end_of_attempt(harness, server.listener.address) for _ in range(3)]
        harness.run_until(lambda: all(ends))
        assert len(server.handlers) == 2
        assert len(harness.reports) == 1 and "2 " in harness.reports[0]
        connections[0].connection.close()
        harness.run_until(lambda: bool(server.handlers[0].ends) or bool(server.handlers[1].ends))
        late = connect(harness, server.listener.address)
        late.connection.send([b"hello"])
        harness.run_until(lambda: bool(late.frames))

    def test_no_handler_for_an_opened_connection_closes_it(self, harness: TransportHarness) -> None:
        server = ServerSide(harness)
        harness.transport.connect(server.listener.address, lambda _outcome: None, timeout_ms=5000, limits=LIMITS)
        harness.run_until(lambda: bool(server.handlers) and bool(server.handlers[0].ends))

    def test_many_connections_leave_nothing_behind(self, harness: TransportHarness) -> None:
        server = ServerSide(harness, echo)
        before = harness.open_things()
        for _ in range(self.many_connections // 50):
            clients = [connect(harness, server.listener.address) for _ in range(50)]
            for client in clients:
                client.connection.send([b"hello"])
            harness.run_until(partial(all_have_frames, clients))
            for number, client in enumerate(clients):
                (client if number % 2 else server.handlers[number - 50]).connection.close()
            harness.run_until(partial(all_ended, clients))
        harness.run_until(lambda: all(handler.ends for handler in server.handlers))
        assert len(server.handlers) == self.many_connections
        assert harness.open_things() == before
        assert harness.reports == []
