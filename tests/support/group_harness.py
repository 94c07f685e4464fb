"""A coordinator with a log in memory, under a clock that the test moves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from attrs import evolve
from support.group_driver import Asked
from support.log_lines import warnings_of

from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.coordinator import GroupCoordinator
from barnabas.core.coordinator.log import ProducerEpoch, Record
from barnabas.core.coordinator.log_loader import OpenRecords
from barnabas.core.share.persister import Persister
from barnabas.ports.broker_api.consumer_groups import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    TopicIdPartitions,
)
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    DeleteGroups,
    DescribeGroups,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    SyncGroup,
)
from barnabas.ports.broker_api.transactions import TransactionSupportedOperation, TxnOffsetCommit
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

PARTITIONS = 4
ID, OTHER_ID = b"t" * 16, b"o" * 16
"""Ids of the topics that the harness has, and of others."""
CALLER = Caller(client_id="app", host="127.0.0.1")


class InTransaction(NamedTuple):
    """A record of a producer's transaction."""

    producer_id: int
    record: Record


class Ended(NamedTuple):
    """A marker."""

    producer_id: int
    committed: bool


class HarnessTopics:
    """The topics of a harness, as modern groups see them."""

    def __init__(self, harness: "Harness") -> None:
        self._harness = harness

    @property
    def version(self) -> int:
        harness = self._harness
        return hash((frozenset(harness.topics.items()), frozenset(harness.topic_ids.items())))

    def topic_id(self, name: str) -> bytes | None:
        if name not in self._harness.topics:
            return None
        return self._harness.topic_ids.get(name, ID)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name in self._harness.topics if self.topic_id(name) == topic_id), None)

    def names(self) -> frozenset[str]:
        return frozenset(self._harness.topics)

    def num_partitions(self, topic_id: bytes) -> int:
        return self._harness.topics.get(self.topic_name(topic_id) or "", -1)


class Harness:
    """A coordinator of all `PARTITIONS`; with `hold`, appends wait in `held` until `finish`.

    The log of a partition has records, and those in transactions and markers as what they are.
    """

    def __init__(
        self,
        log: dict[int, list[Any]] | None = None,
        *,
        load: bool = True,
        seed: int = 1,
        verifies: bool = False,
        persister: Persister | None = None,
        steps: Any = None,
        **config: Any,
    ) -> None:
        self.seed = seed
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.log: dict[int, list[Any]] = {} if log is None else log
        self.appends = 0
        self.hold = False
        self.held: list[tuple[int, list[Any], Callable[[ErrorCode], None]]] = []
        self.producers: list[ProducerEpoch] = []
        """The producers of the appends that belonged to transactions."""
        self.error = ErrorCode.NONE
        self.leads = True
        self.asked: list[tuple[str, int, Callable[[ErrorCode], None]]] = []
        """Requests to the transaction coordinator, with `verifies`: transactional id, partition, callback."""
        self.topics = {"t": 100, "u": 2}
        self.topic_ids: dict[str, bytes] = {}
        self.cluster = HarnessTopics(self)
        self.hidden: set[str] = set()
        """Topics that the caller may not describe."""
        self.lines: list[str] = []
        self.coordinator = GroupCoordinator(
            config=evolve(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0), **config),
            partition_count=PARTITIONS,
            clock=self.clock,
            scheduler=self.scheduler,
            entropy=SeededEntropy(seed),
            append=self._append,
            topic_id_of=self.topic_id_of,
            topics=self.cluster,
            report=self.lines.append,
            leads=lambda _: self.leads,
            verify=self._asked if verifies else None,
            persister=persister,
            find_ends=lambda partitions, done: done(dict.fromkeys(partitions, 100)),
            steps=steps,
            describable=lambda _, names: set(names) - self.hidden,
        )
        if load:
            self.load()

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        exists = partition.partition < self.topics.get(partition.topic, 0)
        return self.topic_ids.get(partition.topic, ID) if exists else None

    @property
    def reports(self) -> list[str]:
        """Return the log lines for an operator."""
        return warnings_of(self.lines)

    def load(self) -> None:
        for partition in range(PARTITIONS):
            loading = self.coordinator.begin_load(partition)
            transactions = OpenRecords()
            for entry in self.log.get(partition, ()):
                if isinstance(entry, InTransaction):
                    transactions.add_records(entry.producer_id, [entry.record])
                elif isinstance(entry, Ended):
                    for key, value in transactions.end(entry.producer_id, committed=entry.committed):
                        loading.add(key, value)
                else:
                    transactions.overwrite([entry[0]])
                    loading.add(*entry)
            for producer_id, record in transactions.left():
                loading.add_open(producer_id, record)
            self.coordinator.loaded(loading)

    def end_transaction(self, group: str, producer: int, *, epoch: int = 0, committed: bool = True) -> None:
        """The marker in the partition that keeps the group."""
        partition = self.coordinator.partition_of(group)
        self.log.setdefault(partition, []).append(Ended(producer, committed))
        self.coordinator.transaction_ended(partition, producer, epoch, committed=committed)

    def restarted(self, **config: Any) -> "Harness":
        """Another coordinator that reads what this one has written; this one is as if killed."""
        log = {partition: list(records) for partition, records in self.log.items()}
        return Harness(log, load=True, seed=self.seed + 1, verifies=False, **config)

    def _append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
        producer: ProducerEpoch | None,
    ) -> None:
        self.appends += 1
        entries: list[Any] = list(records)
        if producer is not None:
            self.producers.append(producer)
            entries = [InTransaction(producer[0], record) for record in records]
        self.held.append((partition, entries, done))
        if not self.hold:
            self.finish(self.error)

    def _asked(self, request: TxnOffsetCommit, partition: int, observed: Callable[[ErrorCode], None]) -> None:
        self.asked.append((request.transactional_id, partition, observed))

    def finish(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the append that has waited longest."""
        partition, records, done = self.held.pop(0)
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self.log.setdefault(partition, []).extend(records)
        done(error)

    def pass_time(self, ms: float) -> None:
        self.scheduler.advance(ms)

    def _ask(self, handler: Callable[..., None], request: Any, caller: Caller = CALLER) -> Asked:
        asked = Asked()
        handler(request, caller, asked)
        return asked

    # --- requests

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        instance: str | None = None,
        at_once: bool = True,
        metadata: bytes = b"",
        session_ms: int = 10_000,
        protocol_type: str = "consumer",
        protocol: str = "range",
        reply: Callable[[Any], None] | None = None,
    ) -> Asked:
        """With `reply` the answer goes there instead."""
        request = JoinGroup(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[GroupProtocol(protocol, metadata)],
            knows_member_id_required=not at_once,
        )
        asked = Asked()
        self.coordinator.join(request, CALLER, reply or asked)
        return asked

    def sync(self, group: str, member: str, generation: int, assignments: dict[str, bytes] | None = None) -> Asked:
        given = [MemberAssignment(key, value) for key, value in (assignments or {}).items()]
        request = SyncGroup(group_id=group, generation_id=generation, member_id=member, assignments=given)
        return self._ask(self.coordinator.sync, request)

    def heartbeat(self, group: str, member: str, generation: int) -> ErrorCode:
        request = Heartbeat(group_id=group, generation_id=generation, member_id=member)
        return self._ask(self.coordinator.heartbeat, request).error

    def leave(self, group: str, *members: str) -> Any:
        request = LeaveGroup(group_id=group, members=[LeavingMember(member_id=each) for each in members])
        return self._ask(self.coordinator.leave, request).result

    def commit(
        self,
        group: str,
        positions: dict[tuple[str, int], int],
        *,
        member: str = "",
        generation: int = -1,
        metadata: str | None = None,
        retention_ms: int = -1,
        knows_group_id_not_found: bool = False,
    ) -> Asked:
        partitions = [OffsetCommitPartition(*key, offset, 5, metadata) for key, offset in positions.items()]
        request = OffsetCommit(
            group_id=group,
            partitions=partitions,
            generation_id=generation,
            member_id=member,
            retention_ms=retention_ms,
            knows_group_id_not_found=knows_group_id_not_found,
        )
        return self._ask(self.coordinator.commit_offsets, request)

    def commit_in(
        self,
        producer: int,
        group: str,
        positions: dict[tuple[str, int], int],
        *,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        epoch: int = 3,
        adds: bool = False,
    ) -> Asked:
        """In the transaction of this producer; `adds`: of version 2."""
        operations = TransactionSupportedOperation
        request = TxnOffsetCommit(
            transactional_id=f"x{producer}",
            group_id=group,
            producer_id=producer,
            producer_epoch=epoch,
            partitions=[OffsetCommitPartition(*key, offset, 5) for key, offset in positions.items()],
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            supported_operation=operations.ADD_PARTITION if adds else operations.DEFAULT_ERROR,
        )
        return self._ask(self.coordinator.commit_in_transaction, request)

    def committed(self, group: str, *wanted: tuple[str, int], stable: bool = False) -> dict[tuple[str, int], Any]:
        """Offset, or error code, by partition; of all without `wanted`."""
        partitions = [TopicPartition(*each) for each in wanted] or None
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id=group, partitions=partitions)], require_stable=stable)
        (result,) = self._ask(self.coordinator.fetch_offsets, request).result.groups
        assert result.error is ErrorCode.NONE
        return {(each.topic, each.partition): each.error or each.offset for each in result.partitions}

    def fetch_error(self, group: str) -> ErrorCode:
        request = OffsetFetch(groups=[OffsetFetchGroup(group_id=group)])
        error = self._ask(self.coordinator.fetch_offsets, request).result.groups[0].error
        assert isinstance(error, ErrorCode)
        return error

    def delete_offsets(self, group: str, *partitions: tuple[str, int]) -> Any:
        request = OffsetDelete(group_id=group, partitions=[TopicPartition(*each) for each in partitions])
        return self._ask(self.coordinator.delete_offsets, request).result

    def describe(self, group: str = "g") -> Any:
        return self._ask(self.coordinator.describe_groups, DescribeGroups(group_ids=[group])).result.groups[0]

    def listed(self, *states: str) -> dict[str, str]:
        result = self._ask(self.coordinator.list_groups, ListGroups(states=states)).result
        return {each.group_id: each.state for each in result.groups}

    def delete(self, *groups: str) -> list[ErrorCode]:
        result = self._ask(self.coordinator.delete_groups, DeleteGroups(group_ids=groups)).result
        return [each.error for each in result.groups]

    # --- KIP-848

    def beat(
        self,
        member: str,
        epoch: int = 0,
        *,
        group: str = "g",
        owned: Mapping[bytes, Iterable[int]] | None = None,
        topics: Sequence[str] | None = None,
        connection: int = 0,
        **given: Any,
    ) -> Asked:
        """Send a heartbeat of a member; with epoch 0 it joins, and names the topics `t` unless others are given."""
        if epoch == 0:
            topics = ["t"] if topics is None else topics
            given = {"rebalance_timeout_ms": 30_000, **given}
            owned = {} if owned is None else owned
        request = ConsumerGroupHeartbeat(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            topic_partitions=None
            if owned is None
            else [TopicIdPartitions(topic_id, list(numbers)) for topic_id, numbers in owned.items()],
            **given,
        )
        caller = evolve(CALLER, connection=connection)
        return self._ask(self.coordinator.consumer_group_heartbeat, request, caller)

    def describe_consumers(self, group: str = "g") -> ConsumerGroupDescription:
        request = ConsumerGroupDescribe(group_ids=[group])
        result = self._ask(self.coordinator.describe_consumer_groups, request).result
        assert isinstance(result, ConsumerGroupDescribeResult)
        return result.groups[0]

    def stable(self, group: str = "g", metadata: bytes = b"", **given: Any) -> tuple[str, int]:
        """Make a group of one member that has its assignment; return its id and generation."""
        join = self.join(group, metadata=metadata, **given).result
        assert not self.sync(group, join.member_id, join.generation_id, {join.member_id: b"all"}).error
        return join.member_id, join.generation_id
