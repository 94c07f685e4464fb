"""Compacted topics of a running broker, as clients of every kind see them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from support.columns import plain
from support.kafka_python import KafkaConsumer
from support.kafka_python import TopicPartition as PythonPartition
from support.long_tests import first_is_quick
from support.waiting import wait_for

from barnabas import Admin, Broker, Consumer, Producer, SimpleConsumer
from barnabas.pipeline.topics.connect import ClientCluster
from barnabas.pipeline.topics.model import ClusterPartition
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.offsets import LATEST

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PATIENCE_S = 120.0
KEYS = 50
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "index.interval.bytes": "500",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", config={"log.cleaner.backoff.ms": 50}) as running:
        yield running


def fill(broker: Broker, codec: str, rounds: int = 60) -> dict[bytes, bytes]:
    """Write each key in every round, and one key only once; returns what should be left."""
    with Admin(broker) as admin:
        segment_bytes = "20000" if codec == "none" else "3000"
        admin.create_topic("t", configs={**COMPACT, "segment.bytes": segment_bytes})
    producer = LibrdkafkaProducer(
        {"bootstrap.servers": broker.bootstrap, "compression.codec": codec, "enable.idempotence": True, "linger.ms": 5}
    )
    wanted = {}
    for number in range(rounds):
        for key in range(KEYS):
            if key % 5 or not number % 10:
                wanted[b"key-%d" % key] = b"%d " % number * 10
                producer.produce("t", wanted[b"key-%d" % key], b"key-%d" % key)
        wanted[b"once-%d" % number] = b"x"
        producer.produce("t", b"x", b"once-%d" % number)
        producer.flush(PATIENCE_S)
    for key in range(0, KEYS, 10):
        del wanted[b"key-%d" % key]
        producer.produce("t", None, b"key-%d" % key)
    producer.flush(PATIENCE_S)
    return wanted


def is_compacted(broker: Broker, share: float = 0.5) -> bool:
    with SimpleConsumer(broker) as simple:
        found = [message for piece in simple.read("t", 0, 0) for message in piece]
    return len(found) < share * (found[-1].offset + 1)


def values_of(pairs: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in dict(pairs).items() if value is not None}


def by_librdkafka(broker: Broker, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([LibrdkafkaPartition("t", 0, start)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    until = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append((message.offset() or 0, message.key(), message.value()))
    finally:
        consumer.close()
    raise TimeoutError(f"no end after {len(found)} messages")


def by_kafka_python(broker: Broker) -> list[tuple[bytes | None, bytes | None]]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, consumer_timeout_ms=int(PATIENCE_S * 1000), check_crcs=True
    )
    place = PythonPartition("t", 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    found = []
    for message in consumer:
        found.append((message.key, message.value))
        if message.offset == end - 1:
            break
    consumer.close()
    return found


@pytest.mark.parametrize("codec", first_is_quick(["none", "zstd"]))
def test_every_client_finds_the_last_values(broker: Broker, codec: str) -> None:
    wanted = fill(broker, codec)
    wait_for(lambda: is_compacted(broker), PATIENCE_S)
    assert values_of([pair[1:] for pair in by_librdkafka(broker)]) == wanted
    assert values_of(by_kafka_python(broker)) == wanted
    with Consumer(broker) as consumer:
        consumer.assign("t", position="earliest")
        read = [(m.key, m.value) for m in consumer.messages(stop_at_end=True, timeout=PATIENCE_S)]
    assert values_of(read) == wanted
    cluster = ClientCluster(broker.bootstrap, {})
    place = ClusterPartition("t", 0)
    end = cluster.offsets([place], LATEST)[place]
    pieces = list(cluster.read(place, 0, end))
    cluster.close()
    assert (
        values_of([pair for piece in pieces for pair in zip(plain(piece.keys), plain(piece.values), strict=True)])
        == wanted
    )


@pytest.mark.slow
def test_reading_begins_anywhere_in_what_is_left(broker: Broker) -> None:
    fill(broker, "lz4")
    wait_for(lambda: is_compacted(broker), PATIENCE_S)
    with Admin(broker) as admin:
        admin.alter_configs(ResourceKind.TOPIC, "t", {"cleanup.policy": "delete", "retention.ms": "-1"})
    seen: list[object] = []

    def is_settled() -> bool:
        seen.append(by_librdkafka(broker))
        return len(seen) > 3 and seen[-1] == seen[-2] == seen[-3]

    wait_for(is_settled, PATIENCE_S)
    everything = [offset for offset, _, _ in by_librdkafka(broker)]
    for start in range(0, everything[-1], everything[-1] // 6):
        behind = [offset for offset in everything if offset >= start]
        assert [offset for offset, _, _ in by_librdkafka(broker, start)] == behind
        with SimpleConsumer(broker, max_partition_fetch_bytes=700) as simple:
            assert [m.offset for piece in simple.read("t", 0, start) for m in piece] == behind


def test_a_message_without_key_is_refused(broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("t", configs=COMPACT)
    refused = []
    producer = LibrdkafkaProducer(
        {"bootstrap.servers": broker.bootstrap, "on_delivery": lambda error, _message: refused.append(error)}
    )
    producer.produce("t", b"no key")
    producer.flush(PATIENCE_S)
    assert [error.code() for error in refused] == [KafkaError.INVALID_RECORD]
    with Producer(broker) as ours, pytest.raises(Exception, match="needs a key"):
        ours.send("t", b"no key").result(PATIENCE_S)


def test_compacted_topic_is_complete_after_restart_and_compaction_continues(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 50}
    with Broker(tmp_path / "data", config=settings) as broker:
        wanted = fill(broker, "snappy")
        wait_for(lambda: is_compacted(broker), PATIENCE_S)
    with Broker(tmp_path / "data", config=settings) as broker:
        assert values_of([pair[1:] for pair in by_librdkafka(broker)]) == wanted
        with Producer(broker) as producer:
            for number in range(400):
                producer.send("t", b"%d" % number * 30, key=b"again")
            producer.confirm(PATIENCE_S)
        wait_for(lambda: is_compacted(broker, share=0.35), PATIENCE_S)
        assert values_of([pair[1:] for pair in by_librdkafka(broker)]) == {**wanted, b"again": b"399" * 30}
