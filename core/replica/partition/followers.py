"""What the leader of a partition knows of its followers (facts D4, D5). Times in ms, monotonic.

What a follower says of itself counts for one life of its broker: one that came back has to catch up again, since what
it had and had not synced may be lost.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Offset
from ...cluster.topics import UNKNOWN_EPOCH, ReplicaId

UNKNOWN = Offset(-1)
NO_BOUND = Offset(2**63 - 1)
_NEVER = float("-inf")


class FollowerProgress:
    """How far one follower is. A plain slotted class: it is changed with every fetch."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_ms",
        "given_at",
        "joining",
        "leader_end",
        "log_end",
        "log_start",
        "sent_high_watermark",
        "sent_log_start",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.begin(UNKNOWN_EPOCH, _NEVER)

    def begin(self, broker_epoch: int, caught_up_ms: float) -> None:
        """Nothing is known of this life yet, but that it had everything at `caught_up_ms`."""
        self.broker_epoch = broker_epoch
        self.caught_up_ms = caught_up_ms
        self.log_end = self.log_start = UNKNOWN
        self.sent_high_watermark = self.sent_log_start = UNKNOWN
        self.given_at = UNKNOWN
        """The offset from which on it was given records last; it has them unless it asks for them again."""
        self.leader_end = Offset(0)
        self.fetched_ms = _NEVER
        self.joining = False
        """True if it is about to come into the ISR: the high watermark waits for it, so that it can."""

    @property
    def replica(self) -> ReplicaId:
        return ReplicaId(self.broker_id, self.broker_epoch)

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now_ms: float) -> None:
        """It has asked for what comes at `offset`: it has everything below."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end, self.log_start = offset, log_start
        self.leader_end, self.fetched_ms = leader_end, now_ms

    def seen(self, now_ms: float) -> None:
        """It has asked again, and both it and the leader are where they were, with the same log end."""
        self.caught_up_ms = self.fetched_ms = now_ms


class Followers:
    """All followers of one partition, as of one leader epoch. Owner thread only.

    low: below this offset all have everything who are in sync, or may be: the ISR as it stands in the tree, those whom
         the leader is about to add to it, and those who are about to be caught up.
    """

    __slots__ = ("_added", "_by_id", "_isr", "low")

    def __init__(self) -> None:
        self._by_id: dict[int, FollowerProgress] = {}
        self._isr: dict[int, int] = {}
        self._added: tuple[ReplicaId, ...] = ()
        self.low = NO_BOUND

    def __iter__(self) -> Iterator[FollowerProgress]:
        return iter(self._by_id.values())

    def take(
        self, followers: Sequence[int], isr: Mapping[int, int], now_ms: float, added: Iterable[ReplicaId] = ()
    ) -> None:
        """The followers there are, and those in sync by their lives (broker epochs), as the tree has it now; `added` as
        of `add`."""
        known = self._by_id
        self._by_id = {each: known.get(each) or FollowerProgress(each) for each in followers}
        for member, epoch in isr.items():
            follower = self._by_id.get(member)
            if follower is not None and follower.broker_epoch < epoch:
                follower.begin(epoch, now_ms)
            if follower is not None:
                follower.joining = False
        self._isr = dict(isr)
        self.add(added)

    def of(self, replica: ReplicaId) -> FollowerProgress:
        """The follower of this id, in this life. Raises `ApiError`: REPLICA_NOT_AVAILABLE for a broker that does not
        follow, STALE_BROKER_EPOCH for an earlier life."""
        follower = self._by_id.get(replica.broker_id)
        if follower is None:
            text = f"broker {replica.broker_id} has no replica of the partition"
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, text)
        if replica.broker_epoch > follower.broker_epoch:
            follower.begin(replica.broker_epoch, _NEVER)
        elif replica.broker_epoch < follower.broker_epoch:
            text = f"broker {replica.broker_id} has registered again since epoch {replica.broker_epoch}"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, text)
        return follower

    def known(self, replica: ReplicaId) -> FollowerProgress | None:
        """The same, or None."""
        follower = self._by_id.get(replica.broker_id)
        return follower if follower is not None and follower.broker_epoch == replica.broker_epoch else None

    def is_in_sync(self, follower: FollowerProgress) -> bool:
        """True if the tree has it in the ISR, in its present life."""
        return self._isr.get(follower.broker_id) == follower.broker_epoch

    def in_sync(self) -> list[ReplicaId]:
        """The ISR as the tree has it, without the leader."""
        return [ReplicaId(member, epoch) for member, epoch in self._isr.items()]

    def add(self, added: Iterable[ReplicaId]) -> None:
        """The tree is being asked to have these in the ISR: it may have them there already."""
        self._added = tuple(added)
        self.recount()

    def recount(self) -> None:
        """Find `low` again."""
        low = NO_BOUND
        for member, epoch in (*self._isr.items(), *((each.broker_id, each.broker_epoch) for each in self._added)):
            follower = self._by_id.get(member)
            if follower is None or follower.broker_epoch != epoch:
                low = UNKNOWN
            elif follower.log_end < low:
                low = follower.log_end
        for follower in self._by_id.values():
            if follower.joining and follower.log_end < low:
                low = follower.log_end
        self.low = low

    def fetched_since(self, since_ms: float) -> bool:
        """True if every other member of the ISR has fetched since then, in the life in which it is in sync."""
        for member, epoch in self._isr.items():
            follower = self._by_id.get(member)
            if follower is None or follower.broker_epoch != epoch or follower.fetched_ms < since_ms:
                return False
        return True

    def lagging(self, leader_end: int, before_ms: float) -> list[int]:
        """The members of the ISR that have not had everything since `before_ms`."""
        return [member for member in self._isr if self._lags(member, leader_end, before_ms)]

    def _lags(self, member: int, leader_end: int, before_ms: float) -> bool:
        follower = self._by_id.get(member)
        if follower is None or follower.broker_epoch != self._isr[member]:
            return True
        return follower.log_end != leader_end and follower.caught_up_ms < before_ms
