"""The classic producer finds its brokers in the registries, with its threads, against scripted brokers."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from support.classic_fake import FakeClassicCluster
from support.waiting import wait_for

from barnabas import Message, Producer
from barnabas.adapters.coord_memory import MemoryTree
from barnabas.core.classic.registry.directory import NoBrokersForPartition
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.client.errors import EncodeError
from barnabas.core.client.producer.hashing import java_string_hash
from barnabas.core.client.producer.partitioner import Partitioner
from barnabas.ports.errors import BarnabasError


@pytest.fixture
def cluster_of() -> Iterator[Callable[..., FakeClassicCluster]]:
    made: list[FakeClassicCluster] = []

    def make(brokers: int, **topics: Sequence[int]) -> FakeClassicCluster:
        made.append(FakeClassicCluster(brokers, **topics))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()


def test_keys_choose_in_the_sorted_list_of_broker_partitions(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    cluster = cluster_of(2, t=(2, 1))
    keys = [b"key-%d" % n for n in range(20)]
    with cluster.producer() as producer:
        assert producer.places("t") == [BrokerPartition(0, 0), BrokerPartition(0, 1), BrokerPartition(1, 0)]
        assert producer.partitions("t") == 3
        for key in keys:
            producer.send("t", key, key)
        producer.send_many("t", [Message(b"m-" + key, key) for key in keys])
    wait_for(lambda: len(cluster.values()) == 40)
    order = [(0, 0), (0, 1), (1, 0)]
    for number, broker in enumerate(cluster.brokers):
        for each in broker.sets():
            for value in each.values:
                assert value is not None
                chosen = abs(java_string_hash(value.removeprefix(b"m-"))) % 3
                assert order[chosen] == (number, each.partition)


def test_without_keys_all_partitions_get_something(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    cluster = cluster_of(2, t=(2, 2))
    with cluster.producer(producer_type="async", queue_time=10) as producer:
        for n in range(200):
            producer.send("t", b"%d" % n)
    wait_for(lambda: len(cluster.values()) == 200)
    assert {(n, s.partition) for n, b in enumerate(cluster.brokers) for s in b.sets()} == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }


def test_a_partitioner_of_ones_own(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    class Last(Partitioner):
        def partition(
            self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
        ) -> int:
            return 99 if value == b"far" else partitions - 1

    cluster = cluster_of(2, t=(1, 3))
    with cluster.producer(partitioner=Last()) as producer:
        producer.send("t", b"v", b"k")
        with pytest.raises(EncodeError, match="chose 99"):
            producer.send("t", b"far")
        producer.send("t", b"there", partition=(0, 0))
    wait_for(lambda: [each.partition for each in cluster.brokers[1].sets()][:1] == [2])
    wait_for(lambda: cluster.brokers[0].values() == [b"there"])


@pytest.mark.parametrize("name", ["classic", "murmur2", "round_robin", "random", "kafka.producer.DefaultPartitioner"])
def test_partitioners_by_name(cluster_of: Callable[..., FakeClassicCluster], name: str) -> None:
    cluster = cluster_of(1, t=(3,))
    with cluster.producer(config={"partitioner.class": name}) as producer:
        for _ in range(30):
            producer.send("t", b"v")
    wait_for(lambda: len(cluster.values()) == 30)
    assert len({each.partition for each in cluster.brokers[0].sets()}) > 1


def test_an_unknown_topic_goes_to_partition_0_of_any_broker(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    cluster = cluster_of(2)
    with cluster.producer() as producer:
        for n in range(40):
            producer.send("new", b"%d" % n)
        wait_for(lambda: len(cluster.values()) == 40)
        assert {each.partition for b in cluster.brokers for each in b.sets()} == {0}
        assert all(b.sets() for b in cluster.brokers)
        cluster.topic("new", 1, 2)
        wait_for(lambda: producer.places("new") == [BrokerPartition(1, 0), BrokerPartition(1, 1)])


def test_without_any_broker_it_says_so(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    cluster = cluster_of(0)
    with cluster.producer() as producer, pytest.raises(NoBrokersForPartition, match="no live broker"):
        producer.send("t", b"1")


def test_brokers_are_lost_and_come_back(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    cluster = cluster_of(2, t=(1, 1))
    with cluster.producer(connect_timeout_ms=100) as producer:
        assert producer.partitions("t") == 2
        cluster.kill(0)
        wait_for(lambda: producer.places("t") == [BrokerPartition(1, 0)])
        for n in range(10):
            producer.send("t", b"%d" % n)
        wait_for(lambda: len(cluster.brokers[1].values()) == 10)
        cluster.brokers[0].start_again()
        cluster.sessions[0] = cluster.tree.session()
        cluster.register(0)
        cluster.topic("t", 0, 1)
        wait_for(lambda: producer.partitions("t") == 2)
        producer.send("t", b"back", partition=(0, 0))
        wait_for(lambda: cluster.brokers[0].values() == [b"back"])
    assert producer.failed == 0


def test_an_expired_session_costs_nothing(cluster_of: Callable[..., FakeClassicCluster]) -> None:
    cluster = cluster_of(2, t=(1, 0))
    made = cluster.tree.session()
    with Producer(coordination=lambda: made) as producer:
        producer.send("t", b"1")
        cluster.tree.disconnect(made)
        cluster.topic("t", 1, 1)
        producer.send("t", b"2")
        cluster.tree.expire(made)
        cluster.tree.reconnect(made)
        wait_for(lambda: producer.partitions("t") == 2)
    wait_for(lambda: len(cluster.values()) == 2)  # what is produced to a broker of 0.7 has no answer


def test_registries_that_cannot_be_reached() -> None:
    tree = MemoryTree()
    session = tree.session()
    tree.disconnect(session)
    with Producer(coordination=lambda: session) as producer, pytest.raises(BarnabasError, match="not connected"):
        producer.send("t", b"1")
