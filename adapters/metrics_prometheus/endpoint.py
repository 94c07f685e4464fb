"""Where Prometheus finds the metrics: `GET /metrics` over HTTP."""

import errno
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ...ports.transport import Address, TransportError
from .metrics import PrometheusMetrics


class MetricsEndpoint:
    """Serves until `close`, in threads of its own."""

    def __init__(self, metrics: PrometheusMetrics, address: Address) -> None:
        """Port 0: any free one. Raises `TransportError` when the address cannot be used."""
        try:
            self._server = _Server(address, _Handler)
        except (OSError, OverflowError) as error:
            in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "the port is in use" if in_use else str(error)
            raise TransportError(
                f"cannot listen on {address[0]}:{address[1]}: {reason}; change metrics.listen"
            ) from error
        self._server.metrics = metrics
        self._thread = threading.Thread(target=self._server.serve_forever, name="barnabas-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where it listens, with the real port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop serving and wait for the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    metrics: PrometheusMetrics


class _Handler(BaseHTTPRequestHandler):
    timeout = 30

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        content = server.metrics.render()
        self.send_response(200)
        self.send_header("Content-Type", server.metrics.content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""
