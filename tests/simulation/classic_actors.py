"""Producers and consumers of the classic story, and the book that says what may be handed out."""

from collections.abc import Mapping

from attrs import define, field
from simulation.classic_world import PARTITIONS, PORT, TOPIC, ClassicWorld, Place

from barnabas.adapters.wire_classic.client import ClassicLink, connect_classic
from barnabas.core.classic.consumer.consumer import ClassicConsumer, ConsumerOutside
from barnabas.core.classic.consumer.settings import ConnectorSettings, ConsumerRebalanceFailed
from barnabas.core.classic.consumer.streams import StreamMessage, StreamReader
from barnabas.core.classic.registry import layout
from barnabas.core.classic.registry.group import Owned
from barnabas.core.classic.registry.layout import ClassicBroker
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.client.network.connection import ConnectCallback
from barnabas.core.message.classic.reader import decode_set
from barnabas.core.message.classic.writer import encode_set
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.classic import ClassicProduce, ClassicProducePartition, ClassicProduceResult
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.coordination import Coordination, CoordinationError
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import Address, TransportError
from barnabas.ports.types import Position
from barnabas.simulation.machine import Machine

CODECS = builtin_codecs()
CODEC_NAMES = ("none", "none", "none", "gzip", "snappy")
REQUEST_TIMEOUT_MS = 1500.0
CONNECT_TIMEOUT_MS = 500.0
RETRY_MS = 100.0
POLL_MS_MAX = 100
REBALANCE_BACKOFF_MS = 300.0


@define(frozen=True)
class Delivery:
    """A message that a consumer handed out. `stint`: of ownership, counted per consumer and partition."""

    at_ms: float
    consumer: str
    stint: int
    value: bytes
    offset: int


@define
class Book:
    """The messages that every group received, and the violations of its guarantees."""

    world: ClassicWorld
    deliveries: dict[tuple[str, Place], list[Delivery]] = field(factory=dict)
    reached: dict[tuple[str, Place], int] = field(factory=dict)
    """The largest offset handed out: no commit may be beyond it."""
    offsets: dict[tuple[Place, bytes], int] = field(factory=dict)
    """The offset of each message; a readable message stays at its offset."""

    def delivered(self, group: str, place: Place, delivery: Delivery) -> None:
        self.deliveries.setdefault((group, place), []).append(delivery)
        known = self.offsets.setdefault((place, delivery.value), delivery.offset)
        assert known == delivery.offset, f"{place}: {delivery.value!r} stood before {known}, now {delivery.offset}"
        self.reached[group, place] = max(delivery.offset, self.reached.get((group, place), 0))

    def writes(self, path: str, data: bytes) -> None:
        """Check a write of a client into the registries."""
        parts = path.split("/")
        if len(parts) == 6 and parts[1] == "consumers" and parts[3] == "offsets":
            offset, reached = int(data), self.reached.get((parts[2], layout.decode_place(parts[5])), 0)
            if offset > reached:  # within a client's call: an exception would be taken for a fault of the service
                self.world.failures.append(f"{path}: {offset} is committed, only {reached} was handed out")

    def check(self) -> None:
        """Everything that the logs hold now was delivered to every group, in order and without a gap."""
        contents = {place: self.content(place) for place in self.world.places}
        for (group, place), deliveries in self.deliveries.items():
            where = f"{group} {place}"
            ordinals = {value: ordinal for ordinal, value in enumerate(contents[place])}
            reached = -1
            last: dict[tuple[str, int], int] = {}
            for delivery in deliveries:
                ordinal = ordinals.get(delivery.value)
                assert ordinal is not None, f"{where}: {delivery} was readable, and is lost"
                assert ordinal <= reached + 1, f"{where}: {delivery} came as number {ordinal} after {reached}"
                stint = (delivery.consumer, delivery.stint)
                before = last.get(stint)
                assert before in (None, ordinal - 1), f"{where}: {delivery}, number {ordinal}, came after {before}"
                last[stint] = ordinal
                reached = max(reached, ordinal)
            missing = contents[place][reached + 1 :]
            assert not missing, f"{where}: {len(missing)} were never delivered: {missing[:3]}"

    def content(self, place: Place) -> list[bytes]:
        """Return the readable messages of a partition in order; check that none is repeated or missing."""
        log = self.world.brokers[place.broker_id].logs().get(place.partition)
        if log is None:
            return []
        values = []
        for segment in log.segments:
            data = segment.region(Position(0), min(segment.size, log.readable_end - segment.base_offset)).read()
            messages = decode_set(data, CODECS, from_offset=segment.base_offset)
            assert not messages or messages[-1].offset == segment.base_offset + len(data)
            values += [bytes(message.value or b"") for message in messages]
        following: dict[bytes, int] = {}
        for value in values:
            connection, number = value.split(b" ")[:2]
            assert int(number) == following.get(connection, 0), f"{place}: {value!r} at the wrong place"
            following[connection] = int(number) + 1
        return values


class Producer(Machine):
    """Writes numbered messages to the partitions of one broker, without learning their outcomes."""

    def __init__(self, world: ClassicWorld, broker_id: int) -> None:
        super().__init__(world, f"producer-{broker_id}")
        self.active = True
        self._entropy = world.entropy.child(self.name)
        self._broker_id = broker_id
        self._link: ClassicLink | None = None
        self._links = 0
        self._numbers = [0] * PARTITIONS
        self.life.call_soon(self._turn)

    def _turn(self) -> None:
        if self._link is None or not self._link.is_open:
            connect_classic(
                self.transport(),
                self.life,
                (f"broker-{self._broker_id}", PORT),
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                opened=self._opened,
            )
        elif self.active:
            self._send(self._link)

    def _opened(self, outcome: ClassicLink | TransportError) -> None:
        if isinstance(outcome, TransportError):
            self.life.call_later(RETRY_MS, self._turn)
            return
        self._link = outcome
        self._links += 1
        self._numbers = [0] * PARTITIONS
        self._turn()

    def _send(self, link: ClassicLink) -> None:
        below = self._entropy.below
        first = below(PARTITIONS)
        chosen = [first] if below(4) else range(PARTITIONS)
        sets = [ClassicProducePartition(TOPIC, number, memoryview(self._set(number))) for number in chosen]
        link.submit(ClassicProduce(partitions=sets), Caller(), self._sent)

    def _set(self, partition: int) -> bytes:
        below = self._entropy.below
        values = []
        for _ in range(1 + below(5)):
            text = f"{self._links}:{partition} {self._numbers[partition]} "
            values.append(text.encode() + b"x" * below(60))
            self._numbers[partition] += 1
        return encode_set(values, codec=CODECS.by_name(CODEC_NAMES[below(len(CODEC_NAMES))]))

    def _sent(self, result: ClassicProduceResult | BarnabasError) -> None:
        self.life.call_later(
            RETRY_MS if isinstance(result, BarnabasError) else 10 + self._entropy.below(200), self._turn
        )


class _Consumer(ClassicConsumer):
    """Counts the stints of ownership."""

    member: "Member"

    def add_partitions(
        self, gained: Mapping[Owned, str], starts: Mapping[Owned, int], brokers: Mapping[int, ClassicBroker]
    ) -> None:
        for (_, place), thread in gained.items():
            self.member.stints[place] = self.member.stints.get(place, 0) + 1
            self.member.check_owner(place, thread)
        super().add_partitions(gained, starts, brokers)


class Member(Machine):
    """A consumer of a group, whose streams are polled every now and then."""

    def __init__(
        self,
        world: ClassicWorld,
        book: Book,
        group: str,
        consumer_id: str,
        number: int,
        subscription: ClassicSubscription,
    ) -> None:
        """`consumer_id` may be that of a member before it, `number` not."""
        super().__init__(world, f"{consumer_id}#{number}")
        self.group = group
        self.consumer_id = consumer_id
        self.stints: dict[Place, int] = {}
        self.started = False
        self.leaving = False
        self.rebalances_failed = 0
        self.consumer: ClassicConsumer | None = None
        self.handed_out = 0
        self._book = book
        self._entropy = world.entropy.child(self.name)
        try:
            session = self.session()
        except CoordinationError:
            self.life.alive = False
            return
        self.consumer = self._make(session, subscription)
        self.consumer.start(self._started)

    @property
    def remote(self) -> Coordination:
        return self.sessions[-1]

    def _make(self, session: Coordination, subscription: ClassicSubscription) -> ClassicConsumer:
        settings = ConnectorSettings(
            groupid=self.group,
            fetch_size=150 + self._entropy.below(1000),
            queuedchunks_max=3,
            fetcher_backoff_ms=250,
            autocommit_interval_ms=400,
            rebalance_backoff_ms=REBALANCE_BACKOFF_MS,
            zk_sessiontimeout_ms=int(self.world.session_ms),
        )
        outside = ConsumerOutside(
            scheduler=self.life,
            clock=self.world.clock,
            entropy=self._entropy.child("consumer"),
            coordination=session,
            connect=self._connect,
            codecs=CODECS,
            report=self._report,
        )
        consumer = _Consumer(
            outside, settings, group_id=self.group, consumer_id=self.consumer_id, subscription=subscription
        )
        consumer.member = self
        return consumer

    def _connect(self, address: Address, opened: ConnectCallback) -> None:
        connect_classic(
            self.transport(),
            self.life,
            address,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            opened=opened,
        )

    def _report(self, text: str) -> None:
        self.world.report(text)

    def _started(self, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, ConsumerRebalanceFailed):  # that is tried again
            assert isinstance(error, CoordinationError) or self.leaving, error
            if not self.leaving:
                self.cut_power()
            return
        self.started = True
        for number, reader in enumerate(self.consumer.readers if self.consumer is not None else ()):
            self._poll_later(number, reader)

    def _poll_later(self, number: int, reader: StreamReader) -> None:
        self.life.call_later(1 + self._entropy.below(POLL_MS_MAX), lambda: self._poll(number, reader))

    def _poll(self, number: int, reader: StreamReader) -> None:
        checked: set[Place] = set()
        for _ in range(self._entropy.below(40)):
            try:
                message = reader.poll()
            except ConsumerRebalanceFailed:
                self.rebalances_failed += 1
                continue
            if message is None:
                break
            if message.place not in checked:  # nothing else happens during a poll
                checked.add(message.place)
                self.check_owner(message.place, f"{self.consumer_id}-{number}")
            self._got(message)
        if not reader.queue.ended:
            self._poll_later(number, reader)

    def _got(self, message: StreamMessage) -> None:
        place = message.place
        self.handed_out += 1
        delivery = Delivery(
            self.world.clock.monotonic_ms(), self.name, self.stints[place], bytes(message.value), message.offset
        )
        self._book.delivered(self.group, place, delivery)

    def check_owner(self, place: Place, thread: str) -> None:
        """Check that the owner node of the partition is ours, unless its loss could not be reported to us."""
        owner = self.world.node(layout.owner_path(self.group, TOPIC, place))
        observed = owner == thread.encode() or self.sessions[-1].is_in_the_dark
        assert observed, f"{thread} reads {place}, which is owned by {owner!r}"

    def leave(self) -> None:
        """Leave the group in order."""
        consumer = self.consumer
        if consumer is not None:
            self.consumer = None
            self.leaving = True
            consumer.stop(lambda _error: self.cut_power())

    def holds(self) -> set[Place]:
        return {place for _, place in self.consumer.owned()} if self.consumer is not None else set()
