"""The clients of a cluster's story: writers and readers as machines, a group and an operator as programs."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from simulation.actors import CODECS, Book, Writer
from simulation.client import TOPIC, Client
from simulation.cluster_checker import Broken, ClusterChecker

from barnabas import Admin, Consumer, Producer
from barnabas.core.client.consumer.fetch_state import AtTime, FetcherSettings, Reset
from barnabas.core.client.consumer.fetcher import Fetcher
from barnabas.core.client.producer.batch import Batch
from barnabas.ports.broker_api import EARLIEST
from barnabas.ports.errors import BarnabasError
from barnabas.ports.words import TopicPartition
from barnabas.simulation import Program, World

BEHIND_MAX = 30
"""A writer waits while so many messages are not acknowledged."""
GROUP = "crew"
FLEETING = "fleeting"
"""A topic that is deleted and made again."""


class ClusterWriter(Writer):
    """The same over several brokers, with acks=all; what takes too long is given up."""

    pause_ms = 250
    run = 3

    def __init__(self, world: World, name: str, partition: int, book: Book, checker: ClusterChecker) -> None:
        super().__init__(world, name, partition, book, request_timeout_ms=2000, delivery_timeout_ms=20_000)
        self.failed = 0
        """Given up: they may stand in the log, or not."""
        self._checker = checker

    def _settled(self, batches: Sequence[Batch]) -> None:
        topic = self.world.look.topics().get(TOPIC)
        assert topic is not None
        for batch in batches:
            if batch.error is not None:
                self.failed += batch.count
                continue
            self._checker.acknowledged(topic.topic_id, self.place, batch.base_offset + batch.count - 1)
            self._note(batch)


class ClusterReader(Client):
    """Reads all partitions, again and again from the start: what stood at an offset once stands there for ever."""

    def __init__(self, world: World, name: str, books: Sequence[Book]) -> None:
        super().__init__(world, name)
        self.read = 0
        self.reached = [0] * len(books)
        self._books = books
        settings = FetcherSettings(
            max_wait_ms=200,
            max_partition_bytes=8_000,
            reset=Reset.NONE,
            retry_backoff_ms=50,
            retry_backoff_max_ms=500,
        )
        self._fetcher = Fetcher(self.view, self.entropy, settings, CODECS)
        self._fetcher.assign({TopicPartition(TOPIC, number): AtTime(EARLIEST) for number in range(len(books))})
        self.drive(self._fetcher)

    def rewind(self) -> None:
        self.reached = [0] * len(self._books)
        for place in self._fetcher.partitions:
            self._fetcher.seek(place, AtTime(EARLIEST))

    def act(self) -> float:
        while (chunk := self._fetcher.next_chunk()) is not None:
            if chunk.error is not None or chunk.damage is not None:
                raise Broken(f"consumer: {chunk.place} gives {chunk.error or chunk.damage}")
            state, number = self._fetcher.partitions[chunk.place], chunk.place.partition
            for message in chunk.messages:
                if message.offset != state.read_offset:
                    raise Broken(f"consumer: {chunk.place} goes from {state.read_offset} to {message.offset}")
                assert message.value is not None
                self._books[number].observe(message.offset, message.value)
                state.read_offset += 1
                self.read += 1
            self.reached[number] = state.read_offset
        if self.entropy.below(200) == 0:
            self.rewind()
        return 20 + self.entropy.below(80)


@define
class GroupPositions:
    """What the group was told that it had committed, and what it had read then."""

    committed: dict[int, int] = field(factory=dict)
    """Acknowledged: nobody is told less again."""
    tried: dict[int, int] = field(factory=dict)
    """The most that anybody tried to commit."""
    assignments: int = 0
    commits: int = 0
    audits: int = 0

    def observe(self, who: str, number: int, offset: int, promised: int) -> None:
        if offset < promised:
            raise Broken(f"group: {who} is told {offset} of partition {number}, {promised} was committed")
        if offset > self.tried.get(number, 0):
            raise Broken(f"group: {who} is told {offset} of partition {number}, which nobody has read")


class Member:
    """A consumer of the group, which commits what it has read, and goes on where the group is."""

    def __init__(self, positions: GroupPositions, books: Sequence[Book]) -> None:
        self._positions = positions
        self._books = books

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
                promised = dict(positions.committed)
                for message in consumer.poll_many(50, timeout=0.5):
                    number = message.partition
                    assert message.value is not None
                    if message.offset > max(positions.tried.get(number, 0), promised.get(number, 0)):
                        raise Broken(f"group: {program.name} goes on at {message.offset} of partition {number}")
                    self._books[number].observe(message.offset, message.value)
                    positions.tried[number] = max(positions.tried.get(number, 0), message.offset + 1)
                self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        positions = self._positions
        mine = {place.partition: consumer.position(place) for place in consumer.assignment}
        try:
            consumer.commit(timeout=2.0)
        except BarnabasError:
            return  # nothing was promised
        positions.commits += 1
        for number, offset in mine.items():
            if offset is not None:
                positions.committed[number] = max(offset, positions.committed.get(number, 0))


class Auditor:
    """Asks for the positions of the group, over and over."""

    def __init__(self, positions: GroupPositions) -> None:
        self._positions = positions

    def run(self, program: Program) -> None:
        positions = self._positions
        with Admin(program, request_timeout_ms=2000, default_api_timeout_ms=5000) as admin:
            while True:
                promised = dict(positions.committed)
                try:
                    told = admin.group_offsets(GROUP)
                except BarnabasError:
                    program.sleep(0.2)
                    continue
                offsets = {place.partition: committed.offset for place, committed in told.items()}
                for number in promised.keys() | offsets.keys():
                    positions.observe("the auditor", number, offsets.get(number, 0), promised.get(number, 0))
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
    """Changes the cluster while it works: moves partitions, adds some, deletes and makes a topic."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}
        self.producer: Producer

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"operator {program.lives}")
        settings: dict[str, Any] = {"request_timeout_ms": 2000, "default_api_timeout_ms": 4000}
        with Admin(program, **settings) as admin, _short_lived(program) as self.producer:
            while True:
                program.sleep(0.2 + chance.fraction())
                acts = [self._move, self._grow, self._delete_or_make, self._elect, self._write, self._delete_records]
                act = acts[chance.below(len(acts))]
                try:
                    act(admin, program.world, chance.below)
                except BarnabasError:
                    continue  # it was refused, or nobody answered: the next one
                self.done[act.__name__] = self.done.get(act.__name__, 0) + 1

    def _move(self, admin: Admin, world: Any, below: Any) -> None:
        brokers = sorted(world.brokers)
        replicas = [brokers.pop(below(len(brokers))) for _ in range(min(3, len(brokers)))]
        admin.reassign_partitions({TopicPartition(TOPIC, below(2)): replicas})

    def _grow(self, admin: Admin, _world: Any, below: Any) -> None:
        admin.create_partitions(FLEETING, 2 + below(3))

    def _delete_or_make(self, admin: Admin, _world: Any, below: Any) -> None:
        if FLEETING in admin.list_topics():
            if below(2):
                admin.delete_topics([FLEETING])
        else:
            admin.create_topic(FLEETING, partitions=1)

    def _write(self, _admin: Admin, world: Any, below: Any) -> None:
        """To a topic that may have become another one meanwhile."""
        for number in range(1 + below(20)):
            self.producer.send(FLEETING, b"%d %f" % (number, world.now))

    def _delete_records(self, admin: Admin, _world: Any, _below: Any) -> None:
        """All that is committed."""
        admin.delete_records({(FLEETING, 0): -1})

    def _elect(self, admin: Admin, _world: Any, below: Any) -> None:
        admin.elect_leaders([TopicPartition(TOPIC, below(2))])
