"""Settings from a TOML or properties file, from `key=value` texts and from Python, brought to Kafka's keys."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ...ports.errors import ConfigError
from .broker_config import KEYS, BrokerConfig
from .listener_names import with_our_listeners
from .names import canonical


def read_config(path: Path | None, *layers: Mapping[str, object]) -> BrokerConfig:
    """A configuration from a file (None: no file) and from settings that win over it. Raises `ConfigError`."""
    return BrokerConfig.from_mapping(*([] if path is None else [read_file(path)]), *layers)


def read_file(path: Path) -> Mapping[str, object]:
    """The content of a file: `.toml`, Java's `.properties`, or what it turns out to be.

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
            f"the configuration {path} is neither TOML nor properties with known keys; {error}"
        ) from error


def read_toml(path: Path) -> dict[str, object]:
    """The content of a TOML file. Raises `ConfigError`, which names the file."""
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


def _properties(path: Path, content: bytes) -> Mapping[str, object]:
    from .properties import parse_properties

    try:
        return {name: value.strip() for name, value in parse_properties(content).items()}
    except ValueError as error:
        raise ConfigError(f"the configuration {path} is no properties file: {error}") from error


def _looks_like_properties(content: bytes) -> bool:
    """True if each name in it is that of a key."""
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


def settings_from(*layers: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys to values, not parsed yet; a later layer wins over an earlier one.

    Raises `ConfigError` for a name that is no key, and for two names of one key within a layer that disagree.
    """
    merged: dict[str, object] = {}
    zookeeper: dict[str, object] = {}
    for layer in layers:
        names: dict[str, str] = {}
        for name, given in flatten(layer):
            key, value = canonical(name, given, KEYS)
            zookeeper[name.strip().replace("_", ".")] = given
            if key in names and str(merged[key]).strip() != str(value).strip():
                raise ConfigError(f"{key} is given twice, as {names[key]!r} and as {name!r}")
            names[key] = name
            merged[key] = value
    _check_zookeeper(zookeeper)
    return with_our_listeners(merged, KEYS)


def _check_zookeeper(given: Mapping[str, object]) -> None:
    """0.7 ignores zk.connect where enable.zookeeper is false: whoever wrote both is asked what is meant."""
    if "enable.zookeeper" in given and not KEYS["classic.registration.enable"].parse(given["enable.zookeeper"]):
        for name in ("zk.connect", "zookeeper.connect"):
            if name in given:
                raise ConfigError(f"enable.zookeeper=false contradicts {name}={given[name]}; leave one of them out")


def flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The entries of nested tables, their names joined by dots."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
