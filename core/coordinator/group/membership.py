"""What a group is made of: its members, what they wait for, and their deadlines."""

from collections.abc import Mapping
from enum import IntEnum

from ....ports.broker_api import JoinedMember, JoinGroupResult, SyncGroupResult
from ....ports.error_codes import ErrorCode
from .config import GroupConfig
from .deadlines import Deadlines
from .effects import Answer, Effects, Store
from .member import Member, Roster
from .records import StoredGroup
from .states import GroupState
from .subscription import CONSUMER_PROTOCOL, subscribed_topics


class Due(IntEnum):
    """What a deadline is for."""

    SESSION = 0
    PROMISED = 1
    """A member id that was given out must be used by then."""
    REBALANCE = 2
    SYNC = 3
    """Who has not synchronized by then is dropped."""


CAUSES_MAX = 5
"""So many are told of a rebalance; a large group has one for each of its members."""

REBALANCE = (Due.REBALANCE, "")
SYNC = (Due.SYNC, "")


class Membership:
    """The state of a group, and the small steps that its events are made of."""

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.roster = Roster()
        self.promised: set[str] = set()
        """Member ids that were given out with MEMBER_ID_REQUIRED and not used yet."""
        self._unsynced: set[str] = set()
        self._deadlines = Deadlines()
        self._storing: Store | None = None
        """The assignment that is being written."""
        self._initial = False
        """The rebalance in preparation is the first of an empty group, which waits for more members to come."""
        self._grew = False
        """A member came since the initial rebalance was last put off."""
        self._put_off_until_ms = 0.0
        self._lost = False
        """A member of the present generation has gone."""
        self._causes: list[str] = []

    @property
    def next_due_ms(self) -> float | None:
        """When to call `tick`: not after the next deadline; None = there is none."""
        return self._deadlines.next_ms()

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members together; None where that cannot be known. A step per member."""
        if not len(self.roster):
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return None
        found: set[str] = set()
        for metadata in {member.protocols.get(self.protocol) for member in self.roster}:
            topics = None if metadata is None else subscribed_topics(metadata)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    # --- why

    def _because(self, cause: str) -> None:
        if len(self._causes) < CAUSES_MAX:
            self._causes.append(cause)

    def take_causes(self) -> list[str]:
        """Why members came and went since this was last asked, for the log; the first few."""
        causes, self._causes = self._causes, []
        return causes

    # --- answers

    def _joined(self, member: Member, leader: str | None = None) -> JoinGroupResult:
        """The answer to a member of this generation; only who leads is told of the others."""
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
                for each in self.roster
            ]
            if leads
            else (),
            skip_assignment=leads and self.state is GroupState.STABLE,
        )

    def _assigned(self, member: Member) -> SyncGroupResult:
        return SyncGroupResult(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    def _stored(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        protocol = self.protocol or ""
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=[each.stored(protocol, assignments.get(each.member_id, b"")) for each in self.roster],
        )

    def _displace(self, member: Member, out: Effects) -> None:
        """It has asked again, over another connection perhaps: an answer to its earlier join leads nowhere."""
        earlier = self.roster.stop_waiting(member)
        if earlier is not None:
            result = JoinGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            out.append(Answer(earlier, result))

    def _remove(self, member_id: str, error: ErrorCode, out: Effects, why: str) -> None:
        """The member is gone, if it was there; `_go_on` is to follow."""
        member = self.roster.get(member_id)
        if member is None:
            return
        self._because(f"{member.name} {why}")
        self._let_go(member, error, out)
        self.roster.remove(member)
        self._deadlines.drop((Due.SESSION, member_id))
        self._synced(member_id)
        if member_id == self.leader:
            first = self.roster.first()
            self.leader = None if first is None else first.member_id
        self._lost = self._lost or self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)

    def _let_go(self, member: Member, error: ErrorCode, out: Effects) -> None:
        """Answer whatever it waits for."""
        to = self.roster.stop_waiting(member)
        if to is not None:
            out.append(Answer(to, JoinGroupResult(error=error, member_id=member.member_id)))
        answer_sync(member, error, out)

    def _break_promise(self, member_id: str) -> None:
        self.promised.discard(member_id)
        self._deadlines.drop((Due.PROMISED, member_id))

    # --- members

    def _identify(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known = self.roster.static_id(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if known == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.roster else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._identify(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _alive(self, member_id: str, now_ms: float) -> None:
        member = self.roster.get(member_id)
        if member is not None:
            self._refresh(member, now_ms)

    def _refresh(self, member: Member, now_ms: float) -> None:
        """A new session, unless the member waits for an answer: then it lives as long as it waits."""
        if member.joining is None and member.syncing is None:
            self._deadlines.set((Due.SESSION, member.member_id), now_ms + member.session_timeout_ms)

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._deadlines.drop(SYNC)

    def _topics(self, member: Member) -> frozenset[str] | None:
        metadata = None if self.protocol is None else member.protocols.get(self.protocol)
        if metadata is None or self.protocol_type != CONSUMER_PROTOCOL:
            return None
        return subscribed_topics(metadata)


def answer_sync(member: Member, error: ErrorCode, out: Effects) -> bool:
    """Answer a sync that waits with an error; False if none does."""
    to, member.syncing = member.syncing, None
    if to is not None:
        out.append(Answer(to, SyncGroupResult(error=error)))
    return to is not None
