"""Workers in transactions, in a cluster and under disasters: one seed, played."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from simulation.client import TOPIC
from simulation.cluster_checker import Broken
from simulation.cluster_story import SETTINGS, ClusterStory
from simulation.transaction_actors import (
    CALLS,
    PARTITIONS,
    TIMEOUT_MS,
    Asker,
    Commitments,
    Identity,
    Remover,
    SeenItems,
    Stray,
    VersionChanger,
    Witness,
    Worker,
    set_version,
)

from barnabas import Admin
from barnabas.simulation import Disasters, World

ASK_TIMEOUT_MS = 1200
"""After this time a broker asks another one again."""
TRANSACTION_SETTINGS: dict[str, Any] = {
    **SETTINGS,
    "transaction_state_log_num_partitions": 2,
    "transaction_state_log_segment_bytes": 4_000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 300,
    "log_cleaner_backoff_ms": 200,
    "replica_socket_timeout_ms": ASK_TIMEOUT_MS,
    "log_cleaner_min_cleanable_ratio": 0.1,
}
SECONDS = 8.0


class TransactionStory(ClusterStory):
    """Two transactional ids with a group each, and with some seeds a twin of the first: they fence each other.
    Two read committed messages from the start, again and again; strays write in transactions without an end. The
    internal topics are compacted meanwhile.

    `brokers`: 0 for one or three, as the seed has it. One keeps its promises over power cuts, since all is flushed.
    `version`: of transactions, 1 or 2; 0: it is 2, or changes, as the seed has it. Only version 2 stands requests that
    arrive in the producer's next transaction (`late_requests`), and markers that do so while their coordinator is the
    same.
    """

    name = "transactions"

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 0,
        seconds: float = SECONDS,
        kinds: Sequence[str] = Disasters.KINDS,
        late_markers: bool = False,
        version: int = 0,
        late_requests: bool = False,
        **settings: Any,
    ) -> None:
        self.late_markers = late_markers
        """True: `LateMarkers` are among the faults whatever the seed."""
        self.version = version
        self.late_requests = late_requests or (version == 2 and seed % 4 > 1)
        count = brokers or (1, 3)[seed % 2]
        replicas = min(3, count)
        super().__init__(
            seed,
            brokers=count,
            seconds=seconds,
            kinds=kinds,
            **{
                **TRANSACTION_SETTINGS,
                "transaction_state_log_replication_factor": replicas,
                "transaction_state_log_min_isr": min(2, replicas),
                **settings,
            },
        )
        self.commitments = {"a": Commitments(), "b": Commitments()}
        self.workers = {name: Worker(name, book) for name, book in self.commitments.items()}
        self.twin = Worker("a", self.commitments["a"])
        self.seen = [SeenItems(), SeenItems()]
        self.witnesses = [Witness(self.commitments, seen) for seen in self.seen]
        self.strays: list[Stray] = []
        self.askers = {name: Asker(name, book) for name, book in self.commitments.items()}

    def _play(self) -> None:
        world = self.world
        with Admin(world.client("founder")) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
            if self.version:
                set_version(admin, self.version)
        if not self.version and self.seed % 3 == 0:
            world.program("changer", VersionChanger().run, restart_after=0.5)
        for name, worker in self.workers.items():
            world.program(f"worker-{name}", worker.run, restart_after=0.3)
            world.program(f"asker-{name}", self.askers[name].run, restart_after=0.3)
        if self.seed % 4 > 1:
            world.program("twin", self.twin.run, restart_after=1.5)
        late = world.shared and (self.late_markers or self.seed % 4 == 1)
        late_requests = LateRequests(world, list(self.workers)) if self.late_requests else None
        if world.shared and not late:
            world.program("remover", Remover().run, restart_after=0.5)
        identities: list[Identity] = []
        self.strays = [Stray(world, each, identities) for each in world.brokers]
        for number, witness in enumerate(self.witnesses):
            world.program(f"witness-{number}", witness.run, restart_after=0.3)
        late_markers = LateMarkers(world, always_deposes=self.version != 2) if late else None
        with Disasters(world, every=self.every, lasting=self.lasting, kinds=self.kinds, spared=["founder"]):
            world.run(self.seconds)
            for each in (late_markers, late_requests):
                if each is not None:
                    each.going_on = False
        self._end_story()

    def _wait_until_stable(self) -> None:
        """All is well again: transactions continue, what was left open ends in time, and everything is there once."""
        world = self.world
        for name in ("remover", "changer"):
            if name in world.programs:
                world.programs[name].cut_power()
        self._mend_logs()
        self._await("all brokers are in sync", self._all_in_sync)
        self.twin.retired = True
        before = {name: book.commits for name, book in self.commitments.items()}
        self._await(
            "workers get on", lambda: all(book.commits > before[name] for name, book in self.commitments.items())
        )
        for name, worker in self.workers.items():
            worker.retired = True
            world.programs[f"worker-{name}"].cut_power()
        world.run(TIMEOUT_MS / 1000)
        self._await("no transaction is left open", self._all_stable)
        asked = {name: asker.answers for name, asker in self.askers.items()}
        self._await(
            "offsets are returned", lambda: all(asker.answers > asked[name] + 1 for name, asker in self.askers.items())
        )
        for number, witness in enumerate(self.witnesses):
            witness.reached = [0] * PARTITIONS
            self.seen[number].by_partition[:] = [{} for _ in range(PARTITIONS)]
            world.programs[f"witness-{number}"].kill()
        ends = [self._end(number) for number in range(PARTITIONS)]
        self._await(
            "everything is read",
            lambda: all(at >= end for each in self.witnesses for at, end in zip(each.reached, ends, strict=True)),
        )
        for seen in self.seen:
            for name, book in self.commitments.items():
                check_items(name, book, seen)

    def _all_stable(self) -> bool:
        for number in range(PARTITIONS):
            found = [self.world.partition(broker_id, TOPIC, number) for broker_id in self.world.brokers]
            leaders = [each for each in found if each is not None and each.is_leader]
            if not leaders or any(each.last_stable_offset < each.high_watermark for each in leaders):
                return False
        return True


class LateMarkers:
    """A coordinator loses its session while its markers are on their way to a leader: another coordinator ends the
    transactions, their producers begin others, and then the markers arrive. Without `always_deposes` it may also be the
    same coordinator that asks again."""

    def __init__(self, world: World, *, always_deposes: bool) -> None:
        self._world = world
        self._always_deposes = always_deposes
        self._entropy = world.entropy.child("late markers")
        self.going_on = True
        self._later()

    def _later(self) -> None:
        self._world.scheduler.call_later(500 + 1500 * self._entropy.fraction(), self._strike)

    def _strike(self) -> None:
        if not self.going_on:
            return
        world, below = self._world, self._entropy.below
        coordinators = self._leaders("__transaction_state")
        found = [
            (coordinator, leader, connection)
            for coordinator in coordinators
            for leader in self._leaders(TOPIC)
            for sender, connection in world.network.connections_to(leader)
            if sender == world.brokers[coordinator].name
        ]
        if found:
            coordinator, leader, connection = found[below(len(found))]
            world.reached["fault: late markers"] += 1
            late_ms = 500.0 + below(1000)
            if self._always_deposes or below(2):
                world.report(
                    f"--- requests of broker-{coordinator} to broker-{leader} arrive late; its session expires"
                )
                world.scheduler.call_later(100 + below(300), lambda: self._depose(coordinator))
            else:
                world.report(f"--- requests of broker-{coordinator} to broker-{leader} arrive late")
                late_ms += 2 * ASK_TIMEOUT_MS
            arrives = end_in_a_transaction if self._always_deposes else end_in_the_next_transaction
            arrives(world, late_ms, leader, world.network.delay_requests(connection))
        self._later()

    def _depose(self, broker_id: int) -> None:
        if self.going_on and self._world.brokers[broker_id].running:
            self._world.coordination.expire(broker_id)

    def _leaders(self, topic: str) -> list[int]:
        brokers = self._world.brokers
        leaders = {state.leader for state in self._world.look.states(topic).values()}
        return sorted(each for each in leaders if each in brokers and brokers[each].running)


class LateRequests:
    """Requests of a worker to a broker arrive late: it asks again over another connection, begins its next transaction,
    and then they arrive."""

    def __init__(self, world: World, workers: Sequence[str]) -> None:
        self._world = world
        self._senders = [f"worker-{name}" for name in workers]
        self._entropy = world.entropy.child("late requests")
        self.going_on = True
        self._later()

    def _later(self) -> None:
        self._world.scheduler.call_later(300 + 1000 * self._entropy.fraction(), self._strike)

    def _strike(self) -> None:
        if not self.going_on:
            return
        world, below = self._world, self._entropy.below
        found = [
            (broker_id, sender, connection)
            for broker_id, broker in world.brokers.items()
            if broker.running
            for sender, connection in world.network.connections_to(broker_id)
            if sender in self._senders
        ]
        if found:
            broker_id, sender, connection = found[below(len(found))]
            world.report(f"--- requests of {sender} to broker-{broker_id} arrive late")
            world.reached["fault: late requests"] += 1
            late_ms = CALLS["request_timeout_ms"] + below(600)
            end_in_a_transaction(world, late_ms, broker_id, world.network.delay_requests(connection))
        self._later()


def end_in_a_transaction(world: World, ms: float, broker_id: int, end: Callable[[], None]) -> None:
    """Deliver delayed messages after `ms`, or a little later, while a transaction is open at this broker."""
    _end_when(lambda: bool(_open_epochs(world, broker_id)), world, ms, ms + 1000, end)


def end_in_the_next_transaction(world: World, ms: float, broker_id: int, end: Callable[[], None]) -> None:
    """Let what is late arrive when a producer whose transaction is open at this broker has opened the next one there,
    of version 2; after `ms` at the latest."""
    before = _open_epochs(world, broker_id)

    def is_next() -> bool:
        return any(before.get(number, epoch) + 1 == epoch for number, epoch in _open_epochs(world, broker_id).items())

    _end_when(is_next, world, 0, ms, end)


def _end_when(
    condition: Callable[[], bool], world: World, least_ms: float, most_ms: float, end: Callable[[], None]
) -> None:
    ended: list[bool] = []

    def arrive() -> None:
        if not ended:
            ended.append(True)
            end()

    def look() -> None:
        if condition():
            arrive()
        elif not ended:
            world.scheduler.call_later(3, look)

    world.scheduler.call_later(least_ms, look)
    world.fault_ends_in(most_ms, arrive)


def _open_epochs(world: World, broker_id: int) -> dict[int, int]:
    """Return the epochs of the producers that have transactions open at this broker."""
    broker = world.brokers[broker_id]
    known = [entry for key in broker.partitions for entry in broker.partitions[key].log.producers.producers.items()]
    return {number: entry.epoch for number, entry in known if entry.txn_first_offset >= 0}


def check_items(name: str, book: Commitments, seen: SeenItems) -> None:
    """Every item below the position is there once, none behind it, and every transaction is whole."""
    values = [
        value for found in seen.by_partition for _, value in sorted(found.items()) if value.startswith(f"{name} ")
    ]
    items = sorted(int(value.split()[2]) for value in values)
    if items != list(range(book.acknowledged)):
        missing = sorted(set(range(book.acknowledged)) - set(items))
        extra = sorted(item for item in set(items) if items.count(item) > 1 or item >= book.acknowledged)
        raise Broken(f"exactly once: {name} is at {book.acknowledged}; {missing[:5]} are missing, {extra[:5]} too many")
    parts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for value in values:
        _, transaction, item, size = value.split()
        parts[transaction, int(size)].append(int(item))
    for (transaction, count), found in parts.items():
        if sorted(found) != list(range(min(found), min(found) + count)):
            raise Broken(f"half a transaction: {transaction} of {name} has {sorted(found)} of {count} items")
    for number, there in enumerate(seen.by_partition):
        order = [int(value.split()[2]) for _, value in sorted(there.items()) if value.startswith(f"{name} ")]
        if order != sorted(order):
            raise Broken(f"order: {name} has {order[:50]} in partition {number}")
