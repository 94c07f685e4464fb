"""ElectLeaders, reassignments, OffsetForLeaderEpoch, as one broker answers them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.replicas import (
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    ListPartitionReassignments,
    Reassignment,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker()
    simulated.create("t", 2)
    yield simulated
    simulated.stop()


@pytest.mark.parametrize("kind", ElectionType)
def test_elect_leaders_answers_election_not_needed_for_live_leader(broker: ManualBroker, kind: ElectionType) -> None:
    result = broker.ask(ElectLeaders(topics={"t": [0, 1, 7], "nowhere": [0]}, election_type=kind))
    assert result.error is ErrorCode.NONE
    assert [(change.topic, change.partition, change.error) for change in result.partitions] == [
        ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert list(broker.ask(ElectLeaders(topics=None, election_type=kind)).partitions) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_partition_whose_log_is_not_there_gets_no_leader(
    broker: ManualBroker, kind: ElectionType, expected: ErrorCode
) -> None:
    partitions: Any = broker.node.state.replicas.partitions
    del partitions["t", 1]
    result = broker.ask(ElectLeaders(topics=None, election_type=kind))
    assert [(change.partition, change.error) for change in result.partitions] == [(1, expected)]


def test_an_unknown_kind_of_election(broker: ManualBroker) -> None:
    assert broker.ask(ElectLeaders(topics=None, election_type=9)).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partition", "replicas", "expected", "said"),
    [
        (0, [1], ErrorCode.NONE, None),
        (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "not moving"),
        (0, [1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive: [2]"),
        (0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
        (0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (7, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-7"),
    ],
)
def test_partitions_stay_where_they_are(
    broker: ManualBroker, partition: int, replicas: Sequence[int] | None, expected: ErrorCode, said: str | None
) -> None:
    wanted = Reassignment(topic="t", partition=partition, replicas=replicas)
    (change,) = broker.ask(AlterPartitionReassignments(partitions=[wanted])).partitions
    assert change.error is expected
    assert said is None if change.error_message is None else said is not None and said in change.error_message
    assert list(broker.ask(ListPartitionReassignments()).partitions) == []


@pytest.mark.parametrize(
    ("may_change", "replicas", "expected"),
    [
        (False, [1, 2], ErrorCode.INVALID_REPLICATION_FACTOR),
        (True, [1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (False, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (False, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_move_may_be_bound_to_the_replication_factor(
    broker: ManualBroker, may_change: bool, replicas: Sequence[int] | None, expected: ErrorCode
) -> None:
    wanted = Reassignment(topic="t", partition=0, replicas=replicas)
    result = broker.ask(AlterPartitionReassignments(partitions=[wanted], allow_replication_factor_change=may_change))
    assert result.allow_replication_factor_change is may_change
    assert result.partitions[0].error is expected
    if expected is ErrorCode.INVALID_REPLICATION_FACTOR:
        assert result.partitions[0].error_message == "The replication factor is changed from 1 to 2"


def epoch_end(broker: ManualBroker, epoch: int, *, current: int = -1, partition: int = 0) -> tuple[object, ...]:
    asked = OffsetForLeaderPartition(topic="t", partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    (found,) = broker.ask(OffsetForLeaderEpoch(partitions=[asked])).partitions
    return found.error, found.leader_epoch, found.end_offset


def test_where_a_leader_epoch_ends(broker: ManualBroker) -> None:
    assert epoch_end(broker, 0) == (ErrorCode.NONE, 0, 0)
    broker.produce("t", b"a", b"b", b"c")
    partition = broker.node.state.replicas.partitions["t", 0]
    assert epoch_end(broker, 0, current=0) == (ErrorCode.NONE, 0, 3)
    assert epoch_end(broker, 1) == (ErrorCode.NONE, -1, -1)
    assert epoch_end(broker, -1) == (ErrorCode.NONE, -1, -1)
    partition.leader_epoch = 2  # another leader came and went; nothing was written since
    assert epoch_end(broker, 0) == (ErrorCode.NONE, 0, 3)
    assert epoch_end(broker, 1) == (ErrorCode.NONE, 0, 3)
    assert epoch_end(broker, 2) == (ErrorCode.NONE, 2, 3)
    broker.produce("t", b"d")
    assert epoch_end(broker, 0) == epoch_end(broker, 1) == (ErrorCode.NONE, 0, 3)
    assert epoch_end(broker, 2) == (ErrorCode.NONE, 2, 4)


def test_offset_for_leader_epoch_checks_current_leader_epoch(broker: ManualBroker) -> None:
    broker.node.state.replicas.partitions["t", 0].leader_epoch = 2
    assert epoch_end(broker, 0, current=1)[0] is ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_end(broker, 0, current=3)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(broker, 0, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
