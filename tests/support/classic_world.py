"""Classic brokers of plain bytes, and consumers of them, on a scheduler without threads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, field

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.classic.consumer.consumer import ClassicConsumer, ConsumerOutside
from barnabas.core.classic.consumer.registry import StartOffsets
from barnabas.core.classic.consumer.settings import ConnectorSettings
from barnabas.core.classic.consumer.streams import StreamMessage, StreamReader
from barnabas.core.classic.registry import group, layout, registries
from barnabas.core.classic.registry.layout import BrokerPartition, ClassicBroker
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.client.serde import Decoder
from barnabas.core.message.classic.writer import encode_set
from barnabas.core.message.codec import Codec
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
)
from barnabas.ports.broker_api.envelope import BrokerLink, Caller, Reply, Request
from barnabas.ports.broker_api.offsets import LATEST
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.scheduler import Scheduler
from barnabas.ports.transport import Address, TransportError

Place = tuple[str, int]
GROUP = "g"


@define(eq=False)
class FakeLog:
    """Bytes of one partition from `start` on."""

    start: int = 0
    content: bytearray = field(factory=bytearray)

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    def append(self, payloads: Iterable[bytes], codec: Codec | None = None) -> int:
        """Returns the next offset."""
        self.content += encode_set(list(payloads), codec=codec)
        return self.end

    def forget_before(self, offset: int) -> None:
        del self.content[: offset - self.start]
        self.start = offset


@define(eq=False)
class FakeBroker:
    """Answers fetches and offsets of the logs that it has."""

    broker_id: int
    world: "ClassicWorld"
    logs: dict[Place, FakeLog] = field(factory=dict)
    links: list["FakeLink"] = field(factory=list)
    fetches: list[ClassicFetch] = field(factory=list)
    offsets_asked: int = 0
    running: bool = True
    silent: bool = False
    """Keeps requests without answering them."""
    errors: dict[Place, ErrorCode] = field(factory=dict)
    refusal: BarnabasError | None = None
    """The answer to every fetch."""
    session: MemorySession | None = None

    @property
    def info(self) -> ClassicBroker:
        return ClassicBroker(broker_id=self.broker_id, creator_id="here-1", host=f"b{self.broker_id}", port=9092)

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        return self.logs.setdefault((topic, partition), FakeLog())

    def register(self, topics: Mapping[str, int]) -> None:
        """Stand in the registries with these topics and their partition counts."""
        self.session = self.world.tree.session()
        path = layout.broker_path(self.broker_id)
        registries.create_ephemeral(self.session, path, layout.encode_broker(self.info))
        self.add_topics(topics)

    def add_topics(self, topics: Mapping[str, int]) -> None:
        assert self.session is not None
        for topic, count in topics.items():
            path = layout.topic_broker_path(topic, self.broker_id)
            registries.create_ephemeral(self.session, path, layout.encode_number(count))
            for partition in range(count):
                self.log(topic, partition)

    def die(self) -> None:
        """The connections break, and the session ends."""
        self.cut()
        self.running = False
        if self.session is not None:
            self.session.close()
            self.session = None

    def cut(self) -> None:
        """Every connection breaks."""
        for link in list(self.links):
            link.fail("cut")

    def fetch(self, asked: ClassicFetchPartition) -> ClassicFetchResultPartition:
        place = asked.topic, asked.partition
        if place in self.errors:
            return ClassicFetchResultPartition(self.errors[place])
        log = self.logs.get(place)
        if log is None:
            return ClassicFetchResultPartition()
        if not log.start <= asked.offset <= log.end:
            return ClassicFetchResultPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
        at = asked.offset - log.start
        return ClassicFetchResultPartition(records=bytes(log.content[at : at + asked.max_bytes]))

    def answer(self, request: Request[Any]) -> Any:
        if isinstance(request, ClassicFetch):
            self.fetches.append(request)
            if self.refusal is not None:
                return self.refusal
            return ClassicFetchResult(partitions=[self.fetch(asked) for asked in request.partitions])
        assert isinstance(request, ClassicOffsets)
        self.offsets_asked += 1
        log = self.log(request.topic, request.partition)
        return ClassicOffsetsResult(offsets=[log.end if request.time_ms == LATEST else log.start])


@define(eq=False)
class FakeLink:
    """A connection to a fake broker; every answer takes a millisecond."""

    broker: FakeBroker
    scheduler: Scheduler
    waiting: list[Reply[Any]] = field(factory=list)
    failure: TransportError | None = None

    def submit(self, request: Request[Any], caller: Caller, reply: Reply[Any]) -> None:
        if self.failure is not None:
            reply(self.failure)
            return
        self.waiting.append(reply)

        def answer() -> None:
            if reply in self.waiting and not self.broker.silent:
                self.waiting.remove(reply)
                reply(self.broker.answer(request))

        self.scheduler.call_later(1.0, answer)

    def close(self) -> None:
        self.fail("closed by this side")

    def fail(self, why: str) -> None:
        if self.failure is None:
            self.failure = TransportError(why)
            self.broker.links.remove(self)
            waiting, self.waiting = self.waiting, []
            for reply in waiting:
                reply(self.failure)


class ClassicWorld:
    """Brokers, registries and consumers under one manual clock."""

    def __init__(self, seed: int = 1, *, slow_registries: bool = False) -> None:
        """`slow_registries`: registry work of consumers takes time, and other things happen meanwhile."""
        self.slow_registries = slow_registries
        self.clock = ManualClock()
        self.entropy = SeededEntropy(seed)
        self.reports: list[str] = []
        self.scheduler = ManualScheduler(self.clock, self.entropy)
        self.tree = MemoryTree(deliver=self.scheduler.call_soon, report=self.reports.append)
        self.brokers: dict[int, FakeBroker] = {}
        self.onlooker = self.tree.session()
        self.codecs = builtin_codecs()

    def add_broker(self, broker_id: int, topics: Mapping[str, int]) -> FakeBroker:
        broker = self.brokers[broker_id] = FakeBroker(broker_id, self)
        broker.register(topics)
        return broker

    def connect(
        self,
        address: Address,
        opened: Callable[[BrokerLink | TransportError], None],
        scheduler: Scheduler | None = None,
    ) -> None:
        """`scheduler`: a client's own, where a test has real ones."""
        clock = scheduler or self.scheduler

        def open_it() -> None:
            broker = next(b for b in self.brokers.values() if (b.info.host, b.info.port) == address)
            if not broker.running:
                opened(TransportError(f"{address[0]}: refused"))
                return
            link = FakeLink(broker, clock)
            broker.links.append(link)
            opened(link)

        clock.call_later(1.0, open_it)

    def advance(self, ms: float) -> None:
        self.scheduler.advance(ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 60_000.0) -> None:
        self.scheduler.run_until(condition, limit_ms)

    def owners(self, topic: str) -> dict[BrokerPartition, str]:
        """Return the owners in the registries."""
        return group.read_owners(self.onlooker, GROUP, topic, self.reports.append)

    def committed(self, topic: str) -> dict[BrokerPartition, int]:
        return group.read_topic_offsets(self.onlooker, GROUP, topic, self.reports.append)

    def commit(self, topic: str, place: BrokerPartition, offset: int) -> None:
        group.write_offsets(self.onlooker, GROUP, {(topic, place): offset})


class Member:
    """A consumer, and what its streams have handed out."""

    def __init__(
        self,
        world: ClassicWorld,
        name: str,
        subscription: ClassicSubscription | Mapping[str, int],
        *,
        start_offsets: StartOffsets | None = None,
        decoder: Decoder | None = None,
        wait: bool = True,
        **settings: Any,
    ) -> None:
        self.world = world
        self.session = world.tree.session()
        self.session.blocking = world.slow_registries
        self.started: list[BaseException | None] = []
        self.stopped: list[BaseException | None] = []
        self.errors: list[BarnabasError] = []
        self.got: list[StreamMessage] = []
        outside = ConsumerOutside(
            scheduler=world.scheduler,
            clock=world.clock,
            entropy=world.entropy,
            coordination=self.session,
            connect=world.connect,
            codecs=world.codecs,
            report=world.reports.append,
        )
        chosen = {"fetcher_backoff_ms": 10, "rebalance_backoff_ms": 100, **settings}
        self.consumer = ClassicConsumer(
            outside,
            ConnectorSettings(groupid=GROUP, **chosen),
            group_id=GROUP,
            consumer_id=f"{GROUP}_{name}",
            subscription=subscription
            if isinstance(subscription, ClassicSubscription)
            else ClassicSubscription.topics(subscription),
            decoder=decoder,
            start_offsets=start_offsets,
        )
        self.consumer.start(self.started.append)
        if wait:
            world.run_until(lambda: bool(self.started))
            assert self.started == [None]

    @property
    def readers(self) -> list[StreamReader]:
        return list(self.consumer.readers)

    @property
    def places(self) -> set[BrokerPartition]:
        """The partitions that are owned."""
        return {place for _, place in self.consumer.owned()}

    @property
    def values(self) -> list[bytes]:
        return [message.value for message in self.got]

    def poll(self, number: int = 0) -> StreamMessage | None:
        """Return the next message of one stream."""
        message = self.readers[number].poll()
        if message is not None:
            self.got.append(message)
        return message

    def drain(self) -> list[bytes]:
        """Return all messages that are available now, from all streams; errors go to `errors`."""
        values = []
        for number in range(len(self.readers)):
            while True:
                try:
                    message = self.poll(number)
                except BarnabasError as error:
                    self.errors.append(error)
                    continue
                if message is None:
                    break
                values.append(message.value)
        return values

    def run_until_got(self, count: int) -> None:
        """Read until `count` messages were handed out in all."""

        def enough() -> bool:
            self.drain()
            return len(self.got) >= count

        self.world.run_until(enough)

    def commit(self) -> dict[Any, int]:
        committed: list[Any] = []
        self.consumer.commit(committed.append)
        self.world.run_until(lambda: bool(committed))
        found: dict[Any, int] = committed[0].get()
        return found

    def stop(self) -> None:
        self.consumer.stop(self.stopped.append)
        self.world.run_until(lambda: bool(self.stopped))
        assert self.stopped == [None]

    def crash(self) -> None:
        """The process dies: nothing is committed, the session expires."""
        self.consumer._membership.close()
        for fetcher in self.consumer._fetchers.values():
            fetcher.stop()
        if self.consumer._commit_timer is not None:
            self.consumer._commit_timer.cancel()
        self.session.close()
