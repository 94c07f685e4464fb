"""The configuration of a running broker: what it started with, and what was set since."""

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from ...core.cluster.brokers import broker_configs, set_broker_configs
from ...core.log.config import LogConfig
from ...ports.broker_api import ConfigAlteration, ConfigEntry
from ...ports.coordination import Coordination
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ..config import (
    BrokerConfig,
    BrokerLayers,
    alter_broker_configs,
    alter_topic_configs,
    broker_config_entries,
    check_topic_configs,
    dynamic_default_entries,
    log_config_for,
    topic_config_entries,
    topic_maps,
)
from ..config.classic import CLASSIC, FORMAT_KEY


class BrokerSettings:
    """Static configuration, dynamic overrides, and the rules for both. Not frozen: overrides change. Owner thread only.

    `check_deletion_policy` raises `ConfigError` for a name that no plugin answers to.
    """

    def __init__(
        self,
        config: BrokerConfig,
        coordination: Coordination,
        report: Callable[[str], None],
        check_deletion_policy: Callable[[str], object],
    ) -> None:
        self.static = config
        self._coordination = coordination
        self._report = report
        self._check_deletion_policy = check_deletion_policy
        self._layers = BrokerLayers(
            static=config,
            dynamic=broker_configs(coordination, config.broker_id, report),
            dynamic_default=broker_configs(coordination, None, report),
        )
        self._topic_maps = topic_maps(config, report)
        check_deletion_policy(self.log_config({}).deletion_policy)

    def log_config(self, overrides: Mapping[str, str], topic: str = "") -> LogConfig:
        """What the logs of a topic with these overrides go by; 0.7's maps count for a classic `topic`."""
        mapped = self._topic_maps.get(topic, {})
        if mapped and overrides.get(FORMAT_KEY, self.static.message_format) != CLASSIC:
            mapped = {}
        return log_config_for(self._layers, overrides, self._report, topic_defaults=mapped)

    # --- topics

    def checked_topic_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """The overrides, if all can be used. Raises `ApiError(INVALID_CONFIG)`."""
        checked = check_topic_configs(configs)
        self._check_together(checked)
        return checked

    def altered_topic_configs(
        self, overrides: Mapping[str, str], alterations: Sequence[ConfigAlteration]
    ) -> dict[str, str]:
        """The overrides after the changes. Raises `ApiError` INVALID_CONFIG, INVALID_REQUEST."""
        altered = alter_topic_configs(overrides, alterations, self._layers)
        self._check_together(altered)
        return altered

    def _check_together(self, overrides: Mapping[str, str]) -> None:
        try:
            self._check_deletion_policy(self.log_config(overrides).deletion_policy)
        except (ConfigError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def topic_entries(
        self,
        overrides: Mapping[str, str],
        *,
        keys: Sequence[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        return topic_config_entries(overrides, self._layers, keys=keys, synonyms=synonyms, documentation=documentation)

    # --- brokers

    def broker_entries(self, *, keys: Sequence[str] | None, synonyms: bool, documentation: bool) -> list[ConfigEntry]:
        """The configs of this broker."""
        return broker_config_entries(self._layers, keys=keys, synonyms=synonyms, documentation=documentation)

    def default_entries(self, *, keys: Sequence[str] | None, documentation: bool) -> list[ConfigEntry]:
        """What was set for all brokers."""
        return dynamic_default_entries(self._layers.dynamic_default, keys=keys, documentation=documentation)

    def alter_broker(self, alterations: Sequence[ConfigAlteration], *, everywhere: bool, validate_only: bool) -> None:
        """Change the configs of this broker, or of all; nothing when it raises `ApiError` or `CoordinationError`."""
        layers = self._layers
        altered = alter_broker_configs(
            layers.dynamic_default if everywhere else layers.dynamic, alterations, self.static
        )
        if everywhere:
            changed = evolve(layers, dynamic_default=altered)
        else:
            changed = evolve(layers, dynamic=altered)
        try:
            self._check_deletion_policy(log_config_for(changed, {}).deletion_policy)
        except (ConfigError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if not validate_only:
            set_broker_configs(self._coordination, None if everywhere else self.static.broker_id, altered)
            self._layers = changed
