"""The network of the chaos runs: it forwards, and it cuts what it is told to."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from chaos.switchboard import CLIENT, Switchboard
from support.waiting import wait_for


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
    made = Switchboard(lambda: {"me": os.getpid()})
    yield made
    made.close()


def _says(connection: socket.socket, patience_s: float) -> bytes:
    connection.settimeout(patience_s)
    try:
        return connection.recv(1000)
    except TimeoutError:
        return b"(nothing)"


def test_what_is_cut_one_way_flows_on_when_it_is_healed(board: Switchboard, echo: tuple[str, int]) -> None:
    port = board.open("server", echo)  # who calls is found out: this process
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"one")
        assert _says(caller, 5) == b"one"
        for pair in (("me", "server"), ("server", "me")):
            board.cut([pair])
            caller.sendall(b"two")
            assert _says(caller, 0.2) == b"(nothing)"
            board.heal()
            assert _says(caller, 5) == b"two"
        board.cut([(CLIENT, "server")])
        caller.sendall(b"three")
        assert _says(caller, 5) == b"three"


def test_a_reset_breaks_what_there_is_and_what_comes(board: Switchboard, echo: tuple[str, int]) -> None:
    port = board.open("server", echo, "a")
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"one")
        assert _says(caller, 5) == b"one"
        board.cut([("a", "server"), ("server", "a")], reset=True)
        assert _says(caller, 5) == b""
    with socket.create_connection(("127.0.0.1", port)) as caller:
        assert _says(caller, 5) == b""
    board.heal()
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"one")
        assert _says(caller, 5) == b"one"


def test_who_does_not_read_holds_up_nobody_else(board: Switchboard) -> None:
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
