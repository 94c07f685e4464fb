"""Every interleaving of small scopes over a group coordinator whose partition of `__consumer_offsets` changes leaders:
two brokers with the product's replicas, loaders, logs and coordinators, and the state of the partition in the tree.

What is checked are promises to clients, whatever happens between commits:

- an answer is the offset of a record that no clean election can lose: each member of the ISR has it;
- an answer is never older than what was acknowledged to a client before it asked;
- a commit is acknowledged only if each member of the ISR has its record;
- once all is calm, the leader answers, and with the last record of its log, unless a commit has timed out: whether
  that counts is left open, as its client knows no outcome.

A history is a sequence of actions; a state is what brokers, logs and the tree are after it. `search` plays histories
breadth first, each from the start, and returns how many states it has found. An action is a method of `Brokers`, with
one that says for which brokers it can happen now, in `ACTIONS`.

Left out: leases (a broker takes no questions after it has been removed from the ISR without having heard of its
successor, as its lease ends before that), and restarts, after which a broker knows nothing that it has not read.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from attrs import evolve, frozen

from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.app.broker.handlers.led_partitions import follow_leaders
from barnabas.core.cluster.topics import ALONE_EPOCH, PartitionState, ReplicaId, Topic
from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.coordinator import GroupCoordinator
from barnabas.core.coordinator.group.loading import Loading
from barnabas.core.coordinator.group.records import OffsetKey, decode_key, decode_offset
from barnabas.core.coordinator.log import CoordinatorLog
from barnabas.core.coordinator.log_loader import LogLoader
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message_set import MessageSet
from barnabas.core.replica.follower.partition_fetch_state import truncation_offset
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.replica.replica_manager import AssignedReplica, ReplicaManager
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.storage import Region
from barnabas.ports.types import Buffer, TopicPartition
from barnabas.testing.logs import open_log

OFFSETS = "__consumer_offsets"
KEY, TOPIC_ID = TopicPartition(OFFSETS, 0), b"offsets".ljust(16)
BROKERS = (1, 2)
TIMEOUT_MS = 1000
_CALLER = Caller(client_id="app", host="127.0.0.1")
_TOPIC = Topic(name=OFFSETS, topic_id=TOPIC_ID, partitions={0: BROKERS})
_READ_BYTES = 1 << 20
_CALM_ROUNDS = 20
Action = tuple[str, int]


class BrokenPromise(AssertionError):
    """A history after which a client got a wrong answer."""


@frozen
class Scope:
    """The possible actions of a history, each by its name with its maximum count; None: any number."""

    most: Mapping[str, int | None]


def _offset_in(key: bytes | None, value: bytes | None) -> int:
    """Return the committed offset that a record of the log has."""
    assert key is not None
    assert value is not None
    assert isinstance(decode_key(key), OffsetKey)
    return decode_offset(value).offset


def _bytes_of(records: Buffer | Region) -> Buffer:
    return records if isinstance(records, bytes | bytearray | memoryview) else records.read()


class Broker:
    """One broker with its replica of the partition and its coordinator."""

    def __init__(self, broker_id: int, log: Any, state: PartitionState) -> None:
        self.broker_id = broker_id
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.reports: list[str] = []
        logs: Any = SimpleNamespace(
            get=lambda _: log,
            high_watermark=lambda _: 0,
            codecs=NO_CODECS,
            add_flush_listener=lambda _: None,
            flush_if_due=lambda _log, _now_ms: False,
        )
        self.replicas = ReplicaManager(
            broker_id=broker_id,
            logs=logs,
            clock=self.clock,
            scheduler=self.scheduler,
            metrics=MemoryMetrics(),
            unknown=lambda topic, number: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}-{number}"),
            report=self.reports.append,
        )
        self.log = CoordinatorLog(
            OFFSETS,
            self.replicas,
            clock=self.clock,
            scheduler=self.scheduler,
            timeout_ms=TIMEOUT_MS,
            failed=self._failed,
        )
        topics: Any = SimpleNamespace(version=0)  # only modern groups ask it
        self.coordinator = GroupCoordinator(
            config=GroupCoordinatorConfig(),
            partition_count=1,
            clock=self.clock,
            scheduler=self.scheduler,
            entropy=SeededEntropy(broker_id),
            append=self.log.append,
            topic_id_of=lambda _: b"t" * 16,
            topics=topics,
            report=self.reports.append,
            leads=self.replicas.leading(OFFSETS),
        )
        self.loader: LogLoader[Loading] = LogLoader(
            self.replicas,
            self.coordinator.begin_load,
            self.coordinator.loaded,
            codecs=NO_CODECS,
            clock=self.clock,
            scheduler=self.scheduler,
            slice_bytes=1,
            report=self.reports.append,
            failed=self._failed,
            still_open=Loading.add_open,
        )
        image = SimpleNamespace(topics={OFFSETS: _TOPIC})
        broker_state: Any = SimpleNamespace(replicas=self.replicas, image=image)
        follow_leaders(broker_state, OFFSETS, self.coordinator, self.loader, self.log)
        self.replicas.reopen([AssignedReplica(key=KEY, topic_id=TOPIC_ID, replicas=BROKERS, state=state)])
        self.partition: Partition = self.replicas.partitions[KEY]

    def _failed(self, what: str, error: BaseException) -> None:
        raise AssertionError(f"{what}: {error!r}")

    @property
    def answers(self) -> bool:
        """True if the coordinator takes requests for the group now."""
        return self.coordinator._table.check_key("g") is ErrorCode.NONE

    @property
    def has_work(self) -> bool:
        due = self.scheduler.next_due_ms()
        return due is not None and due <= self.clock.monotonic_ms()

    def entries(self) -> list[tuple[int, int]]:
        """Return the leader epoch and the committed offset of each record of the log."""
        log = self.partition.log
        found: list[tuple[int, int]] = []
        read = log.read(log.log_start_offset, max_bytes=_READ_BYTES, limit=log.log_end_offset)
        content = memoryview(_bytes_of(read.records))
        for at, header in whole_batches(content):
            for message in MessageSet(content[at : at + header.size], NO_CODECS):
                found.append((header.leader_epoch, _offset_in(message.key, message.value)))
        return found

    def committed(self) -> int:
        """Return the offset that the coordinator answers with; -1: none is committed."""
        answers: list[OffsetFetchResult | BarnabasError] = []
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id="g", partitions=[TopicPartition("t", 0)])])
        self.coordinator.fetch_offsets(request, _CALLER, answers.append)
        (answer,) = answers
        assert isinstance(answer, OffsetFetchResult)
        return answer.groups[0].partitions[0].offset

    def key(self) -> tuple[Any, ...]:
        """Return the state of the broker: brokers with equal keys behave equally from here on."""
        partition, scheduler, log = self.partition, self.scheduler, self.log
        now_ms, loader, entry = self.clock.monotonic_ms(), self.loader, self.coordinator._table.get("g")
        followers = partition.followers
        return (
            (partition.leader, partition.leader_epoch, partition.led_since, partition.state.partition_epoch),
            partition.high_watermark,
            tuple(self.entries()),
            None if followers is None else tuple((each.broker_id, each.log_end) for each in followers),
            tuple((due - now_ms, _name(each.callback)) for due, _, each in sorted(scheduler._queue) if each.callback),
            tuple(sum(len(records) for records, _, _ in each) for each in log._waiting.values()),
            tuple((each.offset, each.led_since, each.is_over) for each in loader._waiting),
            (loader._retrying, loader._uncommitted, len(self.replicas.purgatory)),
            (tuple(self.coordinator._table._loading), tuple(self.coordinator._table.loaded)),
            _positions(entry),
        )


def _name(callback: Any) -> str:
    return str(callback.__qualname__)


def _positions(entry: Any) -> tuple[Any, ...]:
    """Return the committed offset of the group, and how many commits wait for the followers."""
    if entry is None:
        return ()
    offsets, place = entry.offsets, TopicPartition("t", 0)
    committed = offsets.get(place)
    return None if committed is None else committed.offset, len(offsets._pending.get(place, ()))


class Cluster:
    """Two brokers, the state of the partition in the tree, and what was acknowledged to clients."""

    def __init__(self) -> None:
        self.tree = PartitionState(leader=1, leader_epoch=0, isr=BROKERS)
        self.brokers = {each: Broker(each, open_log(MemoryLogDir().folder(str(KEY))), self.tree) for each in BROKERS}
        self.asked = 0
        self.acknowledged = -1
        self.has_timed_out = False
        for each in self.brokers.values():
            each.scheduler.run_pending()

    def do(self, action: Action) -> None:
        """Do this, and check the promises. Raises `BrokenPromise`."""
        name, broker_id = action
        getattr(self, f"_{name}")(self.brokers[broker_id])
        self.check()

    def check(self) -> None:
        for broker in self.brokers.values():
            if broker.answers:
                offset = broker.committed()
                if offset < self.acknowledged:
                    raise BrokenPromise(f"broker {broker.broker_id} answers {offset} after {self.acknowledged}")
                if offset >= 0 and not self._is_committed(offset):
                    raise BrokenPromise(f"broker {broker.broker_id} answers {offset}, which is not committed")

    def _is_committed(self, offset: int) -> bool:
        logs = [self.brokers[each].entries() for each in self.tree.isr]
        return all(any(each == offset for _, each in log) for log in logs)

    def key(self) -> tuple[Any, ...]:
        brokers = tuple(each.key() for each in self.brokers.values())
        tree = self.tree.leader, self.tree.leader_epoch, self.tree.isr, self.tree.partition_epoch
        return tree, self.asked, self.acknowledged, self.has_timed_out, brokers

    def calm(self) -> None:
        """Let all that is under way end; raise `BrokenPromise` unless the leader answers with the last record."""
        leader = self.brokers[self.tree.leader]
        for _ in range(_CALM_ROUNDS):
            for broker in self.brokers.values():
                if self.can_see(broker):
                    self._see(broker)
                broker.scheduler.advance(TIMEOUT_MS)
                if self.can_fetch(broker):
                    self._fetch(broker)
            self.check()
            last = max((each for _, each in leader.entries()), default=-1)
            if leader.answers and (self.has_timed_out or leader.committed() == last):
                return
        raise BrokenPromise(f"broker {leader.broker_id} leads {leader.entries()} and does not answer so")

    def _other(self, broker: Broker) -> Broker:
        return self.brokers[3 - broker.broker_id]

    # --- clients

    def can_commit(self, broker: Broker) -> bool:
        return broker.answers

    def _commit(self, broker: Broker) -> None:
        number = self.asked
        self.asked += 1

        def replied(result: OffsetCommitResult | BarnabasError) -> None:
            assert isinstance(result, OffsetCommitResult)
            if result.partitions[0].error is ErrorCode.NONE:
                if not self._is_committed(number):
                    raise BrokenPromise(f"broker {broker.broker_id} acknowledges {number}, which is not committed")
                self.acknowledged = max(self.acknowledged, number)

        request = OffsetCommit(group_id="g", partitions=[OffsetCommitPartition("t", 0, number)])
        broker.coordinator.commit_offsets(request, _CALLER, replied)

    # --- brokers

    def can_run(self, broker: Broker) -> bool:
        return broker.has_work

    def _run(self, broker: Broker) -> None:
        """The broker's next callback runs."""
        before = iter((False, True))
        broker.scheduler.run_until(lambda: next(before))

    def can_wait(self, broker: Broker) -> bool:
        return broker.scheduler.waiting > 0

    def _wait(self, broker: Broker) -> None:
        """Let delayed appends time out."""
        self.has_timed_out = True
        broker.scheduler.advance(TIMEOUT_MS)

    def can_see(self, broker: Broker) -> bool:
        return broker.partition.state != self.tree

    def _see(self, broker: Broker) -> None:
        broker.replicas.apply(_TOPIC, {0: self.tree})

    def can_fetch(self, broker: Broker) -> bool:
        follower, leader = broker.partition, self._other(broker).partition
        if follower.leader != leader.broker_id or not leader.is_leader or follower.leader_epoch != leader.leader_epoch:
            return False
        assert leader.followers is not None
        progress = leader.followers.of(ReplicaId(broker.broker_id, ALONE_EPOCH))
        end = follower.log.log_end_offset
        return (end, follower.high_watermark, progress.log_end) != (end_of(leader), leader.high_watermark, end)

    def _fetch(self, broker: Broker) -> None:
        follower, other = broker.partition, self._other(broker)
        leader, log = other.partition, broker.partition.log
        assert leader.followers is not None
        diverging = leader.diverging(log.log_end_offset, log.epochs.latest)
        if diverging is not None:
            follower.truncate_to(truncation_offset(log.epochs, log.log_end_offset, diverging), 0)
            return
        progress = leader.followers.of(ReplicaId(broker.broker_id, ALONE_EPOCH))
        if leader.follower_fetched(progress, log.log_end_offset, 0, 0.0):
            other.replicas.purgatory.check(KEY)
        read = leader.read(log.log_end_offset, _READ_BYTES, whole_first_batch=True, isolation=FetchIsolation.LOG_END)
        records = memoryview(bytearray(_bytes_of(read)))
        follower.append_as_follower(records, high_watermark=leader.high_watermark, log_start=0, now_ms=0)

    # --- the tree

    def can_elect(self, broker: Broker) -> bool:
        return broker.broker_id in self.tree.isr and broker.broker_id != self.tree.leader

    def _elect(self, broker: Broker) -> None:
        self._change(leader=broker.broker_id, leader_epoch=self.tree.leader_epoch + 1)

    def can_raise_epoch(self, broker: Broker) -> bool:
        return broker.broker_id == self.tree.leader

    def _raise_epoch(self, _: Broker) -> None:
        """A reassignment takes away a replica that another broker had."""
        self._change(leader_epoch=self.tree.leader_epoch + 1)

    def can_shrink(self, broker: Broker) -> bool:
        other = self._other(broker)
        leads = self.tree.leader == broker.broker_id and broker.partition.state == self.tree
        return leads and other.broker_id in self.tree.isr and not other.partition.is_leader

    def _shrink(self, broker: Broker) -> None:
        """The leader takes the other broker, which lags, from the ISR."""
        self._change(isr=(broker.broker_id,))

    def can_expand(self, broker: Broker) -> bool:
        leader, other = broker.partition, self._other(broker).broker_id
        if self.tree.leader != broker.broker_id or leader.state != self.tree or other in self.tree.isr:
            return False
        assert leader.followers is not None
        reached = leader.followers.of(ReplicaId(other, ALONE_EPOCH)).log_end
        return reached >= max(leader.high_watermark, leader.epoch_start_offset)

    def _expand(self, broker: Broker) -> None:
        """The leader adds the other broker; it has counted it since it asked for that."""
        self._change(isr=BROKERS)
        self._see(broker)

    def _change(self, **changes: Any) -> None:
        self.tree = evolve(self.tree, partition_epoch=self.tree.partition_epoch + 1, **changes)


def end_of(partition: Partition) -> int:
    return partition.log.log_end_offset


def _after(history: tuple[Action, ...]) -> Cluster:
    cluster = Cluster()
    for action in history:
        cluster.do(action)
    return cluster


def _possible(cluster: Cluster, scope: Scope, history: tuple[Action, ...]) -> Iterator[Action]:
    for name, most in scope.most.items():
        if most is not None and sum(each == name for each, _ in history) >= most:
            continue
        can: Callable[[Broker], bool] = getattr(cluster, f"can_{name}")
        for broker_id, broker in cluster.brokers.items():
            if can(broker):
                yield name, broker_id


def play(history: tuple[Action, ...]) -> Cluster:
    """Play one history, then calm. Raises `BrokenPromise`."""
    cluster = _after(history)
    cluster.calm()
    return cluster


def search(scope: Scope) -> int:
    """Play all histories; return the number of states. Raises `BrokenPromise` with the shortest history that breaks a
    promise."""
    first = _after(())
    known: set[tuple[Any, ...]] = {(first.key(), ())}
    queue: deque[tuple[tuple[Action, ...], list[Action]]] = deque([((), list(_possible(first, scope, ())))])
    while queue:
        history, actions = queue.popleft()
        for action in actions:
            longer = (*history, action)
            try:
                cluster = _after(longer)
                counted = tuple(sum(each == name for each, _ in longer) for name, most in scope.most.items() if most)
                key = cluster.key(), counted
                if key in known:
                    continue
                known.add(key)
                further = list(_possible(cluster, scope, longer))
                if not further:
                    cluster.calm()
            except BrokenPromise as broken:
                raise BrokenPromise(f"{broken}, after {', '.join(f'{name} {each}' for name, each in longer)}") from None
            queue.append((longer, further))
    return len(known)
