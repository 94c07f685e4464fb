"""The ISR manager: the leader expands and shrinks the ISR of its partitions, one change of each at a time.

Kafka has these as `Partition.maybeExpandIsr` and `maybeShrinkIsr`.
"""

from collections.abc import Callable, Iterable

from ...cluster.topics import ReplicaId
from ..purgatory import Purgatory
from .followers import FollowerProgress
from .isr_state import AlterPartition, PendingExpandIsr, PendingShrinkIsr, committed, with_catching_up
from .partition import Partition

SubmitAlterPartition = Callable[[AlterPartition, Callable[[], None]], None]
"""Has the coordination tree store another ISR, as `AlterPartitionManager.submit` does. A stored change arrives as a new
partition state. The callback is called when it is certain that the change was not stored and never will be."""


class IsrManager:
    """Decides when the ISR changes, and keeps `Partition.isr_state`. Owner thread only; times in ms, monotonic.

    own:         returns this broker with its present broker epoch.
    submit:      None for a broker without others, whose ISR never changes.
    is_eligible: returns True if a replica may be added to an ISR: its broker lives, in this broker epoch, and is not
    about to stop (Kafka: `isReplicaIsrEligible`).
    may_submit:  returns True if a change can be stored. Without the lease none can, and a pending change would hold the
                 high watermark back until its outcome is known.
    """

    def __init__(
        self,
        own: Callable[[], ReplicaId],
        purgatory: Purgatory,
        submit: SubmitAlterPartition | None,
        is_eligible: Callable[[ReplicaId], bool],
        may_submit: Callable[[], bool],
        *,
        lag_time_max_ms: float,
    ) -> None:
        self._own = own
        self._purgatory = purgatory
        self._submit = submit
        self._is_eligible = is_eligible
        self._may_submit = may_submit
        self._lag_time_max_ms = lag_time_max_ms

    def maybe_expand_isr(self, partition: Partition, follower: FollowerProgress, now_ms: float) -> bool:
        """Add a follower that has just fetched to the ISR if it has caught up; True if the high watermark rose."""
        if partition.followers is None or self._submit is None or partition.is_in_sync(follower):
            return False
        replica = follower.replica
        is_caught_up = now_ms - follower.caught_up_ms <= self._lag_time_max_ms
        can_join = is_caught_up and self._may_submit() and self._is_eligible(replica)
        has_risen = False
        if can_join != (replica in partition.isr_state.catching_up):
            has_risen = partition.set_isr_state(with_catching_up(partition.isr_state, replica, is_caught_up=can_join))
        committed_end = max(partition.high_watermark, partition.epoch_start_offset)
        state = partition.isr_state
        if can_join and follower.log_end >= committed_end and not state.is_inflight:
            stay = [each for each in self._members(partition) if each.broker_id != replica.broker_id]
            sent = self._alter_partition(partition, [*stay, replica])
            partition.set_isr_state(
                PendingExpandIsr(isr=state.isr, catching_up=state.catching_up, new_in_sync_replica=replica, sent=sent)
            )
            self._submit(sent, lambda: self._on_rejected(partition, sent))
        return has_risen

    def maybe_shrink_isr(self, partition: Partition, now_ms: float) -> bool:
        """Remove the members that have lagged for too long from the ISR; True if the high watermark rose."""
        followers = partition.followers
        if followers is None or self._submit is None or not partition.is_leader:
            return False
        before_ms = now_ms - self._lag_time_max_ms
        has_risen = self._stop_waiting(
            partition, lambda replica: (known := followers.known(replica)) is None or known.caught_up_ms < before_ms
        )
        lagging = {each.broker_id for each in self.lagging(partition, before_ms)}
        state = partition.isr_state
        if lagging and self._may_submit() and not state.is_inflight:
            stay = [each for each in self._members(partition) if each.broker_id not in lagging]
            sent = self._alter_partition(partition, stay)
            partition.set_isr_state(PendingShrinkIsr(isr=state.isr, catching_up=state.catching_up, sent=sent))
            self._submit(sent, lambda: self._on_rejected(partition, sent))
        return has_risen

    def on_brokers_changed(self, partition: Partition) -> bool:
        """Stop waiting for followers that are no longer eligible; True if the high watermark rose."""
        return partition.followers is not None and self._stop_waiting(
            partition, lambda replica: not self._is_eligible(replica)
        )

    def lagging(self, partition: Partition, before_ms: float) -> list[ReplicaId]:
        """Return the members of the ISR, without the leader, that have not had the whole log since `before_ms`."""
        followers, log_end = partition.followers, partition.log.log_end_offset
        found = []
        for member in self._followers_in_sync(partition):
            follower = None if followers is None else followers.known(member)
            if follower is None or (follower.log_end != log_end and follower.caught_up_ms < before_ms):
                found.append(member)
        return found

    def _stop_waiting(self, partition: Partition, is_over: Callable[[ReplicaId], bool]) -> bool:
        state = partition.isr_state
        over = [each for each in state.catching_up if is_over(each)]
        for replica in over:
            state = with_catching_up(state, replica, is_caught_up=False)
        return bool(over) and partition.set_isr_state(state)

    def _on_rejected(self, partition: Partition, sent: AlterPartition) -> None:
        if partition.isr_state.sent != sent:
            return  # another request has followed, or the tree has announced a later state
        if partition.set_isr_state(committed(partition.isr_state)):
            self._purgatory.check(partition.topic_partition)

    def _followers_in_sync(self, partition: Partition) -> list[ReplicaId]:
        return [each for each in partition.isr_state.isr if each.broker_id != partition.broker_id]

    def _members(self, partition: Partition) -> list[ReplicaId]:
        return [self._own(), *self._followers_in_sync(partition)]

    def _alter_partition(self, partition: Partition, new_isr: Iterable[ReplicaId]) -> AlterPartition:
        return AlterPartition(
            topic_partition=partition.topic_partition,
            topic_id=partition.topic_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.state.partition_epoch,
            new_isr=tuple(new_isr),
        )
