"""Quotas on sockets: the answers to real clients, how long they wait, and that their neighbours do not."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer
from support.api_connection import ApiConnection
from support.kafka_python import KafkaProducer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Producer, SimpleConsumer
from barnabas.app.embedded_broker import Broker
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.quotas import AlterClientQuotas, QuotaAlteration, QuotaOp
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.cluster import TestCluster

pytestmark = pytest.mark.xdist_group("quotas")

RATE = 200_000.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Yield a broker whose quotas have two windows of a second, so that delays are short."""
    with Broker(tmp_path, quota_window_num=2) as running:
        yield running


def limit(broker: Broker, client_id: str | None, **limits: float) -> None:
    ops = [QuotaOp(key=key, value=value) for key, value in limits.items()]
    with ApiConnection(broker.bootstrap) as connection:
        request = AlterClientQuotas(entries=[QuotaAlteration(entity={"client-id": client_id}, ops=ops)])
        assert connection.ask(request).entries[0].error is ErrorCode.NONE


def produce(connection: ApiConnection, size: int, client_id: str = "c1") -> Any:
    batch = encode_batch([Message(bytes(size))], now_ms=1000)
    return connection.ask(
        Produce(partitions=[ProducePartition("t", 0, memoryview(batch))], acks=1), 12, client_id=client_id
    )


def test_muted_connection_is_read_again_after_its_delay_and_neighbours_at_once(broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t")
    limit(broker, "c1", producer_byte_rate=20_000)
    with ApiConnection(broker.bootstrap) as connection, ApiConnection(broker.bootstrap) as other:
        began = time.monotonic()
        observed_ms = produce(connection, 26_000).throttle_ms
        assert 200 <= observed_ms <= 700
        assert produce(other, 26_000, "c2").throttle_ms == 0
        produce(connection, 10)
        assert time.monotonic() - began >= observed_ms / 1000.0


def test_confluent_producer_reports_its_delay(broker: Broker) -> None:
    limit(broker, "confluent", producer_byte_rate=RATE)
    delays: list[float] = []
    throttled = Event()

    def on_throttle(event: Any) -> None:
        delays.append(event.throttle_time)
        throttled.set()

    producer = ConfluentProducer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "confluent",
            "linger.ms": 0,
            "throttle_cb": on_throttle,
        }
    )
    until = time.monotonic() + PATIENCE_S
    while not throttled.is_set() and time.monotonic() < until:
        producer.produce("confluent", bytes(100_000))
        producer.poll(0.02)
    assert throttled.is_set()
    assert 0 < delays[0] < 30
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.slow
def test_kafka_python_producer_stays_within_its_rate(broker: Broker) -> None:
    limit(broker, "kafka-python", producer_byte_rate=RATE)
    began = time.monotonic()
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="kafka-python", acks=1)) as producer:
        for _ in range(8):
            producer.send("kp", bytes(100_000)).get(PATIENCE_S)
    seconds = time.monotonic() - began
    assert 800_000 / (seconds + 2) <= RATE * 1.01  # the first windows pass at once


def test_quota_that_one_broker_stores_applies_at_all_of_them() -> None:
    with TestCluster(brokers=2, quota_window_num=2) as cluster:
        first, second = cluster.bootstrap.split(",")
        with ApiConnection(first) as connection:
            ops = [QuotaOp(key="request_percentage", value=0.0001)]
            request = AlterClientQuotas(entries=[QuotaAlteration(entity={"client-id": "greedy"}, ops=ops)])
            assert connection.ask(request).entries[0].error is ErrorCode.NONE

        def is_throttled() -> bool:
            with ApiConnection(second) as connection:
                return bool(connection.ask(Metadata(topics=None), 9, client_id="greedy").throttle_ms > 0)

        wait_for(is_throttled)
        with ApiConnection(second) as connection:
            assert connection.ask(Metadata(topics=None), 9, client_id="modest").throttle_ms == 0


@pytest.mark.slow
def test_own_clients_lose_nothing_under_quotas_of_both_directions(broker: Broker) -> None:
    limit(broker, None, producer_byte_rate=RATE, consumer_byte_rate=RATE, request_percentage=50.0)
    values = [b"%05d" % number + bytes(50_000) for number in range(6)]
    with Producer(broker.bootstrap, linger_ms=0) as producer:
        for value in values:
            producer.send("own", value).result(PATIENCE_S)
    found = []
    with Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["own"])
        for message in consumer:
            found.append(message.value)
            if len(found) == len(values):
                break
    assert found == values
    with SimpleConsumer(broker.bootstrap) as simple:
        read: list[bytes | None] = []
        offset = 0
        while len(read) < len(values):
            fetched = simple.fetch("own", 0, offset)
            read += [message.value for message in fetched]
            offset = fetched.next_offset
    assert read == values
