"""The answers to DescribeConfigs: values, where they come from, and what would count instead."""

from collections.abc import Collection, Mapping

from ...ports.broker_api.configs import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType
from .broker_config import KEYS, BrokerConfig
from .keys import ConfigKey
from .listener_names import is_of_listener
from .topic_config import TOPIC_KEYS, BrokerLayers, broker_key, classic_values, inherited, layers_of


def topic_config_entries(
    overrides: Mapping[str, str],
    broker: BrokerConfig | BrokerLayers,
    *,
    topic_defaults: Mapping[str, str] | None = None,
    keys: Collection[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """The configs of a topic, by name; `keys` None = all, unknown ones are left out. See `log_config_for`."""
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


def broker_config_entries(
    broker: BrokerConfig | BrokerLayers,
    *,
    keys: Collection[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """The configs of a broker, by name; `keys` None = all, unknown ones are left out."""
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
