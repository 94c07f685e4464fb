"""A consumer group by KIP-848: heartbeats, reconciliation, and the epochs that fence members.

The group is a state machine without a clock, like `ClassicGroup`. What a member owns, or has not confirmed to have
given up, belongs to it in `_owners`; a partition goes to another member only when it is out of there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import NamedTuple
from zlib import crc32

from attrs import field

from ....ports.broker_api.consumer_groups import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupMember,
)
from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.groups import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeftMember,
    OffsetCommit,
    OffsetFetchGroup,
    SyncGroup,
    SyncGroupResult,
)
from ....ports.broker_api.transactions import TxnOffsetCommit
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define
from ..log import Record
from .assignors import PartitionAssignor, Partitions
from .classic_group import ClassicGroup
from .consumer_records import (
    ClassicMemberMetadata,
    ConsumerRecord,
    StoredConsumerAssignment,
    StoredConsumerGroup,
    StoredConsumerMember,
    encode_current,
    encode_epoch,
    encode_expression,
    encode_key,
    encode_member,
    encode_target,
    tombstones,
)
from .effects import Answer, Effects, OnWritten, To
from .expressions import GroupExpressions
from .group import CommitPartitionValidator, GroupType
from .member import Member, metadata_bytes, protocols_by_name, rebalance_timeout_ms
from .modern_group import (
    GroupContext,
    MemberState,
    ModernGroup,
    ModernMember,
    RecordKey,
    RecordKind,
    Timeout,
    by_topic,
    heartbeat_error,
    partitions_of,
)
from .subscription import (
    CONSUMER_PROTOCOL,
    EmbeddedSubscription,
    NamedPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

MEMBER_TYPE_CLASSIC, MEMBER_TYPE_CONSUMER = 0, 1
_WAITING_INTERVAL_MS = 1000
_EARLIER_LEAST, _EARLIER_SPREAD = 0.05, 0.10
"""Members of a group of several are asked to come earlier than in the interval, by this part of it and by up to so much
more, each by another part."""

PartitionEpochs = dict[bytes, dict[int, int]]
"""Partitions by topic id, each with the epoch in which the member got it (KIP-1251)."""


@define(kw_only=True, eq=False)
class ConsumerMember(ModernMember):
    """One member. `member_epoch` -2: a static member that has left and is going to return."""

    group_instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    subscribed_topic_regex: str | None = None
    classic: ClassicMemberMetadata | None = None
    """The protocols of a member with the classic protocol; None for others."""
    assigned: PartitionEpochs = field(factory=dict)
    revoking: PartitionEpochs = field(factory=dict)
    """Partitions that the member has not yet confirmed to have given up."""
    unconfirmed_on: int | None = field(default=None, init=False)
    """The connection on which the member was sent its assignment, until it confirms it by the partitions that it owns.
    A heartbeat on another connection means that the answer may be lost."""
    heard_on: int = field(default=0, init=False)
    """The connection of the member's last heartbeat. Their numbers grow, so one on an earlier connection is late."""

    @property
    def instance_id(self) -> str | None:
        return self.group_instance_id

    @property
    def has_left(self) -> bool:
        """True for a static member that is expected back."""
        return self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH

    def update(self, request: ConsumerGroupHeartbeat, caller: Caller) -> bool:
        """Take what the heartbeat says of the member, but its topics; return True if something has changed."""
        before = self.rack_id, self.rebalance_timeout_ms, self.server_assignor
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.server_assignor is not None:
            self.server_assignor = request.server_assignor
        is_other_client = self.take_client(caller)
        return is_other_client or before != (self.rack_id, self.rebalance_timeout_ms, self.server_assignor)


class _Next(NamedTuple):
    """The assignment to which a member moves."""

    state: MemberState
    member_epoch: int
    assigned: PartitionEpochs
    revoking: PartitionEpochs


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """The members of one group. Owner thread only."""

    def __init__(self, group_id: str, context: GroupContext) -> None:
        super().__init__(group_id, context)
        self._static: dict[str, str] = {}
        """The member ids of static members, by instance id."""
        self._owners: dict[bytes, dict[int, str]] = {}
        """The member that has each partition, or has yet to give it up."""
        self._assignor_votes: Counter[str] = Counter()
        self._expressions = GroupExpressions()
        self._classic: set[str] = set()
        """The members with the classic protocol."""

    @classmethod
    def restored(
        cls, group_id: str, context: GroupContext, stored: StoredConsumerGroup, now_ms: float
    ) -> "ConsumerGroup":
        """Return a group read from the log; its members have a whole session timeout to show that they live."""
        group = cls(group_id, context)
        group.group_epoch, group.metadata_hash = max(1, stored.epoch), stored.metadata_hash
        group.target_epoch, group.target_timestamp_ms = stored.target_epoch, stored.target_timestamp_ms
        group.target = {member_id: target for member_id, target in stored.target.items() if member_id in stored.members}
        group._expressions.resolved = dict(stored.expressions)
        for each in stored.members.values():
            member = _restored_member(each, stored.current.get(each.member_id, StoredConsumerAssignment()))
            member.knows_assignment = False  # the last answer of the former coordinator may be lost
            group._own(member)
            group._add_member(member)
            if member.group_instance_id is not None:
                group._static[member.group_instance_id] = member.member_id
            group._vote(member.server_assignor, 1)
            group._refresh_session(member.member_id, now_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                group._deadlines.set((Timeout.REBALANCE, member.member_id), now_ms + member.rebalance_timeout_ms)
        return group

    # --- what others may know

    @property
    def group_type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    def tombstones(self) -> list[Record]:
        """Return the records that take the group, its members, and those whose end is not written, out of the log."""
        if not self.is_stored:
            return []
        unwritten = [(self._record(key)[0], None) for key in self._unwritten]
        return [*unwritten, *tombstones(self.group_id, self.members, self._expressions.resolved)]

    def describe(self) -> ConsumerGroupDescription:
        """Return the group as ConsumerGroupDescribe shows it."""
        members = [
            ConsumerGroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                rack_id=each.rack_id,
                member_epoch=each.member_epoch,
                client_id=each.client_id,
                client_host=each.client_host,
                subscribed_topic_names=sorted(each.subscribed_topic_names),
                subscribed_topic_regex=each.subscribed_topic_regex,
                assignment=self._described(each.assigned),
                target_assignment=self._described(self._target_of(each.member_id)),
                member_type=MEMBER_TYPE_CONSUMER if each.classic is None else MEMBER_TYPE_CLASSIC,
            )
            for each in self.members.values()
        ]
        return ConsumerGroupDescription(
            group_id=self.group_id,
            group_state=self.state.value,
            group_epoch=self.group_epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=self._assignor().name,
            members=members,
        )

    # --- heartbeats

    def heartbeat(
        self, request: ConsumerGroupHeartbeat, caller: Caller, to: To, now_ms: float, wall_ms: int
    ) -> Effects:
        """Handle a heartbeat whose fields are valid, in a group that exists. `wall_ms` is the wall-clock time."""
        try:
            self._check_connection(request, caller)
            if request.member_epoch < 0:
                return self._leave(request, to)
            member = self._known_member(request) or self._new_member(request)
        except ApiError as error:
            self._drop_unused_expressions()
            return self._finish(Answer(to, request.failed(error)))
        return self._heartbeat(member, request, caller, to, now_ms, wall_ms)

    def steady_heartbeat(
        self, request: ConsumerGroupHeartbeat, caller: Caller, now_ms: float
    ) -> ConsumerGroupHeartbeatResult | None:
        """Handle a heartbeat that says nothing new, of a member that has nothing to do: it only prolongs the session.

        Return None for any other one, which is for `heartbeat`; nothing has been done then. Almost all heartbeats are
        like this, so that they decide what a group costs.
        """
        member, epoch = self.members.get(request.member_id), self.target_epoch
        if (
            member is None
            or request.member_epoch != epoch
            or member.member_epoch != epoch
            or self.group_epoch != epoch
            or epoch <= 0
            or member.state is not MemberState.STABLE
            or not member.knows_assignment
            or member.unconfirmed_on not in (None, caller.connection)
            or member.heard_on != caller.connection
            or member.classic is not None
            or self._topics_version != self._context.topics.version
            or self._unwritten
            or self._is_dead
            or request.topic_partitions is not None
            or request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None
            or request.rebalance_timeout_ms >= 0
            or (request.instance_id is not None and not self._is_instance(member, request.instance_id))
            or request.rack_id is not None
            or request.server_assignor is not None
            or self._expressions.is_any_used
            or member.client_id != (caller.client_id or "")
            or member.client_host[1:] != caller.host
        ):
            return None
        settings = self._context.configs.get(self.group_id)
        self._deadlines.set((Timeout.SESSION, member.member_id), now_ms + settings.consumer_session_timeout_ms)
        return ConsumerGroupHeartbeatResult(
            member_id=member.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=self._spread_interval_ms(member, settings.consumer_heartbeat_interval_ms),
        )

    def _is_instance(self, member: ConsumerMember, instance_id: str) -> bool:
        """Return True if the member is the static member with this name."""
        return member.group_instance_id == instance_id and self._static.get(instance_id) == member.member_id

    def _heartbeat(
        self,
        member: ConsumerMember,
        request: ConsumerGroupHeartbeat,
        caller: Caller,
        to: To,
        now_ms: float,
        wall_ms: int,
    ) -> Effects:
        member.heard_on = caller.connection
        self._set_classic(member, None)
        is_new = member.member_id not in self.members
        if is_new:
            self._add_member(member)
        if request.instance_id is not None:
            member.group_instance_id = request.instance_id
            self._static[request.instance_id] = member.member_id
        if not self.group_epoch:
            self._raise_epoch()
        has_other_topics = self._update(member, request, caller)
        if has_other_topics or self._refresh_metadata():
            self._raise_epoch()
        self._update_target(now_ms, wall_ms)
        owned = None if request.topic_partitions is None else partitions_of(request.topic_partitions)
        self._reconcile(member, owned, now_ms, is_new=is_new or has_other_topics)
        is_confirmed = owned is not None and _is_all(owned, member.assigned)
        if is_confirmed:
            member.unconfirmed_on = None
        elif member.unconfirmed_on not in (None, caller.connection):
            # librdkafka sends no full heartbeat after one that timed out; in Kafka a partition of a lost answer has no
            # owner until the rebalance timeout, or longer.
            member.knows_assignment = False
        self._refresh_session(member.member_id, now_ms)
        is_full = (
            request.rebalance_timeout_ms >= 0
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and owned is not None
        )
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH or is_full or not member.knows_assignment:
            member.unconfirmed_on = None if is_confirmed else caller.connection
            return self._finish(self._assignment_answer(member, request, to))
        return self._finish(Answer(to, self._result(member), _failure_of(request)))

    def _result(
        self, member: ConsumerMember, assignment: PartitionEpochs | None = None
    ) -> ConsumerGroupHeartbeatResult:
        return ConsumerGroupHeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(member),
            assignment=None if assignment is None else by_topic(assignment),
        )

    def _heartbeat_interval_ms(self, member: ConsumerMember) -> int:
        """Return when the member is to ask again: soon while it waits for an assignment or for partitions of others."""
        interval_ms = self._spread_interval_ms(member, self.settings.consumer_heartbeat_interval_ms)
        is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS or member.member_epoch < self.group_epoch
        return min(interval_ms, _WAITING_INTERVAL_MS) if is_waiting else interval_ms

    def _spread_interval_ms(self, member: ConsumerMember, interval_ms: int) -> int:
        """Return the interval of a member with nothing to do.

        A change of the group reaches each member with its next heartbeat. So that it reaches all of them within the
        configured interval they come a little earlier, and so that members which joined together do not stay together,
        each one by another part. The only member of a group learns of nothing but its own changes.
        """
        if len(self.members) <= 1:
            return interval_ms
        part = crc32(member.member_id.encode()) % 1024 / 1024
        return int(interval_ms * (1.0 - _EARLIER_LEAST - _EARLIER_SPREAD * part))

    def _assignment_answer(self, member: ConsumerMember, request: ConsumerGroupHeartbeat, to: To) -> Answer:
        member.knows_assignment = True

        def on_written(error: ErrorCode) -> ConsumerGroupHeartbeatResult | None:
            if error is ErrorCode.NONE:
                return None
            member.knows_assignment = False
            return request.failed(heartbeat_error(error))

        return Answer(to, self._result(member, member.assigned), on_written)

    # --- the member of a heartbeat

    def _check_connection(self, request: ConsumerGroupHeartbeat, caller: Caller) -> None:
        """Raise `ApiError` for a heartbeat that its member has given up: another one has come by a later connection.

        What it says of partitions is no longer true. Kafka takes it, and may give a partition to a second member.
        """
        member = self.members.get(request.member_id)
        if member is not None and 0 < caller.connection < member.heard_on:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Member {request.member_id} has sent a heartbeat over a later connection than this one.",
            )

    def _known_member(self, request: ConsumerGroupHeartbeat) -> ConsumerMember | None:
        """Return the member, None for one that joins. Raises `ApiError` for one that must join again."""
        if request.instance_id is not None:
            return self._known_static_member(request)
        member = self.members.get(request.member_id)
        if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
            return self._check_epoch(member, request)
        return member

    def _known_static_member(self, request: ConsumerGroupHeartbeat) -> ConsumerMember | None:
        member = self._static_member(request.instance_id)
        if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
            if member is not None and member.member_id != request.member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
                    f"{member.member_id}.",
                )
            return self._check_epoch(member, request)
        if member is None or member.member_id == request.member_id:
            return member or self.members.get(request.member_id)
        if not member.has_left and member.classic is None:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                "because the instance id is owned by another member.",
            )
        return self._replace_static(member, request.member_id)

    def _check_epoch(self, member: ConsumerMember | None, request: ConsumerGroupHeartbeat) -> ConsumerMember:
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group.")
        epoch = request.member_epoch
        if epoch == member.member_epoch:
            return member
        is_lost_answer = (
            epoch == member.previous_member_epoch
            and epoch < member.member_epoch
            and request.topic_partitions is not None
            and all(
                number in member.assigned.get(each.topic_id, ())
                for each in request.topic_partitions
                for number in each.partitions
            )
        )
        if is_lost_answer:
            return member
        size = "greater" if epoch > member.member_epoch else "smaller"
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
        )

    def _new_member(self, request: ConsumerGroupHeartbeat) -> ConsumerMember:
        most = self.config.group_consumer_max_size
        if len(self.members) >= most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )
        member = ConsumerMember(member_id=request.member_id, group_instance_id=request.instance_id)
        self.causes.add(f"{member.member_id} joined")
        return member

    def _static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def _replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a static member return with another id to what it had."""
        target = self._target_of(old.member_id)
        self._expressions.count(old.subscribed_topic_regex, 1)  # or what it stands for would be forgotten meanwhile
        self._forget_member(old)
        member = ConsumerMember(
            member_id=member_id,
            group_instance_id=old.group_instance_id,
            rack_id=old.rack_id,
            client_id=old.client_id,
            client_host=old.client_host,
            subscribed_topic_names=old.subscribed_topic_names,
            subscribed_topic_regex=old.subscribed_topic_regex,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            server_assignor=old.server_assignor,
            classic=old.classic,
            assigned=old.assigned,
        )
        self.target[member_id] = target
        self._own(member)
        self._add_member(member)
        self._count_expression(old.subscribed_topic_regex, -1)
        self._static[old.group_instance_id or ""] = member_id
        self._vote(member.server_assignor, 1)
        for kind in (RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT):
            self._write(kind, member_id)
        return member

    def _update(self, member: ConsumerMember, request: ConsumerGroupHeartbeat, caller: Caller) -> bool:
        """Take what the heartbeat says of the member; return True if its topics are others now."""
        assignor, regex = member.server_assignor, member.subscribed_topic_regex
        is_changed = member.update(request, caller)
        if member.server_assignor != assignor:
            self._vote(assignor, -1)
            self._vote(member.server_assignor, 1)
        is_named = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        is_other = is_named and self._update_topics(member, request)
        is_changed = is_changed or is_other or member.subscribed_topic_regex != regex
        if is_changed or request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            self._write(RecordKind.MEMBER, member.member_id)
        return is_other

    def _update_topics(self, member: ConsumerMember, request: ConsumerGroupHeartbeat) -> bool:
        """Take the topics that the heartbeat names; return True if they are others now."""
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:  # a former static member may have had others
            names, regex = names or (), regex or ""
        before = self._subscription_of(member)
        if names is not None:
            member.subscribed_topic_names = _same_or_new(member.subscribed_topic_names, names)
        former = member.subscribed_topic_regex
        if regex is not None and (regex or None) != former:
            member.subscribed_topic_regex = regex or None
            self._expressions.count(member.subscribed_topic_regex, 1)
        after = self._subscription_of(member)
        is_other = before is not after and before != after
        if is_other:
            self._count_topics(before, -1)
            self._count_topics(after, 1)
            self._update_metadata_hash()
            self._count_size(member)
        if former != member.subscribed_topic_regex:
            self._count_expression(former, -1)
        return is_other

    # --- members with the classic protocol

    @property
    def is_left_to_classic_members(self) -> bool:
        """True if members are there, and all have the classic protocol."""
        return bool(self.members) and len(self._classic) == len(self.members)

    def upgrade(self, classic: ClassicGroup, now_ms: float) -> None:
        """Take the members of a classic group with their partitions; the heartbeat that causes it must follow.

        The metadata hash stays 0, so that the heartbeat leads to a new assignment whatever it says: members may have
        given up partitions for the classic group's next generation.
        Raises `ApiError` GROUP_ID_NOT_FOUND if they cannot be read.
        """
        self.group_epoch = self.target_epoch = max(1, classic.generation)
        read = {each.member_id: read_member(each, classic.protocol) for each in classic.roster}
        has = {member_id: self._claim(member_id, partitions) for member_id, (_, partitions) in read.items()}
        for member_id, (subscription, _) in read.items():
            # In the middle of a rebalance, cooperative members still read what they had before.
            for topic_id, numbers in self._claim(member_id, subscription.owned).items():
                has[member_id].setdefault(topic_id, {}).update(numbers)
        for each in classic.roster:
            subscription, _ = read[each.member_id]
            member = ConsumerMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                subscribed_topic_names=frozenset(subscription.topics),
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                classic=ClassicMemberMetadata(each.session_timeout_ms, tuple(each.protocols.items())),
                member_epoch=self.group_epoch,
                assigned=has[each.member_id],
            )
            self.target[member.member_id] = {
                each_id: frozenset(each_has) for each_id, each_has in member.assigned.items()
            }
            if member.group_instance_id is not None:
                self._static[member.group_instance_id] = member.member_id
            self._add_member(member)
            self._refresh_session(member.member_id, now_ms)
            for kind in (RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT):
                self._write(kind, member.member_id)
        self._write(RecordKind.EPOCH)
        self._write(RecordKind.TARGET_EPOCH)
        self.causes.add(f"it was a classic group with generation {classic.generation}")

    def downgrade(self, now_ms: float) -> tuple[ClassicGroup, Effects]:
        """Return the classic group of the members, which must join again, and the effects of that."""
        members = [
            Member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                session_timeout_ms=each.classic.session_timeout_ms,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                protocols=dict(each.classic.protocols),
                assignment=self._classic_assignment(each),
                is_new=False,
            )
            for each in self.members.values()
            if each.classic is not None
        ]
        return ClassicGroup.of_members(self.group_id, self.config, members, self.group_epoch, now_ms)

    def join_classic(
        self, request: JoinGroup, caller: Caller, to: To, now_ms: float, wall_ms: int, fresh_id: str
    ) -> Effects:
        """Handle a JoinGroup: the member moves on its way to the target at once."""
        try:
            subscription = self._check_classic_join(request)
            member = self._classic_member(request, fresh_id)
        except ApiError as error:
            return self._finish(Answer(to, JoinGroupResult(error=error.code, member_id=request.member_id)))
        if member is None:
            return self._finish(Answer(to, JoinGroupResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=fresh_id)))
        protocols = tuple(protocols_by_name(request.protocols).items())
        self._set_classic(member, ClassicMemberMetadata(request.session_timeout_ms, protocols))
        is_new = member.member_id not in self.members
        if is_new:
            self._add_member(member)
        else:
            self._count_size(member)
        if request.group_instance_id is not None:
            member.group_instance_id = request.group_instance_id
            self._static[request.group_instance_id] = member.member_id
        description = ConsumerGroupHeartbeat(
            group_id=self.group_id,
            member_id=member.member_id,
            member_epoch=JOIN_GROUP_MEMBER_EPOCH,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            subscribed_topic_names=subscription.topics,
            subscribed_topic_regex="",
        )
        if self._update(member, description, caller) or self._refresh_metadata():
            self._raise_epoch()
        self._update_target(now_ms, wall_ms)
        self._reconcile(member, self._by_id(subscription.owned), now_ms, is_new=is_new)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.drop((Timeout.REBALANCE, member.member_id))
        self._refresh_session(member.member_id, now_ms)
        result = JoinGroupResult(
            generation_id=member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols[0][0],
            leader="",
            member_id=member.member_id,
        )

        def failed(error: ErrorCode) -> JoinGroupResult | None:
            return None if error is ErrorCode.NONE else JoinGroupResult(error=error, member_id=member.member_id)

        return self._finish(Answer(to, result, failed))

    def sync_classic(self, request: SyncGroup, to: To, now_ms: float) -> Effects:
        """Handle a SyncGroup: the answer has the present assignment."""
        error = self._check_classic(request.member_id, request.group_instance_id, request.generation_id)
        member = self.members.get(request.member_id)
        if error is not ErrorCode.NONE or member is None or member.classic is None:
            return self._finish(Answer(to, SyncGroupResult(error=error)))
        protocol = member.classic.protocol
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, protocol):
            return self._finish(Answer(to, SyncGroupResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        self._refresh_session(member.member_id, now_ms)
        if member.member_epoch < self.target_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_rejoin(member, now_ms)
            return self._finish(Answer(to, SyncGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS)))
        result = SyncGroupResult(
            protocol_type=CONSUMER_PROTOCOL, protocol_name=protocol, assignment=self._classic_assignment(member)
        )
        return self._finish(
            Answer(to, result, lambda error: None if error is ErrorCode.NONE else SyncGroupResult(error=error))
        )

    def heartbeat_classic(self, request: Heartbeat, now_ms: float, wall_ms: int) -> tuple[ErrorCode, Effects]:
        """Return the answer to a Heartbeat, and its effects."""
        error = self._check_classic(request.member_id, request.group_instance_id, request.generation_id)
        member = self.members.get(request.member_id)
        if error is not ErrorCode.NONE or member is None:
            return error, []
        self._refresh_session(member.member_id, now_ms)
        if self._refresh_metadata():
            self._raise_epoch()
        self._update_target(now_ms, wall_ms)
        if self._must_rejoin(member):
            self._await_rejoin(member, now_ms)
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return error, self._finish()

    def leave_classic(self, request: LeaveGroup, to: To) -> Effects:
        """Handle a LeaveGroup; a static member leaves for good, as it is removed by an operator."""
        left = []
        for each in request.members:
            member_id = each.member_id or self._static.get(each.group_instance_id or "", "")
            error = self._check_classic(member_id, each.group_instance_id, None)
            if error is ErrorCode.NONE:
                self._remove(self.members[member_id], "left")
            left.append(LeftMember(member_id=each.member_id, group_instance_id=each.group_instance_id, error=error))
        return self._finish(
            Answer(
                to,
                LeaveGroupResult(members=left),
                lambda error: None if error is ErrorCode.NONE else LeaveGroupResult(error=error),
            )
        )

    def _check_classic_join(self, request: JoinGroup) -> EmbeddedSubscription:
        inconsistent = ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is a consumer group")
        if request.protocol_type != CONSUMER_PROTOCOL or not request.protocols:
            raise inconsistent
        common = {protocol.name for protocol in request.protocols}
        for member_id in self._classic - {request.member_id}:
            classic = self.members[member_id].classic
            common &= {name for name, _ in classic.protocols} if classic is not None else common
        if not common:
            raise inconsistent
        try:
            return decode_subscription(request.protocols[0].metadata)
        except ApiError:
            raise inconsistent from None

    def _classic_member(self, request: JoinGroup, fresh_id: str) -> ConsumerMember | None:
        """Return the member of a JoinGroup; None: it must join with `fresh_id`. Raises `ApiError`."""
        member_id, instance_id = request.member_id, request.group_instance_id
        member = self._static_member(instance_id)
        if member is not None:
            if not member_id:
                return self._replace_static(member, fresh_id)
            if member.member_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, "another member has the instance id")
        elif instance_id is not None and member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "there is no such static member")
        if member is None:
            member = self.members.get(member_id)
        if member is not None:
            if member.classic is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the member has the consumer protocol")
            return member
        if len(self.members) >= self.config.group_consumer_max_size:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
        if not member_id and instance_id is None and request.knows_member_id_required:
            return None
        member = ConsumerMember(member_id=member_id or fresh_id, group_instance_id=instance_id)
        self.causes.add(f"{member.member_id} joined")
        return member

    def _check_classic(self, member_id: str, instance_id: str | None, generation: int | None) -> ErrorCode:
        if instance_id is not None and self._static.get(instance_id, member_id) != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member = self.members.get(member_id)
        if member is None or member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = generation is None or generation == member.member_epoch
        return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION

    def _must_rejoin(self, member: ConsumerMember) -> bool:
        """Return True if the member must rejoin to get a partition, or to give one up."""
        if member.member_epoch < self.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return all(
            self._owners.get(topic_id, {}).get(number, member.member_id) == member.member_id
            for topic_id, numbers in self._target_of(member.member_id).items()
            for number in numbers
        )

    def _await_rejoin(self, member: ConsumerMember, now_ms: float) -> None:
        due = Timeout.REBALANCE, member.member_id
        if self._deadlines.get(due) == inf:
            self._deadlines.set(due, now_ms + member.rebalance_timeout_ms)

    def _set_classic(self, member: ConsumerMember, classic: ClassicMemberMetadata | None) -> None:
        """Note the protocol of a member that joins, or of any heartbeat."""
        if classic is None and member.classic is None:
            return
        member.classic = classic
        if classic is None:
            self._classic.discard(member.member_id)
        elif member.member_id in self.members:
            self._classic.add(member.member_id)
        self._write(RecordKind.MEMBER, member.member_id)

    def _classic_assignment(self, member: ConsumerMember) -> bytes:
        names = ((self._context.topics.topic_name(topic_id), has) for topic_id, has in member.assigned.items())
        return encode_assignment({name: has for name, has in names if name is not None})

    def _by_id(self, owned: NamedPartitions) -> dict[bytes, set[int]]:
        ids = ((self._context.topics.topic_id(name), numbers) for name, numbers in owned.items())
        return {topic_id: set(numbers) for topic_id, numbers in ids if topic_id is not None}

    def _claim(self, member_id: str, partitions: NamedPartitions) -> PartitionEpochs:
        """Note the member as the owner of those that no member has yet; return them, with the present epoch."""
        found: PartitionEpochs = {}
        for topic_id, numbers in self._by_id(partitions).items():
            owners = self._owners.setdefault(topic_id, {})
            if free := sorted(numbers - owners.keys()):
                owners.update(dict.fromkeys(free, member_id))
                found[topic_id] = dict.fromkeys(free, self.group_epoch)
        return found

    def _size_of(self, member: ConsumerMember) -> int:
        protocols = {} if member.classic is None else dict(member.classic.protocols)
        return super()._size_of(member) + metadata_bytes(protocols)

    def _refresh_session(self, member_id: str, now_ms: float) -> None:
        classic = self.members[member_id].classic
        timeout_ms = self._session_timeout_ms if classic is None else classic.session_timeout_ms
        self._deadlines.set((Timeout.SESSION, member_id), now_ms + timeout_ms)

    # --- regular expressions

    @property
    def has_expressions(self) -> bool:
        """True if a member has a regular expression."""
        return self._expressions.is_any_used

    def expressions_to_resolve(self, request: ConsumerGroupHeartbeat, now_ms: float) -> Sequence[str]:
        """Return the expressions to resolve for this heartbeat, which starts that; then comes `take_expressions` or
        `expressions_resolved`."""
        refresh_ms, version = self.config.group_consumer_regex_refresh_interval_ms, self._context.topics.version
        asked, joins = request.subscribed_topic_regex, request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        texts = self._expressions.to_resolve(asked, version, now_ms, refresh_ms, joins=joins)
        if texts:
            self._expressions.is_resolving = True
        return texts

    def take_expressions(self, found: Mapping[str, frozenset[str]], version: int, now_ms: float, wall_ms: int) -> None:
        """Take the topics of expressions before the heartbeat that asked for them is handled."""
        self._expressions.is_resolving = False
        changed = self._expressions.update(found, version, now_ms, wall_ms)
        for text in changed:
            self._write(RecordKind.EXPRESSION, text)
        affected = [each for each in self.members.values() if each.subscribed_topic_regex in changed]
        for member in affected:
            self._count_topics(member.subscribed_topic_names | changed[member.subscribed_topic_regex or ""], -1)
            self._count_topics(self._subscription_of(member), 1)
        if affected:
            self._update_metadata_hash()
            self._raise_epoch()

    def expressions_resolved(
        self, found: Mapping[str, frozenset[str]], version: int, now_ms: float, wall_ms: int
    ) -> Effects:
        """Take the topics of expressions; the members get them with their next heartbeats."""
        in_use = {text: topics for text, topics in found.items() if self._expressions.is_used(text)}
        self.take_expressions(in_use, version, now_ms, wall_ms)
        return self._finish()

    def _drop_unused_expressions(self) -> None:
        """Forget the expression of a member that was refused."""
        for text in self._expressions.unused():
            del self._expressions.resolved[text]
            self._write(RecordKind.EXPRESSION, text)

    def resolution_failed(self) -> None:
        """Let the next heartbeat ask once more."""
        self._expressions.is_resolving = False

    def _subscription_of(self, member: ConsumerMember) -> AbstractSet[str]:
        topics = self._expressions.topics(member.subscribed_topic_regex)
        if topics and member.subscribed_topic_names:
            return member.subscribed_topic_names | topics
        return topics or member.subscribed_topic_names

    def _add_member(self, member: ConsumerMember) -> None:
        if member.classic is not None:
            self._classic.add(member.member_id)
        self._expressions.count(member.subscribed_topic_regex, 1)
        super()._add_member(member)

    def _remove_member(self, member: ConsumerMember) -> None:
        super()._remove_member(member)
        self._classic.discard(member.member_id)
        self._count_expression(member.subscribed_topic_regex, -1)

    def _count_expression(self, text: str | None, by: int) -> None:
        if self._expressions.count(text, by):
            self._write(RecordKind.EXPRESSION, text or "")

    # --- the assignor

    def _vote(self, assignor: str | None, by: int) -> None:
        if assignor is not None:
            self._assignor_votes[assignor] += by

    # --- leaving

    def _leave(self, request: ConsumerGroupHeartbeat, to: To) -> Effects:
        member = self.members.get(request.member_id)
        if request.instance_id is not None:
            member = self._static_member(request.instance_id)
            if member is not None and member.member_id != request.member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
                    f"{member.member_id}.",
                )
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group.")
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            self._remove(member, "left")
        else:
            self._leave_for_a_while(member)
        result = ConsumerGroupHeartbeatResult(member_id=member.member_id, member_epoch=request.member_epoch)
        return self._finish(Answer(to, result, _failure_of(request)))

    def _leave_for_a_while(self, member: ConsumerMember) -> None:
        """Hold the partitions of a static member until it returns or its session ends."""
        self._disown(member.revoking)
        member.revoking = {}
        member.state = MemberState.STABLE
        member.member_epoch = LEAVE_GROUP_STATIC_MEMBER_EPOCH
        self._deadlines.drop((Timeout.REBALANCE, member.member_id))
        self._note_progress(member)
        self._write(RecordKind.CURRENT, member.member_id)

    def _remove(self, member: ConsumerMember, why: str) -> None:
        self.causes.add(f"{member.name} {why}")
        self._forget_member(member)
        self._update_metadata_hash()
        if not self.is_left_to_classic_members or not self.config.allows_downgrade:
            self._raise_epoch()  # else the generation of the classic members stays valid, for their last commits

    def _forget_member(self, member: ConsumerMember) -> None:
        self._disown(member.assigned)
        self._disown(member.revoking)
        self._vote(member.server_assignor, -1)
        if member.group_instance_id is not None:
            self._static.pop(member.group_instance_id, None)
        self._remove_member(member)

    def _on_due(self, kind: int, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None and kind == Timeout.SESSION:
            self._remove(member, "was not heard of in its session")
        elif member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
            self._remove(member, "did not give up its partitions in time")
        elif member is not None and member.classic is not None and self._must_rejoin(member):
            self._remove(member, "did not join again in time")

    # --- reconciliation

    def _reconcile(self, member: ConsumerMember, owned: Partitions | None, now_ms: float, *, is_new: bool) -> None:
        """Move the member on its way to the target; `owned` are the partitions that it says it has."""
        if not is_new and member.member_epoch == self.target_epoch and member.state is MemberState.STABLE:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS and (owned is None or _owns(owned, member.revoking)):
            return
        after = self._next_assignment(member, owned)
        if not is_new and after == (member.state, member.member_epoch, member.assigned, member.revoking):
            return
        is_same = after.assigned == member.assigned
        self._disown(member.revoking)
        self._disown(member.assigned)
        if after.member_epoch != member.member_epoch:
            member.previous_member_epoch = max(0, member.member_epoch)
        member.state, member.member_epoch, member.assigned, member.revoking = after
        self._own(member)
        member.knows_assignment = member.knows_assignment and is_same
        self._note_progress(member)
        self._write(RecordKind.CURRENT, member.member_id)
        due = Timeout.REBALANCE, member.member_id
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.set(due, now_ms + member.rebalance_timeout_ms)
        else:
            self._deadlines.drop(due)

    def _next_assignment(self, member: ConsumerMember, owned: Partitions | None) -> _Next:
        """Return where the member moves (Kafka's `CurrentAssignmentBuilder`)."""
        target, member_id = self._subscribed_target(member), member.member_id
        assigned: PartitionEpochs = {}
        revoking: PartitionEpochs = {}
        for topic_id, epochs in member.assigned.items():
            wanted = target.get(topic_id, frozenset())
            if keep := {number: epoch for number, epoch in epochs.items() if number in wanted}:
                assigned[topic_id] = keep
            if give_up := {number: epoch for number, epoch in epochs.items() if number not in wanted}:
                revoking[topic_id] = give_up
        if revoking and (owned is None or _owns(owned, revoking)):
            return _Next(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoking)
        state = MemberState.STABLE
        for topic_id, numbers in target.items():
            has, owners = assigned.get(topic_id, {}), self._owners.get(topic_id, {})
            new = {}
            for number in numbers:
                if number not in has:
                    if owners.get(number, member_id) == member_id:
                        new[number] = self.target_epoch
                    else:
                        state = MemberState.UNRELEASED_PARTITIONS
            if new:
                assigned[topic_id] = {**has, **new}
        return _Next(state, self.target_epoch, assigned, {})

    def _subscribed_target(self, member: ConsumerMember) -> Partitions:
        """Return the target without topics that the member has unsubscribed since: it gives them up at once."""
        target, topics = self._target_of(member.member_id), self._context.topics
        subscribed = {topics.topic_id(name) for name in self._subscription_of(member)}
        if target.keys() <= subscribed:
            return target
        return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in subscribed}

    def _own(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member.member_id))

    def _disown(self, partitions: PartitionEpochs) -> None:
        for topic_id, numbers in partitions.items():
            owners = self._owners.get(topic_id, {})
            for number in numbers:
                owners.pop(number, None)
            if not owners:
                self._owners.pop(topic_id, None)

    # --- offsets

    def check_commit(self, request: OffsetCommit, now_ms: float) -> ErrorCode:
        """Return NONE if the commit is allowed as a whole; `commit_validator` decides on its partitions.

        A client that is no member (epoch -1) may commit while the group has no members.
        """
        if request.generation_id < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is not None:
            self._refresh_session(member.member_id, now_ms)
            is_current = request.generation_id == member.member_epoch
            return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION
        if not request.knows_group_id_not_found:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.STALE_MEMBER_EPOCH if request.generation_id > member.member_epoch else ErrorCode.NONE

    def check_transactional_commit(self, request: TxnOffsetCommit) -> ErrorCode:
        """Return NONE if a producer's commit is allowed; one that names no member is."""
        is_named = request.member_id or request.group_instance_id is not None
        if request.generation_id < 0 and (not self.members or not is_named):
            return ErrorCode.NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.ILLEGAL_GENERATION if request.generation_id > member.member_epoch else ErrorCode.NONE

    def commit_validator(self, member_id: str, epoch: int) -> CommitPartitionValidator | None:
        """Return what decides on each partition of a commit with an earlier epoch (KIP-1251): a member may commit for
        a partition that it has had since that epoch, until it has confirmed to have given it up."""
        member = self.members.get(member_id)
        if member is None or epoch >= member.member_epoch:
            return None

        def validate(topic_id: bytes, partition: int) -> ErrorCode:
            for partitions in (member.assigned, member.revoking):
                since = partitions.get(topic_id, {}).get(partition)
                if since is not None and epoch >= since:
                    return ErrorCode.NONE
            return ErrorCode.STALE_MEMBER_EPOCH

        return validate

    def check_fetch(self, request: OffsetFetchGroup) -> ErrorCode:
        """Return NONE if the offsets may be fetched: without a member id they may."""
        if request.member_id is None and request.member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(request.member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if request.member_epoch == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    # --- for `ModernGroup`

    @property
    def _assignment_interval_ms(self) -> int:
        return self.settings.consumer_assignment_interval_ms

    @property
    def _session_timeout_ms(self) -> int:
        return self.settings.consumer_session_timeout_ms

    def _assignor(self) -> PartitionAssignor:
        """Return the assignor that most members ask for, the default one if none of them does."""
        assignors, votes = self._context.assignors, self._assignor_votes
        wanted = max((name for name in assignors if votes[name] > 0), key=lambda name: votes[name], default=None)
        return next(iter(assignors.values())) if wanted is None else assignors[wanted]

    def _record(self, key: RecordKey) -> Record:
        kind, member_id = _KINDS[RecordKind(key[0])], key[1]
        encoded = encode_key(kind, self.group_id, member_id)
        if kind is ConsumerRecord.GROUP:
            return encoded, encode_epoch(self.group_epoch, self.metadata_hash)
        if kind is ConsumerRecord.TARGET_ASSIGNMENT:
            return encoded, encode_epoch(self.target_epoch, self.target_timestamp_ms)
        if kind is ConsumerRecord.REGULAR_EXPRESSION:
            resolved = self._expressions.resolved.get(key[1])
            return encoded, None if resolved is None else encode_expression(resolved)
        member = self.members.get(member_id)
        if member is None:
            return encoded, None
        if kind is ConsumerRecord.MEMBER:
            return encoded, encode_member(_stored_member(member))
        if kind is ConsumerRecord.CURRENT_ASSIGNMENT:
            return encoded, encode_current(_stored_current(member))
        return encoded, encode_target(self._target_of(member_id))


_KINDS = {
    RecordKind.MEMBER: ConsumerRecord.MEMBER,
    RecordKind.EPOCH: ConsumerRecord.GROUP,
    RecordKind.TARGET: ConsumerRecord.TARGET_ASSIGNMENT_OF_MEMBER,
    RecordKind.TARGET_EPOCH: ConsumerRecord.TARGET_ASSIGNMENT,
    RecordKind.CURRENT: ConsumerRecord.CURRENT_ASSIGNMENT,
    RecordKind.EXPRESSION: ConsumerRecord.REGULAR_EXPRESSION,
}


_STICKY_ASSIGNORS = ("sticky", "cooperative-sticky")
"""The assignors whose data in assignments, with librdkafka, are the assignment itself: nothing is lost without them."""


def read_member(member: Member, protocol: str | None) -> tuple[EmbeddedSubscription, NamedPartitions]:
    """Return the subscription and the partitions of a member of a classic group. Raises `ApiError`
    GROUP_ID_NOT_FOUND if its protocol is not the one of consumers, or its assignor needs data of its own."""
    metadata = member.protocols.get(protocol or "", next(iter(member.protocols.values()), b""))
    try:
        subscription, assignment = decode_subscription(metadata), decode_assignment(member.assignment)
    except ApiError:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"The assignment of classic member {member.member_id} cannot be read."
        ) from None
    if assignment.has_user_data and protocol not in _STICKY_ASSIGNORS:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"The assignor of classic member {member.member_id} has data of its own, so the group stays classic.",
        )
    return subscription, assignment.partitions


def _failure_of(request: ConsumerGroupHeartbeat) -> OnWritten:
    return lambda error: None if error is ErrorCode.NONE else request.failed(heartbeat_error(error))


def _owns(owned: Partitions, partitions: PartitionEpochs) -> bool:
    return any(not numbers.keys().isdisjoint(owned.get(topic_id, ())) for topic_id, numbers in partitions.items())


def _is_all(owned: Partitions, assigned: PartitionEpochs) -> bool:
    """Return True if these are the same partitions."""
    return {topic_id: set(numbers) for topic_id, numbers in owned.items() if numbers} == {
        topic_id: set(numbers) for topic_id, numbers in assigned.items() if numbers
    }


def _same_or_new(before: frozenset[str], names: Sequence[str]) -> frozenset[str]:
    after = frozenset(names)
    return before if after == before else after


def _restored_member(stored: StoredConsumerMember, current: StoredConsumerAssignment) -> ConsumerMember:
    return ConsumerMember(
        member_id=stored.member_id,
        group_instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        subscribed_topic_names=frozenset(stored.subscribed_topic_names),
        subscribed_topic_regex=stored.subscribed_topic_regex,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        server_assignor=stored.server_assignor,
        classic=stored.classic,
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=MemberState(current.state) if current.state in MemberState.__members__.values() else MemberState.STABLE,
        assigned={topic_id: dict(epochs) for topic_id, epochs in current.assigned.items()},
        revoking={topic_id: dict(epochs) for topic_id, epochs in current.revoking.items()},
    )


def _stored_member(member: ConsumerMember) -> StoredConsumerMember:
    return StoredConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic=member.classic,
    )


def _stored_current(member: ConsumerMember) -> StoredConsumerAssignment:
    return StoredConsumerAssignment(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned=member.assigned,
        revoking=member.revoking,
    )
