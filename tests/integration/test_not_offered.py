"""What is not there says so at once: each client's own words, within a moment instead of a timeout."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from support.kafka_python import KafkaProducer, kafka_errors
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker

pytestmark = [pytest.mark.xdist_group("confluent")]

SOON_S = PATIENCE_S / 4
"""Far below every client's timeout, and far above what it takes."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", offsets_topic_num_partitions=1) as running:
        with Admin(running) as admin:
            admin.create_topic("t", partitions=1)
        yield running


def seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def test_transactions_with_librdkafka(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "orders", "log_level": 0})

    def begin() -> None:
        with pytest.raises(KafkaException, match="does not support transactions; produce without") as refused:
            producer.init_transactions(PATIENCE_S)
        assert refused.value.args[0].fatal()

    assert seconds(begin) < SOON_S


def test_transactions_with_kafka_python(broker: Broker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id="orders", max_block_ms=PATIENCE_S * 1000
    )

    def begin() -> None:
        with pytest.raises(kafka_errors.KafkaError, match="ClusterAuthorizationFailed"):
            producer.init_transactions()

    try:
        assert seconds(begin) < SOON_S
    finally:
        producer.close(timeout=1)


def test_transactions_with_aiokafka(broker: Broker) -> None:
    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="orders")
        try:
            with pytest.raises(AioKafkaError, match="ClusterAuthorizationFailed"):
                await asyncio.wait_for(producer.start(), SOON_S)
        finally:
            await producer.stop()

    asyncio.run(begin())


def test_the_new_group_protocol_with_librdkafka(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "modern",
            "group.id": "g",
            "group.protocol": "consumer",
            "log_level": 0,
        }
    )
    told: list[KafkaError] = []

    def is_fatal() -> bool:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None and error.code() == KafkaError._FATAL:
            told.append(error)
        return bool(told)

    try:
        consumer.subscribe(["t"])
        assert seconds(lambda: wait_for(is_fatal)) < SOON_S
    finally:
        consumer.close()
    assert "API version not supported" in told[0].str()
    lines = [line for line in caplog.messages if "client 'modern' asks for ConsumerGroupHeartbeat" in line]
    assert len(lines) == 1


@pytest.mark.parametrize("version", [(0, 9), (0, 10, 0)])
def test_a_producer_of_the_old_message_format(broker: Broker, version: tuple[int, ...]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, api_version=version)

    def send() -> None:
        with pytest.raises(kafka_errors.UnsupportedVersionError):
            producer.send("t", b"x").get(PATIENCE_S)

    try:
        assert seconds(send) < SOON_S
    finally:
        producer.close(timeout=1)
