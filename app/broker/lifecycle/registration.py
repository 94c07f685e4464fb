"""Registration of a broker: in the classic registries, in those of the current generation, or both."""

from collections.abc import Sequence

from ....core.classic.registry.broker_registration import BrokerRegistrar, IdNode, classic_id_node
from ....core.classic.registry.layout import ClassicBroker
from ....core.cluster import layout
from ....core.cluster.features import offered
from ....core.cluster.topics import BrokerRegistration, ReplicaId
from ....ports.errors import BarnabasError, ConfigError
from ...config import BrokerConfig, ListenAddress
from ..state.broker_state import BrokerState
from ..state.classic_topics import ClassicTopics

CLASSIC = "classic"
KAFKA = "kafka"


def current_broker(state: BrokerState, config: BrokerConfig) -> BrokerRegistration:
    """Return the broker's registration in the current generation."""
    return BrokerRegistration(
        broker_id=state.node_id,
        endpoints=state.endpoints.registered(),
        rack=config.broker_rack,
        machine=config.broker_machine,
        started_ms=state.clock.now_ms(),
        inter_broker=state.endpoints.inter_broker or 0,
        listener_names=state.endpoints.names,
        min_isr=config.min_insync_replicas,
        cordoned=state.settings.is_all_cordoned,
        features=offered(),
    )


def shows_classic(config: BrokerConfig, listeners: Sequence[ListenAddress]) -> bool:
    """Return True if the broker registers in the classic registries."""
    return config.classic_registration_enable and any(listener.protocol == CLASSIC for listener in listeners)


def shows_current(listeners: Sequence[ListenAddress]) -> bool:
    """Return True if the broker is one of the current generation."""
    return any(listener.protocol == KAFKA for listener in listeners)


def id_nodes(
    state: BrokerState,
    config: BrokerConfig,
    listeners: Sequence[ListenAddress],
    own: BrokerRegistration,
    *,
    is_member: bool,
) -> list[IdNode]:
    """Return the nodes that show the broker as alive: one for each generation that it has a listener of.

    A member of a cluster registers in the current generation itself.
    """
    nodes = []
    if shows_classic(config, listeners):
        nodes.append(classic_id_node(_classic_broker(state, own.started_ms)))
    if shows_current(listeners) and not is_member:
        nodes += [_current_id_node(own), _controller_node(own.broker_id)]
    return nodes


def _classic_broker(state: BrokerState, started_ms: int) -> ClassicBroker:
    listener = state.endpoints.advertised_listener(CLASSIC)
    creator = f"{listener.host.replace(':', '.')}-{started_ms}"  # a ':' (IPv6) would end it
    return ClassicBroker(broker_id=state.node_id, creator_id=creator, host=listener.host, port=listener.port)


def _current_id_node(own: BrokerRegistration) -> IdNode:
    def is_our_place(data: bytes) -> bool:
        try:
            return layout.decode_broker(str(own.broker_id), data).endpoints == own.endpoints
        except ValueError:
            return False

    path = layout.broker_path(own.broker_id)
    return IdNode(path=path, data=layout.encode_broker(own), is_our_place=is_our_place)


def _controller_node(broker_id: int) -> IdNode:
    """Return the controller node, which only one of two brokers can create that start at the same moment."""

    def holder(data: bytes) -> int | None:
        try:
            return layout.decode_controller(data).broker_id
        except ValueError:
            return None

    def clash(data: bytes) -> BarnabasError:
        return ConfigError(f"{layout.CONTROLLER} says {data[:100]!r}: another broker uses this tree, which is for one")

    return IdNode(
        path=layout.CONTROLLER,
        data=layout.encode_controller(ReplicaId(broker_id)),
        is_our_place=lambda data: holder(data) == broker_id,
        clash=clash,
    )


def predecessor_ms(config: BrokerConfig) -> float:
    """Return how long the node of a dead broker may outlive it: services end sessions late, and round up."""
    return config.zookeeper_session_timeout_ms * 1.5 + 5000.0


def follow_topics(topics: ClassicTopics, registrar: BrokerRegistrar) -> None:
    """Register the present and the future classic topics of this broker."""

    def show(topic: str) -> None:
        registrar.want(topic, topics.partitions(topic))

    for topic in topics.names:
        show(topic)
    topics.listen_topics(show, registrar.forget)
