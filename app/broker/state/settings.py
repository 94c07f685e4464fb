"""The configuration of a running broker: the static one, and the dynamic overrides."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import evolve, field

from ....core.cluster.registry import ClusterRegistry
from ....core.cluster.topics import CORDONED_KEY, INTERNAL_TOPICS
from ....core.coordinator.group.group_config import GroupConfig
from ....core.log.compaction.cleaning_job import CleanerSettings
from ....core.log.config import LogConfig
from ....core.log.retention import DeletionPolicy, record_policy
from ....core.log.scrubbing.scrubber import ScrubSettings
from ....ports.broker_api.configs import ConfigAlteration, ConfigEntry
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.values import frozen
from ...config import (
    BrokerConfig,
    BrokerLayers,
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
    broker_config_entries,
    check_topic_configs,
    dynamic_default_entries,
    group_config_entries,
    group_defaults,
    group_overrides,
    log_config_for,
    topic_config_entries,
    topic_maps,
    usable_layers,
)
from ...config.classic import FORMAT_KEY, V2, is_classic
from ...config.keys import LONG_MAX, Value
from ...config.remote_keys import check_tiered_topic, check_tiering_change

MIN_ISR_KEY = "min.insync.replicas"
_MIB = 1_048_576
_THROTTLED_RATE = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")

_Asked = tuple[BrokerLayers, Mapping[str, str], Mapping[str, str] | None, str]


class BrokerSettings:
    """Static configuration, the overrides that the cluster's image has, and the rules for both. Owner thread only.

    `check_deletion_policy` raises `ConfigError` for a name that no plugin has; `checked_change` is `ListenerTls`'s.
    """

    def __init__(
        self,
        config: BrokerConfig,
        registry: ClusterRegistry,
        report: Callable[[str], None],
        check_deletion_policy: Callable[[str], DeletionPolicy],
        checked_change: Callable[[BrokerConfig], Callable[[], None] | None] = lambda _config: None,
    ) -> None:
        self.static = config
        self._registry = registry
        self._report = report
        self._check_deletion_policy = check_deletion_policy
        self._checked_change = checked_change
        self._set = registry.image.configs
        self._cached_layers = self._made_layers()
        self._known: dict[str, Value] = {}
        """The values of broker keys that were asked for since these layers were made."""
        self._topic_maps = topic_maps(config, report)
        self._last_config: tuple[_Asked, LogConfig] | None = None
        self._last_entries: tuple[_Asked, list[ConfigEntry]] | None = None
        check_deletion_policy(self.log_config({}).deletion_policy)

    @property
    def _layers(self) -> BrokerLayers:
        """The layers of configuration, rebuilt when the image has other configs."""
        if self._registry.image.configs is not self._set:
            self._set = self._registry.image.configs
            self._cached_layers = self._made_layers()
            self._known.clear()
        return self._cached_layers

    def _effective(self, name: str) -> Value:
        """Return the value of a broker key. It is remembered: each fetch of a follower asks for the limits."""
        layers = self._layers
        if name not in self._known:
            self._known[name] = layers.effective(name)
        return self._known[name]

    def _made_layers(self) -> BrokerLayers:
        own, everywhere = dict(self._set.get(self.static.broker_id, {})), self._set.get(None, {})
        if own.pop(MIN_ISR_KEY, None) is not None:
            self._report(
                f"{MIN_ISR_KEY} is set for broker {self.static.broker_id} alone, which has no effect: it is one value"
                " for all brokers; set it as their default, or for topics"
            )
        return BrokerLayers(static=self.static, dynamic=own, dynamic_default=everywhere)

    @property
    def running(self) -> BrokerConfig:
        """The configuration of listeners and limits of connections, as set by now; what cannot be used is reported."""
        layers = usable_layers(self._layers, self._report)
        try:
            return layers.running_config()
        except ConfigError as error:
            self._report(f"ignored the stored configuration of listeners and limits of connections: {error}")
            return self.static

    def log_config(self, overrides: Mapping[str, str], topic: str = "") -> LogConfig:
        """Return the configuration of the logs of a topic with these overrides; 0.7's maps count for a classic `topic`.

        An internal topic is always compacted, whatever is configured: the only record of a key may be in its first
        segment. `__share_group_state` has no such keys, and its coordinator deletes what it does not need.
        """
        asked = self._asked(overrides, topic)
        if self._last_config is not None and self._last_config[0] == asked:  # one topic has many logs
            return self._last_config[1]
        config = log_config_for(
            self._layers, _with_format(overrides), self._report, topic_defaults=self._topic_maps.get(topic)
        )
        if topic == "__share_group_state":
            config = evolve(config, cleanup_policy=frozenset({"delete"}), retention_ms=-1, retention_bytes=-1)
        elif topic in INTERNAL_TOPICS:
            config = evolve(config, cleanup_policy=frozenset({"compact"}))
        self._last_config = asked, config
        return config

    def _asked(self, overrides: Mapping[str, str], topic: str) -> "_Asked":
        """Return all inputs of the configuration of a topic; topics of one request mostly share them."""
        return self._layers, dict(overrides), self._topic_maps.get(topic), topic if topic in INTERNAL_TOPICS else ""

    def throttled_rate(self, *, leader: bool) -> int:
        """Return the present limit of throttled replicas, as `leader` or follower, in bytes per second."""
        rate = self._effective(_THROTTLED_RATE[leader])
        return rate if isinstance(rate, int) else LONG_MAX

    @property
    def begins_in_tier(self) -> bool:
        """Return True if new followers begin at the last tiered offset, as set by now."""
        return self._effective("follower.fetch.last.tiered.offset.enable") is True

    @property
    def cleaner(self) -> CleanerSettings:
        """The settings of compaction, as set by now."""
        threads = int(self._number("log.cleaner.threads"))
        return CleanerSettings(
            threads=threads,
            dedupe_buffer_bytes=max(_MIB * max(1, threads), int(self._number("log.cleaner.dedupe.buffer.size"))),
            load_factor=min(max(self._number("log.cleaner.io.buffer.load.factor"), 0.1), 0.95),
            io_buffer_bytes=int(self._number("log.cleaner.io.buffer.size")),
            io_max_bytes_per_second=max(self._number("log.cleaner.io.max.bytes.per.second"), 1.0),
            backoff_ms=int(self._number("log.cleaner.backoff.ms")),
        )

    @property
    def scrub(self) -> ScrubSettings:
        """The settings of the scrubber, as set by now."""
        return ScrubSettings(
            interval_ms=int(self._number("log.scrub.interval.ms")),
            bytes_per_second=self._number("log.scrub.io.max.bytes.per.second"),
        )

    def is_cordoned(self, log_dir: str) -> bool:
        """Return True if the data folder gets no new replicas (`cordoned.log.dirs`, as set by now)."""
        cordoned = self._cordoned
        return self.is_all_cordoned or Path(log_dir).absolute() in {Path(path).absolute() for path in cordoned}

    @property
    def is_all_cordoned(self) -> bool:
        """True if no data folder of this broker gets new replicas."""
        cordoned = self._cordoned
        return bool(cordoned) and self.static.cordoned_dirs(cordoned) == frozenset(self.static.data_dirs)

    @property
    def _cordoned(self) -> Sequence[str]:
        """`cordoned.log.dirs`, as set by now; the static value where the stored one names unknown folders."""
        value = self._effective(CORDONED_KEY)
        cordoned = value if isinstance(value, tuple) else ()
        try:
            self.static.cordoned_dirs(cordoned)
        except ConfigError:  # log.dirs has changed since it was stored
            return self.static.cordoned_log_dirs
        return cordoned

    def _number(self, key: str) -> float:
        value = self._effective(key)
        if not isinstance(value, int | float):
            raise TypeError(f"{key} has no number: {value!r}")
        return value

    @property
    def verifies_transactions(self) -> bool:
        """`transaction.partition.verification.enable`, as set by now."""
        return bool(self._effective("transaction.partition.verification.enable"))

    # --- topics

    def has_own_defaults(self, topic: str) -> bool:
        """Return True if one of 0.7's maps names the topic."""
        return topic in self._topic_maps

    def new_topic_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Return the overrides of a new topic, if all can be used; they include its generation unless it is the current
        one.

        Raises `ApiError(INVALID_CONFIG)`.
        """
        checked = check_topic_configs(configs)
        if FORMAT_KEY not in checked and self.static.message_format != V2:
            checked[FORMAT_KEY] = self.static.message_format
        self._check_together(checked)
        return checked

    def check_makes_current_topics(self, name: str) -> None:
        """Raise `ApiError(UNSUPPORTED_FOR_MESSAGE_FORMAT)` where topics without a set format are classic ones."""
        if self.static.message_format != V2:
            text = f"{name[:260]!r} would be a classic topic (message.format); write it through a classic:// listener"
            raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)

    def altered_topic_configs(
        self, overrides: Mapping[str, str], alterations: Sequence[ConfigAlteration]
    ) -> dict[str, str]:
        """Return the overrides after the changes. Raises `ApiError` INVALID_CONFIG, INVALID_REQUEST."""
        altered = alter_topic_configs(overrides, alterations, self._layers)
        if is_classic(altered) != is_classic(overrides):
            text = f"{FORMAT_KEY} of a topic cannot change; make another topic and copy the messages"
            raise ApiError(ErrorCode.INVALID_CONFIG, text)
        self._check_together(altered)
        try:
            check_tiering_change(self.log_config(overrides), self.log_config(altered))
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return altered

    def _check_together(self, overrides: Mapping[str, str]) -> None:
        if is_classic(overrides) and "compact" in overrides.get("cleanup.policy", ""):
            text = "cleanup.policy=compact: the messages of a classic topic have no keys to compact by"
            raise ApiError(ErrorCode.INVALID_CONFIG, text)
        try:
            config = self.log_config(overrides)
            policy = self._check_deletion_policy(config.deletion_policy)
            check_tiered_topic(config, is_system_enabled=self.static.remote_log_storage_system_enable)
        except (ConfigError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if is_classic(overrides) and "deletion.policy" in overrides and record_policy(policy) is not None:
            text = f"deletion.policy={overrides['deletion.policy']}: a classic log gives up whole segments only"
            raise ApiError(ErrorCode.INVALID_CONFIG, text)

    def topic_entries(
        self,
        overrides: Mapping[str, str],
        topic: str,
        *,
        keys: Sequence[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        asked = self._asked(overrides, topic)
        is_plain = keys is None and not synonyms and not documentation
        if is_plain and self._last_entries is not None and self._last_entries[0] == asked:
            return self._last_entries[1]
        entries = topic_config_entries(
            overrides if self.static.message_format == V2 else _with_format(overrides),
            self._layers,
            topic_defaults=self._topic_maps.get(topic),
            keys=keys,
            synonyms=synonyms,
            documentation=documentation,
        )
        if is_plain:
            self._last_entries = asked, entries
        return entries

    # --- groups

    @property
    def group_defaults(self) -> GroupConfig:
        """The settings of groups that have none of their own."""
        return group_defaults(self._layers)

    def group_overrides(self, group_id: str, configs: Mapping[str, str]) -> dict[str, object]:
        """Return the usable settings of a group, by the fields of `GroupConfig`; the others are reported."""
        return group_overrides(self._layers, group_id, configs, self._report)

    def group_entries(
        self, configs: Mapping[str, str], *, keys: Sequence[str] | None, synonyms: bool, documentation: bool
    ) -> list[ConfigEntry]:
        """Return the configs of a group with these settings of its own."""
        return group_config_entries(configs, self._layers, keys=keys, synonyms=synonyms, documentation=documentation)

    def altering_group(
        self, make: Callable[[Mapping[str, str]], Sequence[ConfigAlteration]]
    ) -> Callable[[Mapping[str, str]], dict[str, str]]:
        """Return a function, for any thread, that makes the changes to the settings of a group.

        It raises `ApiError` INVALID_CONFIG, INVALID_REQUEST.
        """
        layers = self._layers
        return lambda stored: alter_group_configs(stored, make(stored), layers)

    # --- brokers

    def broker_entries(self, *, keys: Sequence[str] | None, synonyms: bool, documentation: bool) -> list[ConfigEntry]:
        """Return the configs of this broker."""
        return broker_config_entries(self._layers, keys=keys, synonyms=synonyms, documentation=documentation)

    def default_entries(self, *, keys: Sequence[str] | None, documentation: bool) -> list[ConfigEntry]:
        """Return the configs that are set for all brokers."""
        return dynamic_default_entries(self._layers.dynamic_default, keys=keys, documentation=documentation)

    def stored_broker_configs(self, *, everywhere: bool) -> Mapping[str, str]:
        """Return the dynamic configs of this broker, or of all brokers."""
        return self._layers.dynamic_default if everywhere else self._layers.dynamic

    def planned_broker_change(self, alterations: Sequence[ConfigAlteration], *, everywhere: bool) -> "BrokerChange":
        """Return the result of changes to the configs of this broker, or of all; nothing is changed yet.

        Raises `ApiError` INVALID_CONFIG, INVALID_REQUEST.
        """
        layers = self._layers
        stored = self.stored_broker_configs(everywhere=everywhere)
        change = BrokerChange(
            configs=alter_broker_configs(stored, alterations, self.static, everywhere=everywhere),
            broker_id=None if everywhere else self.static.broker_id,
        )
        changed = change.applied_to(layers)
        if not everywhere and MIN_ISR_KEY in change.configs:
            text = f"{MIN_ISR_KEY} is one value for all brokers (KIP-966); set it as the default of all, or for topics"
            raise ApiError(ErrorCode.INVALID_CONFIG, text)
        try:
            self._check_deletion_policy(log_config_for(changed, {}).deletion_policy)
        except (ConfigError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        try:
            cordoned = changed.effective(CORDONED_KEY)
            self.static.cordoned_dirs(cordoned if isinstance(cordoned, tuple) else ())
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        try:
            running = usable_layers(changed, lambda _line: None).running_config()
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        return evolve(change, check=self._checked_change(running))


@frozen(kw_only=True)
class BrokerChange:
    """All dynamic configs of a broker after a change; `broker_id` None: for all brokers."""

    configs: Mapping[str, str] = field(repr=False)
    broker_id: int | None
    check: Callable[[], None] | None = None
    """Work for a worker thread that raises `ConfigError` if listeners cannot use the change; None: there is none."""

    def applied_to(self, layers: BrokerLayers) -> BrokerLayers:
        if self.broker_id is None:
            return evolve(layers, dynamic_default=self.configs)
        return evolve(layers, dynamic=self.configs)


def _with_format(overrides: Mapping[str, str]) -> Mapping[str, str]:
    return {FORMAT_KEY: V2, **overrides}
