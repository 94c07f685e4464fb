"""A broker that is not the leader answers with the leader and its address."""

import pytest
from attrs import evolve

from barnabas.core.cluster.deltas import BrokersChanged, StatesChanged
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.fetch import CurrentLeader, Fetch, FetchPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import HERE, ManualBroker, produce

OTHER = BrokerRegistration(broker_id=2, endpoints=("kafka://other:9092",), rack="r2")


@pytest.fixture
def broker() -> ManualBroker:
    simulated = ManualBroker()
    simulated.create("t", 2)
    return simulated


def _lead(broker: ManualBroker, leader: int, epoch: int, *, alive: bool = True) -> None:
    """Change the leader of partition 0 in the image; the partition itself leads only if it is this broker."""
    state = broker.node.state
    own = state.image.brokers[state.node_id]
    state.registry.apply(BrokersChanged(brokers={1: own, 2: OTHER} if alive else {1: own}))
    topic = state.image.topic("t")
    now = evolve(state.image.state(TopicPartition("t", 0)), leader=leader, leader_epoch=epoch, partition_epoch=1)
    state.registry.apply(StatesChanged(topic="t", topic_id=topic.topic_id, states={0: now}, version=1))
    partition = state.replicas.partitions["t", 0]
    partition.leader, partition.leader_epoch = leader, epoch


def test_produce_to_non_leader_returns_current_leader_and_its_address(broker: ManualBroker) -> None:
    _lead(broker, 2, 5)
    result = broker.ask(produce("t", b"x"))
    (part,) = result.partitions
    assert (part.error, part.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, CurrentLeader(2, 5))
    assert result.nodes == [BrokerNode(node_id=2, host="other", port=9092, rack="r2")]


def test_fetch_from_non_leader_returns_current_leader_and_its_address(broker: ManualBroker) -> None:
    _lead(broker, 2, 5)
    asked = [FetchPartition("t", number, 0, 1000) for number in (1, 0)]
    result = broker.ask(Fetch(partitions=asked, allows_follower=False))
    here, there = result.partitions
    assert (here.error, here.current_leader) == (ErrorCode.NONE, None)
    assert (there.error, there.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, CurrentLeader(2, 5))
    assert [node.node_id for node in result.nodes] == [2]


def test_fetch_with_old_leader_epoch_returns_current_epoch(broker: ManualBroker) -> None:
    _lead(broker, 1, 5)
    asked = Fetch(partitions=[FetchPartition("t", 0, 0, 1000, current_leader_epoch=4)])
    result = broker.ask(asked)
    assert result.partitions[0].error is ErrorCode.FENCED_LEADER_EPOCH
    assert result.partitions[0].current_leader == CurrentLeader(1, 5)
    assert [node.node_id for node in result.nodes] == [1]


def test_produce_without_known_leader_returns_no_current_leader(broker: ManualBroker) -> None:
    _lead(broker, -1, 5)
    result = broker.ask(produce("t", b"x"))
    assert (result.partitions[0].current_leader, list(result.nodes)) == (None, [])
    _lead(broker, 1, 6)
    broker.node.state.replicas.partitions["t", 0].leader = -1
    result = broker.ask(produce("t", b"x"))
    assert result.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.partitions[0].current_leader, list(result.nodes)) == (None, [])


def test_a_leader_that_does_not_live_has_no_address(broker: ManualBroker) -> None:
    _lead(broker, 2, 5, alive=False)
    result = broker.ask(produce("t", b"x"), HERE)
    assert (result.partitions[0].current_leader, list(result.nodes)) == (CurrentLeader(2, 5), [])
