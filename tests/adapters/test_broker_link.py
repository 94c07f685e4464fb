"""The two ways to a broker keep the contract of a link: over the Kafka protocol, and inside the process."""

import threading
from collections.abc import Callable, Iterator

import pytest

from barnabas import Broker
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.wire_kafka.client import KafkaLink, connect_kafka
from barnabas.app.in_process import InProcessLink
from barnabas.ports.transport import TransportError
from barnabas.testing.contracts.classic_link import BrokerLinkContract, LinkHarness
from barnabas.testing.manual_broker import ManualBroker


class TestKafkaLink(BrokerLinkContract):
    @pytest.fixture
    def harness(self) -> LinkHarness:
        broker = ManualBroker()
        opened: list[KafkaLink | TransportError] = []
        connect_kafka(
            broker.network.transport("client"),
            broker.scheduler,
            ("broker", 9092),
            client_id="contract",
            request_timeout_ms=30_000,
            connect_timeout_ms=1000,
            opened=opened.append,
        )
        broker.scheduler.run_until(lambda: bool(opened))
        link = opened[0]
        assert isinstance(link, KafkaLink)

        def run_until(condition: Callable[[], bool]) -> None:
            if not condition():
                broker.scheduler.run_until(condition)

        return LinkHarness(link, run_until, broker.stop)


class TestInProcessLink(BrokerLinkContract):
    @pytest.fixture
    def harness(self) -> Iterator[LinkHarness]:
        reactor = Reactor()
        with Broker(storage="memory") as broker:

            def run_until(condition: Callable[[], bool]) -> None:
                given_up = threading.Event()
                timer = threading.Timer(20, given_up.set)
                timer.start()
                while not condition():
                    assert not given_up.is_set(), "the condition does not come to hold"
                    reactor.turn(50)
                timer.cancel()

            yield LinkHarness(InProcessLink(broker, reactor), run_until, broker.close)
        reactor.stop()
