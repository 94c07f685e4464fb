"""The HTTP server of a registry, in threads of its own: for a command, and in a broker process."""

from __future__ import annotations

import logging

from ...app.clients.shared.bootstrap import Bootstrap
from ...app.compose.http_server import HttpServer
from ...app.compose.https import HttpSecurity
from ...ports.errors import ConfigError
from .http import make_app
from .registry import Registry

logger = logging.getLogger("barnabas.schemas.registry")


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
        self._server: HttpServer | None = None
        self.listener = ""
        """The URL while it serves."""

    def start(self) -> str:
        """Start, and return the URL when all schemas are read, or cannot be read now. Raises `ConfigError`."""
        self._server = HttpServer("the registry", self._listen, self._security.tls)
        self._registry.start()
        self._server.start(make_app(self._registry, self._security.users))
        if not self._registry.following.wait_loaded():
            trouble = self._registry.following.trouble
            if isinstance(trouble, ConfigError):
                self.stop()
                raise trouble
            logger.warning("serving without schemas until %s can be reached", self._bootstrap)
        self.listener = self._server.url
        return self.listener

    def stop(self) -> None:
        """Answer the received requests, then end the threads."""
        if self._server is not None:
            self._server.stop()
        self._registry.stop()

    def wait(self, timeout: float) -> bool:
        """Return True when it has stopped serving."""
        return self._server is not None and self._server.wait(timeout)
