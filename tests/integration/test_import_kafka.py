"""`barnabas import` of folders that Apache Kafka has written, after an orderly stop and after kill -9."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from support.command import barnabas_here
from support.confluent import AdminClient, NewTopic
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S, wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas.app.embedded_broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

RELEASES = [None, "3.9.1", "2.8.2"]
"""None: the one of the other tests, 4.x. The last one has its metadata in ZooKeeper."""
MESSAGES = 4000
COMMITTED = 1000
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "segment.ms": "500"}
Found = list[tuple[int, bytes | None, bytes | None]]


@pytest.fixture(params=RELEASES, ids=["4.x", "3.9", "2.8"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaServer]:
    release: str | None = request.param
    zookeeper = None
    folder = tmp_path / "kafka"
    folder.mkdir()
    if release == "2.8.2":
        (tmp_path / "zookeeper").mkdir()
        zookeeper = ZookeeperServer(tmp_path / "zookeeper")
        zookeeper.start()
        zookeeper.wait_ready()
    try:
        server = KafkaServer(
            folder,
            release=release,
            zookeeper=None if zookeeper is None else f"127.0.0.1:{zookeeper.port}",
            more={"min.cleanable.dirty.ratio": "0.01", "log.cleaner.min.cleanable.ratio": "0.01"},
        )
        server.start()
        try:
            server.wait_ready()
            yield server
        finally:
            server.kill()
    finally:
        if zookeeper is not None:
            zookeeper.kill()


def fill(bootstrap: str) -> None:
    """Topics with transactions, compaction and a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("orders", 3, 1, config={"retention.ms": "-1"}), NewTopic("table", 1, 1, config=COMPACTED)]
    wait_for(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 1, PATIENCE_S)
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "gzip"})
    for number in range(MESSAGES):
        producer.produce("orders", b"%d" % number, partition=number % 3)
        producer.produce("table", os.urandom(300), key=b"%d" % (number % 20))
        if number % 500 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    transactions = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    transactions.init_transactions(PATIENCE_S)
    for end in (transactions.commit_transaction, transactions.abort_transaction):
        transactions.begin_transaction()
        transactions.produce("orders", end.__name__.encode(), partition=0)
        transactions.flush(PATIENCE_S)
        end(PATIENCE_S)
    consumer = reader(bootstrap)
    consumer.commit(offsets=[TopicPartition("orders", 1, COMMITTED)], asynchronous=False)
    consumer.close()


def reader(bootstrap: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "enable.auto.commit": False}
    )


def read(bootstrap: str, topic: str, partition: int) -> Found:
    """Return all committed messages, with their offsets."""
    consumer = reader(bootstrap)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: Found = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append((message.offset() or 0, message.key(), message.value()))
    consumer.close()
    return found


def read_all(bootstrap: str) -> dict[str, Found]:
    return {
        f"{topic}-{n}": read(bootstrap, topic, n) for topic, n in [*(("orders", n) for n in range(3)), ("table", 0)]
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill -9"])
def test_import_serves_what_kafka_served_and_kafka_starts_again(kafka: KafkaServer, tmp_path: Path, kill: bool) -> None:
    fill(kafka.bootstrap)
    data = tmp_path / "kafka" / "data"
    wait_for(lambda: len(list((data / "table-0").glob("*.log"))) > 1 or not kill, PATIENCE_S)
    at_kafka = read_all(kafka.bootstrap)
    if kill:
        kafka.kill()
    else:
        kafka.stop()
    before = contents(data)
    words = [] if kafka.zookeeper is None else ["--zookeeper", kafka.zookeeper]
    report: Any = json.loads(barnabas_here("import", data, "--into", tmp_path / "data", "--json", *words).stdout)
    settings = {topic["topic"]: topic["settings"] for topic in report["topics"]}
    assert settings["orders"] == "retention.ms=-1"
    assert contents(data) == before
    assert json.loads(barnabas_here("log", "verify", "--json", tmp_path / "data").stdout)["problems"] == []
    assert {topic["topic"] for topic in report["topics"]} >= {"orders", "table", "__consumer_offsets"}
    with Broker(tmp_path / "data") as broker:
        assert read_all(broker.bootstrap) == at_kafka
        consumer = reader(broker.bootstrap)
        (committed,) = consumer.committed([TopicPartition("orders", 1)], PATIENCE_S)
        assert committed.offset == COMMITTED
        consumer.close()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("orders", b"here", partition=0)
        producer.commit_transaction(PATIENCE_S)
        after = read(broker.bootstrap, "orders", 0)
        assert after[:-1] == at_kafka["orders-0"]
        assert after[-1][2] == b"here"
        del producer
    kafka.start()
    kafka.wait_ready()
    for name in ("orders", "table"):
        kafka.wait_for_topic(name)
    assert read_all(kafka.bootstrap) == at_kafka
