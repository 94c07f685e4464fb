"""Where Prometheus finds the metrics, and whoever runs the broker finds out how it is, over HTTP.

GET /metrics    the metrics
GET /healthz    200 while the broker's thread gets round, else 503
GET /readyz     200 while it takes requests, else 503

HEAD is answered as GET is, without the body.
"""

import errno
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...ports.transport import Address, TransportError
from .metrics import PrometheusMetrics

AT_ONCE_MAX = 16
"""Connections; more of them wait in the backlog of the system, and cost no descriptors."""
_SECONDS = 10

Check = Callable[[], str | None]
"""What is wrong, if anything."""


def _fine() -> None:
    return None


class MetricsEndpoint:
    """Serves until `close`, in threads of its own."""

    def __init__(
        self, metrics: PrometheusMetrics, address: Address, *, healthy: Check = _fine, ready: Check = _fine
    ) -> None:
        """Port 0: any free one. The checks are asked in other threads. Raises `TransportError` when the address cannot
        be used."""
        try:
            self._server = _Server(address, _Handler)
        except (OSError, OverflowError) as error:
            in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "the port is in use" if in_use else str(error)
            raise TransportError(
                f"cannot listen on {address[0]}:{address[1]}: {reason}; change metrics.listen"
            ) from error
        self._server.metrics = metrics
        self._server.checks = {"/healthz": healthy, "/readyz": ready}
        self._thread = threading.Thread(target=self._server.serve_forever, name="barnabas-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens, with the real port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop serving and wait for the thread."""
        self._server.stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    metrics: PrometheusMetrics
    checks: dict[str, Check]
    stopping = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._room = threading.BoundedSemaphore(AT_ONCE_MAX)

    def get_request(self) -> tuple[socket.socket, Any]:
        while not self._room.acquire(timeout=0.2):
            if self.stopping:
                raise OSError("the endpoint stops")
        try:
            return super().get_request()
        except BaseException:
            self._room.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        try:
            super().shutdown_request(request)
        finally:
            self._room.release()


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        path = self.path.partition("?")[0]
        if path in server.checks:
            wrong = server.checks[path]()
            self._answer(200 if wrong is None else 503, f"{wrong or 'ok'}\n".encode(), "text/plain; charset=utf-8")
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
