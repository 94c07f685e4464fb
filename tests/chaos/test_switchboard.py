"""The network of the chaos runs: it forwards, and cuts the connections that a fault names."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from chaos.switchboard import CLIENT, UNKNOWN, Switchboard, SwitchboardProcess, sender_of
from support.waiting import PATIENCE_S, wait_for


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    connection.sendall(data)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def board() -> Iterator[Switchboard]:
    made = Switchboard()
    yield made
    made.close()


def _request(client_id: bytes) -> bytes:
    """Return the beginning of a Kafka request, as ApiVersions has it."""
    header = struct.pack(">hhih", 18, 3, 7, len(client_id)) + client_id
    return struct.pack(">i", len(header)) + header


def _says(connection: socket.socket, patience_s: float) -> bytes:
    connection.settimeout(patience_s)
    try:
        return connection.recv(1000)
    except TimeoutError:
        return b"(nothing)"


def test_traffic_cut_one_way_continues_when_healed(board: Switchboard, echo: tuple[str, int]) -> None:
    port = board.open("server", echo)  # the first request says who calls
    first = _request(b"broker-1-fetcher")
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(first[:3])
        assert _says(caller, 0.2) == b"(nothing)"
        caller.sendall(first[3:])
        assert _says(caller, PATIENCE_S) == first
        for pair in (("broker-1", "server"), ("server", "broker-1")):
            board.cut([pair])
            caller.sendall(b"two")
            assert _says(caller, 0.2) == b"(nothing)"
            board.heal()
            assert _says(caller, PATIENCE_S) == b"two"
        board.cut([(CLIENT, "server"), ("broker-2", "server")])
        caller.sendall(b"three")
        assert _says(caller, PATIENCE_S) == b"three"


def test_connections_of_a_reset_pair_are_closed_once_they_say_who_they_are(
    board: Switchboard, echo: tuple[str, int]
) -> None:
    port = board.open("server", echo)
    board.cut([("broker-1", "server")], reset=True)
    for client_id, answered in ((b"broker-1-fetcher", False), (b"broker-2-fetcher", True)):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(_request(client_id))
            assert _says(caller, PATIENCE_S) == (_request(client_id) if answered else b"")


def test_connections_that_end_before_they_say_who_they_are_end_on_the_other_side(
    board: Switchboard, echo: tuple[str, int]
) -> None:
    port = board.open("server", echo)
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"\0\0")
        caller.shutdown(socket.SHUT_WR)
        assert _says(caller, PATIENCE_S) == b""


def test_senders_are_known_by_the_client_id_of_their_first_request() -> None:
    request = _request(b"broker-12-coordinator")
    assert sender_of(request) == "broker-12"
    assert sender_of(request + b"more") == "broker-12"
    assert {sender_of(request[:size]) for size in range(len(request))} == {UNKNOWN}
    for client_id in (b"", b"rdkafka", b"broker-", b"broker-x-y", b"a-broker-1-y"):
        assert sender_of(_request(client_id)) == CLIENT
    assert sender_of(struct.pack(">ihhih", 10, 18, 3, 7, -1)) == CLIENT  # none


def test_a_switchboard_in_its_own_process_forwards_and_cuts(echo: tuple[str, int]) -> None:
    board = SwitchboardProcess()
    try:
        port = board.open("server", echo, "a")
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"one")
            assert _says(caller, PATIENCE_S) == b"one"
            board.cut([("a", "server")], reset=True)
            assert _says(caller, PATIENCE_S) == b""
        board.heal()
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"two")
            assert _says(caller, PATIENCE_S) == b"two"
    finally:
        board.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_reset_breaks_what_there_is_and_what_comes(board: Switchboard, echo: tuple[str, int]) -> None:
    port = board.open("server", echo, "a")
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"one")
        assert _says(caller, PATIENCE_S) == b"one"
        board.cut([("a", "server"), ("server", "a")], reset=True)
        assert _says(caller, PATIENCE_S) == b""
    with socket.create_connection(("127.0.0.1", port)) as caller:
        assert _says(caller, PATIENCE_S) == b""
    board.heal()
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"one")
        assert _says(caller, PATIENCE_S) == b"one"


def test_peer_that_does_not_read_does_not_block_switchboard(board: Switchboard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = board.open("deaf", deaf.getsockname(), "a")
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.setblocking(False)
            sent = 0

            def stuck() -> bool:
                nonlocal sent
                try:
                    sent += caller.send(bytes(100_000))
                except BlockingIOError:
                    return True
                return False

            wait_for(stuck)
            board.heal()  # it still obeys
