"""The clients of a cluster's story: writers and readers as machines, a group and an operator as programs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from attrs import define, field
from simulation.actors import CODECS, Book, Writer
from simulation.client import TOPIC, Client
from simulation.cluster_checker import Broken, ClusterChecker

from barnabas import Admin, Consumer, Producer
from barnabas.app.clients.admin.draining import BrokerDrain
from barnabas.core.client.consumer.fetcher import Fetcher
from barnabas.core.client.consumer.subscription_state import AtTime, FetcherSettings, Reset
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.cluster.topics import NO_LEADER, PartitionState
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.offsets import EARLIEST
from barnabas.ports.broker_api.replicas import ElectionType
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import Program, World

BEHIND_MAX = 30
"""A writer waits while this many messages are not acknowledged."""
GROUP = "crew"
FLEETING = "fleeting"
"""A topic that is deleted and made again, and may lose what was committed."""
ORPHANED = TopicPartition(FLEETING, 0)
REMADE = "remade"
"""A topic of a group that is deleted and made again, and the group."""
ORPHAN_S = 2.5
"""A broker that was killed is without its session after less than that."""
DRAIN_S = 4.0
QUICK_S = 1.0
"""Sooner than a request is sent again because there is no answer."""


class ClusterWriter(Writer):
    """A writer to several brokers, with acks=all, which gives up overdue messages."""

    pause_ms = 250
    run = 3

    def __init__(self, world: World, name: str, partition: int, book: Book, checker: ClusterChecker) -> None:
        super().__init__(world, name, partition, book, request_timeout_ms=2000, delivery_timeout_ms=20_000)
        self.failed = 0
        """Given up: they may stand in the log, or not."""
        self._checker = checker

    def _settled(self, batches: Sequence[ProducerBatch]) -> None:
        topic = self.world.look.topics().get(TOPIC)
        assert topic is not None
        for batch in batches:
            if batch.error is not None:
                self.failed += batch.count
                continue
            self._checker.acknowledged(topic.topic_id, self.place, batch.base_offset + batch.count - 1)
            self._note(batch)


class ReadsAll(Protocol):
    """Reads all partitions of the topic from the start."""

    @property
    def reached(self) -> Sequence[int]:
        """By partition, the offset behind the last message."""
        ...

    def rewind(self) -> None: ...


class ClusterReader(Client):
    """Reads all partitions, again and again from the start: what stood at an offset once stands there for ever."""

    def __init__(self, world: World, name: str, books: Sequence[Book], rack: str = "") -> None:
        super().__init__(world, name)
        self.read = 0
        self.reached: Sequence[int] = [0] * len(books)
        self._books = books
        settings = FetcherSettings(
            max_wait_ms=200,
            max_partition_bytes=8_000,
            reset=Reset.NONE,
            retry_backoff_ms=50,
            retry_backoff_max_ms=500,
            rack=rack,
        )
        self._fetcher = Fetcher(self.view, self.entropy, settings, CODECS)
        self._fetcher.assign({TopicPartition(TOPIC, number): AtTime(EARLIEST) for number in range(len(books))})
        self.drive(self._fetcher)

    def may_meet_rot(self, number: int) -> bool:
        """Return True if the partition may have rotten where it is read; perhaps it was repaired since."""
        return self.world.reached["fault: rot"] > 0

    def on_message(self, number: int, offset: int) -> None:
        """Handle a received message."""

    def rewind(self) -> None:
        self.reached = [0] * len(self._books)
        for tp in self._fetcher.partitions:
            self._fetcher.seek(tp, AtTime(EARLIEST))

    def act(self) -> float:
        while (fetched := self._fetcher.next_completed_fetch()) is not None:
            if isinstance(fetched.error, CorruptRecord) and self.may_meet_rot(fetched.tp.partition):
                self.world.reached["rot: met by a reader"] += 1
                self.rewind()
                break
            if fetched.error is not None or fetched.damage is not None:
                raise Broken(f"consumer: {fetched.tp} gives {fetched.error or fetched.damage}")
            state, number = self._fetcher.partitions[fetched.tp], fetched.tp.partition
            for message in fetched.messages:
                if message.offset != state.read_offset:
                    raise Broken(f"consumer: {fetched.tp} goes from {state.read_offset} to {message.offset}")
                assert message.value is not None
                self._books[number].observe(message.offset, message.value)
                self.on_message(number, message.offset)
                state.read_offset += 1
                self.read += 1
            self.reached = [*self.reached[:number], state.read_offset, *self.reached[number + 1 :]]
        if self.entropy.below(200) == 0:
            self.rewind()
        return 20 + self.entropy.below(80)


@define
class GroupPositions:
    """The commits of a group that were acknowledged, and its reads at that time."""

    committed: dict[int, int] = field(factory=dict)
    """Acknowledged offsets: no later answer is smaller."""
    tried: dict[int, int] = field(factory=dict)
    """The largest offsets of any attempt to commit."""
    assignments: int = 0
    commits: int = 0
    audits: int = 0

    def observe(self, who: str, number: int, offset: int, committed: int) -> None:
        if offset < committed:
            raise Broken(f"group: {who} gets {offset} of partition {number}, {committed} was committed")
        if offset > self.tried.get(number, 0):
            raise Broken(f"group: {who} gets {offset} of partition {number}, which was never read")


class Member:
    """A consumer of the group, which commits what it has read, and continues where the group is."""

    def __init__(self, positions: GroupPositions, books: Sequence[Book], checker: ClusterChecker) -> None:
        self._positions = positions
        self._books = books
        self._checker = checker

    def run(self, program: Program) -> None:
        positions = self._positions
        with Consumer(
            program,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=3000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=10_000,
            request_timeout_ms=2000,
            default_api_timeout_ms=5000,
            retry_backoff_ms=50,
            metadata_max_age_ms=2000,
        ) as consumer:
            consumer.subscribe(TOPIC)
            while True:
                before = dict(positions.committed)
                for message in consumer.poll_many(50, timeout=0.5):
                    number = message.partition
                    assert message.value is not None
                    if message.offset > max(positions.tried.get(number, 0), before.get(number, 0)):
                        raise Broken(f"group: {program.name} continues at {message.offset} of partition {number}")
                    self._books[number].observe(message.offset, message.value)
                    positions.tried[number] = max(positions.tried.get(number, 0), message.offset + 1)
                self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        positions = self._positions
        mine = {tp.partition: consumer.position(tp) for tp in consumer.assignment}
        try:
            consumer.commit(timeout=2.0)
        except BarnabasError:
            return  # nothing was promised
        positions.commits += 1
        for number, offset in mine.items():
            if offset is not None and offset > positions.committed.get(number, 0):
                self._checker.acknowledged_position(GROUP, TopicPartition(TOPIC, number), offset)
                positions.committed[number] = offset


class Auditor:
    """Asks for the positions of the group, over and over."""

    def __init__(self, positions: GroupPositions) -> None:
        self._positions = positions

    def run(self, program: Program) -> None:
        positions = self._positions
        with Admin(program, request_timeout_ms=2000, default_api_timeout_ms=5000) as admin:
            while True:
                before = dict(positions.committed)
                try:
                    observed = admin.group_offsets(GROUP)
                except BarnabasError:
                    program.sleep(0.2)
                    continue
                offsets = {tp.partition: committed.offset for tp, committed in observed.items()}
                for number in before.keys() | offsets.keys():
                    positions.observe("the auditor", number, offsets.get(number, 0), before.get(number, 0))
                positions.audits += 1
                program.sleep(0.1 + 0.3 * program.world.entropy.child(f"audit {positions.audits}").fraction())


def _short_lived(program: Program) -> Producer:
    return Producer(
        program,
        acks="all",
        delivery_timeout_ms=4000,
        request_timeout_ms=2000,
        max_block_ms=500,
        allow_auto_create_topics=False,
        retry_backoff_ms=50,
    )


class Operator:
    """Changes the cluster while it works: reassigns partitions, cancels that, adds some, deletes and makes a topic,
    changes configs, has leaders elected; drains and removes brokers.

    acts: some of `Operator.ACTS` and `MORE_ACTS`; the former by default.
    """

    ACTS = (
        *("move", "replace_move", "cancel_move", "move_offsets", "elect", "elect_uncleanly"),
        *("grow", "delete_or_make", "write", "delete_records", "configure", "set_min_isr", "orphan"),
    )
    MORE_ACTS = ("drain", "remove")
    """These acts are in some seeds only, so that the other seeds play as before."""

    def __init__(self, acts: Sequence[str] = ACTS) -> None:
        self.acts = tuple(acts)
        self.producer: Producer
        self.program: Program

    def run(self, program: Program) -> None:
        self.program = program
        world: Any = program.world
        chance = world.entropy.child(f"operator {program.lives}")
        settings: dict[str, Any] = {"request_timeout_ms": 2000, "default_api_timeout_ms": 4000}
        with Admin(program, **settings) as admin, _short_lived(program) as self.producer:
            if set(self.MORE_ACTS) & set(self.acts):
                for broker in world.brokers:  # an earlier life may have left them drained
                    admin.cordon_broker(broker, cordoned=False)
            while True:
                program.sleep(0.2 + chance.fraction())
                name = self.acts[chance.below(len(self.acts))]
                act: Callable[[Admin, Any, Any], None] = getattr(self, f"_{name}")
                try:
                    act(admin, world, chance.below)
                except BarnabasError:
                    continue  # it was refused, or without an answer: the next one
                world.reached[f"operator: {name}"] += 1

    def _move(self, admin: Admin, world: Any, below: Any) -> None:
        brokers = sorted(world.brokers)
        replicas = [brokers.pop(below(len(brokers))) for _ in range(min(3, len(brokers)))]
        admin.reassign_partitions({TopicPartition(TOPIC, below(2)): replicas})

    def _replace_move(self, admin: Admin, world: Any, below: Any) -> None:
        """Replace a move that has just begun, or one whose new replicas are needed: brokers of old ones have stopped,
        and what was committed since is on the new ones."""
        number = below(2)
        origin = world.look.topics()[TOPIC].partitions[number]
        coming = [each for each in sorted(world.brokers) if each not in origin]
        if not coming or below(2):
            self._move(admin, world, below)
            self._move(admin, world, below)
            return
        place, needed = TopicPartition(TOPIC, number), max(0, 2 - len(coming))
        stopped = [origin[0], *origin[1 + needed :]]
        world.brokers[stopped[0]].restart(after=2 * ORPHAN_S)  # without it the move does not come to its end
        admin.reassign_partitions({place: [*coming, *origin][: len(origin)]})
        if not self._reaches(world, lambda now: set(coming) <= set(now.isr), place):
            return
        for each in stopped[1:]:
            world.brokers[each].restart(after=ORPHAN_S)
        if self._reaches(world, lambda now: not set(stopped) & set(now.isr), place):
            self.program.sleep(0.3)
            admin.reassign_partitions({place: list(origin)})

    def _cancel_move(self, admin: Admin, world: Any, below: Any) -> None:
        moving = [TopicPartition(each.topic, each.partition) for each in admin.list_reassignments()]
        if not moving:
            self._move(admin, world, below)
            moving = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
        admin.reassign_partitions({moving[below(len(moving))]: None})

    def _move_offsets(self, admin: Admin, world: Any, below: Any) -> None:
        brokers = sorted(world.brokers)
        replicas = [brokers.pop(below(len(brokers))) for _ in range(min(3, len(brokers)))]
        admin.reassign_partitions({TopicPartition("__consumer_offsets", below(2)): replicas})

    def _drain(self, admin: Admin, world: Any, below: Any) -> None:
        """Move everything off a broker, then let it get replicas again."""
        broker = sorted(world.brokers)[below(len(world.brokers))]
        self._drained(admin, world, broker)
        admin.cordon_broker(broker, cordoned=False)

    def _remove(self, admin: Admin, world: Any, below: Any) -> None:
        """Drain a broker, stop it and remove it; later it comes back like a new one with its id."""
        broker = sorted(world.brokers)[below(len(world.brokers))]
        if self._drained(admin, world, broker):
            world.brokers[broker].restart(after=2 * ORPHAN_S)
            began = self.program.now
            while self.program.now - began < 2 * ORPHAN_S:
                with suppress(BarnabasError):  # its session has not ended, or it got a replica
                    admin.unregister_broker(broker)
                    world.reached["drain: removed"] += 1
                    return
                self.program.sleep(0.2)
        admin.cordon_broker(broker, cordoned=False)

    def _drained(self, admin: Admin, world: Any, broker: int) -> bool:
        """Drain a broker within a few seconds; False: not all was moved by then."""
        drain = BrokerDrain(admin, broker, replication_factor=2 if len(world.brokers) == 3 else None)
        drain.start(drain.plan())
        began = self.program.now
        while self.program.now - began < DRAIN_S:
            with suppress(BarnabasError):  # without an answer: the next step looks again
                if drain.advance().is_done:
                    world.reached["drain: complete"] += 1
                    return True
            self.program.sleep(0.2)
        return False

    def _grow(self, admin: Admin, _world: Any, below: Any) -> None:
        admin.create_partitions(FLEETING, 2 + below(3))

    def _delete_or_make(self, admin: Admin, _world: Any, below: Any) -> None:
        if FLEETING in admin.list_topics():
            if below(2):
                admin.delete_topics([FLEETING])
        else:
            lossy = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            admin.create_topic(FLEETING, partitions=1, configs=lossy if below(2) else {})

    def _write(self, _admin: Admin, world: Any, below: Any) -> None:
        """To a topic that may have become another one meanwhile."""
        for number in range(1 + below(20)):
            self.producer.send(FLEETING, b"%d %f" % (number, world.now))

    def _delete_records(self, admin: Admin, _world: Any, _below: Any) -> None:
        """All that is committed."""
        admin.delete_records({(FLEETING, 0): -1})

    def _elect(self, admin: Admin, _world: Any, below: Any) -> None:
        admin.elect_leaders([TopicPartition(TOPIC, below(2))])

    def _elect_uncleanly(self, admin: Admin, _world: Any, _below: Any) -> None:
        admin.elect_leaders([TopicPartition(FLEETING, 0)], ElectionType.UNCLEAN)

    def _orphan(self, admin: Admin, world: Any, _below: Any) -> None:
        """Leave the topic without promises to one replica, and then lose that one: another one can lead only uncleanly.

        Chance alone hardly ever comes to that while the topic exists.
        """
        lossy = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        if FLEETING in admin.list_topics():
            admin.alter_topic_configs(FLEETING, lossy)
        else:
            admin.create_topic(FLEETING, partitions=1, configs=lossy)
        self.program.sleep(0.3)
        state, topic = world.look.states(FLEETING).get(0), world.look.topics().get(FLEETING)
        if state is None or topic is None or state.leader not in world.brokers:
            return
        for each in topic.partitions[0]:
            if each != state.leader and world.brokers[each].running:
                world.brokers[each].restart(after=ORPHAN_S)
        if not self._reaches(world, lambda now: now.isr == (state.leader,)):
            return
        self.producer.send(FLEETING, b"of the last replica")
        self.program.sleep(0.7)  # the high watermark is checkpointed meanwhile
        leader = world.brokers[state.leader]
        leader.kill()
        world.fault_ends_in(2000 * ORPHAN_S, leader.start)
        if self._reaches(world, lambda now: now.leader == NO_LEADER):
            self.program.sleep(0.5)
            self._elect_uncleanly(admin, world, None)

    def _reaches(self, world: Any, condition: Callable[[PartitionState], bool], tp: TopicPartition = ORPHANED) -> bool:
        """Wait until it holds for the state of a partition; False if it does not within `ORPHAN_S`."""
        began = self.program.now
        while self.program.now - began < ORPHAN_S:
            state = world.look.states(tp.topic).get(tp.partition)
            if state is not None and condition(state):
                return True
            self.program.sleep(0.1)
        return False

    def _configure(self, admin: Admin, _world: Any, below: Any) -> None:
        """Change a config of the topic without guarantees."""
        key, values = [
            ("unclean.leader.election.enable", ("true", None)),
            ("retention.ms", ("1000", None)),
            ("min.insync.replicas", ("1", "3", None)),
            ("max.message.bytes", ("2000", None)),
            ("cleanup.policy", ("compact", None)),
        ][below(5)]
        admin.alter_topic_configs(FLEETING, {key: values[below(len(values))]})

    def _set_min_isr(self, admin: Admin, _world: Any, below: Any) -> None:
        """Set min.insync.replicas of all brokers, or of one topic."""
        value = (None, "1", "2", "3")[below(4)]
        if below(2):
            admin.alter_configs(ResourceKind.BROKER, "", {"min.insync.replicas": value})
        else:
            admin.alter_topic_configs(TOPIC, {"min.insync.replicas": value})


class Remaker:
    """Makes a topic, writes, commits an offset for a group, deletes the topic and makes it again: the committed offset
    was one of the earlier topic."""

    def __init__(self, configs: Mapping[str, str] | None = None) -> None:
        self.rounds = 0
        self.configs = configs or {}

    def run(self, program: Program) -> None:
        tp = TopicPartition(REMADE, 0)
        settings: dict[str, Any] = {"request_timeout_ms": 2000, "default_api_timeout_ms": 4000}
        with Admin(program, **settings) as admin, _short_lived(program) as producer:
            while True:
                self._make(admin, program)
                sent = [producer.send(REMADE, b"%d" % number) for number in range(3)]
                end = 1 + max(each.result(10).offset for each in sent)
                began = program.now
                admin.alter_group_offsets(REMADE, {tp: end})
                if program.now - began > QUICK_S:
                    admin.delete_topics([REMADE])
                    continue  # the request may have been sent twice, and the other one come later
                admin.delete_topics([REMADE])
                self._make(admin, program)
                found = admin.group_offsets(REMADE).get(tp)
                if found is not None and found.offset >= 0:
                    raise Broken(f"group: {found.offset} of a deleted topic is returned for its successor")
                self.rounds += 1
                program.world.reached["group: asked for offsets of a topic made again"] += 1
                program.sleep(0.2)
                admin.delete_topics([REMADE])

    def _make(self, admin: Admin, program: Program) -> None:
        """Create the topic, unless its predecessor is still being deleted."""
        while True:
            try:
                admin.create_topic(REMADE, partitions=1, configs=dict(self.configs))
                return
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                if REMADE in admin.list_topics():
                    admin.delete_topics([REMADE])
                program.sleep(0.1)
