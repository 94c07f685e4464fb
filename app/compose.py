"""The one place that knows the adapters: what a running broker, and a client of one, is made of.

Adapters are imported where they are used, so that a client does not load the broker, nor the broker the client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from ..ports.errors import BarnabasError, ClosedError, ConfigError
from ..ports.report import Report, in_room
from ..ports.transport import Address, TransportError
from .extras import install_command
from .logs import log_report

if TYPE_CHECKING:
    from ..adapters.transport_tcp import Reactor
    from ..core.traffic.steps import StepRunner
    from ..ports.broker_api import BrokerApi, Request
    from ..ports.clock import Clock
    from ..ports.coordination import Coordination
    from ..ports.entropy import Entropy
    from ..ports.metrics import Metrics
    from ..ports.scheduler import Scheduler
    from ..ports.storage import LogDir
    from ..ports.transport import Transport
    from .broker.node import BrokerNode, MakeOutside, MakeServer, Outside, Server
    from .broker.watching import Watching
    from .clients.connector import Connector, Opened
    from .config import BrokerConfig
    from .in_process import BrokerHost

COORDINATION_FILE = "coordination.db"
"""In the first data folder, unless the configuration names another."""
REMOTE_COORDINATION = ("zookeeper", "etcd")
_SWITCH_INTERVAL_MS = 0.5


# --- the broker


def build_broker(
    config: BrokerConfig,
    reactor: Reactor,
    *,
    plugins: Sequence[object] = (),
    metrics: Metrics | None = None,
    report: Report = log_report,
    outside: MakeOutside | None = None,
) -> BrokerNode:
    """A broker on TCP, on the reactor given; its `start` and `stop` are for the reactor's thread.

    `outside` may stand for `outside_of`, to put something between the broker and what it gets from there. Raises
    `ConfigError` for plugins that cannot be used.
    """
    from ..adapters.transport_tcp import TcpTransport
    from .broker.node import BrokerNode

    made = (outside or outside_of)(
        config,
        scheduler=reactor,
        transport=TcpTransport(reactor, in_room(report, "adapters.transport_tcp")),
        metrics=metrics,
        report=report,
    )
    return BrokerNode(config, made, plugin_host(config, plugins))


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
) -> Outside:
    """What the configuration asks for, with anything that is given in its place (the simulation gives all)."""
    from ..adapters.metrics_prometheus import PrometheusMetrics
    from ..adapters.system import SystemClock, SystemEntropy
    from .broker.node import Outside
    from .broker.watching import Watching

    clock = clock or SystemClock()
    watching = Watching(config, scheduler, clock, report)
    return Outside(
        clock=clock,
        entropy=entropy or SystemEntropy(),
        scheduler=scheduler,
        transport=transport,
        metrics=metrics or PrometheusMetrics(report=in_room(report, "adapters.metrics_prometheus")),
        expose_metrics=_metrics_endpoint(config),
        open_log_dirs=open_log_dirs or (lambda: open_log_dirs_of(config)),
        open_coordination=open_coordination or (lambda: configured_coordination(config, report)),
        servers=_servers(watching),
        finish=watching.close,
        report=report,
        host_name=_host_name(config),
    )


class KeptInMemory:
    """Log folders and a coordination tree in memory, for a broker that is stopped and started again."""

    def __init__(self, report: Report = log_report) -> None:
        from ..adapters.coord_memory import MemoryTree
        from ..adapters.storage_memory import MemoryDisk

        self._disk = MemoryDisk()
        self._tree = MemoryTree(report=report)

    def open_log_dirs(self) -> Sequence[LogDir]:
        """The one folder; locked while it is open."""
        from ..adapters.storage_memory import MemoryLogDir

        return [MemoryLogDir(self._disk)]

    def open_coordination(self) -> Coordination:
        """A new session."""
        return self._tree.session()


def kafka_apis() -> dict[int, type[Request[Any]]]:
    """The APIs that a broker answers over the Kafka protocol: key → type of the request."""
    from ..adapters.wire_kafka.table import BY_KEY

    return {key: api.request_type for key, api in BY_KEY.items()}


def system_entropy() -> Entropy:
    """The operating system's random numbers."""
    from ..adapters.system import SystemEntropy

    return SystemEntropy()


def plugin_host(config: BrokerConfig, plugins: Sequence[object] = ()) -> Any:
    """The plugins that the configuration asks for, and those given as objects. Raises `ConfigError`."""
    from ..plugins.host import PluginHost

    return PluginHost(
        [*config.plugins_modules, *plugins],
        load_entry_points=config.plugins_entry_points_enable,
        blocked=config.plugins_blocked,
    )


def open_log_dirs_of(config: BrokerConfig) -> list[LogDir]:
    """The data folders, each locked. Raises `FolderLocked`, `StorageError`."""
    if config.storage == "memory":
        from ..adapters.storage_memory import MemoryLogDir

        return [MemoryLogDir()]
    from ..adapters.storage_fs import open_log_dir

    opened: list[LogDir] = []
    try:
        for path in config.data_dirs:
            opened.append(open_log_dir(path, mode=config.dir_mode))
    except BaseException:
        for log_dir in opened:
            log_dir.close()
        raise
    return opened


def configured_coordination(config: BrokerConfig, report: Report) -> Coordination:
    """A session with what the configuration names. Raises `CoordinationError`."""
    kind, place = config.coordination_choice
    report = in_room(report, f"adapters.coord_{kind}")
    if kind in REMOTE_COORDINATION and place is not None:
        return remote_coordination(
            place,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connect_timeout_ms=config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
            report=report,
        )
    if kind == "memory" or (config.storage == "memory" and place is None):
        from ..adapters.coord_memory import MemoryTree

        return MemoryTree(report=report).session()
    from pathlib import Path

    from ..adapters.coord_embedded import EmbeddedCoordination

    return EmbeddedCoordination(place or str(Path(config.data_dirs[0]) / COORDINATION_FILE), report=report)


def remote_coordination(
    url: str, *, session_timeout_ms: int = 6000, connect_timeout_ms: int = 6000, report: Report = log_report
) -> Coordination:
    """A session with the ZooKeeper or etcd at `url`. Raises `ConfigError`, `CoordinationError`."""
    scheme = url.partition("://")[0]
    if scheme not in REMOTE_COORDINATION:
        raise ConfigError(f"{url!r} is neither zookeeper://HOST:PORT/CHROOT nor etcd://HOST:PORT/PREFIX")
    made: Callable[..., Coordination]
    try:
        if scheme == "zookeeper":
            from ..adapters.coord_zookeeper import ZookeeperCoordination as made
        else:
            from ..adapters.coord_etcd import EtcdCoordination as made
    except ImportError as error:
        text = f"{url}: this needs the extra {scheme!r} ({error.name} is not installed)"
        raise ConfigError(f"{text}; to get it: {install_command(scheme)}") from error
    return made(url, session_timeout_ms=session_timeout_ms, connect_timeout_ms=connect_timeout_ms, report=report)


def _servers(watching: Watching) -> dict[str, MakeServer]:
    def classic(api: BrokerApi, *, steps: StepRunner, **given: Any) -> Server:  # noqa: ARG001  no long answers there
        from ..adapters.wire_classic.server import ClassicServer

        report, watch = watching.report("adapters.wire_classic"), watching.requests()
        return ClassicServer(api, report=report, watch=watch, **given)

    def kafka(api: BrokerApi, **given: Any) -> Server:
        from ..adapters.wire_kafka.server import KafkaServer

        report, watch = watching.report("adapters.wire_kafka"), watching.requests()
        return KafkaServer(api, report=report, watch=watch, **given)

    return {"kafka": kafka, "classic": classic}


def _metrics_endpoint(config: BrokerConfig) -> Callable[[Metrics], Callable[[], None]] | None:
    """Opens the endpoint that `metrics.listen` asks for, and returns how to close it; None: nothing is asked for."""
    address = config.metrics_address
    if address is None:
        return None

    def expose(metrics: Metrics) -> Callable[[], None]:
        from ..adapters.metrics_prometheus import PrometheusMetrics
        from ..adapters.metrics_prometheus.endpoint import MetricsEndpoint

        if not isinstance(metrics, PrometheusMetrics):
            raise ConfigError("metrics.listen needs the metrics of Prometheus; leave it out, or give no others")
        return MetricsEndpoint(metrics, address).close

    return expose


def _host_name(config: BrokerConfig) -> str:
    """This machine's name; looked up only when it may be told to somebody."""
    if config.advertised_listeners or all(listener.host for listener in config.listener_list):
        return "localhost"
    import socket

    return socket.getfqdn()


def serve(
    config: BrokerConfig,
    ready: Callable[[list[str]], None],
    *,
    plugins: Sequence[object] = (),
    report: Report = log_report,
) -> None:
    """Run a broker on this thread, the main one, until SIGTERM or SIGINT; then stop it in order.

    `ready` gets the listeners, with real ports, once the broker answers there. Raises `BarnabasError` when it cannot
    start, or cannot go on because another broker has taken its id.
    """
    import gc
    import signal

    reactor = make_reactor(config, report)
    failures: list[BarnabasError] = []

    def failed(error: BarnabasError) -> None:
        failures.append(error)
        node.stop(reactor.stop)

    def tell(error: BarnabasError | None) -> None:
        if error is None:
            ready([str(listener) for listener in node.listeners])

    try:
        node = build_broker(config, reactor, plugins=plugins, report=report)
        node.failed = failed
        node.start()
    except BaseException:
        reactor.stop()
        raise

    def stop(*_: object) -> None:
        reactor.call_soon(lambda: node.stop(reactor.stop))

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    gc.collect()
    gc.freeze()  # what a start leaves behind stays for good: the collector need not look at it again and again
    try:
        reactor.call_soon(lambda: node.when_ready(tell))
        reactor.run(switch_interval_ms=_SWITCH_INTERVAL_MS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failures:
        raise failures[0]


def make_reactor(config: BrokerConfig, report: Report = log_report) -> Reactor:
    """The loop that a broker runs on."""
    from ..adapters.transport_tcp import Reactor

    return Reactor(in_room(report, "adapters.transport_tcp"), workers=config.background_threads)


# --- clients


class _TcpConnector:
    """Fulfils `Connector` with sockets and a reactor of its own."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        protocol: str,
        client_id: str | None,
        request_timeout_ms: float,
        connect_timeout_ms: float,
        workers: int,
        report: Report,
    ) -> None:
        from ..adapters.system import SystemClock, SystemEntropy
        from ..adapters.transport_tcp import Reactor, TcpTransport
        from .background import ReactorThread

        self.bootstrap = tuple(bootstrap)
        self._protocol = protocol
        self.clock: Clock = SystemClock()
        self.entropy: Entropy = SystemEntropy()
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._reactor = Reactor(report, workers=workers)
        self._transport = TcpTransport(self._reactor, report)
        self._thread = ReactorThread(self._reactor, f"barnabas-client {client_id or ''}".rstrip())

    def start(self) -> Scheduler:
        self._thread.start()
        return self._reactor

    def owns_thread(self) -> bool:
        return self._thread.owns_caller()

    def connect(self, address: Address, opened: Opened) -> None:
        if self._protocol == "classic":
            from ..adapters.wire_classic.client import connect_classic

            connect_classic(
                self._transport,
                self._reactor,
                address,
                request_timeout_ms=self._request_timeout_ms,
                connect_timeout_ms=self._connect_timeout_ms,
                opened=opened,
            )
            return
        from ..adapters.wire_kafka.client import connect_kafka

        connect_kafka(
            self._transport,
            self._reactor,
            address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
            opened=opened,
        )

    def stop(self) -> None:
        self._thread.stop()


class _InProcessConnector:
    """Fulfils `Connector` with links to a broker object, and a reactor of its own; addresses do not matter to it."""

    def __init__(self, broker: BrokerHost, *, client_id: str | None, report: Report) -> None:
        from ..adapters.system import SystemClock, SystemEntropy
        from ..adapters.transport_tcp import Reactor
        from .background import ReactorThread

        self.bootstrap: Sequence[Address] = (("in-process", 0),)
        self.clock: Clock = SystemClock()
        self.entropy: Entropy = SystemEntropy()
        self._broker = broker
        self._reactor = Reactor(report, workers=1)
        self._thread = ReactorThread(self._reactor, f"barnabas-client {client_id or ''}".rstrip())

    def start(self) -> Scheduler:
        self._thread.start()
        return self._reactor

    def owns_thread(self) -> bool:
        return self._thread.owns_caller()

    def connect(self, address: Address, opened: Opened) -> None:  # noqa: ARG002
        from .in_process import InProcessLink

        try:
            link = InProcessLink(self._broker, self._reactor)
        except ClosedError as error:
            opened(TransportError(f"the broker in this process does not run: {error}"))
            return
        opened(link)

    def stop(self) -> None:
        self._thread.stop()


def client_connector(
    bootstrap: object,
    *,
    client_id: str | None = None,
    request_timeout_ms: float = 30_000.0,
    connect_timeout_ms: float = 10_000.0,
    protocol: Literal["kafka", "classic"] = "kafka",
    workers: int = 1,
    report: Report = log_report,
) -> Connector:
    """How a client reaches brokers: over TCP, or a `Broker` object in its own process without a socket.

    `bootstrap` is the broker object; or "host:port", several of them separated by commas or in a list, also as
    (host, port) or `kafka://host:port`. For `protocol` classic it may be empty: the registries tell the addresses.
    `workers`: threads for what may block. Raises `ConfigError`.
    """
    from .in_process import is_broker_host

    if is_broker_host(bootstrap):
        return _InProcessConnector(bootstrap, client_id=client_id, report=report)
    if bootstrap or protocol == "kafka":
        addresses = _addresses(bootstrap, protocol)
    else:
        addresses = []
    return _TcpConnector(
        addresses,
        protocol=protocol,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
        workers=workers,
        report=report,
    )


def client_coordination(
    where: object, *, session_timeout_ms: int = 6000, connect_timeout_ms: int = 6000, report: Report = log_report
) -> Coordination:
    """A client's session with the registries: at a URL, of a `Broker` in this process, or from a callable.

    Raises `ConfigError`, `CoordinationError`, and `ClosedError` for a broker that does not run.
    """
    if isinstance(where, str):
        return remote_coordination(
            where, session_timeout_ms=session_timeout_ms, connect_timeout_ms=connect_timeout_ms, report=report
        )
    opener = getattr(where, "open_coordination", where)
    if not callable(opener):
        text = "neither zookeeper://HOST:PORT/CHROOT, etcd://HOST:PORT/PREFIX, a Broker, nor a callable"
        raise ConfigError(f"coordination {where!r} is {text}")
    made: Coordination = opener()
    return made


def _addresses(bootstrap: object, protocol: str) -> list[Address]:
    from .config.listeners import parse_address

    if isinstance(bootstrap, str):
        texts: Sequence[object] = [part.strip() for part in bootstrap.split(",") if part.strip()]
    elif isinstance(bootstrap, Sequence) and not isinstance(bootstrap, bytes):
        texts = [bootstrap] if _is_pair(bootstrap) else bootstrap
    else:
        raise ConfigError(f"bootstrap {bootstrap!r} is neither HOST:PORT, nor a list of such, nor a Broker")
    addresses = []
    for each in texts:
        if isinstance(each, str):
            addresses.append(parse_address(each.removeprefix(f"{protocol}://"), f"bootstrap {each!r}"))
        elif _is_pair(each):
            addresses.append(each)
        else:
            raise ConfigError(f"bootstrap {each!r} is not HOST:PORT")
    if not addresses:
        raise ConfigError("bootstrap is empty; give HOST:PORT of at least one broker")
    return addresses


def _is_pair(value: object) -> TypeGuard[Address]:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int)
