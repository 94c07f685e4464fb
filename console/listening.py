"""The listen address of a console, and the console in a broker process (`console.listen`)."""

import logging
from collections.abc import Mapping
from typing import Any

from ..app.compose.https import broker_http_security
from ..app.extras import require
from ..ports.errors import ConfigError

logger = logging.getLogger("barnabas.console")

_PACKAGES = ("starlette", "uvicorn", "jinja2")
_OF_A_USER = ("sasl.jaas.config", "sasl.username", "sasl.password", "ssl.keystore.", "ssl.key.")
"""The beginnings of settings that give a client the rights of the broker: with a certificate it may be a super user."""
_CLIENTS = ("security.", "ssl.", "sasl.")
_LOOPBACK = ("127.", "::1", "localhost")


def parse_listen(text: str, key: str) -> tuple[str, int]:
    """Parse HOST:PORT, http://HOST:PORT or https://HOST:PORT. Raises `ConfigError`, also without the packages."""
    require("the web console", _PACKAGES, "console")
    host, colon, port = text.strip().removeprefix("http://").removeprefix("https://").rstrip("/").rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{key}={text!r:.200} is not HOST:PORT")
    return host.strip("[]"), int(port)


def without_rights(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a client's connection without those by which it is a certain user."""
    return {key: each for key, each in settings.items() if key.startswith(_CLIENTS) and not key.startswith(_OF_A_USER)}


def warn_of_strangers(host: str, settings: Any, *, has_tls: bool) -> None:
    """Log what a console outside of the loopback address means for passwords and rights."""
    if host.startswith(_LOOPBACK):
        return
    if settings.needs_sign_in and not has_tls:
        logger.warning("the console at %s takes passwords without TLS; give it a certificate", host)
    elif not settings.needs_sign_in:
        logger.warning("everyone who reaches the console at %s acts as user %s of the cluster", host, settings.user)


def serve_console_in_broker(config: Any, bootstrap: str, settings: Mapping[str, Any] = {}) -> Any:
    """Start and return a console for the cluster of the broker, without the broker's own rights.

    Raises `ConfigError`.
    """
    address = parse_listen(config.console_listen, "console.listen")
    try:
        security = broker_http_security(config, config.console_listen, "CONSOLE", None, logger.warning)
    except ConfigError as error:
        raise ConfigError(f"console.listen={config.console_listen}: {error}") from None
    from .application import ConsoleSettings
    from .server import ConsoleServer

    own = without_rights(settings)
    console = ConsoleSettings(cluster={**own, "bootstrap.servers": bootstrap})
    warn_of_strangers(address[0], console, has_tls=security.tls is not None)
    server = ConsoleServer(console, address, security.tls)
    server.start()
    return server
