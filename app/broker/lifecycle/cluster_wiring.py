"""The parts of a broker in a cluster: links to other brokers, the cluster member, the metadata listener."""

from collections.abc import Callable

from attrs import evolve

from ....core.client.network.links import LinkDependencies, Links
from ....core.cluster.broker_lifecycle import LastLife
from ....core.cluster.lease import Lease
from ....core.cluster.metadata_listener import MetadataListener, Refresh
from ....core.cluster.registry import ClusterRegistry
from ....core.cluster.topics import BrokerRegistration
from ....core.log.manager.broker_epoch_file import largest_epoch, noted_distrusted, noted_registrations, recorded_epoch
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.errors import BarnabasError, ConfigError
from ....ports.transport import Address
from ...config import BrokerConfig
from ..handlers.topics import TopicService
from ..state.broker_state import BrokerState
from ..state.dependencies import Outside
from ..state.endpoints import inter_broker_address
from .cluster_member import ClusterMember
from .registration import predecessor_ms


def links_to_others(outside: Outside, config: BrokerConfig, registry: ClusterRegistry, what_for: str) -> Links:
    """Return links to the other brokers, at the addresses of their newest registrations. Raises `ConfigError`.

    `what_for` becomes a part of the client id.
    """
    if outside.connect is None:
        raise ConfigError("brokers that share a tree need a way to reach each other")

    def address(broker_id: int) -> Address | None:
        broker = registry.image.brokers.get(broker_id)
        return None if broker is None else inter_broker_address(broker)

    made = LinkDependencies(
        scheduler=outside.scheduler,
        clock=outside.clock,
        entropy=outside.entropy,
        connect=outside.connect,
        caller=Caller(client_id=f"broker-{config.broker_id}-{what_for}"),
    )
    return Links(made, address)


def joined(
    state: BrokerState,
    topics: TopicService,
    lease: Lease,
    own: BrokerRegistration,
    config: BrokerConfig,
    *,
    ready: Callable[[], None],
    failed: Callable[[BarnabasError], None],
    report: Callable[[str], None],
) -> ClusterMember:
    """Return the broker's cluster member, which is not started yet."""
    log_dirs, logs = state.logs.dirs, state.logs

    member = ClusterMember(
        state,
        topics,
        lease,
        own=evolve(own, offline=frozenset(state.not_opened())),
        last=LastLife(
            broker_epoch=recorded_epoch(log_dirs),
            in_order=logs.had_clean_shutdown,
            largest_epoch=largest_epoch(log_dirs),
            seen=noted_registrations(log_dirs),
        ),
        distrusted=noted_distrusted(log_dirs),
        predecessor_ms=predecessor_ms(config),
        ready=ready,
        failed=failed,
        report=report,
    )
    state.listen_offline(member.offline)
    return member


def follower_of(state: BrokerState, topics: TopicService) -> MetadataListener:
    """Return the metadata listener of a broker that only reads the topics of the others; it is not started yet."""

    def submit(what: str, refresh: Refresh, done: Reply[None]) -> None:
        state.changes.submit(what, refresh, done)

    return MetadataListener(
        state.registry, state.scheduler, submit_leaders=submit, submit_topics=submit, settle=topics.settle_some
    )
