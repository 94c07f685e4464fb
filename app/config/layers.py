"""Settings from files, from `key=value` texts and from Python, one over the other, brought to Kafka's keys."""

from collections.abc import Iterator, Mapping

from ...ports.errors import ConfigError
from .keys import ConfigKey
from .listener_names import is_of_listener, name_of_scope, with_our_listeners
from .names import canonical


def settings_from(keys: Mapping[str, ConfigKey], *layers: Mapping[str, object]) -> dict[str, object]:
    """Dotted keys to values, not parsed yet; a later layer wins over an earlier one.

    Raises `ConfigError` for a name that is no key, and for two names of one key within a layer that disagree.
    """
    merged: dict[str, object] = {}
    zookeeper: dict[str, object] = {}
    for layer in layers:
        names: dict[str, str] = {}
        for name, given in flatten(layer):
            key, value = (name_of_scope(name), given) if is_of_listener(name) else canonical(name, given, keys)
            zookeeper[name.strip().replace("_", ".")] = given
            if key in names and merged[key] != value and str(merged[key]).strip() != str(value).strip():
                raise ConfigError(f"{key} is given twice, as {names[key]!r} and as {name!r}")
            names[key] = name
            merged[key] = value
    _check_zookeeper(zookeeper, keys)
    return with_our_listeners(merged, keys)


def _check_zookeeper(given: Mapping[str, object], keys: Mapping[str, ConfigKey]) -> None:
    """Raise `ConfigError` for zk.connect with enable.zookeeper=false: 0.7 ignores zk.connect then, but we ask."""
    if "enable.zookeeper" in given and not keys["classic.registration.enable"].parse(given["enable.zookeeper"]):
        for name in ("zk.connect", "zookeeper.connect"):
            if name in given:
                raise ConfigError(f"enable.zookeeper=false contradicts {name}={given[name]}; leave one of them out")


_DEPTH_MAX = 100


def flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the entries of nested tables, their names joined by dots. Raises `ConfigError` if they are too deep."""
    if prefix.count(".") > _DEPTH_MAX:
        raise ConfigError(f"{prefix[:60]}... is nested too deeply: no key has as many parts")
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
