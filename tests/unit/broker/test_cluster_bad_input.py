"""Several brokers and what they should not believe: forged followers, a tree that other programs have written into."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import PATIENCE_S

from barnabas import Admin, Producer
from barnabas.core.cluster import layout
from barnabas.ports.broker_api.envelope import Caller, Request
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import World

KEY = TopicPartition("t", 0)


@pytest.fixture
def world() -> Iterator[World]:
    with World(5, brokers=3, min_insync_replicas=2) as made:
        with Admin(made.client()) as admin:
            admin.create_topic("t", partitions=1, replication_factor=3)
        made.run(1)
        yield made


def ask(world: World, broker_id: int, request: Request[Any]) -> Any:
    observed: list[Any] = []
    node = world.brokers[broker_id].node
    assert node is not None
    node.api.submit(request, Caller(host="10.0.0.9", listener=str(node.listeners[0])), observed.append)
    world.run_until(lambda: bool(observed))
    return observed[0]


def states_path(world: World) -> str:
    return layout.states_path(world.look.topics()["t"].topic_id)


def leader_of(world: World) -> int:
    node = next(broker.node for broker in world.brokers.values() if broker.node is not None)
    return node.state.image.state(KEY).leader


def fetch(world: World, *, replica_id: int, replica_epoch: int, offset: int = 0, leader_epoch: int = -1) -> ErrorCode:
    wanted = FetchPartition("t", 0, offset, 1000, current_leader_epoch=leader_epoch)
    request = Fetch(partitions=[wanted], max_wait_ms=0, replica_id=replica_id, replica_epoch=replica_epoch)
    result = ask(world, leader_of(world), request)
    if isinstance(result, ApiError):
        return result.code
    assert isinstance(result, FetchResult)
    return result.partitions[0].error if result.partitions else result.error


def test_a_follower_is_believed_in_its_registered_life_only(world: World) -> None:
    leader = leader_of(world)
    node = world.brokers[leader].node
    assert node is not None
    other = next(each for each in node.state.image.brokers.values() if each.broker_id != leader)
    assert fetch(world, replica_id=other.broker_id, replica_epoch=other.broker_epoch) is ErrorCode.NONE
    for epoch in (-1, other.broker_epoch - 1, other.broker_epoch + 1, 2**62):
        assert fetch(world, replica_id=other.broker_id, replica_epoch=epoch) is ErrorCode.STALE_BROKER_EPOCH
    for unknown_id in (0, 77, 2**31 - 1):
        assert fetch(world, replica_id=unknown_id, replica_epoch=1) is ErrorCode.REPLICA_NOT_AVAILABLE
    forged = fetch(world, replica_id=other.broker_id, replica_epoch=other.broker_epoch, leader_epoch=99)
    assert forged is ErrorCode.UNKNOWN_LEADER_EPOCH
    far = fetch(world, replica_id=other.broker_id, replica_epoch=other.broker_epoch, offset=10**9)
    assert far is ErrorCode.OFFSET_OUT_OF_RANGE
    partition = world.partition(leader, *KEY)
    assert partition is not None and partition.high_watermark == 0
    assert set(partition.isr) == {1, 2, 3}


@pytest.mark.parametrize(
    "garbage",
    [b"", b"junk", b"{}", b'{"version":1,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","states":{"0":[9,9,9,[[9,9]]]}}'],
)
def test_garbage_in_partition_states_does_not_change_leader(world: World, garbage: bytes) -> None:
    before = leader_of(world)
    world.tree.session().set(states_path(world), garbage)
    world.run(1)
    assert leader_of(world) == before
    with Producer(world.client()) as producer:
        assert producer.send("t", value=b"x").result(PATIENCE_S).offset == 0


def test_removed_partition_states_are_restored_at_next_change(world: World) -> None:
    world.tree.session().delete(states_path(world))
    world.run(1)
    before = leader_of(world)
    world.brokers[before].kill()
    world.run(10)
    assert leader_of(world) not in (before, -1)
    assert world.node(states_path(world)) is not None


def test_a_tree_that_is_half_deleted_is_served_on(world: World) -> None:
    with Producer(world.client()) as producer:
        producer.send("t", value=b"x").result(PATIENCE_S)
        session = world.tree.session()
        session.delete(states_path(world))
        session.delete(layout.topic_path("t"))
        session.delete(layout.CONTROLLER_EPOCH)
        world.run(2)
        assert producer.send("t", value=b"y").result(PATIENCE_S).offset == 1
    assert any("was removed by hand" in line for line in world.reports)
