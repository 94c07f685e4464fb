"""A configuration from a TOML or properties file."""

from collections.abc import Mapping
from pathlib import Path

from ...ports.errors import ConfigError
from .broker_config import KEYS, BrokerConfig
from .names import canonical


def read_config(path: Path | None, *layers: Mapping[str, object]) -> BrokerConfig:
    """Read a configuration from a file, if any, and from settings that override it. Raises `ConfigError`."""
    return BrokerConfig.from_mapping(*([] if path is None else [read_file(path)]), *layers)


def read_file(path: Path) -> Mapping[str, object]:
    """Return the content of a file: `.toml`, Java's `.properties`, or the one of both that its content fits.

    Raises `ConfigError`, which names the file.
    """
    content = _content(path)
    suffix = path.suffix.lower()
    if suffix == ".properties":
        return _properties(path, content)
    try:
        return _toml(path, content)
    except ConfigError as error:
        if suffix != ".toml" and _looks_like_properties(content):
            return _properties(path, content)
        if suffix == ".toml":
            raise
        raise ConfigError(
            f"the configuration {path} is neither TOML nor a properties file with known keys: {error}"
        ) from error


def read_toml(path: Path) -> dict[str, object]:
    """Return the content of a TOML file. Raises `ConfigError`, which names the file."""
    return _toml(path, _content(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from error


def _toml(path: Path, content: bytes) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(content.decode("utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"the configuration {path} is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"the configuration {path} is nested too deeply") from error


def _properties(path: Path, content: bytes) -> Mapping[str, object]:
    from .properties import parse_properties

    try:
        return {name: value.strip() for name, value in parse_properties(content).items()}
    except ValueError as error:
        raise ConfigError(f"the configuration {path} is not a properties file: {error}") from error


def _looks_like_properties(content: bytes) -> bool:
    """Return True if the content can be parsed as properties and each name is that of a key."""
    from .properties import parse_properties

    try:
        return all(_is_key(name) for name in parse_properties(content))
    except ValueError:
        return False


def _is_key(name: str) -> bool:
    try:
        canonical(name, "0", KEYS)
    except ConfigError:
        return False
    return True
