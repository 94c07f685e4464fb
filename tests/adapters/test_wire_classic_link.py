"""The classic protocol keeps the contract of a link: over simulated connections, and over sockets."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from support.waiting import wait_for

from barnabas import Broker
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.adapters.wire_classic import ClassicLink, connect_classic
from barnabas.app.in_process import InProcessLink
from barnabas.ports.scheduler import Scheduler
from barnabas.ports.transport import Address, Transport, TransportError
from barnabas.testing.contracts.classic_link import BROKER_SETTINGS, ClassicLinkContract, LinkHarness
from barnabas.testing.manual_broker import ManualBroker


def _link(
    transport: Transport, scheduler: Scheduler, address: Address, run_until: Callable[[Callable[[], bool]], None]
) -> ClassicLink:
    opened: list[ClassicLink | TransportError] = []
    connect_classic(
        transport, scheduler, address, request_timeout_ms=30_000, connect_timeout_ms=1000, opened=opened.append
    )
    run_until(lambda: bool(opened))
    link = opened[0]
    assert isinstance(link, ClassicLink)
    return link


def _turn_until(reactor: Reactor, condition: Callable[[], bool]) -> None:
    def turned() -> bool:
        if not condition():
            reactor.turn(50)
        return condition()

    wait_for(turned)


class TestOverMemory(ClassicLinkContract):
    @pytest.fixture
    def harness(self) -> LinkHarness:
        settings = {key.replace(".", "_"): value for key, value in BROKER_SETTINGS.items()}
        broker = ManualBroker(listeners="classic://broker:9092", **settings)  # type: ignore[arg-type]  # settings are objects

        def run_until(condition: Callable[[], bool]) -> None:
            if not condition():
                broker.scheduler.run_until(condition)

        link = _link(broker.network.transport("client"), broker.scheduler, ("broker", 9092), run_until)
        return LinkHarness(link, run_until, broker.stop)


class TestOverTcp(ClassicLinkContract):
    @pytest.fixture
    def harness(self) -> Iterator[LinkHarness]:
        reactor = Reactor()
        run_until = partial(_turn_until, reactor)
        with Broker(storage="memory", listeners=["classic://127.0.0.1:0"], config=BROKER_SETTINGS) as broker:
            host, port = broker.bootstrap.split(":")
            link = _link(TcpTransport(reactor, print), reactor, (host, int(port)), run_until)
            yield LinkHarness(link, run_until, broker.close)
            link.close()
        reactor.stop()


class TestInProcess(ClassicLinkContract):
    @pytest.fixture
    def harness(self) -> Iterator[LinkHarness]:
        reactor = Reactor()
        run_until = partial(_turn_until, reactor)
        with Broker(storage="memory", listeners=["classic://127.0.0.1:0"], config=BROKER_SETTINGS) as broker:
            link = InProcessLink(broker, reactor)
            yield LinkHarness(link, run_until, broker.close)
            link.close()
        reactor.stop()
