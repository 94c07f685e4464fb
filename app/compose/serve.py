"""A broker as a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ports.errors import BarnabasError
from ...ports.report import Report
from ..logs import log_report
from ..signals import EndAtStart
from .broker import build_broker, make_reactor

if TYPE_CHECKING:
    import signal

    from ...adapters.transport_tcp import Reactor
    from ..broker.lifecycle.broker_server import BrokerServer
    from ..config import BrokerConfig
    from .broker import WorkerPart
    from .services import Services


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
    """Return the services to run beside the broker; without any, their module is not loaded."""
    if not config.services:
        return None
    from .services import Services

    return Services(config)
