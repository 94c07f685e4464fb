"""Members of a share group acknowledge the messages of a topic between disasters (KIP-932): one seed, played."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from simulation.cluster_checker import Broken
from simulation.cluster_story import ClusterStory
from simulation.swarm import LOSSES

from barnabas import Admin, Producer, ShareConsumer, ShareMessage
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.errors import BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import Disasters, Program

QUEUE = "queue"
WORKERS = "workers"
STATES = "__share_group_state"
PARTITIONS = 2
LOCK_MS = 2_000
MARGIN_MS = 8_000
"""The longest time for which a member may hold a message whose lock has lapsed, while it is paused or waits."""
LIMIT = 10
LAST = 20
"""Messages that come in calm."""
KINDS = (
    "kill",
    "restart",
    "pause",
    "partition",
    "expire",
    "lose_connections",
    "bad_network",
    "kill_program",
    "full_disk",
)
CALLS: dict[str, Any] = {"request_timeout_ms": 2000, "default_api_timeout_ms": 5000, "retry_backoff_ms": 50}

_Place = tuple[int, int]
"""Partition and offset."""


@define
class ShareBook:
    """The written messages of a share group, and their outcomes."""

    written: dict[_Place, bytes] = field(factory=dict)
    """Acknowledged to the producer."""
    done: dict[_Place, float] = field(factory=dict)
    """When a member got the answer that its accept or reject is stored."""
    released: dict[_Place, tuple[int, float]] = field(factory=dict)
    """The delivery count of a release that is stored, and when the member got that answer."""
    given: dict[_Place, int] = field(factory=dict)
    """The number of deliveries of each message to a member."""

    def give(self, who: str, message: ShareMessage[Any, Any], now_ms: float) -> None:
        """A member is given a message. Raises `Broken`."""
        place = message.partition, message.offset
        count = message.delivery_count
        what = f"{who} is given offset {place[1]} of partition {place[0]}, delivery {count},"
        self.given[place] = self.given.get(place, 0) + 1
        if place in self.written and message.value != self.written[place]:
            raise Broken(f"unexpected: {what} with the value {message.value!r}")
        if not 1 <= count <= LIMIT:
            raise Broken(f"count: {what} of at most {LIMIT}")
        if now_ms > self.done.get(place, now_ms) + MARGIN_MS:
            raise Broken(f"again: {what} {now_ms - self.done[place]:.0f} ms after its acknowledgement was stored")
        least, since_ms = self.released.get(place, (0, now_ms))
        if count <= least and now_ms > since_ms + MARGIN_MS:
            raise Broken(f"count: {what} after a release of delivery {least}")

    def left(self) -> list[_Place]:
        """Return the messages that no member is known to have finished."""
        return sorted(self.written.keys() - self.done.keys())


class Worker:
    """A member of the group: accepts most messages, releases and rejects some, and forgets some until it dies."""

    def __init__(self, book: ShareBook) -> None:
        self._book = book

    def run(self, program: Program) -> None:
        book, world = self._book, program.world
        chance = world.entropy.child(f"{program.name} {program.lives}")
        with ShareConsumer(
            program,
            group_id=WORKERS,
            share_acknowledgement_mode="explicit",
            max_poll_records=20,
            fetch_max_wait_ms=200,
            metadata_max_age_ms=1000,
            **CALLS,
        ) as consumer:
            consumer.subscribe(QUEUE)
            while True:
                decided: dict[_Place, tuple[str, int]] = {}
                for message in consumer.poll_many(20, timeout=0.3):
                    book.give(program.name, message, program.now * 1000)
                    number = chance.below(10)
                    kind = (
                        "release"
                        if number < 3 and message.delivery_count < 4
                        else "reject"
                        if number == 3
                        else "accept"
                    )
                    consumer.acknowledge(message, kind)
                    decided[message.partition, message.offset] = kind, message.delivery_count
                program.sleep((0.0, 0.02, 0.5)[chance.below(3)] * chance.fraction())
                if chance.below(40) == 0:
                    raise BarnabasError("a worker that dies with its messages")
                self._commit(consumer, decided, program.now * 1000)
                world.reached["share: acknowledged"] += len(decided)

    def _commit(self, consumer: ShareConsumer[Any, Any], decided: dict[_Place, tuple[str, int]], now_ms: float) -> None:
        try:
            results = consumer.commit_sync(2.0)
        except BarnabasError:
            return  # nothing was promised
        stored = {tp.partition for tp, error in results.items() if error is None}
        for tp, (kind, count) in decided.items():
            if tp[0] not in stored:
                continue
            if kind == "release":
                self._book.released[tp] = count, now_ms
            else:
                self._book.done.setdefault(tp, now_ms)


class Filler:
    """Writes messages."""

    def __init__(self, book: ShareBook) -> None:
        self._book = book

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"filler {program.lives}")
        with producer_of(program) as producer:
            while True:
                write(producer, self._book, 1 + chance.below(10), f"{program.lives}-{program.now:.3f}")
                program.sleep((0.05, 0.3)[chance.below(2)] * chance.fraction())


def producer_of(program: Program) -> Producer:
    return Producer(program, acks="all", delivery_timeout_ms=4000, max_block_ms=2000, retry_backoff_ms=50)


def write(producer: Producer, book: ShareBook, count: int, name: str) -> None:
    """Write messages and note those that are acknowledged. Raises `BarnabasError`."""
    values = [f"{name} {number}".encode() for number in range(count)]
    sent = [producer.send(QUEUE, value, partition=number % PARTITIONS) for number, value in enumerate(values)]
    for value, result in zip(values, sent, strict=True):
        message = result.result(10)
        book.written[message.partition, message.offset] = value


class ShareStory(ClusterStory):
    """Share groups: acknowledged messages are not redelivered, none is lost, and delivery counts only grow."""

    name = "share"

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), acts: Sequence[str] = ("elect",), **settings: Any
    ) -> None:
        own = {
            "share_coordinator_state_topic_num_partitions": 2,
            "share_coordinator_state_topic_segment_bytes": 4_000,
            "share_coordinator_snapshot_update_records_per_snapshot": 5,
            "share_coordinator_state_topic_prune_interval_ms": 700,
            "share_coordinator_cold_partition_snapshot_interval_ms": 1_500,
            "group_share_min_record_lock_duration_ms": 1_000,
            "group_share_min_session_timeout_ms": 1_000,
            "group_share_session_timeout_ms": 3_000,
            "group_share_min_heartbeat_interval_ms": 300,
            "group_share_heartbeat_interval_ms": 500,
            "group_share_record_lock_duration_ms": LOCK_MS,
            "group_share_delivery_count_limit": LIMIT,
            **settings,
        }
        chosen = kinds or KINDS
        super().__init__(seed, kinds=[kind for kind in chosen if kind not in LOSSES], acts=acts, **own)
        self.book = ShareBook()

    def _checked_topics(self) -> list[str]:
        return [QUEUE, STATES]

    def _play(self) -> None:
        world = self.world
        self.checker.watch()
        with Admin(world.client("founder"), default_api_timeout_ms=30_000) as admin:
            admin.create_topic(QUEUE, partitions=PARTITIONS)
            admin.alter_configs(ResourceKind.GROUP, WORKERS, {"share.auto.offset.reset": "earliest"})
        for number in range(3):
            world.program(f"worker-{number}", Worker(self.book).run, restart_after=0.5)
        world.program("filler", Filler(self.book).run, restart_after=0.5)
        self.disasters = Disasters(world, every=self.every, lasting=self.lasting, kinds=self.kinds, spared=["founder"])
        self.checker.brokers_with_losses = lambda: self.disasters.brokers_with_losses
        with self.disasters:
            world.run(self.seconds)
        self._end_story()

    def _wait_until_stable(self) -> None:
        """All is well again: the group processes all messages, and gets none of them again."""
        world = self.world
        world.programs["filler"].cut_power()
        self._mend_logs()
        self._await("all brokers are in sync", self._all_in_sync)
        with producer_of(world.client("founder")) as producer:
            write(producer, self.book, LAST, "last")
        self._await("the group has processed all messages", lambda: self._lags() == [0] * PARTITIONS)
        never = [tp for tp in self.book.left() if tp not in self.book.given]
        if never:
            raise Broken(f"lost: {never[:5]} were given to no member")
        given = sum(self.book.given.values())
        world.run((LOCK_MS + MARGIN_MS) / 1000)
        if sum(self.book.given.values()) > given:
            raise Broken("again: messages were delivered after all were processed")

    def _lags(self) -> list[int]:
        """Return the messages of each partition that the group has not processed, by the share coordinators."""
        starts: dict[int, int] = {}
        for broker in self.world.brokers.values():
            if not broker.running or broker.node is None:
                continue
            for entry in broker.node.api.share_coordinator.coordinator._table:
                if entry.state.key.group_id == WORKERS and entry.state.offset is not None:
                    starts[entry.state.key.partition] = entry.state.offset.start_offset
        ends = [self._end_of(TopicPartition(QUEUE, number)) for number in range(PARTITIONS)]
        return [end - starts.get(number, -1) for number, end in enumerate(ends)]
