"""`barnabas log verify` on what Apache Kafka itself writes: compacted, transactional, while it runs and afterwards."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.command import barnabas_here
from support.confluent import AdminClient, NewTopic
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

MESSAGES = 6000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def verify(data: Path) -> Any:
    return json.loads(barnabas_here("log", "verify", "--json", data).stdout)


def test_nothing_of_it_is_taken_for_damage(server: KafkaServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    compact = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    for made in admin.create_topics([NewTopic("c", 1, 1, config={**compact, "segment.ms": "1000"})]).values():
        made.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for number in range(MESSAGES):
        producer.produce("c", os.urandom(500), key=b"%d" % (number % 40))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "some"})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        producer.produce("c", b"value", key=b"t%d" % number)
        producer.flush(PATIENCE_S)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(30)
    wait_for(lambda: any((data / "c-0").glob("*.txnindex")))
    running = verify(data)
    assert running["in_use"]
    assert running["problems"] == []
    del producer, admin
    server.stop()
    stopped = verify(data)
    assert (stopped["in_use"], stopped["problems"]) == (False, [])
    assert stopped["messages"] > 0
