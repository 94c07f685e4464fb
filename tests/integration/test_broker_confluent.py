"""librdkafka against a broker on a socket."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from support.confluent import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.embedded_broker import Broker

pytestmark = [pytest.mark.xdist_group("confluent")]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("confluent"), log_retention_ms=-1) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE_S)


def produce_all(broker: Broker, topic: str, values: list[bytes], **settings: Any) -> list[Message]:
    delivered: list[Message] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        (errors if error else delivered).append(error or message)  # type: ignore[arg-type]  # each to its list

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=report)
    assert producer.flush(PATIENCE_S) == 0
    assert not errors
    return delivered


def consume(broker: Broker, topic: str, count: int, *, offset: int = 0, **settings: Any) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 0.2)
    consumer.close()
    assert [message.error() for message in found if message.error()] == []
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_produce_and_consume(broker: Broker, admin: AdminClient, acks: object, codec: str) -> None:
    topic = f"roundtrip-{acks}-{codec}"
    create(admin, topic)
    values = [b"value %d " % number * (1 + number % 7) for number in range(2000)]
    produce_all(broker, topic, values, acks=acks, **{"compression.type": codec})
    messages = consume(broker, topic, len(values))
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(len(values)))


def test_keys_headers_and_timestamps(broker: Broker, admin: AdminClient) -> None:
    create(admin, "whole")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("whole", None, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_600_000_000_123)
    producer.flush(PATIENCE_S)
    message = consume(broker, "whole", 1)[0]
    assert (message.value(), message.key(), message.headers()) == (None, b"k", [("h", b"1"), ("h", None)])
    assert message.timestamp() == (1, 1_600_000_000_123)


def test_a_topic_is_made_when_a_producer_names_it(broker: Broker) -> None:
    delivered = produce_all(broker, "made-by-producing", [b"x"])
    assert (delivered[0].topic(), delivered[0].offset()) == ("made-by-producing", 0)


def test_log_append_time(broker: Broker, admin: AdminClient) -> None:
    create(admin, "stamped", message_timestamp_type="LogAppendTime")
    before = time.time() * 1000
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("stamped", b"x", timestamp=1)
    producer.flush(PATIENCE_S)
    kind, timestamp = consume(broker, "stamped", 1)[0].timestamp()
    assert kind == 2
    assert before - 1000 <= timestamp <= time.time() * 1000 + 1000


def test_offsets_by_time(broker: Broker, admin: AdminClient) -> None:
    create(admin, "times")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for timestamp in (1000, 2000, 3000):
        producer.produce("times", b"x", timestamp=timestamp)
        producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    for wanted, expected in ((1, 0), (1500, 1), (3000, 2), (3001, -1)):
        found = consumer.offsets_for_times([TopicPartition("times", 0, wanted)], PATIENCE_S)
        assert found[0].offset == expected, wanted
    assert consumer.get_watermark_offsets(TopicPartition("times", 0), PATIENCE_S) == (0, 3)
    consumer.close()


def test_long_polling_answers_when_data_comes(broker: Broker, admin: AdminClient) -> None:
    create(admin, "poll")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 15_000,
            "fetch.min.bytes": 1,
        }
    )
    consumer.assign([TopicPartition("poll", 0, 0)])
    assert consumer.poll(0.3) is None
    produce_all(broker, "poll", [b"now"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"now"
    consumer.close()


def test_end_of_partition(broker: Broker, admin: AdminClient) -> None:
    create(admin, "end")
    produce_all(broker, "end", [b"a", b"b"])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("end", 0, 1)])
    message, end = consumer.poll(PATIENCE_S), consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"b"
    assert end is not None
    assert end.error() is not None
    assert end.error().code() == KafkaError._PARTITION_EOF  # type: ignore[union-attr]  # asserted above
    consumer.close()


def test_a_message_that_is_too_large_is_refused(broker: Broker, admin: AdminClient) -> None:
    create(admin, "small", max_message_bytes="1000")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("small", b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


# --- administration


def test_topics_are_listed_grown_and_deleted(broker: Broker, admin: AdminClient) -> None:
    create(admin, "admin", 2)
    listed = admin.list_topics(timeout=PATIENCE_S)
    assert len(listed.topics["admin"].partitions) == 2
    assert [f"{node.host}:{node.port}" for node in listed.brokers.values()] == [broker.bootstrap]
    with pytest.raises(KafkaException) as raised:
        create(admin, "admin")
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions("admin", 4)])["admin"].result(PATIENCE_S)
    wait_for(lambda: len(admin.list_topics(timeout=PATIENCE_S).topics["admin"].partitions) == 4)
    admin.delete_topics(["admin"])["admin"].result(PATIENCE_S)
    wait_for(lambda: "admin" not in admin.list_topics(timeout=PATIENCE_S).topics)


def test_configs_are_described_and_altered(admin: AdminClient) -> None:
    create(admin, "configs", retention_ms="1000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, "configs")

    def retention() -> ConfigEntry:
        described: ConfigEntry = admin.describe_configs([resource])[resource].result(PATIENCE_S)["retention.ms"]
        return described

    assert retention().value == "1000"
    change = ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ConfigResource.Type.TOPIC, "configs", incremental_configs=[change])
    admin.incremental_alter_configs([wanted])[wanted].result(PATIENCE_S)
    assert retention().value == "2000"
    change = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    wanted = ConfigResource(ConfigResource.Type.TOPIC, "configs", incremental_configs=[change])
    admin.incremental_alter_configs([wanted])[wanted].result(PATIENCE_S)
    assert retention().value == "-1", "as the broker has it"


def test_the_broker_describes_itself(broker: Broker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert cluster.cluster_id == broker.cluster_id
    assert cluster.controller.id == 1
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    entries = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert entries["num.partitions"].value == "1"


def test_records_are_deleted(broker: Broker, admin: AdminClient) -> None:
    create(admin, "cut")
    produce_all(broker, "cut", [b"a", b"b", b"c"])
    cut = TopicPartition("cut", 0, 2)
    assert admin.delete_records([cut])[cut].result(PATIENCE_S).low_watermark == 2
    assert consume(broker, "cut", 1, offset=2)[0].value() == b"c"


def test_nothing_is_written_by_a_broker_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker(storage="memory") as memory:
        produce_all(memory, "t", [b"a"] * 10)
        assert len(consume(memory, "t", 10)) == 10
    assert list(tmp_path.iterdir()) == []
