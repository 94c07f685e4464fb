"""Changes of configs while the broker runs (IncrementalAlterConfigs), as pure functions over the stored overrides."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from attrs import evolve

from ...ports.broker_api.configs import ConfigAlteration, ConfigOp, ConfigType
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from .broker_config import KEYS, BrokerConfig
from .keys import ConfigKey
from .listener_names import is_of_listener, name_of_scope, scoped_key
from .names import nearest
from .tls_keys import RELOADABLE_KEYS
from .topic_config import BrokerLayers, inherited, layers_of, topic_key


def alter_topic_configs(
    overrides: Mapping[str, str], alterations: Sequence[ConfigAlteration], broker: BrokerConfig | BrokerLayers
) -> dict[str, str]:
    """The overrides of a topic after the changes, all or none.

    Raises `ApiError`: INVALID_CONFIG for a key or value, INVALID_REQUEST for a request that makes no sense.
    """
    layers = layers_of(broker)

    def from_above(name: str) -> str | None:
        topic = topic_key(name)
        return topic.key.text(inherited(layers, topic))

    return _altered(overrides, alterations, lambda name: topic_key(name).key, from_above)


def alter_broker_configs(
    stored: Mapping[str, str],
    alterations: Sequence[ConfigAlteration],
    broker: BrokerConfig,
    *,
    everywhere: bool = False,
) -> dict[str, str]:
    """Return the settings of a broker, or of all brokers (`everywhere`), after the changes, which are made all or none.

    Raises `ApiError`: INVALID_CONFIG for a key or value, INVALID_REQUEST for a key that cannot change while it runs.
    """

    def from_above(name: str) -> str | None:
        return None if is_of_listener(name) else KEYS[name].text(layers_of(broker).effective(name))

    alterations = [
        evolve(each, name=name_of_scope(each.name)) if is_of_listener(each.name) else each for each in alterations
    ]
    return _altered(stored, alterations, partial(_dynamic_key, everywhere=everywhere), from_above)


def _dynamic_key(name: str, *, everywhere: bool) -> ConfigKey:
    if is_of_listener(name):
        _, _, base = scoped_key(name, KEYS)
        if everywhere and base.name in RELOADABLE_KEYS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} differs between brokers; set it for a broker by its id")
        key: ConfigKey | None = evolve(base, name=name)
    else:
        key = KEYS.get(name)
        if name in RELOADABLE_KEYS:
            text = f"{name} can be changed per listener only: listener.name.NAME.{name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
    if key is None:
        raise ConfigError(f"there is no configuration key {name[:200]!r}{nearest(name, list(KEYS))}")
    if not key.dynamic:
        text = f"{name} cannot change while the broker runs; set it in its configuration and restart"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    return key


def _altered(
    stored: Mapping[str, str],
    alterations: Sequence[ConfigAlteration],
    key_of: Callable[[str], ConfigKey],
    from_above: Callable[[str], str | None],
) -> dict[str, str]:
    altered = dict(stored)
    seen = set()
    for alteration in alterations:
        name = alteration.name
        if name in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name[:200]!r} is altered twice in one request")
        seen.add(name)
        if alteration.op == ConfigOp.DELETE and name in altered:
            del altered[name]  # also a stored one that is no key here
            continue
        try:
            _alter(altered, alteration, key_of(name), from_above)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return altered


def _alter(
    altered: dict[str, str],
    alteration: ConfigAlteration,
    key: ConfigKey,
    from_above: Callable[[str], str | None],
) -> None:
    name, value = alteration.name, alteration.value
    if alteration.op == ConfigOp.DELETE:
        return
    if alteration.op not in (ConfigOp.SET, ConfigOp.APPEND, ConfigOp.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: there is no operation {alteration.op} on a configuration")
    if value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} has no value; to remove it, delete it")
    if alteration.op != ConfigOp.SET:
        value = _edited_list(altered.get(name, from_above(name) or ""), alteration.op, value, key)
    key.parse(value)
    altered[name] = value


def _edited_list(present: str, op: int, value: str, key: ConfigKey) -> str:
    if key.type is not ConfigType.LIST:
        raise ConfigError(f"{key.name} is no list: nothing can be appended to it or subtracted from it")
    items = [item.strip() for item in present.split(",") if item.strip()]
    named = list(key.parse(value))
    if op == ConfigOp.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)
