"""Commits and fetches offsets of a group (facts C6, OffsetCommit and OffsetFetch)."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import field

from ....ports.broker_api.groups import (
    NO_GENERATION,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
)
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define, frozen
from ..coordinator_finder import CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import ClientTimeout
from .events import CommitResultCallback, CommittedOffset, GroupSettings, OffsetsCallback, TopicPartitions
from .generation import FENCED_ERRORS

NOT_A_MEMBER = (
    *FENCED_ERRORS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
"""The group's errors for commits of clients that are not members in its view."""
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_UNKNOWN_TOPIC_RETRIES = 4
"""A new topic is soon known to all brokers. A deleted one must not delay the member until the deadline."""


@frozen
class CommitIdentity:
    """The member and generation of a commit."""

    member_id: str = ""
    generation_id: int = NO_GENERATION
    is_member_epoch: bool = False
    """True for a member by KIP-848, whose generation is its member epoch."""


class CommitMembership(Protocol):
    """The membership as commits use it, and their notifications to it."""

    def node(self) -> int | None:
        """Return the coordinator, over a connection that is free; None during a lookup."""
        ...

    def identity(self, partitions: TopicPartitions, since: CommitIdentity | None) -> CommitIdentity | BarnabasError:
        """Return the identity for a commit of these partitions now; or the error that prevents it.

        `since` is the member's identity when the commit was first tried.
        """
        ...

    def fetch_identity(self) -> CommitIdentity | None:
        """Return the identity that a fetch of committed offsets names; None: it names no member."""
        ...

    def stale(self, tp: TopicPartition, topic_id: bytes) -> ApiError | None:
        """Return the error of a position in the topic of this id, if that topic was deleted."""
        ...

    def refused(self, code: ErrorCode, identity: CommitIdentity, now_ms: float) -> BarnabasError | None:
        """Note that a commit got one of `NOT_A_MEMBER`. Return the error for the caller; None to retry."""
        ...


@define(eq=False, kw_only=True)
class _Call:
    """A commit, or a fetch of committed offsets."""

    number: int = 0
    partitions: TopicPartitions
    positions: Mapping[TopicPartition, CommittedOffset] | None
    """The positions to commit; None for a fetch."""
    done: Callable[[Any], None]
    deadline_ms: float
    retry: bool
    identity: CommitIdentity | None = None
    in_flight: bool = False
    over: bool = False
    failures: int = 0
    not_before_ms: float = -NEVER
    last: BarnabasError | None = field(default=None)
    stale: ApiError | None = None
    """The error for the positions that were left out."""

    @property
    def what(self) -> str:
        return "the committed offsets" if self.positions is None else "the commit"


class CommitRequestManager:
    """Calls are sent in the order in which they were made. A commit that a later one has overtaken is not repeated."""

    def __init__(
        self, finder: CoordinatorFinder, entropy: Entropy, settings: GroupSettings, membership: CommitMembership
    ) -> None:
        self._finder = finder
        self._entropy = entropy
        self._settings = settings
        self._membership = membership
        self._calls: dict[int, _Call] = {}
        self._count = 0
        self._sent: dict[TopicPartition, int] = {}
        """Partition → the number of the last commit that was sent."""
        self._stable = True
        """False once a broker was too old for `require_stable` (KIP-447)."""

    def commit(
        self,
        positions: Mapping[TopicPartition, CommittedOffset],
        done: CommitResultCallback,
        *,
        deadline_ms: float,
        retry: bool,
    ) -> None:
        """See `ConsumerCoordinator.commit`."""
        if not positions:
            done(None)
            return
        snapshot = dict(positions)
        self._add(
            _Call(partitions=snapshot.keys(), positions=snapshot, done=done, deadline_ms=deadline_ms, retry=retry)
        )

    def committed(self, partitions: TopicPartitions, done: OffsetsCallback, *, deadline_ms: float) -> None:
        """See `ConsumerCoordinator.committed`."""
        if not partitions:
            done({})
            return
        self._add(_Call(partitions=list(partitions), positions=None, done=done, deadline_ms=deadline_ms, retry=True))

    def fail_all(self, error: BarnabasError) -> None:
        """Fail all calls, because the coordinator cannot be found."""
        for call in list(self._calls.values()):
            self._finish(call, error)

    def poll(self, now_ms: float) -> Poll:
        sends: list[Send] = []
        wake = NEVER
        for call in list(self._calls.values()):
            if now_ms >= call.deadline_ms:
                why = call.last or self._finder.failure_reason
                text = f"{call.what} of group {self._settings.group_id} did not succeed in time"
                self._finish(call, ClientTimeout(text if why is None else f"{text}; last: {why}"))
                continue
            wake = min(wake, call.deadline_ms)
            if call.in_flight:
                continue
            if now_ms < call.not_before_ms:
                wake = min(wake, call.not_before_ms)
                continue
            send = self._send(call, now_ms)
            if send is not None:
                sends.append(send)
            elif now_ms < call.not_before_ms:
                wake = min(wake, call.not_before_ms)
        return Poll(sends, wake)

    def _add(self, call: _Call) -> None:
        self._count += 1
        call.number = self._count
        self._calls[call.number] = call

    def _finish(self, call: _Call, answer: Any) -> None:
        if not call.over:
            call.over = True
            self._calls.pop(call.number, None)
            call.done(answer)

    def _send(self, call: _Call, now_ms: float) -> Send | None:
        if call.positions is not None:
            identity = self._membership.identity(call.partitions, call.identity)
            if isinstance(identity, BarnabasError):
                self._finish(call, identity)
                return None
            call.identity = identity
            if call.last is not None and any(self._sent.get(tp, 0) > call.number for tp in call.partitions):
                self._finish(call, call.last)
                return None
            self._drop_stale(call, now_ms)
            if call.over or now_ms < call.not_before_ms:
                return None
        node = self._membership.node()
        if node is None:
            return None
        call.in_flight = True
        if call.positions is None:
            return Send(node, self._question(call), lambda result, now: self._found(call, result, now))
        self._sent.update(dict.fromkeys(call.partitions, call.number))
        return Send(node, self._commit(call.positions, call.identity), lambda r, now: self._committed(call, r, now))

    def _drop_stale(self, call: _Call, now_ms: float) -> None:
        """Leave out positions in topics that were deleted: the coordinator would take them for the topic that has the
        name now. The rest is committed, and then the call fails."""
        assert call.positions is not None
        stale = {tp: self._membership.stale(tp, at.topic_id) for tp, at in call.positions.items()}
        error = next((each for each in stale.values() if each is not None), None)
        if error is None:
            return
        may_be_behind = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the broker that sent the metadata
        if may_be_behind and call.retry and call.failures < _UNKNOWN_TOPIC_RETRIES:
            self._again(call, error, now_ms)
            return
        call.stale = error
        call.positions = {tp: at for tp, at in call.positions.items() if stale[tp] is None}
        if not call.positions:
            self._finish(call, error)

    def _commit(
        self, positions: Mapping[TopicPartition, CommittedOffset], identity: CommitIdentity | None
    ) -> OffsetCommit:
        who = identity or CommitIdentity()
        return OffsetCommit(
            group_id=self._settings.group_id,
            partitions=[
                OffsetCommitPartition(*tp, each.offset, each.leader_epoch, each.metadata, each.topic_id)
                for tp, each in positions.items()
            ],
            generation_id=who.generation_id,
            member_id=who.member_id,
            group_instance_id=self._settings.group_instance_id if who.generation_id != NO_GENERATION else None,
            knows_group_id_not_found=who.is_member_epoch,
        )

    def _question(self, call: _Call) -> OffsetFetch:
        who = self._membership.fetch_identity() or CommitIdentity()
        call.identity = who
        asked = OffsetFetchGroup(
            group_id=self._settings.group_id,
            partitions=list(call.partitions),
            member_id=who.member_id or None,
            member_epoch=who.generation_id,
        )
        return OffsetFetch(groups=[asked], require_stable=self._stable)

    def _committed(self, call: _Call, result: Any, now_ms: float) -> None:
        call.in_flight = False
        if not isinstance(result, OffsetCommitResult):
            self._failed(call, result, now_ms)
            return
        wrong = [part for part in result.partitions if part.error is not ErrorCode.NONE]
        if not wrong:
            self._finder.reset_backoff()
            self._finish(call, call.stale)
            return
        code = wrong[0].error
        if code in NOT_A_MEMBER:
            failure = self._membership.refused(code, call.identity or CommitIdentity(), now_ms)
            if failure is not None or not call.retry:
                self._finish(call, failure or ApiError(code, f"commit of group {self._settings.group_id}"))
            else:
                self._again(call, ApiError(code, f"commit of group {self._settings.group_id}"), now_ms)
            return
        where = ", ".join(str(TopicPartition(part.topic, part.partition)) for part in wrong[:3])
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        self._failed(call, ApiError(code, f"commit of {where}{more}"), now_ms)

    def _found(self, call: _Call, result: Any, now_ms: float) -> None:
        call.in_flight = False
        if not isinstance(result, OffsetFetchResult) or not result.groups:
            unsupported = isinstance(result, ApiError) and result.code is ErrorCode.UNSUPPORTED_VERSION
            if unsupported and self._stable:
                self._stable = False
                return
            self._failed(call, result, now_ms)
            return
        group = result.groups[0]
        wrong = next((part for part in group.partitions if part.error is not ErrorCode.NONE), None)
        if group.error in NOT_A_MEMBER and call.identity is not None and call.identity.member_id:
            error = ApiError(group.error, f"offsets of group {self._settings.group_id}")
            self._membership.refused(group.error, call.identity, now_ms)
            self._again(call, error, now_ms)  # as the member that it is by then, or as none
        elif group.error is not ErrorCode.NONE:
            self._failed(call, ApiError(group.error, f"offsets of group {self._settings.group_id}"), now_ms)
        elif wrong is not None:
            self._failed(call, ApiError(wrong.error, f"committed offset of {wrong.topic}-{wrong.partition}"), now_ms)
        else:
            self._finder.reset_backoff()
            found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(call.partitions)
            for part in group.partitions:
                if part.offset >= 0:
                    tp = TopicPartition(part.topic, part.partition)
                    found[tp] = CommittedOffset(part.offset, part.leader_epoch, part.metadata or "")
            self._finish(call, found)

    def _failed(self, call: _Call, result: Any, now_ms: float) -> None:
        error = result
        if not isinstance(error, BarnabasError):
            error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator answered with nothing")
        final = isinstance(error, ApiError) and not error.retriable
        if isinstance(error, ApiError) and error.code in _UNKNOWN_TOPIC:
            final = call.failures >= _UNKNOWN_TOPIC_RETRIES
        if not final and is_gone(error):
            self._finder.mark_coordinator_unknown(error, now_ms)
        if final or not call.retry:
            self._finish(call, error)
        else:
            self._again(call, error, now_ms)

    def _again(self, call: _Call, error: BarnabasError, now_ms: float) -> None:
        call.last = error
        call.failures += 1
        settings = self._settings
        call.not_before_ms = now_ms + backoff_ms(
            call.failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )
