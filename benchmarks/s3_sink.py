"""An S3 server that throws large bodies away, so that its own CPU is no part of what a client's uploads cost.

The kernel drops the bytes of bodies over 1 MB (`MSG_TRUNC`); smaller objects, such as manifests, are stored. It knows
what tiered storage sends: PUT with conditions, multipart uploads, GET, HEAD, DELETE and listings, signatures unread.
"""

import hashlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from urllib.parse import parse_qs, unquote, urlsplit

MB = 1 << 20
DISCARD_BYTES = 1 * MB
ANSWER = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed"}
XML = '<?xml version="1.0" encoding="UTF-8"?>'


class _Connection:
    """A client's connection."""

    def __init__(self, client: socket.socket, objects: dict[str, tuple[bytes, int]]) -> None:
        self._client, self._objects = client, objects
        self._pending = bytearray()
        self._scrap = bytearray(DISCARD_BYTES)
        self._flags = 0 if isinstance(client, ssl.SSLSocket) else socket.MSG_TRUNC

    def run(self) -> None:
        try:
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._serve():
                pass
        except OSError:
            pass
        finally:
            self._client.close()

    def _serve(self) -> bool:
        """Answer a request; return False at the end of the connection."""
        while (end := self._pending.find(b"\r\n\r\n")) < 0:
            more = self._client.recv(65_536)
            if not more:
                return False
            self._pending += more
        first, *lines = self._pending[:end].decode("latin-1").split("\r\n")
        del self._pending[: end + 4]
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body, size = self._body(int(headers.get("content-length", 0)))
        url = urlsplit(target)
        self._answer(method, unquote(url.path), parse_qs(url.query, keep_blank_values=True), headers, body, size)
        return True

    def _body(self, size: int) -> tuple[bytes, int]:
        if size <= DISCARD_BYTES:
            while len(self._pending) < size:
                self._pending += self._client.recv(65_536)
            body = bytes(self._pending[:size])
            del self._pending[:size]
            return body, size
        left = size - len(self._pending)
        self._pending.clear()
        while left:
            left -= self._client.recv_into(self._scrap, min(left, DISCARD_BYTES), self._flags)
        return b"", size

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, list[str]],
        headers: Mapping[str, str],
        body: bytes,
        size: int,
    ) -> None:
        present = self._objects.get(path)
        if method == "POST":
            self._objects.setdefault(path, (b"", 0))
            found = f"{XML}<R><UploadId>1</UploadId><ETag>{_etag(b'')}</ETag></R>"
            return self._send(200, found.encode())
        if method == "PUT":
            tag = None if present is None else _etag(present[0])
            is_refused = headers.get("if-none-match") == "*" and present is not None
            if is_refused or headers.get("if-match", tag) != tag:
                return self._send(412)
            known = 0 if "partNumber" not in query or present is None else present[1]
            self._objects[path] = body, known + size
            return self._send(200, etag=_etag(body))
        if method == "DELETE":
            self._objects.pop(path, None)
            return self._send(204)
        if "list-type" in query:
            prefix = f"{path.rstrip('/')}/{query.get('prefix', [''])[0]}"
            entries = "".join(
                f"<Contents><Key>{key[len(path.rstrip('/')) + 1 :]}</Key><Size>{stored[1]}</Size>"
                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{_etag(stored[0])}</ETag></Contents>"
                for key, stored in sorted(self._objects.items())
                if key.startswith(prefix)
            )
            return self._send(200, f"{XML}<ListBucketResult><Name>b</Name>{entries}</ListBucketResult>".encode())
        if present is None:
            return self._send(404)
        content, total = present
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if span is not None:
            content = content[int(span[1]) : int(span[2]) + 1]
            return self._send(206, content, _etag(present[0]), f"bytes {span[1]}-{span[2]}/{total}")
        return self._send(200, content, _etag(content), head=method == "HEAD")

    def _send(self, status: int, body: bytes = b"", etag: str = "", span: str = "", *, head: bool = False) -> None:
        lines = [f"HTTP/1.1 {status} {ANSWER[status]}", f"Content-Length: {len(body)}"]
        lines += [f"ETag: {etag}", "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"] if etag else []
        lines += [f"Content-Range: {span}"] if span else []
        self._client.sendall("\r\n".join([*lines, "", ""]).encode() + (b"" if head else body))


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _serve(listening: socket.socket, tls: ssl.SSLContext | None) -> None:
    objects: dict[str, tuple[bytes, int]] = {}
    while True:
        client, _ = listening.accept()
        if tls is not None:
            client = tls.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=_Connection(client, objects).run, daemon=True).start()


@contextmanager
def s3_sink(tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, int]]:
    """Run the server in a process of its own; yield its endpoint and process id.

    With TLS it has to read what it throws away."""
    listening = socket.create_server(("127.0.0.1", 0))
    process = get_context("fork").Process(target=_serve, args=(listening, tls), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.getsockname()[1]}", process.pid
    finally:
        process.terminate()
        process.join(10)
        listening.close()
