"""`TestCluster`: its brokers die, stop, stand still and are cut off, and the cluster continues."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest
from support.waiting import PATIENCE_S, wait_for

from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ClosedError, ConfigError
from barnabas.testing import COORDINATION, TestCluster, assert_produced


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


def _others(cluster: TestCluster, broker_id: int) -> list[int]:
    return [each for each in cluster.broker_ids if each != broker_id]


def _quick(cluster: TestCluster, **settings: object) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "enable.idempotence": True,
            **settings,
        }
    )


# --- life


def test_test_cluster_runs_three_brokers_with_replicated_topic(cluster: TestCluster) -> None:
    assert cluster.broker_ids == cluster.running == [1, 2, 3]
    assert len(set(cluster.bootstrap.split(","))) == 3
    assert cluster.controller in (1, 2, 3)
    topic = cluster.create_topic(partitions=3)
    assert {cluster.leader(topic, number) for number in range(3)} == {1, 2, 3}
    assert cluster.in_sync(topic) == sorted(cluster.replicas(topic)) == [1, 2, 3]
    cluster.produce(topic, ["a", ("key", {"id": 1})], partition=2)
    assert [message.value for message in cluster.produced(topic)] == [b"a", b'{"id": 1}']
    cluster.assert_produced(topic, ["a", {"id": 1}], partition=2)
    assert_produced(topic, count=2, broker=cluster)
    with cluster.admin() as admin:
        assert {broker.node_id for broker in admin.describe_cluster().brokers} == {1, 2, 3}
    cluster.delete_topic(topic)
    with pytest.raises(ConfigError, match="no partition"):
        cluster.leader(topic)


def test_test_cluster_with_one_broker_recovers_after_kill() -> None:
    """Nothing to copy, but the same life."""
    with TestCluster(brokers=1) as cluster:
        topic = cluster.create_topic()
        cluster.produce(topic, ["a"])
        cluster.kill(1)
        assert cluster.running == []
        cluster.start()
        assert cluster.wait_for_leader(topic) == 1
        cluster.assert_produced(topic, ["a"])


def test_test_cluster_accepts_settings_and_rejects_wrong_ones() -> None:
    with TestCluster(2, {"num.partitions": 2}, per_broker={2: {"broker.rack": "b"}}, min_insync_replicas=2) as cluster:
        assert cluster.broker(1).config.min_insync_replicas == cluster.broker(2).config.num_partitions == 2
        assert (cluster.broker(1).config.broker_rack, cluster.broker(2).config.broker_rack) == (None, "b")
        assert len(cluster.replicas(cluster.create_topic())) == 2
        assert len(cluster.replicas(cluster.create_topic(replication_factor=1))) == 1
    with pytest.raises(ClosedError):
        cluster.produced("t")
    with pytest.raises(ConfigError, match="brokers=0"):
        TestCluster(0)
    with pytest.raises(ConfigError, match="broker 4; the ids are 1 to 3"):
        TestCluster(3, per_broker={4: {}})
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        TestCluster(3, {"num.partition": 3})
    with pytest.raises(ConfigError, match="no broker 9"):
        cluster.kill(9)


def test_a_leader_dies(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    producer = _quick(cluster)
    cluster.wait_in_sync(topic)
    first = cluster.leader(topic)
    assert first is not None
    delivered: list[bytes] = []

    def observed(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        delivered.append(message.value() or b"")

    for number in range(100):
        producer.produce(topic, f"{number}", on_delivery=observed)
        if number == 50:
            wait_for(lambda: producer.poll(0) is not None and len(delivered) > 0)
            cluster.kill(first)
    assert producer.flush(PATIENCE_S) == 0
    assert len(delivered) == 100
    assert cluster.wait_for_leader(topic, other_than=first) != first
    assert cluster.running == _others(cluster, first)
    cluster.assert_produced(topic, [f"{number}" for number in range(100)])
    cluster.restart(first)
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, [f"{number}" for number in range(100)])


def test_an_orderly_restart_of_each_is_no_failure_for_a_client(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=3)
    with cluster.producer() as producer:
        for broker_id in cluster.broker_ids:
            cluster.restart(broker_id)
            cluster.wait_in_sync(topic)
            for partition in range(3):
                producer.send(topic, b"%d" % broker_id, partition=partition).result(PATIENCE_S)
    cluster.assert_produced(topic, [f"{each}" for each in cluster.broker_ids] * 3)


def test_the_whole_cluster_dies(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=3)
    cluster.produce(topic, [f"{number}" for number in range(30)])
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    cluster.start()
    for partition in range(3):
        cluster.wait_for_leader(topic, partition)
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, [f"{number}" for number in range(30)])


# --- faults


def test_leader_keeps_its_lease_while_the_machine_stands_still(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.leader(topic)
    assert leader is not None
    cluster._tree.close()  # no thread of this process gets a turn, as on a machine with too much to do
    cluster.pause(leader)
    question = OffsetForLeaderPartition(topic=topic, partition=0, current_leader_epoch=0, leader_epoch=0)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster.broker(leader).ask, OffsetForLeaderEpoch(partitions=[question]))
        time.sleep(2 * cluster.broker(leader).config.zookeeper_session_timeout_ms / 1000)
        cluster.resume(leader)
        assert asked.result().partitions[0].error is ErrorCode.NONE
    cluster._tree.start()
    assert cluster.leader(topic) == leader


def test_broker_whose_thread_gets_no_turn_keeps_its_session(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.leader(topic)
    assert leader is not None
    broker = cluster.broker(leader)
    busy_s = 3 * broker.config.zookeeper_session_timeout_ms / 1000
    broker.inner.scheduler.call_soon(lambda: time.sleep(busy_s))
    broker.ask(Metadata(topics=[topic]))
    assert (cluster.leader(topic), cluster.leader_epoch(topic)) == (leader, 0)


def test_follower_stays_in_sync_while_the_machine_stands_still(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.leader(topic)
    assert leader is not None
    other = _others(cluster, leader)[0]
    cluster._tree.close()
    cluster.partition(leader, other)
    with cluster.producer(acks="all") as producer:
        sent = producer.send(topic, b"x")
        time.sleep(2 * cluster.broker(leader).config.replica_lag_time_max_ms / 1000)
        assert other in cluster.in_sync(topic)
        assert not sent.done
        cluster._tree.start()
        sent.result(PATIENCE_S)
    assert other not in cluster.in_sync(topic)


def test_a_paused_leader_is_replaced_and_comes_back_as_a_follower(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    first = cluster.leader(topic)
    assert first is not None
    cluster.pause(first)
    assert cluster.broker(first).paused
    second = cluster.wait_for_leader(topic, other_than=first)
    cluster.produce(topic, ["a"])
    cluster.resume(first)
    cluster.wait_in_sync(topic)
    assert cluster.leader(topic) == second
    cluster.pause(first)
    cluster.kill(first)  # a paused one dies as any other
    cluster.start(first)
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, ["a"])


def test_two_brokers_that_are_cut_off_from_each_other(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.leader(topic)
    assert leader is not None
    follower = _others(cluster, leader)[0]
    cluster.partition(leader, follower)
    cluster.produce(topic, ["a"])  # once the follower has left the ISR
    assert follower not in cluster.in_sync(topic)
    assert cluster.leader(topic) == leader
    cluster.heal()
    cluster.wait_in_sync(topic)


def test_next_leader_is_waited_for_while_the_last_one_is_cut_off_from_the_coordination(cluster: TestCluster) -> None:
    """It cannot know who leads."""
    topic = cluster.create_topic()
    old = cluster.wait_for_leader(topic)
    cluster.partition(old, "coordination")
    new = cluster.wait_for_leader(topic, other_than=old)
    assert new == cluster.leader(topic) != old
    with pytest.raises(TimeoutError, match=rf"no leader for {topic}-0 other than {new} \(leader: {new}\)"):
        cluster.wait_for_leader(topic, other_than=new, timeout=0.01)
    cluster.heal()
    cluster.wait_in_sync(topic)


def test_a_leader_that_is_cut_off_from_the_coordination(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    first = cluster.leader(topic)
    assert first is not None
    cluster.partition(first, COORDINATION)
    wait_for(lambda: cluster.leader(topic) not in (None, first))
    cluster.produce(topic, ["a"])
    cluster.heal()
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, ["a"])


def test_a_session_expires(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    first = cluster.leader(topic)
    assert first is not None
    cluster.expire_session(first)
    cluster.produce(topic, ["a"])
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, ["a"])
    assert cluster.running == [1, 2, 3]


def test_leaders_are_moved(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=2)
    cluster.wait_in_sync(topic)
    for to in (*cluster.broker_ids, 3):
        cluster.move_leader(topic, 1, to)
        assert cluster.leader(topic, 1) == to
        cluster.produce(topic, [f"{to}"], partition=1)
    cluster.assert_produced(topic, ["1", "2", "3", "3"], partition=1)
    victim = cluster.replicas(topic, 0)[-1]
    cluster.move_leader(topic, 0, _others(cluster, victim)[0])
    cluster.kill(victim)
    cluster.wait_until(lambda: victim not in cluster.in_sync(topic, 0), "it is still in sync")
    with pytest.raises(ConfigError, match=f"broker {victim} cannot lead"):
        cluster.move_leader(topic, 0, victim)


def test_faults_of_one_broker(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    leader = cluster.leader(topic)
    assert leader is not None
    with cluster.broker(leader).faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        cluster.produce(topic, ["a"])
    assert fault.hits == 2


def test_without_enough_replicas_in_sync(cluster: TestCluster) -> None:
    topic = cluster.create_topic(configs={"min.insync.replicas": 2})
    cluster.wait_in_sync(topic)
    leader = cluster.leader(topic)
    assert leader is not None
    cluster.produce(topic, ["a"])
    for other in _others(cluster, leader):
        cluster.kill(other)
    cluster.wait_until(lambda: cluster.in_sync(topic) == [leader], "the others are still in sync")
    with (
        cluster.producer(delivery_timeout_ms=500, request_timeout_ms=400) as producer,
        pytest.raises(ApiError) as raised,
    ):
        producer.send(topic, b"b").result(PATIENCE_S)
    assert raised.value.code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
    cluster.start()
    cluster.wait_in_sync(topic)
    cluster.produce(topic, ["c"])


def test_power_cut_loses_unflushed_bytes(cluster: TestCluster) -> None:
    """With two more in sync it is copied back; none of them may lead without it."""
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    cluster.produce(topic, [f"{number}" for number in range(10)])
    leader = cluster.leader(topic)
    assert leader is not None
    cluster.kill(leader, power_cut=True)
    cluster.start(leader)
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, [f"{number}" for number in range(10)])
