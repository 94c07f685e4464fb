"""The HTTP endpoint for metrics and health checks.

GET /metrics    the metrics
GET /healthz    200 while the broker's thread gets round, else 503
GET /readyz     200 while it takes requests, else 503

HEAD is answered as GET is, without the body. A connection lasts for `_SECONDS` at most. When `AT_ONCE_MAX` are open and
another one comes, the oldest that has not sent its request yet is closed: clients that send nothing, or a byte now and
then, keep no one from /healthz.
"""

import errno
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from ...ports.transport import Address, TransportError

AT_ONCE_MAX = 16
"""Connections."""
_SECONDS = 10.0
_GRACE_S = 1.0
"""The time limit of a connection with a complete request, while other connections wait for its place."""

Check = Callable[[], str | None]
"""Returns the reason of ill health, or None."""


class Users(Protocol):
    """The users who may see the metrics, by HTTP's basic authentication."""

    @property
    def challenge(self) -> str:
        """The value of the header WWW-Authenticate."""
        ...

    def user_of(self, authorization: str | None) -> str | None:
        """Return the user of a header Authorization; None: its name, password or role is wrong."""
        ...


def _fine() -> None:
    return None


class Rendered(Protocol):
    """Metrics as a text."""

    @property
    def content_type(self) -> str: ...

    def render(self) -> bytes:
        """Return all metrics. Called in threads of the endpoint."""
        ...


class MetricsEndpoint:
    """Serves until `close`, in threads of its own."""

    def __init__(
        self,
        metrics: Rendered,
        address: Address,
        *,
        healthy: Check = _fine,
        ready: Check = _fine,
        tls: ssl.SSLContext | None = None,
        users: Users | None = None,
    ) -> None:
        """Port 0: any free one. The checks are asked in other threads. `tls`: serve HTTPS; `users`: who may see the
        metrics, while health is everyone's. Raises `TransportError` when the address cannot be used."""
        try:
            self._server = _Server(address, _Handler)
        except (OSError, OverflowError) as error:
            in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "the port is in use" if in_use else str(error)
            raise TransportError(
                f"cannot listen on {address[0]}:{address[1]}: {reason}; change metrics.listen"
            ) from error
        self._server.metrics = metrics
        self._server.tls = tls
        self._server.users = users
        self._server.checks = {"/healthz": healthy, "/readyz": ready}
        self._thread = threading.Thread(target=self._server.serve_forever, name="barnabas-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """The address of the endpoint, with the real port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop serving and wait for the thread."""
        self._server.stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Visit:
    """A connection that is open."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.has_asked = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    metrics: Rendered
    checks: dict[str, Check]
    tls: ssl.SSLContext | None = None
    users: Users | None = None
    stopping = False

    def __init__(self, *given: Any) -> None:
        self._visits: dict[socket.socket, _Visit] = {}
        """The oldest first."""
        self._changed = threading.Condition()
        super().__init__(*given)

    def get_request(self) -> tuple[socket.socket, Any]:
        with self._changed:
            while len(self._visits) >= AT_ONCE_MAX and not self._made_room():
                self._changed.wait(0.05)
                if self.stopping:
                    raise OSError("the endpoint stops")
        request, client = super().get_request()
        with self._changed:
            self._visits[request] = _Visit()
        return request, client

    def note_asked(self, request: socket.socket) -> None:
        """The connection has sent its request."""
        with self._changed:
            if (visit := self._visits.get(request)) is not None:
                visit.has_asked = True

    def service_actions(self) -> None:
        """Close what has lasted too long; called twice a second."""
        latest_s = time.monotonic() - _SECONDS
        with self._changed:
            for request in [each for each, visit in self._visits.items() if visit.began_s < latest_s]:
                self._shut_down(request)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._visits.pop(request, None)
            self._changed.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that ended early is the client's affair."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _made_room(self) -> bool:
        silent = next((request for request, visit in self._visits.items() if not visit.has_asked), None)
        if silent is not None:
            self._shut_down(silent)
            return True
        oldest, visit = next(iter(self._visits.items()))
        if visit.began_s > time.monotonic() - _GRACE_S:
            return False
        self._shut_down(oldest)
        return True

    def _shut_down(self, request: socket.socket) -> None:
        """Shut the connection down; its thread sees the end of the stream and closes it."""
        del self._visits[request]
        with suppress(OSError):  # the client was quicker
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS

    def setup(self) -> None:
        """Begin with the handshake, which is this connection's own thread's to wait for."""
        server = self.server
        assert isinstance(server, _Server)
        self._plain = self.request
        if server.tls is not None:
            self.request.settimeout(self.timeout)
            self.request = server.tls.wrap_socket(self.request.dup(), server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self.request is not self._plain:
            with suppress(OSError, ValueError):
                self.request.unwrap()
            self.request.close()

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            assert isinstance(self.server, _Server)
            self.server.note_asked(self._plain)
        return parsed

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        path = self.path.partition("?")[0]
        if path in server.checks:
            wrong = server.checks[path]()
            self._answer(200 if wrong is None else 503, f"{wrong or 'ok'}\n".encode(), "text/plain; charset=utf-8")
        elif server.users is not None and server.users.user_of(self.headers.get("Authorization")) is None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", server.users.challenge)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path in ("/", "/metrics"):
            self._answer(200, server.metrics.render(), server.metrics.content_type)
        else:
            self.send_error(404, explain="there are /metrics, /healthz and /readyz")

    do_HEAD = do_GET

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""
