"""Our clients on a cluster whose brokers die, hang and come back: user code does nothing about it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from support.columns import plain
from support.waiting import PATIENCE_S, wait_for

from barnabas import Consumer, SimpleConsumer
from barnabas.app.mirror import MirrorMaker
from barnabas.pipeline.topics.connect import connect_cluster
from barnabas.pipeline.topics.model import ClusterPartition, Where
from barnabas.ports.broker_api.offsets import LATEST
from barnabas.testing import TestCluster

DURABLE_CONFIGS: dict[str, str] = {"min.insync.replicas": "2"}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


def leader(cluster: TestCluster, topic: str) -> int:
    found = cluster.leader(topic)
    assert found is not None
    return found


@contextmanager
def sending(cluster: TestCluster, topic: str, **settings: Any) -> Iterator[list[bytes]]:
    """A producer that sends all the time, each message once the one before is there; what it sent, in order."""
    sent: list[bytes] = []
    over = threading.Event()
    failures: list[BaseException] = []

    def send() -> None:
        try:
            with cluster.producer(linger_ms=0, **settings) as producer:
                while not over.is_set():
                    value = b"%06d" % len(sent)
                    producer.send(topic, value, partition=0).result(PATIENCE_S)
                    sent.append(value)
        except BaseException as error:  # noqa: BLE001  # raised below
            failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def keep_sending(sent: list[bytes]) -> None:
    before = len(sent)
    wait_for(lambda: len(sent) > before + 5)


def test_an_idempotent_producer_brings_each_message_once_and_in_order(cluster: TestCluster) -> None:
    topic = cluster.create_topic(configs=DURABLE_CONFIGS)
    cluster.wait_in_sync(topic)
    with sending(cluster, topic) as sent:
        for disturb in (cluster.kill, cluster.stop, cluster.expire_session):
            keep_sending(sent)
            first = leader(cluster, topic)
            disturb(first)
            cluster.wait_for_leader(topic, other_than=first)
            keep_sending(sent)
            cluster.start(first)
            cluster.wait_in_sync(topic)
    assert [message.value for message in cluster.produced(topic)] == sent


def test_a_leader_that_hangs_is_left(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.app.clients.shared.client_shell.LATE_MS", 100)
    topic = cluster.create_topic(configs=DURABLE_CONFIGS)
    cluster.wait_in_sync(topic)
    with sending(cluster, topic) as sent, cluster.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign(topic)
        keep_sending(sent)
        assert consumer.poll(PATIENCE_S) is not None
        first = leader(cluster, topic)
        cluster.pause(first)
        cluster.wait_for_leader(topic, other_than=first)
        keep_sending(sent)
        read_up_to(consumer, sent)
        cluster.resume(first)
        cluster.wait_in_sync(topic)
        keep_sending(sent)
    assert [message.value for message in cluster.produced(topic)] == sent


def read_up_to(consumer: Consumer, sent: list[bytes]) -> None:
    """Read until what was sent last comes."""
    last, found = sent[-1], [b""]

    def read() -> bool:
        found[-1:] = [message.value or b"" for message in consumer.poll_many(timeout=0.1)] or found[-1:]
        return found[-1] >= last

    wait_for(read)


def test_admin_continues_after_controller_is_killed(cluster: TestCluster) -> None:
    with cluster.admin() as admin:
        admin.create_topic("before", partitions=1)
        controller = cluster.controller
        assert controller is not None
        cluster.kill(controller)
        admin.create_topic("while", partitions=1, replication_factor=2)
        admin.alter_topic_configs("while", {"retention.ms": "1000"})
        wait_for(lambda: {"before", "while"} <= set(admin.list_topics()))
        assert isinstance(admin.list_groups(), list)
        admin.delete_topics(["before"])
        wait_for(lambda: "before" not in admin.list_topics())
        assert admin.describe_cluster().controller_id != controller


def test_a_simple_consumer_reads_a_range_over_a_death(cluster: TestCluster) -> None:
    topic = cluster.create_topic(configs=DURABLE_CONFIGS)
    cluster.wait_in_sync(topic)
    values = [b"%04d" % number for number in range(50)]
    for value in values:
        cluster.produce(topic, [value])
    with SimpleConsumer(cluster.bootstrap) as consumer:
        read: list[bytes] = []
        for piece in consumer.read(topic, 0, 0, 50, max_bytes=1):
            read += [message.value or b"" for message in piece]
            if len(read) == 10:
                cluster.kill(leader(cluster, topic))
    assert read == values


def test_the_pipeline_reads_on(cluster: TestCluster) -> None:
    topic = cluster.create_topic(configs=DURABLE_CONFIGS)
    cluster.wait_in_sync(topic)
    place, values = ClusterPartition(topic, 0), [b"%04d" % number for number in range(30)]
    for value in values:
        cluster.produce(topic, [value])
    source = connect_cluster(Where(bootstrap=cluster.bootstrap), {"max.partition.fetch.bytes": "1"})
    read: list[Any] = []
    for columns in source.read(place, 0, 30):
        read += plain(columns.values)
        if len(read) == 10:
            cluster.kill(leader(cluster, topic))
            assert source.offsets([place], LATEST)[place] == 30
    source.close()
    assert read == values


def has_copied(mirror: MirrorMaker, count: int) -> bool:
    return mirror.copied >= count


def test_a_mirror_copies_on_while_leaders_die_on_both_sides(cluster: TestCluster) -> None:
    topic = cluster.create_topic("views", configs=DURABLE_CONFIGS)
    cluster.wait_in_sync(topic)
    with TestCluster(brokers=3) as target, cluster.producer() as producer:
        target.create_topic("views", configs=DURABLE_CONFIGS)
        target.wait_in_sync("views")
        source = {"bootstrap.servers": cluster.bootstrap, "group.id": "mirror"}
        config = {"bootstrap.servers": target.bootstrap}
        with MirrorMaker([source], config, whitelist="views", commit_interval_ms=50) as mirror:
            for first, dies in ((0, cluster), (100, target), (200, None)):
                producer.send_many("views", [b"%d" % each for each in range(first, first + 100)]).result(PATIENCE_S)
                wait_for(partial(has_copied, mirror, first + 100))
                if dies is not None:
                    dies.kill(leader(dies, "views"))
        found = [int(message.value or b"") for message in target.produced("views")]
    assert list(dict.fromkeys(found)) == list(range(300)), "in order, and repeated at most"
