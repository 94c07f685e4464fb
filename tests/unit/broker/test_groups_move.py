"""A broker whose partition of `__consumer_offsets` is led elsewhere, and again here."""

from collections.abc import Iterator, Sequence

import pytest
from support.group_requests import (
    committed,
    committing,
    fetching,
    find,
    heartbeat,
    joining,
    load_error,
    offsets_partition_of,
    stable,
)
from support.replica_harness import led_in_sync, reached

from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.groups import SyncGroup
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import Offset
from barnabas.testing.manual_broker import ManualBroker

HERE, ELSEWHERE = 1, 2
TP = offsets_partition_of("g")


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(group_initial_rebalance_delay_ms=0)
    simulated.create("t", 2)
    find(simulated)
    yield simulated
    simulated.stop()


def partition_of(broker: ManualBroker) -> Partition:
    return broker.node.state.replicas.partitions[TP]


def led_by(broker: ManualBroker, leader: int, epochs: int = 1, isr: Sequence[int] = (HERE,)) -> None:
    """Another leader epoch, as the tree would have it."""
    led_in_sync(broker.node.state.replicas, partition_of(broker), isr, leader=leader, epochs=epochs)


def test_pending_joins_get_not_coordinator_when_group_moves(broker: ManualBroker) -> None:
    assert len({offsets_partition_of(group) for group in ("g", "g2", "h")}) == 3
    member = stable(broker)
    joins = broker.submit(joining())  # waits for the first member, who has to join again
    again = broker.ask(joining("g2"))
    syncs = broker.submit(
        SyncGroup(group_id="g2", generation_id=again.generation_id, member_id=again.member_id, assignments=[])
    )
    commits = broker.submit(committing("h", {("t", 0): 5}))
    assert (joins, commits) == ([], [])
    led_by(broker, ELSEWHERE)
    assert [each.error for each in joins] == [ErrorCode.NOT_COORDINATOR]
    assert heartbeat(broker, member) is ErrorCode.NOT_COORDINATOR
    broker.scheduler.run_pending()
    assert [each.error for each in syncs] == [ErrorCode.NONE], "others are left alone"
    assert [each.partitions[0].error for each in commits] == [ErrorCode.NONE]


def test_a_commit_of_this_turn_is_never_written_after_the_next_leader_took_over(broker: ManualBroker) -> None:
    assert broker.ask(committing("g", {("t", 0): 5})).partitions[0].error is ErrorCode.NONE
    commits = broker.submit(committing("g", {("t", 0): 6}))
    led_by(broker, ELSEWHERE)
    led_by(broker, HERE)
    assert [each.partitions[0].error for each in commits] == [ErrorCode.NOT_COORDINATOR]
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {("t", 0): 5}
    assert partition_of(broker).log.log_end_offset == 1


def test_a_commit_that_waits_for_followers_is_answered_when_another_broker_leads(broker: ManualBroker) -> None:
    led_by(broker, HERE, epochs=0, isr=(HERE, ELSEWHERE))
    commits = broker.submit(committing("g", {("t", 0): 5}))
    broker.scheduler.run_pending()
    assert commits == []
    led_by(broker, ELSEWHERE)
    assert [each.partitions[0].error for each in commits] == [ErrorCode.NOT_COORDINATOR]
    assert broker.ask(fetching("g")).groups[0].error is ErrorCode.NOT_COORDINATOR


def test_groups_stay_as_they_are_while_the_leader_epoch_rises_under_the_same_leader(broker: ManualBroker) -> None:
    """A replica of the partition has gone; nothing is read again, and what waits for followers waits on."""
    member = stable(broker)
    led_by(broker, HERE, epochs=0, isr=(HERE, ELSEWHERE))
    joins = broker.submit(joining())  # waits for the first member, who has to join again
    other = next(group for group in map(str, range(1000)) if offsets_partition_of(group) == TP)
    commits = broker.submit(committing(other, {("t", 0): 5}))
    broker.scheduler.run_pending()
    assert (joins, commits) == ([], [])
    led_by(broker, HERE)
    assert load_error(broker, "g") is ErrorCode.NONE
    broker.scheduler.run_pending()
    assert [each.partitions[0].error for each in commits] == [ErrorCode.NONE]
    assert joins == []
    assert heartbeat(broker, member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_regained_group_partition_is_reloaded_and_served_after_replication(broker: ManualBroker) -> None:
    member = stable(broker)
    partition = partition_of(broker)
    led_by(broker, ELSEWHERE)
    partition.high_watermark = Offset(0)
    led_by(broker, HERE, isr=(HERE, ELSEWHERE))
    broker.scheduler.run_pending()
    assert load_error(broker, "g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it may still be lost"
    assert heartbeat(broker, member) is ErrorCode.NONE, "no session ends before"
    reached(partition, ELSEWHERE, partition.log.log_end_offset)
    broker.node.state.replicas.purgatory.check(TP)
    assert load_error(broker, "g") is ErrorCode.NONE
    assert heartbeat(broker, member) is ErrorCode.NONE
    broker.scheduler.advance(11_000)
    assert heartbeat(broker, member) is ErrorCode.UNKNOWN_MEMBER_ID, "its session counts from then on"


def test_former_leader_answers_not_coordinator_before_image_update(broker: ManualBroker) -> None:
    member = stable(broker)
    partition_of(broker).leader = ELSEWHERE  # a lease that is over comes to the same
    assert heartbeat(broker, member) is ErrorCode.NOT_COORDINATOR
    assert load_error(broker, "g") is ErrorCode.NOT_COORDINATOR
    assert not broker.reports
