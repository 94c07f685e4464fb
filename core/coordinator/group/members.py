"""The members of a group with the answers that they wait for and their session deadlines."""

from enum import IntEnum

from ....ports.broker_api.groups import JoinGroup, JoinGroupResult, SyncGroupResult
from ....ports.error_codes import ErrorCode
from .deadlines import Deadlines
from .effects import Answer, Effects, To
from .member import Member, Roster


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
