"""Pages of files go to sockets through a pipe; what a socket does not take comes from the file later."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.adapters.transport_tcp import outbound
from barnabas.adapters.transport_tcp.outbound import Outbound, PagePipe
from barnabas.ports.transport import Piece, TransportError
from barnabas.ports.types import Position

pytestmark = pytest.mark.skipif(not hasattr(os, "splice"), reason="only Linux has splice")

MB = 1_048_576
CONTENT = os.urandom(4 * MB + 12_345)
Pair = tuple[socket.socket, socket.socket]


class FilePart:
    """A region of an open file."""

    def __init__(self, descriptor: int, position: int, size: int) -> None:
        self.descriptor, self.position, self.size = descriptor, Position(position), size

    def fileno(self) -> int:
        return self.descriptor

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        wanted = self.size - start if size is None else min(size, self.size - start)
        return os.pread(self.descriptor, wanted, self.position + start)


@contextmanager
def connected() -> Iterator[Pair]:
    """A sending socket that does not block, and one that receives."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as receiver,
        server.accept()[0] as sender,
    ):
        sender.setblocking(False)
        receiver.settimeout(10)
        yield sender, receiver


@pytest.fixture
def pair() -> Iterator[Pair]:
    with connected() as pair:
        yield pair


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def received(receiver: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        content += receiver.recv(size - len(content))
    return bytes(content)


def send_all(queue: Outbound, pair: Pair, size: int) -> bytes:
    """Send the queue; the receiver takes something only when the socket is full."""
    sender, receiver = pair
    content = b""
    while not queue.flush(sender):
        content += received(receiver, 50_000)
    return content + received(receiver, size - len(content))


@pytest.mark.parametrize("position", [0, 1, 4095, 70_000])
@pytest.mark.parametrize("size", [outbound._SPLICE_BYTES - 1, outbound._SPLICE_BYTES, MB, MB + 1, 3 * MB])
def test_regions_arrive_between_buffers(pair: Pair, file: int, position: int, size: int) -> None:
    pipe = PagePipe()
    queue = Outbound(pipe)
    pieces: list[Piece] = [b"head", FilePart(file, position, size), b"between", FilePart(file, 0, size), b"tail"]
    queue.add(pieces)
    total = queue.unsent_bytes
    content = CONTENT[position : position + size]
    expected = (total - 4).to_bytes(4, "big") + b"head" + content + b"between" + CONTENT[:size] + b"tail"
    assert send_all(queue, pair, total) == expected
    assert (queue.unsent_bytes, queue.region_bytes, queue.regions) == (0, 0, 0)
    pipe.close()


def test_full_socket_leaves_nothing_in_the_pipe_for_another(pair: Pair, file: int) -> None:
    sender, _ = pair
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
    pipe = PagePipe()
    slow = Outbound(pipe)
    slow.add([FilePart(file, 0, 3 * MB)])
    total = slow.unsent_bytes
    assert not slow.flush(sender)
    assert 0 < slow.unsent_bytes < total
    assert not pipe.is_open
    with connected() as other:
        quick = Outbound(pipe)
        quick.add([FilePart(file, 77, MB)])
        assert send_all(quick, other, MB + 4)[4:] == CONTENT[77 : 77 + MB]
    assert send_all(slow, pair, total)[4:] == CONTENT[: 3 * MB]
    pipe.close()


def test_without_a_pipe_of_that_size_regions_go_out_all_the_same(
    pair: Pair, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> int:
        raise PermissionError("no further pages in pipes")

    monkeypatch.setattr(outbound, "fcntl", refused)
    pipe = PagePipe()
    before = open_descriptors()
    queue = Outbound(pipe)
    queue.add([FilePart(file, 5, 2 * MB)])
    assert send_all(queue, pair, 2 * MB + 4)[4:] == CONTENT[5 : 5 + 2 * MB]
    assert not pipe.is_open
    assert open_descriptors() == before


def test_file_that_was_truncated_is_an_error(pair: Pair, file: int) -> None:
    queue = Outbound(PagePipe())
    queue.add([FilePart(file, 0, 3 * MB)])
    os.ftruncate(file, MB)
    sender, receiver = pair
    with pytest.raises(TransportError, match="its file was truncated"):
        while not queue.flush(sender):
            received(receiver, 50_000)


def test_pipe_is_closed_with_its_object(pair: Pair, file: int) -> None:
    before = open_descriptors()
    queue = Outbound(PagePipe())
    queue.add([FilePart(file, 0, MB)])
    send_all(queue, pair, MB + 4)
    assert open_descriptors() == before + 2
    del queue
    assert open_descriptors() == before
