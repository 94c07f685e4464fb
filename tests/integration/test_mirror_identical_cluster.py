"""Identical mirrors between clusters of three brokers, while leaders move and brokers are killed on both sides."""

import threading

import pytest
from confluent_kafka import Producer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.app.mirror.identical import IdenticalMirror
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.testing import TestCluster

pytestmark = pytest.mark.slow

T = "t"


def records(cluster: TestCluster) -> bytes:
    """Return all batches of the partition below the high watermark, as its leader has them."""
    leader = cluster.wait_for_leader(T)
    found, offset = b"", 0
    while True:
        result = cluster.broker(leader).ask(Fetch(partitions=[FetchPartition(T, 0, offset, 1 << 24)], max_wait_ms=0))
        (partition,) = result.partitions
        data = bytes(partition.records.read() if hasattr(partition.records, "read") else partition.records)
        if not data:
            return found
        found += data
        size = 0
        while size < len(data):
            offset = (
                int.from_bytes(data[size : size + 8], "big") + int.from_bytes(data[size + 23 : size + 27], "big") + 1
            )
            size += 12 + int.from_bytes(data[size + 8 : size + 12], "big")


def produce(cluster: TestCluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(T, b"%d" % number)
        if number % 10 == 0:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def test_all_replicas_of_the_target_have_the_bytes_of_the_source() -> None:
    with TestCluster(brokers=3) as source, TestCluster(brokers=3) as target:
        with Admin(source.bootstrap) as admin:
            admin.create_topic(T, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
        mirror = IdenticalMirror(
            {"bootstrap.servers": source.bootstrap}, {"bootstrap.servers": target.bootstrap}, topics=T
        )
        thread = threading.Thread(target=mirror.run)
        thread.start()
        try:
            for turn in range(3):
                produce(source, 100 * turn, 50)
                source.kill(source.wait_for_leader(T))
                produce(source, 100 * turn + 50, 50)
                wait_for(lambda: T in mirror.copied.topics, PATIENCE_S)
                target.kill(target.wait_for_leader(T))
                for cluster in (source, target):
                    for broker_id in set(cluster.broker_ids) - set(cluster.running):
                        cluster.restart(broker_id)
                    cluster.wait_in_sync(T)
            at_source = records(source)
            assert source.leader_epoch(T) > 2
            wait_for(lambda: records(target) == at_source, PATIENCE_S)
            target.wait_in_sync(T)
            for broker_id in target.broker_ids:
                target.move_leader(T, 0, broker_id)
                wait_for(lambda: records(target) == at_source, PATIENCE_S)
        finally:
            mirror.stop()
            thread.join()
        mirror.promote(T)
        mirror.close()
        assert target.leader_epoch(T) > source.leader_epoch(T)
        produce(target, 1000, 10)
        assert records(target).startswith(at_source)
        for broker_id in target.broker_ids:
            target.move_leader(T, 0, broker_id)
            wait_for(lambda: len(records(target)) > len(at_source), PATIENCE_S)
