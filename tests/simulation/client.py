"""Our own clients in the simulation: the same state machines, links and driver, without threads and locks."""

from barnabas.adapters.wire_kafka.client import connect_kafka
from barnabas.app.clients.shared.client_shell import OverdueRequests
from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.driver import Driver
from barnabas.core.client.effects import Part
from barnabas.core.client.network.connection import ConnectCallback
from barnabas.core.client.network.links import LinkDependencies, Links
from barnabas.core.security.sasl.client import SaslFactory
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.transport import Address
from barnabas.simulation import World

TOPIC = "sim"
PARTITIONS = 2


class Client:
    """The parts of every client: a view of the cluster, links, and a driver for its machines."""

    def __init__(self, world: World, name: str, metadata: ViewSettings | None = None) -> None:
        """`metadata`: how it refreshes its view of the cluster."""
        self.world = world
        self.name = name
        self.entropy = world.entropy.child(name)
        self.active = True
        self.sasl: SaslFactory | None = None
        """Settable: how it logs in; None: as the programs of the world do."""
        self.view = ClusterView(
            [broker.address for broker in world.brokers.values()],
            self.entropy,
            metadata or ViewSettings(),
            moved=lambda: world.scheduler.call_soon(self._links.tidy),
        )
        self.view.add_topics([TOPIC])
        self._transport = world.network.transport(name)
        outside = LinkDependencies(
            scheduler=world.scheduler,
            clock=world.clock,
            entropy=self.entropy,
            connect=self._connect,
            caller=Caller(client_id=name),
        )
        self._links = Links(outside, self.view.address, self.view.on_node_status)
        overdue = OverdueRequests(self._links.submit, world.clock, self.view.on_request_overdue)
        self._driver = Driver(world.scheduler, world.clock, overdue.submit)
        self._driver.add(self.view)
        self._driver.add(overdue)

    def drive(self, *parts: Part) -> None:
        for part in parts:
            self._driver.add(part)
        self.world.scheduler.call_soon(self._turn)

    def act(self) -> float:
        """Do the next action of the user; return the milliseconds until the one after it."""
        raise NotImplementedError

    def vanish(self) -> None:
        """Without a word, as a process that is killed."""
        self.active = False
        self._driver.close()
        self._links.close()

    def _turn(self) -> None:
        if self.active:
            delay_ms = self.act()
            self._driver.wake()
            self.world.scheduler.call_later(delay_ms, self._turn)

    def _connect(self, address: Address, opened: ConnectCallback) -> None:
        connect_kafka(
            self._transport,
            self.world.scheduler,
            address,
            client_id=self.name,
            request_timeout_ms=3000,
            connect_timeout_ms=1000,
            opened=opened,
            sasl=self.sasl or self.world.sasl,
        )
