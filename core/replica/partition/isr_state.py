"""The ISR of a partition at its leader, as Kafka's `PartitionState` has it: committed, or with one change in flight."""

from collections.abc import Iterable

from attrs import evolve

from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...cluster.topics import PartitionState, ReplicaId


@frozen(kw_only=True)
class AlterPartition:
    """A leader's request for another ISR, decided on the partition state of these epochs.

    The request is valid only while the coordination tree has that state. `new_isr` names each member with its broker
    epoch, the leader first.
    """

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[ReplicaId, ...]

    def is_for(self, state: PartitionState) -> bool:
        """Return True if the request was decided on this state."""
        return (self.leader_epoch, self.partition_epoch) == (state.leader_epoch, state.partition_epoch)


@frozen(kw_only=True)
class CommittedIsr:
    """The ISR of the coordination tree; no change is in flight.

    isr:         the members, the leader included, each with the broker epoch in which it is in sync.
    catching_up: followers outside the ISR that have caught up. The high watermark waits for them, so that they can
                 reach it and be added (Kafka: `shouldWaitForReplicaToJoinIsr`).
    """

    isr: tuple[ReplicaId, ...] = ()
    catching_up: frozenset[ReplicaId] = frozenset()

    @property
    def maximal_isr(self) -> tuple[ReplicaId, ...]:
        """The members of the ISR, and those that the tree may have added already (Kafka: `maximalIsr`)."""
        return self.isr

    @property
    def sent(self) -> AlterPartition | None:
        """The request in flight."""
        return None

    @property
    def is_inflight(self) -> bool:
        return False


@frozen(kw_only=True)
class PendingExpandIsr:
    """The leader has asked for a new member. The tree may have it in the ISR already."""

    isr: tuple[ReplicaId, ...]
    catching_up: frozenset[ReplicaId]
    new_in_sync_replica: ReplicaId
    sent: AlterPartition

    @property
    def maximal_isr(self) -> tuple[ReplicaId, ...]:
        return (*self.isr, self.new_in_sync_replica)

    @property
    def is_inflight(self) -> bool:
        return True


@frozen(kw_only=True)
class PendingShrinkIsr:
    """The leader has asked to remove members. The tree may have them in the ISR still, so they count."""

    isr: tuple[ReplicaId, ...]
    catching_up: frozenset[ReplicaId]
    sent: AlterPartition

    @property
    def maximal_isr(self) -> tuple[ReplicaId, ...]:
        return self.isr

    @property
    def is_inflight(self) -> bool:
        return True


IsrState = CommittedIsr | PendingExpandIsr | PendingShrinkIsr


def committed(state: IsrState) -> CommittedIsr:
    """Return the state after the request in flight was rejected."""
    return CommittedIsr(isr=state.isr, catching_up=state.catching_up)


_NO_REPLICAS: frozenset[ReplicaId] = frozenset()
"""One for all partitions: an empty one takes 216 bytes."""


def with_partition_state(
    state: IsrState, known: PartitionState, isr: tuple[ReplicaId, ...], catching_up: Iterable[ReplicaId]
) -> IsrState:
    """Return the state after the tree has announced `known`, with this ISR.

    A request that was decided on `known` may still be stored, though the partition has other replicas by now, or is no
    longer led here. A request that was decided on another state has been stored, or never will be.
    """
    members = {each.broker_id for each in isr}
    waiting = frozenset(each for each in catching_up if each.broker_id not in members) or _NO_REPLICAS
    if state.sent is None or not state.sent.is_for(known):
        return CommittedIsr(isr=isr, catching_up=waiting)
    return evolve(state, isr=isr, catching_up=waiting)


def with_catching_up(state: IsrState, replica: ReplicaId, *, is_caught_up: bool) -> IsrState:
    """Return the state in which the high watermark waits for this replica, or does not. Earlier broker epochs of the
    replica are forgotten."""
    others = frozenset(each for each in state.catching_up if each.broker_id != replica.broker_id)
    return evolve(state, catching_up=others | {replica} if is_caught_up else others)
