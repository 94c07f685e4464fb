"""Configs while the broker runs: their description and their changes (IncrementalAlterConfigs), as pure functions.

The keys of single groups (resource type GROUP) have a table here; each names the broker key that counts without it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import evolve

from ...core.cluster.topics import CORDONED_KEY
from ...core.coordinator.group.group_config import GroupConfig
from ...ports.broker_api.configs import ConfigAlteration, ConfigEntry, ConfigOp, ConfigSource, ConfigSynonym, ConfigType
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.values import frozen
from .broker_config import KEYS, SYNONYMS, BrokerConfig
from .group_keys import bounds_of
from .ignored_keys import NO_EFFECT
from .keys import INT_MAX, ConfigKey
from .listener_names import is_of_listener, name_of_scope, scoped_key
from .names import nearest
from .tls_keys import RELOADABLE_KEYS
from .topic_config import TOPIC_KEYS, BrokerLayers, broker_key, classic_values, inherited, layers_of, scaled, topic_key


@frozen
class GroupConfigKey:
    """A key of groups: `twin` is the broker key that counts where a group has no value of its own, if there is one."""

    key: ConfigKey
    twin: str | None = None

    @property
    def bounds(self) -> tuple[str, str] | None:
        """The broker keys with the least and the greatest value; None: there are none."""
        return None if self.twin is None else bounds_of(self.twin)


def _with_twin(name: str) -> GroupConfigKey:
    twin = f"group.{name}"
    key = evolve(KEYS[twin], name=name, dynamic=True)
    if bounds_of(twin) is not None:  # which are those of single groups
        key = evolve(key, low=0, high=INT_MAX)
    return GroupConfigKey(key, twin)


def _text(name: str, default: str, doc: str, **how: object) -> GroupConfigKey:
    key = ConfigKey(name=name, type=ConfigType.STRING, default=default, doc=doc, dynamic=True)
    return GroupConfigKey(evolve(key, **how))  # type: ignore[arg-type]  # fields of the key


def _flag(name: str, default: bool, doc: str) -> GroupConfigKey:
    return GroupConfigKey(ConfigKey(name=name, type=ConfigType.BOOLEAN, default=default, doc=doc, dynamic=True))


def _ignored(name: str, default: str) -> GroupConfigKey:
    return _text(name, default, f"{NO_EFFECT}: there are no groups of Kafka Streams.", ignored=True)


_TABLE = (
    _with_twin("consumer.assignment.interval.ms"),
    _with_twin("consumer.heartbeat.interval.ms"),
    _with_twin("consumer.session.timeout.ms"),
    _flag(
        "errors.deadletterqueue.copy.record.enable",
        False,
        "Whether a dead letter has the key, value and headers of its message.",
    ),
    _text(
        "errors.deadletterqueue.topic.name",
        "",
        "The topic for messages that a share group has given up; empty: there is none.",
    ),
    _with_twin("share.assignment.interval.ms"),
    _text(
        "share.auto.offset.reset",
        "latest",
        "Where a share group begins in a partition that is new to it: latest, earliest, or by_duration:DURATION, which "
        "is that long ago (by_duration:PT12H).",
        form=r"latest|earliest|by_duration:.+",
        form_text="latest, earliest or by_duration:PnDTnHnMnS",
    ),
    _with_twin("share.delivery.count.limit"),
    _with_twin("share.heartbeat.interval.ms"),
    _text(
        "share.isolation.level",
        "read_uncommitted",
        "Whether a share group gets messages of open and aborted transactions too.",
        choices=("read_uncommitted", "read_committed"),
    ),
    _with_twin("share.partition.max.record.locks"),
    _with_twin("share.record.lock.duration.ms"),
    _flag("share.renew.acknowledge.enable", True, "Whether members may hold a message longer by renewing its lock."),
    _with_twin("share.session.timeout.ms"),
    _ignored("streams.assignment.interval.ms", "1000"),
    _ignored("streams.assignor.name", "sticky"),
    _ignored("streams.heartbeat.interval.ms", "5000"),
    _ignored("streams.initial.rebalance.delay.ms", "3000"),
    _ignored("streams.num.standby.replicas", "0"),
    _ignored("streams.rack.aware.assignment.tags", ""),
    _ignored("streams.session.timeout.ms", "45000"),
)
GROUP_KEYS: Mapping[str, GroupConfigKey] = {each.key.name: each for each in _TABLE}
"""Every key of groups by name."""

_SESSIONS = (
    ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"),
    ("share.heartbeat.interval.ms", "share.session.timeout.ms"),
)


def group_key(name: str) -> GroupConfigKey:
    """Raises `ConfigError` for a name that is no key of groups, with the nearest one."""
    found = GROUP_KEYS.get(name)
    if found is None:
        raise ConfigError(f"unknown group configuration key {name[:200]!r}{nearest(name, list(GROUP_KEYS))}")
    return found


def group_defaults(layers: BrokerLayers) -> GroupConfig:
    """Return the settings of a group that has none of its own."""
    return GroupConfig(
        **{  # type: ignore[arg-type]  # each value has the type of its key
            name.replace(".", "_"): each.key.default if each.twin is None else layers.effective(each.twin)
            for name, each in GROUP_KEYS.items()
            if not each.key.ignored
        }
    )


def check_group_configs(layers: BrokerLayers, configs: Mapping[str, str], changed: Collection[str]) -> None:
    """Raise `ConfigError` for a changed value outside the bounds of the broker, and for values that contradict each
    other."""
    values = {name: group_key(name).key.parse(text) for name, text in configs.items() if name in GROUP_KEYS}
    for name, value in values.items():
        bounds = GROUP_KEYS[name].bounds
        if bounds is not None and name in changed:
            low, high = map(layers.effective, bounds)
            if not _number(low) <= value <= _number(high):
                raise ConfigError(f"{name}={value} is not within {bounds[0]}={low} to {bounds[1]}={high}")
    made = evolve(group_defaults(layers), **_fields(values))
    for heartbeat, session in _SESSIONS:
        if _value(made, heartbeat) >= _value(made, session):
            text = f"{session}={_value(made, session)}: members would be dropped between two heartbeats"
            raise ConfigError(f"{heartbeat}={_value(made, heartbeat)} is not below {text}")
    try:
        made.share_reset_age_ms  # noqa: B018  checked
    except ValueError as error:
        raise ConfigError(f"share.auto.offset.reset={made.share_auto_offset_reset[:200]}: {error}") from error


def group_overrides(
    layers: BrokerLayers, group_id: str, configs: Mapping[str, str], report: Callable[[str], None]
) -> dict[str, object]:
    """Return what a group has of its own, by the fields of `GroupConfig`.

    What is stored may be outside the bounds that the broker has by now: it gets the nearest value within them. What
    makes no sense counts as not set. Both are reported.
    """
    usable: dict[str, str] = {}
    for name, text in configs.items():
        try:
            value = _within(layers, group_id, name, text, report)
            check_group_configs(layers, usable | {name: value}, [name])
        except ConfigError as error:
            report(f"ignored a stored configuration of group {group_id}: {error}")
            continue
        usable[name] = value
    return _fields({name: GROUP_KEYS[name].key.parse(text) for name, text in usable.items()})


def _within(layers: BrokerLayers, group_id: str, name: str, text: str, report: Callable[[str], None]) -> str:
    key = group_key(name)
    value = key.key.parse(text)
    if key.bounds is None:
        return text
    low, high = (_number(layers.effective(bound)) for bound in key.bounds)
    nearest_value = min(max(value, low), high)
    if nearest_value != value:
        report(f"group {group_id} has {name}={value}; the bounds of this broker make it {nearest_value}")
    return str(nearest_value)


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in values.items() if not GROUP_KEYS[name].key.ignored}


def _value(config: GroupConfig, name: str) -> int:
    return _number(getattr(config, name.replace(".", "_")))


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    return value


def alter_topic_configs(
    overrides: Mapping[str, str], alterations: Sequence[ConfigAlteration], broker: BrokerConfig | BrokerLayers
) -> dict[str, str]:
    """Return the overrides of a topic after the changes, all or none.

    Raises `ApiError`: INVALID_CONFIG for a key or value, INVALID_REQUEST for a request that makes no sense.
    """
    layers = layers_of(broker)

    def from_above(name: str) -> str | None:
        topic = topic_key(name)
        return topic.key.text(inherited(layers, topic))

    return _altered(overrides, alterations, lambda name: topic_key(name).key, from_above)


def alter_group_configs(
    overrides: Mapping[str, str], alterations: Sequence[ConfigAlteration], layers: BrokerLayers
) -> dict[str, str]:
    """Return the settings of a group after the changes, which are made all or none.

    Raises `ApiError`: INVALID_CONFIG for a key or value, INVALID_REQUEST for a request that makes no sense.
    """

    def from_above(name: str) -> str | None:
        found = group_key(name)
        return found.key.text(found.key.default if found.twin is None else layers.effective(found.twin))

    altered = _altered(overrides, alterations, lambda name: group_key(name).key, from_above)
    try:
        # What was stored before, under other bounds of the broker, does not stand in the way of a change.
        check_group_configs(layers, altered, {each.name for each in alterations})
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return altered


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
    values = {each.name: each.value for each in alterations}

    def key_of(name: str) -> ConfigKey:
        return _dynamic_key(name, values[name], everywhere=everywhere)

    return _altered(stored, alterations, key_of, from_above)


def _dynamic_key(name: str, value: str | None, *, everywhere: bool) -> ConfigKey:
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
    if everywhere and name == CORDONED_KEY:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} differs between brokers; set it for a broker by its id")
    if key is None:
        raise ConfigError(f"unknown configuration key {name[:200]!r}{nearest(name, list(KEYS))}")
    if not key.dynamic:
        cure = _dynamic_synonym(name, value) or "set it in its configuration and restart"
        text = f"{name} cannot change while the broker runs; {cure}"
        raise ApiError(ErrorCode.INVALID_REQUEST, text)
    return key


def _dynamic_synonym(name: str, value: str | None) -> str:
    """Return what to set instead of a key of another unit, such as log.retention.hours; empty: there is nothing."""
    for other, synonyms in SYNONYMS.items():
        factors = {key: factor for key, factor in synonyms if key == name}
        if factors and KEYS[other].dynamic:
            is_number = value is not None and value.strip().lstrip("-").isdecimal()
            instead = scaled(int(str(value)), factors[name]) if is_number else "..."
            return f"{other} can: set {other}={instead}"
    return ""


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
        raise ConfigError(f"{key.name} is not a list: nothing can be appended to it or subtracted from it")
    items = [item.strip() for item in present.split(",") if item.strip()]
    named = list(key.parse(value))
    if op == ConfigOp.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)


# The answers to DescribeConfigs: values, where they come from, and what would count instead.


def topic_config_entries(
    overrides: Mapping[str, str],
    broker: BrokerConfig | BrokerLayers,
    *,
    topic_defaults: Mapping[str, str] | None = None,
    keys: Collection[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """Return the configs of a topic, by name; `keys` None = all, unknown ones are left out. See `log_config_for`."""
    layers = layers_of(broker)
    between = classic_values(layers, overrides, topic_defaults or {})
    entries = []
    for name, topic in TOPIC_KEYS.items():
        if keys is not None and name not in keys:
            continue
        found = [] if topic.twin is None else _broker_synonyms(layers, topic.twin)
        value = topic.key.text(inherited(layers, topic))
        if name in between:
            value = between[name].value
            found = [between[name], *(synonym for synonym in found if synonym.source is not ConfigSource.DEFAULT)]
        if name in overrides:
            value = overrides[name]
            found.insert(0, ConfigSynonym(name=name, value=value, source=ConfigSource.TOPIC))
        entries.append(_entry(topic.key, value, found, read_only=False, synonyms=synonyms, documentation=documentation))
    return entries


def group_config_entries(
    overrides: Mapping[str, str],
    layers: BrokerLayers,
    *,
    keys: Collection[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """Return the configs of a group, by name; `keys` None = all, unknown ones are left out."""
    entries = []
    for name, each in GROUP_KEYS.items():
        if keys is not None and name not in keys:
            continue
        found = [] if each.twin is None else _broker_synonyms(layers, each.twin)
        value = each.key.text(each.key.default if each.twin is None else layers.effective(each.twin))
        if name in overrides:
            value = overrides[name]
            found.insert(0, ConfigSynonym(name=name, value=value, source=ConfigSource.GROUP))
        entries.append(_entry(each.key, value, found, read_only=False, synonyms=synonyms, documentation=documentation))
    return entries


def broker_config_entries(
    broker: BrokerConfig | BrokerLayers,
    *,
    keys: Collection[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """Return the configs of a broker, by name; `keys` None = all, unknown ones are left out."""
    layers = layers_of(broker)
    entries = []
    for name in sorted(KEYS):
        if keys is not None and name not in keys:
            continue
        key = KEYS[name]
        found = _broker_synonyms(layers, name)
        value = next((synonym.value for synonym in found if synonym.name == name), None)
        entries.append(
            _entry(key, value, found, read_only=not key.dynamic, synonyms=synonyms, documentation=documentation)
        )
    entries += _listener_entries(layers, keys, synonyms=synonyms, documentation=documentation)
    return entries


def _listener_entries(
    layers: BrokerLayers, keys: Collection[str] | None, *, synonyms: bool, documentation: bool
) -> list[ConfigEntry]:
    """Return the settings of single listeners, which have a value only where they are set."""
    found: dict[str, list[ConfigSynonym]] = {}
    for source, stored in (
        (ConfigSource.DYNAMIC_BROKER, layers.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, layers.dynamic_default),
        (ConfigSource.STATIC_BROKER, _static_listener_texts(layers)),
    ):
        for name, value in stored.items():
            key = broker_key(name) if is_of_listener(name) else None
            if key is not None:
                shown = None if key.type is ConfigType.PASSWORD else value
                found.setdefault(name, []).append(ConfigSynonym(name=name, value=shown, source=source))
    entries = []
    for name, values in sorted(found.items()):
        key = broker_key(name)
        if key is not None and (keys is None or name in keys):
            read_only = not key.dynamic
            entries.append(
                _entry(
                    key, values[0].value, values, read_only=read_only, synonyms=synonyms, documentation=documentation
                )
            )
    return entries


def _static_listener_texts(layers: BrokerLayers) -> dict[str, str | None]:
    """Return the settings of single listeners in the static configuration, by name."""
    return {
        ".".join(filter(None, ("listener.name", listener.lower(), mechanism.lower(), key))): KEYS[key].text(value)
        for (listener, mechanism, key), value in layers.static.listener_settings.items()
    }


def dynamic_default_entries(
    configs: Mapping[str, str], *, keys: Collection[str] | None = None, documentation: bool = False
) -> list[ConfigEntry]:
    """Return the settings that all brokers got at runtime: the answer for the broker named ""."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _entry(
            key,
            configs[name],
            [ConfigSynonym(name=name, value=configs[name], source=source)],
            read_only=False,
            synonyms=True,
            documentation=documentation,
        )
        for name in sorted(configs)
        if (keys is None or name in keys) and (key := broker_key(name)) is not None
    ]


def _broker_synonyms(layers: BrokerLayers, name: str) -> list[ConfigSynonym]:
    return [
        ConfigSynonym(name=key, value=KEYS[key].text(value), source=source)
        for key, _, value, source in layers.sources(name)
    ]


def _entry(
    key: ConfigKey,
    value: str | None,
    found: list[ConfigSynonym],
    *,
    read_only: bool,
    synonyms: bool,
    documentation: bool,
) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=value,
        source=found[0].source if found else ConfigSource.DEFAULT,
        read_only=read_only,
        sensitive=key.type is ConfigType.PASSWORD,
        synonyms=found if synonyms else (),
        type=key.type,
        documentation=key.doc if documentation else None,
    )
