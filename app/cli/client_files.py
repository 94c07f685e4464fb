"""Settings from files (TOML, or properties files of Kafka's clients), and from `--set`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...ports.errors import ConfigError


def read_client_file(file: Path) -> dict[str, Any]:
    """Read a TOML table with dotted keys, or a properties file of Java. Raises `ConfigError`."""
    try:
        content = file.read_bytes()
        if file.suffix == ".toml":
            import tomllib

            from ..config.layers import flatten

            return dict(flatten(tomllib.loads(content.decode())))
        from ..config.properties import parse_properties

        return dict(parse_properties(content, needs_value=True))
    except OSError as error:
        raise ConfigError(f"the configuration {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the configuration {file} cannot be read: {error}") from error


def parse_settings(pairs: Iterable[str] | None) -> dict[str, str]:
    """Parse `["a=1", "b=x=y"]` → `{"a": "1", "b": "x=y"}`. Raises `ConfigError`."""
    settings = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{pair!r} is not KEY=VALUE")
        settings[key.strip()] = value
    return settings
