"""The coordinator of a broker's groups: every group request but FindCoordinator comes here (facts C6)."""

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from attrs import evolve

from ....ports.broker_api.consumer_groups import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.groups import (
    DeleteGroups,
    DeleteGroupsResult,
    DescribeGroups,
    DescribeGroupsResult,
    GroupDescription,
    GroupMember,
    GroupOutcome,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeftMember,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
    PartitionOutcome,
    SyncGroup,
    SyncGroupResult,
)
from ....ports.broker_api.operations import GROUP_OPERATIONS
from ....ports.broker_api.transactions import TransactionSupportedOperation, TxnOffsetCommit, TxnOffsetCommitResult
from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.report import info
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.types import TopicPartition
from ...share.persister import Persister
from ...traffic.steps import StepRunner, Steps
from ..runtime import Append
from .assignors import PartitionAssignor, ServerRangeAssignor, UniformAssignor
from .classic_group import ClassicGroup
from .config import GroupCoordinatorConfig
from .consumer_group import ConsumerGroup
from .counters import GroupCounters
from .entry import GroupEntry, GroupTable
from .expressions import TopicExpressions
from .group import Group, GroupType
from .group_config import GroupConfigManager
from .loading import Loading
from .member import metadata_bytes, protocols_by_name
from .modern_group import GroupContext, TopicsView
from .positions import Positions, TopicIdOf, tombstones
from .shard import GroupShard, commit_error, group_error
from .share_group import ShareGroup
from .share_groups import FindEnds, ShareGroups, forget_topics
from .states import GroupState
from .subscription import CONSUMER_PROTOCOL

ASSIGNORS: Sequence[PartitionAssignor] = (UniformAssignor(), ServerRangeAssignor())
Describable = Callable[[Caller, Collection[str]], Collection[str]]
_EXPIRE_AT_ONCE = 1000
"""The number of groups whose old positions expire in one step, before other work gets its turn."""
_ID_PREFIX_MAX = 255


# ListGroups and DescribeGroups: answers built in steps, since they may be large.

_GROUPS_PER_STEP = 64


def list_groups(table: GroupTable, request: ListGroups) -> Steps[ListGroupsResult]:
    """Return the groups in the requested states, of the requested types."""
    states = {state.lower() for state in request.states}
    types = {kind.lower() for kind in request.types}
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if table.is_loading else ErrorCode.NONE
    groups = []
    for number, entry in enumerate(tuple(table), 1):
        group = entry.group
        if (
            table.is_current(entry)
            and (not types or group.group_type.value in types)
            and (not states or group.state.value.lower() in states)
        ):
            groups.append(_listed(group))
        if not number % _GROUPS_PER_STEP:
            yield None
    return ListGroupsResult(groups=groups, error=error)


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        state=group.state.value,
        group_type=group.group_type.value,
    )


def describe_groups(table: GroupTable, request: DescribeGroups) -> Steps[DescribeGroupsResult]:
    """Return the description of each requested group, once."""
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        group = _described(table, group_id)
        if request.include_authorized_operations and group.error is ErrorCode.NONE:
            group = evolve(group, authorized_operations=GROUP_OPERATIONS)  # every client may do everything
        groups.append(group)
        yield None
    return DescribeGroupsResult(groups=groups)


def _described(table: GroupTable, group_id: str) -> GroupDescription:
    error = table.check_key(group_id, may_be_empty=True)
    entry = table.get(group_id) if error is ErrorCode.NONE else None
    if entry is None:
        state = GroupState.DEAD.value if error is ErrorCode.NONE else ""
        return GroupDescription(group_id=group_id, state=state, error=error)
    group = entry.group
    if not isinstance(group, ClassicGroup):
        text = f"Group {group_id} is not a classic group."
        return GroupDescription(
            group_id=group_id, state=GroupState.DEAD.value, error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text
        )
    protocol = group.protocol or "" if group.state is GroupState.STABLE else None
    members = [
        GroupMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            metadata=b"" if protocol is None else each.protocols.get(protocol, b""),
            assignment=b"" if protocol is None else each.assignment,
        )
        for each in group.roster
    ]
    return GroupDescription(
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol or "",
        members=members,
    )


def describe_consumer_groups(table: GroupTable, request: ConsumerGroupDescribe) -> Steps[ConsumerGroupDescribeResult]:
    """Return the description of each requested consumer group, once."""
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        described = _described_consumer_group(table, group_id)
        if request.include_authorized_operations and described.error is ErrorCode.NONE:
            described = evolve(described, authorized_operations=GROUP_OPERATIONS)
        groups.append(described)
        yield None
    return ConsumerGroupDescribeResult(groups=groups)


def _described_consumer_group(table: GroupTable, group_id: str) -> ConsumerGroupDescription:
    error, text = table.check_key(group_id), None
    entry = table.get(group_id) if error is ErrorCode.NONE else None
    if entry is not None and isinstance(entry.group, ConsumerGroup):
        return entry.group.describe()
    if error is ErrorCode.NONE:
        error = ErrorCode.GROUP_ID_NOT_FOUND
        text = f"Group {group_id} " + ("not found." if entry is None else "is not a consumer group.")
    return ConsumerGroupDescription(group_id=group_id, error=error, error_message=text)


# ConsumerGroupHeartbeat: what is wrong with a request, whatever the group is like.


def invalid_heartbeat(request: ConsumerGroupHeartbeat, config: GroupCoordinatorConfig) -> ApiError | None:
    """Return the error of a request that no group accepts, or None."""
    text = _invalid_field(request)
    if not text and request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
        text = _incomplete_join(request)
    if text:
        return ApiError(ErrorCode.INVALID_REQUEST, text)
    names = request.subscribed_topic_names or ()
    if sum(map(len, names)) > config.member_metadata_max_bytes:
        return ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames are too long.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.group_consumer_assignors:
        known = ", ".join(config.group_consumer_assignors)
        return ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {known}.",
        )
    return None


def _invalid_field(request: ConsumerGroupHeartbeat) -> str:
    if not request.member_id and (request.makes_member_id or request.member_epoch != JOIN_GROUP_MEMBER_EPOCH):
        return "MemberId can't be empty."
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id is not None and not request.instance_id:
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id:
        return "RackId can't be empty."
    if request.member_epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        return f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return ""


def _incomplete_join(request: ConsumerGroupHeartbeat) -> str:
    if request.rebalance_timeout_ms < 0:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return ""


# TxnOffsetCommit: positions that count when the transaction of a producer commits (facts C6, KIP-447).

_IN_THE_LOG = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Outcomes of an append whose records the marker is going to end."""

_SAID_OF_THE_TRANSACTION = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

VerifyCallback = Callable[[ErrorCode], None]
Verify = Callable[[TxnOffsetCommit, int, VerifyCallback], None]
"""Asks the coordinator of the transaction if this partition of `__consumer_offsets` belongs to it, or to add the
partition (KIP-890)."""


class _Question:
    """A request that waits for the transaction's coordinator.

    In version 2 a marker has the epoch after that of its transaction (KIP-890): one with the epoch of the request
    belongs to the transaction before.
    """

    __slots__ = ("_epoch", "is_late")

    def __init__(self, request: TxnOffsetCommit) -> None:
        adds = request.supported_operation is TransactionSupportedOperation.ADD_PARTITION
        self._epoch = request.producer_epoch if adds else -1
        self.is_late = False
        """A marker has ended the transaction meanwhile."""

    def ended(self, epoch: int) -> None:
        """Note a marker of this epoch."""
        self.is_late = self.is_late or epoch > self._epoch


class TransactionalPositions:
    """The offset commits of transactional producers, from the request to the marker. Owner thread only.

    The first commit of a transaction is verified, or adds the partition: a late one, after the marker, would wait for
    the next transaction of its producer, or for ever.
    """

    def __init__(self, shard: GroupShard, positions: Positions, verify: Verify | None) -> None:
        self._shard = shard
        self._runtime = shard.runtime
        self._positions = positions
        self._verify = verify
        self._asking: dict[tuple[int, int], list[_Question]] = {}
        """By partition of `__consumer_offsets` and producer."""

    def commit(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        """Commit the positions; the reply comes when the in-sync replicas have them."""
        error = self._refusal(request)
        if error is not ErrorCode.NONE:
            self._refuse(request, reply, error)
        elif self._verify is None or self._is_open(request):
            self._write(request, reply)
        else:
            self._ask(self._verify, request, reply)

    def ended(self, partition: int, producer_id: int, epoch: int, *, committed: bool) -> None:
        """End the producer's transaction: the in-sync replicas of this partition of `__consumer_offsets` have the
        marker."""
        runtime = self._runtime
        for question in self._asking.get((partition, producer_id), ()):
            question.ended(epoch)
        for group_id in self._shard.transactions.end(partition, producer_id):
            entry = self._shard.table.get(group_id)
            if entry is not None:
                self._shard.counters.commits.add(entry.offsets.end(producer_id, committed=committed))
                runtime.on_event(entry)

    def _refusal(self, request: TxnOffsetCommit) -> ErrorCode:
        table = self._shard.table
        error = table.check_key(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        if request.producer_id < 0 or request.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        entry = table.get(request.group_id)
        if entry is None:
            return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return entry.group.check_transactional_commit(request)

    def _refuse(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult], error: ErrorCode) -> None:
        failed = [PartitionOutcome(each.topic, each.partition, error) for each in request.partitions]
        self._runtime.respond(reply, TxnOffsetCommitResult(partitions=failed))

    def _is_open(self, request: TxnOffsetCommit) -> bool:
        table = self._shard.table
        partition = table.partition_of(request.group_id)
        return self._shard.transactions.is_open(partition, request.producer_id, request.producer_epoch)

    def _ask(self, verify: Verify, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        partition, question = self._shard.table.partition_of(request.group_id), _Question(request)
        key = partition, request.producer_id
        self._asking.setdefault(key, []).append(question)

        def on_verified(error: ErrorCode) -> None:
            self._asking[key].remove(question)
            if not self._asking[key]:
                del self._asking[key]
            if error is ErrorCode.NONE:
                error = ErrorCode.INVALID_TXN_STATE if question.is_late else self._refusal(request)
            else:
                error = _verification_error(error, request)
            if error is ErrorCode.NONE:
                self._write(request, reply)
            else:
                self._refuse(request, reply, error)

        verify(request, partition, on_verified)

    def _write(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        runtime, producer_id = self._runtime, request.producer_id
        entry = self._shard.table.get(request.group_id)
        validate = None
        if entry is not None:
            validate = entry.group.commit_validator(request.member_id, request.generation_id)
        accepted = self._positions.accept(request.group_id, request.partitions, validate=validate)
        outcomes = [_transactional_outcome(each) for each in accepted.outcomes]
        accepted = accepted._replace(outcomes=outcomes)
        if not accepted.positions:
            runtime.respond(reply, TxnOffsetCommitResult(partitions=accepted.outcomes))
            return
        entry = entry or self._shard.create(request.group_id)
        # `ended` is called when a marker is replicated, which may be before `done` is called for this write.
        self._shard.transactions.add(entry.partition, producer_id, request.group_id, request.producer_epoch)
        commit = entry.offsets.prepare_commit(accepted.positions, producer_id)

        def done(error: ErrorCode) -> None:
            if error in _IN_THE_LOG:
                entry.offsets.written(commit)
            else:
                entry.offsets.finish(commit, stored=False)
                if self._shard.table.get(request.group_id) is entry and not entry.offsets.is_open(producer_id):
                    self._shard.transactions.discard(entry.partition, producer_id, request.group_id)
            runtime.on_event(entry)
            runtime.respond(reply, TxnOffsetCommitResult(partitions=accepted.build_outcomes(commit_error(error))))

        runtime.write(entry.partition, accepted.records.values(), done, (producer_id, request.producer_epoch))


def _transactional_outcome(outcome: PartitionOutcome) -> PartitionOutcome:
    """Return the outcome in the words of TxnOffsetCommit, which knows no member epochs."""
    if outcome.error is not ErrorCode.STALE_MEMBER_EPOCH:
        return outcome
    return PartitionOutcome(outcome.topic, outcome.partition, ErrorCode.ILLEGAL_GENERATION)


def _verification_error(error: ErrorCode, request: TxnOffsetCommit) -> ErrorCode:
    """Return the client's error for a failed verification; temporary errors become one that the client retries."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_default = request.supported_operation is TransactionSupportedOperation.DEFAULT_ERROR
    if error is ErrorCode.INVALID_TXN_STATE and not is_default:
        return ErrorCode.TRANSACTION_ABORTABLE
    return error if error in _SAID_OF_THE_TRANSACTION else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class GroupCoordinator:
    """The handlers take `(request, caller, reply)` as in every service, and reply exactly once. Owner thread only.

    A partition of `__consumer_offsets` that this broker comes to lead goes through `begin_load`, then `loaded`; one
    that it no longer leads through `unload`. Requests of its groups get NOT_COORDINATOR before `begin_load`, and
    COORDINATOR_LOAD_IN_PROGRESS from there to `loaded`.
    """

    def __init__(
        self,
        *,
        config: GroupCoordinatorConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        entropy: Entropy,
        append: Append,
        topic_id_of: TopicIdOf,
        topics: TopicsView,
        report: Callable[[str], None],
        leads: Callable[[int], bool] = lambda _: True,
        counters: GroupCounters | None = None,
        configs: GroupConfigManager | None = None,
        steps: StepRunner | None = None,
        verify: Verify | None = None,
        persister: Persister | None = None,
        find_ends: FindEnds = lambda _, done: done({}),
        describable: Describable = lambda _, names: names,
    ) -> None:
        """`topic_id_of` returns the topic id of an existing partition, `topics` are those of modern groups, `configs`
        the settings of single groups, `partition_count` is that of `__consumer_offsets`, and `leads` is true while this
        broker may still answer for one of them. Long answers run on `steps`, in turn with other work (None: a runner of
        its own). `verify`: see `TransactionalPositions`; None: nothing is verified. `persister` and `find_ends`: see
        `ShareGroups`; without a persister there are none. `describable` returns those of the topics that the caller may
        describe: regular expressions of subscriptions stand for no others."""
        steps = steps or StepRunner(scheduler, clock, lambda error: report(f"a reply failed: {error}"))
        self._shard = GroupShard(
            config=config,
            partition_count=partition_count,
            clock=clock,
            scheduler=scheduler,
            append=append,
            leads=leads,
            steps=steps,
            report=report,
            counters=counters or GroupCounters(),
            context=GroupContext(
                config=config,
                configs=configs or GroupConfigManager(),
                topics=topics,
                assignors=_assignors(config.group_consumer_assignors),
            ),
            persister=persister,
        )
        self.share_groups = None if persister is None else ShareGroups(self._shard, persister, find_ends)
        """The requests of share groups; None without a persister."""
        self._runtime = self._shard.runtime
        self._table = self._shard.table
        self._entropy = entropy
        self._positions = Positions(self._shard, topic_id_of)
        self._transactional = TransactionalPositions(self._shard, self._positions, verify)
        self._steps = steps
        self._expressions = TopicExpressions()
        self._describable = describable
        self._pending_ids: deque[tuple[str, str]] = deque()
        self._pending_bytes = 0
        self._expiry: Timer | None = None

    @property
    def context(self) -> GroupContext:
        """The settings and topics of modern groups, which stay the same object."""
        return self._shard.context

    @property
    def config(self) -> GroupCoordinatorConfig:
        """The settings; they may be replaced at any time and apply from the next event on."""
        return self._shard.config

    @config.setter
    def config(self, config: GroupCoordinatorConfig) -> None:
        self._shard.config = config

    @property
    def partition_count(self) -> int:
        """The partition count of `__consumer_offsets`; it may be set before the first `begin_load`."""
        return self._table.partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        self._table.partition_count = count

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions of `__consumer_offsets` that are here, including those being loaded."""
        return self._table.partitions

    @property
    def loaded_partitions(self) -> Sequence[int]:
        """The partitions of `__consumer_offsets` whose groups are all here."""
        return self._table.loaded

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` whose leader coordinates the group (for FindCoordinator)."""
        return self._table.partition_of(group_id)

    # --- the partitions that are here

    def start(self) -> None:
        """Expire old positions every offsets.retention.check.interval.ms from now on."""
        self._expiry = self._runtime.scheduler.call_later(
            self.config.offsets_retention_check_interval_ms, self._expire_and_again
        )

    def close(self) -> None:
        """Unload all partitions: every waiting request is answered with NOT_COORDINATOR."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for partition in self.partitions:
            self.unload(partition)

    def begin_load(self, partition: int) -> Loading:
        """Begin to load a partition that this broker leads. Feed its records to the returned object (on any thread),
        then call `loaded`."""
        self.unload(partition)
        return self._runtime.begin_load(Loading(partition))

    def loaded(self, loading: Loading) -> None:
        """End the loading of a partition that was read to its end. A no-op if it was unloaded or begun again since."""
        if self._shard.restore(loading):
            self._positions.drop_from_log(loading.partition, loading.stale)

    def is_wanted(self, loading: Loading) -> bool:
        """Return True while the coordinator waits for this load to end (`loaded`)."""
        return self._table.is_wanted(loading)

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads; every waiting request is answered with NOT_COORDINATOR."""
        self._shard.unload(partition)

    def partitions_deleted(
        self, topic_id: bytes, partitions: Collection[TopicPartition], *, stored_in: int | None = None
    ) -> None:
        """Forget the positions in deleted partitions of the topic with this id, in all groups or only in those that
        the partition `stored_in` of `__consumer_offsets` stores (loaded with positions in deleted partitions)."""
        self._positions.forget_partitions(topic_id, partitions, stored_in)
        forget_topics(tuple(self._table), topic_id, self._shard)

    # --- how much there is

    def group_count(self, state: GroupState | None = None, group_type: GroupType | None = None) -> int:
        """Return the number of groups, or of those in that state and of that type. Any thread."""
        return sum(
            (state is None or entry.group.state is state)
            and (group_type is None or entry.group.group_type is group_type)
            for entry in tuple(self._table)
        )

    def offset_count(self) -> int:
        """Return the number of committed positions in all groups. Any thread."""
        return sum(len(entry.offsets) for entry in tuple(self._table))

    def committed(self) -> list[tuple[str, TopicPartition, int]]:
        """Return group, partition and committed position for all groups. Any thread."""
        return [
            (entry.group.group_id, tp, position.offset)
            for entry in tuple(self._table)
            for tp, position in entry.offsets.items()
        ]

    def member_counts(self) -> list[tuple[str, int]]:
        """Return each group with the number of its members. Any thread."""
        return [(entry.group.group_id, entry.group.member_count) for entry in tuple(self._table)]

    # --- members

    def join(self, request: JoinGroup, caller: Caller, reply: Reply[JoinGroupResult]) -> None:
        runtime = self._runtime
        error = self._refuse_join(request)
        if error is not ErrorCode.NONE:
            runtime.respond(reply, JoinGroupResult(error=error, member_id=request.member_id))
            return
        entry = self._table.get(request.group_id) or self._shard.create(request.group_id)
        fresh_id = "" if request.member_id else self._fresh_id(request.group_instance_id or caller.client_id or "")
        group = entry.group
        if isinstance(group, ConsumerGroup) and group.members:
            wall_ms = runtime.clock.now_ms()
            runtime.apply(entry, group.join_classic(request, caller, reply, self._shard.now_ms, wall_ms, fresh_id))
            return
        if not isinstance(group, ClassicGroup):
            group = ClassicGroup(request.group_id, self.config)
            self._shard.replace(entry, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shard
        effects = group.join(request, caller, reply, shard.now_ms, fresh_id, shard.context.num_partitions)
        is_pending = fresh_id in group.pending_members
        runtime.apply(entry, effects)
        if is_pending:
            self._remember_promise(request.group_id, fresh_id)

    def sync(self, request: SyncGroup, _caller: Caller, reply: Reply[SyncGroupResult]) -> None:
        error, entry, group = self._find(request.group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            self._runtime.apply(entry, entry.group.sync_classic(request, reply, self._shard.now_ms))
            return
        if entry is None or group is None:
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = ErrorCode.REBALANCE_IN_PROGRESS  # the member joins again, which it can retry
            self._runtime.respond(reply, SyncGroupResult(error=error))
            return
        self._runtime.apply(entry, group.sync(request, reply, self._shard.now_ms))

    def heartbeat(self, request: Heartbeat, _caller: Caller, reply: Reply[HeartbeatResult]) -> None:
        error, entry, group = self._find(request.group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            wall_ms = self._runtime.clock.now_ms()
            error, effects = entry.group.heartbeat_classic(request, self._shard.now_ms, wall_ms)
            self._runtime.apply(entry, effects)
        elif group is not None:
            error = group.heartbeat(request, self._shard.now_ms)
        elif error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.NONE  # no session ends before the group is loaded
        self._runtime.respond(reply, HeartbeatResult(error=error))

    def leave(self, request: LeaveGroup, _caller: Caller, reply: Reply[LeaveGroupResult]) -> None:
        error, entry, group = self._find(request.group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            self._runtime.apply(entry, entry.group.leave_classic(request, reply))
        elif entry is not None and group is not None:
            self._runtime.apply(entry, group.leave(request, reply, self._shard.now_ms))
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            left = [
                LeftMember(member_id=each.member_id, group_instance_id=each.group_instance_id, error=error)
                for each in request.members
            ]
            self._runtime.respond(reply, LeaveGroupResult(members=left))
        else:
            self._runtime.respond(reply, LeaveGroupResult(error=error))

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, caller: Caller, reply: Reply[ConsumerGroupHeartbeatResult]
    ) -> None:
        shard = self._shard
        ready = self._table.find_ready(request.group_id)
        # An answer that changes nothing may go at once unless records or effects are under way, or the timer is to be
        # set.
        if (
            ready is not None
            and ready.last_write is None
            and ready.timer is not None
            and not self._runtime.is_executing
        ):
            group = ready.group
            if isinstance(group, ConsumerGroup):
                steady = group.steady_heartbeat(request, caller, self._runtime.clock.monotonic_ms())
                if steady is not None:
                    reply(steady)
                    return
        error = invalid_heartbeat(request, self.config)
        try:
            if error is not None:
                raise error
            if request.subscribed_topic_regex:
                self._expressions.check(request.subscribed_topic_regex)
            entry, group = self._find_consumer_group(request)
            if request.member_id not in group.members and self._runtime.size_bytes >= self.config.members_max_bytes:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker has too many members")
        except ApiError as refused:
            self._runtime.respond(reply, request.failed(refused))
            return
        if not request.member_id:
            request = evolve(request, member_id=urlsafe_b64encode(self._entropy.token(16)).decode().rstrip("="))
        if request.member_epoch >= JOIN_GROUP_MEMBER_EPOCH and (
            request.subscribed_topic_regex or group.has_expressions
        ):
            self._resolve_expressions(entry, group, request, caller)
        wall_ms = self._runtime.clock.now_ms()
        self._runtime.apply(entry, group.heartbeat(request, caller, reply, shard.now_ms, wall_ms))

    def _resolve_expressions(
        self, entry: GroupEntry, group: ConsumerGroup, request: ConsumerGroupHeartbeat, caller: Caller
    ) -> None:
        """Find the topics of the group's regular expressions if that is due: a short search is over before the
        heartbeat is handled, a longer one takes turns with other work and the next heartbeats have its result."""
        texts = group.expressions_to_resolve(request, self._shard.now_ms)
        if not texts:
            return
        topics, is_before = self._shard.context.topics, True
        version = topics.version

        def done(outcome: Outcome[Mapping[str, frozenset[str]]]) -> None:
            if outcome.value is None:
                group.resolution_failed()
                self._runtime.report(f"group {group.group_id}: topics could not be found: {outcome.error}")
                return
            times = self._shard.now_ms, self._runtime.clock.now_ms()
            if is_before:
                group.take_expressions(outcome.value, version, *times)
            elif self._table.is_current(entry) and entry.group is group:
                self._runtime.apply(entry, group.expressions_resolved(outcome.value, version, *times))

        describable = partial(self._describable, caller)
        self._steps.run(self._expressions.resolve(texts, topics.names(), describable), done)
        is_before = False

    # --- positions

    def commit_offsets(self, request: OffsetCommit, _caller: Caller, reply: Reply[OffsetCommitResult]) -> None:
        self._positions.commit(request, reply)

    def commit_in_transaction(
        self, request: TxnOffsetCommit, _caller: Caller, reply: Reply[TxnOffsetCommitResult]
    ) -> None:
        self._transactional.commit(request, reply)

    def transaction_ended(self, partition: int, producer_id: int, epoch: int, *, committed: bool) -> None:
        """End a producer's transaction: the in-sync replicas of this partition of `__consumer_offsets` have its marker.
        While the partition is being loaded the call is not needed: the loader reads the marker."""
        self._transactional.ended(partition, producer_id, epoch, committed=committed)

    def fetch_offsets(self, request: OffsetFetch, caller: Caller, reply: Reply[OffsetFetchResult]) -> None:
        self._runtime.respond_in_steps(self._positions.fetch(request), caller, reply)

    def delete_offsets(self, request: OffsetDelete, _caller: Caller, reply: Reply[OffsetDeleteResult]) -> None:
        self._positions.delete(request, reply)

    # --- administration

    def describe_groups(self, request: DescribeGroups, caller: Caller, reply: Reply[DescribeGroupsResult]) -> None:
        self._runtime.respond_in_steps(describe_groups(self._table, request), caller, reply)

    def describe_consumer_groups(
        self, request: ConsumerGroupDescribe, caller: Caller, reply: Reply[ConsumerGroupDescribeResult]
    ) -> None:
        self._runtime.respond_in_steps(describe_consumer_groups(self._table, request), caller, reply)

    def list_groups(self, request: ListGroups, caller: Caller, reply: Reply[ListGroupsResult]) -> None:
        self._runtime.respond_in_steps(list_groups(self._table, request), caller, reply)

    def delete_groups(self, request: DeleteGroups, _caller: Caller, reply: Reply[DeleteGroupsResult]) -> None:
        outcomes: dict[str, ErrorCode] = {}
        wanted = tuple(dict.fromkeys(request.group_ids))

        def done(group_id: str, error: ErrorCode) -> None:
            outcomes[group_id] = error
            if len(outcomes) == len(wanted):
                result = [_deletion(each, outcomes[each]) for each in request.group_ids]
                self._runtime.respond(reply, DeleteGroupsResult(groups=result))

        for group_id in wanted:
            self._delete(group_id, done)
        if not wanted:
            self._runtime.respond(reply, DeleteGroupsResult(groups=[]))

    # --- within

    def _find(self, group_id: str) -> tuple[ErrorCode, GroupEntry | None, ClassicGroup | None]:
        """Return a classic group, or the error; a consumer group, which may have members with the classic protocol, as
        the entry alone."""
        error = self._table.check_key(group_id)
        entry = self._table.get(group_id) if error is ErrorCode.NONE else None
        group = None if entry is None else entry.group
        if isinstance(group, ClassicGroup):
            return error, entry, group
        if isinstance(group, ConsumerGroup):
            return error, entry, None
        return (ErrorCode.UNKNOWN_MEMBER_ID if error is ErrorCode.NONE else error), None, None

    def _find_consumer_group(self, request: ConsumerGroupHeartbeat) -> tuple[GroupEntry, ConsumerGroup]:
        """Return the group of a heartbeat, a new one for the first member. Raises `ApiError`."""
        group_id = request.group_id
        error = self._table.check_key(group_id)
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"The group {group_id} cannot be served here and now.")
        entry = self._table.get(group_id)
        group = None if entry is None else entry.group
        if entry is not None and isinstance(group, ConsumerGroup):
            return entry, group
        joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        if entry is None:
            if not joins:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = ConsumerGroup(group_id, self._shard.context)
            return self._shard.create(group_id, group), group
        classic = entry.group
        if not joins or not isinstance(classic, ClassicGroup) or not self._may_upgrade(classic):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        group = ConsumerGroup(group_id, self._shard.context)
        if not classic.is_unused:
            group.upgrade(classic, self._shard.now_ms)
        self._shard.replace(entry, group, ErrorCode.REBALANCE_IN_PROGRESS)
        return entry, group

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        """Return True if the group may become a consumer group (`group.consumer.migration.policy`)."""
        if group.is_unused:
            return True
        is_small = len(group.roster) <= self.config.group_consumer_max_size
        return is_small and self.config.allows_upgrade and group.protocol_type in (None, CONSUMER_PROTOCOL)

    def _refuse_join(self, request: JoinGroup) -> ErrorCode:
        error, config = self._table.check_key(request.group_id), self.config
        if error is not ErrorCode.NONE:
            return error
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if metadata_bytes(protocols_by_name(request.protocols)) > config.member_metadata_max_bytes:
            return ErrorCode.UNKNOWN_SERVER_ERROR  # as later for all members, when their group could not be written
        entry = self._table.get(request.group_id)
        if entry is None and request.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group = None if entry is None else entry.group
        if isinstance(group, ConsumerGroup) and group.members:
            has_room = request.member_id in group.members or self._runtime.size_bytes < config.members_max_bytes
            return ErrorCode.NONE if has_room else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group is not None and not isinstance(group, ClassicGroup):
            if group.is_unused and group.group_type is GroupType.CONSUMER:
                return ErrorCode.NONE if not request.member_id else ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_member = group is not None and request.member_id in group.roster
        if not is_member and self._runtime.size_bytes >= config.members_max_bytes:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _fresh_id(self, prefix: str) -> str:
        """Return a new member id in Kafka's form: the member's own name and a UUID."""
        token = self._entropy.token(16).hex()
        parts = (token[:8], token[8:12], token[12:16], token[16:20], token[20:])
        return "-".join((prefix[:_ID_PREFIX_MAX], *parts))

    def _remember_promise(self, group_id: str, member_id: str) -> None:
        """Note a member id that was given out; beyond the limits of the settings the oldest ones are forgotten."""
        config = self.config
        self._pending_ids.append((group_id, member_id))
        self._pending_bytes += len(group_id) + len(member_id)
        while len(self._pending_ids) > config.pending_ids_max or self._pending_bytes > config.pending_bytes_max:
            oldest_group, oldest_id = self._pending_ids.popleft()
            self._pending_bytes -= len(oldest_group) + len(oldest_id)
            entry = self._table.get(oldest_group)
            group = None if entry is None else entry.group
            if entry is not None and isinstance(group, ClassicGroup):
                self._runtime.apply(entry, group.remove_pending_member(oldest_id, self._shard.now_ms))

    def _delete(self, group_id: str, done: Callable[[str, ErrorCode], None]) -> None:
        error = self._table.check_key(group_id, may_be_empty=True)
        entry = self._table.get(group_id)
        if error is ErrorCode.NONE and entry is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif error is ErrorCode.NONE and entry is not None and entry.group.state is not GroupState.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        if error is not ErrorCode.NONE or entry is None:
            done(group_id, error)
        elif isinstance(entry.group, ShareGroup) and entry.group.has_state:

            def deleted(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    self._delete(group_id, done)
                else:
                    done(group_id, error)

            self._runtime.apply(entry, entry.group.delete_all_state(deleted))
        else:
            self._end(entry, done)

    def _end(self, entry: GroupEntry, done: Callable[[str, ErrorCode], None]) -> None:
        """Delete a group without members."""
        group_id = entry.key
        self._runtime.report(info(f"group {group_id} was deleted", group=group_id))
        records = [*tombstones(entry, entry.offsets.forget_all()), *entry.ended, *entry.group.tombstones()]
        self._shard.remove(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def written(error: ErrorCode) -> None:
            self._runtime.report_failed_write(f"the end of group {group_id}", entry.partition, error)
            done(group_id, group_error(error))

        self._runtime.write(entry.partition, records, written)

    def _expire_and_again(self) -> None:
        entries = tuple(self._table)

        def expire(start: int) -> None:
            self._positions.expire(entries[start : start + _EXPIRE_AT_ONCE])
            if self._expiry is None:
                return
            if start + _EXPIRE_AT_ONCE < len(entries):
                self._expiry = self._runtime.scheduler.call_later(0, lambda: expire(start + _EXPIRE_AT_ONCE))
            else:
                self.start()

        expire(0)


def _assignors(names: Sequence[str]) -> Mapping[str, PartitionAssignor]:
    """Return the assignors with these names, the default one first."""
    known = {assignor.name: assignor for assignor in ASSIGNORS}
    return {name: known[name] for name in names}


def _deletion(group_id: str, error: ErrorCode) -> GroupOutcome:
    """Return the outcome of a group's deletion, with Kafka's message for errors that the client can act on."""
    text = None
    if error is ErrorCode.NON_EMPTY_GROUP:
        text = f"Group {group_id} is not empty."
    elif error is ErrorCode.GROUP_ID_NOT_FOUND:
        text = f"Group {group_id} not found."
    return GroupOutcome(group_id=group_id, error=error, error_message=text)
