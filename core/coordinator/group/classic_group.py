"""One group of the classic protocol: its members, its generation and its assignment (facts C6).

The group is a state machine without a clock: every event brings the time (monotonic milliseconds) and returns the
effects to carry out; `next_due_ms` returns when to call `tick`. The table in `states.py` has the transitions. Every
waiting request gets exactly one answer.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum

from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.groups import (
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    OffsetCommit,
    OffsetFetchGroup,
    SyncGroup,
    SyncGroupResult,
)
from ....ports.broker_api.transactions import TxnOffsetCommit
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ....ports.values import define
from ..log import Record
from .config import GroupCoordinatorConfig
from .deadlines import Deadlines
from .effects import Answer, Effects, Store, StoreReason, To
from .group import GroupType
from .member import Member, Roster, protocols_by_name
from .records import StoredGroup, encode_group_key
from .states import TRANSITIONS, GroupChange, GroupState
from .subscription import CONSUMER_PROTOCOL, decode_assignment, subscribed_topics

_EMPTY, _PREPARING, _COMPLETING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
_STABLE, _DEAD = GroupState.STABLE, GroupState.DEAD

NumPartitions = Callable[[str], int]
"""Returns the number of partitions of a topic, by name; -1 if the coordinator knows no such topic."""


# The agreement of a group's members in a rebalance, and its form in responses and in the log.


@define(eq=False)
class Agreement:
    """The present generation. `protocol` and `leader` are None while there is none."""

    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None

    def joined(self, member: Member, roster: Roster, *, stable: bool, leader: str | None = None) -> JoinGroupResult:
        """Return the answer to a member of this generation. Only the leader, or the one named by `leader`, gets the
        list of members."""
        leader = self.leader or "" if leader is None else leader
        leads = member.member_id == leader
        protocol = self.protocol or ""
        return JoinGroupResult(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader,
            member_id=member.member_id,
            members=[
                JoinedMember(
                    member_id=each.member_id,
                    metadata=each.protocols[protocol],
                    group_instance_id=each.group_instance_id,
                )
                for each in roster
            ]
            if leads
            else (),
            skip_assignment=leads and stable,
        )

    def assigned(self, member: Member) -> SyncGroupResult:
        return SyncGroupResult(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    def stored(self, roster: Roster, assignments: Mapping[str, bytes]) -> StoredGroup:
        protocol = self.protocol or ""
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=[each.stored(protocol, assignments.get(each.member_id, b"")) for each in roster],
        )

    def topics_of(self, member: Member) -> frozenset[str] | None:
        """Return the topics that a member subscribes to; None where that cannot be known."""
        metadata = None if self.protocol is None else member.protocols.get(self.protocol)
        if metadata is None or self.protocol_type != CONSUMER_PROTOCOL:
            return None
        return subscribed_topics(metadata)

    def subscribed_topics(self, roster: Roster) -> frozenset[str] | None:
        """Return the topics that some member is subscribed to, or None if that is unknown. A step per member."""
        if not len(roster):
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return None
        found: set[str] = set()
        for metadata in {member.protocols.get(self.protocol) for member in roster}:
            topics = None if metadata is None else subscribed_topics(metadata)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def find_unassigned(self, roster: Roster, num_partitions: NumPartitions) -> TopicPartition | None:
        """Return a partition of a subscribed topic that no member has; None without one, or if that is unknown.

        A step per assigned partition.
        """
        topics = self.subscribed_topics(roster)
        if not topics:
            return None
        assigned: dict[str, set[int]] = {}
        try:
            for member in roster:
                for topic, numbers in decode_assignment(member.assignment).partitions.items():
                    assigned.setdefault(topic, set()).update(numbers)
        except ApiError:
            return None
        for topic in sorted(topics):
            missing = set(range(num_partitions(topic))) - assigned.get(topic, set())
            if missing:
                return TopicPartition(topic, min(missing))
        return None


# The reasons for which members joined and left, for the log.

CAUSES_MAX = 5
"""The most causes that the log names for a rebalance; a large group has one for each of its members."""
_REASON_MAX = 200


class Causes:
    """The first few causes since the last `take`."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        if len(self._texts) < CAUSES_MAX:
            self._texts.append(text)

    def take_texts(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts


def said(reason: str | None) -> str:
    """Return the reason that a client gives for joining or leaving, as a part of a log line."""
    return f" ({reason[:_REASON_MAX]})" if reason else ""


# The members of a group with the answers that they wait for and their session deadlines.


class Due(IntEnum):
    """The purpose of a deadline."""

    SESSION = 0
    PENDING_MEMBER = 1
    """A member id that was given out must be used by then."""
    REBALANCE = 2
    SYNC = 3
    """A member that has not synchronized by then is dropped."""


REBALANCE = (Due.REBALANCE, "")
SYNC = (Due.SYNC, "")


class Members:
    """The members and the pending members. A member that waits for an answer needs no session meanwhile."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.roster = Roster()
        self.pending_members: set[str] = set()
        """Member ids that were given out with MEMBER_ID_REQUIRED and not used yet."""
        self._deadlines = deadlines

    def identify(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if this member exists and no other member id has taken its static instance id."""
        if instance_id is not None:
            known = self.roster.static_id(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if known == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.roster else ErrorCode.UNKNOWN_MEMBER_ID

    # --- pending members

    def promise(self, member_id: str, until_ms: float) -> None:
        """Note a member id that was given out and must be used until this time."""
        self.pending_members.add(member_id)
        self._deadlines.set((Due.PENDING_MEMBER, member_id), until_ms)

    def break_promise(self, member_id: str) -> None:
        self.pending_members.discard(member_id)
        self._deadlines.drop((Due.PENDING_MEMBER, member_id))

    # --- sessions

    def alive(self, member_id: str, now_ms: float) -> None:
        """Renew the session of a member from which a request came."""
        member = self.roster.get(member_id)
        if member is not None:
            self.refresh(member, now_ms)

    def refresh(self, member: Member, now_ms: float) -> None:
        """Begin a new session, unless the member waits for an answer."""
        if member.joining is None and member.syncing is None:
            self._deadlines.set((Due.SESSION, member.member_id), now_ms + member.session_timeout_ms)

    def stop_session(self, member_id: str) -> None:
        self._deadlines.drop((Due.SESSION, member_id))

    # --- what they wait for

    def wait(self, member: Member, to: To, until_ms: float, out: Effects) -> None:
        """Let the member wait for the next generation, whatever its session timeout; a new member at most until
        `until_ms`."""
        self.displace(member, out)
        self.roster.wait(member, to)
        if member.is_new:
            self._deadlines.set((Due.SESSION, member.member_id), until_ms)
        else:
            self.stop_session(member.member_id)

    def displace(self, member: Member, out: Effects) -> None:
        """Answer the member's earlier join with REBALANCE_IN_PROGRESS: it has joined again, perhaps over another
        connection."""
        earlier = self.roster.stop_waiting(member)
        if earlier is not None:
            result = JoinGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            out.append(Answer(earlier, result))

    def let_go(self, member: Member, error: ErrorCode, out: Effects) -> None:
        """Answer the requests with which the member waits."""
        to = self.roster.stop_waiting(member)
        if to is not None:
            out.append(Answer(to, JoinGroupResult(error=error, member_id=member.member_id)))
        answer_sync(member, error, out)

    def remove(self, member: Member, error: ErrorCode, out: Effects) -> None:
        """Answer the member's waiting requests and remove it."""
        self.let_go(member, error, out)
        self.roster.remove(member)
        self.stop_session(member.member_id)

    def clear(self, error: ErrorCode, out: Effects) -> None:
        """Answer the waiting requests of all members and remove them. The caller clears their deadlines."""
        for member in self.roster:
            self.let_go(member, error, out)
        self.roster.clear()
        self.pending_members.clear()


def answer_sync(member: Member, error: ErrorCode, out: Effects) -> bool:
    """Answer a sync that waits with an error; False if none does."""
    to, member.syncing = member.syncing, None
    if to is not None:
        out.append(Answer(to, SyncGroupResult(error=error)))
    return to is not None


def refuse_join(request: JoinGroup, to: To, error: ErrorCode, out: Effects) -> None:
    """Answer a join with an error."""
    out.append(Answer(to, JoinGroupResult(error=error, member_id=request.member_id)))


class ClassicGroup:
    """The members of one group. Owner thread only. `config` may be replaced at any time."""

    def __init__(self, group_id: str, config: GroupCoordinatorConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = _EMPTY
        self.causes = Causes()
        self._deadlines = Deadlines()
        self._members = Members(self._deadlines)
        self.roster = self._members.roster
        self.pending_members: AbstractSet[str] = self._members.pending_members
        self._agreed = Agreement()
        self._unsynced: set[str] = set()
        self._storing: Store | None = None
        """The assignment that is being written."""
        self._initial = False
        """The rebalance in preparation is the first of an empty group, which waits for more members to come."""
        self._grew = False
        """A member came since the initial rebalance was last delayed."""
        self._initial_delay_until_ms = 0.0
        self._lost = False
        """A member of the present generation has gone."""

    @classmethod
    def restored(
        cls, group_id: str, config: GroupCoordinatorConfig, stored: StoredGroup, now_ms: float
    ) -> "ClassicGroup":
        """Return a group read from the log; its members have a whole session timeout to show that they live."""
        group = cls(group_id, config)
        agreed = group._agreed
        agreed.generation = stored.generation
        agreed.protocol_type = stored.protocol_type or None
        if stored.members:
            agreed.protocol, agreed.leader = stored.protocol or "", stored.leader
            group.state = _STABLE
        for entry in stored.members:
            member = Member.restored(entry, group.protocol or "")
            group.roster.add(member)
            group._members.refresh(member, now_ms)
        return group

    @classmethod
    def of_members(
        cls,
        group_id: str,
        config: GroupCoordinatorConfig,
        members: Iterable[Member],
        generation: int,
        now_ms: float,
    ) -> "tuple[ClassicGroup, Effects]":
        """Return the group of members that were in a consumer group until now, with the effects: they join again."""
        group = cls(group_id, config)
        out: Effects = []
        for member in members:
            group.roster.add(member)
            group._members.refresh(member, now_ms)
        first = group.roster.first()
        agreed = group._agreed
        agreed.generation, agreed.protocol_type = generation, CONSUMER_PROTOCOL
        agreed.protocol = group.roster.elected_protocol()
        agreed.leader = None if first is None else first.member_id
        group.state = _STABLE
        group.causes.add("the last member with the consumer protocol has gone")
        group._prepare(now_ms, out)
        return group, out

    def stored_now(self) -> StoredGroup:
        """Return the group with the assignments as they are."""
        return self._stored({each.member_id: each.assignment for each in self.roster})

    # --- what others may know

    @property
    def generation(self) -> int:
        return self._agreed.generation

    @property
    def protocol_type(self) -> str | None:
        return self._agreed.protocol_type

    @property
    def protocol(self) -> str | None:
        return self._agreed.protocol

    @property
    def leader(self) -> str | None:
        return self._agreed.leader

    @property
    def group_type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def size_bytes(self) -> int:
        """The bytes of the members; a group without members takes little."""
        return self.roster.size_bytes + len(self.group_id) * (len(self.roster) > 0)

    @property
    def is_unused(self) -> bool:
        """True if it has neither members nor pending members."""
        return self.state is _EMPTY and not self.pending_members

    @property
    def is_stored(self) -> bool:
        return self.generation > 0

    @property
    def next_due_ms(self) -> float | None:
        """Return the time to call `tick`, which is not after the next deadline; None = there is none."""
        return self._deadlines.next_ms()

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that some member is subscribed to, or None if that is unknown. A step per member."""
        return self._agreed.subscribed_topics(self.roster)

    # --- events

    def join(
        self,
        request: JoinGroup,
        caller: Caller,
        to: To,
        now_ms: float,
        fresh_id: str,
        num_partitions: NumPartitions,
    ) -> Effects:
        """Handle a JoinGroup whose session timeout is valid. A member without an id gets `fresh_id`."""
        out: Effects = []
        error = self._refuse_join(request, now_ms, out)
        if error is not ErrorCode.NONE:
            refuse_join(request, to, error, out)
        elif request.member_id:
            self._join_known(request, caller, to, now_ms, out)
        elif self.roster.static_id(request.group_instance_id) is not None:
            self._replace_static(request, caller, to, now_ms, fresh_id, num_partitions, out)
        elif request.group_instance_id is None and request.knows_member_id_required:
            self._members.promise(fresh_id, now_ms + request.session_timeout_ms)
            out.append(Answer(to, JoinGroupResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=fresh_id)))
        else:
            self._add(Member.joined(fresh_id, request, caller), request, to, now_ms, out)
        return out

    def sync(self, request: SyncGroup, to: To, now_ms: float) -> Effects:
        """Handle a SyncGroup; the answer comes once the assignment is stored."""
        out: Effects = []
        error = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if error is ErrorCode.NONE and (
            request.protocol_type not in (None, self.protocol_type)
            or request.protocol_name not in (None, self.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE and self.state is _PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        member = self.roster.get(request.member_id)
        if error is not ErrorCode.NONE or member is None:
            out.append(Answer(to, SyncGroupResult(error=error)))
            return out
        self._synced(member.member_id)
        if self.state is _STABLE:
            self._members.refresh(member, now_ms)
            out.append(Answer(to, self._agreed.assigned(member)))
            return out
        answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, out)  # it has synced again and no longer waits there
        member.syncing = to
        self._members.stop_session(member.member_id)
        if member.member_id == self.leader and self._storing is None:
            given = {each.member_id: each.assignment for each in request.assignments if each.member_id in self.roster}
            self._storing = Store(reason=StoreReason.ASSIGNED, group=self._stored(given), assignments=given)
            out.append(self._storing)
        return out

    def heartbeat(self, request: Heartbeat, now_ms: float) -> ErrorCode:
        """Return the answer to a heartbeat."""
        error = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._members.alive(request.member_id, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is _PREPARING else ErrorCode.NONE

    def check_commit(self, request: OffsetCommit, now_ms: float) -> ErrorCode:
        """Return NONE if the commit is allowed, else the error. The commit of a member renews its session.

        A client that is no member (generation -1) may commit while the group has no members.
        """
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if request.generation_id < 0 and self.state is _EMPTY:
            return ErrorCode.NONE
        error = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._members.alive(request.member_id, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is _COMPLETING else ErrorCode.NONE

    def check_transactional_commit(self, request: TxnOffsetCommit) -> ErrorCode:
        """Return NONE if a producer's commit is allowed. It renews no session, since it does not show that the member
        lives; a request that names no member may commit."""
        is_named = request.member_id or request.group_instance_id is not None
        if self.state is not _DEAD and request.generation_id < 0 and (self.state is _EMPTY or not is_named):
            return ErrorCode.NONE
        return self._check_member(request.member_id, request.group_instance_id, request.generation_id)

    def commit_validator(self, member_id: str, epoch: int) -> None:  # noqa: ARG002
        """Return None: a member commits for every partition, or for none."""
        return

    def check_fetch(self, request: OffsetFetchGroup) -> ErrorCode:  # noqa: ARG002
        """Return NONE: everybody may fetch offsets, whatever epoch they have."""
        return ErrorCode.NONE

    def leave(self, request: LeaveGroup, to: To, now_ms: float) -> Effects:
        """Handle a LeaveGroup of one or more members, with one rebalance for all of them."""
        if self.state is _DEAD:
            return [Answer(to, LeaveGroupResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        out: Effects = []
        left = [
            LeftMember(
                member_id=entry.member_id, group_instance_id=entry.group_instance_id, error=self._leave(entry, out)
            )
            for entry in request.members
        ]
        self._advance_rebalance(now_ms, out)
        out.append(Answer(to, LeaveGroupResult(members=left)))
        return out

    def tick(self, now_ms: float) -> Effects:
        """Handle the deadlines that are due: sessions, pending members, the rebalance, members without SyncGroup."""
        out: Effects = []
        due = self._deadlines.due(now_ms)
        for kind, member_id in due:
            if kind == Due.SESSION:
                self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID, out, "was not heard of in its session")
            elif kind == Due.PENDING_MEMBER:
                self._members.break_promise(member_id)
            elif kind == Due.SYNC:
                for late in sorted(self._unsynced):
                    self._remove(late, ErrorCode.UNKNOWN_MEMBER_ID, out, "did not synchronize in time")
        if self.state is _PREPARING and REBALANCE in due:
            self._rebalance_due(now_ms, out)
        elif due:
            self._advance_rebalance(now_ms, out)
        return out

    def restart_sessions(self, now_ms: float) -> None:
        """Give each member a whole session from now on, after a time in which the broker could not serve them."""
        for member in self.roster:
            self._members.refresh(member, now_ms)

    def remove_pending_member(self, member_id: str, now_ms: float) -> Effects:
        """Withdraw a pending member id before its time."""
        out: Effects = []
        if member_id in self.pending_members:
            self._members.break_promise(member_id)
            self._advance_rebalance(now_ms, out)
        return out

    def stored(self, store: Store, error: ErrorCode, now_ms: float) -> Effects:
        """Handle the end of the append that `store` requested; `error` is the one for clients."""
        out: Effects = []
        if store.reason is StoreReason.ASSIGNED and self._storing is store:
            self._storing = None
            if error is ErrorCode.NONE:
                self._assign(store, now_ms, out)
            else:
                for member in self.roster:
                    if answer_sync(member, error, out):
                        self._members.refresh(member, now_ms)
                self.causes.add(f"the assignment could not be written: {error.name}")
                self._prepare(now_ms, out)
        elif store.reason is StoreReason.REPLACED and store.answer is not None:
            replaced = self.roster.get(store.member_id)
            # In a rebalance that began meanwhile the member counts as one that has joined, and is answered with it.
            if self.state is _STABLE and replaced is not None and replaced.joining is store.answer.to:
                self.roster.stop_waiting(replaced)
                self._members.refresh(replaced, now_ms)
                failed = JoinGroupResult(error=error)
                out.append(store.answer if error is ErrorCode.NONE else Answer(store.answer.to, failed))
        return out

    def die(self, error: ErrorCode) -> Effects:
        """End the group, which was deleted or moved elsewhere: every waiting request is answered with `error`."""
        out: Effects = []
        self._members.clear(error, out)
        self._unsynced.clear()
        self._deadlines.clear()
        self._storing = None
        self._follow(GroupChange.END)
        return out

    def tombstones(self) -> list[Record]:
        """Return the record that takes the group out of the log, if it is there."""
        return [(encode_group_key(self.group_id), None)] if self.is_stored else []

    def shrink(self, now_ms: float) -> Effects:
        """Begin a rebalance if there are more members than `group.max.size` allows (it may have been lowered)."""
        out: Effects = []
        if len(self.roster) > self.config.group_max_size:
            self.causes.add(f"group.max.size is {self.config.group_max_size} now")
            self._prepare(now_ms, out)
        return out

    # --- joining

    def _refuse_join(self, request: JoinGroup, now_ms: float, out: Effects) -> ErrorCode:
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        roster, full = self.roster, self.config.group_max_size
        member = roster.get(request.member_id or roster.static_id(request.group_instance_id))
        if self.state is _PREPARING:
            # After the limit was lowered, the first members to rejoin stay.
            if roster.waiting >= full and (member is None or member.joining is None):
                if member is not None:
                    self._remove(member.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED, out, "found the group full")
                    self._advance_rebalance(now_ms, out)
                return ErrorCode.GROUP_MAX_SIZE_REACHED
        elif member is None and len(roster) >= full:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if len(roster) and (
            request.protocol_type != self.protocol_type
            or not roster.supports([protocol.name for protocol in request.protocols], member)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _join_known(self, request: JoinGroup, caller: Caller, to: To, now_ms: float, out: Effects) -> None:
        if request.member_id in self.pending_members and request.group_instance_id is None:
            self._members.break_promise(request.member_id)
            self._add(Member.joined(request.member_id, request, caller), request, to, now_ms, out)
            return
        error = self._members.identify(request.member_id, request.group_instance_id)
        member = self.roster.get(request.member_id)
        if error is not ErrorCode.NONE or member is None:
            refuse_join(request, to, error, out)
            return
        unchanged = list(protocols_by_name(request.protocols).items()) == list(member.protocols.items())
        if unchanged and (
            self.state is _COMPLETING or (self.state is _STABLE and member.member_id != self.leader)
        ):  # its answer was lost, or it reconnects
            self._members.refresh(member, now_ms)
            self._members.displace(member, out)
            out.append(Answer(to, self._joined(member)))
            return
        member = self._update(member, request, caller)
        self._wait(member, to, now_ms, out)
        if self.state is not _PREPARING:
            self.causes.add(f"{member.name} rejoined{said(request.reason)}")
        self._prepare(now_ms, out)

    def _add(self, member: Member, request: JoinGroup, to: To, now_ms: float, out: Effects) -> None:
        if not len(self.roster):
            self._agreed.protocol_type = request.protocol_type
        self.roster.add(member)
        if self.leader is None:
            self._agreed.leader = member.member_id
        self._wait(member, to, now_ms, out)
        self._grew = True
        self.causes.add(f"{member.name} joined{said(request.reason)}")
        self._prepare(now_ms, out)

    def _update(self, member: Member, request: JoinGroup, caller: Caller, new_id: str = "") -> Member:
        """Replace a member by what its JoinGroup says, with `new_id` if one is given; return the new member."""
        now = Member.joined(new_id or member.member_id, request, caller)
        now.group_instance_id = member.group_instance_id
        now.is_new, now.assignment = member.is_new, member.assignment
        now.joining, now.syncing = member.joining, member.syncing
        self.roster.replace(member, now)
        return now

    def _replace_static(
        self,
        request: JoinGroup,
        caller: Caller,
        to: To,
        now_ms: float,
        fresh_id: str,
        num_partitions: NumPartitions,
        out: Effects,
    ) -> None:
        """Replace a static member that has come back without its member id, after a restart; the old id is fenced.

        It stays in its generation if it would get the same topics. A leader skips the assignment then (KIP-814) and
        compares later metadata with those of now: partitions added while it was away would have no reader. So if a
        partition is assigned to no member, there is a rebalance. An assignor that leaves out partitions on purpose
        causes one with each return of its leader.
        """
        old = self.roster.get(self.roster.static_id(request.group_instance_id))
        assert old is not None  # asked by the caller
        was_leader, old_leader = old.member_id == self.leader, self.leader or ""
        topics = self._agreed.topics_of(old)
        self._members.let_go(old, ErrorCode.FENCED_INSTANCE_ID, out)
        self._members.stop_session(old.member_id)
        self._synced(old.member_id)
        member = self._update(old, request, caller, fresh_id)
        if was_leader:
            self._agreed.leader = fresh_id
        self._wait(member, to, now_ms, out)
        keeps = self.state is _STABLE and self.roster.elected_protocol() == self.protocol
        keeps = keeps and self._agreed.topics_of(member) == topics
        unassigned = self._agreed.find_unassigned(self.roster, num_partitions) if keeps and was_leader else None
        if not keeps or unassigned is not None:
            cause = f"{member.name} came back in place of {old.member_id}{said(request.reason)}"
            self.causes.add(cause if unassigned is None else f"{cause} to lead, and no member has {unassigned}")
            self._prepare(now_ms, out)
            return
        result = self._joined(member)
        if was_leader and not request.can_skip_assignment:
            result = self._joined(member, leader=old_leader)  # else it would send an assignment that no member gets
        answer = Answer(to, result)
        assignments = {each.member_id: each.assignment for each in self.roster}
        stored = self._stored(assignments)
        out.append(Store(reason=StoreReason.REPLACED, group=stored, member_id=member.member_id, answer=answer))

    def _wait(self, member: Member, to: To, now_ms: float, out: Effects) -> None:
        self._members.wait(member, to, now_ms + self.config.new_member_join_timeout_ms, out)

    # --- from one generation to the next

    def _prepare(self, now_ms: float, out: Effects) -> None:
        """Begin a rebalance, unless one is in preparation; the next generation starts if all members have joined."""
        if self.state is not _PREPARING:
            if self.state is _COMPLETING:
                for member in self.roster:
                    self.roster.assign(member, b"")
                    if answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS, out):
                        self._members.refresh(member, now_ms)
            self._storing, self._lost = None, False
            self._unsynced.clear()
            self._deadlines.drop(SYNC)
            self._initial, self._grew = self.state is _EMPTY, False
            self._follow(GroupChange.REBALANCE)
            longest = self.roster.longest_rebalance_ms()
            wait = longest
            if self._initial:
                self._initial_delay_until_ms = now_ms + longest
                wait = min(self.config.group_initial_rebalance_delay_ms, longest)
            self._deadlines.set(REBALANCE, now_ms + wait)
        self._advance_rebalance(now_ms, out)

    def _advance_rebalance(self, now_ms: float, out: Effects) -> None:
        """Start or complete a rebalance if the members or the deadlines now allow it."""
        if self.state is _PREPARING:
            everybody = self.roster.waiting == len(self.roster) and not self.pending_members
            if everybody and (not self._initial or not len(self.roster)):
                self._next_generation(now_ms, out)
            elif self._deadlines.get(REBALANCE) <= now_ms:
                self._rebalance_due(now_ms, out)
        elif self._lost:
            self._prepare(now_ms, out)

    def _rebalance_due(self, now_ms: float, out: Effects) -> None:
        if self._initial and self._grew and now_ms < self._initial_delay_until_ms:
            self._grew = False
            delay = self.config.group_initial_rebalance_delay_ms
            if delay > 0:
                self._deadlines.set(REBALANCE, min(now_ms + delay, self._initial_delay_until_ms))
                return
        self._next_generation(now_ms, out)

    def _next_generation(self, now_ms: float, out: Effects) -> None:
        """Start the next generation with the members that have joined, and the static members, which may come back
        within their sessions."""
        roster = self.roster
        for member in [each for each in roster if each.joining is None and each.group_instance_id is None]:
            self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, out, "did not rejoin in time")
        longest = roster.longest_rebalance_ms()
        if len(roster) and not roster.waiting:  # no member is there to lead
            self._initial = False
            self._deadlines.set(REBALANCE, now_ms + max(longest, self.config.group_min_session_timeout_ms))
            return
        self._deadlines.drop(REBALANCE)
        self._agreed.generation += 1
        if not len(roster):
            self._follow(GroupChange.DESERTED)
            self._agreed.protocol = self._agreed.leader = None
            out.append(Store(reason=StoreReason.EMPTIED, group=self._stored({})))
            return
        leader = roster.get(self.leader)
        if leader is None or leader.joining is None:
            self._agreed.leader = next(each.member_id for each in roster if each.joining is not None)
        self._follow(GroupChange.JOINED)
        self._agreed.protocol = roster.elected_protocol()
        self._unsynced = {each.member_id for each in roster if each.joining is not None}
        self._deadlines.set(SYNC, now_ms + longest)
        for member in roster:
            to = roster.stop_waiting(member)
            roster.assign(member, b"")
            if to is not None:
                member.is_new = False
                self._members.refresh(member, now_ms)
                out.append(Answer(to, self._joined(member)))

    def _assign(self, store: Store, now_ms: float, out: Effects) -> None:
        self._follow(GroupChange.ASSIGNED)
        for member in self.roster:
            self.roster.assign(member, store.assignments.get(member.member_id, b""))
            to, member.syncing = member.syncing, None
            if to is not None:
                self._members.refresh(member, now_ms)
                out.append(Answer(to, self._agreed.assigned(member)))

    # --- leaving

    def _leave(self, leaving: LeavingMember, out: Effects) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            member_id = self.roster.static_id(instance_id) or ""
        elif member_id in self.pending_members and instance_id is None:
            self._members.break_promise(member_id)
            return ErrorCode.NONE
        error = self._members.identify(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID, out, f"left{said(leaving.reason)}")
        return error

    def _remove(self, member_id: str, error: ErrorCode, out: Effects, why: str) -> None:
        """The member is gone, if it was there; `_advance_rebalance` is to follow."""
        member = self.roster.get(member_id)
        if member is None:
            return
        self.causes.add(f"{member.name} {why}")
        self._members.remove(member, error, out)
        self._synced(member_id)
        if member_id == self.leader:
            first = self.roster.first()
            self._agreed.leader = None if first is None else first.member_id
        self._lost = self._lost or self.state in (_STABLE, _COMPLETING)

    # --- small steps

    def _follow(self, event: GroupChange) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._members.identify(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self._agreed.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _joined(self, member: Member, leader: str | None = None) -> JoinGroupResult:
        return self._agreed.joined(member, self.roster, stable=self.state is _STABLE, leader=leader)

    def _stored(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        return self._agreed.stored(self.roster, assignments)

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._deadlines.drop(SYNC)
