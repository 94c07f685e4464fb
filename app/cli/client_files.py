"""Files with client settings: TOML, or `key=value` lines as in Kafka's tools."""

import tomllib
from pathlib import Path
from typing import Any

from ...ports.errors import ConfigError


def read_client_file(file: Path) -> dict[str, Any]:
    """Read a TOML table with dotted keys, or the lines of a properties file. Raises `ConfigError`."""
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".toml":
            from ..config.layers import flatten

            return dict(flatten(tomllib.loads(text)))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the configuration {file} cannot be read: {why}") from error
    settings = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{file}, line {number}: {line.strip()[:100]!r} is not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings
