"""The clients of the simulation, and the book in which they write what they were told."""

from collections.abc import Callable

from attrs import define, field
from simulation.world import BROKER, PARTITIONS, TOPIC, World

from barnabas.adapters.wire_kafka.client import KafkaLink, connect_kafka
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.message.message_set import MessageSet
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api import (
    Caller,
    CreateTopics,
    CreateTopicsResult,
    Fetch,
    FetchPartition,
    FetchResult,
    NewTopic,
    Produce,
    ProducePartition,
    ProduceResult,
    Request,
)
from barnabas.ports.broker_api.envelope import ResultT
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import TransportError

RETRY_MS = 50.0
CODECS = builtin_codecs()
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


@define
class Book:
    """What the broker has promised and shown of one partition, by offset. Anomalies carry Maelstrom's names."""

    acknowledged: dict[int, bytes] = field(factory=dict)
    seen: dict[int, bytes] = field(factory=dict)

    def acknowledge(self, offset: int, value: bytes) -> None:
        self._same(self.acknowledged, offset, value, "acknowledged")

    def observe(self, offset: int, value: bytes) -> None:
        self._same(self.seen, offset, value, "seen")
        promised = self.acknowledged.get(offset)
        assert promised in (None, value), f"inconsistent: {offset} was acknowledged as {promised!r}, read as {value!r}"

    def power_cut(self, recovery_point: int) -> None:
        """What was not on the platters may be gone, and its offsets be given anew."""
        for book in (self.acknowledged, self.seen):
            for offset in [offset for offset in book if offset >= recovery_point]:
                del book[offset]

    @staticmethod
    def _same(book: dict[int, bytes], offset: int, value: bytes, what: str) -> None:
        known = book.setdefault(offset, value)
        assert known == value, f"inconsistent: offset {offset} was {what} as {known!r}, now as {value!r}"


class Actor:
    """Keeps a link to the broker, and does one thing at a time over it, again and again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.active = True
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
                self.turn()
            else:
                self._link = None
                self.later()

        connect_kafka(
            self._transport,
            self.world.scheduler,
            BROKER,
            client_id=self.name,
            request_timeout_ms=3000,
            connect_timeout_ms=1000,
            opened=opened,
        )


class Creator(Actor):
    """Creates the topic and is done."""

    def act(self) -> None:
        new = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=1)
        self.ask(CreateTopics(topics=[new]), self._answered)

    def _answered(self, result: CreateTopicsResult) -> None:
        if result.topics[0].error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.active = False
        else:
            self.later()


class Writer(Actor):
    """Writes numbered messages to one partition, a batch at a time, the same again until it is acknowledged."""

    def __init__(self, world: World, name: str, partition: int, book: Book) -> None:
        self.entropy = world.entropy.child(name)
        self.partition = partition
        self.book = book
        self.number = 0
        self.values: list[bytes] = []
        super().__init__(world, name)

    def act(self) -> None:
        if not self.values:
            count = 1 + self.entropy.below(5)
            padding = bytes(self.entropy.below(120))
            self.values = [b"%s %06d " % (self.name.encode(), self.number + i) + padding for i in range(count)]
        codec = CODECS.by_name(CODEC_NAMES[self.entropy.below(len(CODEC_NAMES))])
        records = encode_batch([Message(v) for v in self.values], now_ms=self.world.clock.now_ms(), codec=codec)
        request = Produce(partitions=[ProducePartition(TOPIC, self.partition, memoryview(records))], acks=-1)
        self.ask(request, self._answered)

    def _answered(self, result: ProduceResult) -> None:
        outcome = result.partitions[0]
        if outcome.error is ErrorCode.NONE:
            for index, value in enumerate(self.values):
                self.book.acknowledge(outcome.base_offset + index, value)
            self.number += len(self.values)
            self.values = []
            self.later(self.entropy.below(20))
            return
        known = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        assert outcome.error in known, outcome
        self.later()


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
