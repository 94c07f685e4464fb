"""What a registry needs to be there, and where it listens."""

from ...app.extras import require
from ...ports.errors import ConfigError

_PACKAGES = ("starlette", "uvicorn")


def parse_listen(text: str, key: str) -> tuple[str, int]:
    """HOST:PORT, also http://HOST:PORT. Raises `ConfigError`, also when the packages are not installed."""
    require("the schema registry", _PACKAGES, "registry")
    host, colon, port = text.strip().removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigError(f"{key}={text!r:.200} is not HOST:PORT")
    return host.strip("[]"), int(port)
