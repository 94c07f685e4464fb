"""Messages without a timestamp from librdkafka: kept as long as their file is young, and no limit of time counts."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import Message as TheirMessage
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker

pytestmark = [pytest.mark.xdist_group("confluent")]

CHECK_MS = 100
HOUR = "3600000"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path, log_retention_check_interval_ms=CHECK_MS) as running:
        yield running


def produce(broker: Broker, topic: str, timestamp: int, *, codec: str = "none") -> list[KafkaError]:
    """Ten messages; the errors."""
    errors: list[KafkaError] = []

    def observed(error: KafkaError | None, _: TheirMessage) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "compression.type": codec})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=timestamp, on_delivery=observed)
    assert producer.flush(PATIENCE_S) == 0
    return errors


def start_of(consumer: Consumer, topic: str) -> int:
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    return int(low)


def _starts_at(consumer: Consumer, topic: str, offset: int) -> bool:
    return start_of(consumer, topic) == offset


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_retention_and_limits_leave_them_alone(broker: Broker, codec: str) -> None:
    with Admin(broker) as admin:
        limits = {f"message.timestamp.{side}.max.ms": HOUR for side in ("before", "after")}
        admin.create_topic("untimed", partitions=1, configs={"retention.ms": HOUR, **limits})
        admin.create_topic("old", partitions=1, configs={"retention.ms": HOUR})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        assert produce(broker, "untimed", -1, codec=codec) == []
        for passes in (1, 2):  # when the second lot has gone, a whole check lies between
            assert produce(broker, "old", 1000) == []
            wait_for(partial(_starts_at, consumer, "old", 10 * passes))
        assert start_of(consumer, "untimed") == 0
        (found,) = consumer.offsets_for_times([TopicPartition("untimed", 0, 1)], PATIENCE_S)
        assert found.offset == -1, "no message is so late: none has a time"
        consumer.assign([TopicPartition("untimed", 0, 0)])
        messages = consumer.consume(10, PATIENCE_S)
        assert [message.value() for message in messages] == [b"%d" % number for number in range(10)]
        assert {message.timestamp()[1] for message in messages} == {-1}
    finally:
        consumer.close()
