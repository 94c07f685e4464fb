"""`barnabas import` from three brokers of Apache Kafka whose replicas differ, into three brokers of Barnabas."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from support.command import barnabas_here
from support.confluent import AdminClient, NewTopic
from support.etcd_server import EtcdServer
from support.kafka_server import KafkaServer, made_kafka_cluster, start_kafka_cluster
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.app.embedded_broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

BROKERS = (1, 2, 3)
PARTITIONS = 2
STEP = 500
Found = list[tuple[int, bytes | None]]


@pytest.fixture
def kafkas(tmp_path: Path) -> Iterator[list[KafkaServer]]:
    with made_kafka_cluster(tmp_path) as servers:
        start_kafka_cluster(servers)
        yield servers


def produce(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(first, first + STEP):
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def read(bootstrap: str, partition: int) -> Found:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", partition, 0)])
    found: Found = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append((message.offset() or 0, message.value()))
    consumer.close()
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_newest_replica_goes_to_all_brokers_after_kill_9(
    kafkas: list[KafkaServer], tmp_path: Path, etcd_server: EtcdServer
) -> None:
    first, second, third = kafkas
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 3)])["orders"].result(PATIENCE_S)
    produce(first.bootstrap, 0)
    for number, gone in enumerate((third, second), 1):
        gone.kill()
        produce(first.bootstrap, number * STEP)
    at_kafka = [read(first.bootstrap, number) for number in range(PARTITIONS)]
    assert sum(map(len, at_kafka)) == 3 * STEP
    first.kill()
    folders = [tmp_path / f"kafka-{number}" / "data" for number in BROKERS]
    before = [contents(folder) for folder in folders]
    where = f"etcd://127.0.0.1:{etcd_server.port}/{tmp_path.name}"
    targets = {number: tmp_path / f"data-{number}" for number in BROKERS}
    words = [word for number, path in targets.items() for word in ("--into", f"{number}={path}")]
    made = barnabas_here("import", *reversed(folders), *words, "--coordination", where, "--json")
    report: Any = json.loads(made.stdout)
    assert [contents(folder) for folder in folders] == before
    assert {topic["topic"]: topic["from"] for topic in report["topics"]}["orders"] == str(folders[0])
    for path in targets.values():
        assert json.loads(barnabas_here("log", "verify", "--json", path).stdout)["problems"] == []
    with ExitStack() as running:
        brokers = [
            running.enter_context(Broker(path, broker_id=number, coordination=where, listeners=["kafka://127.0.0.1:0"]))
            for number, path in targets.items()
        ]
        ours = running.enter_context(Admin(brokers[0].bootstrap))
        wait_for(
            lambda: all(len(each.isr) == len(BROKERS) for each in ours.describe_topics(["orders"])[0].partitions),
            PATIENCE_S,
        )
        assert [read(brokers[0].bootstrap, number) for number in range(PARTITIONS)] == at_kafka
        produce(brokers[1].bootstrap, 3 * STEP)
    start_kafka_cluster(kafkas)
    first.wait_for_topic("orders")
    assert [read(first.bootstrap, number) for number in range(PARTITIONS)] == at_kafka
