"""Settings from a TOML file, from `key=value` texts and from Python, brought to Kafka's keys."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ...ports.errors import ConfigError
from .broker_config import KEYS, BrokerConfig
from .listener_names import with_our_listeners
from .names import canonical


def read_config(path: Path | None, *layers: Mapping[str, object]) -> BrokerConfig:
    """A configuration from a TOML file (None: no file) and from settings that win over it. Raises `ConfigError`."""
    return BrokerConfig.from_mapping(*([] if path is None else [read_toml(path)]), *layers)


def read_toml(path: Path) -> dict[str, object]:
    """The content of a TOML file. Raises `ConfigError`, which names the file."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"the configuration {path} is not TOML: {error}") from error


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
