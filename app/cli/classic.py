"""Clusters of the classic generation: the options that name one, and its topics."""

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import typer

from ...ports.broker_api.offsets import EARLIEST, LATEST
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.values import frozen
from .command_config import coordination_settings
from .options import PATIENCE_MS

if TYPE_CHECKING:
    from ...core.classic.registry.layout import ClassicBroker
    from ...ports.coordination import Coordination
    from ..clients.classic.simple_consumer import ClassicSimpleConsumer

warn = logging.getLogger("barnabas").warning
_PLACES = ("broker_list", "zk_connect", "etcd_connect", "coordination")


@frozen
class ClusterChoice:
    """The cluster that the options name."""

    bootstrap: str | None
    places: Mapping[str, str]
    """The option for classic brokers or their registries: one, unless there is a bootstrap."""

    @property
    def classic(self) -> bool:
        """Return True for the classic generation."""
        from ..clients.classic.choice import is_classic_address

        return bool(self.places) or is_classic_address(self.bootstrap)


def find_cluster(context: typer.Context, bootstrap: str | None, **places: str | None) -> ClusterChoice:
    """Return the cluster that the options name; one of `places` has priority over a bootstrap from the environment.

    Raises `ConfigError` unless it is exactly one.
    """
    given = {name: place for name, place in places.items() if place}
    source = context.get_parameter_source("bootstrap")
    if given and source is not None and source.name == "ENVIRONMENT":
        bootstrap = None
    found = [*(["bootstrap"] if bootstrap else []), *given]
    if len(found) != 1:
        given_text = " and ".join(map(_option, found)) or "none of them"
        raise ConfigError(f"give one of {', '.join(map(_option, ('bootstrap', *places)))}; given: {given_text}")
    return ClusterChoice(bootstrap, given)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def open_simple(bootstrap: str, settings: Mapping[str, str]) -> "ClassicSimpleConsumer":
    """Return a simple consumer that gives up after `PATIENCE_MS`. Raises `ConfigError`."""
    from ..clients.classic.simple_consumer import ClassicSimpleConsumer

    patience = {"socket.timeout.ms": PATIENCE_MS, "socket.connection.setup.timeout.ms": PATIENCE_MS}
    return ClassicSimpleConsumer(bootstrap, config={**patience, **settings})


def list_topics(cluster: ClusterChoice) -> list[dict[str, object]]:
    """Return each topic with its live brokers and total number of partitions. Raises as `_open_registries`."""
    from ...core.classic.registry import registries

    with closing(_open_registries(cluster)) as session:
        brokers = registries.read_brokers(session, warn)
        topics = registries.read_topics(session, registries.read_topic_names(session, warn), warn)
    rows: list[dict[str, object]] = []
    for name, counts in topics.items():
        live = {broker_id: count for broker_id, count in sorted(counts.items()) if broker_id in brokers}
        rows.append({"topic": name, "partitions": sum(live.values()), "brokers": list(live)})
    return rows


def describe_topic(cluster: ClusterChoice, topic: str) -> list[dict[str, object]]:
    """Return the partitions at each live broker; an offset is None if the broker does not return it.

    Raises `ApiError` for an unknown topic; else as `_open_registries`.
    """
    from ...core.classic.registry import layout, registries

    layout.check_name("topic", topic)
    with closing(_open_registries(cluster)) as session:
        brokers = registries.read_brokers(session, warn)
        counts = registries.read_topic(session, topic, warn)
        if not counts and topic not in registries.read_topic_names(session):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} is unknown to all brokers")
    live = sorted(broker_id for broker_id in counts if broker_id in brokers)
    return [row for broker_id in live for row in _partitions(brokers[broker_id], topic, counts[broker_id])]


def _open_registries(cluster: ClusterChoice) -> "Coordination":
    """Open a session for reading. Raises `ConfigError`, `CoordinationError`."""
    from ..clients.classic.choice import find_out
    from ..compose.coordination import client_coordination

    where = find_out(None, **{**dict.fromkeys(_PLACES, ""), **cluster.places}).registries
    return client_coordination(where, connect_timeout_ms=PATIENCE_MS, settings=coordination_settings(), report=warn)


def _partitions(broker: "ClassicBroker", topic: str, count: int) -> list[dict[str, object]]:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    address = f"{host}:{broker.port}"
    times = {"log_start_offset": EARLIEST, "log_end_offset": LATEST}
    rows: list[dict[str, object]] = []
    with open_simple(f"classic://{address}", {}) as consumer:
        for number in range(count):
            offsets: dict[str, int | None] = dict.fromkeys(times)
            try:
                offsets |= {name: consumer.offset_at(topic, number, time) for name, time in times.items()}
            except BarnabasError as error:
                warn("%s, partition %d of broker %d: %s", topic, number, broker.broker_id, error)
            rows.append({"broker": broker.broker_id, "address": address, "partition": number, **offsets})
    return rows
