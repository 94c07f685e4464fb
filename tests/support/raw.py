"""Requests as raw bytes, for saying to a broker what no client would say."""

import socket
import struct
from types import TracebackType
from typing import Self

from support.waiting import PATIENCE_S


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 7) -> bytes:
    content = struct.pack(">hhih", api_key, version, correlation_id, -1) + body
    return struct.pack(">i", len(content)) + content


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def produce_v3(topic: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = 1) -> bytes:
    body = struct.pack(">hhii", -1, acks, 1000, 1) + text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    return frame(0, 3, body)


def produce_error(answer: bytes, topic: str) -> int:
    """Return the error code of a Produce v3 answer about one partition."""
    at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    return int(struct.unpack_from(">h", answer, at)[0])


def fetch_v4(topic: str, offset: int, *, partition: int = 0, max_bytes: int = 1 << 20, max_wait_ms: int = 0) -> bytes:
    body = struct.pack(">iiiibi", -1, max_wait_ms, 1, 1 << 24, 0, 1) + text(topic)
    return frame(1, 4, body + struct.pack(">iiqi", 1, partition, offset, max_bytes))


def fetch_error_and_records(answer: bytes, topic: str) -> tuple[int, bytes]:
    """(error code, record bytes) of a Fetch v4 answer about one partition."""
    at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    error, _, _, aborted = struct.unpack_from(">hqqi", answer, at)
    at += 22 + max(0, aborted) * 16
    size = struct.unpack_from(">i", answer, at)[0]
    return int(error), answer[at + 4 : at + 4 + max(0, size)]


class RawConnection:
    """A socket to a broker."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> bytes:
        """Return one frame without its length. Raises `ConnectionError` when the broker closes instead."""
        return self._read(int.from_bytes(self._read(4), "big"))

    def exchange(self, data: bytes) -> bytes:
        self.send(data)
        return self.answer()

    def closed_by_broker(self) -> bool:
        """Return True when the broker closes without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the broker")
            data += more
        return bytes(data)
