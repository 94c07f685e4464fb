"""A consumer's membership in its group (facts C6, Classic group protocol).

`Joiner` brings a member into the next generation: join, assign for all members if it leads, synchronize.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from ....ports.broker_api.groups import (
    GroupProtocol,
    Heartbeat,
    HeartbeatResult,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
    SyncGroupResult,
)
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ..cluster_view import ClusterView
from ..coordinator_finder import COORDINATOR_MOVED, CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import HookError
from .assignor import Assignor
from .commit_request_manager import CommitIdentity, CommitRequestManager
from .consumer_membership import ConsumerMembershipManager
from .consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from .events import (
    CommitResultCallback,
    CommittedOffset,
    Failed,
    GroupEvent,
    GroupSettings,
    OffsetsCallback,
    TopicPartitions,
)
from .generation import FENCED_ERRORS, Generation, explained
from .membership import ACTIVE_STATES, AbstractMembershipManager, MembershipState, OwnedPartitions, SharedMembership
from .subscribed_topics import GroupTopics, SubscribedTopics, broker_regex

_REASON_MAX = 255
"""The maximal number of characters, as in Java."""


class _JoinStage(Enum):
    IDLE = "idle"
    JOIN = "join"
    ASSIGN = "assign"
    SYNC = "sync"


class JoinListener(Protocol):
    """The joiner's owner and listener. Every notification but `on_joined` ends the round."""

    @property
    def ready(self) -> bool:
        """False while the topics for the join are not known."""
        ...

    def on_join_prepare(self) -> tuple[Collection[str], Collection[TopicPartition]]:
        """Return the subscribed topics, and the partitions that the member continues to read."""
        ...

    def on_joined(self, now_ms: float) -> None:
        """Note that the member is in the new generation; the assignment follows."""
        ...

    def on_assigned(self, partitions: Sequence[TopicPartition], now_ms: float) -> None: ...

    def on_rejoin_needed(self, reason: str, now_ms: float) -> None:
        """Join again, with everything that the member has."""
        ...

    def on_membership_lost(self, code: ErrorCode, now_ms: float) -> None:
        """Note that the coordinator no longer knows the member."""
        ...

    def on_join_failed(self, error: BarnabasError, now_ms: float) -> None: ...

    def on_orphaned_member(self, member_id: str) -> None:
        """Note that a round that was given up created a member all the same."""
        ...


class Joiner:
    """Runs one round at a time, from `start_round` until it notifies its owner of the end, or until `stop`."""

    def __init__(
        self,
        finder: CoordinatorFinder,
        entropy: Entropy,
        settings: GroupSettings,
        assignors: Sequence[Assignor],
        generation: Generation,
        watch: GroupTopics,
        owner: JoinListener,
    ) -> None:
        self._finder = finder
        self._entropy = entropy
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._generation = generation
        self._watch = watch
        self._owner = owner
        self._stage = _JoinStage.IDLE
        self._turn = 0
        self._in_flight = False
        self._reason = ""
        self._failures = 0
        self._not_before_ms = -NEVER
        self._members: Mapping[str, Subscription] = {}
        self._skip_assignment = False
        self._shares: Sequence[MemberAssignment] = ()
        self._last: Sequence[TopicPartition] = ()
        self._last_generation = -1
        self.topics: frozenset[str] = frozenset()
        """The topics of the member's last join."""

    @property
    def is_waiting(self) -> bool:
        """True while the coordinator has a join or sync of this member, which replaces its heartbeats."""
        return self._in_flight

    @property
    def is_assigning(self) -> bool:
        """True while this member leads and waits for metadata of the topics."""
        return self._stage is _JoinStage.ASSIGN

    def start_round(self, reason: str) -> None:
        """Join with what the owner wants when the request is made."""
        self.stop()
        self._stage = _JoinStage.JOIN
        self._reason = reason

    def stop(self) -> None:
        self._turn += 1
        self._in_flight = False
        self._stage = _JoinStage.IDLE

    def poll(self, now_ms: float) -> Poll:
        if self._in_flight or self._stage is _JoinStage.IDLE:
            return Poll([], NEVER)
        if self._stage is _JoinStage.ASSIGN:
            if not self._watch.ready or not self._assign(now_ms):
                return Poll([], NEVER)
            self._stage = _JoinStage.SYNC
        if now_ms < self._not_before_ms:
            return Poll([], self._not_before_ms)
        if self._stage is _JoinStage.JOIN and not self._owner.ready:
            return Poll([], NEVER)
        node = self._finder.node()
        if node is None:
            return Poll([], NEVER)
        self._in_flight = True
        turn = self._turn
        if self._stage is _JoinStage.JOIN:
            return Poll([Send(node, self._join(), lambda result, now: self._joined(turn, result, now))], NEVER)
        return Poll([Send(node, self._sync(), lambda result, now: self._synced(turn, result, now))], NEVER)

    # --- join

    def _join(self) -> JoinGroup:
        settings = self._settings
        topics, owned = self._owner.on_join_prepare()
        self.topics = frozenset(topics)
        return JoinGroup(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=int(settings.max_poll_interval_ms),
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                GroupProtocol(name, self._subscription(assignor, sorted(owned)))
                for name, assignor in self._assignors.items()
            ],
            member_id=self._generation.member_id,
            group_instance_id=settings.group_instance_id,
            reason=self._reason[:_REASON_MAX] or None,
        )

    def _subscription(self, assignor: Assignor, owned: Sequence[TopicPartition]) -> bytes:
        subscription = Subscription(
            topics=sorted(self.topics),
            user_data=assignor.user_data(self._last, self._last_generation),
            owned=owned,
            generation_id=self._generation.generation_id,
            rack=self._settings.client_rack,
        )
        return encode_subscription(subscription)

    def _joined(self, turn: int, result: Any, now_ms: float) -> None:
        if turn != self._turn:
            if isinstance(result, JoinGroupResult) and result.error is ErrorCode.NONE:
                self._owner.on_orphaned_member(result.member_id)
            return
        self._in_flight = False
        if not isinstance(result, JoinGroupResult):
            self._unanswered(result, now_ms)
            return
        code = result.error
        if code is ErrorCode.NONE:
            self._enter(result, now_ms)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self._generation.member_id = result.member_id
        elif code in FENCED_ERRORS:
            self._later(now_ms)
            self._owner.on_membership_lost(code, now_ms)
        elif code in COORDINATOR_MOVED:
            self._finder.mark_coordinator_unknown(ApiError(code, "join"), now_ms)
            self._later(now_ms)
        elif code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
            self._later(now_ms)
        else:
            self._fail(code, now_ms)

    def _enter(self, result: JoinGroupResult, now_ms: float) -> None:
        name = result.protocol_name or ""
        if name not in self._assignors:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, now_ms)
            return
        self._failures = 0
        self._finder.reset_backoff()
        now = self._generation
        now.member_id, now.generation_id, now.protocol_name = result.member_id, result.generation_id, name
        self._shares = ()
        if result.leader == result.member_id:
            self._skip_assignment = result.skip_assignment
            self._members = {member.member_id: _subscription_of(member) for member in result.members}
            self._watch.watch_topics({topic for each in self._members.values() for topic in each.topics} | self.topics)
            self._stage = _JoinStage.ASSIGN
        else:
            self._watch.unwatch_topics(self.topics)
            self._stage = _JoinStage.SYNC
        self._owner.on_joined(now_ms)

    # --- assign

    def _assign(self, now_ms: float) -> bool:
        """Compute the assignment; False if that failed and ended the round."""
        counts = self._watch.counts()
        if self._skip_assignment:
            return True
        name = self._generation.protocol_name
        try:
            shares = self._assignors[name].assign(self._members, counts)
            self._shares = [
                MemberAssignment(member, encode_assignment(Assignment(partitions=shares.get(member, ()))))
                for member in self._members
            ]
        except Exception as error:  # noqa: BLE001  # a plugin's assignor may raise anything; the user gets the error
            failure = HookError(f"assignor {name} failed for group {self._settings.group_id}: {error!r}")
            failure.__cause__ = error
            self.stop()
            self._owner.on_join_failed(failure, now_ms)
            return False
        return True

    # --- synchronize

    def _sync(self) -> SyncGroup:
        now = self._generation
        return SyncGroup(
            group_id=self._settings.group_id,
            generation_id=now.generation_id,
            member_id=now.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=now.protocol_name,
            assignments=self._shares,
        )

    def _synced(self, turn: int, result: Any, now_ms: float) -> None:
        if turn != self._turn:
            return
        self._in_flight = False
        if not isinstance(result, SyncGroupResult):
            self._unanswered(result, now_ms)
            return
        code = result.error
        if code is ErrorCode.NONE:
            self._apply_assignment(result.assignment, now_ms)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._owner.on_rejoin_needed("the group was rebalanced again before the member was in", now_ms)
        elif code in FENCED_ERRORS:
            self._owner.on_membership_lost(code, now_ms)
        elif code in COORDINATOR_MOVED or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            if code in COORDINATOR_MOVED:
                self._finder.mark_coordinator_unknown(ApiError(code, "sync"), now_ms)
            self._later(now_ms)
            self._owner.on_rejoin_needed(f"the coordinator answered the sync with {code.name}", now_ms)
        else:
            self._fail(code, now_ms)

    def _apply_assignment(self, data: bytes, now_ms: float) -> None:
        try:
            partitions = decode_assignment(data).partitions
        except ValueError as error:
            text = f"the leader of group {self._settings.group_id} sent an assignment that cannot be read: {error}"
            self.stop()
            self._owner.on_join_failed(ApiError(ErrorCode.INVALID_REQUEST, text), now_ms)
            return
        self._failures = 0
        self._finder.reset_backoff()
        self._last, self._last_generation = partitions, self._generation.generation_id
        self.stop()
        self._owner.on_assigned(partitions, now_ms)

    # --- what goes wrong

    def _unanswered(self, result: Any, now_ms: float) -> None:
        """Handle an error that came in place of a result."""
        error = result if isinstance(result, BarnabasError) else ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(result))
        if isinstance(error, ApiError) and not error.retriable:
            self.stop()
            self._owner.on_join_failed(error, now_ms)
            return
        if is_gone(error):
            self._finder.mark_coordinator_unknown(error, now_ms)
        self._later(now_ms)
        if self._stage is _JoinStage.SYNC:
            self._owner.on_rejoin_needed(f"the coordinator did not answer: {error}", now_ms)

    def _fail(self, code: ErrorCode, now_ms: float) -> None:
        self.stop()
        self._later(now_ms)
        self._owner.on_join_failed(explained(code, self._settings, ", ".join(self._assignors)), now_ms)

    def _later(self, now_ms: float) -> None:
        self._failures += 1
        settings = self._settings
        self._not_before_ms = now_ms + backoff_ms(
            self._failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )


def _subscription_of(member: JoinedMember) -> Subscription:
    """Return a member's subscription. An invalid one counts as empty, so that the other members get theirs."""
    try:
        subscription = decode_subscription(member.metadata)
    except ValueError:
        subscription = Subscription(topics=())
    return Subscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned=subscription.owned,
        generation_id=subscription.generation_id,
        rack=subscription.rack,
        group_instance_id=member.group_instance_id,
    )


# Heartbeats by which the coordinator knows that the member lives, independent of its user's work.

HeartbeatErrorCallback = Callable[[ErrorCode, float], None]
"""Takes the coordinator's error for a heartbeat of the present generation; never NONE."""


class HeartbeatRequests:
    """Sends one heartbeat at a time, every `heartbeat.interval.ms`, while it is polled."""

    def __init__(
        self,
        finder: CoordinatorFinder,
        settings: GroupSettings,
        generation: Generation,
        on_error: HeartbeatErrorCallback,
    ) -> None:
        self._finder = finder
        self._settings = settings
        self._generation = generation
        self._on_error = on_error
        self._next_ms = -NEVER
        self._since_ms = -NEVER
        self._turn = 0
        self._in_flight = False

    def start(self, now_ms: float) -> None:
        """Restart the interval, because the coordinator has just heard of the member."""
        self._turn += 1
        self._in_flight = False
        self._since_ms = now_ms
        self._next_ms = now_ms + self._settings.heartbeat_interval_ms

    def stop(self) -> None:
        """Ignore pending responses to heartbeats of the earlier membership."""
        self._turn += 1

    def poll(self, now_ms: float) -> Poll:
        silent_ms = self._since_ms + self._settings.session_timeout_ms
        if now_ms >= silent_ms:
            text = f"it has not answered for session.timeout.ms={self._settings.session_timeout_ms}"
            self._finder.mark_coordinator_unknown(ApiError(ErrorCode.REQUEST_TIMED_OUT, text), now_ms)
            self.start(now_ms)
            self._next_ms = now_ms
            silent_ms = now_ms + self._settings.session_timeout_ms
        if self._in_flight:
            return Poll([], silent_ms)
        if now_ms < self._next_ms:
            return Poll([], min(self._next_ms, silent_ms))
        node = self._finder.node()
        if node is None:
            return Poll([], silent_ms)
        self._in_flight = True
        self._next_ms = now_ms + self._settings.heartbeat_interval_ms
        now = self._generation
        request = Heartbeat(
            group_id=self._settings.group_id,
            generation_id=now.generation_id,
            member_id=now.member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        turn = self._turn
        return Poll([Send(node, request, lambda result, now: self._answered(turn, result, now))], silent_ms)

    def _answered(self, turn: int, result: Any, now_ms: float) -> None:
        if turn != self._turn:
            return
        self._in_flight = False
        error: BarnabasError | None = result if isinstance(result, BarnabasError) else None
        if isinstance(result, HeartbeatResult):
            code = result.error
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._since_ms = now_ms
                self._finder.reset_backoff()
            if code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return
            error = ApiError(code, "heartbeat")
        if error is None or is_gone(error):
            self._next_ms = now_ms  # as soon as the coordinator is found
            self._finder.mark_coordinator_unknown(
                error or ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no answer"), now_ms
            )
        elif isinstance(error, ApiError):
            self._on_error(error.code, now_ms)


class ClassicMembershipManager(AbstractMembershipManager):
    """The membership by JoinGroup and SyncGroup, and the listener of its joiner, heartbeats and commits."""

    def __init__(
        self,
        view: ClusterView,
        finder: CoordinatorFinder,
        entropy: Entropy,
        settings: GroupSettings,
        assignors: Sequence[Assignor],
        shared: SharedMembership,
    ) -> None:
        super().__init__(finder, settings, shared)
        self._view = view
        self._cooperative = all(assignor.cooperative for assignor in assignors)
        self._assignor_names = ", ".join(assignor.name for assignor in assignors)
        self._watch = GroupTopics(view)
        self._joiner = Joiner(finder, entropy, settings, assignors, self.generation, self._watch, self)
        self._heartbeats = HeartbeatRequests(finder, settings, self.generation, self.on_heartbeat_error)
        self._rejoin_reason: str | None = None
        self._views_seen = 0
        self._round = 0

    @property
    def settled(self) -> bool:
        at_rest = self._phase is MembershipState.STABLE and self._rejoin_reason is None
        return at_rest and not self.owned.revoking and self.owned.user_partitions == self.owned.assigned

    def poll(self, now_ms: float) -> Poll:
        self._check_metadata()
        wake = self._check_poll_interval(now_ms)
        self._advance(now_ms)
        polls = [self._joiner.poll(now_ms)]
        if self._phase in ACTIVE_STATES and self.generation.is_member() and not self._joiner.is_waiting:
            polls.append(self._heartbeats.poll(now_ms))
        sends = [*self._leaving.poll(), *(send for poll in polls for send in poll.sends)]
        return Poll(sends, min(wake, *(poll.wake_ms for poll in polls)))

    def leave(self, reason: str, done: Callable[[], None]) -> None:
        self._watch.unwatch_topics(frozenset())
        super().leave(reason, done)

    def rejoin(self, reason: str) -> None:
        self._rejoin_reason = self._rejoin_reason or reason

    # --- what happens without a request of the user

    def _check_metadata(self) -> None:
        if self._views_seen == self._view.updates or not self.topics.active:
            return
        self._views_seen = self._view.updates
        if self.topics.update_matches():
            self.rejoin("other topics match the pattern")
        refusal = self.topics.take_refusal()
        if refusal is not None:
            self._add_failure(Failed(error=refusal))
        if self._phase is MembershipState.STABLE:
            topic = self._watch.changed()
            if topic is not None:
                self.rejoin(f"topic {topic} has other partitions")

    def _advance(self, now_ms: float) -> None:
        reason = self._rejoin_reason
        if self._phase is MembershipState.STABLE and reason is not None and not self.owned.revoking:
            keep = self.topics.names if self._cooperative else frozenset()
            self._phase = MembershipState.REVOKING
            self._revoke({tp for tp in self.owned.assigned if tp.topic not in keep}, reason, now_ms)
        if self._phase is MembershipState.REVOKING and not self.owned.revoking:
            self._start_round(reason or "")

    def _start_round(self, reason: str) -> None:
        self._phase = MembershipState.JOINING
        self._joiner.start_round(reason)

    # --- the listener of the joiner

    @property
    def ready(self) -> bool:
        return self.topics.ready

    def on_join_prepare(self) -> tuple[Collection[str], Collection[TopicPartition]]:
        self._rejoin_reason = None  # whatever it was, this join is for it too
        return self.topics.names, self.owned.assigned

    def on_joined(self, now_ms: float) -> None:
        self._round += 1
        self._heartbeats.start(now_ms)

    def on_assigned(self, partitions: Sequence[TopicPartition], now_ms: float) -> None:
        """Give up what moves, and add the event for new partitions once their positions are known."""
        self._phase = MembershipState.STABLE
        self._not_member_reason = ""
        self._views_seen = -1
        mine = {tp for tp in partitions if tp.topic in self.topics.names}
        moved = self.owned.assigned - mine
        self.owned.assigned |= mine
        if moved:
            self._revoke(moved, "the partitions move to other members", now_ms)
            self.rejoin("partitions that move have been given up")
        if self._joiner.topics != self.topics.names:
            self.rejoin("the subscription has changed")
        turn, generation_id = self._round, self.generation.generation_id

        def found(positions: Mapping[TopicPartition, CommittedOffset | None] | BarnabasError) -> None:
            if turn != self._round:
                return
            if isinstance(positions, BarnabasError):
                self._fail(positions)
            else:
                self.owned.add_assignment(positions, generation_id)
                self._notify()

        self.positions.committed(sorted(mine - self.owned.user_partitions), found, deadline_ms=NEVER)

    def on_rejoin_needed(self, reason: str, now_ms: float) -> None:  # noqa: ARG002
        self._start_round(reason)

    def on_membership_lost(self, code: ErrorCode, now_ms: float) -> None:  # noqa: ARG002
        """Join again, because the group was rebalanced without this member."""
        self._reset_membership()
        self.generation.forget(member_id=code is ErrorCode.UNKNOWN_MEMBER_ID)
        self._not_member_reason = self._explained(code).message
        self.owned.lose_partitions(self._not_member_reason)
        self._notify()
        self._start_round(self._not_member_reason)

    def on_join_failed(self, error: BarnabasError, now_ms: float) -> None:  # noqa: ARG002
        self._fail(error)

    def on_orphaned_member(self, member_id: str) -> None:
        node = self._finder.coordinator
        is_own = member_id == self.generation.member_id or self._settings.group_instance_id is not None
        if member_id and not is_own and node is not None:
            self._leaving.send(node, self._leave_request(member_id, "the consumer did not wait"), lambda: None)

    # --- what the coordinator says to heartbeats and commits

    def on_heartbeat_error(self, code: ErrorCode, now_ms: float) -> None:
        """Handle an error of the present generation; `code` is not NONE."""
        if self._phase not in ACTIVE_STATES:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self._phase is MembershipState.STABLE:
                self.rejoin("the group is being rebalanced")
            elif self._joiner.is_assigning:
                self._start_round("the group was rebalanced again before the leader had assigned")
        elif code in FENCED_ERRORS:
            self.on_membership_lost(code, now_ms)
        else:
            self._fail(self._explained(code))

    def node(self) -> int | None:
        """Return the coordinator; while it holds a join, over another connection, since that one is blocked."""
        return (self._joiner.is_waiting and self._finder.side_node()) or self._finder.node()

    def identity(self, partitions: TopicPartitions, since: CommitIdentity | None) -> CommitIdentity | BarnabasError:
        group = f"group {self._settings.group_id}"
        if not self.topics.active:
            return CommitIdentity()
        if self._phase in (MembershipState.STABLE, MembershipState.REVOKING) or (
            self._phase is MembershipState.JOINING and self._keeps(partitions)
        ):
            if self.owned.has_lost:  # it is a member again, but others may have had the partitions since
                text = f"{group} went on without this member, which learns of it when it asks for messages"
                return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, text)
            now = CommitIdentity(self.generation.member_id, self.generation.generation_id)
            if since in (None, now) or self.owned.assigned.issuperset(partitions):
                return now
            text = f"the partitions went to other members of {group} before the commit did"
            return ApiError(ErrorCode.REBALANCE_IN_PROGRESS, text)
        if self._phase is MembershipState.JOINING:
            text = self._not_member_reason or "its partitions have been given up; commit before, in on_revoked"
            if self._finder.last_error is not None:
                text += f"; the coordinator was not found: {self._finder.last_error}"
            return ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"the consumer is joining {group}: {text}")
        return ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"the consumer is not a member of {group}: {self._not_member_reason}"
        )

    def _keeps(self, partitions: TopicPartitions) -> bool:
        """Return True if the member continues to read these while it joins."""
        return self._cooperative and self.generation.is_member() and self.owned.user_partitions.issuperset(partitions)

    def refused(self, code: ErrorCode, identity: CommitIdentity, now_ms: float) -> BarnabasError | None:
        group = self._settings.group_id
        if not self.topics.active:
            text = f"group {group} has members; a consumer whose partitions were assigned by hand cannot commit to it"
            return ApiError(code, text) if code is ErrorCode.UNKNOWN_MEMBER_ID else self._explained(code)
        is_present = identity == CommitIdentity(self.generation.member_id, self.generation.generation_id)
        if code is ErrorCode.ILLEGAL_GENERATION and self._joiner.is_waiting:
            is_present = False  # the answer to the join is on its way, over the other connection
        if is_present:
            self.on_heartbeat_error(code, now_ms)
        if self._cooperative and (code is ErrorCode.REBALANCE_IN_PROGRESS or not is_present):
            return None
        return self._explained(code)

    # --- being out

    def _explained(self, code: ErrorCode) -> ApiError:
        return explained(code, self._settings, self._assignor_names)

    def _reset_membership(self) -> None:
        """Drop what is in flight for the earlier membership."""
        self._joiner.stop()
        self._heartbeats.stop()
        self._round += 1
        self._rejoin_reason = None

    def _leave_group(self, reason: str, done: Callable[[], None] = lambda: None) -> None:
        """Leave the group. A static member sends no request: its membership and id last until its session ends."""
        is_static = self._settings.group_instance_id is not None
        member_id = self.generation.member_id
        node = self._finder.side_node() if self._joiner.is_waiting else self._finder.coordinator
        self._reset_membership()
        self.generation.forget(member_id=not is_static)
        if is_static or not member_id:
            done()
        else:
            self._leaving.send(node, self._leave_request(member_id, reason), done)

    def _leave_request(self, member_id: str, reason: str) -> LeaveGroup:
        leaving = LeavingMember(member_id=member_id, reason=reason)
        return LeaveGroup(group_id=self._settings.group_id, members=[leaving])

    def _forget_membership(self) -> None:
        self._reset_membership()
        self.generation.forget(member_id=True)


class _PresentMember:
    """The membership of the protocol that is used now, as commits use it."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.member: AbstractMembershipManager

    def node(self) -> int | None:
        return self.member.node()

    def identity(self, partitions: TopicPartitions, since: CommitIdentity | None) -> CommitIdentity | BarnabasError:
        return self.member.identity(partitions, since)

    def fetch_identity(self) -> CommitIdentity | None:
        return self.member.fetch_identity()

    def stale(self, tp: TopicPartition, topic_id: bytes) -> ApiError | None:
        return self._view.stale(tp, topic_id)

    def refused(self, code: ErrorCode, identity: CommitIdentity, now_ms: float) -> BarnabasError | None:
        return self.member.refused(code, identity, now_ms)


class ConsumerCoordinator:
    """Joins the group of `settings.group_id` and stays in it, whatever its user is busy with.

    A part of a client like the fetcher: a shell polls it and carries out its sends; every method under the shell's
    lock, and the shell wakes itself after those that change something. Without a subscription it joins nothing: it
    then commits and finds positions of the group for a consumer whose partitions were assigned by hand.

    The user's thread calls `polled` whenever it asks for messages, and handles the events, in their order, before it
    hands out more messages:

        while (event := membership.take_event()) is not None:
            Assigned  read `positions` too, call the listener
            Revoke    commit if wanted, call the listener, stop reading, then `revoked_done()`
            Lost      stop reading, call the listener
            Failed    raise `error`
    """

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        settings: GroupSettings,
        assignors: Sequence[Assignor],
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        """`assignors` in the order of preference. The member is cooperative if all of them are.

        `notify` is called, under the lock, whenever there is a new event: to wake the user's thread.
        """
        backoff = (settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._finder = finder = CoordinatorFinder(view, entropy, settings.group_id, backoff)
        self._present = _PresentMember(view)
        self._positions = CommitRequestManager(finder, entropy, settings, self._present)
        topics = SubscribedTopics(view, exclude_internal=settings.exclude_internal_topics)
        self._shared = shared = SharedMembership(topics, OwnedPartitions(), self._positions, notify)
        self._switch: str | None = None

        def classic() -> ClassicMembershipManager:
            return ClassicMembershipManager(view, finder, entropy, settings, assignors, shared)

        self._classic = classic
        if settings.group_protocol == "classic":
            self._use(classic())
        else:
            falls_back = settings.group_protocol == "auto"
            on_refused = self._request_switch if falls_back else None
            self._use(ConsumerMembershipManager(view, finder, entropy, settings, shared, on_refused))

    def _use(self, member: AbstractMembershipManager) -> None:
        self._member = self._present.member = member

    def _request_switch(self, reason: str) -> None:
        """Join by the classic protocol from the next poll on."""
        self._switch = reason

    def _switch_to_classic(self, now_ms: float) -> None:
        self._switch = None
        polled_ms = self._member.polled_ms
        topics = self._shared.topics
        self._use(self._classic())
        self._member.polled(polled_ms)
        if topics.active:
            topics.match_locally()
            self._member.on_subscription_updated(now_ms)

    # --- what the user wants

    def subscribe(self, topics: Collection[str], now_ms: float) -> None:
        """Read these topics and no others, as a member. The time until the first poll must not be too long either."""
        if self._member.topics.by_name(topics):
            self._member.on_subscription_updated(now_ms)

    def subscribe_matching(self, pattern: re.Pattern[str], now_ms: float) -> None:
        """Read the topics whose whole name matches, those that come up later too."""
        regex = broker_regex(pattern) if self.group_protocol == "consumer" else None
        if self._member.topics.by_pattern(pattern, regex):
            self._member.on_subscription_updated(now_ms)

    def leave(self, now_ms: float, done: Callable[[], None], reason: str = "the consumer unsubscribes") -> None:  # noqa: ARG002
        """Give up the subscription and the assignment, and send LeaveGroup unless the member is static.

        Before this, the caller notifies the listener and commits; events not taken are void. `done` is called once:
        when the coordinator has answered or cannot be reached, or at once without a request.
        """
        self._member.leave(reason, done)

    def rejoin(self, reason: str) -> None:
        """Request a rebalance (Java: enforceRebalance). Does nothing without a subscription."""
        self._member.rejoin(reason)

    # --- the user's thread

    def polled(self, now_ms: float) -> bool:
        """Note a poll of the user. Return True if the shell should wake: the member had left for lack of polls."""
        return self._member.polled(now_ms)

    @property
    def has_event(self) -> bool:
        """True if `take_event` has something."""
        return bool(self._member.owned.events)

    @property
    def has_lost(self) -> bool:
        """True while the user does not know that it has lost what it had; the member may have it again already."""
        return self._member.owned.has_lost

    def take_event(self) -> GroupEvent | None:
        """Return the next event, or None. After a `Failed` that is not final the member tries again."""
        return self._member.take_event()

    def revoked_done(self) -> None:
        """Note that the partitions of the last `Revoke` were given up. Does nothing if they were lost meanwhile."""
        self._member.owned.revoked_done()

    # --- positions

    def commit(
        self,
        positions: Mapping[TopicPartition, CommittedOffset],
        done: CommitResultCallback,
        *,
        deadline_ms: float,
        retry: bool = True,
    ) -> None:
        """Commit as the present member or, without a subscription, without a member id.

        With `retry`, and while the coordinator is not known, attempts continue until the deadline (`ClientTimeout`).
        `done` is called exactly once, maybe at once. It gets an `ApiError` whose text describes the remedy:
        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS when the partitions are not (or not certainly)
        this member's.
        """
        self._positions.commit(positions, done, deadline_ms=deadline_ms, retry=retry)

    def committed(self, partitions: TopicPartitions, done: OffsetsCallback, *, deadline_ms: float) -> None:
        """Fetch the group's committed offsets. `done` is called exactly once, maybe at once."""
        self._positions.committed(partitions, done, deadline_ms=deadline_ms)

    # --- what is so now

    @property
    def subscribed(self) -> bool:
        return self._member.topics.active

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern those that match it now."""
        return self._member.topics.names

    @property
    def member_id(self) -> str:
        """ "" while not a member."""
        return self._member.generation.member_id

    @property
    def generation_id(self) -> int:
        """-1 while not a member."""
        return self._member.generation.generation_id

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the user has by all events, taken or not."""
        return sorted(self._member.owned.user_partitions)

    @property
    def settled(self) -> bool:
        """True while the member has its assignment, and nothing is under way to change it."""
        return self._member.settled

    @property
    def group_protocol(self) -> str:
        """The protocol of the membership, as far as that is decided: "consumer" (KIP-848) or "classic"."""
        return "consumer" if isinstance(self._member, ConsumerMembershipManager) else "classic"

    def poll(self, now_ms: float) -> Poll:
        if self._switch is not None:
            self._switch_to_classic(now_ms)
        polls = [self._member.poll(now_ms), self._positions.poll(now_ms), self._finder.poll(now_ms)]
        refusal = self._finder.take_refusal()
        if refusal is not None:
            self._member.coordinator_refused(refusal)
        return Poll([send for poll in polls for send in poll.sends], min(poll.wake_ms for poll in polls))
