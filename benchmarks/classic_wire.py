"""Helpers of the two experiments of the 2011 paper: requests of the classic wire as bytes, and bare loopback servers.

The messages are the paper's: 200 bytes. The broker is a process of its own with a `classic://` listener and real files;
it makes durable every 10,000 messages or every second in the background, since the paper's flushed asynchronously too.
"""

import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import MESSAGE_BYTES, BareClient

TOPIC = "bench"
BATCH_SIZES = (1, 50, 1000)
FLUSHING = ("log.flush.interval=10000", "log.default.flush.interval.ms=1000")
MB = 1e6

_LATEST = -1

# Takes 8 bytes that say how many follow, takes those, answers with 4 zero bytes; again and again.
_SINK = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
buffer = memoryview(bytearray(262144))
while head := connection.recv(8, socket.MSG_WAITALL):
    left = int.from_bytes(head, "big")
    while left:
        left -= connection.recv_into(buffer, min(left, len(buffer)))
    connection.sendall(bytes(4))
"""

# Answers each request of the classic Fetch with its length before it and the bytes of the file from its offset on.
_SOURCE = """
import os, socket, struct, sys
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while request := connection.recv(4096):
    at, wanted = struct.unpack(">qi", request[-12:])
    end = min(size, at + wanted)
    connection.sendmsg([struct.pack(">ih", 2 + end - at, 0)], (), socket.MSG_MORE)
    while at < end:
        at += os.sendfile(connection.fileno(), file, at, end - at)
"""


@contextmanager
def _bare_server(script: str, *arguments: str) -> Iterator[BareClient]:
    command = [sys.executable, "-c", script, *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        client = BareClient("127.0.0.1", int(server.stdout.readline()))
        try:
            yield client
        finally:
            client.close()
    finally:
        server.kill()
        server.wait()


@contextmanager
def bare_sink() -> Iterator[BareClient]:
    """A client of a server that takes bytes and does nothing with them."""
    with _bare_server(_SINK) as client:
        yield client


@contextmanager
def bare_source(path: Path) -> Iterator[BareClient]:
    """A client of a server that answers `fetch_frame` with `os.sendfile` of one file, and does nothing else."""
    with _bare_server(_SOURCE, str(path)) as client:
        yield client


def payloads(count: int) -> list[bytes]:
    """Return `count` different messages."""
    return [(b"%d " % number).ljust(MESSAGE_BYTES, b"v") for number in range(count)]


def produce_frame(records: bytes, topic: str = TOPIC, partition: int = 0) -> bytes:
    return _frame(0, topic, struct.pack(">ii", partition, len(records)) + records)


def fetch_frame(offset: int, max_bytes: int, topic: str = TOPIC, partition: int = 0) -> bytes:
    return _frame(1, topic, struct.pack(">iqi", partition, offset, max_bytes))


def log_end(client: BareClient, topic: str = TOPIC) -> int:
    """Return the offset where readers stop now. The broker answers in order: everything before has been handled."""
    answer = client.exchange(_frame(4, topic, struct.pack(">iqi", 0, _LATEST, 1)))
    error, _count, end = struct.unpack(">hiq", answer)
    if error:
        raise RuntimeError(f"the broker answers with error {error}")
    return int(end)


def records_of(answer: memoryview) -> memoryview:
    """Return the message set of the answer to `fetch_frame`."""
    (error,) = struct.unpack_from(">h", answer)
    if error:
        raise RuntimeError(f"fetch failed with error {error}")
    return answer[2:]


def _frame(request_id: int, topic: str, rest: bytes) -> bytes:
    name = topic.encode()
    content = struct.pack(">hh", request_id, len(name)) + name + rest
    return struct.pack(">i", len(content)) + content
