"""The table of topic keys, each with its twin among the broker keys, and what a topic's logs go by."""

from collections.abc import Callable, Iterator, Mapping

from attrs import evolve

from ...core.log.config import LogConfig
from ...ports.broker_api.configs import ConfigSource, ConfigSynonym, ConfigType
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.values import Secret, frozen
from .broker_config import CONNECTION_KEYS, KEYS, SYNONYMS, BrokerConfig
from .classic import CLASSIC, FORMAT_KEY, TOPIC_MAPS
from .classic import DEFAULTS as CLASSIC_DEFAULTS
from .ignored_keys import IGNORED_TOPIC_DEFAULTS
from .keys import LONG_MAX, ConfigKey, Value
from .listener_names import is_of_listener, name_of_scope, scoped_key
from .names import nearest

DYNAMIC_LAYERS = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


@frozen(kw_only=True)
class BrokerLayers:
    """A broker's configuration with what was set while it runs: for itself, and for all brokers of the cluster."""

    static: BrokerConfig
    dynamic: Mapping[str, str] = {}
    dynamic_default: Mapping[str, str] = {}

    def given(self, source: ConfigSource, name: str) -> Value:
        """Return a source's value of a broker key; None: it has none. Raises `ConfigError` for a wrong stored value."""
        key = KEYS[name]
        if source in DYNAMIC_LAYERS:
            stored = (self.dynamic if source is ConfigSource.DYNAMIC_BROKER else self.dynamic_default).get(name)
            return None if stored is None else _parsed(key, stored)
        if source is ConfigSource.STATIC_BROKER:
            return _value(self.static.value(name)) if name in self.static.given else None
        return key.default

    def sources(self, name: str) -> Iterator[tuple[str, int, Value, ConfigSource]]:
        """Yield the (key, factor, value, source) that count for a broker key, the one that wins first."""
        for source in (*DYNAMIC_LAYERS, ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT):
            for key, factor in SYNONYMS.get(name, ((name, 1),)):
                value = self.given(source, key)
                if value is not None:
                    yield key, factor, value, source

    def is_given(self, name: str) -> bool:
        """Return True if a broker key, or a synonym of it, was set."""
        return any(source is not ConfigSource.DEFAULT for _, _, _, source in self.sources(name))

    def effective(self, name: str) -> Value:
        """Return the value of a broker key or, where it is not set, that of its synonyms."""
        for _, factor, value, _ in self.sources(name):
            return scaled(value, factor)
        return None

    def running_config(self) -> BrokerConfig:
        """Return the static configuration with the dynamic settings of listeners and limits of connections over it.

        Raises `ConfigError`.
        """
        limits: dict[str, str] = {}
        of_listeners = dict(self.static.listener_settings)
        for layer in (self.dynamic_default, self.dynamic):
            for name, text in layer.items():
                if is_of_listener(name):
                    listener, mechanism, key = scoped_key(name_of_scope(name), KEYS)
                    of_listeners[listener, mechanism, key.name] = _parsed(key, text)
                elif name in CONNECTION_KEYS:
                    limits[KEYS[name].attribute] = text
        if not limits and of_listeners == self.static.listener_settings:
            return self.static
        return evolve(self.static, listener_settings=of_listeners, **limits)  # type: ignore[arg-type]  # converted


def broker_key(name: str) -> ConfigKey | None:
    """Return the key of a broker's setting, `listener.name.NAME.[MECHANISM.]KEY` included; None: there is none."""
    if not is_of_listener(name):
        return KEYS.get(name)
    try:
        _, _, key = scoped_key(name_of_scope(name), KEYS)
    except ConfigError:
        return None
    return evolve(key, name=name)


def inherited(layers: BrokerLayers, topic: "TopicKey") -> Value:
    """Return the value for a topic that has none of its own."""
    return topic.key.default if topic.twin is None else layers.effective(topic.twin)


def layers_of(broker: "BrokerConfig | BrokerLayers") -> BrokerLayers:
    return broker if isinstance(broker, BrokerLayers) else BrokerLayers(static=broker)


def scaled(value: Value, factor: int) -> Value:
    """Convert the value of a synonym into the unit of its key; 0 and -1 (no limit) stay as they are."""
    return value * factor if factor != 1 and isinstance(value, int) and value > 0 else value


@frozen
class TopicKey:
    """A key of topics: `twin` is the broker key that counts where a topic has no value of its own, if there is one."""

    key: ConfigKey
    twin: str | None
    attribute: str | None
    """The field of `LogConfig` for the key; None: the key has no effect."""


def _topic_key(name: str, twin: str) -> TopicKey:
    key = evolve(KEYS[twin], name=name)
    return TopicKey(key, twin, None if key.ignored else name.replace(".", "_"))


# The topic keys that name replicas: whose copying is throttled.


def _replicas(name: str, doc: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.LIST,
        default=(),
        doc=doc,
        form=r"[0-9]{1,10}:[0-9]{1,10}|\*",
        form_text="a list of PARTITION:BROKER, or * for all",
    )


THROTTLED_REPLICAS = (
    _replicas(
        "follower.replication.throttled.replicas",
        "PARTITION:BROKER,... or *: the followers that fetch at most follower.replication.throttled.rate.",
    ),
    _replicas(
        "leader.replication.throttled.replicas",
        "PARTITION:BROKER,... or *: the leaders that give followers at most leader.replication.throttled.rate.",
    ),
)

DEAD_LETTERS_ENABLE = ConfigKey(
    name="errors.deadletterqueue.group.enable",
    type=ConfigType.BOOLEAN,
    default=False,
    doc="Whether share groups may write dead letters to the topic.",
)

MIRROR_SOURCE = ConfigKey(
    name="mirror.source",
    type=ConfigType.STRING,
    default="",
    doc="The cluster that the topic mirrors: producers are refused, retention and compaction are the source's.",
)
_OF_SOURCE: Mapping[str, object] = {
    "cleanup_policy": frozenset({"delete"}),
    "retention_ms": -1,
    "retention_bytes": -1,
}
"""Settings of a mirror in place of its own, which count once it is promoted: the source decides what is deleted."""


def _flag(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.BOOLEAN, default=False, doc=doc)


def _lag(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.LONG, default=0, low=0, high=LONG_MAX, doc=doc)


TIERING = (
    _flag("remote.storage.enable", "Whether closed segments are copied to remote storage."),
    ConfigKey(
        name="remote.storage.source",
        type=ConfigType.STRING,
        default="",
        doc="TOPIC-ID of another cluster in the same remote storage, which is read here; set when a topic is created.",
    ),
    _flag("remote.log.copy.disable", "Whether nothing more is copied; what is in remote storage stays readable."),
    _flag("remote.log.delete.on.disable", "Whether remote.storage.enable=false may delete what is in remote storage."),
    _lag("remote.copy.lag.ms", "A segment is copied once its newest record is older than this (KIP-1241); 0: at once."),
    _lag("remote.copy.lag.bytes", "A segment is copied once as many bytes follow it (KIP-1241); 0: at once."),
)


_TABLE: Mapping[str, TopicKey] = {
    topic_key.key.name: topic_key
    for topic_key in (
        *(_topic_key(name, twin) for name, twin in IGNORED_TOPIC_DEFAULTS.items()),
        *(
            TopicKey(key, None, key.attribute)
            for key in (*THROTTLED_REPLICAS, DEAD_LETTERS_ENABLE, MIRROR_SOURCE, *TIERING)
        ),
        _topic_key("cleanup.policy", "log.cleanup.policy"),
        _topic_key("compression.type", "compression.type"),
        _topic_key("delete.retention.ms", "log.cleaner.delete.retention.ms"),
        _topic_key("deletion.policy", "log.deletion.policy"),
        _topic_key("file.delete.delay.ms", "log.segment.delete.delay.ms"),
        _topic_key("flush.messages", "log.flush.interval.messages"),
        _topic_key("flush.ms", "log.flush.interval.ms"),
        _topic_key("index.interval.bytes", "log.index.interval.bytes"),
        _topic_key("local.retention.bytes", "log.local.retention.bytes"),
        _topic_key("local.retention.ms", "log.local.retention.ms"),
        _topic_key("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        _topic_key("max.message.bytes", "message.max.bytes"),
        _topic_key("message.format", "message.format"),
        _topic_key("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
        _topic_key("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
        _topic_key("message.timestamp.type", "log.message.timestamp.type"),
        _topic_key("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
        _topic_key("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
        _topic_key("min.insync.replicas", "min.insync.replicas"),
        _topic_key("record.validation", "record.validation"),
        _topic_key("retention.bytes", "log.retention.bytes"),
        _topic_key("retention.ms", "log.retention.ms"),
        _topic_key("segment.bytes", "log.segment.bytes"),
        _topic_key("segment.index.bytes", "log.index.size.max.bytes"),
        _topic_key("segment.jitter.ms", "log.roll.jitter.ms"),
        _topic_key("segment.ms", "log.roll.ms"),
        _topic_key("unclean.leader.election.enable", "unclean.leader.election.enable"),
    )
}
TOPIC_KEYS: Mapping[str, TopicKey] = {name: _TABLE[name] for name in sorted(_TABLE)}
"""Every topic key by name."""


def topic_key(name: str) -> TopicKey:
    """Raises `ConfigError` for a name that is no topic key, with the nearest one."""
    found = TOPIC_KEYS.get(name)
    if found is None:
        raise ConfigError(f"there is no topic configuration key {name[:200]!r}{nearest(name, list(TOPIC_KEYS))}")
    return found


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Check the overrides of a topic, and return them. Raises `ApiError(INVALID_CONFIG)`."""
    checked = {}
    for name, value in configs.items():
        try:
            key = topic_key(name).key
            if value is None:
                raise ConfigError(f"{name} has no value")
            _parsed(key, value)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        checked[name] = value
    return checked


def log_config_for(
    broker: "BrokerConfig | BrokerLayers",
    overrides: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
    *,
    topic_defaults: Mapping[str, str] | None = None,
) -> LogConfig:
    """Return the settings of a topic's logs. `topic_defaults` apply where the topic has no override of its own, before
    the broker's values. A classic topic has other defaults of its own (facts A5).

    With `report`, stored values that make no sense are reported to it and count as not set; without it they raise
    `ConfigError`.
    """
    layers = layers_of(broker)
    if report is not None:
        layers = usable_layers(layers, report)
        overrides = _usable_overrides(overrides or {}, report)
    values: dict[str, object] = {}
    between = classic_values(layers, overrides or {}, topic_defaults or {})
    for name, topic in TOPIC_KEYS.items():
        own = (overrides or {}).get(name)
        if own is None and name in between:
            own = between[name].value
        if topic.attribute is None:
            continue
        value = inherited(layers, topic) if own is None else _parsed(topic.key, own)
        values[topic.attribute] = frozenset(value) if isinstance(value, tuple) else value
    for name in overrides or {}:
        topic_key(name)
    if values["mirror_source"]:
        values |= _OF_SOURCE
    return LogConfig(**values)  # type: ignore[arg-type]  # each value has the type of its key


def classic_values(
    layers: BrokerLayers, overrides: Mapping[str, str], mapped: Mapping[str, str]
) -> dict[str, ConfigSynonym]:
    """Return the values of a classic topic that rank between its own overrides and the broker's values, by topic key:
    those of 0.7's maps (`mapped`: for this topic), and its other defaults. Other topics have none."""
    if overrides.get(FORMAT_KEY, layers.effective(FORMAT_KEY)) != CLASSIC:
        return {}
    found = {
        name: ConfigSynonym(name=twin, value=value, source=ConfigSource.DEFAULT)
        for name, value in CLASSIC_DEFAULTS.items()
        if (twin := TOPIC_KEYS[name].twin) is not None and not layers.is_given(twin)
    }
    for map_name, (name, _) in TOPIC_MAPS.items():
        if name in mapped:
            found[name] = ConfigSynonym(name=map_name, value=mapped[name], source=ConfigSource.STATIC_BROKER)
    return found


def usable_layers(layers: BrokerLayers, report: Callable[[str], None]) -> BrokerLayers:
    """Return the layers without stored values that make no sense; `report` gets a line for each of those."""
    dynamic = _only_parsable(layers.dynamic, broker_key, report)
    default = _only_parsable(layers.dynamic_default, broker_key, report)
    return evolve(layers, dynamic=dynamic, dynamic_default=default)


def _usable_overrides(overrides: Mapping[str, str], report: Callable[[str], None]) -> dict[str, str]:
    return _only_parsable(overrides, lambda name: TOPIC_KEYS[name].key if name in TOPIC_KEYS else None, report)


def _only_parsable(
    stored: Mapping[str, str], key_of: Callable[[str], ConfigKey | None], report: Callable[[str], None]
) -> dict[str, str]:
    usable = {}
    for name, value in stored.items():
        key = key_of(name)
        if key is None:
            report(f"ignored the stored configuration {name}: there is no such key")
            continue
        try:
            key.parse(value)
        except ConfigError as error:
            report(f"ignored a stored configuration: {error}")
            continue
        usable[name] = value
    return usable


def _parsed(key: ConfigKey, text: str) -> Value:
    return _value(key.parse(text))


def _value(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float | str | tuple | Secret):
        return value
    raise TypeError(f"{value!r} is not the value of a key")


def topic_maps(broker: BrokerConfig, report: Callable[[str], None]) -> dict[str, dict[str, str]]:
    """Return the values of 0.7's maps for single classic topics: topic → topic key → value. Report unusable ones."""
    found: dict[str, dict[str, str]] = {}
    for name, (key_name, factor) in TOPIC_MAPS.items():
        for topic, number in broker.topic_numbers(name, report).items():
            value = str(number * factor)
            try:
                topic_key(key_name).key.parse(value)
            except ConfigError as error:
                report(f"{name}: skipped the entry of {topic!r}: {error}")
                continue
            found.setdefault(topic, {})[key_name] = value
    return found
