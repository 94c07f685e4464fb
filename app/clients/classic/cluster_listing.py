"""The content of a classic cluster: brokers, topics, and the number of partitions of each topic on each broker."""

from collections.abc import Collection, Mapping

from ....core.classic.registry import registries
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.transport import Address
from ....ports.values import frozen
from ..shared.blocking_shell import logger
from .choice import Whereabouts
from .producer_settings import RegistrySettings
from .simple_consumer import ClassicSimpleConsumer

_NOWHERE = 2**62
"""An offset that no log has: a fetch there shows whether the partition exists, and brings no messages."""
_ASKED_AT_ONCE = 32


@frozen(kw_only=True)
class ClusterListing:
    """The live brokers, and of each topic broker id → number of partitions, for live brokers only.

    A topic that no live broker has is there with nothing below it. With a fixed list of brokers the topics are not
    known: `topics` is empty, and `count_partitions` asks a broker.
    """

    brokers: Mapping[int, Address]
    topics: Mapping[str, Mapping[int, int]]


def list_cluster(
    where: Whereabouts, settings: RegistrySettings, topics: Collection[str] | None = None
) -> ClusterListing:
    """Read the registries once, `topics` None = all of them; a name that is in none of them is left out.

    Blocks. Raises `ConfigError`, `CoordinationError`.
    """
    if where.brokers is not None:
        return ClusterListing(brokers=where.brokers, topics={})
    from ...compose.coordination import client_coordination

    session_ms = settings.zookeeper_session_timeout_ms
    coordination = client_coordination(
        where.registries,
        session_timeout_ms=session_ms,
        connect_timeout_ms=settings.zookeeper_connection_timeout_ms or session_ms,
        settings=settings.coordination_settings,
        report=logger.warning,
    )
    try:
        brokers = registries.read_brokers(coordination, logger.warning)
        known = registries.read_topic_names(coordination, logger.warning)
        wanted = known if topics is None else [name for name in known if name in topics]
        counts = registries.read_topics(coordination, wanted, logger.warning)
    finally:
        coordination.close()
    return ClusterListing(
        brokers={broker.broker_id: (broker.host, broker.port) for broker in brokers.values()},
        topics={
            topic: {broker_id: count for broker_id, count in found.items() if broker_id in brokers}
            for topic, found in counts.items()
        },
    )


def count_partitions(consumer: ClassicSimpleConsumer, topic: str) -> int:
    """Return the number of partitions that the broker has of a topic, or would have if it has no messages yet.

    Raises `ApiError` for a name that no classic topic may have, `TransportError`.
    """
    first = 0
    while first < registries.PARTITIONS_MAX:
        places = [(topic, first + number, _NOWHERE) for number in range(_ASKED_AT_ONCE)]
        for (_, partition, _), found in zip(places, consumer.multifetch(places, 4), strict=True):
            if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return partition
            if found.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise ApiError(found.error, f"the broker cannot list its partitions of topic {topic!r}")
        first += _ASKED_AT_ONCE
    return first


def address_text(address: Address) -> str:
    """Return an address in the form of `classic://...` and of a broker list."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
