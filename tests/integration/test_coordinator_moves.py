"""Groups of every client library whose coordinator moves: members continue, with one rebalance at most."""

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from support.long_tests import first_is_quick
from support.moving_members import GROUP, MovingMember
from support.waiting import wait_for

from barnabas.core.coordinator.table import partition_of
from barnabas.testing import TestCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

OFFSETS = "__consumer_offsets"
PARTITIONS = 4
PARTITION = partition_of(GROUP, PARTITIONS)

Disturb = Callable[[TestCluster, int], None]


def move(cluster: TestCluster, coordinator: int) -> None:
    cluster.move_leader(OFFSETS, PARTITION, next(each for each in cluster.broker_ids if each != coordinator))


def there_and_back(cluster: TestCluster, coordinator: int) -> None:
    move(cluster, coordinator)
    cluster.move_leader(OFFSETS, PARTITION, coordinator)


def expire(cluster: TestCluster, coordinator: int) -> None:
    cluster.expire_session(coordinator)
    cluster.wait_for_leader(OFFSETS, PARTITION, other_than=coordinator)


EVENTS: dict[str, Disturb] = {
    "moved": move,
    "moved there and back": there_and_back,
    "stopped": lambda cluster, coordinator: cluster.stop(coordinator),
    "killed": lambda cluster, coordinator: cluster.kill(coordinator),
    "expired": expire,
}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(
        brokers=3,
        offsets_topic_num_partitions=PARTITIONS,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=100,
    ) as running:
        yield running
    gc.collect()  # kafka-python leaves sockets to the garbage collector


def values(first: int, count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, first + count)]


@pytest.mark.parametrize(
    ("client", "event"),
    [
        *first_is_quick([("ours", event) for event in EVENTS], 2),
        *first_is_quick([("ours-consumer", event) for event in EVENTS]),
        *first_is_quick([("librdkafka-consumer", event) for event in ("moved", "killed")]),
        *first_is_quick(
            ((client, event) for client in ("aiokafka", "librdkafka", "kafka-python") for event in ("moved", "killed")),
        ),
    ],
)
def test_group_members_continue_after_coordinator_moves_or_dies(cluster: TestCluster, client: str, event: str) -> None:
    topic = cluster.create_topic(partitions=2)
    cluster.wait_in_sync(topic)
    members: list[MovingMember] = []
    try:
        for assignments in (1, 3):  # the second one comes with a rebalance
            members.append(MovingMember(client, cluster.bootstrap, topic))
            wait_for(partial(have_assignments, members, assignments))
        send(cluster, topic, values(0, 20))
        comes_to("read", 20, lambda: len(set(read(members))))
        cluster.wait_in_sync(OFFSETS)
        coordinator = cluster.leader(OFFSETS, PARTITION)
        assert coordinator is not None
        before = [each.assignments for each in members]
        EVENTS[event](cluster, coordinator)
        send(cluster, topic, values(20, 20))
        comes_to("read", 40, lambda: len(set(read(members))))
        comes_to("committed", 40, lambda: committed(cluster))
        rebalances = max(each.assignments - known for each, known in zip(members, before, strict=True))
        assert rebalances <= (0 if client.startswith("ours") else 1)
        if rebalances:  # on a slow machine: what was not committed before it is read again
            assert sorted(set(read(members))) == values(0, 40)
        else:
            assert sorted(read(members)) == values(0, 40), "nothing twice: the positions did not go back"
    finally:
        for member in members:
            member.stop()
    assert committed(cluster) == 40


def comes_to(what: str, wanted: int, found: Callable[[], int]) -> None:
    """Some of these libraries take their time when a machine is busy."""
    try:
        wait_for(lambda: found() == wanted)
    except TimeoutError:
        assert found() == wanted, what


def have_assignments(members: list[MovingMember], count: int) -> bool:
    return sum(each.assignments for each in members) >= count


def send(cluster: TestCluster, topic: str, messages: list[bytes]) -> None:
    for partition in (0, 1):
        cluster.produce(topic, messages[partition::2], partition=partition)


def read(members: list[MovingMember]) -> list[bytes]:
    return [value for member in members for value in member.values]


def committed(cluster: TestCluster) -> int:
    with cluster.admin() as admin:
        positions: dict[Any, Any] = admin.group_offsets(GROUP)
    return sum(position.offset for position in positions.values())


def test_offsets_topic_spreads_to_brokers_that_join_cluster() -> None:
    """Brokers start one by one: the first one that comes must not keep the groups alone for ever."""
    with closing(TestCluster(brokers=3, offsets_topic_num_partitions=PARTITIONS)) as cluster:
        cluster.start(1)
        topic = cluster.create_topic(replication_factor=1)
        with cluster.consumer(group_id=GROUP) as consumer:
            consumer.assign(topic, position=0)
            consumer.commit({(topic, 0): 0})
        assert cluster.replicas(OFFSETS, PARTITION) == [1]
        cluster.start()
        wait_for(lambda: all(sorted(cluster.replicas(OFFSETS, number)) == [1, 2, 3] for number in range(PARTITIONS)))
        cluster.wait_in_sync(OFFSETS)
        assert cluster.leader(OFFSETS, PARTITION) == 1, "no other leader is elected for that"
        cluster.kill(1)
        with cluster.admin() as admin:
            assert [position.offset for position in admin.group_offsets(GROUP).values()] == [0]


def test_a_group_whose_partition_has_no_leader_is_looked_for_until_it_has_one(cluster: TestCluster) -> None:
    with cluster.admin() as admin:
        assert admin.coordinator(GROUP).node_id == cluster.leader(OFFSETS, PARTITION)
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
        cluster.start()
        assert admin.coordinator(GROUP).node_id == cluster.leader(OFFSETS, PARTITION)
