"""Brings a member into the next generation of its group: join, assign for all if it leads, synchronize."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from ....ports.broker_api.groups import (
    GroupProtocol,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    MemberAssignment,
    SyncGroup,
    SyncGroupResult,
)
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ..coordinator_finder import COORDINATOR_MOVED, CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import HookError
from .assignor import Assignor
from .consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from .events import GroupSettings
from .generation import FENCED_ERRORS, Generation, explained
from .subscribed_topics import GroupTopics

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
            self._take(result.assignment, now_ms)
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

    def _take(self, data: bytes, now_ms: float) -> None:
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
