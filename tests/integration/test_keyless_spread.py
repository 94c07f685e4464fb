"""Messages without a key are spread over the partitions of a topic, by every way to send them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from support.process import barnabas
from support.waiting import PATIENCE_S

from barnabas import AsyncProducer, Producer
from barnabas.testing import TestBroker

PARTITIONS = 6
VALUES = [b"line %04d" % number for number in range(5000)]
"""With the overhead of a record they are some eleven turns of 16 KiB."""


def _by_send(broker: TestBroker, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=1000) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)  # now the partitions are known
        for value in VALUES:
            producer.send(topic, value)


def _before_metadata(broker: TestBroker, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=1000) as producer:
        for value in VALUES:
            producer.send(topic, value)


def _encoded(broker: TestBroker, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=1000, encoder="json") as producer:
        for value in VALUES:
            producer.send(topic, value.decode())


def _with_headers(broker: TestBroker, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=1000) as producer:
        for value in VALUES:
            producer.send(topic, value, headers=[("a", b"b")])


def _by_send_many(broker: TestBroker, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=1000) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        for at in range(0, len(VALUES), 500):
            producer.send_many(topic, VALUES[at : at + 500])


def _by_arrow(broker: TestBroker, topic: str) -> None:
    with Producer(broker.bootstrap, linger_ms=1000) as producer:
        producer.send_arrow(pa.table({"value": pa.array(VALUES, pa.binary())}), topic).result(PATIENCE_S)


def _by_asyncio(broker: TestBroker, topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(broker.bootstrap, linger_ms=1000) as producer:
            for value in VALUES:
                await producer.send(topic, value)

    asyncio.run(run())


def _by_command(broker: TestBroker, topic: str) -> None:
    lines = b"".join(value + b"\n" for value in VALUES)
    barnabas("produce", topic, "--bootstrap", broker.bootstrap, stdin=lines)


@pytest.mark.parametrize(
    "send",
    [_by_send, _before_metadata, _encoded, _with_headers, _by_send_many, _by_arrow, _by_asyncio, _by_command],
)
def test_keyless_messages_go_to_all_partitions(send: Callable[[TestBroker, str], None]) -> None:
    with TestBroker() as broker:
        topic = broker.create_topic(partitions=PARTITIONS)
        send(broker, topic)
        found = Counter(message.partition for message in broker.produced(topic))
    assert sum(found.values()) in (len(VALUES), len(VALUES) + 1)
    assert len(found) == PARTITIONS, found
    assert max(found.values()) < len(VALUES) / 3, found


def test_many_bytes_fill_large_batches_all_the_same() -> None:
    """Turns become longer, so that a batch of 256 KiB is one, where a producer sends more than its broker takes."""
    value = b"x" * 1000
    with TestBroker() as broker:
        topic = broker.create_topic(partitions=2)
        with Producer(broker.bootstrap, linger_ms=10_000) as producer:
            handles = [producer.send(topic, value) for _ in range(8000)]
            producer.flush()
            batches: Counter[Any] = Counter(id(handle.batch_future) for handle in handles[4000:])
        found = Counter(message.partition for message in broker.produced(topic))
    assert max(batches.values()) > 200
    assert min(found.values()) > 3000, found


def test_single_partition_gets_whole_batches() -> None:
    with TestBroker() as broker:
        topic = broker.create_topic(partitions=1)
        with Producer(broker.bootstrap, linger_ms=10_000, batch_size=100_000) as producer:
            producer.send(topic, b"first")
            producer.flush()
            handles = [producer.send(topic, b"x" * 1000) for _ in range(90)]
            producer.flush()
            assert len({id(handle.batch_future) for handle in handles}) == 1
