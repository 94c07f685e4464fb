"""A consumer's membership in its group (facts C6, Classic group protocol)."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from ....ports.entropy import Entropy
from ....ports.words import TopicPartition
from ..cluster_view import ClusterView
from ..effects import Poll
from .assignor import Assignor
from .events import CommitDone, CommittedDone, CommittedOffset, GroupEvent, GroupSettings, Places


class GroupMembership:
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
        self, view: ClusterView, entropy: Entropy, settings: GroupSettings, assignors: Sequence[Assignor]
    ) -> None:
        """`assignors` in the order of preference. The member is cooperative if all of them are."""
        raise NotImplementedError

    # --- what the user wants

    def subscribe(self, topics: Collection[str], now_ms: float) -> None:
        """Read these topics and no others, as a member. The time until the first poll must not be too long either."""
        raise NotImplementedError

    def subscribe_matching(self, pattern: re.Pattern[str], now_ms: float) -> None:
        """Read the topics whose whole name matches, those that come up later too."""
        raise NotImplementedError

    def leave(self, now_ms: float, done: Callable[[], None], reason: str = "the consumer unsubscribes") -> None:
        """Give up the subscription and everything assigned, and tell the coordinator unless the member is static.

        The caller has told the listener, and has committed, before; events not taken are void. `done` is called once,
        when the coordinator has answered or cannot be reached; at once if there is nothing to tell it.
        """
        raise NotImplementedError

    def rejoin(self, reason: str) -> None:
        """Have the partitions shared out anew (Java: enforceRebalance). Nothing happens without a subscription."""
        raise NotImplementedError

    # --- the user's thread

    def polled(self, now_ms: float) -> bool:
        """The user asks for messages. True if the shell should wake: the member had left because nobody asked."""
        raise NotImplementedError

    @property
    def has_event(self) -> bool:
        """True if `take_event` has something."""
        raise NotImplementedError

    def take_event(self) -> GroupEvent | None:
        """What happened next, None if nothing did."""
        raise NotImplementedError

    def revoked_done(self) -> None:
        """What the last `Revoke` named has been given up. Harmless when it has been lost meanwhile."""
        raise NotImplementedError

    # --- positions

    def commit(
        self,
        positions: Mapping[TopicPartition, CommittedOffset],
        done: CommitDone,
        *,
        deadline_ms: float,
        retry: bool = True,
    ) -> None:
        """Commit as the member that it is, or, without a subscription, as nobody.

        With `retry`, and while the coordinator is not known, it goes on until the deadline (`ClientTimeout`). `done` is
        called exactly once, maybe at once. It gets an `ApiError` whose text says what to do: UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS when the partitions are not (or not certainly) this member's.
        """
        raise NotImplementedError

    def committed(self, places: Places, done: CommittedDone, *, deadline_ms: float) -> None:
        """Find what the group has committed. `done` is called exactly once, maybe at once."""
        raise NotImplementedError

    # --- what is so now

    @property
    def subscribed(self) -> bool:
        raise NotImplementedError

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern those that match it now."""
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        """ "" while not a member."""
        raise NotImplementedError

    @property
    def generation_id(self) -> int:
        """-1 while not a member."""
        raise NotImplementedError

    @property
    def assignment(self) -> list[TopicPartition]:
        """What the events so far, taken or not, have given to the user."""
        raise NotImplementedError

    @property
    def settled(self) -> bool:
        """True while the member has its assignment, and nothing is under way to change it."""
        raise NotImplementedError

    def poll(self, now_ms: float) -> Poll:
        raise NotImplementedError
