"""The HTTP server of a registry, in threads of its own: for a command, and in a broker process."""

from __future__ import annotations

import asyncio
import logging
import socket
from threading import Event, Thread
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...app.clients.shared.bootstrap import Bootstrap
from ...app.compose.https import HttpSecurity
from ...ports.errors import ConfigError
from .http import make_app
from .registry import Registry

logger = logging.getLogger("barnabas.schemas.registry")

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


class RegistryServer:
    """Serves a registry between `start` and `stop`."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        listen: tuple[str, int],
        *,
        topic: str,
        validate_defaults: bool = False,
        security: HttpSecurity | None = None,
    ) -> None:
        """`security`: TLS and the users of the HTTP server; None: everyone may connect, without TLS."""
        self._registry = Registry(bootstrap, topic, validate_defaults=validate_defaults)
        self._listen = listen
        self._bootstrap = bootstrap
        self._security = security or HttpSecurity()
        self._server: uvicorn.Server | None = None
        self._thread: Thread | None = None
        self._ended = Event()
        self.listener = ""
        """The URL while it serves."""

    def start(self) -> str:
        """Start, and return the URL when all schemas are read, or cannot be read now. Raises `ConfigError`."""
        bound = _bind(self._listen)
        self._registry.start()
        config = uvicorn.Config(
            make_app(self._registry, self._security.users),
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
        config.ssl = self._security.tls
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._serve, args=(self._server, bound), name="registry-http", daemon=True)
        self._thread.start()
        if not self._registry.following.wait_loaded():
            trouble = self._registry.following.trouble
            if isinstance(trouble, ConfigError):
                self.stop()
                raise trouble
            logger.warning("serving without schemas until %s can be reached", self._bootstrap)
        host, port = bound.getsockname()[:2]
        self.listener = f"{self._security.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        return self.listener

    def stop(self) -> None:
        """Answer the received requests, then end the threads."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
        self._registry.stop()

    def wait(self, timeout: float) -> bool:
        """Return True when it has stopped serving."""
        return self._ended.wait(timeout)

    def _serve(self, server: uvicorn.Server, bound: socket.socket) -> None:
        try:
            asyncio.run(server.serve(sockets=[bound]))
        except Exception:
            logger.exception("the registry has stopped after an error")
        finally:
            bound.close()
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
