"""A broker, its disk, a network and clients under one seeded clock: the same seed plays the same story."""

from collections.abc import Callable
from typing import TypeVar

from simulation.faulty_disk import FaultyDisk

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.adapters.transport_memory import MemoryNetwork, NetworkFaults
from barnabas.app.broker.node import BrokerServer
from barnabas.app.compose.broker import outside_of, plugin_host
from barnabas.app.config import BrokerConfig
from barnabas.core.replica.partition import Partition
from barnabas.ports.errors import ClosedError
from barnabas.ports.scheduler import Outcome, Timer
from barnabas.ports.words import TopicPartition

T = TypeVar("T")
Callback = Callable[[], None]

BROKER = ("broker", 9092)
TOPIC = "sim"
PARTITIONS = 2
LATENCY_MS = 3.0


class Mains:
    """The scheduler of one life of the broker: when its power is cut, nothing that waits is run any more."""

    def __init__(self, scheduler: ManualScheduler) -> None:
        self._scheduler = scheduler
        self.alive = True

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        return self._scheduler.call_later(delay_ms, self._while_alive(callback))

    def call_soon(self, callback: Callback) -> None:
        if not self.alive:
            raise ClosedError("the power was cut")
        self._scheduler.call_soon(self._while_alive(callback))

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        def powered() -> T:
            if not self.alive:
                raise ClosedError("the power was cut")
            return work()

        self._scheduler.offload(powered, lambda outcome: self._while_alive(lambda: done(outcome))())

    def _while_alive(self, callback: Callback) -> Callback:
        return lambda: callback() if self.alive else None


class World:
    """Everything, and the faults that can be ordered."""

    def __init__(self, seed: int, **settings: object) -> None:
        self.entropy = SeededEntropy(seed)
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock, self.entropy.child("offload"))
        self.network = MemoryNetwork(
            self.scheduler, self.entropy.child("network"), NetworkFaults(latency_ms_max=LATENCY_MS)
        )
        self.disk = FaultyDisk(self.entropy.child("disk"), self.clock.now_ms)
        self.tree = MemoryTree(deliver=self.scheduler.call_soon)
        self.settings = settings
        self.reports: list[str] = []
        self.power_cuts = 0
        self.node: BrokerServer | None = None
        self._mains = Mains(self.scheduler)
        self._sessions: list[MemorySession] = []
        self.start()

    # --- the broker

    def _session(self) -> MemorySession:
        self._sessions.append(self.tree.session())
        return self._sessions[-1]

    def start(self) -> None:
        config = BrokerConfig.from_mapping(
            {"listeners": "kafka://broker:9092", "storage": "memory", "coordination": "memory"}, self.settings
        )
        self._mains = Mains(self.scheduler)
        outside = outside_of(
            config,
            scheduler=self._mains,
            transport=self.network.transport("broker"),
            clock=self.clock,
            entropy=self.entropy.child(f"life {self.power_cuts}"),
            open_log_dirs=lambda: [self.disk.open()],
            open_coordination=self._session,
            report=self.reports.append,
        )
        self.node = BrokerServer(config, outside, plugin_host(config))
        self.node.start()

    def stop(self) -> None:
        """An orderly shutdown."""
        node, stopped = self.node, [False]

        def mark() -> None:
            stopped[0] = True

        if node is not None:
            node.stop(mark)
            self.scheduler.run_until(lambda: stopped[0])
            self.network.crash("broker")
            self.node = None

    def cut_power(self) -> None:
        """The broker is gone in the middle of whatever it did; its disk keeps what a disk keeps."""
        self._mains.alive = False
        self.node = None
        self.power_cuts += 1
        self.network.crash("broker")
        self.disk.power_cut()
        while self._sessions:
            self._sessions.pop().close()

    def partition(self, number: int) -> Partition | None:
        return self.node.state.replicas.partitions.get(TopicPartition(TOPIC, number)) if self.node is not None else None

    def recovery_point(self, number: int) -> int:
        """Everything below is on the platters, says the log."""
        partition = self.partition(number)
        return partition.log.recovery_point if partition is not None else 0
