"""Our readers at Apache Kafka and at our broker: aborted transactions stay away from who reads committed messages; gaps
are legal."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
import pytest
from support.command import barnabas_here
from support.kafka_server import KafkaServer
from support.waiting import wait_for

from barnabas import Admin, Consumer, Message, Producer, SimpleConsumer
from barnabas.app.clients.aio import AsyncConsumer
from barnabas.pipeline.load import load
from barnabas.pipeline.topics.connect import ClientCluster
from barnabas.pipeline.topics.model import LATEST, ClusterPartition
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
]

WAIT_S = 240
TX = TopicPartition("tx", 0)
COMMITTED = {"isolation.level": "read_committed"}


@pytest.fixture(scope="module", params=["kafka", "barnabas"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaServer | TestBroker]:
    if request.param == "barnabas":
        with TestBroker() as broker:
            yield broker
        return
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def expected(kafka: KafkaServer | TestBroker) -> list[bytes]:
    """The committed values of topic `tx`, in which two producers' transactions overlap, some of them aborted; behind
    the last stable offset one more is open."""
    with Admin(kafka.bootstrap) as admin:
        admin.create_topic("tx", partitions=1)
    one, two = _producer(kafka, "one"), _producer(kafka, "two")
    for number in range(6):
        one.begin_transaction()
        two.begin_transaction()
        for _ in range(3):
            _send(one, b"%s%d" % (b"one", number))
            _send(two, b"%s%d" % (b"two", number))
        one.abort_transaction() if number % 2 else one.commit_transaction()
        two.abort_transaction() if number % 3 else two.commit_transaction()
    with Producer(kafka.bootstrap) as plain:
        plain.send("tx", b"plain", partition=0).result(WAIT_S)
    one.begin_transaction()
    _send(one, b"open")
    two.begin_transaction()
    _send(two, b"aborted behind it")
    two.abort_transaction()
    _open.append(one)
    found = [b"%s%d" % (name, n) for n in range(6) for _ in range(3) for name in (b"one", b"two") if _commits(name, n)]
    return [*found, b"plain"]


_open: list[Any] = []
"""A producer that is let go aborts nothing by itself, but its broker does so one day."""


def _commits(name: bytes, number: int) -> bool:
    return number % (2 if name == b"one" else 3) == 0


def _producer(kafka: KafkaServer | TestBroker, name: str) -> Any:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def _send(producer: Any, value: bytes) -> None:
    producer.produce("tx", value, partition=0)
    producer.flush(WAIT_S)


def test_consumers_hand_out_what_was_committed(kafka: KafkaServer | TestBroker, expected: list[bytes]) -> None:
    stable = _stable(kafka)
    for max_bytes in (1, 300, 1_000_000):
        with Consumer(kafka.bootstrap, config=COMMITTED, max_partition_fetch_bytes=max_bytes) as consumer:
            consumer.assign("tx", position="earliest")
            assert [m.value for m in consumer.messages(stop_at_end=True, timeout=WAIT_S)] == expected
            assert consumer.position(("tx", 0)) == stable
            assert consumer.end_offsets() == {("tx", 0): stable}
            assert consumer.lag() == {("tx", 0): 0}
    with Consumer(kafka.bootstrap) as everything:
        everything.assign("tx", position="earliest")
        values = [m.value for m in everything.messages(stop_at_end=True, timeout=WAIT_S)]
    assert b"one1" in values
    assert values[-2:] == [b"open", b"aborted behind it"]


def test_where_all_is_aborted_a_reader_gets_on(kafka: KafkaServer | TestBroker, expected: list[bytes]) -> None:
    """From within an aborted transaction that began before."""
    # A seek waits for the fetch under way, which waits at the end of the log.
    with Consumer(kafka.bootstrap, config={**COMMITTED, "fetch.max.wait.ms": "20"}) as consumer:
        consumer.assign("tx", position=0)
        for start in range(_stable(kafka)):
            consumer.seek(("tx", 0), start)
            rest = [m.value for m in consumer.messages(stop_at_end=True, timeout=WAIT_S)]
            assert rest == expected[len(expected) - len(rest) :]
            assert consumer.position(("tx", 0)) == _stable(kafka)


def test_the_other_readers_do_so_too(kafka: KafkaServer | TestBroker, expected: list[bytes]) -> None:
    with SimpleConsumer(kafka.bootstrap, config=COMMITTED) as simple:
        assert [m.value for piece in simple.read("tx", 0, 0) for m in piece] == expected
    with Consumer(kafka.bootstrap, config=COMMITTED, group_id="g", auto_offset_reset="earliest") as member:
        member.subscribe("tx")
        assert [m.value for m in member.messages(stop_at_end=True, timeout=WAIT_S)] == expected

    async def read() -> list[bytes | None]:
        async with AsyncConsumer(kafka.bootstrap, config=COMMITTED) as consumer:
            await consumer.assign("tx", position="earliest")
            return [message.value async for message in consumer.messages(stop_at_end=True)]

    assert asyncio.run(read()) == expected
    words = ("consume", "tx", "--from", "beginning", "-e", "--bootstrap", kafka.bootstrap)
    assert barnabas_here(*words, "--isolation-level", "read_committed").stdout.splitlines() == expected
    assert len(barnabas_here(*words).stdout.splitlines()) == 6 * 6 + 3


def test_loads_and_the_spark_source_do_so_too(
    kafka: KafkaServer | TestBroker, expected: list[bytes], spark: "SparkSession", tmp_path: Path
) -> None:
    cluster = ClientCluster(kafka.bootstrap, COMMITTED)
    place = ClusterPartition("tx", 0)
    end = cluster.offsets([place], LATEST)[place]
    assert end == _stable(kafka)
    assert [value for piece in cluster.read(place, 0, end) for value in pa.array(piece.values).to_pylist()] == expected
    cluster.close()
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "tx", "minPartitions": "3"}
    frame = spark.read.format("barnabas").options(**options, **{"kafka.isolation.level": "read_committed"}).load()
    assert [bytes(row["value"]) for row in frame.orderBy("offset").select("value").collect()] == expected
    loaded = load(kafka.bootstrap, ["tx"], tmp_path, spark=spark, client=COMMITTED)
    assert loaded.rows == len(expected)
    assert load(kafka.bootstrap, ["tx"], tmp_path, spark=spark, client=COMMITTED).rows == 0


@pytest.mark.parametrize("kafka", ["kafka"], indirect=True)
def test_compacted_log_is_read_without_errors(kafka: KafkaServer | TestBroker) -> None:
    configs = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    with Admin(kafka.bootstrap) as admin:
        admin.create_topic("compacted", partitions=1, configs=configs)
    count = 0
    with Producer(kafka.bootstrap, batch_num_messages=3) as producer:
        for round_ in range(40):
            messages = [Message(b"%d" % round_, key=b"%d" % (n if n % 4 else round_)) for n in range(12)]
            producer.send_many("compacted", messages, partition=0).result(WAIT_S)
            count += len(messages)

    def read(**settings: Any) -> list[int]:
        with Consumer(kafka.bootstrap, **settings) as consumer:
            consumer.assign("compacted", position="earliest")
            return [message.offset for message in consumer.messages(stop_at_end=True, timeout=WAIT_S)]

    wait_for(lambda: len(read()) < count // 2, WAIT_S)
    for max_bytes in (1, 200, 1000, 1_000_000):
        offsets = read(max_partition_fetch_bytes=max_bytes)
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == count - 1
        for start in (1, count // 2, count - 5):
            with SimpleConsumer(kafka.bootstrap, max_partition_fetch_bytes=max_bytes) as simple:
                rest = [m.offset for piece in simple.read("compacted", 0, start) for m in piece]
            assert set(rest) <= set(range(start, count))
            assert rest[-1] == count - 1


def _stable(kafka: KafkaServer | TestBroker) -> int:
    with Admin(kafka.bootstrap) as admin:
        stable = admin.list_offsets({TX: "latest"}, isolation_level="read_committed")[TX]
        assert stable < admin.list_offsets({TX: "latest"})[TX]
    return stable
