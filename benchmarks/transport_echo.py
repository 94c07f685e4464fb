"""Cost of the transport over the bare system calls: round trips of small frames, and 1 MB file regions.

The client is a process of its own: this file again.
"""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from harness import Result

from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.ports.transport import Connection, Limits, TransportError
from barnabas.ports.types import Position

REGION_BYTES = 1_048_576
FRAME = struct.pack(">i", 250) + b"x" * 250
LIMITS = Limits()
SECONDS = 1.5


class FileRegion:
    """1 MB of a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = REGION_BYTES
        self.position = Position(0)

    def fileno(self) -> int:
        return self._descriptor

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        return os.pread(self._descriptor, self.size - start if size is None else size, start)


class Echo:
    """Answers a frame with as many bytes; one that begins with 'R' with a region."""

    def __init__(self, connection: Connection, region: FileRegion) -> None:
        self._connection = connection
        self._region = region

    def on_frame(self, content: memoryview) -> None:
        if content[0] == 82:
            self._connection.send([b"head" * 10, self._region])
        else:
            self._connection.send([b"y" * 50])

    def on_closed(self, error: TransportError | None) -> None: ...


def serve(descriptor: int) -> tuple[Reactor, threading.Thread, int]:
    """Return the transport under test, in a thread of its own."""
    reactor = Reactor(print)
    region = FileRegion(descriptor)
    listener = TcpTransport(reactor, print).listen(
        ("127.0.0.1", 0), lambda connection: Echo(connection, region), LIMITS
    )
    thread = threading.Thread(target=reactor.run)
    thread.start()
    return reactor, thread, listener.address[1]


def serve_raw(descriptor: int) -> tuple[socket.socket, int]:
    """Serve the same file over bare sockets: read a request, sendmsg a head, sendfile."""
    listening = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        sock = listening.accept()[0]
        with sock:
            while sock.recv(4096):
                sock.sendmsg([struct.pack(">i", REGION_BYTES + 40), b"head" * 10], (), socket.MSG_MORE)
                sent = 0
                while sent < REGION_BYTES:
                    sent += os.sendfile(sock.fileno(), descriptor, sent, REGION_BYTES - sent)

    threading.Thread(target=work, daemon=True).start()
    return listening, listening.getsockname()[1]


def drive(port: int, kind: str, seconds: float) -> None:
    """The client: prints answers per second."""
    request = struct.pack(">i", 1) + b"R" if kind == "region" else FRAME
    depth = 1 if kind in ("region", "single") else 64
    answer_bytes = REGION_BYTES + 44 if kind == "region" else 54
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(4_194_304))
    burst, wanted = request * depth, answer_bytes * depth
    answers, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        sock.sendall(burst)
        got = 0
        while got < wanted:
            got += sock.recv_into(buffer)
        answers += depth
    print(answers / (now - start))


def _ask(port: int, kind: str) -> tuple[float, float]:
    """(answers per second, this process's CPU microseconds per answer)."""
    before = time.process_time()
    command = [sys.executable, __file__, str(port), kind, str(SECONDS)]
    rate = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return rate, (time.process_time() - before) / (rate * SECONDS) * 1e6


def measure() -> list[Result]:
    """Round trips as such, regions against the bare calls."""
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(REGION_BYTES))
        file.flush()
        reactor, thread, port = serve(file.fileno())
        listening, raw_port = serve_raw(file.fileno())
        single, single_us = _ask(port, "single")
        many, many_us = _ask(port, "pipelined")
        regions, regions_us = _ask(port, "region")
        bare, bare_us = _ask(raw_port, "region")
        listening.close()
        reactor.stop()
        thread.join()
    return [
        Result("transport: round trips, one at a time", single, "/s", details={"us of CPU": single_us}),
        Result("transport: round trips, 64 at a time", many, "/s", details={"us of CPU": many_us}),
        Result(
            "transport: 1 MB regions / bare sendfile",
            regions / bare,
            details={"per s": regions, "us of CPU": regions_us, "bare us": bare_us},
        ),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drive(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    else:
        for result in measure():
            print(result)
