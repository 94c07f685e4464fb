"""Operators take a broker out of a cluster: drain it, stop it, remove it; and put another one in its place."""

import json
from collections import Counter
from collections.abc import Iterator
from threading import Event, Thread

import pytest
from support.command import barnabas_here
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.app.clients.admin.draining import BrokerDrain
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestCluster

OFFSETS = "__consumer_offsets"


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    """A cluster of four brokers, whose internal topics have three replicas."""
    with TestCluster(brokers=4, offsets_topic_num_partitions=3, offsets_topic_replication_factor=3) as running:
        yield running


def _held_by(admin: Admin, broker: int) -> list[TopicPartition]:
    return [
        TopicPartition(str(topic.name), each.partition)
        for topic in admin.describe_topics()
        for each in topic.partitions
        if broker in each.replicas
    ]


def _commit(cluster: TestCluster, topic: str) -> None:
    """Let a group commit an offset, so that the internal topic of offsets exists."""
    with cluster.consumer(group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        assert consumer.poll(timeout=PATIENCE_S) is not None
        consumer.commit()


def test_drained_broker_has_nothing_and_leaves_for_good(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = cluster.create_topic("orders", partitions=6)
    cluster.produce(topic, [f"{number}" for number in range(60)])
    _commit(cluster, topic)
    b = ("--bootstrap", cluster.bootstrap)
    with cluster.admin() as admin:
        held = _held_by(admin, 2)
        assert {tp.topic for tp in held} == {topic, OFFSETS}
        dry = barnabas_here("brokers", "drain", "2", *b)
        assert f"broker 2 has {len(held)} partitions: {len(held)} replicas with".encode() in dry.stdout
        assert b"dry run, nothing is changed: add --execute to drain the broker" in dry.stderr
        assert _held_by(admin, 2) == held
        refused = barnabas_here("brokers", "remove", "2", *b, expect=1)
        assert b"broker 2 still has replicas of" in refused.stderr
        assert b"'barnabas brokers drain 2 --execute'" in refused.stderr

        done = barnabas_here("brokers", "decommission", "2", "--execute", *b)
        assert b"broker 2 has no replicas, and gets no new ones; stop it, then run" in done.stderr
        assert not _held_by(admin, 2)
        status = barnabas_here("cluster", "status", *b).stdout.decode().splitlines()
        assert [line.endswith("up, cordoned") for line in status[2:6]] == [False, True, False, False]
        assert {each.node_id for each in admin.describe_cluster().brokers} == {1, 2, 3, 4}
        load = Counter(broker for found in admin.describe_topics([topic]) for p in found.partitions for broker in p.isr)
        assert load == {1: 6, 3: 6, 4: 6}
        assert b"broker 2 is alive: stop it first" in barnabas_here("brokers", "remove", "2", *b, expect=1).stderr
        again = barnabas_here("brokers", "drain", "2", "--execute", "--json", *b)
        assert json.loads(again.stdout)["partitions"] == []

        for name in ("later", "latest"):  # each broker creates topics by its own image
            cluster.create_topic(name, partitions=5, replication_factor=3)
        assert not _held_by(admin, 2)
        with pytest.raises(ApiError, match=r"1 broker is cordoned \(cordoned.log.dirs\): \[2\]"):
            cluster.create_topic("widest", replication_factor=4)
        with pytest.raises(ApiError, match="cordoned") as refusal:
            admin.reassign_partitions({(topic, 0): [1, 2, 3]})
        assert refusal.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

        cluster.stop(2)
        assert barnabas_here("brokers", "remove", "2", *b).stdout == b"removed broker 2\n"
        absent = barnabas_here("brokers", "remove", "2", *b, expect=1)
        assert b"the cluster has no broker 2, or it was removed before" in absent.stderr
    for broker in (1, 3, 4):  # they have seen the registration of broker 2, and do not take the tree for an old one
        cluster.stop(broker)
        cluster.restart(broker)
    assert "restored from a backup" not in caplog.text
    assert len(cluster.produced(topic)) == 60


def test_mark_of_a_drained_broker_survives_restarts_of_all_brokers(cluster: TestCluster) -> None:
    with cluster.admin() as admin:
        admin.cordon_broker(2)
    for broker in (2, 1, 3, 4):
        cluster.stop(broker)
        cluster.restart(broker)
    wait_for(lambda: all(cluster.broker(each).image.is_cordoned(2) for each in cluster.running))
    topic = cluster.create_topic(partitions=8, replication_factor=2)
    assert all(2 not in cluster.replicas(topic, number) for number in range(8))
    with cluster.admin() as admin:
        drained = admin.describe_log_dirs([1, 2])
        assert [folder.is_cordoned for broker in (1, 2) for folder in drained[broker]] == [False, True]
        admin.cordon_broker(2, cordoned=False)
    wait_for(lambda: not any(cluster.broker(each).image.is_cordoned(2) for each in cluster.running))
    wide = cluster.create_topic(partitions=1, replication_factor=4)
    assert 2 in cluster.replicas(wide)


def test_broker_that_is_down_is_drained_and_replaced(cluster: TestCluster) -> None:
    topic = cluster.create_topic("orders", partitions=4)
    cluster.produce(topic, ["a", "b", "c"])
    cluster.kill(3)
    b = ("--bootstrap", ",".join(cluster.broker(each).bootstrap for each in cluster.running))
    for partition in range(4):
        cluster.wait_for_leader(topic, partition, other_than=3)
    wait_for(lambda: all(3 not in cluster.broker(each).image.brokers for each in cluster.running))
    with cluster.admin() as admin:
        assert b"broker 3, which is down, has" in barnabas_here("brokers", "drain", "3", *b).stdout
        barnabas_here("brokers", "drain", "3", "--execute", *b)
        assert not _held_by(admin, 3)
        admin.create_topic("fleeting", partitions=1)
        barnabas_here("brokers", "remove", "3", *b)
        wait_for(lambda: not cluster.broker(1).image.configs.get(3))
        admin.delete_topics([topic])
        wait_for(lambda: topic not in cluster.broker(1).image.deleting)
    cluster.restart(3)  # another machine with the same number: nothing hinders it
    wait_for(lambda: all(3 in cluster.broker(each).image.brokers for each in cluster.running))
    wide = cluster.create_topic(partitions=1, replication_factor=4)
    assert 3 in cluster.replicas(wide)


def test_drain_names_the_way_out_where_replicas_find_no_place() -> None:
    with TestCluster(brokers=3) as cluster:
        topic = cluster.create_topic("orders")
        b = ("--bootstrap", cluster.bootstrap)
        refused = barnabas_here("brokers", "drain", "3", "--execute", *b, expect=2)
        text = (
            b"orders-0 needs 3 replicas, but only 2 brokers remain; lower the replication factor with"
            b" --replication-factor 2, or add a broker"
        )
        assert text in refused.stderr
        with cluster.admin() as admin:
            assert not any(folder.is_cordoned for folder in admin.describe_log_dirs([3])[3])
        barnabas_here("brokers", "drain", "3", "--replication-factor", "2", "--execute", *b)
        assert sorted(cluster.replicas(topic)) == [1, 2]


def test_cancelled_drain_lets_the_broker_get_replicas_again(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=4)
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("brokers", "drain", "1", "--execute", "--no-wait", "--throttle", "1000", *b)
    stopped = barnabas_here("brokers", "drain", "1", "--cancel", *b)
    assert b"cancelled; broker 1 gets new replicas again" in stopped.stdout
    with cluster.admin() as admin:
        assert admin.list_reassignments() == []
        for kind, name in ((ResourceKind.BROKER, 1), (ResourceKind.TOPIC, topic)):
            throttled = [each for each in admin.describe_configs(kind, name) if "throttled" in each.name]
            assert all(each.source.name == "DEFAULT" for each in throttled)


def test_interrupted_drain_continues_by_the_same_command(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cluster.create_topic(partitions=2)
    cluster.produce(topic, [b"%d" % number * 1000 for number in range(200)], partition=0)
    cluster.produce(topic, [b"%d" % number * 1000 for number in range(200)], partition=1)
    b = ("--bootstrap", cluster.bootstrap)

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.app.cli.brokers.sleep", interrupt)
        stopped = barnabas_here("brokers", "drain", "1", "--execute", "--throttle", "1000", *b, expect=130)
    assert b"interrupted; the moves continue in the cluster: 'barnabas brokers drain 1 --execute'" in stopped.stderr
    with cluster.admin() as admin:
        assert {tp.topic for tp in _held_by(admin, 1)} == {topic}
        assert all(leader != 1 for leader in (cluster.leader(topic, 0), cluster.leader(topic, 1)))
        shown = barnabas_here("brokers", "drain", "1", *b).stdout.decode()
        assert "on their way off it: 0 replicas with 0B to copy" in shown
        done = barnabas_here("brokers", "drain", "1", "--execute", "--throttle", "100000000", *b)
        assert b"broker 1 has no replicas" in done.stderr
        assert not _held_by(admin, 1)
    assert len(cluster.produced(topic)) == 400


@pytest.mark.slow
def test_drain_under_kills_of_brokers_loses_nothing(cluster: TestCluster) -> None:
    topic = cluster.create_topic("orders", partitions=3)
    sent: list[bytes] = []
    failed: list[BarnabasError] = []
    over = Event()

    def write() -> None:
        with cluster.producer(acks="all", delivery_timeout_ms=60_000) as producer:
            while not over.is_set():
                value = b"%d" % (len(sent) + len(failed))
                try:
                    producer.send(topic, value).result(PATIENCE_S)
                    sent.append(value)
                except BarnabasError as error:
                    failed.append(error)

    writer = Thread(target=write)
    writer.start()
    try:
        wait_for(lambda: len(sent) > 20)
        with cluster.admin(default_api_timeout_ms=5000) as admin:
            drain = BrokerDrain(admin, 2)
            drain.start(drain.plan())
            for victim in (3, 2, 1):
                cluster.kill(victim)
                wait_for(lambda victim=victim: victim not in cluster.broker(4).image.brokers)  # type: ignore[misc]
                cluster.restart(victim)

            def is_drained() -> bool:
                try:
                    return drain.advance().is_done
                except BarnabasError:
                    return False

            wait_for(is_drained)
            drain.end()
        count = len(sent)
        wait_for(lambda: len(sent) > count + 20)
    finally:
        over.set()
        writer.join()
    cluster.stop(2)
    with cluster.admin() as admin:
        admin.unregister_broker(2)
    found = [message.value for message in cluster.produced(topic)]
    assert set(sent) <= set(found)
