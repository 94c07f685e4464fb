"""Faults at random times, from the seed of the world."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..adapters.transport_memory import NetworkFaults
from ..core.cluster.lease import RATE_ERROR_MAX
from ..core.message.batch_header import CRC_AT, HEADER_SIZE, parse_header
from ..ports.errors import ApiError
from .broker import SimulatedBroker
from .disk import FileContent
from .interference import POINTS
from .network import COORDINATION, Who, node_name
from .program import Program
from .surroundings import LATENCY_MS

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
LOG_SUFFIX = ".log"
PREPARED_WITHIN_MS = 5000.0
"""The faults of all points are prepared within this time."""


class Disasters:
    """Injects a fault every `every` seconds on average, which lasts up to `lasting` seconds.

        with Disasters(world, every=30):
            world.run(3600)
        world.run(60)  # all is well again

    kinds:   some of `Disasters.KINDS` and `Disasters.MORE_KINDS`; all of the former by default.
    spared:  names of programs, and ids of brokers, to which nothing is done.
    losses:  the largest number of brokers that, at one time, have lost something that was not flushed, or their whole
             disk, and are not in sync again. With replication factor r and min.insync.replicas k, a cluster survives
             k - 1.
    """

    KINDS = (
        *("restart", "kill", "power_cut", "lose_disk", "pause", "full_disk", "bad_disk", "bad_flush"),
        *("partition", "lose_coordination", "coordination_down", "expire", "lose_connections", "bad_network"),
        *("kill_program", "pause_program", "set_clock", "drift"),
        *("kill_all", "stop_all", "old_disk", "stuck", "slow_work", "lose_answers", "stale_reads", "long_partition"),
        *("late_requests", "interfere", "end_fetch_sessions"),
    )
    MORE_KINDS = ("rot", "lose_folder", "fail_folder")
    """Only by name. `lose_folder`, `fail_folder`: one of several data folders is empty after a restart, or does not
    answer for a while. `rot`: a byte of a log changes on one disk. Consumers that come there fail until it is repaired,
    and that is soon only where `log_scrub_interval_ms` is short."""

    def __init__(
        self,
        world: "World",
        *,
        every: float = 5.0,
        lasting: float = 4.0,
        kinds: Iterable[str] = KINDS,
        spared: Iterable[Who] = (),
        losses: int = 1,
    ) -> None:
        """Raises `ValueError` for a kind that there is not."""
        self.kinds = tuple(kinds)
        unknown = [kind for kind in self.kinds if kind not in self.KINDS + self.MORE_KINDS]
        if unknown or not self.kinds:
            known = ", ".join(self.KINDS + self.MORE_KINDS)
            raise ValueError(f"kinds: {', '.join(unknown) or 'none'}; there are {known}")
        self.count = 0
        """The number of faults so far."""
        self._copies: dict[int, dict[str, dict[str, FileContent]]] = {}
        self._world = world
        self._entropy = world.entropy.child("disasters")
        self._every, self._lasting = every, lasting
        self._spared = frozenset(spared)
        self._losses_max = losses
        self._lost: set[int] = set()
        self._failing: set[int] = set()
        """The brokers that could not store something in a folder that failed, until they are in sync again."""
        self._going_on = False
        self._acts: dict[str, Callable[[], bool]] = {
            "restart": self._restart,
            "kill": self._kill,
            "power_cut": self._power_cut,
            "lose_disk": self._lose_disk,
            "pause": self._pause,
            "full_disk": self._full_disk,
            "bad_disk": self._bad_disk,
            "bad_flush": self._bad_flush,
            "partition": self._partition,
            "lose_coordination": self._lose_coordination,
            "coordination_down": self._coordination_down,
            "expire": self._expire,
            "lose_connections": self._lose_connections,
            "bad_network": self._bad_network,
            "kill_program": self._kill_program,
            "pause_program": self._pause_program,
            "set_clock": self._set_clock,
            "drift": self._drift,
            "kill_all": self._kill_all,
            "stop_all": self._stop_all,
            "old_disk": self._old_disk,
            "stuck": self._stuck,
            "slow_work": self._slow_work,
            "lose_answers": self._lose_answers,
            "stale_reads": self._stale_reads,
            "long_partition": self._long_partition,
            "late_requests": self._late_requests,
            "interfere": self._interfere,
            "end_fetch_sessions": self._end_fetch_sessions,
            "rot": self._rot,
            "lose_folder": self._lose_folder,
            "fail_folder": self._fail_folder,
        }

    def begin(self) -> None:
        """Start to inject faults."""
        self._going_on = True
        if "old_disk" in self.kinds:
            self._copies = {each.broker_id: each.disk.copy() for each in self._world.brokers.values()}
        if "interfere" in self.kinds:
            self._prepare_each_point()
        self._later()

    def end(self) -> None:
        """Inject no further faults, and end those that last: brokers that are down are started, the network heals."""
        self._going_on = False
        world = self._world
        world.report("--- the disasters end")
        world.end_faults()
        world.network.heal()
        world.network.faults = NetworkFaults(latency_ms_max=LATENCY_MS)
        for broker in world.brokers.values():
            broker.points.disarm()
            self._heal_disk(broker)
            self._up(broker)()

    def __enter__(self) -> "Disasters":
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # --- chance

    def _later(self) -> None:
        self._world.scheduler.call_later(2000 * self._every * self._entropy.fraction(), self._strike)

    def _strike(self) -> None:
        if self._going_on:
            kind = self._one_of(self.kinds)
            if self._acts[kind]():
                self.count += 1
                self._world.reached[f"fault: {kind}"] += 1
            self._later()

    def _one_of(self, things: Iterable[T]) -> T:
        listed = list(things)
        return listed[self._entropy.below(len(listed))]

    def _some_seconds(self) -> float:
        return self._lasting * self._entropy.fraction()

    def _ends(self, seconds: float, end: Callable[[], None]) -> bool:
        self._world.fault_ends_in(seconds * 1000, end)
        return True

    def _broker(self, *, running: bool = True) -> SimulatedBroker | None:
        brokers = [each for each in self._world.brokers.values() if each.broker_id not in self._spared]
        fit = [each for each in brokers if each.running or not running]
        return self._one_of(fit) if fit else None

    def _program(self) -> Program | None:
        fit = [each for each in self._world.programs.values() if each.running and each.name not in self._spared]
        return self._one_of(fit) if fit else None

    # --- brokers and their disks

    def _up(self, broker: SimulatedBroker) -> Callable[[], None]:
        def start() -> None:
            broker.wanted = True
            if not broker.stopping:
                broker.start()

        return start

    def _restart(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        self._world.report(f"--- {broker.name} is stopped in order")
        broker.restart(after=self._some_seconds())
        return True

    def _kill(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        broker.kill()
        return self._ends(self._some_seconds(), self._up(broker))

    def _power_cut(self) -> bool:
        return self._lose(lambda broker: broker.power_cut())

    def _lose_disk(self) -> bool:
        return len(self._world.brokers) > 1 and self._lose(lambda broker: broker.lose_disk())

    def _old_disk(self) -> bool:
        """Replace a broker's disk by the latest copy of it; another copy is made for the next time."""
        broker = self._broker()
        if broker is None or len(self._world.brokers) == 1:
            return False
        found = self._copies.get(broker.broker_id, {"": {}})
        self._copies[broker.broker_id] = broker.disk.copy()
        return self._lose(lambda each: each.put_back_disk(found), broker)

    def _lose_folder(self) -> bool:
        """Lose one of several data folders; the others stay."""
        broker = self._broker()
        if broker is None or len(self._world.brokers) == 1 or len(broker.disks) == 1:
            return False
        number = self._entropy.below(len(broker.disks))
        return self._lose(lambda each: each.lose_data_folder(number), broker)

    def _fail_folder(self) -> bool:
        """Make one of several data folders fail; the others still work."""
        broker = self._broker()
        if broker is None or len(broker.disks) == 1:
            return False
        if len(self.brokers_with_losses | {broker.broker_id}) > self._losses_max:
            return False  # a replica of a new topic cannot be made there, and counts as lost
        self._failing.add(broker.broker_id)
        disk = self._one_of(broker.disks)
        self._world.report(f"--- {disk.path} of {broker.name} does not answer")
        disk.failed = True
        return self._ends(self._some_seconds(), lambda: self._heal_disk(broker))

    def _lose(self, lose: Callable[[SimulatedBroker], None], broker: SimulatedBroker | None = None) -> bool:
        broker = broker or self._broker()
        if broker is None or not self.may_lose(broker):
            return False
        self._lost.add(broker.broker_id)
        lose(broker)
        return self._ends(self._some_seconds(), self._up(broker))

    @property
    def brokers_with_losses(self) -> frozenset[int]:
        """The brokers that have lost something that was not flushed, or their disk, and are not in sync again."""
        self._lost = {each for each in self._lost if not self._is_whole(each)}
        return frozenset(self._lost)

    def may_lose(self, broker: SimulatedBroker) -> bool:
        """Return True if, with this broker, at most `losses` brokers miss what they had."""
        self._failing = {each for each in self._failing if not self._is_whole(each)}
        return len(self.brokers_with_losses | self._failing | {broker.broker_id}) <= self._losses_max

    def _is_whole(self, broker_id: int) -> bool:
        world = self._world
        if world.brokers[broker_id].rotten:
            return False
        return world.brokers[broker_id].running and (not world.shared or world.look.in_sync_everywhere(broker_id))

    def _rot(self) -> bool:
        """Change a byte of a log on the disk; until it is repaired, the broker lacks the batch."""
        broker = self._broker(running=False)
        if broker is None or len(self._world.brokers) == 1:
            return False
        batches = [
            (disk, folder, name, number, at)
            for disk in broker.disks
            for folder, files in sorted(disk.folders.items())
            for number, name in enumerate(sorted((each for each in files if each.endswith(LOG_SUFFIX)), reverse=True))
            for at in _checked_parts(files[name].data)
        ]
        if not batches or not self.may_lose(broker):
            return False
        disk, folder, name, number, (start, end) = self._one_of(batches)
        self._lost.add(broker.broker_id)
        position = start + self._entropy.below(end - start)
        self._world.report(f"--- {broker.name}: a byte of {folder}/{name} rots, at {position}")
        disk.rot(folder, name, position)
        self._world.reached[f"rot: in {'a closed' if number else 'the active'} segment"] += 1
        return True

    def _pause(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        broker.pause(self._some_seconds())
        return True

    def _kill_all(self) -> bool:
        """Kill all brokers at once; they are started in another order."""
        some = [each for each in self._world.brokers.values() if each.broker_id not in self._spared]
        for broker in some:
            broker.kill()
            self._ends(self._some_seconds(), self._up(broker))
        return bool(some)

    def _stop_all(self) -> bool:
        """Stop all brokers in order, one soon after the other; they are started in another order."""
        some = [each for each in self._world.brokers.values() if each.broker_id not in self._spared and each.running]
        for broker in some:
            self._world.scheduler.call_later(1000 * self._entropy.fraction(), partial(self._stop, broker))
        return bool(some)

    def _stop(self, broker: SimulatedBroker) -> None:
        if self._going_on:
            self._world.report(f"--- {broker.name} is stopped in order, as all are")
            broker.restart(after=self._some_seconds())

    def _stuck(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        broker.get_stuck_for(self._some_seconds())
        return True

    def _slow_work(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        life = broker.life
        life.work_ms_more = 1500 * self._entropy.fraction()
        self._world.report(f"--- work off the reactor of {broker.name} takes up to {life.work_ms_more:.0f} ms more")

        def quick() -> None:
            life.work_ms_more = 0.0

        return self._ends(self._some_seconds(), quick)

    def _full_disk(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        self._world.report(f"--- the disk of {broker.name} is full")
        disk = self._one_of(broker.disks)
        disk.bytes_max = disk.used_bytes + self._entropy.below(2_000)
        return self._ends(self._some_seconds(), lambda: self._heal_disk(broker))

    def _bad_disk(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        self._world.report(f"--- {broker.name} cannot write now and then")
        self._one_of(broker.disks).errors_per_million = 100_000
        return self._ends(self._some_seconds(), lambda: self._heal_disk(broker))

    def _bad_flush(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        self._world.report(f"--- {broker.name} cannot flush now and then")
        self._one_of(broker.disks).flush_errors_per_million = 300_000
        return self._ends(self._some_seconds(), lambda: self._heal_disk(broker))

    def _heal_disk(self, broker: SimulatedBroker) -> None:
        """Mend the disks, and start the broker again if it had given up some of its logs."""
        for disk in broker.disks:
            disk.failed, disk.bytes_max = False, -1
            disk.errors_per_million = disk.flush_errors_per_million = 0
        registered = self._world.look.brokers().get(broker.broker_id) if self._world.shared else None
        if (broker.disk_failed or (registered is not None and registered.offline)) and not broker.stopping:
            broker.kill()
            self._up(broker)()

    # --- the network and the coordination service

    def _partition(self) -> bool:
        world = self._world
        broker = self._broker(running=False)
        others: list[Who] = [each for each in world.brokers if broker is not None and each != broker.broker_id]
        others += [each.name for each in world.programs.values() if each.name not in self._spared]
        if broker is None or not others:
            return False
        cut = others if self._entropy.below(3) == 0 else [self._one_of(others)]
        one_way, one = self._entropy.below(3) == 0, broker.broker_id
        way = "does not reach" if one_way else "is parted from"
        world.report(f"--- {broker.name} {way} {', '.join(map(str, cut))}")
        world.network.partition(one, *cut, one_way=one_way)

        def heal() -> None:
            for other in cut:
                world.network.heal(one, other)

        return self._ends(self._some_seconds(), heal)

    def _lose_coordination(self) -> bool:
        world, broker = self._world, self._broker()
        if broker is None or not world.shared:
            return False
        world.report(f"--- {broker.name} does not reach the coordination service")
        world.network.partition(broker.broker_id, COORDINATION)
        return self._ends(self._some_seconds(), lambda: world.network.heal(broker.broker_id, COORDINATION))

    def _lose_answers(self) -> bool:
        """Single calls of the coordination service are not answered, whether they have done something or not."""
        world, broker = self._world, self._broker()
        if broker is None or not world.shared:
            return False
        faults = broker.session_faults
        faults.answers_lost_chance = 0.5 * self._entropy.fraction()
        world.report(f"--- {faults.answers_lost_chance:.0%} of what the service answers to {broker.name} is lost")

        def all_come() -> None:
            faults.answers_lost_chance = 0.0

        return self._ends(self._some_seconds(), all_come)

    def _stale_reads(self) -> bool:
        world, broker = self._world, self._broker()
        if broker is None or not world.shared:
            return False
        faults = broker.session_faults
        world.report(f"--- the server that {broker.name} is connected to falls behind")
        faults.lag(world.tree.nodes)
        return self._ends(self._some_seconds(), faults.catch_up)

    def _long_partition(self) -> bool:
        """Two brokers do not reach each other for long; both reach the others and the coordination service."""
        world, broker = self._world, self._broker(running=False)
        others = [each for each in world.brokers if broker is not None and each != broker.broker_id]
        if broker is None or not others:
            return False
        one, other = broker.broker_id, self._one_of(others)
        world.report(f"--- {broker.name} is parted from {other} for long")
        world.network.partition(one, other)
        return self._ends(4 * self._some_seconds(), lambda: world.network.heal(one, other))

    def _late_requests(self) -> bool:
        """Requests over one connection arrive late, perhaps long after the sender has given them up, or where that is a
        broker, after others have taken over what it led."""
        world, broker = self._world, self._broker()
        spared = {node_name(each) for each in self._spared}
        made = [] if broker is None else world.network.connections_to(broker.name)
        senders = sorted({sender for sender, _ in made} - spared)
        if broker is None or not senders:
            return False
        among_brokers = [each.name for each in world.brokers.values() if each.name in senders]
        sender = self._one_of(among_brokers if among_brokers and self._entropy.below(2) else senders)
        connection = self._one_of(each for name, each in made if name == sender)
        world.report(f"--- requests of {sender} to {broker.name} arrive late over one connection")
        return self._ends(3 * self._some_seconds(), world.network.delay_requests(connection))

    def _coordination_down(self) -> bool:
        world = self._world
        if world.service_is_down or not world.shared:
            return False
        world.report("--- the coordination service is down")
        world.coordination.go_down(sessions_expire=self._entropy.below(2) == 0)
        return self._ends(self._some_seconds(), world.coordination.come_up)

    def _expire(self) -> bool:
        broker = self._broker()
        if broker is None or not self._world.shared:
            return False
        self._world.report(f"--- the session of {broker.name} expires")
        self._world.coordination.expire(broker.broker_id)
        return True

    def _lose_connections(self) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        self._world.report(f"--- {broker.name} loses its connections")
        return self._world.network.lose_connections(broker.name) > 0

    def _bad_network(self) -> bool:
        network = self._world.network
        self._world.report("--- the network is bad")
        network.faults = NetworkFaults(latency_ms_max=60, drop_chance=0.03, refuse_chance=0.2)

        def good() -> None:
            network.faults = NetworkFaults(latency_ms_max=LATENCY_MS)

        return self._ends(self._some_seconds(), good)

    def _prepare_each_point(self) -> None:
        """Prepare one fault for each point, from some moment on, at every broker: which comes there first is unknown.

        Some points are reached once in a seed. A fault that is prepared for a short time or at one broker misses them.
        """
        entropy = self._entropy.child("points")
        for point, acts in POINTS.items():
            act = acts[entropy.below(len(acts))]
            self._world.scheduler.call_later(
                PREPARED_WITHIN_MS * entropy.fraction(), partial(self._prepare, point, act)
            )

    def _interfere(self) -> bool:
        """Prepare a fault for the moment when a broker reaches a point of its work, which may be never."""
        point = self._one_of(POINTS)
        self._prepare(point, self._one_of(POINTS[point]))
        return True

    def _prepare(self, point: str, act: str) -> None:
        if not self._going_on or not (self._world.shared or act.startswith("kill")):
            return
        brokers = [each for each in self._world.brokers.values() if each.broker_id not in self._spared]
        for broker in brokers:
            broker.points.arm(point, act, partial(self._struck, point, broker, brokers))

    def _struck(self, point: str, struck: SimulatedBroker, brokers: Iterable[SimulatedBroker]) -> None:
        """Start the broker that was killed at the point again, and kill no other one there."""
        for broker in brokers:
            broker.points.disarm(point)
        self._ends(self._some_seconds(), self._up(struck))

    def _end_fetch_sessions(self) -> bool:
        """Let a leader forget the fetch sessions of its followers, as one with too many of them does."""
        broker = self._broker()
        if broker is None or broker.node is None:
            return False
        broker.node.state.replicas.fetch_sessions.remove_all()
        return True

    # --- programs and clocks

    def _kill_program(self) -> bool:
        """Kill a program, if it is one that is started again."""
        program = self._program()
        if program is None or program.restart_after is None:
            return False
        program.kill()
        return True

    def _pause_program(self) -> bool:
        program = self._program()
        if program is None:
            return False
        program.pause(self._some_seconds())
        return True

    def _set_clock(self) -> bool:
        broker = self._broker(running=False)
        if broker is None:
            return False
        broker.clock.wall_ms = self._entropy.below(20_000) - 10_000
        self._world.report(f"--- the clock of {broker.name} is {broker.clock.wall_ms} ms ahead")
        return True

    def _drift(self) -> bool:
        """Set another rate of the clocks of a broker: as wrong as they may be, or less."""
        broker = self._broker(running=False)
        if broker is None:
            return False
        wrong = 1.0 if self._entropy.below(2) else self._entropy.fraction()
        broker.clock.rate = 1.0 + (RATE_ERROR_MAX if self._entropy.below(2) else -RATE_ERROR_MAX) * wrong
        self._world.report(f"--- the clocks of {broker.name} run at {broker.clock.rate:.4f} times the rate")
        return True


def _checked_parts(data: bytearray) -> Iterator[tuple[int, int]]:
    """Yield where the CRC and the part that it is for begin and end, of each record batch."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            size = parse_header(data, position).size
        except ApiError:
            return
        if position + size > len(data):
            return
        yield position + CRC_AT, position + size
        position += size
