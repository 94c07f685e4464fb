"""Configuration: Kafka's dotted keys for brokers and topics, and where values come from.

The names are loaded on first use: clients and commands need few of the modules here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker_config import EFFECTIVE_KEYS, KEYS, BrokerConfig
    from .dynamic_config import (
        GROUP_KEYS,
        alter_broker_configs,
        alter_group_configs,
        alter_topic_configs,
        broker_config_entries,
        dynamic_default_entries,
        group_config_entries,
        group_defaults,
        group_overrides,
        topic_config_entries,
    )
    from .listeners import ListenAddress, advertised, parse_listener
    from .reading import read_config, read_toml
    from .topic_config import TOPIC_KEYS, BrokerLayers, check_topic_configs, log_config_for, topic_maps, usable_layers

_HOMES = {
    "broker_config": ("EFFECTIVE_KEYS", "KEYS", "BrokerConfig"),
    "dynamic_config": (
        "GROUP_KEYS",
        "alter_broker_configs",
        "alter_group_configs",
        "alter_topic_configs",
        "broker_config_entries",
        "dynamic_default_entries",
        "group_config_entries",
        "group_defaults",
        "group_overrides",
        "topic_config_entries",
    ),
    "listeners": ("ListenAddress", "advertised", "parse_listener"),
    "reading": ("read_config", "read_toml"),
    "topic_config": (
        "TOPIC_KEYS",
        "BrokerLayers",
        "check_topic_configs",
        "log_config_for",
        "topic_maps",
        "usable_layers",
    ),
}

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


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
