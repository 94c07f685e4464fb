"""The replicas of several brokers, joined in memory: no sockets, no coordination service, a clock moved by hand.

The tree is one value here, the state of the only partition; what changes it is what `core/cluster/election.py` says.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.election import ElectionRules, claimed, new_state, settled, wants_claim, with_isr
from barnabas.core.cluster.reassignment import states_with_assignment
from barnabas.core.cluster.topics import BrokerRegistration, PartitionState, ReplicaId, Topic
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.replica.leader.fetch_sessions import FetchSessionResult
from barnabas.core.replica.partition.isr_state import AlterPartition
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.replica.replica_manager import AssignedReplica, ReplicaManager
from barnabas.core.replica.settings import ReplicationSettings
from barnabas.plugins.builtin.deletion import KeepAll
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.produce import ProducePartition, ProduceResultPartition
from barnabas.ports.broker_api.topics import DeleteRecordsPartition, DeleteRecordsResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import size_of
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition
from barnabas.simulation.disk import FaultyDisk
from barnabas.testing.logs import batch, messages_in

KEY = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
HOP_MS = 1
"""The network delay of a message."""
ONE_BATCH = len(batch(b"x"))


class Member:
    """One broker, over all its lives."""

    def __init__(self, cluster: "ReplicaCluster", broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.disk = FaultyDisk(SeededEntropy(broker_id), cluster.clock.now_ms)
        self.life = 0
        self.alive = False
        self.lease_valid = True
        self.reports: list[str] = []
        self.offline: list[TopicPartition] = []
        self.events: list[str] = []
        self.fetches: list[Fetch] = []

    @property
    def partition(self) -> Partition:
        return self.replicas.partitions[KEY]

    @property
    def log(self) -> UnifiedLog:
        return self.partition.log

    @property
    def values(self) -> list[bytes | None]:
        """All records here, below the log end."""
        return [value for _, value in self._read(self.log.log_end_offset)]

    @property
    def visible(self) -> list[bytes | None]:
        """All records below the high watermark."""
        return [value for _, value in self._read(self.partition.high_watermark)]

    def _read(self, limit: int) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        offset: int = self.log.log_start_offset
        while offset < limit:
            records = self.log.read(offset, max_bytes=1 << 20, limit=limit).records
            found += [
                pair
                for pair in messages_in(records if isinstance(records, bytes) else records.read())
                if offset <= pair[0] < limit
            ]
            if not found or found[-1][0] < offset:
                break
            offset = found[-1][0] + 1
        return found

    def start(self, *, previous_epoch: int = -1) -> None:
        cluster = self.cluster
        self.life += 1
        self.alive = self.lease_valid = True
        cluster.epochs += 1
        self.epoch = cluster.epochs
        self.offline.clear()
        self.logs = LogManager(
            [self.disk.open()],
            clock=cluster.clock,
            scheduler=cluster.scheduler,
            config_for=lambda _: cluster.config,
            codecs=NO_CODECS,
            policy_for=lambda _config, _partition: KeepAll(),
            report=self.reports.append,
            entropy=SeededEntropy(self.broker_id),
            may_end_early=True,
        )
        self.logs.load()
        life = self.life
        self.replicas = ReplicaManager(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            logs=self.logs,
            clock=cluster.clock,
            scheduler=cluster.scheduler,
            metrics=MemoryMetrics(),
            unknown=lambda topic, number: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}-{number}"),
            report=self.reports.append,
            settings=cluster.settings,
            fetch_from=lambda node, request, reply: cluster.send(self, life, node, request, reply),
            lease_valid=lambda: self.lease_valid,
            alter_partition=lambda change, on_rejected: cluster.alter_partition(self, life, change, on_rejected),
            may_join=lambda replica: cluster.epoch_of(replica.broker_id) == replica.broker_epoch,
            is_alive=lambda broker: broker in cluster.brokers,
            went_offline=self.offline.append,
        )
        self.replicas.add_leadership_listener(
            lambda partition: self.events.append(f"led {partition.leader_epoch}"),
            lambda partition: self.events.append(f"resigned {partition.leader_epoch}"),
        )
        registration = BrokerRegistration(
            broker_id=self.broker_id, endpoints=(), broker_epoch=self.epoch, previous_epoch=previous_epoch
        )
        cluster.brokers = {**cluster.brokers, self.broker_id: registration}

    def open(self, state: PartitionState) -> None:
        replicas = self.cluster.topic.partitions[0]
        self.replicas.reopen([AssignedReplica(key=KEY, topic_id=TOPIC_ID, replicas=replicas, state=state)])

    def end(self) -> None:
        """The process is gone; the disk stays as it is."""
        self.alive = False
        self.replicas.close()
        self.cluster.brokers = {k: v for k, v in self.cluster.brokers.items() if k != self.broker_id}

    # --- requests of clients

    def produce(self, *values: bytes, acks: int = -1, timeout_ms: float = 10_000) -> list[ProduceResultPartition]:
        """Produce values; return the list that gets the outcome, now or later."""
        return self.produce_batch(batch(*values), acks=acks, timeout_ms=timeout_ms)

    def produce_batch(
        self, records: memoryview, *, acks: int = -1, timeout_ms: float = 10_000
    ) -> list[ProduceResultPartition]:
        observed: list[ProduceResultPartition] = []

        def done(results: Sequence[ProduceResultPartition] | ApiError) -> None:
            assert not isinstance(results, ApiError)
            observed.extend(results)

        self.replicas.append([ProducePartition("t", 0, records)], done, acks=acks, timeout_ms=timeout_ms)
        return observed

    def consume(
        self, offset: int = 0, *, epoch: int = -1, last_epoch: int = -1, **how: Any
    ) -> list[FetchResultPartition]:
        observed: list[FetchResultPartition] = []

        def done(results: Sequence[FetchResultPartition] | ApiError) -> None:
            assert not isinstance(results, ApiError)
            observed.extend(results)

        entry = FetchPartition("t", 0, offset, 1 << 20, epoch, -1, last_epoch)
        self.replicas.read([entry], done, max_bytes=1 << 20, **how)
        return observed

    def delete(self, offset: int, *, timeout_ms: float = 5000) -> list[DeleteRecordsResultPartition]:
        observed: list[DeleteRecordsResultPartition] = []

        def done(results: Sequence[DeleteRecordsResultPartition] | ApiError) -> None:
            assert not isinstance(results, ApiError)
            observed.extend(results)

        entry = DeleteRecordsPartition(topic="t", partition=0, offset=offset)
        self.replicas.delete_records([entry], done, timeout_ms=timeout_ms)
        return observed


class ReplicaCluster:
    """Brokers 1 to `brokers`, all with a replica of the one partition; the first leads."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: LogConfig | None = None,
        unclean: bool = False,
        settings: ReplicationSettings | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.config = config or LogConfig()
        self.rules = ElectionRules(min_isr=self.config.min_insync_replicas, unclean=unclean)
        # Followers hear of the high watermark at once, so that tests need not wait for it.
        self.settings = settings or ReplicationSettings(
            lag_time_max_ms=2000, fetch_wait_max_ms=100, hastens_high_watermark=True
        )
        self.epochs = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.hop_ms: dict[int, float] = {}
        """By follower: what a message to or from it takes, where that is not `HOP_MS`."""
        self.cut: set[frozenset[int]] = set()
        """Pairs that cannot reach each other; 0 is the tree."""
        self.topic = Topic(name="t", topic_id=TOPIC_ID, partitions={0: tuple(range(1, brokers + 1))})
        self.members = {number: Member(self, number) for number in range(1, brokers + 1)}
        for member in self.members.values():
            member.start()
        self.state = new_state(self.topic.partitions[0], self.brokers)
        for member in self.members.values():
            member.open(self.state)
        self.isr_requests: list[AlterPartition] = []
        self.isr_rejections: list[Callable[[], None]] = []
        """The callbacks for rejected requests, by the index of the request."""
        self.refuse_isr = False
        self._unknown: list[tuple[Member, int, AlterPartition, Callable[[], None]]] = []

    def __getitem__(self, broker_id: int) -> Member:
        return self.members[broker_id]

    @property
    def leader(self) -> Member:
        return self.members[self.state.leader]

    @property
    def live(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    def epoch_of(self, broker_id: int) -> int:
        known = self.brokers.get(broker_id)
        return -1 if known is None else known.broker_epoch

    def run(self, ms: float = 20) -> None:
        self.scheduler.advance(ms)

    def until(self, reached: Callable[[], bool], *, ms: float = 60_000) -> None:
        """Let time pass until that is so."""
        waited = 0.0
        while not reached():
            assert waited < ms, f"it is still not so: {self.state}"
            self.run(10)
            waited += 10

    # --- the network

    def reaches(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.cut

    def send(self, source: Member, life: int, node: int, request: Request[Any], reply: Callable[[Any], None]) -> None:
        """Bring a fetch to a broker, and the answer back."""
        assert isinstance(request, Fetch)
        target, hop_ms = self.members[node], self.hop_ms.get(source.broker_id, HOP_MS)
        source.fetches.append(request)

        def answer(result: Any) -> None:
            def arrive() -> None:
                if source.alive and source.life == life:
                    reply(result if self.reaches(source.broker_id, node) else TransportError("cut off"))

            self.scheduler.call_later(hop_ms, arrive)

        def done(observed: FetchSessionResult | ApiError) -> None:
            if isinstance(observed, ApiError):
                answer(observed)
                return
            partitions = [evolve(each, records=_in_memory(each)) for each in observed.results]
            answer(FetchResult(partitions=partitions, session_id=observed.session_id, error=observed.error))

        def deliver() -> None:
            if not target.alive or not self.reaches(source.broker_id, node):
                answer(TransportError("no leader is reachable"))
                return
            target.replicas.read_in_session(request, done, max_bytes=request.max_bytes, reader=None)

        self.scheduler.call_later(hop_ms, deliver)

    # --- the tree

    def alter_partition(
        self, source: Member, life: int, change: AlterPartition, on_rejected: Callable[[], None]
    ) -> None:
        """Compare and set, a moment later."""
        self.isr_requests.append(change)
        self.isr_rejections.append(on_rejected)

        def store() -> None:
            state = self.state
            same = (state.partition_epoch, state.leader_epoch) == (change.partition_epoch, change.leader_epoch)
            if not self.reaches(0, source.broker_id):
                self._unknown.append(
                    (source, life, change, on_rejected)
                )  # the outcome is unknown until the connection is healed
                return
            if same and not self.refuse_isr:
                after = with_isr(state, change.new_isr, self.topic.partitions[0], self.brokers, self.rules)
                self.set(evolve(after, partition_epoch=state.partition_epoch + 1))
            elif source.alive and source.life == life:
                on_rejected()

        self.scheduler.call_later(HOP_MS, store)

    def set(self, state: PartitionState) -> None:
        """Change the state in the node; connected brokers learn it a moment later."""
        self.state = state
        for member in self.live:
            self._announce(member, state)

    def _announce(self, member: Member, state: PartitionState) -> None:
        life = member.life

        def arrive() -> None:
            if member.alive and member.life == life and self.reaches(0, member.broker_id):
                member.replicas.apply(self.topic, {0: state})

        self.scheduler.call_later(HOP_MS, arrive)

    def announce(self) -> None:
        """Let every connected broker read the tree again."""
        for member in self.live:
            self._announce(member, self.state)

    def run_until_idle(self) -> None:
        """Run the controller until nothing is pending. An unclean election does not wait for replicas
        that do not live."""
        self._run_until_idle()
        for member in self.live:
            own = ReplicaId(member.broker_id, self.epoch_of(member.broker_id))
            if own.broker_epoch >= 0 and wants_claim(self.state, self.topic.partitions[0], own):
                self.set(claimed(self.state, own, member.log.epochs.latest, member.log.log_end_offset))
        self._run_until_idle(is_overdue=True)
        for member in self.live:
            if self.reaches(0, member.broker_id):
                member.replicas.brokers_changed()

    def _run_until_idle(self, *, is_overdue: bool = False) -> None:
        replicas = self.topic.partitions[0]
        while (after := settled(self.state, replicas, self.brokers, self.rules, is_overdue=is_overdue)) is not None:
            self.set(after)

    def lead(self, broker_id: int, *, isr: Sequence[int] | None = None) -> None:
        """Elect by hand, with this ISR or the one that there is."""
        state = self.state
        members = tuple(state.isr if isr is None else isr)
        self.set(
            evolve(
                state,
                leader=broker_id,
                leader_epoch=state.leader_epoch + 1,
                isr=members,
                broker_epochs={each: self.epoch_of(each) for each in members},
                partition_epoch=state.partition_epoch + 1,
            )
        )
        self.run(2 * HOP_MS)

    def move(self, replicas: Sequence[int]) -> None:
        """Assign other brokers, at once. Members hear of the topic with the state."""
        before, number = self.topic, KEY.partition
        self.topic = evolve(before, partitions={number: tuple(replicas)})
        state = settled(self.state, replicas, self.brokers, self.rules)
        states = {} if state is None else {number: state}
        self.set(states_with_assignment(before, self.topic, states, {number: self.state})[number])

    # --- the fate of brokers

    def kill(self, broker_id: int, *, power: bool = False) -> None:
        """The process is gone, and with `power` what was not flushed may be, too. The tree does not know yet."""
        member = self.members[broker_id]
        member.end()
        if power:
            member.disk.power_cut()
        else:
            member.disk.release()

    def start(self, broker_id: int) -> None:
        member = self.members[broker_id]
        member.start()
        member.open(self.state)

    def expire(self, broker_id: int) -> None:
        """The session is over, and the broker knows by its own clock; the process continues."""
        member = self.members[broker_id]
        member.lease_valid = False
        self.brokers = {k: v for k, v in self.brokers.items() if k != broker_id}

    def register_again(self, broker_id: int) -> None:
        """After `expire`: a new session of the same process."""
        member = self.members[broker_id]
        self.epochs += 1
        registration = BrokerRegistration(
            broker_id=broker_id, endpoints=(), broker_epoch=self.epochs, previous_epoch=member.epoch
        )
        member.epoch, member.lease_valid = self.epochs, True
        self.brokers = {**self.brokers, broker_id: registration}
        member.replicas.broker_epoch = self.epochs
        self._announce(member, self.state)

    def isolate(self, broker_id: int) -> None:
        """Disconnect a broker from all others."""
        self.cut |= {frozenset((broker_id, other)) for other in (0, *self.members) if other != broker_id}

    def heal(self) -> None:
        self.cut.clear()
        self.announce()
        unknown, self._unknown = self._unknown, []
        for source, life, change, on_rejected in unknown:
            if source.alive and source.life == life and self.state.partition_epoch == change.partition_epoch:
                on_rejected()


def _in_memory(result: FetchResultPartition) -> bytes:
    records = result.records
    assert size_of(records) >= 0
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()
