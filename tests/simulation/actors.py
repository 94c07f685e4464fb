"""The clients of the simulation, and the record of the answers that they got."""

from collections.abc import Callable, Sequence

from attrs import define, field
from simulation.client import PARTITIONS, TOPIC, Client

from barnabas.adapters.wire_kafka.client import KafkaLink, connect_kafka
from barnabas.core.client.consumer.fetcher import Fetcher
from barnabas.core.client.consumer.subscription_state import AtTime, FetcherSettings, Reset
from barnabas.core.client.producer.identity import ProducerIdentity
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from barnabas.core.client.producer.sender import Sender, SenderSettings
from barnabas.core.message.message_set import MessageSet
from barnabas.core.security.sasl.client import SaslFactory
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.envelope import Caller, Request, ResultT
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult
from barnabas.ports.broker_api.offsets import EARLIEST
from barnabas.ports.broker_api.topics import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    DeleteTopicsResult,
    NewPartitions,
    NewTopic,
    TopicOutcomes,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import World

RETRY_MS = 50.0
BEHIND_MAX = 30
"""A writer waits while this many messages are not acknowledged."""
CODECS = builtin_codecs()
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


@define
class Book:
    """The acknowledged and the fetched messages of one partition, by offset. Anomalies carry Maelstrom's names."""

    acknowledged: dict[int, bytes] = field(factory=dict)
    seen: dict[int, bytes] = field(factory=dict)

    def acknowledge(self, offset: int, value: bytes) -> None:
        self._same(self.acknowledged, offset, value, "acknowledged")

    def observe(self, offset: int, value: bytes) -> None:
        self._same(self.seen, offset, value, "seen")
        acknowledged_value = self.acknowledged.get(offset)
        assert acknowledged_value in (None, value), (
            f"inconsistent: {offset} was acknowledged as {acknowledged_value!r}, read as {value!r}"
        )

    def power_cut(self, recovery_point: int) -> None:
        """Expect that unflushed messages may be lost, and their offsets reused."""
        for book in (self.acknowledged, self.seen):
            for offset in [offset for offset in book if offset >= recovery_point]:
                del book[offset]

    @staticmethod
    def _same(book: dict[int, bytes], offset: int, value: bytes, what: str) -> None:
        known = book.setdefault(offset, value)
        assert known == value, f"inconsistent: offset {offset} was {what} as {known!r}, now as {value!r}"


class Actor:
    """Keeps a link to a broker, and does one thing at a time over it, again and again."""

    def __init__(self, world: World, name: str, broker_id: int = 1) -> None:
        self.world = world
        self.name = name
        self._address = world.brokers[broker_id].address
        self.active = True
        self.sasl: SaslFactory | None = None
        """Settable: how it logs in; None: as the programs of the world do."""
        self._link: KafkaLink | None = None
        self._caller = Caller(client_id=name)
        self._transport = world.network.transport(name)
        world.scheduler.call_soon(self.turn)

    def turn(self) -> None:
        if not self.active:
            return
        if self._link is None or not self._link.is_open:
            self._connect()
        else:
            self.act()

    def act(self) -> None:
        raise NotImplementedError

    def on_link(self, link: KafkaLink) -> None:
        """A new link is open."""

    def later(self, delay_ms: float = RETRY_MS) -> None:
        self.world.scheduler.call_later(delay_ms, self.turn)

    def ask(self, request: Request[ResultT], answered: Callable[[ResultT], None]) -> None:
        """Submit; on a failure of the link try a turn later."""

        def reply(result: ResultT | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                self.later()
            else:
                answered(result)

        assert self._link is not None
        self._link.submit(request, self._caller, reply)

    def _connect(self) -> None:
        def opened(outcome: KafkaLink | TransportError) -> None:
            if isinstance(outcome, KafkaLink):
                self._link = outcome
                self.on_link(outcome)
                self.turn()
            else:
                self._link = None
                self.later()

        connect_kafka(
            self._transport,
            self.world.scheduler,
            self._address,
            client_id=self.name,
            request_timeout_ms=3000,
            connect_timeout_ms=1000,
            opened=opened,
            sasl=self.sasl or self.world.sasl,
        )


class Creator(Actor):
    """Creates a topic and is done."""

    def __init__(
        self, world: World, name: str, topic: str = TOPIC, *, partitions: int = PARTITIONS, replicas: int = 1
    ) -> None:
        self._new = NewTopic(name=topic, partitions=partitions, replication_factor=replicas)
        super().__init__(world, name)

    def act(self) -> None:
        new = self._new
        self.ask(CreateTopics(topics=[new]), self._answered)

    def _answered(self, result: CreateTopicsResult) -> None:
        if result.topics[0].error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.active = False
        else:
            self.later()


class Deleter(Actor):
    """Deletes a topic and is done."""

    def __init__(self, world: World, name: str, topic: str) -> None:
        self._topic = topic
        super().__init__(world, name)

    def act(self) -> None:
        self.ask(DeleteTopics(names=[self._topic]), self._answered)

    def _answered(self, result: DeleteTopicsResult) -> None:
        if result.topics[0].error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.active = False
        else:
            self.later()


class PartitionCreator(Actor):
    """Adds partitions to the topic until it has `count`, and is done."""

    def __init__(self, world: World, name: str, count: int) -> None:
        self.count = count
        super().__init__(world, name)

    def act(self) -> None:
        self.ask(CreatePartitions(topics=[NewPartitions(topic=TOPIC, count=self.count)]), self._answered)

    def _answered(self, result: TopicOutcomes) -> None:
        if result.topics[0].error in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):  # it has them already
            self.active = False
        else:
            self.later()


class Writer(Client):
    """Produces numbered messages to one partition, as an idempotent producer does."""

    pause_ms = 120
    """It writes again after less than that."""
    run = 4
    """One in this number of messages is sent after a pause, the others at once."""

    def __init__(
        self,
        world: World,
        name: str,
        partition: int,
        book: Book,
        *,
        request_timeout_ms: int = 3000,
        delivery_timeout_ms: int = 120_000,
    ) -> None:
        super().__init__(world, name)
        self.place = TopicPartition(TOPIC, partition)
        self.book = book
        self.acknowledged = 0
        self._taken = 0
        sizes = AccumulatorSettings(
            batch_size=1_500, batch_messages=1 + self.entropy.below(8), delivery_timeout_ms=delivery_timeout_ms
        )
        self._accumulator = RecordAccumulator(sizes, world.clock, lambda _: None)
        identity = ProducerIdentity(
            self.view, self.entropy, retry_backoff_ms=50, retry_backoff_max_ms=500, unsupported=self._unsupported
        )
        sender = Sender(
            self._accumulator,
            self.view,
            self.entropy,
            SenderSettings(
                retry_backoff_ms=50,
                retry_backoff_max_ms=500,
                request_timeout_ms=request_timeout_ms,
                delivery_timeout_ms=delivery_timeout_ms,
            ),
            codec_for=lambda _: CODECS.by_name(CODEC_NAMES[self.entropy.below(len(CODEC_NAMES))]),
            settled=self._settled,
            identity=identity,
        )
        self.drive(sender)

    def act(self) -> float:
        while self._accumulator.messages < BEHIND_MAX and self.entropy.below(self.run):
            value = b"%s %06d " % (self.name.encode(), self._taken) + bytes(self.entropy.below(120))
            self._accumulator.append(self.place, (value, None, (), None), message_bytes(value, None, ()))
            self._taken += 1
        return self.entropy.below(self.pause_ms)

    def _settled(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            assert batch.error is None, batch.error
            self._note(batch)

    def _note(self, batch: ProducerBatch) -> None:
        """Note the offsets of an acknowledged batch."""
        for index, value in enumerate(batch.values):
            assert value is not None
            self.book.acknowledge(batch.base_offset + index, value)
        self.acknowledged += batch.count

    @staticmethod
    def _unsupported() -> None:
        raise AssertionError("the broker knows idempotent producers")


class Reader(Actor):
    """Reads one partition from its start to its end, over and over."""

    def __init__(self, world: World, name: str, partition: int, book: Book) -> None:
        self.partition = partition
        self.book = book
        self.offset = 0
        self.entropy = world.entropy.child(name)
        self.rounds = 0
        super().__init__(world, name)

    def act(self) -> None:
        wanted = FetchPartition(TOPIC, self.partition, self.offset, 1 + self.entropy.below(3000))
        self.ask(Fetch(partitions=[wanted], max_wait_ms=100, min_bytes=1), self._answered)

    def _answered(self, result: FetchResult) -> None:
        outcome = result.partitions[0]
        if outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.offset = 0
        elif outcome.error is ErrorCode.NONE:
            messages = MessageSet(outcome.records, CODECS, from_offset=self.offset)
            before = self.offset
            for message in messages:
                assert message.offset == self.offset, f"skipped: {self.offset} expected, {message.offset} came"
                assert message.value is not None
                self.book.observe(message.offset, message.value)
                self.offset += 1
            assert self.offset <= outcome.high_watermark
            if self.offset == before:
                self.rounds += 1
                if self.entropy.below(4) == 0:
                    self.offset = 0
        self.later(self.entropy.below(30))


class Consumer(Client):
    """Reads all partitions with a fetcher, ahead of its user."""

    def __init__(self, world: World, name: str, books: Sequence[Book]) -> None:
        super().__init__(world, name)
        self.books = books
        self.read = 0
        settings = FetcherSettings(max_wait_ms=100, max_partition_bytes=4_000, reset=Reset.EARLIEST)
        self._fetcher = Fetcher(self.view, self.entropy, settings, CODECS)
        self._fetcher.assign({TopicPartition(TOPIC, number): AtTime(EARLIEST) for number in range(len(books))})
        self.drive(self._fetcher)

    def rewind(self) -> None:
        for tp in self._fetcher.partitions:
            self._fetcher.seek(tp, AtTime(EARLIEST))

    def act(self) -> float:
        fetched = self._fetcher.next_completed_fetch()
        if fetched is not None:
            assert fetched.error is None, fetched.error
            assert fetched.damage is None, fetched.damage
            state = self._fetcher.partitions[fetched.tp]
            for message in fetched.messages:
                assert message.offset == state.read_offset, f"skipped: {state.read_offset} to {message.offset}"
                assert message.value is not None
                self.books[fetched.tp.partition].observe(message.offset, message.value)
                state.read_offset += 1
                self.read += 1
            assert state.read_offset == fetched.next_offset
        elif self.entropy.below(50) == 0:
            self.rewind()
        return self.entropy.below(30)
