"""Consumers that read from the replica in their rack (KIP-392), which may be damaged or behind: one seed, played."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define
from simulation.actors import CODECS, RETRY_MS, Book
from simulation.client import TOPIC
from simulation.cluster_actors import ClusterReader, ReadsAll
from simulation.cluster_checker import Broken, ClusterChecker
from simulation.cluster_story import ClusterStory

from barnabas.adapters.wire_kafka.client import KafkaLink, connect_kafka
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.envelope import Caller, Request, ResultT
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.transport import TransportError
from barnabas.simulation import World

RACKS = ("east", "north", "west")
KINDS = (
    *("rot", "rot", "rot", "kill", "restart", "pause", "partition", "long_partition", "lose_connections"),
    *("bad_network", "slow_work", "end_fetch_sessions", "interfere"),
)
NEAR_MS = 1_500.0
"""A consumer reads from a replica for this time before it asks the leader again."""
REMEMBERED_MS = 30_000.0
"""A leader remembers for this time from which replica a consumer has returned."""
REWINDS_MAX = 20
"""A reader that went back for ever would never read a long log to its end."""
ROT_SEEN_MS = 5_000.0
"""An answer with a leader's bit rot may arrive this long after the repair, or after another election."""


class RottenLeaders:
    """When a leader of each partition had a copy with rot: its readers may fail then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last_ms: dict[int, float] = {}
        self._led_ms: dict[tuple[int, int], float] = {}
        """By broker and partition: when it led last, as far as it knew."""
        self._look()

    def may_fail(self, number: int) -> bool:
        """Return True if a reader of the leader may meet rot in this partition."""
        self._note()
        return self._is_recent(self._last_ms.get(number))

    def has_led(self, broker_id: int, number: int) -> bool:
        """Return True if the broker may answer as the leader of this partition."""
        self._note()
        return self._is_recent(self._led_ms.get((broker_id, number)))

    def _is_recent(self, ms: float | None) -> bool:
        return ms is not None and self._world.clock.monotonic_ms() - ms < ROT_SEEN_MS

    def _note(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        for broker in self._world.brokers.values():
            for tp, partition in broker.partitions.items():
                if tp[0] == TOPIC and partition.is_leader:
                    self._led_ms[broker.broker_id, tp[1]] = now_ms
                    if any(folder == f"{TOPIC}-{tp[1]}" for folder, _ in broker.rotten):
                        self._last_ms[tp[1]] = now_ms

    def _look(self) -> None:
        self._note()
        self._world.scheduler.call_later(50, self._look)


def check_committed(checker: ClusterChecker, who: str, number: int, offset: int) -> None:
    """Raise `Broken` if a reader is given what is not committed."""
    topic = checker.world.look.topics()[TOPIC]
    agreed = checker.agreed.get((topic.topic_id, number))
    if agreed is None or offset >= agreed.end:
        end = 0 if agreed is None else agreed.end
        raise Broken(f"near: {who} is given offset {offset} of {TOPIC}-{number}, of which {end} is committed")


class NearReader(ClusterReader):
    """Our consumer with a rack. Rot at a replica that follows is no failure of its reads: it goes to the leader."""

    def __init__(
        self, checker: ClusterChecker, name: str, books: Sequence[Book], rack: str, rotten: RottenLeaders
    ) -> None:
        super().__init__(checker.world, name, books, rack)
        self._checker = checker
        self._rotten = rotten

    def may_meet_rot(self, number: int) -> bool:
        return self._rotten.may_fail(number)

    def on_message(self, number: int, offset: int) -> None:
        check_committed(self._checker, self.name, number, offset)


@define(frozen=True)
class Sending:
    """A leader, in one life of its broker, has sent the reader at this offset to a replica."""

    leader: int
    life: int
    offset: int
    replica: int


class KafkaReader:
    """Reads a partition as Kafka's consumer does: it goes where the leader sends it. At an error there, or when it
    cannot connect, it learns the leader and asks that one again, with its rack. A record with a wrong checksum is an
    error for its user, who polls again."""

    def __init__(
        self, checker: ClusterChecker, name: str, number: int, book: Book, rack: str, rotten: RottenLeaders
    ) -> None:
        self.offset = 0
        self._checker = checker
        self._world = checker.world
        self._name = name
        self._number = number
        self._book = book
        self._rack = rack
        self._rotten = rotten
        self._entropy = self._world.entropy.child(name)
        self._transport = self._world.network.transport(name)
        self._links: dict[int, KafkaLink] = {}
        self._leader = self._near = self._leader_epoch = -1
        self._near_until_ms = 0.0
        self._sent: Sending | None = None
        self._sent_ms = 0.0
        self._rewinds_left = REWINDS_MAX
        self._is_refused = False
        """The replica where it was sent has given it an error, and no records at this offset."""
        self._world.scheduler.call_soon(self._turn)

    def rewind(self) -> None:
        self.offset = 0

    def _turn(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        if self._near >= 0 and now_ms >= self._near_until_ms:
            self._near = -1
        if self._leader < 0:
            brokers = list(self._world.brokers)
            asked = Metadata(topics=[TOPIC], allow_auto_topic_creation=False)
            self._ask(brokers[self._entropy.below(len(brokers))], asked, self._learn)
            return
        target, offset = self._near if self._near >= 0 else self._leader, self.offset
        wanted = FetchPartition(
            TOPIC, self._number, offset, 1 + self._entropy.below(4_000), current_leader_epoch=self._leader_epoch
        )
        fetch = Fetch(partitions=[wanted], max_wait_ms=100, min_bytes=1, rack_id=self._rack)

        def fetched(result: FetchResult) -> None:
            if offset == self.offset:  # it was not rewound meanwhile
                self._read(target, result.partitions[0])
            else:
                self._later()

        self._ask(target, fetch, fetched)

    def _learn(self, result: MetadataResult) -> None:
        for topic in result.topics:
            for each in topic.partitions:
                if each.partition == self._number:
                    self._leader, self._leader_epoch = each.leader, each.leader_epoch
        self._later()

    def _read(self, target: int, found: FetchResultPartition) -> None:
        if found.error is ErrorCode.CORRUPT_MESSAGE:
            if not self._rotten.has_led(target, self._number):
                raise Broken(f"near: broker {target} follows, and answers CORRUPT_MESSAGE to {self._name}")
            self._world.reached["rot: met by a reader"] += 1
        elif found.error is not ErrorCode.NONE:
            self._refused(target, found.error)
        elif found.preferred_read_replica >= 0:
            self._send(target, found.preferred_read_replica)
        else:
            self._take(target, found)
        self._later()

    def _refused(self, target: int, error: ErrorCode) -> None:
        reached = self._world.reached
        if target == self._near:
            self._is_refused = True
            reached["near: refused by a replica"] += 1
            partition = self._world.partition(target, TOPIC, self._number)
            if partition is not None and any(each == f"{TOPIC}-{self._number}" for each, _ in self._rotten_of(target)):
                reached["near: refused by a damaged replica"] += 1
            if error is ErrorCode.OFFSET_NOT_AVAILABLE:
                reached["near: refused by a replica that is behind"] += 1
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            text = f"near: broker {target} leads in epoch {self._leader_epoch}, and answers OFFSET_OUT_OF_RANGE"
            raise Broken(f"{text} at {self.offset}, which {self._name} had reached")
        self._near = self._leader = -1

    def _rotten_of(self, broker_id: int) -> Sequence[tuple[str, str]]:
        return list(self._world.brokers[broker_id].rotten)

    def _send(self, leader: int, replica: int) -> None:
        now_ms = self._world.clock.monotonic_ms()
        sent = Sending(leader, self._world.brokers[leader].lives, self.offset, replica)
        if sent == self._sent and self._is_refused and now_ms < self._sent_ms + REMEMBERED_MS:
            text = f"near: broker {leader} sends {self._name} back to broker {replica}"
            raise Broken(f"{text}, which had nothing for it at {self.offset}")
        self._sent, self._sent_ms, self._is_refused = sent, now_ms, False
        self._near, self._near_until_ms = replica, now_ms + NEAR_MS
        self._world.reached["near: sent to a replica"] += 1

    def _take(self, target: int, found: FetchResultPartition) -> None:
        before = self.offset
        try:
            for message in MessageSet(found.records, CODECS, from_offset=self.offset):
                if message.offset != self.offset:
                    raise Broken(f"near: {self._name} goes from {self.offset} to {message.offset}")
                assert message.value is not None
                check_committed(self._checker, self._name, self._number, message.offset)
                self._book.observe(message.offset, message.value)
                self.offset += 1
        except (CorruptRecord, ApiError):
            self._world.reached["near: a batch that has rotten"] += 1
        if self._is_refused and self.offset > before and self._sent is not None and self._sent.offset == before:
            self._world.reached["near: read from the leader after a replica refused"] += 1
        if self._rewinds_left and self._entropy.below(40) == 0:
            self._rewinds_left -= 1
            self.rewind()

    def _later(self) -> None:
        self._world.scheduler.call_later(self._entropy.below(60), self._turn)

    def _ask(self, broker_id: int, request: Request[ResultT], answered: Callable[[ResultT], None]) -> None:
        def reply(result: ResultT | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                self._fail()
            else:
                answered(result)

        link = self._links.get(broker_id)
        if link is not None and link.is_open:
            link.submit(request, Caller(client_id=self._name), reply)
            return

        def opened(outcome: KafkaLink | TransportError) -> None:
            if isinstance(outcome, KafkaLink):
                self._links[broker_id] = outcome
                outcome.submit(request, Caller(client_id=self._name), reply)
            else:
                self._fail()

        connect_kafka(
            self._transport,
            self._world.scheduler,
            self._world.brokers[broker_id].address,
            client_id=self._name,
            request_timeout_ms=2000,
            connect_timeout_ms=1000,
            opened=opened,
            sasl=self._world.sasl,
        )

    def _fail(self) -> None:
        self._near = self._leader = -1
        self._world.scheduler.call_later(RETRY_MS, self._turn)


class KafkaReaders:
    """A `KafkaReader` of each partition."""

    def __init__(
        self, checker: ClusterChecker, name: str, books: Sequence[Book], rack: str, rotten: RottenLeaders
    ) -> None:
        self._each = [
            KafkaReader(checker, f"{name}-{number}", number, book, rack, rotten) for number, book in enumerate(books)
        ]

    @property
    def reached(self) -> Sequence[int]:
        return [each.offset for each in self._each]

    def rewind(self) -> None:
        for each in self._each:
            each.rewind()


class NearStory(ClusterStory):
    """Each rack has a reader as ours and one as Kafka's. They are given each committed record once and in order,
    nothing that is not committed, and no error while the leader has an intact copy."""

    name = "near"
    racks = RACKS

    def __init__(self, seed: int, *, kinds: Sequence[str] = (), acts: Sequence[str] = (), **settings: Any) -> None:
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        own = {"replica_selector_class": selector, **settings}
        super().__init__(seed, kinds=kinds or KINDS, acts=acts or ("elect", "move"), every=0.25, **own)
        self.remakes = False

    def _readers(self) -> list[ReadsAll]:
        rotten, found = RottenLeaders(self.world), list[ReadsAll]()
        for rack in RACKS:
            found.append(NearReader(self.checker, f"near-{rack}", self.books, rack, rotten))
            found.append(KafkaReaders(self.checker, f"kafka-{rack}", self.books, rack, rotten))
        return found
