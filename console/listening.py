"""The listen address of a console, and the console in a broker process (`console.listen`)."""

from collections.abc import Mapping
from typing import Any

from ..app.extras import require
from ..ports.errors import ConfigError

_PACKAGES = ("starlette", "uvicorn", "jinja2")
_OF_A_USER = ("sasl.jaas.config", "sasl.username", "sasl.password")
_CLIENTS = ("security.", "ssl.", "sasl.")


def parse_listen(text: str, key: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises `ConfigError`, also without the packages."""
    require("the web console", _PACKAGES, "console")
    host, colon, port = text.strip().removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{key}={text!r:.200} is not HOST:PORT")
    return host.strip("[]"), int(port)


def serve_console_in_broker(config: Any, bootstrap: str, settings: Mapping[str, Any] = {}) -> Any:
    """Start and return a console for the cluster of the broker, without the broker's own rights.

    Raises `ConfigError`.
    """
    address = parse_listen(config.console_listen, "console.listen")
    from .application import ConsoleSettings
    from .server import ConsoleServer

    own = {key: value for key, value in settings.items() if key.startswith(_CLIENTS) and key not in _OF_A_USER}
    server = ConsoleServer(ConsoleSettings(cluster={**own, "bootstrap.servers": bootstrap}), address)
    server.start()
    return server
