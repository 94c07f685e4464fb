"""kafka-python and aiokafka against a broker on a socket."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from support.kafka_python import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    NewPartitions,
    NewTopic,
    TopicAlreadyExistsError,
    TopicPartition,
)
from support.long_tests import first_is_quick
from support.waiting import PATIENCE_S

from barnabas.app.embedded_broker import Broker

pytestmark = [pytest.mark.xdist_group("python-clients"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
ACKS: list[Any] = [0, 1, "all"]
USUAL = list(zip([0, 1, "all", "all", "all"], CODECS, strict=True))
CASES = first_is_quick([*USUAL, *(case for case in product(ACKS, CODECS) if case not in USUAL)], len(USUAL))
VALUES = [b"value %d" % number for number in range(500)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("python"), log_retention_ms=-1) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


@pytest.mark.parametrize(("acks", "codec"), CASES)
def test_kafka_python_produces_and_consumes(broker: Broker, acks: Any, codec: str | None) -> None:
    topic = f"kp-{acks}-{codec}"
    with closing(
        KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            acks=acks,
            compression_type=codec,
            enable_idempotence=acks == "all",
        )
    ) as producer:
        for value in VALUES:
            producer.send(topic, value, key=b"k", headers=[("h", b"v")])
        producer.flush(PATIENCE_S)
    with closing(
        KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=int(PATIENCE_S * 1000))
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found = [next(consumer) for _ in VALUES]
        assert [record.value for record in found] == VALUES
        assert (found[0].key, found[0].headers) == (b"k", [("h", b"v")])
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): len(VALUES)}


def test_kafka_python_offsets_by_time(broker: Broker) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for timestamp in (1000, 2000):
            producer.send("kp-times", b"x", timestamp_ms=timestamp).get(PATIENCE_S)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        partition = TopicPartition("kp-times", 0)
        assert consumer.offsets_for_times({partition: 1500})[partition].offset == 1
        assert consumer.offsets_for_times({partition: 9000})[partition] is None
        assert consumer.beginning_offsets([partition]) == {partition: 0}


def test_kafka_python_administers(broker: Broker, admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic("kp-admin", 2, 1, topic_configs={"retention.ms": "1000"})])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("kp-admin", 2, 1)])
    assert "kp-admin" in admin.list_topics()
    admin.create_partitions({"kp-admin": NewPartitions(4)})
    described = admin.describe_topics(["kp-admin"])[0]
    assert len(described["partitions"]) == 4
    admin.delete_topics(["kp-admin"])
    assert "kp-admin" not in admin.list_topics()


def test_kafka_python_describes_configs(admin: KafkaAdminClient) -> None:
    admin.create_topics([NewTopic("kp-configs", 1, 1, topic_configs={"retention.ms": "1000"})])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "kp-configs")])
    assert "retention.ms" in str(described)
    assert "1000" in str(described)


@pytest.mark.parametrize(("acks", "codec"), CASES)
def test_aiokafka_produces_and_consumes(broker: Broker, acks: Any, codec: str | None) -> None:
    topic = f"aio-{acks}-{codec}"

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks=acks, compression_type=codec)
        await producer.start()
        try:
            sent = [await producer.send(topic, value, partition=0) for value in VALUES]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in VALUES]
        finally:
            await consumer.stop()

    assert asyncio.run(run()) == VALUES


def test_aiokafka_admin_creates_and_deletes_topics(broker: Broker) -> None:
    async def run() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await client.start()
        try:
            await client.create_topics([AioNewTopic("aio-admin", 3, 1)])
            assert "aio-admin" in await client.list_topics()
            await client.delete_topics(["aio-admin"])
            assert "aio-admin" not in await client.list_topics()
        finally:
            await client.close()

    asyncio.run(run())
