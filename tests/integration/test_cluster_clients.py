"""Clients of every library live through the stops and deaths of brokers."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from support.kafka_python import KafkaConsumer, KafkaProducer
from support.waiting import PATIENCE_S, wait_for

from barnabas.testing import TestCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

QUICK = {
    "log_level": 0,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


def _kill_the_leader(cluster: TestCluster, topic: str) -> int:
    leader = cluster.leader(topic)
    assert leader is not None
    cluster.kill(leader)
    return leader


def _values(count: int) -> list[str]:
    return [f"{number:04}" for number in range(count)]


class _Background:
    """A function that is repeated until `stop`; what it raises is raised at the end."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_Background":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._step()
        except BaseException as error:  # noqa: BLE001  # raised at the end
            self._error = error


def test_a_rolling_restart_is_no_failure_for_librdkafka(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=3, configs={"min.insync.replicas": 2})
    cluster.wait_in_sync(topic)
    failed: list[Any] = []
    delivered: list[str] = []
    errors: list[confluent_kafka.KafkaError] = []
    settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1}
    producer = confluent_kafka.Producer({**QUICK, **settings, "error_cb": errors.append})
    sent: list[str] = []

    def observed(error: Any, message: confluent_kafka.Message) -> None:
        (failed if error else delivered).append(error or (message.value() or b"").decode())

    def step() -> None:
        sent.append(f"{len(sent):06}")
        producer.produce(topic, sent[-1], partition=len(sent) % 3, on_delivery=observed)
        producer.poll(0.001)

    with _Background(step):
        for broker_id in cluster.broker_ids:
            before = len(delivered)
            cluster.restart(broker_id)
            cluster.wait_in_sync(topic)
            wait_for(lambda: len(delivered) > before + 10)  # noqa: B023  # it is called here and now
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []
    assert len(delivered) == len(sent)
    assert not [error for error in errors if error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN]
    for partition in range(3):
        found = [(message.value or b"").decode() for message in cluster.produced(topic, partition=partition)]
        assert found == [value for number, value in enumerate(sent, 1) if number % 3 == partition]


def test_librdkafka_reads_on_in_its_group(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    cluster.produce(topic, _values(10))
    consumer = confluent_kafka.Consumer(
        {
            **QUICK,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def read(count: int) -> None:
        def more() -> bool:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append(message.value())
                consumer.commit(message=message, asynchronous=False)
            return len(found) >= count

        wait_for(more)

    read(10)
    coordinator = cluster.leader("__consumer_offsets")
    assert coordinator is not None
    cluster.wait_in_sync("__consumer_offsets")
    cluster.kill(coordinator)
    cluster.produce(topic, ["after"])
    read(11)
    consumer.close()
    assert [(value or b"").decode() for value in found] == [*_values(10), "after"]
    with cluster.admin() as admin:
        assert next(iter(admin.group_offsets("g").values())).offset == 11


def test_ours_produces_and_reads_in_a_group(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    with cluster.producer() as producer, cluster.consumer(group_id="g") as consumer:
        consumer.subscribe([topic])
        for value in _values(10):
            producer.send(topic, value.encode())
        producer.flush(PATIENCE_S)
        found = [consumer.poll(PATIENCE_S) for _ in range(10)]
        _kill_the_leader(cluster, topic)
        for value in _values(10):
            producer.send(topic, value.encode())
        producer.flush(PATIENCE_S)
        assert producer.failed == 0
        found += [consumer.poll(PATIENCE_S) for _ in range(10)]
    assert [(message.value or b"").decode() for message in found if message is not None] == _values(10) * 2
    cluster.assert_produced(topic, _values(10) * 2)


@pytest.mark.slow
def test_kafka_python_produces_and_reads(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    servers = cluster.bootstrap.split(",")
    with (
        closing(
            KafkaProducer(bootstrap_servers=servers, acks="all", retry_backoff_ms=20, enable_idempotence=True)
        ) as producer,
        closing(
            KafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id="g",
                auto_offset_reset="earliest",
                retry_backoff_ms=20,
                reconnect_backoff_ms=20,
                consumer_timeout_ms=int(PATIENCE_S * 1000),
            )
        ) as consumer,
    ):
        for value in _values(10):
            producer.send(topic, value.encode()).get(PATIENCE_S)
        found = [next(consumer).value for _ in range(10)]
        _kill_the_leader(cluster, topic)
        for value in _values(10):
            producer.send(topic, value.encode()).get(PATIENCE_S)
        found += [next(consumer).value for _ in range(10)]
    assert [value.decode() for value in found] == _values(10) * 2
    cluster.assert_produced(topic, _values(10) * 2)
    del producer, consumer
    gc.collect()  # kafka-python leaves sockets of lost connections to it; another test shall not be blamed


def test_aiokafka_produces_and_reads(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)

    async def run() -> list[str]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True, retry_backoff_ms=20)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            retry_backoff_ms=20,
            enable_auto_commit=False,  # its last commit in `stop` can wait for ever for a coordinator that has died
        )
        await producer.start()
        await consumer.start()
        try:
            found: list[str] = []
            for again in range(2):
                for value in _values(10):
                    await asyncio.wait_for(producer.send_and_wait(topic, value.encode()), PATIENCE_S)
                found += [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value.decode() for _ in range(10)]
                if not again:
                    await asyncio.to_thread(_kill_the_leader, cluster, topic)
            return found
        finally:
            await consumer.stop()
            await producer.stop()

    assert asyncio.run(run()) == _values(10) * 2
    cluster.assert_produced(topic, _values(10) * 2)
