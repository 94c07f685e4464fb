"""Several classic brokers, a coordination service and a network under one seeded clock."""

from collections.abc import Callable

from barnabas.app.broker.lifecycle.broker_server import BrokerServer
from barnabas.app.compose.broker import outside_of, plugin_host
from barnabas.app.config import BrokerConfig
from barnabas.core.classic.registry import layout
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.types import TopicPartition
from barnabas.simulation.disk import FaultyDisk
from barnabas.simulation.machine import Machine
from barnabas.simulation.surroundings import Surroundings, Work

TOPIC = "sim"
PORT = 9092
PARTITIONS = 2
"""Partitions of each broker."""
RESTART_MS = 300.0

Place = BrokerPartition


def _is_registry_work(work: Work) -> bool:
    """Other work asks nothing of the coordination service, and needs no thread to wait in."""
    return getattr(work, "__module__", "").startswith("barnabas.core.classic")


class SimulatedPeer(Machine):
    """A classic broker with its disk."""

    def __init__(self, world: "ClassicWorld", broker_id: int, **settings: object) -> None:
        super().__init__(world, f"broker-{broker_id}")
        self.broker_id = broker_id
        named: dict[str, object] = {
            "broker.id": broker_id,
            "listeners": f"classic://{self.name}:{PORT}",
            "storage": "memory",
            "coordination": "memory",
            "num.partitions": PARTITIONS,
            "plugins.entry_points.enable": False,
            "zookeeper.session.timeout.ms": int(world.session_ms),
        }
        self.config = BrokerConfig.from_mapping(named, settings)
        self.disk = FaultyDisk(world.entropy.child(f"disk {broker_id}"), world.clock.now_ms)
        self.node: BrokerServer | None = None
        self.stopping = False
        self.lives = 0

    def start(self) -> None:
        """Start the process; one that cannot, as the coordination service is away, is started again and again."""
        if self.node is not None:
            return
        self.switch_on()
        self.lives += 1
        outside = outside_of(
            self.config,
            scheduler=self.life,
            transport=self.world.network.transport(self.name),
            clock=self.world.clock,
            entropy=self.world.entropy.child(f"{self.name} {self.lives}"),
            open_log_dirs=lambda: [self.disk.open()],
            open_coordination=self.session,
            report=self._report,
        )
        node = BrokerServer(self.config, outside, plugin_host(self.config))
        try:
            node.start()
        except CoordinationError as error:
            self._report(f"cannot start: {error}")
            self.life.alive = False
            self.world.network.crash(self.name)
            self.world.scheduler.call_later(RESTART_MS, self.start)
        else:
            self.node = node

    def _report(self, text: str) -> None:
        self.world.report(f"{self.name}: {text}")

    @property
    def running(self) -> bool:
        """Registered, with its topic, on a disk that works, and not about to stop."""
        if self.node is None or self.stopping or not self.node.ready:
            return False
        path = layout.topic_broker_path(TOPIC, self.broker_id)
        return self.world.node(layout.broker_path(self.broker_id)) is not None and self.world.node(path) is not None

    @property
    def disk_failed(self) -> bool:
        """True if nothing can be written before the next start."""
        if self.node is None:
            return False
        logs, keys = self.node.state.logs, [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return any(logs.is_unopened(key) or logs.failure_of(logs.dirs[0]) is not None for key in keys)

    def logs(self) -> dict[int, UnifiedLog]:
        """Return the logs of the topic, by partition."""
        if self.node is None:
            return {}
        found = {number: self.node.state.logs.get(TopicPartition(TOPIC, number)) for number in range(PARTITIONS)}
        return {number: log for number, log in found.items() if log is not None}

    def crash(self) -> None:
        """The power is cut: the process is gone, and what the disk had not written may be too."""
        self.node = None
        self.stopping = False
        self.cut_power()
        self.disk.power_cut()

    def stop(self, stopped: Callable[[], None]) -> None:
        """An orderly shutdown."""
        node, life = self.node, self.life
        if node is None or self.stopping:
            return
        self.stopping = True

        def done() -> None:
            if self.life is life and life.alive:
                life.alive = False
                self.stopping = False
                self.node = None
                self.world.network.crash(self.name)
                stopped()

        node.stop(done)


class ClassicWorld(Surroundings):
    """Brokers, and what is between them."""

    def __init__(
        self, seed: int, *, brokers: int = 3, session_ms: float = 2000.0, waits: float = 0.2, **settings: object
    ) -> None:
        """`waits`: how likely a call of the coordination service lets others go first."""
        super().__init__(seed, session_ms=session_ms, waits=waits, waits_within=_is_registry_work)
        self.brokers = [SimulatedPeer(self, broker_id, **settings) for broker_id in range(brokers)]
        for broker in self.brokers:
            broker.start()

    @property
    def places(self) -> list[Place]:
        return [Place(broker.broker_id, number) for broker in self.brokers for number in range(PARTITIONS)]

    def owners(self, group: str) -> dict[Place, str]:
        """Return the owning thread of each owned partition."""
        found = {place: self.node(layout.owner_path(group, TOPIC, place)) for place in self.places}
        return {place: data.decode() for place, data in found.items() if data is not None}
