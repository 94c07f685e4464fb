"""A group under seeded disasters: one seed, played, by the classic protocol."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulation.actors import Creator
from simulation.client import PARTITIONS, TOPIC
from simulation.cluster_checker import Broken
from simulation.group_actors import REBALANCE_MS, SESSION_MS, GroupBook, GroupMember, Onlooker

from barnabas.ports.types import TopicPartition
from barnabas.simulation import NetworkFaults, SimulatedBroker, World

MEMBERS = 3
AGREED_WITHIN_MS = 4 * (SESSION_MS + REBALANCE_MS)


class GroupStory:
    """One seed, played. Every answer waits for a flush, so that not even a power cut undoes it."""

    SETTINGS: Mapping[str, Any] = {}
    """The settings of the brokers."""
    partitions = PARTITIONS
    """The number of partitions of the topic."""
    seconds = 10
    agreed_within_ms = AGREED_WITHIN_MS

    def __init__(self, seed: int, *, kinds: Sequence[str] = (), brokers: int = 1) -> None:
        """`kinds`: the names of the methods that are fates; none: all."""
        self.kinds = kinds
        settings: dict[str, Any] = {
            "log_flush_interval_messages": 1,
            "log_segment_bytes": 5_000,
            "offsets_topic_segment_bytes": 4_000,
            "offsets_topic_num_partitions": 3,
            "offsets_load_buffer_size": 1_000,
            "group_initial_rebalance_delay_ms": 100,
            "group_min_session_timeout_ms": 100,
            **self.SETTINGS,
        }
        self.world = self.make_world(seed, brokers, settings)
        self.entropy = self.world.entropy.child("fate")
        self.book = GroupBook()
        creator = Creator(self.world, "creator", replicas=brokers)
        self.world.scheduler.run_until(lambda: not creator.active)
        self.assignor = ("range", "cooperative-sticky")[seed % 2]
        self.members: list[GroupMember] = []
        self.named = 0
        self.begin()
        for _ in range(MEMBERS):
            self.hire()
        self.onlookers = [
            Onlooker(self.world, "onlooker" if each == 1 else f"onlooker of {each}", self.book, each)
            for each in self.world.brokers
        ]

    def make_world(self, seed: int, brokers: int, settings: Mapping[str, Any]) -> World:
        return World(seed, brokers=brokers, **settings)

    def begin(self) -> None:
        """Decide what the members need."""

    @property
    def broker(self) -> SimulatedBroker:
        """The broker to which something happens next."""
        return self.world.brokers[1]

    def hire(self) -> None:
        self.named += 1
        self.add_member(self.settings_of_member())

    def add_member(self, own: dict[str, Any]) -> GroupMember:
        """`own`: its settings."""
        member = GroupMember(self.world, f"member-{self.named}", self.book, self.assignor, **own)
        self.members.append(member)
        return member

    def settings_of_member(self) -> dict[str, Any]:
        """Return the settings of the next member."""
        return {}

    def fates(self) -> list[Callable[[], None]]:
        """Return what may happen."""
        return [
            self.cut_power,
            self.restart,
            self.lose_connections,
            self.delay_requests,
            self.bad_network,
            self.bad_disk,
            self.vanish,
            self.leave,
        ]

    def play(self) -> None:
        fates = [fate for fate in self.fates() if not self.kinds or fate.__name__ in self.kinds]
        end = self.world.clock.monotonic_ms() + self.seconds * 1000
        while self.world.clock.monotonic_ms() < end:
            self.world.scheduler.advance(100 + self.entropy.below(2000))
            fates[self.entropy.below(len(fates))]()
        self.wait_until_stable()

    def cut_power(self) -> None:
        broker = self.broker
        broker.power_cut()
        self.world.scheduler.advance(self.entropy.below(1500))
        broker.start()

    def restart(self) -> None:
        broker = self.broker
        broker.stop()
        self.world.run_until(lambda: broker.node is None)
        self.world.scheduler.advance(self.entropy.below(1000))
        broker.start()

    def lose_connections(self) -> None:
        self.world.network.lose_connections(self.broker.name)

    def delay_requests(self) -> None:
        """Let the requests of a member arrive late: commits of the time before its session ended, perhaps."""
        made = self.world.network.connections_to(self.broker.broker_id)
        ends = [end for name, end in made if name.startswith("member-")]
        if ends:
            resume = self.world.network.delay_requests(ends[self.entropy.below(len(ends))])
            self.world.scheduler.call_later(SESSION_MS + self.entropy.below(SESSION_MS), resume)

    def bad_network(self) -> None:
        self.world.network.faults = NetworkFaults(latency_ms_max=60, drop_chance=0.05, refuse_chance=0.3)
        self.world.scheduler.advance(500 + self.entropy.below(1500))
        self.world.network.faults = NetworkFaults(latency_ms_max=3)

    def bad_disk(self) -> None:
        broker = self.broker
        broker.disk.errors_per_million = 100_000
        self.world.scheduler.advance(300 + self.entropy.below(700))
        broker.disk.errors_per_million = 0

    def vanish(self) -> None:
        self.members.pop(self.entropy.below(len(self.members))).vanish()
        self.hire()

    def leave(self) -> None:
        self.members.pop(self.entropy.below(len(self.members))).leave()
        self.hire()

    def expected(self) -> list[TopicPartition]:
        """Return the partitions that the members have to share."""
        return [TopicPartition(TOPIC, number) for number in range(self.partitions)]

    def agreed(self) -> bool:
        """Return True if all members are in one generation, and own all partitions."""
        generations = {member.membership.generation_id for member in self.members}
        owned = sorted(partition for member in self.members for partition in member.owned)
        return all(member.agreed for member in self.members) and len(generations) == 1 and owned == self.expected()

    def await_condition(self, name: str, condition: Callable[[], bool]) -> None:
        try:
            self.world.scheduler.run_until(condition, self.agreed_within_ms)
        except TimeoutError as error:
            raise Broken(f"liveness: {name}: not within {self.agreed_within_ms} ms") from error

    def wait_until_stable(self) -> None:
        """Everything works again."""
        self.await_condition("the group has agreed", self.agreed)
        before = dict(self.book.acknowledged)
        self.await_condition(
            "commits of every partition",
            lambda: all(self.book.acknowledged.get(p, 0) > before.get(p, 0) for p in self.expected()),
        )
        self.check_calm()
        for member in self.members:
            member.vanish()
        self.restart()
        rounds = [onlooker.rounds for onlooker in self.onlookers]
        self.await_condition(
            "the offsets are returned",
            lambda: any(each.rounds > n + 1 for each, n in zip(self.onlookers, rounds, strict=True)),
        )
        assert not self.world.failures, self.world.failures
        assert self.book.seen.keys() >= set(self.expected())

    def check_calm(self) -> None:
        """Check what else holds while nothing happens."""
