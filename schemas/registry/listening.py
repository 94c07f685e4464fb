"""The listen address of a registry, and the registry in a broker process (`schema.registry.listen`)."""

from typing import Any

from ...app.extras import require
from ...ports.errors import ConfigError

_PACKAGES = ("starlette", "uvicorn")


def parse_listen(text: str, key: str) -> tuple[str, int]:
    """Parse HOST:PORT or http://HOST:PORT. Raises `ConfigError`, also if the packages are not installed."""
    require("the schema registry", _PACKAGES, "registry")
    host, colon, port = text.strip().removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{key}={text!r:.200} is not HOST:PORT")
    return host.strip("[]"), int(port)


def serve_in_broker(config: Any, bootstrap: str) -> Any:
    """Start and return a registry over the topics of the broker at `bootstrap`. Raises `ConfigError`."""
    address = parse_listen(config.schema_registry_listen, "schema.registry.listen")
    from .server import RegistryServer

    server = RegistryServer(bootstrap, address, topic="_schemas", validate_defaults=config.avro_validate_defaults)
    server.start()
    return server
