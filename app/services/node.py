"""One broker from start to stop: in which order things are opened, and closed again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from attrs import evolve, frozen

from ...core.cluster.brokers import cluster_id, live_brokers, register_broker
from ...core.cluster.registry import TopicRegistry
from ...core.cluster.topics import BrokerRegistration
from ...core.log.config import LogConfig
from ...core.log.manager import LogManager
from ...plugins.host import PluginHost
from ...ports.broker_api import BrokerApi
from ...ports.clock import Clock
from ...ports.coordination import Coordination
from ...ports.entropy import Entropy
from ...ports.errors import ClosedError, ConfigError
from ...ports.metrics import Metrics
from ...ports.scheduler import Scheduler
from ...ports.storage import LogDir
from ...ports.transport import Connection, ConnectionHandler, Limits, Transport
from ...ports.transport import Listener as OpenPort
from ..config import BrokerConfig, Listener
from .broker_service import BrokerService
from .endpoints import Endpoints
from .settings import BrokerSettings
from .state import BrokerState

_DRAIN_MS = 1000.0
_DRAIN_STEP_MS = 5.0


class Server(Protocol):
    """The protocol of one listener."""

    def accept(self, connection: Connection) -> ConnectionHandler:
        """The handler of a new connection."""
        ...

    def close(self, reason: str) -> int:
        """Close every connection once what was answered has gone out; returns how many have not gone yet."""
        ...


class MakeServer(Protocol):
    """Makes a server; `gone` is told the number (`Caller.connection`) of each connection that has closed."""

    def __call__(self, api: BrokerApi, *, listener: str, max_in_flight: int, gone: Callable[[int], None]) -> Server: ...


@frozen(kw_only=True)
class Outside:
    """What a broker needs from the outside."""

    clock: Clock
    entropy: Entropy
    scheduler: Scheduler
    transport: Transport
    metrics: Metrics
    open_log_dirs: Callable[[], Sequence[LogDir]]
    open_coordination: Callable[[], Coordination]
    servers: Mapping[str, MakeServer]
    """By protocol, the word before `://` in a listener."""
    report: Callable[[str], None]
    expose_metrics: Callable[[Metrics], Callable[[], None]] | None = None
    """Lets the metrics be seen from elsewhere; returns how to end that."""
    host_name: str = "localhost"
    """What to tell clients of a listener on every interface when nothing is advertised."""


class BrokerNode:
    """Opens everything in `start`, and closes it in `stop` in the reverse order. Owner thread only."""

    def __init__(self, config: BrokerConfig, outside: Outside, plugins: PluginHost) -> None:
        self._config = config
        self._outside = outside
        self._plugins = plugins
        self._closing = ExitStack()
        self._opened: list[OpenPort] = []
        self._servers: list[Server] = []
        self._state: BrokerState | None = None
        self._coordination: Coordination | None = None
        self._api: BrokerService | None = None
        self._stopping = False
        self.listeners: tuple[Listener, ...] = ()
        """Where it listens, with real ports; set by `start`."""

    @property
    def state(self) -> BrokerState:
        """Raises `ClosedError` before `start`."""
        if self._state is None:
            raise ClosedError("the broker has not been started")
        return self._state

    @property
    def coordination(self) -> Coordination:
        """The session with the registries. Raises `ClosedError` before `start`."""
        if self._coordination is None:
            raise ClosedError("the broker has not been started")
        return self._coordination

    @property
    def api(self) -> BrokerService:
        """Raises `ClosedError` before `start`."""
        if self._api is None:
            raise ClosedError("the broker has not been started")
        return self._api

    def start(self) -> None:
        """Raises `BarnabasError` when something cannot be opened; what was opened is closed again then."""
        try:
            self._start()
        except BaseException:
            self._closing.close()
            raise

    def _start(self) -> None:
        outside, closing = self._outside, self._closing
        log_dirs = []
        for log_dir in outside.open_log_dirs():
            closing.callback(log_dir.close)
            log_dirs.append(log_dir)
        coordination = self._coordination = outside.open_coordination()
        closing.callback(coordination.close)
        settings = BrokerSettings(self._config, coordination, outside.report, self._plugins.deletion_policy)
        registry = TopicRegistry(coordination, outside.entropy, outside.report)
        registry.load()
        logs = self._open_logs(log_dirs, registry, settings)
        closing.callback(logs.close)
        for listener in self._config.listener_list:
            self._listen(listener)
        state = self._state = BrokerState(
            cluster_id=cluster_id(coordination, outside.entropy),
            settings=settings,
            endpoints=Endpoints(
                self._config.broker_id, self.listeners, self._config.advertised_listener_list, outside.host_name
            ),
            clock=outside.clock,
            scheduler=outside.scheduler,
            registry=registry,
            logs=logs,
            metrics=outside.metrics,
            report=outside.report,
        )
        open_topics(state)
        self._register(state, coordination)
        self._api = BrokerService(state)
        self._serve(state, self._api)
        if outside.expose_metrics is not None:
            closing.callback(outside.expose_metrics(outside.metrics))
        logs.start()

    def _open_logs(self, log_dirs: Sequence[LogDir], registry: TopicRegistry, settings: BrokerSettings) -> LogManager:
        def config_for(topic: str) -> LogConfig:
            known = registry.topics.get(topic)
            return settings.log_config(known.configs if known is not None else {})

        logs = LogManager(
            log_dirs,
            clock=self._outside.clock,
            scheduler=self._outside.scheduler,
            config_for=config_for,
            codecs=self._plugins.codecs(),
            policy_for=lambda config: self._plugins.deletion_policy(config.deletion_policy),
            report=self._outside.report,
            entropy=self._outside.entropy,
            retention_check_ms=self._config.log_retention_check_interval_ms,
            flush_check_ms=self._config.flush_check_interval_ms,
            checkpoint_ms=self._config.log_flush_offset_checkpoint_interval_ms,
            high_watermark_checkpoint_ms=self._config.replica_high_watermark_checkpoint_interval_ms,
        )
        logs.load()
        return logs

    def _listen(self, listener: Listener) -> None:
        """Open a port. Connections are looked at on a later turn of this thread, when the broker is ready."""
        if listener.protocol not in self._outside.servers:
            raise ConfigError(f"listeners={listener}: this broker does not speak {listener.protocol}")
        config, servers, index = self._config, self._servers, len(self.listeners)
        limits = Limits(
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            idle_ms=max(0, config.connections_max_idle_ms),
            unsent_bytes_max=config.socket_unsent_max_bytes,
        )
        opened = self._outside.transport.listen(
            (listener.host, listener.port),
            lambda connection: servers[index].accept(connection),  # noqa: PLW0108  made after the port is open
            limits,
        )
        self._closing.callback(opened.close)
        self._opened.append(opened)
        self.listeners = (*self.listeners, evolve(listener, port=opened.address[1]))

    def _register(self, state: BrokerState, coordination: Coordination) -> None:
        own = BrokerRegistration(
            broker_id=state.node_id,
            endpoints=state.endpoints.registered(),
            rack=self._config.broker_rack,
            started_ms=state.clock.now_ms(),
        )
        register_broker(coordination, own)
        state.live_brokers = {broker.broker_id: broker for broker in live_brokers(coordination, state.report)}

    def _serve(self, state: BrokerState, api: BrokerApi) -> None:
        for listener in self.listeners:
            self._servers.append(
                self._outside.servers[listener.protocol](
                    api,
                    listener=str(listener),
                    max_in_flight=self._config.max_in_flight_requests_per_connection,
                    gone=state.gone,
                )
            )

    def stop(self, stopped: Callable[[], None]) -> None:
        """Answer what waits, let the answers go out, make the logs durable, close; then call `stopped`.

        Takes about a second at most beyond what the disk needs. A second call does nothing.
        """
        if self._stopping:
            return
        self._stopping = True
        for opened in self._opened:
            opened.close()
        if self._state is not None:
            self._state.purgatory.close()
        self._drain(self._outside.clock.monotonic_ms() + _DRAIN_MS, stopped)

    def _drain(self, until_ms: float, stopped: Callable[[], None]) -> None:
        open_connections = sum(server.close("") for server in self._servers)
        if open_connections and self._outside.clock.monotonic_ms() < until_ms:
            self._outside.scheduler.call_later(_DRAIN_STEP_MS, lambda: self._drain(until_ms, stopped))
            return
        try:
            self._closing.close()
        finally:
            stopped()


def open_topics(state: BrokerState) -> None:
    """Open the logs of what belongs to this broker; finish deletions that were interrupted."""
    for topic in list(state.registry.deleting.values()):
        if state.drop_topic(topic):
            state.registry.finish_delete(topic.name)
    for topic in state.registry.topics.values():
        state.reopen_topic(topic)
