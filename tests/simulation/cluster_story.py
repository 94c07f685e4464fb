"""A cluster, its clients, and what becomes of them: one seed, played."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from simulation.actors import Book
from simulation.calm import difference, piled_up
from simulation.client import TOPIC
from simulation.cluster_actors import (
    FLEETING,
    GROUP,
    Auditor,
    ClusterReader,
    ClusterWriter,
    GroupPositions,
    Member,
    Operator,
    ReadsAll,
    Remaker,
)
from simulation.cluster_checker import OFFSETS, Broken, ClusterChecker
from simulation.knobs import set_knobs, some_knobs
from simulation.probes import Given, Probe
from simulation.swarm import LOSSES, Swarm, reported_states

from barnabas import Admin
from barnabas.adapters.system import SeededEntropy
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.entropy import Entropy
from barnabas.ports.errors import ApiError
from barnabas.ports.remote_storage import RemoteStorage
from barnabas.ports.types import TopicPartition
from barnabas.simulation import Disasters, SimulatedBroker, World

SECONDS = 8.0
ALONE_S = 10.0
"""A leader alone in the ISR with rot is restarted after this time."""
IN_SYNC_S = 3.0
"""More than a leader takes to remove followers that do not get past its rot from the ISR."""
SETTLED_WITHIN = 60.0
REPAIRED_WITHIN = 300.0
"""A repair that found no other replica is tried again after a second, then after two, up to an hour."""
SETTINGS: dict[str, object] = {
    "log_segment_bytes": 4_000,
    "log_index_interval_bytes": 300,
    "log_flush_offset_checkpoint_interval_ms": 700,
    "replica_lag_time_max_ms": 1500,
    "replica_fetch_wait_max_ms": 300,
    "replica_high_watermark_checkpoint_interval_ms": 500,
    "offsets_topic_num_partitions": 2,
    "offsets_topic_segment_bytes": 4_000,
    "group_initial_rebalance_delay_ms": 100,
    "group_min_session_timeout_ms": 100,
    "zookeeper_session_timeout_ms": 2000,
    "log_scrub_interval_ms": 3000,
}


OFTEN_CLEANED: dict[str, Any] = {
    "log_cleaner_backoff_ms": 300,
    "log_cleaner_min_cleanable_ratio": 0.05,
    "log_retention_check_interval_ms": 300,
}
"""Segments are compacted and removed within the seconds of a seed."""


class LeftToUncleanElection(Exception):
    """The only replica of the ISR has rot above the high watermark, and no other replica is eligible."""


def _is_alone(partition: Partition) -> bool:
    return partition.is_leader and list(partition.isr) == [partition.broker_id]


class ClusterStory:
    """`brokers`: 0 for 3 to 5, as the seed has it."""

    name = "cluster"
    """The scenario's name for `make sim`."""
    partitions = 2
    """The number of partitions of the topic."""
    written: tuple[int, ...] = (0, 1, 0)
    """The partition of each writer."""
    racks: tuple[str, ...] = ()
    """The racks of the brokers."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 0,
        seconds: float = SECONDS,
        kinds: Sequence[str] = (),
        acts: Sequence[str] = (),
        every: float = 0.0,
        lasting: float = 0.0,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        swarm = self.swarm_of(SeededEntropy(f"swarm {seed}"))
        self.kinds = tuple(kinds) or swarm.kinds
        self.every = every or (0.5 if kinds else swarm.every)
        self.lasting = lasting or (2.5 if kinds else swarm.lasting)
        self.acts = tuple(acts) or swarm.acts
        if set(LOSSES) & set(self.kinds):
            self.acts = tuple(act for act in self.acts if act != "set_min_isr") or Operator.ACTS[:1]
        self.knobs = self.knobs_of(SeededEntropy(f"knobs {seed}"))
        set_knobs(self.knobs)
        count = brokers or 3 + seed % 3
        replicas = min(3, count)
        self.replicated = replicas > 1
        own: dict[str, Any] = {
            **SETTINGS,
            "default_replication_factor": replicas,
            "offsets_topic_replication_factor": replicas,
            "min_insync_replicas": min(2, replicas),
            **settings,
        }
        if not self.replicated:
            own["log_flush_interval_messages"] = 1
        elif seed % 4 == 0:
            own["log_flush_interval_ms"] = 300
        if seed // 2 % 2:
            own |= OFTEN_CLEANED
        self.world = World(
            seed,
            brokers=count,
            session_seconds=2.0,
            data_folders=1 + (seed % 4 == 1),
            remote_storage=self._remote_storage(seed),
            racks=self.racks,
            **own,
        )
        self.checker = ClusterChecker(self.world, self._checked_topics(), lossy=[FLEETING])
        self.books = [Book() for _ in range(self.partitions)]
        self.positions = GroupPositions()
        self.given = Given()
        self.probes: list[Probe] = []
        self.operator = Operator(self.acts)
        self.remaker = Remaker()
        self.remakes = self.replicated
        self.writers: list[ClusterWriter] = []
        self.readers: list[ReadsAll] = []

    def _remote_storage(self, _seed: int) -> RemoteStorage | None:
        """Return the remote storage that all brokers share; None: no topic is tiered."""
        return None

    @staticmethod
    def swarm_of(entropy: Entropy) -> Swarm:
        """Return the faults of this seed, where the caller names none."""
        return Swarm.of(entropy)

    def _checked_topics(self) -> list[str]:
        return [TOPIC, FLEETING, OFFSETS]

    @staticmethod
    def knobs_of(entropy: Entropy) -> dict[str, Any]:
        """Return the knobs of this seed that have rare values."""
        return some_knobs(entropy)

    def play(self) -> None:
        self.world.reached.update(f"knob: {name}" for name in self.knobs)
        try:
            with self.world:
                self._play()
        except BaseException as error:
            error.add_note(f"again: make sim STORY={self.name} FIRST={self.seed} SEEDS=1")
            raise
        finally:
            set_knobs({})
            self.world.reached += reported_states(self.world.reports)

    def _play(self) -> None:
        world = self.world
        self.checker.watch()
        with Admin(world.client("founder")) as admin:
            admin.create_topic(TOPIC, partitions=self.partitions)
            self._begin(admin)
        self.writers = [
            self._writer(f"writer-{n}", partition, self.books[partition]) for n, partition in enumerate(self.written)
        ]
        self.readers = self._readers()
        self.probes = [Probe(self.checker, each, self.given, self.partitions, GROUP) for each in world.brokers]
        for number in range(2):
            world.program(f"member-{number}", Member(self.positions, self.books, self.checker).run, restart_after=0.5)
        world.program("auditor", Auditor(self.positions).run, restart_after=0.5)
        if self.replicated:
            world.program("operator", self.operator.run, restart_after=0.5)
        if self.remakes:
            world.program("remaker", self.remaker.run, restart_after=0.5)
        kinds = self.kinds if self.replicated else [kind for kind in self.kinds if kind != "power_cut"]
        self.disasters = Disasters(world, every=self.every, lasting=self.lasting, kinds=kinds, spared=["founder"])
        self.checker.brokers_with_losses = lambda: self.disasters.brokers_with_losses
        with self.disasters:
            world.run(self.seconds)
        self._end_story()

    def _begin(self, admin: Admin) -> None:
        """Make what else the story needs; the writers and the disasters come after."""

    def _readers(self) -> list[ReadsAll]:
        return [ClusterReader(self.world, "reader", self.books)]

    def _writer(self, name: str, partition: int, book: Book) -> ClusterWriter:
        return ClusterWriter(self.world, name, partition, book, self.checker)

    def _end_story(self) -> None:
        """Settle, unless only an unclean election helps: the seed ends there."""
        try:
            self._wait_until_stable()
        except LeftToUncleanElection:
            self.world.reached["rot: left to an unclean election"] += 1

    def _wait_until_stable(self) -> None:
        """All is well again: everybody is in sync, writers and the group get on, and every promise is found kept."""
        world = self.world
        for name in ("operator", "remaker"):
            if name in world.programs:
                world.programs[name].cut_power()
        self._mend_logs()
        self._await("all brokers are in sync", self._all_in_sync)
        if "set_min_isr" in self.acts and self.replicated:
            with Admin(world.client("founder"), default_api_timeout_ms=30_000) as admin:
                self._await("min.insync.replicas has its default", lambda: _resets_min_isr(admin))
        before = [writer.acknowledged for writer in self.writers]
        self._await(
            "writers get on", lambda: all(w.acknowledged > n for w, n in zip(self.writers, before, strict=True))
        )
        for writer in self.writers:
            writer.vanish()
        world.run(1)
        rotten = len(self._rotten())
        self._await("what has rotten is repaired", self._nothing_is_rotten, REPAIRED_WITHIN)
        world.reached["rot: found and repaired"] += rotten
        ends = [self._end(number) for number in range(self.partitions)]
        self._await(
            "the group reads everything",
            lambda: all(self.positions.committed.get(n, 0) == end for n, end in enumerate(ends)),
        )
        self._await("replicas are equal", lambda: not difference(world, (TOPIC, FLEETING)))
        self._await("nothing piles up", lambda: not self._piled_up())
        world.reached["stray: renamed"] += sum("found stray log dir" in line for line in world.reports)
        audits = self.positions.audits
        self._await("the audit reports it", lambda: self.positions.audits > audits + 1)
        for reader in self.readers:
            reader.rewind()
        for book in self.books:
            book.seen.clear()
        self._await("everything is read", lambda: all(r.reached == ends for r in self.readers))
        for number, book in enumerate(self.books):
            _check_book(number, book)

    def _mend_logs(self) -> None:
        """Start the brokers again whose disks had failed, as an operator does who has repaired them.

        Leaders alone in the ISR with rot that is not committed are restarted, too: no follower gets past it, and the
        broker says so. Raises `LeftToUncleanElection` where no other replica is eligible.
        """
        self.world.run(1)  # a flush that is under way when the disasters end may still fail
        for broker in self.world.brokers.values():
            # A replica that moved away meanwhile leaves its folder until the next start, and the log says so.
            left = any(f"{broker.name}: removing the log of" in line for line in self.world.reports)
            if left or any(partition.log.failure is not None for partition in broker.partitions.values()):
                broker.restart()
        self._await("all brokers run", lambda: all(each.running for each in self.world.brokers.values()))
        rotten = len(self._rotten())
        if rotten:
            self._run_while_not_in_sync(ALONE_S)
            alone = self._alone()
            if alone:
                for broker in alone:
                    broker.restart()
                self._run_while_not_in_sync(ALONE_S)
            self.world.reached["rot: found and repaired"] += max(0, rotten - len(self._rotten()))
            if self._alone():
                raise LeftToUncleanElection

    def _run_while_not_in_sync(self, seconds: float) -> None:
        """Let this time pass, or less if all brokers are in sync for long enough that no leader will be alone."""
        world = self.world
        end, since = world.now + seconds, world.now
        while world.now < min(end, since + IN_SYNC_S):
            world.run(0.1)
            if not self._all_in_sync():
                since = world.now

    def _alone(self) -> list[SimulatedBroker]:
        return list({each.broker_id: each for each, partition, _ in self._rotten() if _is_alone(partition)}.values())

    def _all_in_sync(self) -> bool:
        brokers = self.world.brokers.values()
        if not all(broker.running for broker in brokers):
            return False
        look = self.world.look
        if any(topic.adding or topic.removing for topic in look.topics().values()):
            return False
        if self.world.shared and any(each.partitions.keys() != self._assigned(each.broker_id) for each in brokers):
            return False
        return not self.world.shared or all(look.in_sync_everywhere(each.broker_id) for each in brokers)

    def _piled_up(self) -> str:
        return piled_up(self.world, old_disks="old_disk" in self.kinds)

    def _assigned(self, broker_id: int) -> set[tuple[str, int]]:
        """Return the partitions assigned to the broker."""
        topics = self.world.look.topics().values()
        return {(t.name, n) for t in topics for n, replicas in t.partitions.items() if broker_id in replicas}

    def _end(self, number: int) -> int:
        return self._end_of(TopicPartition(TOPIC, number))

    def _end_of(self, tp: TopicPartition) -> int:
        """Return the high watermark of the leader."""
        found = [self.world.partition(broker_id, *tp) for broker_id in self.world.brokers]
        return max(each.high_watermark for each in found if each is not None and each.is_leader)

    def _rotten(self) -> list[tuple[SimulatedBroker, Partition, int]]:
        """Return replicas with bit rot, and the segments by base offset. Former replicas are not repaired."""
        found = []
        for broker in self.world.brokers.values():
            for folder, name in broker.rotten:
                topic, _, number = folder.rpartition("-")
                partition = broker.partitions.get(TopicPartition(topic, int(number))) if number.isdigit() else None
                if partition is not None:
                    found.append((broker, partition, int(name.partition(".")[0])))
        return found

    def _nothing_is_rotten(self) -> bool:
        """Closed segments are checked by time. An active one is where a reader fails: take it that one has."""
        rotten = self._rotten()
        for broker, partition, base_offset in rotten:
            if not partition.log.closed:
                broker.suspect(partition.log, base_offset)
        return not rotten

    def _await(self, what: str, condition: Any, limit: float = SETTLED_WITHIN) -> None:
        began = self.world.now
        while not condition():
            if self.world.now - began > limit:
                why = difference(self.world, (TOPIC, FLEETING)) or self._piled_up()
                rotten = {each.name: each.rotten for each in self.world.brokers.values() if each.rotten}
                why += f" rotten: {rotten}" if rotten else ""
                raise Broken(f"liveness: {what}: not within {limit:.0f} s of calm{why and f'; {why}'}")
            self.world.run(0.1)


def _resets_min_isr(admin: Admin) -> bool:
    """Remove what operators have set. False: the outcome is unknown, as a connection of before had been lost."""
    try:
        admin.alter_configs(ResourceKind.BROKER, "", {"min.insync.replicas": None})
        admin.alter_topic_configs(TOPIC, {"min.insync.replicas": None})
    except ApiError as error:
        if not error.retriable:
            raise
        return False
    return True


def _check_book(number: int, book: Book) -> None:
    lost = sorted(book.acknowledged.keys() - book.seen.keys())
    if lost:
        raise Broken(f"lost: offsets {lost[:5]} of partition {number}")
    by_writer: dict[bytes, list[int]] = {}
    for _, value in sorted(book.seen.items()):
        writer, count = value.split()[:2]
        by_writer.setdefault(writer, []).append(int(count))
    for writer, numbers in by_writer.items():
        for one, other in pairwise(numbers):
            if other <= one:
                raise Broken(f"twice: {other} of {writer!r} after {one} in partition {number}")
