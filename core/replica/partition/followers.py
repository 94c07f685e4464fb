"""The progress of a partition's followers, as its leader knows it (facts D4, D5). Times in ms, monotonic.

The progress counts for one broker epoch: a follower that returns with another one has to catch up again, since it may
have lost unflushed records.
"""

from collections.abc import Iterable, Iterator, Sequence

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Offset
from ...cluster.topics import UNKNOWN_EPOCH, ReplicaId

UNKNOWN = Offset(-1)
NO_BOUND = Offset(2**63 - 1)
_NEVER = float("-inf")


class FollowerProgress:
    """The progress of one follower. A plain slotted class: it is changed with every fetch."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_ms",
        "given_at",
        "leader_end",
        "log_end",
        "log_start",
        "sent_high_watermark",
        "sent_log_start",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.reset(UNKNOWN_EPOCH, _NEVER)

    def reset(self, broker_epoch: int, caught_up_ms: float) -> None:
        """Forget everything but the broker epoch, and that the follower had the whole log at `caught_up_ms`."""
        self.broker_epoch = broker_epoch
        self.caught_up_ms = caught_up_ms
        self.log_end = self.log_start = UNKNOWN
        self.sent_high_watermark = self.sent_log_start = UNKNOWN
        self.given_at = UNKNOWN
        """The offset of the last response with records; the follower has them unless it fetches them again."""
        self.leader_end = Offset(0)
        self.fetched_ms = _NEVER

    @property
    def replica(self) -> ReplicaId:
        return ReplicaId(self.broker_id, self.broker_epoch)

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now_ms: float) -> None:
        """Update the progress after a fetch: the follower has everything below `offset`."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end, self.log_start = offset, log_start
        self.leader_end, self.fetched_ms = leader_end, now_ms

    def seen(self, now_ms: float) -> None:
        """Note another fetch of a caught-up follower, at an unchanged log end."""
        self.caught_up_ms = self.fetched_ms = now_ms


class Followers:
    """All followers of one partition, in one leader epoch. Owner thread only."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, FollowerProgress] = {}

    def __iter__(self) -> Iterator[FollowerProgress]:
        return iter(self._by_id.values())

    def update(self, followers: Sequence[int], isr: Iterable[ReplicaId], now_ms: float) -> None:
        """Apply the followers and the ISR of a partition state. What is known of an earlier broker epoch of a member
        is dropped."""
        known = self._by_id
        self._by_id = {each: known.get(each) or FollowerProgress(each) for each in followers}
        for member in isr:
            follower = self._by_id.get(member.broker_id)
            if follower is not None and follower.broker_epoch < member.broker_epoch:
                follower.reset(member.broker_epoch, now_ms)

    def of(self, replica: ReplicaId) -> FollowerProgress:
        """Return the follower with this id and broker epoch.

        Raises `ApiError`: REPLICA_NOT_AVAILABLE for a broker that does not follow, STALE_BROKER_EPOCH for an earlier
        broker epoch.
        """
        follower = self._by_id.get(replica.broker_id)
        if follower is None:
            text = f"broker {replica.broker_id} has no replica of the partition"
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, text)
        if replica.broker_epoch > follower.broker_epoch:
            follower.reset(replica.broker_epoch, _NEVER)
        elif replica.broker_epoch < follower.broker_epoch:
            text = f"broker {replica.broker_id} has registered again since epoch {replica.broker_epoch}"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, text)
        return follower

    def known(self, replica: ReplicaId) -> FollowerProgress | None:
        """Return the follower with this id and broker epoch, or None."""
        follower = self._by_id.get(replica.broker_id)
        return follower if follower is not None and follower.broker_epoch == replica.broker_epoch else None

    def lowest_log_end(self, isr: Iterable[ReplicaId], catching_up: Iterable[ReplicaId]) -> Offset:
        """Return the offset below which all of these have the log; `UNKNOWN` if that of a member of the ISR is
        unknown, `NO_BOUND` if there are none."""
        lowest = NO_BOUND
        by_id = self._by_id
        for member in isr:
            follower = by_id.get(member.broker_id)
            if follower is None or follower.broker_epoch != member.broker_epoch:
                return UNKNOWN
            lowest = min(lowest, follower.log_end)
        for replica in catching_up:
            follower = self.known(replica)
            if follower is not None and follower.log_end < lowest:
                lowest = follower.log_end
        return lowest
