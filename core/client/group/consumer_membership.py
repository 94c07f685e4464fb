"""A consumer's membership by the protocol of KIP-848: the coordinator assigns, heartbeats carry everything."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ....ports.broker_api.consumer_groups import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicIdPartitions,
)
from ....ports.broker_api.groups import NO_GENERATION
from ....ports.broker_api.metadata import NO_TOPIC_ID, Metadata, MetadataResult
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define
from ..cluster_view import ClusterView
from ..coordinator_finder import COORDINATOR_MOVED, CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send, backoff_ms
from .commit_request_manager import CommitIdentity
from .events import CommittedOffset, Failed, GroupSettings, TopicPartitions
from .generation import explained
from .membership import ACTIVE_STATES, AbstractMembershipManager, MembershipState, SharedMembership

FENCED_EPOCH_ERRORS = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
"""The errors of a member that the group has removed: it gives everything up and joins again with its member id."""
_FENCED_COMMIT = (*FENCED_EPOCH_ERRORS, ErrorCode.ILLEGAL_GENERATION)

_MEMBER_ID_BYTES = 16
_EARLY_HEARTBEATS = 3
_EARLY_HEARTBEAT_MS = 1100.0
"""A new member without partitions asks again a few times soon, and not after a whole `heartbeat interval`: the
coordinator computes a target assignment at most every `group.consumer.assignment.interval.ms`, 1000 by default."""

_Target = Mapping[bytes, frozenset[int]]


@define
class _Sent:
    """The values that the coordinator has from the heartbeats that it answered; names None: it has none."""

    names: tuple[str, ...] | None = None
    regex: str | None = None
    owned: frozenset[TopicPartition] | None = None
    assignment: int = 0
    """The number of the assignment that the member has reconciled: each is acknowledged, though nothing may change."""


class TopicNames:
    """Names of topics by their ids: from the metadata of subscribed topics, else asked for by id."""

    def __init__(self, view: ClusterView, entropy: Entropy, settings: GroupSettings) -> None:
        self._view = view
        self._entropy = entropy
        self._settings = settings
        self._names: dict[bytes, str] = {}
        self._wanted: list[bytes] = []
        self._in_flight = False
        self._failures = 0
        self._not_before_ms = -NEVER
        self.is_new = False
        """True after an answer, until the owner has looked."""

    def resolve(self, topic_ids: Iterable[bytes], likely: Iterable[str]) -> dict[bytes, str]:
        """Return the known names of these topics, which may be among the `likely` names; ask for the others."""
        for name in likely:
            topic_id = self._view.topic_id(name)
            if topic_id != NO_TOPIC_ID:
                self._names[topic_id] = name
        wanted = list(topic_ids)
        found = {topic_id: self._names[topic_id] for topic_id in wanted if topic_id in self._names}
        self._wanted = [topic_id for topic_id in wanted if topic_id not in found]
        return found

    @property
    def is_complete(self) -> bool:
        """False while a name is being asked for."""
        return not self._wanted

    def poll(self, now_ms: float) -> Poll:
        if not self._wanted or self._in_flight:
            return Poll([], NEVER)
        if now_ms < self._not_before_ms:
            return Poll([], self._not_before_ms)
        self._in_flight = True
        request = Metadata(topics=(), topic_ids=tuple(self._wanted), allow_auto_topic_creation=False)
        return Poll([Send(self._view.any_node(), request, self._answered)], NEVER)

    def _answered(self, result: Any, now_ms: float) -> None:
        self._in_flight = False
        found = {}
        if isinstance(result, MetadataResult):
            found = {each.topic_id: each.name for each in result.topics if each.name and each.error is ErrorCode.NONE}
        else:
            self._view.try_another()
        self._names |= found
        self.is_new = True
        if all(topic_id in self._names for topic_id in self._wanted):
            self._failures = 0
            return
        self._failures += 1
        settings = self._settings
        self._not_before_ms = now_ms + backoff_ms(
            self._failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )


class ConsumerMembershipManager(AbstractMembershipManager):
    """The state machine of a member: one heartbeat at a time, and the way from its assignment to the target.

    An assignment replaces the target. What the member has beyond it is revoked first: the user gives it up, the next
    heartbeat says so at once, and only then does another member get it. What the member lacks is added once the
    names of the topics and the committed offsets are known.
    """

    def __init__(
        self,
        view: ClusterView,
        finder: CoordinatorFinder,
        entropy: Entropy,
        settings: GroupSettings,
        shared: SharedMembership,
        on_unsupported: Callable[[str], None] | None = None,
    ) -> None:
        """`on_unsupported` is called, with the reason, where the cluster or the group does not take the protocol; None:
        the user gets an error."""
        super().__init__(finder, settings, shared)
        self._view = view
        self._entropy = entropy
        self._on_unsupported = on_unsupported
        self.generation.member_id = urlsafe_b64encode(entropy.token(_MEMBER_ID_BYTES)).decode().rstrip("=")
        self._names = TopicNames(view, entropy, settings)
        self._target: _Target | None = None
        self._topic_ids: dict[TopicPartition, bytes] = {}
        """The topic of each partition in `owned.assigned`: one made again with the same name is another."""
        self._is_reconciled = True
        self._assignments = self._acknowledged = 0
        """The number of assignments so far, and the number of the last one that was reconciled."""
        self._owes_report = False
        """True if the user gets an `Assigned` for the next assignment, even if it brings nothing new."""
        self._sent = _Sent()
        self._sending = _Sent()
        self._turn = 0
        self._round = 0
        self._in_flight = False
        self._failures = 0
        self._next_ms = -NEVER
        self._interval_ms = 0.0
        self._quiet = 0
        """The heartbeats since the last change of the assignment or the subscription."""
        self._views_seen = -1
        self._seen: tuple[Any, ...] = ()
        """A short form of the state in which `_has_news` last found nothing; it saves comparing all partitions."""

    @property
    def settled(self) -> bool:
        has_what_it_gets = bool(self.owned.assigned) or self._quiet >= _EARLY_HEARTBEATS
        at_rest = self._phase is MembershipState.STABLE and self._is_reconciled and self._names.is_complete
        return (
            at_rest
            and has_what_it_gets
            and not self.owned.revoking
            and self.owned.user_partitions == self.owned.assigned
        )

    @property
    def _member_epoch(self) -> int:
        epoch = self.generation.generation_id
        return epoch if epoch != NO_GENERATION else JOIN_GROUP_MEMBER_EPOCH

    def poll(self, now_ms: float) -> Poll:
        self._check_metadata()
        wake = self._check_poll_interval(now_ms)
        if self._phase is MembershipState.STABLE:
            self._reconcile(now_ms)
        polls = [self._names.poll(now_ms), self._poll_heartbeat(now_ms)]
        sends = [*self._leaving.poll(), *(send for poll in polls for send in poll.sends)]
        return Poll(sends, min(wake, *(poll.wake_ms for poll in polls)))

    def rejoin(self, reason: str) -> None:  # noqa: ARG002  # the protocol has no place for it
        """Say everything to the coordinator at once: it decides about a rebalance."""
        self._forget_sent()
        self._next_ms = -NEVER
        self._quiet = 0

    # --- what happens without a request of the user

    def _check_metadata(self) -> None:
        if self._views_seen == self._view.updates or not self.topics.active:
            return
        self._views_seen = self._view.updates
        self.topics.update_matches()
        refusal = self.topics.take_refusal()
        if refusal is not None:
            self._add_failure(Failed(error=refusal))
        self._is_reconciled = False

    def _reconcile(self, now_ms: float) -> None:
        """Bring the partitions of the member closer to the target. One step at a time: a revocation ends first."""
        if self._names.is_new:
            self._names.is_new = self._is_reconciled = False
        if self._is_reconciled or self.owned.revoking or self._target is None:
            return
        names = self._names.resolve(self._target, () if self.topics.regex is not None else self.topics.names)
        if self.topics.regex is not None:
            self.topics.on_assigned_topics(names.values())
        wanted = {
            TopicPartition(name, number): topic_id
            for topic_id, name in names.items()
            if name in self.topics.names
            for number in self._target[topic_id]
        }
        owned = self.owned.assigned
        moved = {tp for tp in owned if wanted.get(tp) != self._topic_ids.get(tp)}
        if moved:
            self._owes_report = True
            if self._revoke(moved, "the group's coordinator assigns them to other members", now_ms):
                return
        self._is_reconciled = True
        self._acknowledged = self._assignments
        new = sorted(wanted.keys() - owned)
        self._topic_ids, self._seen = wanted, ()
        owned.update(new)
        if new or self._owes_report:
            self._owes_report = False
            self._report_assignment(new)

    def _report_assignment(self, new: Sequence[TopicPartition]) -> None:
        """Add the event for new partitions once their positions are known."""
        turn, epoch = self._round, self.generation.generation_id

        def found(positions: Mapping[TopicPartition, CommittedOffset | None] | BarnabasError) -> None:
            if turn != self._round:
                return
            if isinstance(positions, BarnabasError):
                self._fail(positions)
            else:
                self.owned.add_assignment(positions, epoch)
                self._notify()

        self.positions.committed(new, found, deadline_ms=NEVER)

    # --- heartbeats

    def _start_round(self, reason: str) -> None:  # noqa: ARG002  # the protocol has no place for it
        """Join with epoch 0, with everything that the coordinator must know."""
        self._phase = MembershipState.JOINING
        self._reset_membership()

    def _reset_membership(self) -> None:
        """Drop what is in flight for the earlier membership."""
        self._turn += 1
        self._round += 1
        self._in_flight = False
        self.generation.forget(member_id=False)
        self._forget_sent()
        self._target = None
        self._topic_ids = {}
        self._names.resolve((), ())
        self._is_reconciled, self._owes_report = True, True
        self._next_ms = -NEVER
        self._quiet = 0

    def _poll_heartbeat(self, now_ms: float) -> Poll:
        if self._phase not in ACTIVE_STATES or self._in_flight or not self.topics.ready:
            return Poll([], NEVER)
        due_ms = self._next_ms
        if self._failures == 0 and self._phase is MembershipState.STABLE and self._has_news():
            due_ms = now_ms  # the coordinator waits for what was given up, or knows nothing of a subscription
        if now_ms < due_ms:
            return Poll([], due_ms)
        node = self._finder.node()
        if node is None:
            return Poll([], NEVER)
        self._in_flight = True
        turn, request = self._turn, self._heartbeat()
        return Poll([Send(node, request, lambda result, now: self._answered(turn, result, now))], NEVER)

    def _has_news(self) -> bool:
        """Return True if the last heartbeat did not have the present subscription and assignment."""
        seen = (self._acknowledged, len(self.owned.assigned), self.topics.names, self.topics.regex)
        if seen == self._seen:
            return False
        if self._present() != self._sent:
            return True
        self._seen = seen
        return False

    def _forget_sent(self) -> None:
        """Let the next heartbeat be complete."""
        self._sent, self._seen = _Sent(), ()

    def _present(self) -> _Sent:
        """Return the present subscription and assignment."""
        regex = self.topics.regex
        names = () if regex is not None else tuple(sorted(self.topics.names))
        return _Sent(names, regex, frozenset(self.owned.assigned), self._acknowledged)

    def _heartbeat(self) -> ConsumerGroupHeartbeat:
        """Return a heartbeat with what the coordinator does not know yet; everything in a join."""
        settings, sent = self._settings, self._sent
        self._sending = now = self._present()
        is_full = sent.names is None
        says_owned = (now.owned, now.assignment) != (sent.owned, sent.assignment)
        regex = now.regex if is_full or now.regex != sent.regex else None
        if now.regex is None and sent.regex is not None:
            regex = ""
        return ConsumerGroupHeartbeat(
            group_id=settings.group_id,
            member_id=self.generation.member_id,
            member_epoch=self._member_epoch,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack if is_full else None,
            rebalance_timeout_ms=int(settings.max_poll_interval_ms) if is_full else -1,
            subscribed_topic_names=now.names if is_full or now.names != sent.names else None,
            subscribed_topic_regex=regex,
            server_assignor=settings.group_remote_assignor if is_full else None,
            topic_partitions=self._owned_by_id() if says_owned else None,
        )

    def _owned_by_id(self) -> list[TopicIdPartitions]:
        topics: dict[bytes, list[int]] = {}
        for tp in sorted(self.owned.assigned):
            topics.setdefault(self._topic_ids[tp], []).append(tp.partition)
        return [TopicIdPartitions(topic_id, partitions) for topic_id, partitions in topics.items()]

    def _answered(self, turn: int, result: Any, now_ms: float) -> None:
        if turn != self._turn:
            return
        self._in_flight = False
        if not isinstance(result, ConsumerGroupHeartbeatResult):
            self._unanswered(result, now_ms)
        elif result.error is ErrorCode.NONE:
            self._on_heartbeat(result, now_ms)
        else:
            self._on_error(result.error, result.error_message, now_ms)

    def _on_heartbeat(self, result: ConsumerGroupHeartbeatResult, now_ms: float) -> None:
        self._failures = 0
        self._finder.reset_backoff()
        changed = self._sent.names != self._sending.names or self._sent.regex != self._sending.regex
        self._sent = self._sending
        if self._phase is MembershipState.JOINING:
            self._phase = MembershipState.STABLE
            self._not_member_reason = ""
        self.generation.generation_id = result.member_epoch
        self._interval_ms = float(result.heartbeat_interval_ms)
        if result.assignment is not None:
            self._assignments += 1
            self._is_reconciled = False
            target = {each.topic_id: frozenset(each.partitions) for each in result.assignment}
            changed = changed or target != self._target
            self._target = target
        self._quiet = 0 if changed else self._quiet + 1
        wait_ms = self._interval_ms
        if not self._target and self._quiet < _EARLY_HEARTBEATS:
            wait_ms = min(wait_ms, _EARLY_HEARTBEAT_MS)
        self._next_ms = now_ms + wait_ms

    def _unanswered(self, result: Any, now_ms: float) -> None:
        """Handle an error that came in place of a result."""
        error = result if isinstance(result, BarnabasError) else ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(result))
        if isinstance(error, ApiError) and not error.retriable:
            self._on_error(error.code, error.message, now_ms)
            return
        if is_gone(error):
            self._finder.mark_coordinator_unknown(error, now_ms)
        self._later(now_ms)

    def _later(self, now_ms: float) -> None:
        """Repeat the heartbeat after a pause, with everything: the coordinator may be another one."""
        self._failures += 1
        self._forget_sent()
        settings = self._settings
        self._next_ms = now_ms + backoff_ms(
            self._failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )

    def _on_error(self, code: ErrorCode, message: str | None, now_ms: float) -> None:
        """Handle the coordinator's error for a heartbeat."""
        is_joining = self._phase is MembershipState.JOINING
        if code in COORDINATOR_MOVED:
            self._finder.mark_coordinator_unknown(ApiError(code, message or "heartbeat"), now_ms)
            self._later(now_ms)
        elif code.retriable:
            self._later(now_ms)
        elif code is ErrorCode.GROUP_ID_NOT_FOUND and is_joining:
            text = f"group {self._settings.group_id} is not one of group.protocol=consumer, and cannot become one"
            self._refuse(code, f"{text}: {message or code.name}")
        elif code in FENCED_EPOCH_ERRORS:
            self._on_fenced(code, now_ms)
        elif self.topics.regex is not None and (
            code is ErrorCode.INVALID_REGULAR_EXPRESSION or code is ErrorCode.UNSUPPORTED_VERSION
        ):
            self.topics.match_locally()  # before version 1, the request has no regular expression
            self.rejoin("the coordinator does not match the pattern")
        elif code is ErrorCode.UNSUPPORTED_VERSION:
            text = "the cluster does not offer group.protocol=consumer (KIP-848); set group.protocol=classic"
            self._refuse(code, f"{text}: {message or code.name}")
        else:
            self._fail(self._explained(code, message))

    def _refuse(self, code: ErrorCode, text: str) -> None:
        """Leave the work to the classic protocol if the user lets us choose, or fail."""
        if self._on_unsupported is None:
            self._fail(ApiError(code, text))
            return
        self.owned.lose_partitions(text)
        self._notify()
        self._reset_membership()
        self._phase = MembershipState.IDLE
        self._on_unsupported(text)

    def _on_fenced(self, code: ErrorCode, now_ms: float) -> None:
        """Give everything up and join again, because the group has removed this member."""
        self._not_member_reason = self._explained(code).message
        self.owned.lose_partitions(self._not_member_reason)
        self._notify()
        self._start_round(self._not_member_reason)
        self._later(now_ms)

    # --- what commits need

    def node(self) -> int | None:
        return self._finder.node()

    def identity(self, partitions: TopicPartitions, since: CommitIdentity | None) -> CommitIdentity | BarnabasError:
        group = f"group {self._settings.group_id}"
        if not self.topics.active:
            return CommitIdentity()
        if self._phase is MembershipState.STABLE:
            if self.owned.has_lost:  # it is a member again, but others may have had the partitions since
                text = f"{group} went on without this member, which learns of it when it asks for messages"
                return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, text)
            now = self._identity()
            if since in (None, now) or self.owned.assigned.issuperset(partitions):
                return now
            text = f"the partitions went to other members of {group} before the commit did"
            return ApiError(ErrorCode.REBALANCE_IN_PROGRESS, text)
        if self._phase is MembershipState.JOINING:
            text = self._not_member_reason or "it has no partitions yet"
            if self._finder.last_error is not None:
                text += f"; the coordinator was not found: {self._finder.last_error}"
            return ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"the consumer is joining {group}: {text}")
        return ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"the consumer is not a member of {group}: {self._not_member_reason}"
        )

    def fetch_identity(self) -> CommitIdentity | None:
        return self._identity() if self._phase is MembershipState.STABLE else None

    def _identity(self) -> CommitIdentity:
        return CommitIdentity(self.generation.member_id, self.generation.generation_id, is_member_epoch=True)

    def refused(self, code: ErrorCode, identity: CommitIdentity, now_ms: float) -> BarnabasError | None:
        """Take a stale epoch for a heartbeat that is due: the commit is repeated with the epoch that it brings."""
        if not self.topics.active:
            group = self._settings.group_id
            text = f"group {group} has members; a consumer whose partitions were assigned by hand cannot commit to it"
            return ApiError(code, text) if code is ErrorCode.UNKNOWN_MEMBER_ID else self._explained(code)
        is_present = self._phase is MembershipState.STABLE and identity == self._identity()
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            if is_present:
                self._next_ms = min(self._next_ms, now_ms)
            return None
        if is_present and code in _FENCED_COMMIT:
            self._on_fenced(code, now_ms)
        elif is_present and code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(self._explained(code))
        return self._explained(code)

    # --- being out

    def _leave_group(self, reason: str, done: Callable[[], None] = lambda: None) -> None:  # noqa: ARG002
        """Leave the group; a static member says that it may return, so that the group holds its partitions."""
        settings, generation = self._settings, self.generation
        is_known = self._phase in ACTIVE_STATES or generation.is_member() or self._in_flight
        epoch = LEAVE_GROUP_MEMBER_EPOCH if settings.group_instance_id is None else LEAVE_GROUP_STATIC_MEMBER_EPOCH
        request = ConsumerGroupHeartbeat(
            group_id=settings.group_id,
            member_id=generation.member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
            topic_partitions=(),
        )
        self._reset_membership()
        if is_known:
            self._leaving.send(self._finder.coordinator, request, done)
        else:
            done()

    def _forget_membership(self) -> None:
        self._reset_membership()

    def _explained(self, code: ErrorCode, message: str | None = None) -> ApiError:
        settings = self._settings
        group = f"group {settings.group_id}"
        texts = {
            ErrorCode.UNRELEASED_INSTANCE_ID: (
                f"another member of {group} has group.instance.id {settings.group_instance_id!r}, and has not left; "
                "if it was killed, its session must end first"
            ),
            ErrorCode.UNSUPPORTED_ASSIGNOR: (
                f"the brokers do not have group.remote.assignor {settings.group_remote_assignor!r}; their "
                "group.consumer.assignors names those that they have"
            ),
            ErrorCode.FENCED_MEMBER_EPOCH: f"{group} has removed this member: its epoch is over",
            ErrorCode.STALE_MEMBER_EPOCH: f"{group} has given this member another epoch",
            ErrorCode.GROUP_ID_NOT_FOUND: f"{group} does not exist now",
            ErrorCode.GROUP_MAX_SIZE_REACHED: f"{group} has as many members as group.consumer.max.size allows",
        }
        known = texts.get(code)
        if known is not None:
            return ApiError(code, f"{known}{f' ({message})' if message else ''}")
        error = explained(code, settings, "")
        return ApiError(code, f"{error.message}: {message}") if message else error
