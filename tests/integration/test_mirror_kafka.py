"""`barnabas mirror --identical` from Apache Kafka: byte by byte the same, while both sides are killed."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.confluent import AdminClient, NewTopic
from support.kafka_server import KafkaServer
from support.process import BrokerProcess
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.app.mirror.identical import IdenticalMirror

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

MESSAGES = 3000
STOP_MAX_S = 30.0
"""On a machine that is ten times slower; measured in docs/moving.md."""


@pytest.fixture(params=[None, "2.8.2"], ids=["4.x", "2.8"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaServer]:
    from support.zookeeper_server import ZookeeperServer

    (tmp_path / "kafka").mkdir()
    zookeeper = None
    if request.param is not None:
        (tmp_path / "zookeeper").mkdir()
        zookeeper = ZookeeperServer(tmp_path / "zookeeper")
        zookeeper.start()
        zookeeper.wait_ready()
    try:
        server = KafkaServer(
            tmp_path / "kafka",
            release=request.param,
            zookeeper=None if zookeeper is None else f"127.0.0.1:{zookeeper.port}",
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


def produce(bootstrap: str, first: int, count: int) -> None:
    """Batches of several codecs, and transactions that end in both ways."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec})
        for number in range(first, first + count):
            producer.produce("t", b"%d" % number + os.urandom(50), key=b"%d" % number, partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
    transactions = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    transactions.init_transactions(PATIENCE_S)
    for end in (transactions.commit_transaction, transactions.abort_transaction):
        transactions.begin_transaction()
        transactions.produce("t", end.__name__.encode(), partition=0)
        end(PATIENCE_S)


def batches(folder: Path, number: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / f"t-{number}").glob("*.log")))


def test_logs_are_the_same_bytes_after_kills_of_both_sides(kafka: KafkaServer, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    wait_for(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 1, PATIENCE_S)
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(PATIENCE_S)
    data = tmp_path / "data"
    target = BrokerProcess(data)
    address = target.bootstrap
    source_config, target_config = {"bootstrap.servers": kafka.bootstrap}, {"bootstrap.servers": address}
    mirror = IdenticalMirror(source_config, target_config, topics="t")
    thread = threading.Thread(target=mirror.run)
    thread.start()
    try:
        produce(kafka.bootstrap, 0, MESSAGES // 5)
        target.kill()
        produce(kafka.bootstrap, MESSAGES, MESSAGES // 5)
        target = BrokerProcess(data, listen=[f"kafka://{address}"])
        kafka.kill()
        kafka.start()
        kafka.wait_ready()
        kafka.wait_for_topic("t")
        produce(kafka.bootstrap, 2 * MESSAGES, MESSAGES // 5)

        def are_equal() -> bool:
            """Kafka writes the markers of a transaction after it has answered."""
            at_kafka = [batches(tmp_path / "kafka" / "data", number) for number in range(2)]
            assert all(len(each) > MESSAGES for each in at_kafka)
            return [batches(data, number) for number in range(2)] == at_kafka

        wait_for(are_equal, PATIENCE_S, pause_s=0.2)
        mirror.stop()
        thread.join()
        began = time.monotonic()
        mirror.promote("t")
        assert time.monotonic() - began < STOP_MAX_S
        with Admin(address) as copies:
            (topic,) = copies.describe_topics(["t"])
            assert all(each.leader_epoch > 0 for each in topic.partitions)
        produce(address, 0, 10)
    finally:
        mirror.stop()
        thread.join()
        mirror.close()
        target.stop()
