"""The leader shrinks and grows the ISR: when, and by asking for one change of each partition at a time (facts D5)."""

from collections.abc import Callable, Iterable

from ...ports.values import frozen
from ...ports.words import TopicPartition
from ..cluster.topics import ReplicaId
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
    lives, in this life, and is not about to stop.
    """

    def __init__(
        self,
        own: Callable[[], ReplicaId],
        change: Callable[[IsrChange], None] | None,
        may_join: Callable[[ReplicaId], bool],
        *,
        lag_time_max_ms: float,
    ) -> None:
        self._own = own
        self._change = change
        self._may_join = may_join
        self._lag_time_max_ms = lag_time_max_ms
        self._asked: dict[TopicPartition, tuple[int, int]] = {}
        """By partition the leader epoch and partition epoch of the change under way."""

    def fetched(self, partition: Partition, follower: FollowerProgress, now_ms: float) -> bool:
        """A follower has reported: take it into the ISR if it has all; True if that raised the high watermark."""
        followers = partition.followers
        if followers is None or self._change is None or followers.is_in_sync(follower):
            return False
        joining = now_ms - follower.caught_up_ms <= self._lag_time_max_ms and self._may_join(follower.replica)
        risen = self._set_joining(partition, followers, [follower], joining)
        reached = max(partition.high_watermark, partition.epoch_start_offset)
        if joining and follower.log_end >= reached and not self._is_asked(partition):
            members = [each for each in self._members(partition, followers) if each.broker_id != follower.broker_id]
            followers.add([follower.replica])
            self._ask(partition, [*members, follower.replica])
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
        if lagging and not self._is_asked(partition):
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

    def unchanged(self, partition: Partition) -> bool:
        """The change that was asked for was not stored; True if the high watermark rose."""
        self._asked.pop(partition.topic_partition, None)
        if partition.followers is None:
            return False
        partition.followers.add(())
        return partition.in_sync_changed()

    def forget(self, key: TopicPartition) -> None:
        """The partition is no more, or has another state."""
        self._asked.pop(key, None)

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
        known = partition.leader_epoch, partition.state.partition_epoch
        return self._asked.get(partition.topic_partition) == known

    def _members(self, partition: Partition, followers: Followers) -> list[ReplicaId]:
        others = [each for each in followers.in_sync() if each.broker_id != partition.broker_id]
        return [self._own(), *others]

    def _ask(self, partition: Partition, isr: list[ReplicaId]) -> None:
        assert self._change is not None
        epochs = partition.leader_epoch, partition.state.partition_epoch
        self._asked[partition.topic_partition] = epochs
        self._change(
            IsrChange(
                key=partition.topic_partition,
                topic_id=partition.topic_id,
                leader_epoch=epochs[0],
                partition_epoch=epochs[1],
                isr=tuple(isr),
            )
        )
