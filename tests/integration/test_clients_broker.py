"""Our clients and our broker: over TCP, and as objects in one process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_port
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Message, Producer, SimpleConsumer
from barnabas.app.clients.aio import AsyncConsumer, AsyncProducer
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.broker_api.configs import ConfigOp, ResourceKind
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition


@pytest.fixture(params=["tcp", "in-process", "disk"])
def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Yield the value of `bootstrap.servers`."""
    settings: dict[str, Any] = {"storage": "memory"} if request.param != "disk" else {"data_dir": tmp_path}
    with Broker(num_partitions=2, **settings) as broker:
        yield broker if request.param == "in-process" else broker.bootstrap


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_everything_of_a_message_makes_the_round(bootstrap: Any, codec: str) -> None:
    sent = [
        Message(b"", key=b"", headers=(("empty", b""), ("null", None)), timestamp_ms=1_700_000_000_000),
        Message(None, key=b"tombstone", timestamp_ms=1_700_000_000_001),
        Message(bytes(range(256)) * 100, timestamp_ms=1_700_000_000_002),
        *(Message(b"line %d" % n, key=b"k%d" % (n % 7), timestamp_ms=1_700_000_000_003 + n) for n in range(500)),
    ]
    with Producer(bootstrap, compression_type=codec) as producer:
        assert producer.send_many("views", sent, partition=1).result(PATIENCE_S) == len(sent)
    with Consumer(bootstrap) as consumer:
        consumer.assign("views", partitions=[1], position="earliest")
        received = list(consumer.messages(stop_at_end=True))
    assert [message[:4] for message in received] == [message[:4] for message in sent]
    assert [message.offset for message in received] == list(range(len(sent)))


def test_keys_stay_together_and_positions_can_be_found_by_time(bootstrap: Any) -> None:
    with Producer(bootstrap, linger_ms=0) as producer:
        for n in range(100):
            producer.send("views", b"%d" % n, key=b"k%d" % (n % 5), timestamp_ms=1_700_000_000_000 + n)
    with Consumer(bootstrap) as consumer:
        consumer.assign("views", timestamp_ms=1_700_000_000_050)
        late = list(consumer.messages(stop_at_end=True))
        assert {int(m.value or b"") for m in late} >= set(range(50, 100))
        consumer.seek_to_time(1_700_000_000_000)
        everything = list(consumer.messages(stop_at_end=True))
        assert consumer.beginning_offsets() == {TopicPartition("views", p): 0 for p in (0, 1)}
        assert sum(consumer.end_offsets().values()) == 100
    homes: dict[bytes | None, set[int]] = {}
    for message in everything:
        homes.setdefault(message.key, set()).add(message.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())
    numbers = [int(m.value or b"") for m in everything if m.key == b"k3"]
    assert numbers == list(range(3, 100, 5))


def test_a_reader_sees_what_is_written_meanwhile(bootstrap: Any) -> None:
    with Consumer(bootstrap) as consumer, Producer(bootstrap, linger_ms=0) as producer:
        producer.send("views", b"before", partition=0).result(PATIENCE_S)
        consumer.assign("views", position="latest")
        assert consumer.position(("views", 0)) == 1
        producer.send("views", b"after", partition=0).result(PATIENCE_S)
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value == b"after"


def test_the_simple_consumer(bootstrap: Any) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many("views", [b"%d" % n for n in range(1000)], partition=0).result(PATIENCE_S)
    with SimpleConsumer(bootstrap) as simple:
        found = simple.fetch("views", 0, 500)
        assert [m.value for m in found][:2] == [b"500", b"501"]
        assert (found.next_offset, found.high_watermark) == (1000, 1000)
        assert simple.offsets_before("views", 0, -1, 2) == [1000, 0]
        assert sum(1 for piece in simple.read("views", 0, 0) for _ in piece) == 1000
        with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
            simple.fetch("views", 0, 1001)


def test_topics_are_made_grown_and_deleted(bootstrap: Any) -> None:
    with Admin(bootstrap) as admin:
        made = admin.create_topic("made", partitions=3, configs={"retention.ms": "1000000"})
        assert (made.partitions, made.replication_factor) == (3, 1)
        admin.create_topics([NewTopic(name="other")], validate_only=True)
        assert admin.list_topics() == ["made"]
        admin.create_partitions("made", 5)
        (described,) = admin.describe_topics(["made"])
        assert [p.partition for p in described.partitions] == list(range(5))
        with pytest.raises(ApiError) as taken:
            admin.create_topic("made")
        assert taken.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
            admin.create_partitions("made", 2)
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            admin.describe_topics(["made", "nowhere"])
        admin.delete_topics(["made"])
        assert admin.list_topics() == []
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            admin.delete_topics(["made"])


def test_admin_describes_and_alters_configs(bootstrap: Any) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("made", configs={"retention.ms": "1000000"})
        assert admin.topic_overrides("made") == {"retention.ms": "1000000"}
        admin.alter_topic_configs("made", {"retention.ms": None, "segment.bytes": "1048576"})
        admin.alter_configs(ResourceKind.TOPIC, "made", [("cleanup.policy", ConfigOp.SET, "delete")])
        assert admin.topic_overrides("made") == {"segment.bytes": "1048576", "cleanup.policy": "delete"}
        assert admin.describe_topic_configs("made")["retention.ms"] == "604800000"
        with pytest.raises(ApiError, match="INVALID_CONFIG"):
            admin.alter_topic_configs("made", {"retention.ms": "soon"})
        admin.replace_configs(ResourceKind.TOPIC, "made", {"retention.ms": "5"}, validate_only=True)
        assert "retention.ms" not in admin.topic_overrides("made")
        admin.replace_configs(ResourceKind.TOPIC, "made", {"retention.ms": "5"})
        assert admin.topic_overrides("made") == {"retention.ms": "5"}
        broker = admin.describe_cluster().brokers[0].node_id
        entries = admin.describe_configs(ResourceKind.BROKER, broker, ["num.partitions"])
        assert [(entry.name, entry.value) for entry in entries] == [("num.partitions", "2")]


def test_the_cluster_and_its_folders_are_described(bootstrap: Any) -> None:
    with Producer(bootstrap) as producer:
        producer.send("views", bytes(1000), partition=1).result(PATIENCE_S)
    with Admin(bootstrap) as admin:
        cluster = admin.describe_cluster()
        assert cluster.cluster_id
        assert [broker.node_id for broker in cluster.brokers] == [cluster.controller_id]
        (folder,) = admin.describe_log_dirs()[cluster.controller_id]
        sizes = {(r.topic, r.partition): r.size_bytes for r in folder.replicas}
        assert sizes["views", 1] > 1000
        with pytest.raises(ConfigError, match="unknown broker 99"):
            admin.describe_log_dirs([99])


def test_records_are_deleted_and_offsets_listed(bootstrap: Any) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many("views", [b"x"] * 10, partition=0).result(PATIENCE_S)
    with Admin(bootstrap) as admin:
        assert admin.delete_records({("views", 0): 4}) == {TopicPartition("views", 0): 4}
        first = admin.list_offsets({("views", 0): "earliest", ("views", 1): "latest"})
        assert first == {TopicPartition("views", 0): 4, TopicPartition("views", 1): 0}
        with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
            admin.delete_records({("views", 0): 99})
        with pytest.raises(ConfigError, match="middle"):
            admin.list_offsets({("views", 0): "middle"})


def test_a_message_that_the_broker_refuses(bootstrap: Any) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("small", configs={"max.message.bytes": "2000"})
    with Producer(bootstrap) as producer:
        many = producer.send_many("small", [bytes(500) for _ in range(20)], partition=0)
        assert many.result(PATIENCE_S) == 20  # split until they fit
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            producer.send("small", bytes(3000), partition=0).result(PATIENCE_S)
        with pytest.raises(ApiError, match="INVALID_TOPIC"):
            producer.send("no/such", b"").result(PATIENCE_S)


def test_async_clients_have_the_calls_of_the_others(bootstrap: Any) -> None:
    tp = TopicPartition("views", 0)

    async def main() -> None:
        async with AsyncProducer(bootstrap) as producer:
            assert await producer.partitions("views") == 2
            for value in (b"a", b"b", b"c"):
                await producer.send("views", value, partition=0, timestamp_ms=1000 + value[0])
            await producer.confirm(PATIENCE_S)
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            assert await consumer.assign("views", partitions=[0], position="latest") == [tp]
            assert (consumer.assignment, consumer.subscription, consumer.paused) == ([tp], [], [])
            consumer.seek("views", 0, 1)
            assert await consumer.position(tp) == 1
            consumer.seek(tp, 2)
            assert [message.value for message in await consumer.poll_many(1, PATIENCE_S)] == [b"c"]
            consumer.seek_to_time(1000 + ord("b"))
            assert [message.value for message in await consumer.poll_many(1, PATIENCE_S)] == [b"b"]
            consumer.pause(tp)
            assert consumer.paused == [tp]
            consumer.resume()
            assert consumer.paused == []
            assert await consumer.beginning_offsets() == {tp: 0}
            assert await consumer.offsets_for_times({tp: 1000 + ord("b")}) == {tp: 1}

    asyncio.run(main())


def test_async_producer_and_consumer_exchange_messages(bootstrap: Any) -> None:
    async def main() -> list[bytes | None]:
        async with AsyncProducer(bootstrap, linger_ms=1) as producer:
            handle = await producer.send("views", b"first", partition=0)
            assert (await handle).offset == 0
            many = await producer.send_many("views", [b"%d" % n for n in range(50)], partition=0)
            assert await many == 50
            assert (await producer.send_and_wait("views", b"last", partition=0)).offset == 51
        async with AsyncConsumer(bootstrap) as consumer:
            await consumer.assign("views", position="earliest")
            return [message.value async for message in consumer.messages(stop_at_end=True)]

    assert asyncio.run(main()) == [b"first", *(b"%d" % n for n in range(50)), b"last"]


def test_a_broker_that_comes_back_is_found_again(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    listeners = [f"kafka://{address}"]
    with Broker(data_dir=tmp_path, listeners=listeners):
        producer = Producer(address, linger_ms=0)
        consumer = Consumer(address)
        producer.send("views", b"1").result(PATIENCE_S)
        consumer.assign("views", position="earliest")
        assert consumer.poll_many(1, PATIENCE_S)[0].value == b"1"
    waiting = producer.send("views", b"2")
    with pytest.raises(ClientTimeout):
        waiting.result(0.1)
    with Broker(data_dir=tmp_path, listeners=listeners):
        assert waiting.result(PATIENCE_S).offset == 1
        assert consumer.poll_many(1, PATIENCE_S)[0].value == b"2"
        consumer.close()
        producer.close()


def test_a_client_in_the_process_of_a_broker_that_stops() -> None:
    with Broker(storage="memory") as broker:
        producer = Producer(broker, linger_ms=0, delivery_timeout_ms=300)
        producer.send("views", b"1").result(PATIENCE_S)
    handle = producer.send("views", b"2")
    with pytest.raises((ApiError, TransportError)):  # the limit, or what ended the last attempt
        handle.result(PATIENCE_S)
    producer.close(1)
    wait_for(lambda: producer.failed == 1)
