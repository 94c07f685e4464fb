"""The classic clients and real brokers, in this process, in ZooKeeper and in etcd."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import get_ident
from typing import Any
from uuid import uuid4

import pytest
from support.ports import free_port
from support.registry_kinds import WITH_BOTH, server_of
from support.waiting import wait_for

from barnabas import Broker, Producer, SimpleConsumer
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.app.clients.shared.protocols import AnyProducer, AnySimpleConsumer
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError


def broker_of(number: int = 0, **settings: Any) -> Broker:
    """Return a broker that flushes every message at once, so that it is readable."""
    common = {"broker_id": number, "log_flush_interval_messages": 1, "num_partitions": 2, "message_format": "classic"}
    storage = {} if "data_dir" in settings else {"storage": "memory"}
    return Broker(**{**common, **storage, "listeners": ("classic://127.0.0.1:0",), **settings})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with broker_of() as running:
        yield running


def consumer_of(broker: Broker, **settings: Any) -> ClassicSimpleConsumer:
    made: AnySimpleConsumer = SimpleConsumer(broker.listeners[0], **settings)
    assert isinstance(made, ClassicSimpleConsumer)
    return made


def producer_of(**settings: Any) -> ClassicProducer:
    made: AnyProducer = Producer(**settings)
    assert isinstance(made, ClassicProducer)
    return made


def values(broker: Broker, topic: str, partition: int) -> list[bytes | None]:
    """Return the values of the partition; none while it does not exist."""
    with consumer_of(broker) as consumer:
        end = consumer.offset_at(topic, partition, -1)
        return [message.value for piece in consumer.read(topic, partition, 0, end) for message in piece]


def all_values(broker: Broker, topic: str) -> set[bytes | None]:
    return {*values(broker, topic, 0), *values(broker, topic, 1)}


def test_from_a_producer_to_a_consumer_and_offsets_are_positions(broker: Broker) -> None:
    with producer_of(bootstrap=broker.listeners[0]) as producer, consumer_of(broker) as consumer:
        producer.send("views", b"hello", partition=0)
        producer.send_many("views", [b"a", b"bb"], partition=0)
        wait_for(lambda: values(broker, "views", 0) == [b"hello", b"a", b"bb"])
        assert [message.offset for message in consumer.fetch("views", 0, 0)] == [15, 26, 38]
        assert [message.value for message in consumer.fetch("views", 0, 26)] == [b"bb"]
        assert consumer.get_offsets_before("views", 0, -1, 10) == [38, 0]
        assert consumer.get_offsets_before("views", 0, -2) == [0]
        with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
            consumer.fetch("views", 0, 39)
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            consumer.fetch("views", 7, 0)
        sets = consumer.multifetch([("views", 0, 15), ("views", 1, 0), ("views", 9, 0)], 11)
        assert [found.error for found in sets] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [found.size for found in sets] == [11, 0, 0]


def test_synchronous_send_uses_the_calling_thread_and_its_callback_may_not_send(broker: Broker) -> None:
    seen: list[tuple[int, str]] = []
    with producer_of(bootstrap=broker.listeners[0]) as producer:

        def on_delivery(_error: object, _delivery: object) -> None:
            try:
                producer.send("views", b"never waited for", partition=0)
            except BarnabasError as error:
                seen.append((get_ident(), str(error)))

        producer.send("views", b"0", partition=0)  # connects

        def sent_here() -> bool:
            seen.clear()
            producer.send("views", b"1", partition=0, on_delivery=on_delivery)
            return seen[0][0] == get_ident()

        wait_for(sent_here)  # it is the reactor's thread where that one is awake
        assert "must not wait for its own client" in seen[0][1]
        producer.send("views", b"2", partition=0)
    wait_for(lambda: values(broker, "views", 0)[-2:] in ([b"never waited for", b"2"], [b"2", b"never waited for"]))


def test_the_broker_chooses_the_partition(broker: Broker) -> None:
    sent = {b"%d" % n for n in range(60)}
    with producer_of(bootstrap=broker.listeners[0]) as producer:
        for value in sent:
            producer.send("t", value)
    wait_for(lambda: all_values(broker, "t") == sent)
    assert values(broker, "t", 0)
    assert values(broker, "t", 1)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_compressed_messages_are_sent_as_wrappers_and_can_be_resent(broker: Broker, codec: str, kind: str) -> None:
    sent: list[bytes | None] = [b"%d " % n * 20 for n in range(500)]
    with producer_of(bootstrap=broker.listeners[0], producer_type=kind, compression_codec=codec) as producer:
        assert producer.send_many("t", sent, partition=1).count == 500
    wait_for(lambda: values(broker, "t", 1) == sent)
    with consumer_of(broker) as consumer:
        found = consumer.fetch("t", 1, 0)
        assert found.size < 30_000
        wrappers = list(found.shallow())
        assert {wrapper.codec_id for wrapper in wrappers} == {1 if codec == "gzip" else 2}
        assert len(wrappers) == (1 if kind == "sync" else 3)
    with producer_of(bootstrap=broker.listeners[0]) as producer:
        producer.send_many("again", wrappers, partition=0)
    wait_for(lambda: values(broker, "again", 0) == sent)


def test_one_message_that_is_larger_than_the_fetch(broker: Broker) -> None:
    with producer_of(bootstrap=broker.listeners[0]) as producer:
        producer.send_many("t", [b"x" * 500_000, b"small"], partition=0)
    wait_for(lambda: len(values(broker, "t", 0)) == 2)
    with consumer_of(broker, fetch_size=1000) as consumer:
        assert [len(message.value or b"") for message in consumer.fetch("t", 0, 0)] == [500_000]


def test_the_registries_of_a_broker_in_this_process(broker: Broker) -> None:
    with producer_of(coordination=broker) as producer:
        assert producer.places("t") == [BrokerPartition(0, 0)]
        producer.send("t", b"first")
        wait_for(lambda: producer.places("t") == [BrokerPartition(0, 0), BrokerPartition(0, 1)])
        sent = {b"%d" % n for n in range(50)}
        for value in sent:
            producer.send("t", value, key=value)
        wait_for(lambda: all_values(broker, "t") == {b"first", *sent})
    assert values(broker, "t", 1)


def test_a_broker_that_restarts(tmp_path: Path) -> None:
    port = free_port()
    settings: dict[str, Any] = {"data_dir": tmp_path / "data", "listeners": (f"classic://127.0.0.1:{port}",)}
    with broker_of(**settings) as first:
        producer = producer_of(broker_list=f"0:127.0.0.1:{port}")
        producer.send("t", b"1", partition=0)
        wait_for(lambda: values(first, "t", 0) == [b"1"])
    with producer, broker_of(**settings) as second:
        producer.send("t", b"2", partition=0)
        wait_for(lambda: values(second, "t", 0) == [b"1", b"2"])


# --- several brokers around a real service


@pytest.fixture(params=WITH_BOTH)
def service(request: pytest.FixtureRequest) -> str:
    """Return the address of a coordination service, as host:port/path; the fixture's id is its kind."""
    return f"{request.param}://127.0.0.1:{server_of(request).port}/{uuid4().hex}"


@pytest.mark.process
def test_brokers_come_and_go(service: str) -> None:
    kind, _, place = service.partition("://")
    settings = {"coordination": service, "zookeeper_session_timeout_ms": 2000}
    connect = {"zk_connect": place} if kind == "zookeeper" else {"etcd_connect": place}
    with ExitStack() as running:
        first = running.enter_context(broker_of(0, **settings))
        producer = running.enter_context(producer_of(**connect, connect_timeout_ms=500))
        assert producer.places("t") == [BrokerPartition(0, 0)]
        producer.send("t", b"0")
        wait_for(lambda: producer.partitions("t") == 2)
        with broker_of(1, **settings) as second:
            with producer_of(bootstrap=second.listeners[0]) as helper:
                helper.send("t", b"1", partition=0)
            wait_for(lambda: producer.partitions("t") == 4)
            sent = {b"%d" % n for n in range(2, 100)}
            for value in sent:
                producer.send("t", value, key=value)
            wait_for(lambda: all_values(first, "t") | all_values(second, "t") == {b"0", b"1", *sent})
            assert len(all_values(second, "t")) > 10
        wait_for(lambda: producer.places("t") == [BrokerPartition(0, 0), BrokerPartition(0, 1)])
        for n in range(100, 150):
            producer.send("t", b"%d" % n)
        wait_for(lambda: all_values(first, "t") >= {b"%d" % n for n in range(100, 150)})
        assert producer.failed == 0
