"""The composition of a classic producer from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.classic.producer.pool import BrokerPool, PoolSettings
from ....core.classic.registry.directory import Directory, RegistryDirectory, StaticDirectory
from ....core.client.producer.partitioner import Partitioner
from ....ports.errors import ConfigError
from ..shared.blocking_shell import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.message.codec import Codec
    from ....plugins.host import PluginHost
    from ....ports.coordination import Coordination
    from ....ports.scheduler import Scheduler
    from ....ports.transport import Address
    from ...connector import Connector
    from .choice import Whereabouts
    from .producer_settings import ClassicConsumerSettings, ClassicProducerSettings

CLASSIC_CODECS = ("gzip", "snappy")


def classic_codec(host: PluginHost, name: str) -> Codec | None:
    """Return the codec; None for no compression. Raises `ConfigError` for one that the classic format lacks."""
    codec = host.codecs().by_name(name)
    if codec is not None and codec.name not in CLASSIC_CODECS:
        raise ConfigError(f"compression.codec={name}: the classic format knows none, gzip and snappy")
    return codec


def classic_partitioner(host: PluginHost, given: Any, where: Whereabouts) -> Partitioner:
    """Raises `ConfigError`."""
    if given and where.brokers is not None:
        raise ConfigError("partitioner.class together with broker.list: only registries list the partitions")
    made: object = host.partitioner(given or "classic") if isinstance(given, str) else given
    if not isinstance(made, Partitioner):
        raise ConfigError(f"partitioner: {type(made).__name__} is not a Partitioner")
    return made


def open_coordination(where: Whereabouts, chosen: ClassicProducerSettings, plugins: PluginHost) -> Coordination | None:
    """Open a session with the registries, unless the brokers are a fixed list.

    Raises `ConfigError`, `CoordinationError`.
    """
    if where.brokers is not None:
        return None
    from ...compose.coordination import client_coordination

    session_ms = chosen.zookeeper_session_timeout_ms
    return client_coordination(
        where.registries,
        session_timeout_ms=session_ms,
        connect_timeout_ms=chosen.zookeeper_connection_timeout_ms or session_ms,
        settings=chosen.coordination_settings,
        report=logger.warning,
        plugins=plugins,
    )


def classic_connector(
    addresses: Sequence[Address], chosen: ClassicProducerSettings | ClassicConsumerSettings
) -> Connector:
    """Return the connector of a classic client, over TCP."""
    from ...compose.clients import client_connector

    return client_connector(
        addresses,
        client_id=chosen.client_id,
        request_timeout_ms=chosen.socket_timeout_ms,
        connect_timeout_ms=chosen.connect_timeout_ms,
        protocol="classic",
        report=logger.warning,
        security=chosen.security,
    )


def make_directory(where: Whereabouts, coordination: Coordination | None, scheduler: Scheduler) -> Directory:
    """Return the directory of brokers and partitions."""
    if coordination is None:
        return StaticDirectory(where.brokers or {})
    return RegistryDirectory(coordination, scheduler, report=logger.warning)


def make_pool(connector: Connector, scheduler: Scheduler, chosen: ClassicProducerSettings) -> BrokerPool:
    """Create the producer's connections, which open when they are needed."""
    return BrokerPool(
        scheduler,
        connector.clock,
        connector.entropy,
        connector.connect,
        PoolSettings(
            buffer_bytes=chosen.buffer_size,
            connect_timeout_ms=chosen.connect_timeout_ms,
            reconnect_interval=chosen.reconnect_interval,
            reconnect_time_interval_ms=chosen.reconnect_time_interval_ms,
        ),
    )
