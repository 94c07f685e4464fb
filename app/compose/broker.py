"""The composition of a running broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...ports.errors import ConfigError
from ...ports.report import Report, info, to_logger
from ..config.workers import has_workers
from ..logs import log_report
from .coordination import broker_backend, broker_session_request
from .kerberos import broker_kerberos, kerberos_exchanges
from .oauthbearer import broker_oauthbearer, token_validator
from .remote_storage import open_remote_of
from .tls import BrokerTls

if TYPE_CHECKING:
    import socket

    from ...adapters.transport_tcp.reactor import Reactor
    from ...core.client.network.connection import Connect, ConnectCallback
    from ...core.security.sasl.server_authenticator import SaslListener
    from ...core.traffic.steps import StepRunner
    from ...plugins.host import PluginHost
    from ...ports.broker_api.envelope import BrokerApi, Request
    from ...ports.clock import Clock
    from ...ports.coordination import Coordination
    from ...ports.entropy import Entropy
    from ...ports.metrics import Metrics
    from ...ports.scheduler import Scheduler
    from ...ports.storage import LogDir
    from ...ports.transport import Address, Connection, ConnectionHandler, Transport
    from ..broker.lifecycle.broker_server import BrokerServer
    from ..broker.lifecycle.request_logging import Watching
    from ..broker.state.dependencies import (
        ExposeMetrics,
        MakeOutside,
        MakeServer,
        Outside,
        Server,
        ServerConnection,
    )
    from ..broker.state.tiering import RemoteOutside
    from ..config import BrokerConfig
    from .https import HttpSecurity
    from .worker_control import WorkerControl


class WorkerPart:
    """The parent's part of a broker that is one of several workers of a machine: shared ports, and a channel."""

    def __init__(self, shared: Mapping[int, socket.socket], control: WorkerControl, *, shows_metrics: bool) -> None:
        """`shared`: by the index of a listener, an open port that all workers accept connections at."""
        self.shared = shared
        self.control = control
        self.shows_metrics = shows_metrics
        self.accept_inherited: Callable[[], None] = lambda: None
        """Begins to accept at the shared ports; set by `build_broker`."""

    def expose(self, scheduler: Scheduler, clock: Clock) -> ExposeMetrics:
        """Return the function by which a worker sends metrics and health to its parent."""

        def exposed(metrics: Metrics, ready: Callable[[], str | None]) -> Callable[[], None]:
            from ...adapters.metrics_prometheus.metrics import PrometheusMetrics

            assert isinstance(metrics, PrometheusMetrics)
            heartbeat = _Heartbeat(scheduler, clock)
            self.control.show(metrics.render, heartbeat.why_stuck, ready)
            return heartbeat.stop

        return exposed


def build_broker(
    config: BrokerConfig,
    reactor: Reactor,
    *,
    plugins: Sequence[object] = (),
    metrics: Metrics | None = None,
    report: Report = log_report,
    outside: MakeOutside | None = None,
    worker: WorkerPart | None = None,
) -> BrokerServer:
    """Return a broker on TCP, on the reactor given; its `start` and `stop` are for the reactor's thread.

    `outside` may stand for `outside_of`, to put something between the broker and what it gets from there. `worker`:
    what it has from its parent if it is one of several workers. Raises `ConfigError` for plugins that cannot be used.
    """
    from ...adapters.transport_tcp.tcp import TcpTransport
    from ..broker.lifecycle.broker_server import BrokerServer

    host = plugin_host(config, plugins)
    listeners, shared = config.listener_list, {} if worker is None else worker.shared
    inherited = {(listeners[index].host, listeners[index].port): port for index, port in shared.items()}
    transport = TcpTransport(reactor, to_logger(report, "adapters.transport_tcp"), inherited)
    if worker is not None:
        worker.accept_inherited = transport.accept_inherited
    made = (outside or partial(outside_of, worker=worker))(
        config,
        scheduler=reactor,
        transport=transport,
        metrics=metrics,
        report=report,
        plugins=host,
    )
    return BrokerServer(config if made.shared else config.of_single_broker(), made, host)


def outside_of(
    config: BrokerConfig,
    *,
    scheduler: Scheduler,
    transport: Transport,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    metrics: Metrics | None = None,
    open_log_dirs: Callable[[], Sequence[LogDir]] | None = None,
    open_coordination: Callable[[], Coordination] | None = None,
    report: Report = log_report,
    shared: bool | None = None,
    plugins: PluginHost | None = None,
    worker: WorkerPart | None = None,
    open_remote_storage: Callable[[], RemoteOutside] | None = None,
) -> Outside:
    """Return what the configuration asks for, with anything that is given in its place (the simulation gives all).

    Ports: `scheduler`, `transport`, `clock`, `entropy`, `metrics`. `open_log_dirs` and `open_coordination` are
    called at the start; `report` takes the log lines.

    `shared`: whether other brokers can reach the same tree; None: as its back end says. `plugins`: where the scheme of
    `coordination` is looked up; None: the plug-ins that the configuration names, and the installed ones. `worker`: a
    parent that the metrics are shown to. `open_remote_storage` is called at the start if tiered storage is on. Raises
    `ConfigError` for an unknown scheme or a malformed URL.
    """
    from ...adapters.metrics_prometheus.metrics import PrometheusMetrics
    from ...adapters.system import SystemClock, SystemEntropy
    from ..broker.lifecycle.request_logging import Watching
    from ..broker.state.dependencies import Outside

    if open_coordination is None or shared is None:
        backend = broker_backend(config, plugins or plugin_host(config))
        shared = backend.shared if shared is None else shared
        open_coordination = open_coordination or (lambda: backend.open(broker_session_request(config, report)))
    clock, entropy = clock or SystemClock(), entropy or SystemEntropy()
    seen = isinstance(metrics, PrometheusMetrics) or config.metrics_address is not None
    expose = _metrics_endpoint(config, scheduler, clock, to_logger(report, "app.broker"))
    if worker is not None:
        seen, expose = worker.shows_metrics, worker.expose(scheduler, clock)
    metrics = metrics or PrometheusMetrics(report=to_logger(report, "adapters.metrics_prometheus"))
    watching = Watching(config, scheduler, clock, report, metrics if seen else None)
    tls = BrokerTls(config, scheduler, to_logger(report, "adapters.transport_tls"))

    def finish() -> None:
        tls.close()
        watching.close()

    return Outside(
        clock=clock,
        entropy=entropy,
        scheduler=scheduler,
        transport=transport,
        metrics=metrics,
        expose_metrics=expose,
        open_log_dirs=open_log_dirs or (lambda: open_log_dirs_of(config)),
        open_coordination=open_coordination,
        servers=_servers(watching, scheduler, clock),
        finish=finish,
        report=report,
        host_name=_host_name(config),
        shared=shared,
        kerberos=kerberos_exchanges,
        token_validator=token_validator,
        connect=_connect(config, transport, scheduler, entropy, shared, tls),
        listener_tls=tls,
        open_remote_storage=open_remote_storage
        or partial(open_remote_of, config, scheduler, plugins or plugin_host(config))
        if config.remote_log_storage_system_enable
        else None,
    )


def _connect(
    config: BrokerConfig,
    transport: Transport,
    scheduler: Scheduler,
    entropy: Entropy,
    shared: bool,
    broker_tls: BrokerTls,
) -> Connect:
    """Return the function that connects the broker to other ones. Raises `ConfigError`."""
    from ..broker.lifecycle.authentication import inter_broker_sasl

    others = {"OAUTHBEARER": partial(broker_oauthbearer, config), "GSSAPI": partial(broker_kerberos, config)}
    sasl = inter_broker_sasl(config, entropy, others) if shared else None
    tls = broker_tls.of_other_brokers() if shared else None

    def connect(address: Address, opened: ConnectCallback) -> None:
        from ... import __version__
        from ...adapters.wire_kafka.client import connect_kafka

        connect_kafka(
            transport,
            scheduler,
            address,
            client_id=f"broker-{config.broker_id}-fetcher",
            request_timeout_ms=config.replica_socket_timeout_ms,
            connect_timeout_ms=config.replica_socket_timeout_ms,
            opened=opened,
            software_version=__version__,
            sasl=sasl,
            tls=tls,
        )

    return connect


def kafka_apis() -> dict[int, type[Request[Any]]]:
    """Return the APIs that a broker answers over the Kafka protocol: key → type of the request."""
    from ...adapters.wire_kafka.table import BY_KEY

    return {key: api.request_type for key, api in BY_KEY.items()}


def system_entropy() -> Entropy:
    """Return the operating system's random numbers."""
    from ...adapters.system import SystemEntropy

    return SystemEntropy()


def system_clock() -> Clock:
    """Return the clocks of the machine."""
    from ...adapters.system import SystemClock

    return SystemClock()


def plugin_host(config: BrokerConfig, plugins: Sequence[object] = ()) -> PluginHost:
    """Return the plug-ins that the configuration asks for, and those given as objects. Raises `ConfigError`."""
    from ...plugins.host import PluginHost

    return PluginHost(
        [*config.plugins_modules, *plugins],
        load_entry_points=config.plugins_entry_points_enable,
        blocked=config.plugins_blocked,
    )


def open_log_dirs_of(config: BrokerConfig, *, of_workers: bool = False) -> list[LogDir]:
    """Open and lock the data folders; with `of_workers`, the parents of the workers' folders.

    Raises `FolderLocked`, `StorageError`, and `ConfigError` for a broker in a folder of workers.
    """
    if config.storage == "memory":
        from ...adapters.storage_memory import MemoryLogDir

        return [MemoryLogDir()]
    from ...adapters.storage_fs import open_log_dir

    opened: list[LogDir] = []
    try:
        for path in config.data_dirs:
            if not of_workers and has_workers(path):
                text = f"{path} has the data of workers (barnabas serve --workers)"
                raise ConfigError(f"{text}: serve it with the same number of workers, or take another folder")
            opened.append(open_log_dir(path, mode=config.dir_mode))
    except BaseException:
        for log_dir in opened:
            log_dir.close()
        raise
    return opened


def _servers(watching: Watching, scheduler: Scheduler, clock: Clock) -> dict[str, MakeServer]:
    # Classic brokers give no long answers, append at once, and have no quotas; their clients know topics by name.
    def classic(
        api: BrokerApi,
        *,
        steps: StepRunner,  # noqa: ARG001
        topic_name: Any,  # noqa: ARG001
        is_appending: Any,  # noqa: ARG001
        identity: Any,  # noqa: ARG001
        quotas: Any,  # noqa: ARG001
        sasl: Any,  # noqa: ARG001
        metrics: Any,  # noqa: ARG001
        features: Any,  # noqa: ARG001
        **given: Any,
    ) -> Server:
        from ...adapters.wire_classic.server import ClassicServer

        report, watch = watching.report("adapters.wire_classic"), watching.requests()
        return ClassicServer(api, report=report, watch=watch, clock=clock, **given)

    def kafka(api: BrokerApi, *, sasl: SaslListener | None, **given: Any) -> Server:
        report, watch = watching.report("adapters.wire_kafka"), watching.requests()

        def made() -> Server:
            from ...adapters.wire_kafka.authentication import ServerAuthentication
            from ...adapters.wire_kafka.server import KafkaServer

            authentication = None
            if sasl is not None:
                authentication = ServerAuthentication(listener=sasl, scheduler=scheduler, clock=clock)
            make = partial(KafkaServer, report=report, watch=watch, authentication=authentication)
            return make(api, scheduler=scheduler, clock=clock, **given)

        return ServerOnDemand(made)

    return {"kafka": kafka, "classic": classic}


class ServerOnDemand:
    """Fulfils `Server` with one that is made for the first connection: with it come the schemas of all requests, a
    tenth of the time that a broker takes to start."""

    def __init__(self, make: Callable[[], Server]) -> None:
        self._make = make
        self._made: Server | None = None

    def made(self) -> Server:
        """Return the server, which is made now if it has not been."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def accept(self, connection: Connection) -> ConnectionHandler:
        """See `Server`."""
        return self.made().accept(connection)

    @property
    def connections(self) -> Mapping[int, ServerConnection]:
        """See `Server`."""
        return {} if self._made is None else self._made.connections

    def close(self, reason: str) -> int:
        """See `Server`."""
        return 0 if self._made is None else self._made.close(reason)


_BEAT_MS, _STUCK_MS = 1_000.0, 10_000.0
"""The interval of the heartbeats of the broker's thread, and the silence after which it counts as stuck."""


class _Heartbeat:
    """Notices that the broker's thread does not get round. `why_stuck` may be asked in any thread."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._beat()

    def _beat(self) -> None:
        self._beaten_ms = self._clock.monotonic_ms()
        self._timer = self._scheduler.call_later(_BEAT_MS, self._beat)

    def why_stuck(self) -> str | None:
        """Return the reason of ill health, or None."""
        stuck_ms = self._clock.monotonic_ms() - self._beaten_ms
        return None if stuck_ms < _STUCK_MS else f"the broker's thread is stuck for {stuck_ms / 1000:.0f} s"

    def stop(self) -> None:
        """Stop the beats."""
        self._timer.cancel()


def _metrics_endpoint(config: BrokerConfig, scheduler: Scheduler, clock: Clock, report: Report) -> ExposeMetrics | None:
    """Opens the endpoint that `metrics.listen` asks for, and returns how to close it; None: nothing is asked for."""
    address = config.metrics_address
    if address is None:
        return None

    security = metrics_security(config, report)

    def expose(metrics: Metrics, ready: Callable[[], str | None]) -> Callable[[], None]:
        from ...adapters.metrics_prometheus.endpoint import MetricsEndpoint
        from ...adapters.metrics_prometheus.metrics import PrometheusMetrics

        if not isinstance(metrics, PrometheusMetrics):
            raise ConfigError("metrics.listen needs the metrics of Prometheus; leave it out, or give no others")
        heartbeat = _Heartbeat(scheduler, clock)
        try:
            endpoint = MetricsEndpoint(
                metrics,
                address,
                healthy=heartbeat.why_stuck,
                ready=ready,
                tls=security.tls,
                users=security.users,
            )
        except BaseException:
            heartbeat.stop()
            raise
        host, port = endpoint.address
        report(
            info(f"metrics at {security.scheme}://{host}:{port}/metrics, the broker's state at /healthz and /readyz")
        )

        def close() -> None:
            heartbeat.stop()
            endpoint.close()

        return close

    return expose


def metrics_security(config: BrokerConfig, report: Report) -> HttpSecurity:
    """Return the TLS and the users of the endpoint of metrics. Raises `ConfigError`."""
    from .https import BasicAuthentication, broker_http_security

    file, users = config.metrics_authentication_users_file, None
    try:
        if file:
            users = BasicAuthentication(file, realm="metrics", report=report)
        return broker_http_security(config, config.metrics_listen or "", "METRICS", users, report)
    except ConfigError as error:
        raise ConfigError(f"metrics.listen={config.metrics_listen}: {error}") from None


def _host_name(config: BrokerConfig) -> str:
    """Return this machine's name; it is looked up only if a listener may have to be advertised with it."""
    if config.advertised_listeners or all(listener.host for listener in config.listener_list):
        return "localhost"
    import socket

    return socket.getfqdn()


def make_reactor(config: BrokerConfig, report: Report = log_report) -> Reactor:
    """Return the loop that a broker runs on."""
    from ...adapters.transport_tcp.reactor import Reactor

    return Reactor(to_logger(report, "adapters.transport_tcp"), workers=config.background_threads)
