"""A broker as a process, and services in threads of `barnabas serve`: the schema registry, those of other packages.

A service is a function under its name in the entry-point group, called with the configuration and HOST:PORT of the
broker, when that answers. Where the listener for other brokers has TLS or SASL, a third argument has the settings of a
client for it. It returns a `Service` once it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from ...plugins.entry_points import EntryPoint, entry_points
from ...ports.errors import BarnabasError, ConfigError
from ...ports.report import Report
from ...ports.values import Secret
from ..logs import log_report
from ..signals import EndAtStart
from .broker import build_broker, make_reactor

if TYPE_CHECKING:
    import signal

    from ...adapters.transport_tcp.reactor import Reactor
    from ..broker.lifecycle.broker_server import BrokerServer
    from ..config import BrokerConfig, ListenAddress
    from .broker import WorkerPart


ENTRY_POINT_GROUP = "barnabas.services"


class Service(Protocol):
    """Something that serves until it is stopped."""

    @property
    def listener(self) -> str:
        """The URL where it serves."""
        ...

    def stop(self) -> None:
        """Stop in order; return when it has ended. The broker still answers."""
        ...


class Services:
    """The services that the configuration asks for. No method waits."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises `ConfigError` for a service that is not installed."""
        points = {point.name: point for point in entry_points(ENTRY_POINT_GROUP)}
        missing = [name for name in config.services if name not in points]
        if missing:
            raise ConfigError(f"{missing[0]}.listen: {missing[0]} is not installed")
        self._config = config
        self._makers = [points[name] for name in config.services]
        self._running: list[Service] = []
        self._starting: Thread | None = None

    def start(
        self, listeners: Sequence[str], ready: Callable[[list[str]], None], failed: Callable[[BarnabasError], None]
    ) -> None:
        """One after the other; then `ready` with the listeners, theirs last, or `failed`. In a thread of its own."""

        def run() -> None:
            try:
                for maker in self._makers:
                    self._running.append(self._made(maker, listeners))
            except BarnabasError as error:
                failed(error)
            except Exception as error:  # noqa: BLE001  # another package's; `failed` gets it
                failed(BarnabasError(f"the service {maker.name} ({maker.value}) failed: {error!r}"))
            else:
                ready([*listeners, *(service.listener for service in self._running)])

        self._starting = Thread(target=run, name="barnabas-services", daemon=True)
        self._starting.start()

    def _made(self, maker: EntryPoint, listeners: Sequence[str]) -> Service:
        address, settings = own_address(self._config, listeners)
        make: Callable[..., Service] = maker.load()
        return make(self._config, address, settings) if settings else make(self._config, address)

    def stop(self, then: Callable[[], None]) -> None:
        """The newest first; then `then`. In a thread of its own."""

        def run() -> None:
            if self._starting is not None:
                self._starting.join()
            while self._running:
                self._running.pop().stop()
            then()

        Thread(target=run, name="barnabas-services-stop", daemon=True).start()


def own_address(config: BrokerConfig, listeners: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return HOST:PORT for clients in the broker's own process, and their settings of security, by the listener for
    other brokers.

    `listeners` have real ports, in the order of the configuration. Raises `ConfigError`.
    """
    index = config.inter_broker_listener
    if index is None:
        raise ConfigError("services of a broker's process need a listener kafka://HOST:PORT")
    listener = config.listener_list[index]
    host, _, port = listeners[index].partition("://")[2].rpartition(":")
    anywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
    address = f"{anywhere.get(host, host)}:{port}"
    if not listener.has_tls and not listener.has_sasl:
        return address, {}
    if listener.has_tls and config.advertised_listener_list:  # whose host is in the certificate
        given = config.advertised_listener_list[index]
        address = given.address_text if given.port else f"{given.host}:{port}"
    return address, _client_settings(config, listener)


def _client_settings(config: BrokerConfig, listener: ListenAddress) -> dict[str, object]:
    """Return the settings of a client that connects as brokers connect to each other. Raises `ConfigError`."""

    def value(key: str, mechanism: str = "") -> object:
        found = config.for_listener(listener.name, key, mechanism)
        return found.value if isinstance(found, Secret) else found

    settings: dict[str, object] = {"security.protocol": listener.security}
    if listener.has_tls:
        for key in _CLIENT_TLS:
            if (given := value(key)) not in (None, "", ()):
                settings[key] = given
        if not value("ssl.truststore.location") and not value("ssl.truststore.certificates"):
            settings.pop("ssl.truststore.type", None)
    if listener.has_sasl:
        mechanism = config.sasl_mechanism_inter_broker_protocol.upper()
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": value("sasl.jaas.config", mechanism) or ""}
    return {key: each for key, each in settings.items() if each != "JKS"}  # the default; the content of the file counts


_CLIENT_TLS = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)


_SWITCH_INTERVAL_MS = 0.5


def serve(
    config: BrokerConfig,
    ready: Callable[[list[str]], None],
    *,
    plugins: Sequence[object] = (),
    report: Report = log_report,
    worker: WorkerPart | None = None,
) -> None:
    """Run a broker on this thread, the main one, until SIGTERM or SIGINT; then stop it in order.

    `ready` gets the listeners, with real ports, once the broker answers there. `worker`: what it has from its parent if
    it is one of several workers. Raises `BarnabasError` when it cannot start, or cannot continue because another broker
    has taken its id.
    """
    import gc
    import signal

    services = _services(config)
    reactor = make_reactor(config, report)
    failures: list[BarnabasError] = []

    def failed(error: BarnabasError) -> None:
        failures.append(error)
        node.stop(reactor.stop)

    def on_ready(error: BarnabasError | None) -> None:
        if error is None:
            if worker is not None:
                from ..broker.lifecycle.replica_metrics import under_replicated

                worker.accept_inherited()
                worker.control.show_cluster(
                    lambda: (node.state.node_id, sorted(node.state.image.brokers)),
                    lambda: under_replicated(node.state.replicas.partitions.values()),
                )
            listeners = [str(listener) for listener in node.listeners]
            if services is None:
                ready(listeners)
            else:
                services.start(listeners, ready, lambda error: reactor.call_soon(lambda: failed(error)))

    def stop_node() -> None:
        reactor.call_soon(lambda: node.stop(reactor.stop))

    def stop(*_: object) -> None:
        if services is None:
            stop_node()
        else:
            services.stop(stop_node)

    def install_handlers() -> Handlers:
        return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}

    try:
        node = build_broker(config, reactor, plugins=plugins, report=report, worker=worker)
        node.failed = failed
    except BaseException:
        reactor.stop()
        raise
    before, ended = _begin(node, reactor, install_handlers)
    if ended:
        reactor.call_soon(stop)
    gc.collect(0)  # the older objects were looked at while they were young; all of them would take 20 ms
    gc.freeze()  # what a start leaves behind stays for good: the collector need not look at it again and again
    gc.set_threshold(700, 10, 10)
    try:
        reactor.call_soon(lambda: node.when_ready(on_ready))
        reactor.run(switch_interval_ms=_SWITCH_INTERVAL_MS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as `signal` gave it
    if failures:
        raise failures[0]


Handlers = dict["signal.Signals", object]


def _begin(node: BrokerServer, reactor: Reactor, install_handlers: Callable[[], Handlers]) -> tuple[Handlers, bool]:
    """Start the broker; returns the handlers before, and whether a signal came with the last step of the start.

    Such a broker is stopped as one that has served. A signal that comes earlier is raised, as what else fails is.
    """
    try:
        node.start()
        before = install_handlers()
    except BaseException as error:
        if not (isinstance(error, SystemExit) and node.started):
            reactor.stop()
            raise
        return install_handlers(), True
    return before, any(isinstance(handler, EndAtStart) and handler.asked for handler in before.values())


def _services(config: BrokerConfig) -> Services | None:
    """Return the services to run with the broker; without any, their module is not loaded."""
    if not config.services:
        return None

    return Services(config)
