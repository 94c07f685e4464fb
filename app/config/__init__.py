"""Configuration: Kafka's dotted keys for brokers and topics, and where values come from."""

from .broker_config import EFFECTIVE_KEYS, KEYS, BrokerConfig
from .dynamic_config import (
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
    broker_config_entries,
    dynamic_default_entries,
    group_config_entries,
    topic_config_entries,
)
from .group_config import GROUP_KEYS, group_defaults, group_overrides
from .listeners import ListenAddress, advertised, parse_listener
from .reading import read_config, read_toml
from .topic_config import TOPIC_KEYS, BrokerLayers, check_topic_configs, log_config_for, topic_maps, usable_layers

__all__ = [
    "EFFECTIVE_KEYS",
    "GROUP_KEYS",
    "KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "BrokerLayers",
    "ListenAddress",
    "advertised",
    "alter_broker_configs",
    "alter_group_configs",
    "alter_topic_configs",
    "broker_config_entries",
    "check_topic_configs",
    "dynamic_default_entries",
    "group_config_entries",
    "group_defaults",
    "group_overrides",
    "log_config_for",
    "parse_listener",
    "read_config",
    "read_toml",
    "topic_config_entries",
    "topic_maps",
    "usable_layers",
]
