"""The HTTP server of a console, in threads of its own."""

from __future__ import annotations

import logging
import ssl

from ..app.compose.http_server import HttpServer
from .application import Console, ConsoleSettings, PageRoute, make_app
from .pages import (
    access,
    groups,
    messages,
    overview,
    produce,
    schemas,
    sign_in,
    tiers,
    topics,
    transactions,
    warehouse,
)

logger = logging.getLogger("barnabas.console")

PAGES: tuple[PageRoute, ...] = (
    *sign_in.PAGES,
    *overview.PAGES,
    *topics.PAGES,
    *messages.PAGES,
    *produce.PAGES,
    *groups.PAGES,
    *transactions.PAGES,
    *access.PAGES,
    *schemas.PAGES,
    *warehouse.PAGES,
    *tiers.PAGES,
)


class ConsoleServer:
    """Serves a console between `start` and `stop`."""

    def __init__(self, settings: ConsoleSettings, listen: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        """`tls`: the context with which it serves HTTPS; None: it serves HTTP."""
        self._console = Console(settings)
        self._listen = listen
        self._tls = tls
        self._server: HttpServer | None = None
        self.listener = ""
        """The URL while it serves."""

    def start(self) -> str:
        """Start, and return the URL. A cluster that does not answer yet is no error. Raises `ConfigError`."""
        self._server = HttpServer("the console", self._listen, self._tls)
        self._server.start(make_app(self._console, PAGES))
        self.listener = self._server.url
        return self.listener

    def stop(self) -> None:
        """Answer the received requests, then end the threads."""
        self._console.is_closing = True
        if self._server is not None:
            self._server.stop()
        self._console.close()

    def wait(self, timeout: float) -> bool:
        """Return True when it has stopped serving."""
        return self._server is not None and self._server.wait(timeout)
