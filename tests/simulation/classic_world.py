"""Several classic brokers, a coordination service and a network under one seeded clock."""

from collections.abc import Callable

from simulation.classic_machines import Machine, Workers
from simulation.faulty_disk import FaultyDisk
from simulation.world import LATENCY_MS

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.adapters.transport_memory import MemoryNetwork, NetworkFaults
from barnabas.app.broker.node import BrokerServer
from barnabas.app.compose.broker import outside_of, plugin_host
from barnabas.app.config import BrokerConfig
from barnabas.core.classic.registry import layout
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.log.log import Log
from barnabas.ports.coordination import CoordinationError, NoNode
from barnabas.ports.words import TopicPartition

TOPIC = "sim"
PORT = 9092
PARTITIONS = 2
"""Of each broker."""
COORDINATION_MS = 10.0
RESTART_MS = 300.0

Place = BrokerPartition


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

    def logs(self) -> dict[int, Log]:
        """Of the topic, by partition."""
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


class ClassicWorld:
    """Brokers, and what is between them."""

    def __init__(
        self, seed: int, *, brokers: int = 3, session_ms: float = 2000.0, waits: float = 0.2, **settings: object
    ) -> None:
        """`waits`: how likely a call of the coordination service lets others go first."""
        self.entropy = SeededEntropy(seed)
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.workers = Workers(self.scheduler, self.entropy.child("workers"), wait_ms_max=COORDINATION_MS, waits=waits)
        self.network = MemoryNetwork(
            self.scheduler, self.entropy.child("network"), NetworkFaults(latency_ms_max=LATENCY_MS)
        )
        self.failures: list[str] = []
        self.tree = MemoryTree(deliver=self.scheduler.call_soon, report=self.failures.append)
        self.session_ms = session_ms
        self.reports: list[str] = []
        self.ghosts = 0
        """Sessions whose user is gone, which the service does not know yet."""
        self.service_is_down = False
        self.writes: Callable[[str, bytes], None] = lambda _path, _data: None
        """Told of everything that somebody wants to write into the tree."""
        self._fault_ends: dict[object, Callable[[], None]] = {}
        self.brokers = [SimulatedPeer(self, broker_id, **settings) for broker_id in range(brokers)]
        for broker in self.brokers:
            broker.start()

    @property
    def places(self) -> list[Place]:
        return [Place(broker.broker_id, number) for broker in self.brokers for number in range(PARTITIONS)]

    def report(self, text: str) -> None:
        self.reports.append(f"{self.clock.monotonic_ms():9.2f} {text}")

    def node(self, path: str) -> bytes | None:
        """What stands in the tree, whoever asks."""
        try:
            return self.tree.nodes.get(path).data
        except NoNode:
            return None

    def owners(self, group: str) -> dict[Place, str]:
        """The owning thread of each partition, where there is one."""
        found = {place: self.node(layout.owner_path(group, TOPIC, place)) for place in self.places}
        return {place: data.decode() for place, data in found.items() if data is not None}

    # --- faults that end

    def fault_ends_in(self, ms: float, end: Callable[[], None]) -> None:
        """Call `end` then, or when all faults are to end."""
        token = object()
        self._fault_ends[token] = end

        def due() -> None:
            if self._fault_ends.pop(token, None) is not None:
                end()

        self.scheduler.call_later(ms, due)

    def end_faults(self) -> None:
        """What lasts, ends now."""
        ends = list(self._fault_ends.values())
        self._fault_ends.clear()
        for end in ends:
            end()

    def close(self) -> None:
        """End the threads of the world."""
        self.workers.close()
