"""The broker server: one broker from start to stop, with the order in which its parts are opened and closed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from ....core.classic.registry.broker_registration import BrokerRegistrar
from ....core.cluster.broker_lifecycle import LastLife
from ....core.cluster.brokers import next_broker_id
from ....core.cluster.change_queue import ChangeQueue, complete
from ....core.cluster.deltas import ConfigsChanged, Delta, FeaturesChanged
from ....core.cluster.features import FeatureMetadataCache, why_unsupported
from ....core.cluster.image import ClusterImage
from ....core.cluster.layout import EntityKind
from ....core.cluster.lease import Lease
from ....core.cluster.metadata_listener import MetadataListener, Refresh
from ....core.cluster.registry import ClusterRegistry
from ....core.cluster.topic_store import confirm_deleted, deleted_of
from ....core.cluster.topics import BrokerRegistration
from ....core.coordinator.group.coordinator import GroupCoordinator
from ....core.coordinator.table import partition_of
from ....core.log.compaction.log_cleaner import LogCleaner
from ....core.log.config import LogConfig
from ....core.log.manager.broker_epoch_file import largest_epoch, noted_distrusted, noted_registrations, recorded_epoch
from ....core.log.manager.log_manager import LogManager
from ....core.log.manager.meta_properties import META_PROPERTIES, read_meta_properties
from ....core.log.retention import DeletionPolicy
from ....core.replica.partition.partition import Partition
from ....core.security.delegation_tokens import token_credential
from ....core.security.quotas.connection_quotas import (
    UNLIMITED,
    AddressLimits,
    ConnectionLimits,
    ConnectionQuotas,
    ListenerConnectionQuotas,
)
from ....core.security.quotas.rate import QuotaWindows
from ....core.security.scram_users import decode_credential
from ....core.traffic.socket_server_metrics import SocketServerMetrics
from ....core.tree.service_url import redact_url
from ....plugins.host import PluginHost
from ....ports.broker_api.envelope import Caller, Origin, Reply
from ....ports.broker_api.groups import OffsetFetch, OffsetFetchGroup, OffsetFetchResult
from ....ports.coordination import Coordination
from ....ports.error_codes import ErrorCode
from ....ports.errors import BarnabasError, ClosedError, ConfigError
from ....ports.report import Report, counted, info, to_logger
from ....ports.storage import LogDir, StorageError
from ....ports.transport import Address, Connection, ConnectionAdmission, ConnectionHandler, Limits, ServerTls
from ....ports.transport import Listener as OpenPort
from ....ports.types import TopicPartition
from ....ports.values import Secret
from ...config import BrokerConfig, ListenAddress
from ...config.classic import CLASSIC, FORMAT_KEY
from ..handlers.cluster import count_software
from ..handlers.internal_topics import OFFSETS_TOPIC
from ..handlers.topics import TopicService
from ..service import BrokerService
from ..state.broker_state import BrokerState
from ..state.dependencies import Outside, Server
from ..state.endpoints import Endpoints
from ..state.leader_epochs import raise_leader_epoch
from ..state.settings import BrokerSettings
from .authentication import Authentication, Credentials, add_bootstrap_users, pretended_key
from .authorization import authorization_of, classic_access
from .data_folders import checked_cluster_id
from .log_cleaning import LogScrubbing, begin_cleaning
from .registration import (
    KAFKA,
    current_broker,
    follow_topics,
    id_nodes,
    predecessor_ms,
    shows_classic,
    shows_current,
)
from .replica_metrics import show_replicas

if TYPE_CHECKING:
    from ....core.client.network.links import Links
    from .cluster_member import ClusterMember

LOGGER = "app.broker"
_DRAIN_MS = 1000.0
_DRAIN_STEP_MS = 5.0


# Generation of a broker id for broker.id=-1: the id in the data folders, or a new one of the cluster.

GENERATED = -1


def with_broker_id(
    config: BrokerConfig, log_dirs: Sequence[LogDir], coordination: Coordination, report: Report
) -> BrokerConfig:
    """Return the configuration with a broker id, which `checked_cluster_id` writes into the data folders.

    Raises `ConfigError` where no id may be generated, or the folders disagree; `CoordinationError`.
    """
    if config.broker_id != GENERATED:
        return config
    known = _noted(log_dirs)
    if known is not None:
        return evolve(config, broker_id=known)
    if not config.broker_id_generation_enable:
        raise ConfigError("broker.id=-1, and broker.id.generation.enable is false: set broker.id")
    made = next_broker_id(coordination, config.reserved_broker_max_id)
    report(info(f"this broker has the generated id {made}, which its data folders store", broker=made))
    return evolve(config, broker_id=made)


def _noted(log_dirs: Sequence[LogDir]) -> int | None:
    """Return the broker id in the data folders, or None. Raises `ConfigError` where they disagree."""
    noted: dict[int, str] = {}
    for log_dir in log_dirs:
        try:
            identity = read_meta_properties(log_dir)
        except StorageError:
            continue  # the folder cannot be used, which its logs will report
        if identity is not None and identity.broker_id is not None:
            noted[identity.broker_id] = log_dir.path
    if len(noted) > 1:
        owners = ", ".join(f"{path} to broker {number}" for number, path in noted.items())
        raise ConfigError(f"the data folders belong to different brokers, says their {META_PROPERTIES}: {owners}")
    return next(iter(noted), None)


def links_to_others(
    outside: Outside, config: BrokerConfig, registry: ClusterRegistry, endpoints: Endpoints, what_for: str
) -> Links:
    """Return links to the other brokers, at the addresses of their newest registrations. Raises `ConfigError`.

    `what_for` becomes a part of the client id.
    """
    if outside.connect is None:
        raise ConfigError("brokers that share a tree need a way to reach each other")

    known: dict[int, tuple[BrokerRegistration, Address | None]] = {}

    def address(broker_id: int) -> Address | None:
        """Return the address, which is looked up for each request: only another registration has another one."""
        broker = registry.image.brokers.get(broker_id)
        if broker is None:
            return None
        if broker_id not in known or known[broker_id][0] is not broker:
            known[broker_id] = broker, endpoints.inter_broker_address(broker)
        return known[broker_id][1]

    from ....core.client.network.links import LinkDependencies, Links

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
    from .cluster_member import ClusterMember

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

    def submit(queue: ChangeQueue | None, what: str, refresh: Refresh, done: Reply[None]) -> None:
        state.changes.submit(what, refresh, done, queue)

    return MetadataListener(
        state.registry,
        state.scheduler,
        submit_leaders=partial(submit, state.leader_changes),
        submit_topics=partial(submit, None),
        apply_topics=topics.apply_topics,
    )


# Committed offsets of consumer groups, for deletion policies that retain unread records.

_ITSELF = Caller(client_id="deletion-policy", origin=Origin.BROKER)


class ReadByGroups:
    """Caches committed offsets for deletion policies. Owner thread only.

    An answer comes from the cache at once. It also starts a round of OffsetFetch requests to the groups' coordinators
    for everything that was asked for. The offset is unknown if the coordinator returns none.
    """

    def __init__(self) -> None:
        self._state: BrokerState | None = None
        self._coordinator: GroupCoordinator | None = None
        self._wanted: dict[str, dict[TopicPartition, None]] = {}
        self._known: dict[tuple[str, TopicPartition], int] = {}
        self._is_due = False

    def start(self, state: BrokerState, coordinator: GroupCoordinator) -> None:
        """Use this broker's coordinator, and those of other brokers, from now on."""
        self._state, self._coordinator = state, coordinator

    def committed(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of the group; None where it is unknown, or there is none."""
        self._wanted.setdefault(group_id, {})[partition] = None
        if self._state is not None and not self._is_due:
            self._is_due = True
            self._state.scheduler.call_soon(self._ask)
        return self._known.get((group_id, partition))

    def _ask(self) -> None:
        """Fetch all offsets that were wanted since the last round, and forget the others."""
        self._is_due = False
        wanted, self._wanted = self._wanted, {}
        still_wanted = {(group_id, partition) for group_id, partitions in wanted.items() for partition in partitions}
        self._known = {key: offset for key, offset in self._known.items() if key in still_wanted}
        for group_id, partitions in wanted.items():
            self._ask_about(group_id, list(partitions))

    def _ask_about(self, group_id: str, partitions: list[TopicPartition]) -> None:
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id=group_id, partitions=partitions)])

        def heard(result: object) -> None:
            for partition in partitions:
                self._known.pop((group_id, partition), None)
            if not isinstance(result, OffsetFetchResult):
                return
            for each in result.groups[0].partitions:
                if each.error is ErrorCode.NONE and each.offset >= 0:
                    self._known[group_id, TopicPartition(each.topic, each.partition)] = each.offset

        self._submit(self._coordinator_of(group_id), request, heard)

    def _submit(self, node: int | None, request: OffsetFetch, heard: Callable[[object], None]) -> None:
        state, coordinator = self._state, self._coordinator
        if state is not None and coordinator is not None and node == state.node_id:
            coordinator.fetch_offsets(request, _ITSELF, heard)
        elif state is not None and state.ask is not None and node is not None:
            state.ask(node, request, heard)
        else:
            heard(None)

    def _coordinator_of(self, group_id: str) -> int | None:
        """Return the broker that leads the group's partition of `__consumer_offsets`, or None."""
        image = None if self._state is None else self._state.image
        topic = None if image is None else image.topics.get(OFFSETS_TOPIC)
        if image is None or topic is None:
            return None
        leader = image.state(TopicPartition(OFFSETS_TOPIC, partition_of(group_id, len(topic.partitions)))).leader
        return leader if leader >= 0 else None


class BrokerServer:
    """Opens everything in `start`, and closes it in `stop` in the reverse order. Owner thread only."""

    def __init__(self, config: BrokerConfig, outside: Outside, plugins: PluginHost) -> None:
        self._config = config
        self._outside = outside
        self._pretended = Secret(b"")
        self.plugins = plugins
        self._report = to_logger(outside.report, LOGGER)
        self._began_ms = 0.0
        self._closing = ExitStack()
        """The logs and the parts that they need."""
        self._fronts = ExitStack()
        """The parts that must be closed before the logs."""
        self._read_by_groups = ReadByGroups()
        self._opened: list[OpenPort] = []
        self._servers: list[Server] = []
        self._state: BrokerState | None = None
        self._logs: LogManager | None = None
        self._cleaner: LogCleaner | None = None
        self._scrubbing: LogScrubbing | None = None
        self._coordination: Coordination | None = None
        self._api: BrokerService | None = None
        self._connection_quotas: ConnectionQuotas | None = None
        self._admissions: list[tuple[str, ListenerConnectionQuotas]] = []
        """The limits of connections of each listener, by its name."""
        self._stopping = self._is_stopped = False
        self._when_stopped: list[Callable[[], None]] = []
        self.started = False
        """True after `start` has succeeded."""
        self._ready = False
        self._waits_for_registrar, self._waits_for_member = True, False
        self._held: list[Connection] = []
        """The connections that came before the broker was ready."""
        self._when_ready: list[Callable[[BarnabasError | None], None]] = []
        self.member: ClusterMember | None = None
        """The member of the cluster, where other brokers can share the tree; set by `start`."""
        self.failed: Callable[[BarnabasError], None] | None = None
        """Called (settable) when the broker must stop, since another one has taken its id.

        Without it the broker stops itself.
        """
        self.listeners: tuple[ListenAddress, ...] = ()
        """The listeners with real ports; set by `start`."""

    @property
    def state(self) -> BrokerState:
        """The broker state. Raises `ClosedError` before `start`."""
        if self._state is None:
            raise ClosedError("the broker has not been started")
        return self._state

    @property
    def coordination(self) -> Coordination:
        """The session with the coordination service. Raises `ClosedError` before `start`."""
        if self._coordination is None:
            raise ClosedError("the broker has not been started")
        return self._coordination

    @property
    def api(self) -> BrokerService:
        """The broker service. Raises `ClosedError` before `start`."""
        if self._api is None:
            raise ClosedError("the broker has not been started")
        return self._api

    @property
    def _is_member(self) -> bool:
        """True for a broker of the current generation whose tree others can reach."""
        return self._outside.shared and shows_current(self._config.listener_list)

    def start(self) -> None:
        """Start the broker. Raises `BarnabasError` when something cannot be opened, and closes the rest then."""
        try:
            self._start()
            self.started = True
        except BaseException as error:
            if isinstance(error, SystemExit):
                self._report(info(f"{_name(self._config)} is stopped before it has started"))
            with self._closing:
                self._fronts.close()
            raise

    def _start(self) -> None:  # noqa: PLR0915  the order in which all parts are opened
        outside, closing, fronts, config = self._outside, self._closing, self._fronts, self._config
        self._began_ms = outside.clock.monotonic_ms()
        closing.callback(outside.finish)
        folders = ", ".join(config.data_dirs) if config.storage == "fs" else "memory"
        self._report(info(f"{_name(config)} starts: logs in {folders}, coordination {redact_url(config.coordination)}"))
        if config.without_effect:
            self._report(info(f"set, but without an effect here: {', '.join(config.without_effect)}"))
        log_dirs = []
        for log_dir in outside.open_log_dirs():
            closing.callback(log_dir.close)
            log_dirs.append(log_dir)
        coordination = self._coordination = outside.open_coordination()
        closing.callback(coordination.close)
        config = self._config = with_broker_id(config, log_dirs, coordination, self._report)
        registry = ClusterRegistry(coordination, to_logger(outside.report, "core.cluster"))
        complete(registry.load())
        add_bootstrap_users(config, registry, outside.entropy)
        if any(listener.has_sasl for listener in config.listener_list):
            self._pretended = pretended_key(registry, outside.entropy)
        tls = outside.listener_tls
        settings = BrokerSettings(
            config,
            registry,
            self._report,
            self.plugins.deletion_policy,
            *(() if tls is None else (tls.checked_change,)),
        )
        lease = None
        if self._is_member:
            lease = Lease(outside.scheduler, outside.lease_clock or outside.clock, coordination, self._report)
            complete(registry.reread_brokers())
        deleted = deleted_of(coordination, config.broker_id) if lease is not None else {}
        owns_topics = shows_current(config.listener_list) or not outside.shared
        cluster_id = checked_cluster_id(
            log_dirs,
            config,
            registry,
            outside.entropy,
            self._report,
            owns_topics=owns_topics,
            deleted=deleted.keys(),
        )
        self._check_features(registry)
        logs = self._logs = self._open_logs(log_dirs, registry, settings, deleted)
        closing.callback(logs.close)
        endpoints = self._open_ports(settings.running)
        state = self._state = BrokerState(
            owns_topics=owns_topics,
            cluster_id=cluster_id,
            settings=settings,
            endpoints=endpoints,
            clock=outside.clock,
            entropy=outside.entropy,
            scheduler=outside.scheduler,
            registry=registry,
            logs=logs,
            metrics=outside.metrics,
            report=self._report,
            lease_valid=None if lease is None else lambda: lease.is_valid,
            isr_clock=outside.lease_clock,
            fetch_from=None if lease is None else self._links(registry, endpoints, "fetcher").submit,
            ask=None if lease is None else self._links(registry, endpoints, "coordinator").submit,
        )
        self._begin_tiering(state)
        selector = config.replica_selector_class
        self._api = BrokerService(
            state,
            self.plugins.replica_selector(selector) if selector else None,
            authorization_of(
                config, self.plugins, registry, outside.scheduler, to_logger(outside.report, LOGGER), fronts.callback
            ),
        )
        if self._connection_quotas is not None:
            self._api.quotas.add_quotas_listener(self._connection_quotas.update)
        registry.listen(partial(self._configs_changed, settings))
        show_replicas(state)
        fronts.callback(state.replicas.close)
        fronts.callback(state.changes.close)
        fronts.callback(self._api.close)
        open_topics(state, deleted)
        self._read_by_groups.start(state, self._api.groups.coordinator)
        if state.tiering is not None:
            state.tiering.coordinator = self._api.groups.coordinator
        self._api.start()
        self._serve(state, self._api)
        if outside.expose_metrics is not None:
            fronts.callback(outside.expose_metrics(outside.metrics, self._not_ready))
        logs.start()
        self._begin_cleaning(state, self._api)
        self._register(state, self._api, coordination, lease)

    def _begin_tiering(self, state: BrokerState) -> None:
        """Open the remote storage. Raises `ConfigError` where topics have records there, and this broker has none."""
        if self._outside.open_remote_storage is None:
            tiered = sorted(
                topic.name
                for topic in state.image.topics.values()
                if topic.configs.get("remote.storage.enable") == "true" or topic.configs.get("remote.storage.source")
            )
            if tiered:
                text = f"topics are in remote storage, {tiered[0]} among them"
                raise ConfigError(f"{text}: set remote.log.storage.system.enable=true, and its place")
            return
        from ..state.tiering import Tiering  # only brokers with remote storage load its half megabyte

        state.tiering = Tiering(
            self._outside.open_remote_storage(),
            self._config,
            state.replicas,
            state.logs.codecs,
            cluster_id=state.cluster_id,
            image=lambda: state.image,
            begins_in_tier=lambda: state.settings.begins_in_tier,
            ask=state.ask,
            scheduler=state.scheduler,
            clock=state.clock,
            entropy=state.entropy,
            metrics=state.metrics,
            report=to_logger(self._outside.report, "core.tiering"),
            raise_leader_epoch=partial(_raise_leader_epoch, state),
            coordination=state.registry.coordination,
            own=state.node_id,
            submit_change=state.changes.submit,
        )
        self._fronts.callback(state.tiering.close)
        state.tiering.start()

    def _check_features(self, registry: ClusterRegistry) -> None:
        """Raise `ConfigError` if the cluster has finalized a feature at a level that this broker does not support."""
        complete(registry.reread_features())  # a new cluster has levels since its id was made
        reason = why_unsupported(registry.image.features)
        if reason is not None:
            raise ConfigError(reason)
        registry.listen(partial(self._features_changed, registry))

    def _features_changed(self, registry: ClusterRegistry, delta: Delta, _before: ClusterImage) -> None:
        """Stop a broker that registered at the moment in which others finalized a level that it does not support."""
        if not isinstance(delta, FeaturesChanged) or self._stopping:
            return
        reason = why_unsupported(registry.image.features)
        if reason is not None:
            self._fail(ConfigError(reason))

    def _open_logs(
        self,
        log_dirs: Sequence[LogDir],
        registry: ClusterRegistry,
        settings: BrokerSettings,
        deleted: Collection[bytes],
    ) -> LogManager:
        def config_for(topic: str) -> LogConfig:
            known = registry.image.topics.get(topic) or registry.image.deleting.get(topic)
            return settings.log_config(known.configs if known is not None else {FORMAT_KEY: CLASSIC}, topic)

        def topic_id_of(partition: TopicPartition) -> bytes | None:
            return registry.image.id_of(partition)

        logs = LogManager(
            log_dirs,
            clock=self._outside.clock,
            scheduler=self._outside.scheduler,
            config_for=config_for,
            codecs=self.plugins.codecs(),
            policy_for=self._deletion_policy,
            report=to_logger(self._outside.report, "core.log"),
            entropy=self._outside.entropy,
            topic_id_of=topic_id_of,
            deleted_ids=deleted,
            may_end_early=self._is_member,
            flush_took=self._outside.metrics.histogram(
                "kafka_log_logflushstats_logflushrateandtimems", "Milliseconds until a flush of a log was done."
            ).observe,
            retention_check_ms=self._config.log_retention_check_interval_ms,
            flush_check_ms=self._config.flush_check_interval_ms,
            checkpoint_ms=self._config.log_flush_offset_checkpoint_interval_ms,
            high_watermark_checkpoint_ms=self._config.replica_high_watermark_checkpoint_interval_ms,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
            producer_check_ms=self._config.producer_id_expiration_check_interval_ms,
            is_cordoned=settings.is_cordoned,
        )
        logs.load()
        return logs

    def _deletion_policy(self, config: LogConfig, partition: TopicPartition) -> DeletionPolicy:
        return self.plugins.deletion_policy(config.deletion_policy, partition, self._read_by_groups.committed)

    def _begin_cleaning(self, state: BrokerState, api: BrokerService) -> None:
        if self._config.log_cleaner_enable:
            self._cleaner = begin_cleaning(state, api, to_logger(self._outside.report, "core.log"))
            self._fronts.callback(self._cleaner.stop, lambda: None)
        self._scrubbing = LogScrubbing(state, api, self._cleaner, to_logger(self._outside.report, "core.log"))
        self._fronts.callback(self._scrubbing.stop, lambda: None)

    def _configs_changed(self, settings: BrokerSettings, delta: Delta, _before: ClusterImage) -> None:
        """Apply changed settings of listeners and changed limits of connections."""
        if not isinstance(delta, ConfigsChanged) or delta.broker_id not in (None, self._config.broker_id):
            return
        running = settings.running
        if self._connection_quotas is not None:
            for name, admission in self._admissions:
                admission.change(_connection_limits(partial(running.for_listener, name)))
            self._connection_quotas.change(
                broker=_connection_limits(running.value),
                addresses=AddressLimits(per_ip=running.max_connections_per_ip, overrides=running.connections_per_ip),
            )
        if self._outside.listener_tls is not None:
            self._outside.listener_tls.change(running)

    def _open_ports(self, running: BrokerConfig) -> Endpoints:
        """Open the port of each listener; return their addresses. `running`: the configuration with the dynamic
        settings."""
        config = self._config
        for listener in self._config.listener_list:
            self._listen(listener, running)
        if running is not self._config and self._outside.listener_tls is not None:
            self._outside.listener_tls.change(running)  # links to other brokers were made before the tree was read
        return Endpoints(
            config.broker_id,
            self.listeners,
            config.advertised_listener_list,
            self._outside.host_name,
            config.inter_broker_listener,
            config.broker_rack,
        )

    def _listen(self, listener: ListenAddress, running: BrokerConfig) -> None:
        """Open a port. Its connections are read when the broker is ready."""
        if listener.protocol not in self._outside.servers:
            raise ConfigError(f"listeners={listener}: this broker does not speak {listener.protocol}")
        config, servers, index = self._config, self._servers, len(self.listeners)
        limits = Limits(
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max=UNLIMITED,
            idle_ms=max(0, config.connections_max_idle_ms),
            held_bytes_max=config.socket_unsent_max_bytes,
            all_held_bytes_max=max(0, config.queued_max_request_bytes),
            admission=self._admission(listener, index, running),
        )

        def accept(connection: Connection) -> ConnectionHandler:
            handler = servers[index].accept(connection)  # made after the port is open
            if not self._ready:
                connection.pause()
                self._held.append(connection)
            return handler

        tls = self._tls_of(listener, running)
        opened = self._outside.transport.listen((listener.host, listener.port), accept, limits, tls)
        if tls is not None:
            self._report(info(f"listener {listener.name} at {listener.host}:{opened.address[1]}: {tls.describe()}"))
        self._fronts.callback(opened.close)
        self._opened.append(opened)
        self.listeners = (*self.listeners, evolve(listener, port=opened.address[1]))

    def _tls_of(self, listener: ListenAddress, running: BrokerConfig) -> ServerTls | None:
        """Return the TLS of a listener; if its dynamic settings cannot be used, with the static ones, as Kafka does."""
        tls = self._outside.listener_tls
        if tls is None:
            return None
        if running is not self._config:
            try:
                return tls.of_listener(listener, running)
            except ConfigError as error:
                self._report(f"the dynamic configuration of a listener is not used: {error}")
        return tls.of_listener(listener, self._config)

    def _admission(self, listener: ListenAddress, index: int, config: BrokerConfig) -> ConnectionAdmission:
        """Return the limits of a listener's connections; those of the broker do not hold for other brokers."""
        if self._connection_quotas is None:
            seconds = config.quota_window_size_seconds
            self._connection_quotas = ConnectionQuotas(
                self._outside.clock,
                self._outside.scheduler,
                broker=_connection_limits(config.value),
                addresses=AddressLimits(per_ip=config.max_connections_per_ip, overrides=config.connections_per_ip),
                windows=QuotaWindows(samples=config.quota_window_num, window_ms=seconds * 1000.0),
            )
        admission = self._connection_quotas.of_listener(
            _connection_limits(partial(config.for_listener, listener.name)),
            is_protected=len(config.listener_list) > 1 and index == config.inter_broker_listener,
        )
        self._admissions.append((listener.name, admission))
        return admission

    # --- readiness

    @property
    def ready(self) -> bool:
        """True once the broker is registered; earlier requests wait (facts A3)."""
        return self._ready

    def _not_ready(self) -> str | None:
        """Return the reason why the broker takes no requests, or None. Any thread."""
        return None if self._ready else "the broker stops" if self._stopping else "the broker is starting"

    def when_ready(self, callback: Callable[[BarnabasError | None], None]) -> None:
        """Call back once the broker is registered, at once or later, or with the error why it never will be."""
        if self._ready:
            callback(None)
        elif self._stopping:
            callback(ClosedError("the broker has stopped"))
        else:
            self._when_ready.append(callback)

    def _register(
        self, state: BrokerState, api: BrokerService, coordination: Coordination, lease: Lease | None
    ) -> None:
        """Register the broker, now if possible, and follow the registries; otherwise it becomes ready later."""
        own = current_broker(state, self._config)
        if lease is None:
            complete(state.registry.reread_brokers(own))
        registrar = BrokerRegistrar(
            state.scheduler,
            coordination,
            broker_id=state.node_id,
            ids=id_nodes(state, self._config, self.listeners, own, is_member=lease is not None),
            predecessor_ms=predecessor_ms(self._config),
            report=to_logger(self._outside.report, "core.classic"),
            ready=self._registrar_ready,
            failed=self._fail,
        )
        self._fronts.callback(registrar.close)
        if shows_classic(self._config, self.listeners):
            follow_topics(state.classic, registrar)
        if lease is not None:
            self._join(state, api, lease, own)
        elif self._outside.shared:
            follower = follower_of(state, api.topics)
            self._fronts.callback(follower.close)
            follower.start_watching()
        self._waits_for_registrar = not registrar.register()
        self._look_if_ready()

    def _links(self, registry: ClusterRegistry, endpoints: Endpoints, what_for: str) -> Links:
        links = links_to_others(self._outside, self._config, registry, endpoints, what_for)
        self._fronts.callback(links.close)
        return links

    def _join(self, state: BrokerState, api: BrokerService, lease: Lease, own: BrokerRegistration) -> None:
        """Become a member of the cluster."""
        member = self.member = joined(
            state,
            api.topics,
            lease,
            own,
            self._config,
            ready=self._member_ready,
            failed=self._fail,
            report=to_logger(self._outside.report, "core.cluster"),
        )
        self._waits_for_member = True
        self._fronts.callback(member.close)
        member.start()

    def _registrar_ready(self) -> None:
        self._waits_for_registrar = False
        self._look_if_ready()

    def _member_ready(self) -> None:
        self._waits_for_member = False
        self._look_if_ready()

    def _look_if_ready(self) -> None:
        if not (self._ready or self._stopping or self._waits_for_member or self._waits_for_registrar):
            self._became_ready()

    def _became_ready(self) -> None:
        self._ready = True
        held, self._held = self._held, []
        for connection in held:
            connection.resume()
        self._report_started()
        self._notify_ready(None)

    def _report_started(self) -> None:
        state, took_ms = self.state, self._outside.clock.monotonic_ms() - self._began_ms
        where = " ".join(str(listener) for listener in self.listeners)
        topics, partitions = len(state.image.topics), len(state.logs.logs())
        text = f"broker {state.node_id} of cluster {state.cluster_id} is ready at {where} after {took_ms:.0f} ms"
        text += f": {counted(topics, 'topic')}, {counted(partitions, 'partition')} here"
        self._report(info(text, broker=state.node_id, topics=topics, partitions=partitions, took_ms=round(took_ms)))

    def _notify_ready(self, error: BarnabasError | None) -> None:
        waiting, self._when_ready = self._when_ready, []
        for callback in waiting:
            callback(error)

    def _fail(self, error: BarnabasError) -> None:
        """Stop the broker after a fatal error."""
        self._report(f"broker {self._config.broker_id} stops: {error}")
        self._notify_ready(error)
        if self.failed is not None:
            self.failed(error)
        else:
            self.stop(lambda: None)

    def _serve(self, state: BrokerState, api: BrokerService) -> None:
        authentication = Authentication(self._config, self.plugins, self._outside, self._pretended)
        clock = self._outside.clock
        features = FeatureMetadataCache(lambda: state.image.features)
        credentials = Credentials(
            scram=lambda mechanism, user: decode_credential(
                state.image.entities(EntityKind.USERS).get(user), mechanism
            ),
            token=lambda mechanism, token_id: token_credential(
                state.image.entities(EntityKind.TOKENS).get(token_id), mechanism, clock.now_ms()
            ),
        )
        for listener, (_, admission) in zip(self.listeners, self._admissions, strict=True):
            metrics = SocketServerMetrics(self._outside.metrics, str(listener))
            admission.failed_handshakes = metrics.authentication_failed
            self._servers.append(
                self._outside.servers[listener.protocol](
                    api if listener.protocol == KAFKA else classic_access(self._config, listener, api),
                    listener=str(listener),
                    max_in_flight=self._config.max_in_flight_requests_per_connection,
                    # No request of a classic connection waits.
                    gone=state.gone if listener.protocol == KAFKA else _ignore,
                    steps=state.steps,
                    topic_name=state.topic_name,
                    is_appending=state.replicas.is_appending,
                    identity=(state.cluster_id, state.node_id),
                    quotas=state.quotas,
                    sasl=authentication.listener(listener, credentials),
                    principal_of=authentication.certificate_principals(listener),
                    metrics=metrics,
                    features=features,
                )
            )
        served = [(str(listener), server) for listener, server in zip(self.listeners, self._servers, strict=True)]
        self._outside.metrics.gauges(
            "kafka_server_socketservermetrics_connection_count",
            "Connections of clients.",
            ("listener",),
            lambda: [((listener,), float(len(server.connections))) for listener, server in served],
        )
        self._outside.metrics.gauges(
            "kafka_server_socketservermetrics_connections",
            "Connections by the software that clients say they use (KIP-511).",
            ("listener", "clientSoftwareName", "clientSoftwareVersion"),
            lambda: [
                ((listener, *software), number)
                for listener, server in served
                for software, number in count_software(server)
            ],
        )
        api.connections.serve(self._servers)

    def stop(self, stopped: Callable[[], None]) -> None:
        """Answer waiting requests, send the responses, make the logs durable, close; then call `stopped`.

        Takes about a second at most beyond the time of the disk; the workers close the logs in parallel. Further calls
        are allowed: each `stopped` is called.
        """
        if self._is_stopped:
            stopped()
            return
        self._when_stopped.append(stopped)
        if self._stopping:
            return
        self._stopping = True
        self._began_ms = self._outside.clock.monotonic_ms()
        self._report(info(f"broker {self._config.broker_id} stops"))
        self._notify_ready(ClosedError("the broker was stopped before it was ready"))
        if self.member is not None and self._config.controlled_shutdown_enable:
            self.member.hand_over(self._close_fronts)
        else:
            self._close_fronts()

    def _close_fronts(self) -> None:
        for opened in self._opened:
            opened.close()
        if self._api is not None:
            self._api.stop_coordinating()
        if self._state is not None:
            self._state.replicas.close()
        self._drain(self._outside.clock.monotonic_ms() + _DRAIN_MS)

    def _drain(self, until_ms: float) -> None:
        open_connections = sum(server.close("") for server in self._servers)
        if open_connections and self._outside.clock.monotonic_ms() < until_ms:
            self._outside.scheduler.call_later(_DRAIN_STEP_MS, lambda: self._drain(until_ms))
            return
        try:
            self._fronts.close()
        finally:
            if self._scrubbing is not None:
                self._scrubbing.stop(self._stop_cleaning)
            else:
                self._stop_cleaning()

    def _stop_cleaning(self) -> None:
        if self._cleaner is not None:
            self._cleaner.stop(self._close_logs)
        else:
            self._close_logs()

    def _close_logs(self) -> None:
        if self._logs is not None:
            self._logs.stop(self._logs_closed)
        else:
            self._logs_closed()

    def _logs_closed(self) -> None:
        try:
            self._closing.close()
        finally:
            self._is_stopped = True
            took_ms = self._outside.clock.monotonic_ms() - self._began_ms
            self._report(info(f"broker {self._config.broker_id} has stopped, in {took_ms:.0f} ms"))
            for stopped in self._when_stopped:
                stopped()


def _name(config: BrokerConfig) -> str:
    return "a broker without a number" if config.broker_id == GENERATED else f"broker {config.broker_id}"


def _connection_limits(value: Callable[[str], object]) -> ConnectionLimits:
    """Return the limits by a function that returns the value of a key."""
    connections, rate = value("max.connections"), value("max.connection.creation.rate")
    assert isinstance(connections, int) and isinstance(rate, int)
    return ConnectionLimits(connections=connections, creation_rate=rate)


def _raise_leader_epoch(state: BrokerState, partition: Partition, leader_epoch: int, done: Callable[[], None]) -> None:
    change = partial(raise_leader_epoch, state, partition, leader_epoch)
    state.changes.submit(f"raising the leader epoch of {partition.topic_partition}", change, lambda _: done())


def _ignore(_: int) -> None:
    """Ignore a closed connection."""


def open_topics(state: BrokerState, deleted: Iterable[bytes]) -> None:
    """Open the logs of partitions that belong to this broker; finish interrupted deletions.

    `deleted`: the ids of topics that were deleted while this broker was down. It confirms them once their folders are
    gone for good: after a kill, the tree would no longer say that they were deleted.
    """
    if not state.owns_topics:
        state.classic.load()
        return
    gone = set(deleted) - {topic.topic_id for topic in state.image.deleting.values()}
    if gone:  # the start has renamed their folders
        state.logs.flush_folder_names()
    for topic_id in sorted(gone):
        confirm_deleted(state.registry.coordination, topic_id, state.node_id)
    for topic in list(state.image.deleting.values()):
        if state.drop_topic(topic):
            complete(state.registry.finish_delete(topic))
            if not state.is_alone:
                state.logs.flush_folder_names()
                confirm_deleted(state.registry.coordination, topic.topic_id, state.node_id)
    for topic in state.image.topics.values():
        state.reopen_topic(topic)
    state.classic.load()
