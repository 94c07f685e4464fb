"""Seeded disasters of the classic generation: brokers, consumers and the coordination service come and go.

What was readable once is never lost, never out of order, and comes to every group; no partition has two owners that
could know of each other; a group agrees soon after the last disaster. A failing seed replays:
`pytest tests/simulation -k "classic and 17"`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from simulation.classic_actors import REBALANCE_BACKOFF_MS, Book, Member, Producer
from simulation.classic_world import TOPIC, ClassicWorld, SimulatedPeer
from support.long_tests import first_is_quick

from barnabas.adapters.transport_memory import NetworkFaults
from barnabas.core.classic.consumer.settings import ConnectorSettings
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.classic.registry.topic_filter import TopicFilter

DISASTERS_MS = 6_000
GROUPS = {
    "one": ClassicSubscription.topics({TOPIC: 1}),
    "two": ClassicSubscription.filter(TopicFilter.whitelist("si.*"), 2),
}
MEMBERS = 3
STEP_MS = 10.0
SETTLED_WITHIN_MS = ConnectorSettings().rebalance_retries_max * REBALANCE_BACKOFF_MS
WAITS = (0.0, 0.1, 0.4)
"""The chance that a call of the coordination service lets other tasks run first: from uninterrupted to mixed."""

UNHEARD_OF = (
    "has no offset",  # what a consumer was handed is durable: no broker loses it
    "-stray",
    "cannot be opened: ClosedError",
    " stops: ",  # a broker that gives up
    "is skipped",
    "skipped /",
)
"""In no report."""


class ClassicStory:
    """One seed, played."""

    def __init__(self, seed: int) -> None:
        self.world = ClassicWorld(
            seed,
            waits=WAITS[seed % len(WAITS)],
            log_segment_bytes=3_000,
            log_flush_interval_messages=10,
            log_flush_interval_ms=300,
            log_flush_scheduler_interval_ms=100,
        )
        self.entropy = self.world.entropy.child("fate")
        self.book = Book(self.world)
        self.world.writes = self.book.writes
        self.producers = [Producer(self.world, broker.broker_id) for broker in self.world.brokers]
        self.members: list[Member] = []
        self.joined = 0
        self.known: dict[str, set[str]] = {group: set() for group in GROUPS}
        """Every consumer id that was there."""
        self.calm_ms = 0.0

    def play(self, disasters_ms: float = DISASTERS_MS) -> None:
        try:
            for group in GROUPS:
                for _ in range(MEMBERS):
                    self.join(group)
            self.wait_for(self.everybody_is_up)
            end = self.world.clock.monotonic_ms() + disasters_ms
            while self.world.clock.monotonic_ms() < end:
                self.world.scheduler.advance(self.entropy.below(600))
                fates = self.fates()
                fates[self.entropy.below(len(fates))]()
            self.wait_until_stable()
            self.read_all()
            self.book.check()
            self.check_reports()
        finally:
            self.world.close()

    # --- fates

    def fates(self) -> list[Callable[[], None]]:
        return [
            self.crash_broker,
            self.restart_broker,
            self.kill_consumer,
            self.part_with_consumer,
            self.one_more_consumer,
            self.pause_consumer,
            self.pause_consumer,
            self.lose_coordination,
            self.lose_coordination,
            self.lose_coordination_everywhere,
            self.expire_session,
            self.cut_network,
            self.lose_connections,
            self.bad_network,
            self.bad_disk,
            self.disk_that_cannot_flush,
            self.set_clock,
        ]

    def some_ms(self, most: int = 4000) -> float:
        return 50.0 + self.entropy.below(most)

    def some_broker(self) -> SimulatedPeer:
        return self.world.brokers[self.entropy.below(len(self.world.brokers))]

    def some_member(self) -> Member | None:
        self.members = [member for member in self.members if member.life.alive]
        return self.members[self.entropy.below(len(self.members))] if self.members else None

    def note(self, text: str) -> None:
        self.world.report(f"--- {text}")

    def crash_broker(self) -> None:
        broker = self.some_broker()
        self.note(f"power cut of {broker.name}")
        broker.crash()
        self.world.fault_ends_in(self.some_ms(), broker.start)

    def restart_broker(self) -> None:
        broker = self.some_broker()
        self.note(f"restart of {broker.name}")
        broker.stop(lambda: self.world.fault_ends_in(self.some_ms(2000), broker.start))

    def kill_consumer(self) -> None:
        member = self.some_member()
        if member is not None:
            self.note(f"{member.name} is killed")
            member.cut_power()
            self.world.fault_ends_in(self.some_ms(3000), lambda: self.fill_up(member.group))

    def part_with_consumer(self) -> None:
        member = self.some_member()
        if member is not None and not member.life.still:
            self.note(f"{member.name} leaves")
            member.leave()
            self.world.fault_ends_in(self.some_ms(3000), lambda: self.fill_up(member.group))

    def one_more_consumer(self) -> None:
        member = self.some_member()
        if member is not None and len(self.of(member.group)) <= MEMBERS:
            self.join(member.group)

    def pause_consumer(self) -> None:
        member = self.some_member()
        if member is not None:
            ms = self.some_ms()
            self.note(f"{member.name} stands still for {ms:.0f} ms")
            member.stand_still(ms, self.some_ms(300))

    def lose_coordination(self) -> None:
        machines = [*self.world.brokers, *(member for member in self.members if member.life.alive)]
        machine, ms = machines[self.entropy.below(len(machines))], self.some_ms()
        self.note(f"{machine.name} loses coordination for {ms:.0f} ms")
        machine.lose_coordination(ms)

    def lose_coordination_everywhere(self) -> None:
        if self.world.service_is_down:
            return
        ms, may_expire = self.some_ms(), self.entropy.below(2) == 0
        self.note(f"the coordination service is down for {ms:.0f} ms")
        self.world.service_is_down = True
        for machine in (*self.world.brokers, *self.members):
            machine.lose_coordination(ms, may_expire=may_expire)

        def back() -> None:
            self.world.service_is_down = False

        self.world.fault_ends_in(ms, back)

    def expire_session(self) -> None:
        machines = [*self.world.brokers, *(member for member in self.members if member.life.alive)]
        machine = machines[self.entropy.below(len(machines))]
        self.note(f"the session of {machine.name} expires")
        machine.expire()

    def cut_network(self) -> None:
        clients = [*self.producers, *(member for member in self.members if member.life.alive)]
        one, other = self.some_broker().name, clients[self.entropy.below(len(clients))].name
        self.note(f"the network between {one} and {other} is cut")
        self.world.network.cut(one, other)
        self.world.fault_ends_in(self.some_ms(), lambda: self.world.network.heal(one, other))

    def lose_connections(self) -> None:
        broker = self.some_broker()
        self.note(f"{broker.name} loses its connections")
        self.world.network.lose_connections(broker.name)

    def bad_network(self) -> None:
        network = self.world.network
        self.note("the network is bad")
        network.faults = NetworkFaults(latency_ms_max=60, drop_chance=0.03, refuse_chance=0.3)

        def good() -> None:
            network.faults = NetworkFaults(latency_ms_max=3)

        self.world.fault_ends_in(self.some_ms(1500), good)

    def bad_disk(self) -> None:
        broker = self.some_broker()
        self.note(f"{broker.name} cannot write now and then")
        broker.disk.errors_per_million = 150_000

        def good() -> None:
            broker.disk.errors_per_million = 0

        self.world.fault_ends_in(self.some_ms(1000), good)

    def disk_that_cannot_flush(self) -> None:
        """Let the broker take its disk out of use, until an operator restarts it."""
        broker = self.some_broker()
        self.note(f"{broker.name} cannot flush")
        broker.disk.flush_errors_per_million = 500_000

        def replaced() -> None:
            broker.disk.flush_errors_per_million = 0
            if broker.disk_failed:
                broker.crash()
                self.world.scheduler.call_later(self.some_ms(500), broker.start)

        self.world.fault_ends_in(self.some_ms(1500), replaced)

    def set_clock(self) -> None:
        """All machines go by another time of day."""
        by_ms = self.entropy.below(20_000) - 10_000
        self.note(f"clocks are set by {by_ms} ms")
        self.world.clock.set_wall(self.world.clock.now_ms() + by_ms)

    # --- groups

    def of(self, group: str) -> list[Member]:
        return [member for member in self.members if member.group == group and member.life.alive]

    def join(self, group: str) -> None:
        """A new consumer, or one that was there before."""
        self.joined += 1
        gone = self.known[group] - {member.consumer_id for member in self.of(group)}
        if gone and self.entropy.below(3) == 0:
            consumer_id = sorted(gone)[self.entropy.below(len(gone))]
        else:
            consumer_id = f"{group}_{self.entropy.below(1000):03d}-{self.joined}"
            self.known[group].add(consumer_id)
        self.note(f"{consumer_id} joins")
        self.members.append(Member(self.world, self.book, group, consumer_id, self.joined, GROUPS[group]))

    def fill_up(self, group: str) -> None:
        while len(self.of(group)) < MEMBERS and not self.world.service_is_down:
            self.join(group)

    # --- the end

    def everybody_is_up(self) -> bool:
        return (
            not self.world.abandoned_sessions
            and all(broker.running for broker in self.world.brokers)
            and all(member.started for group in GROUPS for member in self.of(group))
            and all(len(self.of(group)) >= MEMBERS for group in GROUPS)
        )

    def wait_for(self, condition: Callable[[], bool], limit_ms: float = 60_000) -> float:
        """Let time pass until it holds; returns how long that took."""
        waited_ms = 0.0
        while not condition():
            assert waited_ms < limit_ms, f"{condition.__name__} does not hold after {waited_ms:.0f} ms"
            self.world.scheduler.advance(STEP_MS)
            waited_ms += STEP_MS
        return waited_ms

    def wait_until_stable(self) -> None:
        """End all faults: start what is down, and wait until the groups are stable."""
        self.note("end of faults")
        self.world.end_faults()
        self.world.end_faults()
        for broker in self.world.brokers:
            if broker.disk_failed:
                broker.crash()
            if not broker.stopping:
                broker.start()

        def up() -> bool:
            for group in GROUPS:
                self.fill_up(group)
            self.world.end_faults()
            return self.everybody_is_up()

        self.wait_for(up)
        self.note("all brokers are up")
        self.calm_ms = self.wait_for(self.settled, SETTLED_WITHIN_MS)

    def settled(self) -> bool:
        return all(self.group_is_settled(group) for group in GROUPS)

    def group_is_settled(self, group: str) -> bool:
        """Return True if the owner of every partition reads it, and the shares differ by at most one partition."""
        owners = self.world.owners(group)
        members = self.of(group)
        threads = {
            f"{member.consumer_id}-{number}": 0
            for member in members
            for number in range(len(member.consumer.readers) if member.consumer is not None else 0)
        }
        for thread in owners.values():
            if thread not in threads:
                return False
            threads[thread] += 1
        held = sorted(owned for member in members for owned in member.holds())
        return held == sorted(self.world.places) and max(threads.values()) - min(threads.values()) <= 1

    def read_all(self) -> None:
        """Nothing more is written; everything that is there becomes readable, and is read."""
        for producer in self.producers:
            producer.active = False
        self.world.scheduler.advance(1500)
        ends = {
            owned: log.readable_end
            for broker in self.world.brokers
            for number, log in broker.logs().items()
            for owned in self.world.places
            if owned == (broker.broker_id, number)
        }

        def read() -> bool:
            return all(
                self.book.reached.get((group, owned), 0) >= end for group in GROUPS for owned, end in ends.items()
            )

        self.wait_for(read)
        assert self.settled()

    def check_reports(self) -> None:
        """Check the log lines for reports that must never appear."""
        assert not self.world.failures, self.world.failures
        bad = [text for text in self.world.reports if any(words in text for words in UNHEARD_OF)]
        assert not bad, bad


def test_classic_story_holds_under_seeded_disasters(seed: int) -> None:
    ClassicStory(seed).play()


def trace(seed: int, disasters_ms: float = DISASTERS_MS) -> str:
    story = ClassicStory(seed)
    story.play(disasters_ms)
    return repr((story.world.reports, story.book.deliveries, story.world.clock.monotonic_ms()))


@pytest.mark.parametrize("chosen", first_is_quick([1, 2]))
def test_the_same_seed_plays_the_same_classic_story(chosen: int) -> None:
    """Else a failing seed could not be replayed."""
    assert trace(chosen) == trace(chosen)


@pytest.mark.slow
def test_another_process_plays_the_same_classic_story(checkout: Path) -> None:
    """Python orders sets of texts otherwise in each process."""
    code = "from hashlib import sha256; from simulation.test_classic_story import trace; "
    code += "print(sha256(trace(2, 1500).encode()).hexdigest())"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(checkout / "tests")}
    command = [sys.executable, "-P", "-c", code]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert played.stdout.strip() == sha256(trace(2, 1500).encode()).hexdigest()
