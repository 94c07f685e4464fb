"""The settings of a classic consumer, and where its registries are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ....core.classic.consumer.settings import ConnectorSettings
from ....core.classic.registry.layout import check_name
from ....ports.errors import ConfigError
from ...config.names import coordination_url
from ...config.security_settings import NO_SECURITY, SecuritySettings, is_security_key
from ..shared.settings import read_security, read_settings

if TYPE_CHECKING:
    from ....core.classic.rebalancer import Rebalancer
    from ....plugins.host import PluginHost


def read_connector_settings(
    config: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> tuple[ConnectorSettings, SecuritySettings]:
    """Read dotted names and keyword arguments, which win. Raises `ConfigError`, also for an unusable group id."""
    given = dict(given)
    config = dict(config or {})
    of_config = {key: config.pop(key) for key in [*config] if is_security_key(key)}
    of_given = {name: given.pop(name) for name in [*given] if is_security_key(name.replace("_", "."))}
    security = read_security(of_config, of_given) if of_config or of_given else NO_SECURITY
    settings = read_settings(ConnectorSettings, config, given)
    if not settings.groupid:
        raise ConfigError("groupid is missing: name the consumer group")
    check_name("groupid", settings.groupid)
    if settings.consumerid:
        check_name("consumerid", settings.consumerid)
    return settings, security


def find_registries(settings: ConnectorSettings, coordination: object) -> object:
    """Return the argument of `compose.client_coordination`. Raises `ConfigError` unless exactly one place is given."""
    places = {
        "zk.connect": coordination_url("zk.connect", settings.zk_connect),
        "etcd.connect": coordination_url("etcd.connect", settings.etcd_connect),
        "coordination": coordination,
    }
    given = {name: place for name, place in places.items() if place}
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise ConfigError(f"a consumer connector needs exactly one of {', '.join(places)}; given: {found}")
    return next(iter(given.values()))


def rebalancer_of(settings: ConnectorSettings, given: object, host: PluginHost) -> Rebalancer:
    """The object that was given, or what the settings name. Raises `ConfigError`."""
    if given is None or isinstance(given, str):
        return host.rebalancer(settings.rebalance_strategy)
    if not hasattr(given, "assign"):
        raise ConfigError(f"rebalance.strategy: {given!r:.100} has no assign, see Rebalancer")
    return cast("Rebalancer", given)
