"""A broker of the world: its machine, its disk, and the process, which is the one that `barnabas serve` runs."""

from collections.abc import Callable, Mapping
from typing import Any

from ..adapters.metrics_memory import MemoryMetrics
from ..app.broker.lifecycle.broker_server import BrokerServer
from ..app.broker.state.tiering import RemoteOutside
from ..app.compose.broker import outside_of, plugin_host
from ..app.config import BrokerConfig
from ..core.log.partition_log.unified_log import UnifiedLog
from ..core.replica.partition.partition import Partition
from ..ports.errors import BarnabasError, ClosedError, ConfigError
from ..ports.scheduler import Outcome
from ..ports.transport import Address
from .clock import SkewedClock
from .coroutine_thread import Killed
from .disk import FaultyDisk, FileContent
from .interference import Interference
from .machine import Machine
from .surroundings import Surroundings

PORT = 9092
RESTART_MS = 300.0
"""A process that ended by an error is started again so much later."""


class SimulatedBroker(Machine):
    """Made by `World`. Times of its methods are in seconds of the world."""

    def __init__(
        self,
        world: Surroundings,
        broker_id: int,
        settings: Mapping[str, object],
        *,
        shared: bool,
        data_folders: int = 1,
    ) -> None:
        """`shared`: the coordination service is on its own, and not in the process of this broker. `data_folders`: the
        number of data folders, each on a disk of its own."""
        super().__init__(world, f"broker-{broker_id}", session_blocks=shared)
        self._shared = shared
        self.broker_id = broker_id
        self.address: Address = (self.name, PORT)
        self.disk = FaultyDisk(world.entropy.child(f"disk {broker_id}"), world.clock.now_ms)
        """The disk of the first data folder."""
        self.points = Interference(world, self.name, kill=self._kill, expire=self.expire)
        """Settable: what is to happen at points of its work, see `interference.POINTS`."""
        self.interference = self.points
        self.disks = (self.disk, *(self._another_disk(number) for number in range(2, data_folders + 1)))
        """The disks of all data folders."""
        for disk in self.disks:
            disk.interference = self.points
        self.clock = SkewedClock.somehow(world.clock, world.entropy.child(f"clock {self.name}"))
        self.settings: dict[str, object] = dict(settings)
        """Settable; for its next start."""
        self.node: BrokerServer | None = None
        """The running process."""
        self.lives = 0
        """The number of starts."""
        self.stopping = False
        self.wanted = False
        """False when it is not started again: after `stop`, and until a `kill` or power cut ends."""

    @property
    def running(self) -> bool:
        """True while it is registered and serves."""
        return self.node is not None and self.node.ready and not self.stopping

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """The partitions that it has now; none while it does not run."""
        try:
            return {} if self.node is None else self.node.state.replicas.partitions
        except ClosedError:
            return {}  # it has just begun to start

    @property
    def rotten(self) -> list[tuple[str, str]]:
        """The folders and files of all disks that still have a byte that `rot` changed."""
        return [each for disk in self.disks for each in disk.rotten]

    @property
    def disk_failed(self) -> bool:
        """True if a disk refused something, so that a partition or a data folder is out of use until the next start."""
        if any(partition.offline for partition in self.partitions.values()):
            return True
        try:
            return self.node is not None and any(each.failure for each in self.node.state.logs.folders)
        except ClosedError:
            return False  # it has just begun to start

    @property
    def epoch(self) -> int:
        """The number of its registration with the cluster; -1: it has none now."""
        try:
            return -1 if self.node is None else self.node.state.replicas.broker_epoch
        except ClosedError:
            return -1

    def knows(self, brokers: int) -> bool:
        """Return True if its image has at least this number of brokers."""
        return self.node is not None and len(self.node.state.image.brokers) >= brokers

    # --- the process

    def start(self) -> None:
        """Start the process; one that cannot start, as the coordination service is away, is tried again and again."""
        self.wanted = True
        if self.node is None:
            self._start()

    def stop(self, stopped: Callable[[], None] = lambda: None) -> None:
        """Begin an orderly shutdown; `stopped` is called at its end."""
        self.wanted = False
        node, life = self.node, self.life
        if node is None or self.stopping:
            return
        self.stopping = True

        def done() -> None:
            if self.life is life and life.alive:
                self._end("has stopped")
                stopped()

        node.stop(done)

    def kill(self) -> None:
        """Kill the process as `kill -9` does: what it wrote is still there, flushed or not."""
        self._kill("is killed")

    def power_cut(self) -> None:
        """The process is gone, and of what was not flushed any part may be."""
        self.wanted = False
        self._end("loses its power")
        for disk in self.disks:
            disk.power_cut()

    def lose_disk(self) -> None:
        """The process is gone, and so is all that was on its disks: empty ones take their place."""
        self.wanted = False
        self._end("loses its disk" if len(self.disks) == 1 else "loses its disks")
        for disk in self.disks:
            disk.lose_all()

    def lose_data_folder(self, number: int) -> None:
        """The process is gone, and so is what was on one disk (`number`, from 0): an empty one takes its place."""
        self.wanted = False
        self._end(f"loses the disk of data folder {number}")
        self.disks[number].lose_all()

    def put_back_disk(self, folders: dict[str, dict[str, FileContent]]) -> None:
        """The process is gone, and an earlier copy of its first disk (`folders`, of `disk.copy()`) takes the place
        of the disk.
        """
        self.wanted = False
        self._end("gets an old copy of its disk")
        self.disk.put_back(folders)

    def suspect(self, log: UnifiedLog, offset: int) -> None:
        """A reader could not read what is at this offset of a log, whether it is damaged or not."""
        if self.node is not None:
            self.node.state.replicas.suspect(log, offset)

    def get_stuck_for(self, seconds: float) -> None:
        """Let its reactor wait for a disk for this time, while its session with the coordination service stays open."""
        self.world.report(f"--- {self.name} waits for its disk for {seconds:.2f} s")
        self.get_stuck(seconds * 1000)

    def pause(self, seconds: float) -> None:
        """Stop the process as SIGSTOP does, and continue it after `seconds`: nothing runs meanwhile, and what is sent
        to it waits.
        """
        self.world.report(f"--- {self.name} stands still for {seconds:.2f} s")
        self.stand_still(seconds * 1000)

    def restart(self, after: float = 0.0) -> None:
        """An orderly stop, if it runs, and a start `after` it."""

        def start() -> None:
            self.world.scheduler.call_later(after * 1000, self.start)

        if self.node is None:
            start()
        else:
            self.stop(start)

    # --- inside

    def _start(self) -> None:
        self.switch_on()
        self.life.rate = lambda: self.clock.rate
        self.lives += 1
        try:
            node = self._make()
            self.node = node
            node.start()
        except BarnabasError as error:
            self._ended(f"cannot start: {error}")
        except Killed:
            self._is_off()

    def _make(self) -> BrokerServer:
        own: dict[str, object] = {
            "broker.id": self.broker_id,
            "listeners": f"{'sasl_plaintext' if self._has_sasl else 'kafka'}://{self.name}:{PORT}",
            "storage": "memory",
            "coordination": "memory",
            "plugins.entry_points.enable": False,
        }
        config = BrokerConfig.from_mapping(own, self.settings)
        outside = outside_of(
            config,
            scheduler=self.life,
            transport=self.transport(),
            clock=self.clock,
            entropy=self.world.entropy.child(f"{self.name} {self.lives}"),
            metrics=MemoryMetrics(),
            open_log_dirs=lambda: [disk.open() for disk in self.disks],
            open_coordination=self.session,
            report=self._report,
            shared=self._shared,
            open_remote_storage=self._open_remote_storage,
        )
        node = BrokerServer(config, outside, plugin_host(config))
        node.failed = self._give_up
        return node

    def _open_remote_storage(self) -> RemoteOutside:
        world, life = self.world, self.life
        entropy = world.entropy.child(f"remote storage of {self.name} {self.lives}")
        if world.remote_storage is None:
            raise ConfigError("the world has no remote storage")

        def offload(work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
            life.call_later(entropy.fraction() * world.remote_ms_max, lambda: life.offload(work, done))

        return RemoteOutside(storage=world.remote_storage, offload_copy=offload, offload_read=offload)

    @property
    def _has_sasl(self) -> bool:
        """True if its settings have SASL mechanisms: then its listener speaks SASL_PLAINTEXT."""
        return bool({"sasl.enabled.mechanisms", "sasl_enabled_mechanisms"} & self.settings.keys())

    def _another_disk(self, number: int) -> FaultyDisk:
        entropy = self.world.entropy.child(f"disk {self.broker_id} {number}")
        return FaultyDisk(entropy, self.world.clock.now_ms, f"sim:{number}")

    def _report(self, text: str) -> None:
        self.world.report(f"{self.name}: {text}")
        self.world.note_bug(text)

    def _end(self, what: str) -> None:
        self.world.report(f"--- {self.name} {what}")
        if self.node is not None:
            self._is_off()

    def _is_off(self) -> None:
        self.node = None
        self.stopping = False
        self.cut_power()
        for disk in self.disks:
            disk.release()

    def _kill(self, what: str) -> None:
        self.wanted = False
        self._end(what)

    def _give_up(self, error: BarnabasError) -> None:
        self.world.given_up.append(f"{self.name}: {error}")
        self._ended(f"gives up: {error}")

    def _ended(self, why: str) -> None:
        """End the process because of an error; a supervisor starts it again."""
        self._end(why)
        self.world.scheduler.call_later(
            RESTART_MS, lambda: self._start() if self.wanted and self.node is None else None
        )
