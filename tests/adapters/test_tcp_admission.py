"""Limits of connections on real sockets: waiting ones are served later, refused ones are closed."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import PATIENCE_S

from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.app.background import ReactorThread
from barnabas.ports.transport import Connection, ConnectionHandler, Limits


class Echo:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def on_frame(self, content: memoryview) -> None:
        self.connection.send([bytes(content)])

    def on_closed(self, error: Any) -> None: ...


class Scripted:
    """An admission that the test controls."""

    def __init__(self) -> None:
        self.waits = False
        self.delay_ms: float | None = None
        self.resumes: list[Callable[[], None]] = []
        self.open: list[str] = []

    def must_wait(self, resume: Callable[[], None]) -> bool:
        if self.waits:
            self.resumes.append(resume)
        return self.waits

    def admit(self, host: str) -> float | None:
        if self.delay_ms is None:
            self.open.append(host)
        return self.delay_ms

    def release(self, host: str) -> None:
        self.open.remove(host)

    def on_handshake_failed(self) -> None: ...


class Harness:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.admission = Scripted()
        self.reactor = Reactor(self.lines.append, workers=1)
        self.thread = ReactorThread(self.reactor, "admission")
        transport = TcpTransport(self.reactor, self.lines.append)

        def accept(connection: Connection) -> ConnectionHandler:
            return Echo(connection)

        self.listener = transport.listen(("127.0.0.1", 0), accept, Limits(admission=self.admission))
        self.thread.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.address, timeout=PATIENCE_S)


def exchanged(sock: socket.socket) -> bool:
    sock.sendall(b"\x00\x00\x00\x02hi")
    return sock.recv(6) == b"\x00\x00\x00\x02hi"


@pytest.fixture
def harness() -> Any:
    made = Harness()
    yield made
    made.thread.stop()


def test_connection_that_waits_is_served_when_there_is_room(harness: Harness) -> None:
    harness.admission.waits = True
    with harness.connect() as sock:
        sock.sendall(b"\x00\x00\x00\x02hi")
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        harness.admission.waits = False
        harness.reactor.call_soon(harness.admission.resumes.pop())
        sock.settimeout(PATIENCE_S)
        assert sock.recv(6) == b"\x00\x00\x00\x02hi"
    assert any("max.connections" in line for line in harness.lines)


@pytest.mark.parametrize("delay_ms", [0.0, 30.0])
def test_refused_connection_is_closed_and_not_counted(harness: Harness, delay_ms: float) -> None:
    harness.admission.delay_ms = delay_ms
    with harness.connect() as sock:
        assert sock.recv(1) == b""
    assert harness.admission.open == []
    harness.admission.delay_ms = None
    with harness.connect() as sock:
        assert exchanged(sock)
        assert harness.admission.open == ["127.0.0.1"]
