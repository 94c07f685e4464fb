"""A record that breaks a rule of its topic is answered at once, by name; the rest of the request is not its matter."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as TheirMessage
from support.api_connection import ApiConnection
from support.raw import frame
from support.raw_groups import wait_for_groups
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Message, SimpleConsumer
from barnabas import Producer as OurProducer
from barnabas.core.message.batch_writer import assemble_batch, encode_batch
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

pytestmark = [pytest.mark.xdist_group("confluent")]

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        storage="memory", coordination="memory", offsets_topic_num_partitions=1, log_retention_ms=-1
    ) as running:
        with Admin(running) as admin:
            admin.create_topic("checked", partitions=4, configs={"record.validation": "true"})
            limit = {"record.validation": "true", "message.timestamp.before.max.ms": str(HOUR_MS)}
            admin.create_topic("timely", partitions=3, configs=limit)
        yield running


def good() -> memoryview:
    return memoryview(encode_batch([Message(b"good")], now_ms=NOW_MS))


def misnumbered() -> memoryview:
    """Two records that both say that they are the second."""
    return memoryview(
        assemble_batch(
            bytes.fromhex("0e000002 01 02 76 00") * 2,
            count=2,
            codec=None,
            base_offset=0,
            last_offset_delta=1,
            attributes=0,
            base_timestamp=NOW_MS,
            max_timestamp=NOW_MS,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
    )


@pytest.mark.parametrize("version", range(3, 12))
def test_the_record_is_named_and_the_other_partitions_are_answered(broker: Broker, version: int) -> None:
    entries = [
        ProducePartition("checked", 0, good()),
        ProducePartition("checked", 1, misnumbered()),
        ProducePartition("checked", 2, good()),
    ]
    with ApiConnection(broker.bootstrap) as connection:
        first, refused, last = connection.ask(Produce(partitions=entries, acks=-1), version).partitions
        assert connection.exchange(frame(18, 0, b"")), "the connection stays open"
    assert (first.error, refused.error, last.error) == (ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE)
    assert last.base_offset == first.base_offset >= 0
    if version >= 8:
        assert [(each.index, "offset delta" in each.message) for each in refused.record_errors] == [(0, True)]
        assert "record 0: offset delta 1" in refused.error_message


def test_no_name_that_a_client_claims_opens_an_internal_topic(broker: Broker) -> None:
    """Not even the one that Kafka lets write into it."""
    wait_for_groups(broker.bootstrap)
    keyed = memoryview(encode_batch([Message(b"a", b"key")], now_ms=NOW_MS))
    entries = [ProducePartition("__consumer_offsets", 0, keyed), ProducePartition("checked", 3, good())]
    with ApiConnection(broker.bootstrap) as connection:
        refused, other = connection.ask(Produce(partitions=entries, acks=-1), client_id="__admin_client").partitions
    assert (refused.error, other.error) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE)
    assert "clients do not write into it" in refused.error_message


def test_librdkafka_gets_invalid_timestamp_without_retries(broker: Broker) -> None:
    delivered: list[tuple[KafkaError | None, bytes | None]] = []

    def observed(error: KafkaError | None, message: TheirMessage) -> None:
        delivered.append((error, message.value()))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 200})
    now_ms = int(time.time() * 1000)
    for value, timestamp in ((b"now", now_ms), (b"long ago", 1000), (b"now, too", now_ms)):
        producer.produce("timely", value, partition=0, timestamp=timestamp, on_delivery=observed)
    producer.produce("timely", b"elsewhere", partition=1, on_delivery=observed)
    began = time.monotonic()
    assert producer.flush(PATIENCE_S) == 0
    took = time.monotonic() - began
    errors = {value: error for error, value in delivered}
    refused = errors[b"long ago"]
    assert refused is not None
    assert refused.code() == KafkaError.INVALID_TIMESTAMP
    assert errors[b"elsewhere"] is None
    assert took < PATIENCE_S / 2, "it was not tried again and again"


def test_producer_error_names_rejected_record(broker: Broker) -> None:
    with OurProducer(broker, linger_ms=100) as producer:
        now_ms = int(time.time() * 1000)
        handles = [
            producer.send("timely", b"x", partition=2, timestamp_ms=timestamp) for timestamp in (now_ms, 1000, now_ms)
        ]
        producer.flush()
        for handle in handles:
            with pytest.raises(ApiError, match="record 1: timestamp 1000 is outside") as refused:
                handle.result(PATIENCE_S)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    with SimpleConsumer(broker) as consumer:
        assert not list(consumer.fetch("timely", 2, 0))
