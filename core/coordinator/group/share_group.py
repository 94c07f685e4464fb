"""A share group (KIP-932): heartbeats, epochs, and the partitions whose state the share coordinator has.

The group is a state machine without a clock, like `ConsumerGroup`. Members share partitions, so nothing is revoked: a
member moves to its target with its next heartbeat. Only initialized partitions are assigned: no leader serves others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from attrs import evolve

from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.groups import OffsetCommit, OffsetFetchGroup
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.broker_api.share_group_offsets import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    DeletedShareTopic,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResult,
    ShareStartOutcome,
)
from ....ports.broker_api.share_groups import (
    ShareGroupDescription,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupMember,
)
from ....ports.broker_api.share_state import (
    NO_START_OFFSET,
    DeleteShareGroupState,
    InitializePartition,
    InitializeShareGroupState,
    StateOutcome,
    StatePartition,
)
from ....ports.broker_api.transactions import TxnOffsetCommit
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define
from ..log import Record
from .assignors import PartitionAssignor, Partitions, SimpleAssignor
from .effects import Answer, CallPersister, Effects, OnWritten, To, WriteRecords
from .group import CommitPartitionValidator, GroupType
from .modern_group import (
    NO_PARTITIONS,
    GroupContext,
    ModernGroup,
    ModernMember,
    RecordKey,
    RecordKind,
    Timeout,
    by_topic,
    heartbeat_error,
)
from .share_group_records import (
    LoadedShareGroup,
    ShareGroupKey,
    ShareRecord,
    StoredCurrentAssignment,
    StoredShareGroup,
    StoredShareMember,
    StoredShareValue,
    StoredStatePartitions,
    StoredTargetAssignment,
    StoredTopicPartitions,
    encode_share_key,
    encode_share_value,
    share_tombstones,
)
from .states import GroupState

JOIN_GROUP_MEMBER_EPOCH = 0
LEAVE_GROUP_MEMBER_EPOCH = -1

SHARE_PROTOCOL = "share"
"""The protocol type of share groups in ListGroups."""

PENDING_HEARTBEAT_INTERVAL_MS = 500
"""The interval that members get while an assignment is on its way, unless theirs is shorter. Kafka leaves them without
records for a whole heartbeat interval, which is 5 s."""
_RETRY_MS = 1000.0

_SIMPLE = SimpleAssignor()

SharePlace = tuple[bytes, int]
"""A topic id and a partition."""
Done = Callable[[Sequence[StateOutcome]], Effects]
"""Returns what follows the end of a call of the persister."""


def invalid_share_heartbeat(request: ShareGroupHeartbeat) -> ApiError | None:
    """Return the error of a heartbeat that no group accepts, or None."""
    text = None
    if not request.member_id:
        text = "MemberId can't be empty."
    elif not request.group_id:
        text = "GroupId can't be empty."
    elif request.rack_id == "":
        text = "RackId can't be empty."
    elif request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH:
        text = "MemberEpoch is invalid."
    elif request.member_epoch == JOIN_GROUP_MEMBER_EPOCH and not request.subscribed_topic_names:
        text = "SubscribedTopicNames must be set in first request."
    return None if text is None else ApiError(ErrorCode.INVALID_REQUEST, text)


@define(kw_only=True, eq=False)
class ShareMember(ModernMember):
    """One member, with the partitions that it got last."""

    assigned: Partitions = NO_PARTITIONS


class ShareGroup(ModernGroup[ShareMember]):
    """The members of one share group, and the state of its partitions. Owner thread only."""

    def __init__(self, group_id: str, context: GroupContext) -> None:
        super().__init__(group_id, context)
        self.initialized: dict[bytes, set[int]] = {}
        """The partitions that may be assigned, by topic id."""
        self.initializing: dict[bytes, set[int]] = {}
        """The partitions whose state the share coordinator may have."""
        self.deleting: dict[bytes, str] = {}
        """The names of topics whose state the share coordinator may still have."""
        self._names: dict[bytes, str] = {}
        self._in_flight: set[SharePlace] = set()
        """The partitions in calls of the persister that have not ended."""
        self._lacks_state = True
        """Subscribed partitions may not be initialized."""

    @classmethod
    def restored(cls, group_id: str, context: GroupContext, stored: LoadedShareGroup, now_ms: float) -> "ShareGroup":
        """Return a group read from the log; its members have a whole session timeout to show that they live."""
        group = cls(group_id, context)
        group.group_epoch, group.metadata_hash = max(1, stored.group.epoch), stored.group.metadata_hash
        group.target_epoch = stored.target.assignment_epoch
        group.target_timestamp_ms = stored.target.timestamp_ms
        group.target = {
            member_id: {topic_id: frozenset(numbers) for topic_id, numbers in target.items()}
            for member_id, target in stored.targets.items()
            if member_id in stored.members
        }
        for member_id, each in stored.members.items():
            current = stored.current.get(member_id, StoredCurrentAssignment(0, 0))
            member = ShareMember(
                member_id=member_id,
                rack_id=each.rack_id,
                client_id=each.client_id,
                client_host=each.client_host,
                subscribed_topic_names=frozenset(each.subscribed_topic_names),
                member_epoch=current.member_epoch,
                previous_member_epoch=current.previous_member_epoch,
                assigned={topic_id: frozenset(numbers) for topic_id, numbers in current.assigned.items()},
            )
            group._add_member(member)
            group._refresh_session(member_id, now_ms)
        for stored_topics, topics in (
            (stored.state_partitions.initialized, group.initialized),
            (stored.state_partitions.initializing, group.initializing),
        ):
            for topic_id, found in stored_topics.items():
                topics[topic_id] = set(found.partitions)
                group._names[topic_id] = found.topic
        group.deleting.update(stored.state_partitions.deleting)
        return group

    # --- what others may know

    @property
    def group_type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def protocol_type(self) -> str:
        return SHARE_PROTOCOL

    @property
    def state(self) -> GroupState:
        if self._is_dead:
            return GroupState.DEAD
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """True before the first member. A share group without members stays, with its start offsets, until it is
        deleted."""
        return super().is_unused and not self.is_stored

    def tombstones(self) -> list[Record]:
        """Return the records that take the group and its members out of the log."""
        return share_tombstones(self.group_id, self.members) if self.is_stored else []

    def describe(self) -> ShareGroupDescription:
        """Return the group as ShareGroupDescribe shows it."""
        members = [
            ShareGroupMember(
                member_id=each.member_id,
                rack_id=each.rack_id,
                member_epoch=each.member_epoch,
                client_id=each.client_id,
                client_host=each.client_host,
                subscribed_topic_names=sorted(each.subscribed_topic_names),
                assignment=self._described(each.assigned),
            )
            for each in self.members.values()
        ]
        return ShareGroupDescription(
            group_id=self.group_id,
            group_state=self.state.value,
            group_epoch=self.group_epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=_SIMPLE.name,
            members=members,
        )

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of a topic that the group has state of; empty for another one."""
        return self._names.get(topic_id, "")

    # --- heartbeats

    def heartbeat(self, request: ShareGroupHeartbeat, caller: Caller, to: To, now_ms: float, wall_ms: int) -> Effects:
        """Handle a heartbeat whose fields are valid. `wall_ms` is the wall-clock time."""
        try:
            member = self.members.get(request.member_id)
            if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
                return self._leave(self._existing(member, request), request, to)
            if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
                member = self._check_epoch(self._existing(member, request), request.member_epoch)
            if member is None:
                member = self._new_member(request)
        except ApiError as error:
            return [Answer(to, request.failed(error))]
        is_other = self._update(member, request, caller)
        if self._refresh_metadata():
            is_other = self._lacks_state = True
        if is_other:
            self._raise_epoch()
        self._update_target(now_ms, wall_ms)
        self._reconcile(member)
        self._refresh_session(member.member_id, now_ms)
        calls = self._missing_state()
        return self._finish_with(calls, self._answer(member, request, to))

    def _existing(self, member: ShareMember | None, request: ShareGroupHeartbeat) -> ShareMember:
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group.")
        return member

    def _check_epoch(self, member: ShareMember, epoch: int) -> ShareMember:
        """Return the member if it has the present epoch, or the one before, as after a lost answer."""
        if epoch in (member.member_epoch, member.previous_member_epoch):
            return member
        size = "greater" if epoch > member.member_epoch else "smaller"
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
        )

    def _new_member(self, request: ShareGroupHeartbeat) -> ShareMember:
        most = self.config.group_share_max_size
        if len(self.members) >= most:
            text = f"The share group has reached its maximum capacity of {most} members."
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        member = ShareMember(member_id=request.member_id)
        self.causes.add(f"{member.member_id} joined")
        self.group_epoch = max(1, self.group_epoch)  # the epoch of a group before its first member
        self._add_member(member)
        return member

    def _update(self, member: ShareMember, request: ShareGroupHeartbeat, caller: Caller) -> bool:
        """Take what the heartbeat says of the member; return True if its topics are others now."""
        is_changed = member.take_client(caller) or not member.member_epoch
        if request.rack_id is not None and request.rack_id != member.rack_id:
            member.rack_id, is_changed = request.rack_id, True
        names, before = request.subscribed_topic_names, member.subscribed_topic_names
        is_other = names is not None and before != frozenset(names)
        if names is not None and is_other:
            member.subscribed_topic_names = frozenset(names)
            self._count_topics(before, -1)
            self._count_topics(member.subscribed_topic_names, 1)
            self._update_metadata_hash()
            self._lacks_state = True
        if is_changed or is_other:
            self._write(RecordKind.MEMBER, member.member_id)
        return is_other

    def _reconcile(self, member: ShareMember) -> None:
        if member.member_epoch == self.target_epoch:
            return
        member.previous_member_epoch, member.member_epoch = member.member_epoch, self.target_epoch
        member.assigned = self._target_of(member.member_id)
        self._note_progress(member)
        self._write(RecordKind.CURRENT, member.member_id)

    def _answer(self, member: ShareMember, request: ShareGroupHeartbeat, to: To) -> Answer:
        """Return the answer. A member with an epoch that it has said has got the assignment of that epoch."""
        interval_ms = self.settings.share_heartbeat_interval_ms
        if self._in_flight or self.target_epoch < self.group_epoch:
            interval_ms = min(interval_ms, PENDING_HEARTBEAT_INTERVAL_MS)
        has_assignment = request.member_epoch == member.member_epoch
        result = ShareGroupHeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=None if has_assignment else by_topic(member.assigned),
        )
        return Answer(to, result, _failure_of(request))

    def _leave(self, member: ShareMember, request: ShareGroupHeartbeat, to: To) -> Effects:
        self._remove(member, "left")
        result = ShareGroupHeartbeatResult(member_id=member.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH)
        return self._finish(Answer(to, result, _failure_of(request)))

    def _remove(self, member: ShareMember, why: str) -> None:
        self.causes.add(f"{member.name} {why}")
        self._remove_member(member)
        self._update_metadata_hash()
        self._raise_epoch()

    def _on_due(self, kind: int, member_id: str) -> None:
        if kind == Timeout.STATE:
            self._lacks_state = True
            return
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member, "was not heard of in its session")

    # --- the state of partitions

    def _missing_state(self) -> list[CallPersister]:
        """Begin to initialize the subscribed partitions without state, and to delete what must go before."""
        if not self._lacks_state:
            return []
        self._lacks_state = False
        starts: dict[SharePlace, int] = {}
        ending = []
        topics = self._context.topics
        for name in self._subscribers:
            topic_id = topics.topic_id(name)
            if topic_id is None:
                continue
            if topic_id in self.deleting:
                ending.append(topic_id)
                continue
            known = self.initialized.get(topic_id, ())
            # Partitions that are added to a topic begin at their first record, so that none of it is missed.
            start = 0 if known else NO_START_OFFSET
            for number in range(topics.num_partitions(topic_id)):
                if number not in known and (topic_id, number) not in self._in_flight:
                    starts[topic_id, number] = start
        calls = []
        if ending := [each for each in ending if not any(topic_id == each for topic_id, _ in self._in_flight)]:
            calls.append(self._delete_state(ending, lambda _: []))
        if starts:
            if any(number in self.initializing.get(topic_id, ()) for topic_id, number in starts):
                self._raise_epoch()  # an earlier call may still arrive, and must not begin the partition once more
            calls.append(self._initialize_state(starts, lambda _: []))
        return calls

    def _initialize_state(self, starts: Mapping[SharePlace, int], done: Done) -> CallPersister:
        """Return the call that begins partitions at these offsets, in the present group epoch."""
        for topic_id, number in starts:
            if number not in self.initialized.get(topic_id, ()):
                self._names[topic_id] = self._context.topics.topic_name(topic_id) or self.topic_name(topic_id)
                self.initializing.setdefault(topic_id, set()).add(number)
        self._write(RecordKind.OTHER)
        self._in_flight.update(starts)
        request = InitializeShareGroupState(
            group_id=self.group_id,
            partitions=[InitializePartition(*place, self.group_epoch, start) for place, start in starts.items()],
        )

        def ended(outcomes: Sequence[StateOutcome], now_ms: float) -> Effects:
            return [*self._on_initialized(starts, outcomes, now_ms), *done(outcomes)]

        return CallPersister(request, ended)

    def _on_initialized(self, starts: Iterable[SharePlace], outcomes: Sequence[StateOutcome], now_ms: float) -> Effects:
        self._in_flight.difference_update(starts)
        if self._is_dead:
            return []
        is_new = False
        for each in outcomes:
            topic_id, number, error = each.topic_id, each.partition, each.error
            if number not in self.initializing.get(topic_id, ()):
                continue
            if error is ErrorCode.NONE:
                _discard(self.initializing, topic_id, number)
                self.initialized.setdefault(topic_id, set()).add(number)
                is_new = True
            else:
                self._deadlines.set((Timeout.STATE, ""), now_ms + _RETRY_MS)
        if is_new:
            self._write(RecordKind.OTHER)
            if self.members:
                self.causes.add("partitions were initialized")
                self._raise_epoch()
                self._assigned_ms = -inf  # the assignment interval is for changes of members
        return self._finish()

    def _delete_state(self, topic_ids: Iterable[bytes], done: Done) -> CallPersister:
        """Return the call that deletes all state of topics."""
        places: list[SharePlace] = []
        for topic_id in topic_ids:
            self.deleting.setdefault(topic_id, self.topic_name(topic_id))
            numbers = self.initialized.pop(topic_id, set()) | self.initializing.pop(topic_id, set())
            numbers.update(range(self._context.topics.num_partitions(topic_id)))
            places += [(topic_id, number) for number in sorted(numbers)]
            self._names.pop(topic_id, None)
        self._write(RecordKind.OTHER)
        self._in_flight.update(places)
        request = DeleteShareGroupState(group_id=self.group_id, partitions=[StatePartition(*place) for place in places])

        def ended(outcomes: Sequence[StateOutcome], now_ms: float) -> Effects:
            return [*self._on_deleted(places, outcomes, now_ms), *done(outcomes)]

        return CallPersister(request, ended)

    def _on_deleted(self, places: Sequence[SharePlace], outcomes: Sequence[StateOutcome], now_ms: float) -> Effects:
        self._in_flight.difference_update(places)
        if self._is_dead:
            return []
        failed = {each.topic_id for each in outcomes if each.error is not ErrorCode.NONE}
        for topic_id in {topic_id for topic_id, _ in places} - failed:
            if self.deleting.pop(topic_id, None) is not None:
                self._write(RecordKind.OTHER)
        self._lacks_state = True
        if failed:
            self._deadlines.set((Timeout.STATE, ""), now_ms + _RETRY_MS)
        return self._finish()

    def _finish_with(self, calls: Sequence[CallPersister], answer: Answer | None = None) -> Effects:
        """Return the effects of an event with calls, which has always something to write."""
        effects = self._finish(answer)
        return [evolve(each, calls=calls) if isinstance(each, WriteRecords) else each for each in effects]

    def forget_topics(self, topic_ids: Iterable[bytes]) -> Effects:
        """Forget topics that the cluster has deleted; the share coordinator deletes their state."""
        for topic_id in topic_ids:
            known = self.initialized.pop(topic_id, None), self.initializing.pop(topic_id, None)
            if any(known) or self.deleting.pop(topic_id, None) is not None:
                self._write(RecordKind.OTHER)
            self._names.pop(topic_id, None)
        return self._finish()

    # --- administration

    def alter_offsets(self, request: AlterShareGroupOffsets, to: To) -> Effects:
        """Let the group begin at other offsets; its state epoch fences leaders that know the earlier ones."""
        if self.members:
            return [Answer(to, request.failed(self._not_empty()))]
        topics = self._context.topics
        starts: dict[SharePlace, int] = {}
        refused: dict[tuple[str, int], ShareStartOutcome] = {}
        for each in request.partitions:
            topic_id = topics.topic_id(each.topic)
            if topic_id is None or not 0 <= each.partition < topics.num_partitions(topic_id):
                error, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            elif each.start_offset < 0:
                error, text = ErrorCode.INVALID_REQUEST, "A start offset must not be negative."
            elif topic_id in self.deleting or (topic_id, each.partition) in self._in_flight:
                error, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, "The state of the partition is being changed."
            else:
                starts[topic_id, each.partition] = each.start_offset
                continue
            refused[each.topic, each.partition] = ShareStartOutcome(each.partition, error, text)

        def done(outcomes: Sequence[StateOutcome]) -> Effects:
            found = {
                (each.topic_id, each.partition): ShareStartOutcome(each.partition, each.error, each.error_message)
                for each in outcomes
            }
            by_name: dict[str, list[ShareStartOutcome]] = {}
            for each in request.partitions:
                place = each.topic, each.partition
                outcome = refused.get(place) or found[topics_ids[each.topic], each.partition]
                by_name.setdefault(each.topic, []).append(outcome)
            altered = [
                AlteredShareTopic(topic=name, topic_id=topics_ids[name], partitions=each)
                for name, each in by_name.items()
            ]
            return [Answer(to, AlterShareGroupOffsetsResult(topics=altered), _ignored)]

        topics_ids = {each.topic: topics.topic_id(each.topic) or NO_TOPIC_ID for each in request.partitions}
        if not starts:
            return done(())
        self._raise_epoch()
        return self._finish_with([self._initialize_state(starts, done)])

    def delete_offsets(self, request: DeleteShareGroupOffsets, to: To) -> Effects:
        """Delete the state of topics: the group begins there again if a member subscribes to them."""
        if self.members:
            return [Answer(to, request.failed(self._not_empty()))]
        names = dict.fromkeys(request.topics)
        topic_ids = {name: self._context.topics.topic_id(name) for name in names}
        ending = [each for each in topic_ids.values() if each is not None and self._has_state(each)]

        def done(outcomes: Sequence[StateOutcome]) -> Effects:
            failed = {each.topic_id: each for each in outcomes if each.error is not ErrorCode.NONE}
            deleted = []
            for name, topic_id in topic_ids.items():
                if topic_id not in ending or topic_id is None:
                    error, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
                    deleted.append(
                        DeletedShareTopic(topic=name, topic_id=topic_id or NO_TOPIC_ID, error=error, error_message=text)
                    )
                elif topic_id in failed:
                    error, message = failed[topic_id].error, failed[topic_id].error_message
                    deleted.append(DeletedShareTopic(topic=name, topic_id=topic_id, error=error, error_message=message))
                else:
                    deleted.append(DeletedShareTopic(topic=name, topic_id=topic_id))
            return [Answer(to, DeleteShareGroupOffsetsResult(topics=deleted), _ignored)]

        if not ending:
            return done(())
        return self._finish_with([self._delete_state(ending, done)])

    def delete_all_state(self, to: To) -> Effects:
        """Delete the state of all topics, before the group itself is deleted; answer with the first error."""
        ending = [*{**self.initialized, **self.initializing, **self.deleting}]

        def done(outcomes: Sequence[StateOutcome]) -> Effects:
            failed = (each.error for each in outcomes if each.error is not ErrorCode.NONE)
            return [Answer(to, next(failed, ErrorCode.NONE), _ignored)]

        if not ending:
            return done(())
        return self._finish_with([self._delete_state(ending, done)])

    @property
    def has_state(self) -> bool:
        """True if the share coordinator has, or may have, state of the group."""
        return bool(self.initialized or self.initializing or self.deleting)

    def _has_state(self, topic_id: bytes) -> bool:
        return topic_id in self.initialized or topic_id in self.initializing or topic_id in self.deleting

    def _not_empty(self) -> ApiError:
        return ApiError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} is not empty.")

    # --- offsets, which share groups do not commit

    def check_commit(self, request: OffsetCommit, now_ms: float) -> ErrorCode:  # noqa: ARG002
        """Return GROUP_ID_NOT_FOUND."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_transactional_commit(self, request: TxnOffsetCommit) -> ErrorCode:  # noqa: ARG002
        """Return GROUP_ID_NOT_FOUND."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def commit_validator(self, member_id: str, epoch: int) -> CommitPartitionValidator | None:  # noqa: ARG002
        """Return None: no commit gets so far."""
        return None

    def check_fetch(self, request: OffsetFetchGroup) -> ErrorCode:  # noqa: ARG002
        """Return GROUP_ID_NOT_FOUND."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    # --- for `ModernGroup`

    @property
    def _assignment_interval_ms(self) -> int:
        return self.settings.share_assignment_interval_ms

    @property
    def _session_timeout_ms(self) -> int:
        return self.settings.share_session_timeout_ms

    def _assignor(self) -> PartitionAssignor:
        return _SIMPLE

    def _assignable(self) -> Partitions:
        return self.initialized

    def _record(self, key: RecordKey) -> Record:
        kind, member_id = _KINDS[RecordKind(key[0])], key[1]
        value = self._value(kind, member_id)
        encoded = encode_share_key(ShareGroupKey(kind, self.group_id, member_id))
        return encoded, None if value is None else encode_share_value(value)

    def _value(self, kind: ShareRecord, member_id: str) -> StoredShareValue | None:
        match kind:
            case ShareRecord.GROUP:
                return StoredShareGroup(self.group_epoch, self.metadata_hash)
            case ShareRecord.TARGET_ASSIGNMENT:
                return StoredTargetAssignment(self.target_epoch, self.target_timestamp_ms)
            case ShareRecord.STATE_PARTITIONS:
                return StoredStatePartitions(
                    self._stored(self.initializing), self._stored(self.initialized), dict(self.deleting)
                )
        member = self.members.get(member_id)
        if member is None:
            return None
        if kind is ShareRecord.MEMBER:
            return StoredShareMember(
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
            )
        if kind is ShareRecord.CURRENT_ASSIGNMENT:
            return StoredCurrentAssignment(
                member.member_epoch, member.previous_member_epoch, _stored_assignment(member.assigned), member.state
            )
        return _stored_assignment(self._target_of(member_id))

    def _stored(self, topics: Mapping[bytes, set[int]]) -> dict[bytes, StoredTopicPartitions]:
        return {
            topic_id: StoredTopicPartitions(self.topic_name(topic_id), tuple(sorted(numbers)))
            for topic_id, numbers in topics.items()
        }


_KINDS = {
    RecordKind.MEMBER: ShareRecord.MEMBER,
    RecordKind.EPOCH: ShareRecord.GROUP,
    RecordKind.TARGET: ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER,
    RecordKind.TARGET_EPOCH: ShareRecord.TARGET_ASSIGNMENT,
    RecordKind.CURRENT: ShareRecord.CURRENT_ASSIGNMENT,
    RecordKind.OTHER: ShareRecord.STATE_PARTITIONS,
}


def _failure_of(request: ShareGroupHeartbeat) -> OnWritten:
    return lambda error: None if error is ErrorCode.NONE else request.failed(heartbeat_error(error))


def _ignored(_error: ErrorCode) -> None:
    """Answer in any case: the share coordinator has done its part, and the group's records are written again."""


def _stored_assignment(partitions: Partitions) -> dict[bytes, tuple[int, ...]]:
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in partitions.items()}


def _discard(topics: dict[bytes, set[int]], topic_id: bytes, number: int) -> None:
    topics[topic_id].discard(number)
    if not topics[topic_id]:
        del topics[topic_id]
