"""A share consumer's membership (KIP-932; Kafka: `ShareMembershipManager`, `ShareHeartbeatRequestManager`)."""

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ....ports.broker_api.consumer_groups import JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH
from ....ports.broker_api.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ..cluster_view import ClusterView
from ..coordinator_finder import COORDINATOR_MOVED, CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send, backoff_ms
from ..group.consumer_membership import FENCED_EPOCH_ERRORS, TopicNames
from ..group.events import GroupSettings
from ..group.membership import ACTIVE_STATES, LeaveRequests, MembershipState
from ..group.subscribed_topics import SubscribedTopics
from .acknowledgements import TopicIdPartition

MEMBER_ID_BYTES = 16
_EARLY_HEARTBEATS = 10
_EARLY_HEARTBEAT_MS, _EARLY_HEARTBEAT_MAX_MS = 100.0, 1000.0
"""A new member without partitions asks again soon, and not after a whole `heartbeat interval`: the coordinator assigns
partitions once the share coordinator has initialised their state. The wait doubles each time."""

Assign = Callable[[Mapping[TopicIdPartition, TopicPartition]], None]


def new_member_id(entropy: Entropy) -> str:
    """Return the id that a member has for all of its life."""
    return urlsafe_b64encode(entropy.token(MEMBER_ID_BYTES)).decode().rstrip("=")


class ShareMembershipManager:
    """The state machine of a member: one heartbeat at a time; an assignment is in effect at once.

    Members of a share group may have the same partitions, so that nothing is revoked, and nothing needs the user.
    """

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        settings: GroupSettings,
        member_id: str,
        assign: Assign,
        notify: Callable[[], None],
    ) -> None:
        """`assign` is called with each new assignment; `notify` when there is an error for the user."""
        self._view = view
        self._entropy = entropy
        self._settings = settings
        self._assign = assign
        self._notify = notify
        self._finder = CoordinatorFinder(
            view, entropy, settings.group_id, (settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        )
        self._names = TopicNames(view, entropy, settings)
        self._leaving = LeaveRequests(self._finder)
        self.topics = SubscribedTopics(view, exclude_internal=False)
        self.member_id = member_id
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH
        self.failures: deque[BarnabasError] = deque()
        """Errors for the user, each to be raised once."""
        self.heartbeats = 0
        self.rebalances = 0
        """The number of new assignments so far."""
        self._phase = MembershipState.IDLE
        self._target: Mapping[bytes, Collection[int]] = {}
        self._assigned: Mapping[TopicIdPartition, TopicPartition] = {}
        self._sent_names: tuple[str, ...] | None = None
        self._sending_names: tuple[str, ...] = ()
        self._turn = 0
        self._in_flight = False
        self._failures_in_row = 0
        self._next_ms = -NEVER
        self._quiet = 0
        self._polled_ms = -NEVER
        self._views_seen = -1

    @property
    def settled(self) -> bool:
        """True while the member has an assignment and knows the names of its topics."""
        return self._phase is MembershipState.STABLE and bool(self._assigned) and self._names.is_complete

    @property
    def failure_reason(self) -> BarnabasError | None:
        """The reason for a wait without success: the coordinator cannot be found, or is silent."""
        return self._finder.failure_reason if self._phase is MembershipState.JOINING else None

    # --- what the user wants

    def subscribe(self, topics: Collection[str], now_ms: float) -> None:
        """Subscribe to these topics, and no others; join the group if this is no member yet."""
        self.topics.by_name(topics)
        self._polled_ms = now_ms
        self._quiet = 0
        self._next_ms = min(self._next_ms, now_ms)
        if self._phase not in ACTIVE_STATES:
            self._join()

    def polled(self, now_ms: float) -> None:
        """Note that the user asks for records; a member that has left for lack of that, or failed, joins again."""
        self._polled_ms = now_ms
        if self._phase in (MembershipState.LEFT_BY_TIMEOUT, MembershipState.FAILED) and not self.failures:
            self._join()

    def leave(self, done: Callable[[], None]) -> None:
        """Leave the group; `done` is called when the coordinator has answered, or cannot be reached."""
        self.topics.clear()
        self.failures.clear()
        self._leave(MembershipState.IDLE, done)

    # --- the reactor's side

    def poll(self, now_ms: float) -> Poll:
        self._check_metadata()
        wake = self._check_poll_interval(now_ms)
        refusal = self._finder.take_refusal()
        if refusal is not None:
            self._fail(refusal)
        if self._phase is MembershipState.STABLE:
            self._resolve()
        polls = [self._finder.poll(now_ms), self._names.poll(now_ms), self._poll_heartbeat(now_ms)]
        polls.append(self._finder.poll(now_ms))  # the heartbeat may have asked for the coordinator
        sends = [*self._leaving.poll(), *(send for poll in polls for send in poll.sends)]
        return Poll(sends, min(wake, *(poll.wake_ms for poll in polls)))

    def _check_metadata(self) -> None:
        if self._views_seen != self._view.updates and self.topics.active:
            self._views_seen = self._view.updates
            refusal = self.topics.take_refusal()
            if refusal is not None and refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.failures.append(refusal)
                self._notify()

    def _check_poll_interval(self, now_ms: float) -> float:
        """Leave if the user does not ask for records; join again when it does."""
        if self._phase not in ACTIVE_STATES:
            return NEVER
        due_ms = self._polled_ms + self._settings.max_poll_interval_ms
        if now_ms < due_ms:
            return due_ms
        self._leave(MembershipState.LEFT_BY_TIMEOUT)
        return NEVER

    def _resolve(self) -> None:
        """Hand on the assignment as far as the names of its topics are known."""
        names = self._names.resolve(self._target, self.topics.names)
        assigned = {
            (topic_id, number): TopicPartition(name, number)
            for topic_id, name in names.items()
            for number in self._target[topic_id]
        }
        if assigned != self._assigned:
            self._assigned = assigned
            self.rebalances += 1
            self._assign(assigned)

    def _poll_heartbeat(self, now_ms: float) -> Poll:
        if self._phase not in ACTIVE_STATES or self._in_flight:
            return Poll([], NEVER)
        names = tuple(sorted(self.topics.names))
        has_news = self._failures_in_row == 0 and names != self._sent_names
        if now_ms < self._next_ms and not has_news:
            return Poll([], self._next_ms)
        node = self._finder.node()
        if node is None:
            return Poll([], NEVER)
        self._in_flight = True
        self._sending_names = names
        is_full = self.member_epoch == JOIN_GROUP_MEMBER_EPOCH or names != self._sent_names
        request = ShareGroupHeartbeat(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            rack_id=self._settings.client_rack if is_full else None,
            subscribed_topic_names=names if is_full else None,
        )
        turn = self._turn
        return Poll([Send(node, request, lambda result, now: self._answered(turn, result, now))], NEVER)

    def _answered(self, turn: int, result: Any, now_ms: float) -> None:
        if turn != self._turn:
            return
        self._in_flight = False
        self.heartbeats += 1
        if isinstance(result, ShareGroupHeartbeatResult) and result.error is ErrorCode.NONE:
            self._on_heartbeat(result, now_ms)
            return
        error = result
        if not isinstance(result, BarnabasError):
            error = ApiError(result.error, result.error_message or "heartbeat of a share group")
        if not isinstance(error, ApiError) or error.retriable or error.code in COORDINATOR_MOVED:
            if is_gone(error):
                self._finder.mark_coordinator_unknown(error, now_ms)
            self._later(now_ms)
        elif error.code in FENCED_EPOCH_ERRORS and self._phase is MembershipState.STABLE:
            self._join()
            self._later(now_ms)
        else:
            self._fail(self._explained(error))

    def _on_heartbeat(self, result: ShareGroupHeartbeatResult, now_ms: float) -> None:
        self._failures_in_row = 0
        self._finder.reset_backoff()
        self._sent_names = self._sending_names
        self._phase = MembershipState.STABLE
        self.member_epoch = result.member_epoch
        self._quiet += 1
        if result.assignment is not None:
            self._target = {each.topic_id: frozenset(each.partitions) for each in result.assignment}
        wait_ms = float(result.heartbeat_interval_ms)
        if not self._target and self._quiet < _EARLY_HEARTBEATS:
            wait_ms = min(wait_ms, _EARLY_HEARTBEAT_MAX_MS, _EARLY_HEARTBEAT_MS * 2 ** (self._quiet - 1))
        self._next_ms = now_ms + wait_ms

    def _later(self, now_ms: float) -> None:
        """Repeat the heartbeat after a pause, with everything: the coordinator may be another one."""
        self._failures_in_row += 1
        self._sent_names = None
        settings = self._settings
        self._next_ms = now_ms + backoff_ms(
            self._failures_in_row, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )

    # --- being in and out

    def _join(self) -> None:
        self._reset()
        self._phase = MembershipState.JOINING

    def _leave(self, phase: MembershipState, done: Callable[[], None] = lambda: None) -> None:
        is_known = self.member_epoch != JOIN_GROUP_MEMBER_EPOCH or self._in_flight
        self._reset()
        self._phase = phase
        if not is_known:
            done()
            return
        request = ShareGroupHeartbeat(
            group_id=self._settings.group_id, member_id=self.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH
        )
        self._leaving.send(self._finder.coordinator, request, done)

    def _reset(self) -> None:
        """Drop the membership, and what is in flight for it."""
        self._turn += 1
        self._in_flight = False
        self.member_epoch = JOIN_GROUP_MEMBER_EPOCH
        self._sent_names = None
        self._target = {}
        self._names.resolve((), ())
        self._next_ms = -NEVER
        self._quiet = 0
        if self._assigned:
            self._assigned = {}
            self._assign({})

    def _fail(self, error: BarnabasError) -> None:
        self._leave(MembershipState.FAILED)
        self.failures.append(error)
        self._notify()

    def _explained(self, error: ApiError) -> ApiError:
        group = f"group {self._settings.group_id}"
        texts = {
            ErrorCode.UNSUPPORTED_VERSION: "the cluster has no share groups (KIP-932). Apache Kafka has them from "
            "4.2 on, if its feature share.version is 1 (`kafka-features.sh describe`)",
            ErrorCode.GROUP_ID_NOT_FOUND: f"{group} is not a share group; choose another group.id",
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL: f"{group} is not a share group; choose another group.id",
            ErrorCode.GROUP_MAX_SIZE_REACHED: f"{group} has as many members as group.share.max.size allows",
            ErrorCode.GROUP_AUTHORIZATION_FAILED: f"{group}: the user may not read it (ACL: READ of GROUP)",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"{group}: the user may not read a topic (ACL: READ of TOPIC)",
        }
        known = texts.get(error.code)
        return error if known is None else ApiError(error.code, f"{known} ({error.message})")
