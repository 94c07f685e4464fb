"""How a broker appears in the registries: that of the classic generation, that of the current one, or both."""

from collections.abc import Callable, Sequence

from ...core.classic.registry.broker_registration import BrokerRegistrar, IdNode, classic_id_node
from ...core.classic.registry.layout import ClassicBroker
from ...core.cluster import layout
from ...core.cluster.brokers import live_brokers
from ...core.cluster.topics import BrokerRegistration, ReplicaId
from ...ports.coordination import Coordination
from ...ports.errors import BarnabasError, ConfigError
from ..config import BrokerConfig, ListenAddress
from .classic.topics import ClassicTopics
from .state import BrokerState

CLASSIC = "classic"
KAFKA = "kafka"


def current_broker(state: BrokerState, config: BrokerConfig) -> BrokerRegistration:
    """The broker as the current generation knows it."""
    return BrokerRegistration(
        broker_id=state.node_id,
        endpoints=state.endpoints.registered(),
        rack=config.broker_rack,
        started_ms=state.clock.now_ms(),
        inter_broker=state.endpoints.inter_broker or 0,
    )


def shows_classic(config: BrokerConfig, listeners: Sequence[ListenAddress]) -> bool:
    """True if the broker is to be found in the classic registries."""
    return config.classic_registration_enable and any(listener.protocol == CLASSIC for listener in listeners)


def id_nodes(
    state: BrokerState, config: BrokerConfig, listeners: Sequence[ListenAddress], own: BrokerRegistration
) -> list[IdNode]:
    """The nodes that show the broker as alive: one for each generation that it has a listener of."""
    nodes = []
    if shows_classic(config, listeners):
        nodes.append(classic_id_node(_classic_broker(state, own.started_ms)))
    if any(listener.protocol == KAFKA for listener in listeners):
        nodes += [_current_id_node(own), _controller_node(own.broker_id)]
    return nodes


def check_alone(config: BrokerConfig, coordination: Coordination, report: Callable[[str], None]) -> None:
    """Raise `ConfigError` when another live broker serves the current generation from the same tree.

    That needs replication, which is not there yet. To be asked before anything in the tree is changed.
    """
    if any(listener.protocol == KAFKA for listener in config.listener_list):
        others = [broker.broker_id for broker in live_brokers(coordination, report)]
        if set(others) - {config.broker_id}:
            raise _not_alone(min(set(others) - {config.broker_id}))


def _not_alone(other: int) -> ConfigError:
    return ConfigError(
        f"broker {other} has a kafka:// listener and the same coordination; brokers do not share topics yet: give this "
        "one a chroot or prefix of its own, or only classic:// listeners (if the other one died, wait for its "
        "session to end)"
    )


def _classic_broker(state: BrokerState, started_ms: int) -> ClassicBroker:
    told = state.endpoints.told(CLASSIC)
    creator = f"{told.host.replace(':', '.')}-{started_ms}"  # a ':' (IPv6) would end it
    return ClassicBroker(broker_id=state.node_id, creator_id=creator, host=told.host, port=told.port)


def _current_id_node(own: BrokerRegistration) -> IdNode:
    def is_our_place(data: bytes) -> bool:
        try:
            return layout.decode_broker(str(own.broker_id), data).endpoints == own.endpoints
        except ValueError:
            return False

    path = layout.broker_path(own.broker_id)
    return IdNode(path=path, data=layout.encode_broker(own), is_our_place=is_our_place)


def _controller_node(broker_id: int) -> IdNode:
    """What two brokers that start at the same moment cannot both have."""

    def holder(data: bytes) -> int | None:
        try:
            return layout.decode_controller(data).broker_id
        except ValueError:
            return None

    def clash(data: bytes) -> BarnabasError:
        other = holder(data)
        return ConfigError(f"{layout.CONTROLLER} says {data[:100]!r}") if other is None else _not_alone(other)

    return IdNode(
        path=layout.CONTROLLER,
        data=layout.encode_controller(ReplicaId(broker_id)),
        is_our_place=lambda data: holder(data) == broker_id,
        clash=clash,
    )


def predecessor_ms(config: BrokerConfig) -> float:
    """How long the node of a broker that died may outlive it: services end sessions late, and round up."""
    return config.zookeeper_session_timeout_ms * 1.5 + 5000.0


def follow_topics(topics: ClassicTopics, registrar: BrokerRegistrar) -> None:
    """Show the classic topics of this broker, and those that come."""

    def show(topic: str) -> None:
        registrar.want(topic, topics.partitions(topic))

    for topic in topics.names:
        show(topic)
    topics.listen_topics(show, registrar.forget)
