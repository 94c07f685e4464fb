"""The HTTP server of the schema registry and of the web console: uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import sys
from threading import Event, Thread
from typing import Any, Protocol

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...ports.errors import BarnabasError, ConfigError

logger = logging.getLogger("barnabas.http")

FIRST_REQUEST_S = 10.0
_DRAIN_S = 5
_CONNECTIONS_MAX = 1000
_BACKLOG = 256


class _ImpatientProtocol(H11Protocol):
    """Closes a connection without a complete first request in time, since connections are limited.

    uvicorn closes idle connections after a response, until the first byte arrives.
    """

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._head_due = self.loop.call_later(FIRST_REQUEST_S, self._close_idle)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        asked: Any = self.cycle  # None before the first request, which its type does not declare
        if asked is not None and not asked.response_complete:
            self._expect_no_head()
        elif self._head_due is None:
            self._head_due = self.loop.call_later(FIRST_REQUEST_S, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_head()
        super().connection_lost(exc)

    def _expect_no_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _close_idle(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


_LOOK_S = 1.0
"""Between two looks of a command whether its server has ended."""


class HttpServer:
    """Serves an ASGI application between `start` and `stop`. `name` names it in the log: "the registry", ..."""

    def __init__(self, name: str, listen: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        """Bind the address. Raises `ConfigError`."""
        self._name = name
        self._tls = tls
        self._bound = _bind(listen)
        self._server: uvicorn.Server | None = None
        self._thread: Thread | None = None
        self._ended = Event()

    @property
    def url(self) -> str:
        """Return the URL of the bound address."""
        host, port = self._bound.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def start(self, app: Any) -> None:
        """Serve the application from now on."""
        config = uvicorn.Config(
            app,
            http=_ImpatientProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        config.load()
        config.ssl = self._tls
        self._server = uvicorn.Server(config)
        thread_name = f"{self._name.split()[-1]}-http"
        self._thread = Thread(target=self._serve, args=(self._server,), name=thread_name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer the received requests, then end the thread. Twice is harmless."""
        if self._server is None or self._thread is None:
            self._bound.close()
            return
        self._server.should_exit = True
        self._thread.join()

    def wait(self, timeout: float) -> bool:
        """Return True when it has stopped serving."""
        return self._ended.wait(timeout)

    def _serve(self, server: uvicorn.Server) -> None:
        try:
            asyncio.run(server.serve(sockets=[self._bound]))
        except Exception:
            logger.exception("%s has stopped after an error", self._name)
        finally:
            self._bound.close()
            self._ended.set()


def _bind(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named since asyncio only then sets TCP_NODELAY.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    return bound


class HttpService(Protocol):
    """A server that a command runs until a signal comes."""

    def start(self) -> str:
        """Serve from now on, and return the URL."""
        ...

    def wait(self, timeout: float) -> bool:
        """Return True as soon as the server has ended; False after `timeout` seconds."""
        ...

    def stop(self) -> None:
        """End the server."""
        ...


def serve_until_signal(service: HttpService, name: str) -> None:
    """Serve until SIGTERM or SIGINT, and say so by the line of readiness. Raises `BarnabasError` if the server ends."""
    stopping = Event()
    try:
        url = service.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        sys.stdout.write(f"barnabas {name} ready {url}\n")
        sys.stdout.flush()
        while not stopping.wait(_LOOK_S):
            if service.wait(0):
                raise BarnabasError(f"the {name} has stopped after an error; see the log above")
    finally:
        service.stop()
