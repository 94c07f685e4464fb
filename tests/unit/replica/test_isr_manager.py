"""The ISR from decision to outcome: what is pending, what the high watermark waits for, and what the tree is sent."""

from attrs import evolve
from support.replica_cluster import ReplicaCluster

from barnabas.core.cluster.topics import PartitionState, ReplicaId
from barnabas.core.replica.partition.isr_state import (
    AlterPartition,
    CommittedIsr,
    PendingExpandIsr,
    PendingShrinkIsr,
    committed,
    with_catching_up,
    with_partition_state,
)
from barnabas.ports.types import TopicPartition

ONE, TWO, TWO_AGAIN, THREE = ReplicaId(1, 10), ReplicaId(2, 20), ReplicaId(2, 21), ReplicaId(3, 30)
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), broker_epochs={1: 10, 2: 20}, partition_epoch=7)


def sent(*new_isr: ReplicaId) -> AlterPartition:
    tp = TopicPartition("t", 0)
    return AlterPartition(topic_partition=tp, topic_id=b"id", leader_epoch=4, partition_epoch=7, new_isr=new_isr)


def expansion(replica: ReplicaId = THREE) -> PendingExpandIsr:
    return PendingExpandIsr(
        isr=(ONE, TWO), catching_up=frozenset(), new_in_sync_replica=replica, sent=sent(ONE, TWO, replica)
    )


def test_maximal_isr_has_the_replica_of_a_pending_expansion() -> None:
    assert CommittedIsr(isr=(ONE, TWO)).maximal_isr == (ONE, TWO)
    assert (expansion().isr, expansion().maximal_isr) == ((ONE, TWO), (ONE, TWO, THREE))


def test_maximal_isr_keeps_both_broker_epochs_of_a_member_that_rejoins() -> None:
    assert expansion(TWO_AGAIN).maximal_isr == (ONE, TWO, TWO_AGAIN)


def test_pending_shrink_still_counts_the_replica_to_remove() -> None:
    shrink = PendingShrinkIsr(isr=(ONE, TWO), catching_up=frozenset(), sent=sent(ONE))
    assert (shrink.maximal_isr, shrink.is_inflight) == ((ONE, TWO), True)


def test_pending_change_survives_the_state_it_was_decided_on() -> None:
    again = with_partition_state(expansion(), STATE, (ONE, TWO), ())
    assert again == expansion()


def test_pending_change_ends_with_a_later_partition_or_leader_epoch() -> None:
    for later in (evolve(STATE, partition_epoch=8), evolve(STATE, leader_epoch=5)):
        assert with_partition_state(expansion(), later, (ONE, TWO, THREE), ()) == CommittedIsr(isr=(ONE, TWO, THREE))


def test_rejected_change_restores_the_committed_isr() -> None:
    state = committed(evolve(expansion(), catching_up=frozenset({THREE})))
    assert state == CommittedIsr(isr=(ONE, TWO), catching_up=frozenset({THREE}))


def test_catching_up_forgets_earlier_broker_epochs_of_the_replica() -> None:
    waiting = with_catching_up(CommittedIsr(isr=(ONE,)), TWO, is_caught_up=True)
    assert with_catching_up(waiting, TWO_AGAIN, is_caught_up=True).catching_up == {TWO_AGAIN}
    assert with_catching_up(waiting, TWO_AGAIN, is_caught_up=False).catching_up == frozenset()


def test_catching_up_ends_when_the_tree_adds_the_replica() -> None:
    waiting = CommittedIsr(isr=(ONE,), catching_up=frozenset({TWO, THREE}))
    assert with_partition_state(waiting, STATE, (ONE, TWO), waiting.catching_up).catching_up == {THREE}


def test_isr_state_of_a_leader_goes_from_committed_to_pending_and_back() -> None:
    cluster = ReplicaCluster()
    cluster.isolate(3)
    cluster.until(lambda: cluster.state.isr == (1, 2))
    cluster.run(10)
    partition = cluster[1].partition
    assert isinstance(partition.isr_state, CommittedIsr)
    cluster.cut = {frozenset((1, 0))}
    cluster.until(lambda: isinstance(partition.isr_state, PendingExpandIsr))
    assert [each.broker_id for each in partition.isr_state.maximal_isr] == [1, 2, 3]
    cluster.isr_rejections[-1]()
    assert isinstance(partition.isr_state, CommittedIsr)
    assert [each.broker_id for each in partition.isr_state.catching_up] == [3]
    cluster.heal()
    cluster.until(lambda: set(cluster.state.isr) == {1, 2, 3})
