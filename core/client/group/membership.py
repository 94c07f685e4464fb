"""A consumer's membership in a group, as far as it does not depend on the protocol (facts C6)."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from ....ports.broker_api.envelope import Request
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define
from ..coordinator_finder import CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send
from .commit_request_manager import CommitIdentity, CommitRequestManager
from .events import Assigned, CommittedOffset, Failed, GroupEvent, GroupSettings, Lost, Revoke, TopicPartitions
from .generation import Generation
from .subscribed_topics import SubscribedTopics


class MembershipState(Enum):
    IDLE = "nothing is subscribed to"
    REVOKING = "the user gives up what it has, then the member joins"
    JOINING = "the joiner is at work"
    STABLE = "the member has its assignment"
    LEFT_BY_TIMEOUT = "the member has left, until the user polls"
    FAILED = "the user gets the error that ended the membership"


ACTIVE_STATES = (MembershipState.REVOKING, MembershipState.JOINING, MembershipState.STABLE)
"""The states of a member that is in the group, or joining it."""


# The requests by which a member leaves, so that the others need not wait for the end of its session.


@define(eq=False)
class _Leave:
    request: Request[Any]
    done: Callable[[], None]
    last_error: BarnabasError | None
    """The error of the last coordinator lookup when the wait began."""

    def to(self, node: int) -> Send:
        return Send(node, self.request, lambda _result, _now: self.done())


class LeaveRequests:
    """Sends each request once; a second time if the connection turns out to be dead and the coordinator is found again.

    There is one lookup only: a leaving member does not wait for an unreachable cluster.
    """

    def __init__(self, finder: CoordinatorFinder) -> None:
        self._finder = finder
        self._sends: list[Send] = []
        self._waiting: list[_Leave] = []

    def send(self, node: int | None, request: Request[Any], done: Callable[[], None]) -> None:
        """Send to `node`, or to the coordinator once it is found. `done` is called once, after answer or failure."""

        def answered(result: Any, now_ms: float) -> None:
            if isinstance(result, BarnabasError) and is_gone(result):
                self._finder.mark_coordinator_unknown(result, now_ms)
                self._wait(request, done)
            else:
                done()

        if node is None:
            self._wait(request, done)
        else:
            self._sends.append(Send(node, request, answered))

    def poll(self) -> list[Send]:
        sends, self._sends = self._sends, []
        if self._waiting:
            node = self._finder.node()
            if node is not None:
                sends += [each.to(node) for each in self._waiting]
                self._waiting.clear()
            for each in [each for each in self._waiting if each.last_error is not self._finder.last_error]:
                self._waiting.remove(each)
                each.done()
        return sends

    def _wait(self, request: Request[Any], done: Callable[[], None]) -> None:
        self._waiting.append(_Leave(request, done, self._finder.last_error))


class OwnedPartitions:
    """Partitions of one member, and the events that wait for its user. At most one `Revoke` is open at a time."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()
        """The partitions of the last assignment, without those given up since."""
        self.user_partitions: set[TopicPartition] = set()
        """The partitions that the user has, or will have when all events are taken."""
        self.events: deque[GroupEvent] = deque()
        self._open: Revoke | None = None
        self._taken = False
        self._is_overtaken = False
        """True while the user is giving up partitions that the member has lost meanwhile."""

    @property
    def revoking(self) -> bool:
        """True while the user has something to give up."""
        return self._open is not None

    @property
    def has_lost(self) -> bool:
        """True while the user has not taken the event of a loss, or is giving up partitions that are lost already."""
        return self._is_overtaken or any(isinstance(event, Lost) for event in self.events)

    def add_assignment(self, positions: Mapping[TopicPartition, CommittedOffset | None], generation_id: int) -> None:
        """Give the user these partitions, if they are the member's and new to the user."""
        new = {tp: positions[tp] for tp in sorted(positions) if tp in self.assigned - self.user_partitions}
        self.user_partitions |= new.keys()
        self.events.append(Assigned(positions=new, generation_id=generation_id))

    def revoke(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        """Add a `Revoke` of these partitions; those that the user does not have are given up at once."""
        wanted = set(partitions)
        self.assigned -= wanted - self.user_partitions
        asked = sorted(wanted & self.user_partitions)
        if asked:
            self._open = Revoke(partitions=asked, reason=reason)
            self._taken = False
            self.events.append(self._open)

    def take_event(self) -> GroupEvent | None:
        if not self.events:
            return None
        event = self.events[0]
        if not (isinstance(event, Failed) and event.final):
            self.events.popleft()
        if event is self._open:
            self._taken = True
        return event

    def revoked_done(self) -> None:
        """Note that the user has given up the partitions of the open `Revoke`; does nothing if it has taken none."""
        self._is_overtaken = False
        if self._open is not None and self._taken:
            self._drop(self._open.partitions)
            self._open = None

    def lose_partitions(self, reason: str, *, report_empty: bool = False) -> None:
        """Drop everything, and report by `Lost` what the user has, without the partitions of a taken `Revoke`.

        If the user has no others, the event is added only on request.
        """
        if self._open is not None:
            if self._taken:
                self._drop(self._open.partitions)
                self._is_overtaken = True
            else:
                self.events.remove(self._open)
            self._open = None
        if self.user_partitions or report_empty:
            self.events.append(Lost(partitions=sorted(self.user_partitions), reason=reason))
        self.user_partitions.clear()
        self.assigned.clear()

    def clear(self) -> None:
        """Drop everything without events, because the user has given it up."""
        self.assigned.clear()
        self.user_partitions.clear()
        self.events.clear()
        self._open = None
        self._is_overtaken = False

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        self.user_partitions.difference_update(partitions)
        self.assigned.difference_update(partitions)


@define(eq=False)
class SharedMembership:
    """The subscription, the partitions and the user's calls, which outlast a change of the protocol."""

    topics: SubscribedTopics
    owned: OwnedPartitions
    positions: CommitRequestManager
    notify: Callable[[], None]


class AbstractMembershipManager:
    """The part of a membership that both protocols share: events for the user, and the time between its polls."""

    def __init__(self, finder: CoordinatorFinder, settings: GroupSettings, shared: SharedMembership) -> None:
        self._finder = finder
        self._settings = settings
        self._notify = shared.notify
        self.generation = Generation()
        self.topics = shared.topics
        self.owned = shared.owned
        self.positions = shared.positions
        self._leaving = LeaveRequests(finder)
        self._phase = MembershipState.IDLE
        self._not_member_reason = "it has not joined yet"
        self._polled_ms = -NEVER
        self._is_back = False
        self._revoke_until_ms = NEVER

    @property
    def polled_ms(self) -> float:
        """The time of the user's last poll."""
        return self._polled_ms

    # --- what the protocols do differently

    @property
    def settled(self) -> bool:
        """True while the member has its assignment, and nothing is under way to change it."""
        raise NotImplementedError

    def poll(self, now_ms: float) -> Poll:
        raise NotImplementedError

    def rejoin(self, reason: str) -> None:
        """Ask for a rebalance."""
        raise NotImplementedError

    def _start_round(self, reason: str) -> None:
        """Join the group."""
        raise NotImplementedError

    def _leave_group(self, reason: str, done: Callable[[], None] = lambda: None) -> None:
        """Leave the group, and drop what is in flight for this membership."""
        raise NotImplementedError

    def _forget_membership(self) -> None:
        """Drop the membership without a request, because another consumer has it."""
        raise NotImplementedError

    def node(self) -> int | None:
        """Return the coordinator, over a connection that is free; None during a lookup."""
        raise NotImplementedError

    def identity(self, partitions: TopicPartitions, since: CommitIdentity | None) -> CommitIdentity | BarnabasError:
        """See `CommitMembership.identity`."""
        raise NotImplementedError

    def refused(self, code: ErrorCode, identity: CommitIdentity, now_ms: float) -> BarnabasError | None:
        """See `CommitMembership.refused`."""
        raise NotImplementedError

    def fetch_identity(self) -> CommitIdentity | None:
        """See `CommitMembership.fetch_identity`."""
        return None

    # --- what the user wants

    def on_subscription_updated(self, now_ms: float) -> None:
        """Join for a new or changed subscription."""
        self._polled_ms = max(self._polled_ms, now_ms)
        events = self.owned.events
        if self._phase is MembershipState.FAILED:
            if any(isinstance(event, Failed) and event.final for event in events):
                return
            for event in [event for event in events if isinstance(event, Failed)]:
                events.remove(event)
        if self._phase in ACTIVE_STATES:
            self.rejoin("the subscription has changed")
        else:
            self._start_round("the consumer subscribes")

    def leave(self, reason: str, done: Callable[[], None]) -> None:
        """Give up the subscription and everything that the member has."""
        self.topics.clear()
        self.owned.clear()
        self._phase = MembershipState.IDLE
        self._not_member_reason = "it has left"
        self._leave_group(reason, done)

    def polled(self, now_ms: float) -> bool:
        self._polled_ms = now_ms
        self._is_back = self._phase is MembershipState.LEFT_BY_TIMEOUT
        return self._is_back

    def take_event(self) -> GroupEvent | None:
        event = self.owned.take_event()
        if isinstance(event, Failed) and not event.final and self._phase is MembershipState.FAILED:
            self._start_round("the application continues after an error")
        return event

    def coordinator_refused(self, error: BarnabasError) -> None:
        """Fail, because there is no coordinator for this group, or not for this user."""
        self.positions.fail_all(error)
        if self._phase in ACTIVE_STATES:
            self._fail(error)

    # --- for both protocols

    def _check_poll_interval(self, now_ms: float) -> float:
        """Leave if the user does not poll, or does not give up what it should; join again when it polls."""
        if self._phase is MembershipState.LEFT_BY_TIMEOUT and self._is_back:
            self._start_round("the consumer polls again")
        if self._phase not in ACTIVE_STATES:
            return NEVER
        limit_ms = self._settings.max_poll_interval_ms
        due_ms = self._polled_ms + limit_ms
        if self.owned.revoking:
            due_ms = min(due_ms, self._revoke_until_ms)
        if now_ms < due_ms:
            return due_ms
        what = "given up its partitions" if self.owned.revoking else "polled"
        text = (
            f"the user has not {what} for max.poll.interval.ms={limit_ms:g}, so the consumer has left group "
            f"{self._settings.group_id}; handle fewer messages at a time (max.poll.records), or allow more time"
        )
        self._not_member_reason = text
        self._phase = MembershipState.LEFT_BY_TIMEOUT
        self._is_back = False
        self.owned.lose_partitions(text, report_empty=True)
        self._notify()
        self._leave_group("consumer poll timeout has expired")
        return NEVER

    def _revoke(self, partitions: TopicPartitions, reason: str, now_ms: float) -> bool:
        """Let the user give up these partitions. Return True if it has some of them."""
        self.owned.revoke(partitions, reason)
        self._revoke_until_ms = now_ms + self._settings.max_poll_interval_ms
        if self.owned.revoking:
            self._notify()
        return self.owned.revoking

    def _fail(self, error: BarnabasError) -> None:
        final = isinstance(error, ApiError) and error.code is ErrorCode.FENCED_INSTANCE_ID
        self._phase = MembershipState.FAILED
        self._not_member_reason = str(error)
        self.owned.lose_partitions(self._not_member_reason)
        if final:
            self._forget_membership()
        else:
            self._leave_group("the consumer has failed")
        self._add_failure(Failed(error=error, final=final))

    def _add_failure(self, event: GroupEvent) -> None:
        self.owned.events.append(event)
        self._notify()
