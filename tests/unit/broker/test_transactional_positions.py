"""Positions of groups in transactions at a whole broker: request, marker, restarts, changes of the leader."""

from collections.abc import Iterator

import pytest
from support.group_requests import commit, committed, find, load_error, offsets_partition_of
from support.replica_harness import led_in_sync, reached

from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.groups import OffsetCommitPartition, OffsetFetch, OffsetFetchGroup
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.broker_api.transactions import (
    TransactionSupportedOperation,
    TxnMarker,
    TxnOffsetCommit,
    WriteTxnMarkers,
)
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import Offset, TopicPartition
from barnabas.testing.manual_broker import ManualBroker

HERE, ELSEWHERE = 1, 2
PRODUCER = 900
TP = offsets_partition_of("g")
T0, T1 = ("t", 0), ("t", 1)
Position = tuple[str, int]


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(
        group_initial_rebalance_delay_ms=0,
        transaction_partition_verification_enable=False,  # there is no coordinator here
    )
    simulated.create("t", 2)
    find(simulated)
    yield simulated
    simulated.stop()


def committing_in(positions: dict[Position, int], *, producer: int = PRODUCER, epoch: int = 3) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        transactional_id="x",
        group_id="g",
        producer_id=producer,
        producer_epoch=epoch,
        partitions=[OffsetCommitPartition(*key, offset) for key, offset in positions.items()],
    )


def commit_in(broker: ManualBroker, positions: dict[Position, int], *, epoch: int = 3) -> list[E]:
    return [each.error for each in broker.ask(committing_in(positions, epoch=epoch)).partitions]


def ending(*, committed: bool, epoch: int = 3, coordinator_epoch: int = 0, tp: TopicPartition = TP) -> WriteTxnMarkers:
    marker = TxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        committed=committed,
        partitions=[tp],
        coordinator_epoch=coordinator_epoch,
    )
    return WriteTxnMarkers(markers=[marker])


def end(broker: ManualBroker, *, committed: bool = True, epoch: int = 3) -> E:
    (marker,) = broker.ask(ending(committed=committed, epoch=epoch)).markers
    return marker.partitions[0].error


def stable(broker: ManualBroker, *places: Position) -> dict[Position, int | E]:
    """Fetch offsets with `require_stable`, as transactional readers do."""
    wanted = OffsetFetchGroup(group_id="g", partitions=[TopicPartition(*each) for each in places])
    (group,) = broker.ask(OffsetFetch(groups=[wanted], require_stable=True)).groups
    assert group.error is E.NONE
    return {(each.topic, each.partition): each.error or each.offset for each in group.partitions}


def partition_of(broker: ManualBroker) -> Partition:
    return broker.node.state.replicas.partitions[TP]


def led_by(broker: ManualBroker, leader: int, *isr: int) -> None:
    """Another leader epoch, as the tree would have it."""
    led_in_sync(broker.node.state.replicas, partition_of(broker), isr or (HERE,), leader=leader, epochs=1)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("restarts", [(), ("pending",), ("ended",), ("pending", "ended")], ids="+".join)
def test_transactional_offsets_become_visible_with_end_marker(
    broker: ManualBroker, restarts: tuple[str, ...], is_committed: bool
) -> None:
    commit(broker, "g", {T0: 1})
    assert commit_in(broker, {T0: 5, T1: 6}) == [E.NONE, E.NONE]
    if "pending" in restarts:
        broker.restart()
        broker.scheduler.run_pending()
    assert committed(broker, "g") == {T0: 1}
    assert stable(broker, T0, T1) == dict.fromkeys((T0, T1), E.UNSTABLE_OFFSET_COMMIT)
    assert end(broker, committed=is_committed) is E.NONE
    if "ended" in restarts:
        broker.restart()
        broker.scheduler.run_pending()
    assert stable(broker, T0, T1) == ({T0: 5, T1: 6} if is_committed else {T0: 1, T1: -1})
    assert not broker.reports


def test_many_transactions_are_read_again(broker: ManualBroker) -> None:
    for number in range(30):
        assert commit_in(broker, {T0: number, T1: 2 * number}) == [E.NONE, E.NONE]
        assert end(broker, committed=number % 3 != 2) is E.NONE
    commit_in(broker, {T0: 99})
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {T0: 28, T1: 56}
    assert stable(broker, T0, T1) == {T0: E.UNSTABLE_OFFSET_COMMIT, T1: 56}


def test_a_producer_of_an_earlier_epoch(broker: ManualBroker) -> None:
    assert commit_in(broker, {T0: 5}) == [E.NONE]
    assert end(broker, epoch=4, committed=False) is E.NONE, "it is fenced"
    assert commit_in(broker, {T0: 6}) == [E.INVALID_PRODUCER_EPOCH]
    assert stable(broker, T0) == {T0: -1}
    assert commit_in(broker, {T0: 7}, epoch=4) == [E.NONE]
    assert end(broker, epoch=4) is E.NONE
    assert stable(broker, T0) == {T0: 7}


def test_a_marker_of_another_partition_changes_nothing(broker: ManualBroker) -> None:
    commit_in(broker, {T0: 5})
    other = offsets_partition_of("h")
    assert other != TP
    for tp in (other, TopicPartition("t", 0)):
        answer = broker.ask(ending(committed=True, tp=tp))
        assert answer.markers[0].partitions[0].error is E.NONE
    assert stable(broker, T0) == {T0: E.UNSTABLE_OFFSET_COMMIT}


def test_positions_go_with_their_topic(broker: ManualBroker) -> None:
    broker.create("u", 1)
    commit_in(broker, {T0: 5, ("u", 0): 6})
    broker.ask(DeleteTopics(names=["t"]))
    broker.create("t", 2)
    broker.restart()
    broker.scheduler.run_pending()
    end(broker)
    assert committed(broker, "g") == {("u", 0): 6}


# --- the coordinator moves


def test_the_marker_comes_to_another_leader(broker: ManualBroker) -> None:
    commit_in(broker, {T0: 5})
    led_by(broker, ELSEWHERE)
    assert commit_in(broker, {T0: 6}) == [E.NOT_COORDINATOR]
    led_by(broker, HERE)
    broker.scheduler.run_pending()
    assert stable(broker, T0) == {T0: E.UNSTABLE_OFFSET_COMMIT}
    assert end(broker) is E.NONE
    assert stable(broker, T0) == {T0: 5}


def test_a_marker_that_is_not_everywhere_yet_does_not_count(broker: ManualBroker) -> None:
    led_by(broker, HERE, HERE, ELSEWHERE)
    partition = partition_of(broker)
    answers = broker.submit(committing_in({T0: 5}))
    broker.scheduler.run_pending()
    assert answers == []
    ends = broker.submit(ending(committed=True))
    broker.scheduler.run_pending()
    assert stable(broker, T0) == {T0: E.UNSTABLE_OFFSET_COMMIT}
    reached(partition, ELSEWHERE, 1)
    broker.node.state.replicas.purgatory.check(TP)
    assert [each.partitions[0].error for each in answers] == [E.NONE]
    assert stable(broker, T0) == {T0: E.UNSTABLE_OFFSET_COMMIT}
    reached(partition, ELSEWHERE, 2)
    broker.node.state.replicas.purgatory.check(TP)
    assert [each.markers[0].partitions[0].error for each in ends] == [E.NONE]
    assert stable(broker, T0) == {T0: 5}


def test_both_may_come_with_one_fetch_of_the_follower(broker: ManualBroker) -> None:
    led_by(broker, HERE, HERE, ELSEWHERE)
    answers = broker.submit(committing_in({T0: 5}))
    ends = broker.submit(ending(committed=True))
    reached(partition_of(broker), ELSEWHERE, 2)
    broker.node.state.replicas.purgatory.check(TP)
    assert [each.partitions[0].error for each in answers] == [E.NONE]
    assert len(ends) == 1
    assert stable(broker, T0) == {T0: 5}


def test_a_marker_that_comes_while_the_next_leader_reads(broker: ManualBroker) -> None:
    commit_in(broker, {T0: 5})
    led_by(broker, ELSEWHERE)
    partition = partition_of(broker)
    partition.high_watermark = Offset(0)
    led_by(broker, HERE, HERE, ELSEWHERE)
    broker.scheduler.run_pending()
    assert load_error(broker, "g") is E.COORDINATOR_LOAD_IN_PROGRESS
    ends = broker.submit(ending(committed=True))
    broker.scheduler.run_pending()
    assert load_error(broker, "g") is E.COORDINATOR_LOAD_IN_PROGRESS
    reached(partition, ELSEWHERE, 2)
    broker.node.state.replicas.purgatory.check(TP)
    broker.scheduler.run_pending()
    assert [each.markers[0].partitions[0].error for each in ends] == [E.NONE]
    assert stable(broker, T0) == {T0: 5}


def test_the_coordinator_of_the_transaction_is_asked_as_it_is_for_messages(
    broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(broker.node.api.groups, "_verify_partition", lambda *each: asked.append(each))
    answers = broker.submit(committing_in({T0: 5}))
    broker.scheduler.run_pending()
    ((*question, observed),) = asked
    operation = TransactionSupportedOperation.DEFAULT_ERROR
    assert (question, answers) == (["x", PRODUCER, 3, TP, operation], [])
    observed(E.INVALID_TXN_STATE)  # type: ignore[operator]
    broker.scheduler.run_pending()
    assert [each.partitions[0].error for each in answers] == [E.INVALID_TXN_STATE]
    assert stable(broker, T0) == {T0: -1}
