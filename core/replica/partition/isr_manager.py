"""The leader shrinks and grows the ISR: when, and by asking for one change of each partition at a time (facts D5)."""

from collections.abc import Callable, Iterable

from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...cluster.topics import PartitionState, ReplicaId
from .followers import FollowerProgress, Followers
from .partition import Partition


@frozen(kw_only=True)
class IsrChange:
    """What the leader wants the ISR to be, decided on the state of this leader epoch and partition epoch.

    It counts only if the tree still has that state. `isr` names each member with its life, the leader first.
    """

    key: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    isr: tuple[ReplicaId, ...]


class InSync:
    """Owner thread only; times in ms, monotonic.

    `change` is asked to store a change: the outcome comes as a new state of the partition, or as `unchanged` when it is
    sure that this change was not stored and will not be. `may_join` tells if a replica may come into an ISR: its broker
    lives, in this life, and is not about to stop. `may_ask` tells if a change can be stored: without the
    lease none can, and a wish that nobody can store would hold the high watermark up until it is known what came of it.
    """

    def __init__(
        self,
        own: Callable[[], ReplicaId],
        change: Callable[[IsrChange], None] | None,
        may_join: Callable[[ReplicaId], bool],
        may_ask: Callable[[], bool],
        *,
        lag_time_max_ms: float,
    ) -> None:
        self._own = own
        self._change = change
        self._may_join = may_join
        self._may_ask = may_ask
        self._lag_time_max_ms = lag_time_max_ms
        self._asked: dict[TopicPartition, tuple[IsrChange, tuple[ReplicaId, ...]]] = {}
        """By partition the change under way, and whom it adds."""

    def fetched(self, partition: Partition, follower: FollowerProgress, now_ms: float) -> bool:
        """A follower has reported: take it into the ISR if it has all; True if that raised the high watermark."""
        followers = partition.followers
        if followers is None or self._change is None or followers.is_in_sync(follower):
            return False
        is_caught_up = now_ms - follower.caught_up_ms <= self._lag_time_max_ms
        joining = is_caught_up and self._may_ask() and self._may_join(follower.replica)
        risen = self._set_joining(partition, followers, [follower], joining)
        reached = max(partition.high_watermark, partition.epoch_start_offset)
        if joining and follower.log_end >= reached and not self._is_asked(partition):
            members = [each for each in self._members(partition, followers) if each.broker_id != follower.broker_id]
            followers.add([follower.replica])
            self._ask(partition, [*members, follower.replica], added=(follower.replica,))
        return risen

    def check(self, partition: Partition, now_ms: float) -> bool:
        """Take out of the ISR who has been behind for too long; True if the high watermark rose."""
        followers = partition.followers
        if followers is None or self._change is None or not partition.is_leader:
            return False
        before_ms = now_ms - self._lag_time_max_ms
        late = [each for each in followers if each.joining and each.caught_up_ms < before_ms]
        risen = self._set_joining(partition, followers, late, False)
        lagging = set(followers.lagging(partition.log.log_end_offset, before_ms))
        if lagging and self._may_ask() and not self._is_asked(partition):
            members = self._members(partition, followers)
            self._ask(partition, [each for each in members if each.broker_id not in lagging])
        return risen

    def recheck_joining(self, partition: Partition) -> bool:
        """Brokers have come or gone: wait for nobody who is not there any more; True if the high watermark rose."""
        followers = partition.followers
        if followers is None:
            return False
        gone = [each for each in followers if each.joining and not self._may_join(each.replica)]
        return bool(gone) and self._set_joining(partition, followers, gone, False)

    def unchanged(self, change: IsrChange, partition: Partition) -> bool:
        """The change was not stored; True if the high watermark rose."""
        asked = self._asked.get(change.key)
        if asked is None or asked[0] != change:
            return False  # there is another one by now
        del self._asked[change.key]
        if partition.followers is None:
            return False
        partition.followers.add(())
        return partition.in_sync_changed()

    def forget(self, key: TopicPartition) -> None:
        """The partition is no more."""
        self._asked.pop(key, None)

    def still_asked(self, key: TopicPartition, state: PartitionState) -> tuple[ReplicaId, ...]:
        """Whom a change under way adds to this state. A change of another state is over: it came, or never will. One of
        this state may still come, though the partition has other replicas now, or is not led here any more."""
        change, added = self._asked.get(key, (None, ()))
        if change is None:
            return ()
        if (change.leader_epoch, change.partition_epoch) == (state.leader_epoch, state.partition_epoch):
            return added
        del self._asked[key]
        return ()

    def _set_joining(
        self, partition: Partition, followers: Followers, some: Iterable[FollowerProgress], joining: bool
    ) -> bool:
        changed = [each for each in some if each.joining != joining]
        for each in changed:
            each.joining = joining
        if changed:
            followers.recount()
        return bool(changed) and partition.in_sync_changed()

    def _is_asked(self, partition: Partition) -> bool:
        return partition.topic_partition in self._asked

    def _members(self, partition: Partition, followers: Followers) -> list[ReplicaId]:
        others = [each for each in followers.in_sync() if each.broker_id != partition.broker_id]
        return [self._own(), *others]

    def _ask(self, partition: Partition, isr: list[ReplicaId], added: tuple[ReplicaId, ...] = ()) -> None:
        assert self._change is not None
        change = IsrChange(
            key=partition.topic_partition,
            topic_id=partition.topic_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.state.partition_epoch,
            isr=tuple(isr),
        )
        self._asked[change.key] = change, added
        self._change(change)
