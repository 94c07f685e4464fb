"""A consumer's membership in its group (facts C6, Classic group protocol)."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from ....ports.entropy import Entropy
from ....ports.types import TopicPartition
from ..cluster_view import ClusterView
from ..coordinator_finder import CoordinatorFinder
from ..effects import Poll
from .assignor import Assignor
from .events import CommitResultCallback, CommittedOffset, GroupEvent, GroupSettings, OffsetsCallback, TopicPartitions
from .membership_manager import MembershipManager


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
        self._finder = CoordinatorFinder(view, entropy, settings.group_id, backoff)
        self._member = MembershipManager(view, self._finder, entropy, settings, assignors, notify)

    # --- what the user wants

    def subscribe(self, topics: Collection[str], now_ms: float) -> None:
        """Read these topics and no others, as a member. The time until the first poll must not be too long either."""
        if self._member.topics.by_name(topics):
            self._member.on_subscription_updated(now_ms)

    def subscribe_matching(self, pattern: re.Pattern[str], now_ms: float) -> None:
        """Read the topics whose whole name matches, those that come up later too."""
        if self._member.topics.by_pattern(pattern):
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
        self._member.positions.commit(positions, done, deadline_ms=deadline_ms, retry=retry)

    def committed(self, partitions: TopicPartitions, done: OffsetsCallback, *, deadline_ms: float) -> None:
        """Fetch the group's committed offsets. `done` is called exactly once, maybe at once."""
        self._member.positions.committed(partitions, done, deadline_ms=deadline_ms)

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

    def poll(self, now_ms: float) -> Poll:
        polls = [self._member.poll(now_ms), self._finder.poll(now_ms)]
        refusal = self._finder.take_refusal()
        if refusal is not None:
            self._member.coordinator_refused(refusal)
        return Poll([send for poll in polls for send in poll.sends], min(poll.wake_ms for poll in polls))
