"""Seeded disasters with a group: members come, go and vanish; the broker loses its power, its disk, its connections.

An acknowledged commit is never lost; no two members of one generation own the same partition; soon after the last
disaster the group has agreed. A failing seed replays: `pytest tests/simulation -k "group and 17"`.
"""

from collections.abc import Callable

from simulation.actors import Creator
from simulation.client import PARTITIONS
from simulation.group_actors import REBALANCE_MS, SESSION_MS, GroupBook, GroupMember, Onlooker

from barnabas.simulation import NetworkFaults, World

SECONDS = 10
MEMBERS = 3
AGREED_WITHIN_MS = 4 * (SESSION_MS + REBALANCE_MS)


class GroupStory:
    """One seed, played. Every answer waits for a flush, so that not even a power cut undoes it."""

    def __init__(self, seed: int) -> None:
        self.world = World(
            seed,
            brokers=1,
            log_flush_interval_messages=1,
            log_segment_bytes=5_000,
            offsets_topic_segment_bytes=4_000,
            offsets_topic_num_partitions=3,
            offsets_load_buffer_size=1_000,
            group_initial_rebalance_delay_ms=100,
            group_min_session_timeout_ms=100,
        )
        self.broker = self.world.brokers[1]
        self.entropy = self.world.entropy.child("fate")
        self.book = GroupBook()
        creator = Creator(self.world, "creator")
        self.world.scheduler.run_until(lambda: not creator.active)
        self.assignor = ("range", "cooperative-sticky")[seed % 2]
        self.members: list[GroupMember] = []
        self.named = 0
        for _ in range(MEMBERS):
            self.hire()
        self.onlooker = Onlooker(self.world, "onlooker", self.book)

    def hire(self) -> None:
        self.named += 1
        self.members.append(GroupMember(self.world, f"member-{self.named}", self.book, self.assignor))

    def play(self) -> None:
        fates: list[Callable[[], None]] = [
            self.cut_power,
            self.restart,
            self.lose_connections,
            self.bad_network,
            self.bad_disk,
            self.vanish,
            self.leave,
        ]
        end = self.world.clock.monotonic_ms() + SECONDS * 1000
        while self.world.clock.monotonic_ms() < end:
            self.world.scheduler.advance(100 + self.entropy.below(2000))
            fates[self.entropy.below(len(fates))]()
        self.settle()

    def cut_power(self) -> None:
        self.broker.power_cut()
        self.world.scheduler.advance(self.entropy.below(1500))
        self.broker.start()

    def restart(self) -> None:
        self.broker.stop()
        self.world.run_until(lambda: self.broker.node is None)
        self.world.scheduler.advance(self.entropy.below(1000))
        self.broker.start()

    def lose_connections(self) -> None:
        self.world.network.lose_connections(self.broker.name)

    def bad_network(self) -> None:
        self.world.network.faults = NetworkFaults(latency_ms_max=60, drop_chance=0.05, refuse_chance=0.3)
        self.world.scheduler.advance(500 + self.entropy.below(1500))
        self.world.network.faults = NetworkFaults(latency_ms_max=3)

    def bad_disk(self) -> None:
        self.broker.disk.errors_per_million = 100_000
        self.world.scheduler.advance(300 + self.entropy.below(700))
        self.broker.disk.errors_per_million = 0

    def vanish(self) -> None:
        self.members.pop(self.entropy.below(len(self.members))).vanish()
        self.hire()

    def leave(self) -> None:
        self.members.pop(self.entropy.below(len(self.members))).leave()
        self.hire()

    def agreed(self) -> bool:
        """All members are in the newest generation, and share what there is."""
        owned = sorted(number for member in self.members for number in member.owned)
        return all(member.agreed for member in self.members) and owned == list(range(PARTITIONS))

    def settle(self) -> None:
        """Everything works again."""
        self.world.scheduler.run_until(self.agreed, AGREED_WITHIN_MS)
        before = dict(self.book.acknowledged)
        self.world.scheduler.run_until(
            lambda: all(self.book.acknowledged.get(p, 0) > before.get(p, 0) for p in range(PARTITIONS))
        )
        for member in self.members:
            member.vanish()
        self.restart()
        rounds = self.onlooker.rounds
        self.world.scheduler.run_until(lambda: self.onlooker.rounds > rounds + 1)
        assert not self.world.failures, self.world.failures
        assert self.book.seen.keys() == set(range(PARTITIONS))


def test_groups_agree_and_forget_nothing(seed: int) -> None:
    GroupStory(seed).play()


def test_the_same_seed_plays_the_same_group_story() -> None:
    def trace() -> tuple[object, ...]:
        story = GroupStory(3)
        story.play()
        return (story.world.clock.monotonic_ms(), story.book)

    assert trace() == trace()
