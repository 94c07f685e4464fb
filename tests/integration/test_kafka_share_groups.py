"""Share groups of Apache Kafka: our share consumer alone, with others, and with confluent-kafka's."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from support.command import barnabas_here
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, AsyncShareConsumer, Producer, ShareConsumer
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow]

PARTITIONS = 3
LOCK_MS = 15_000
SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), more=SETTINGS)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def topic(server: KafkaServer) -> str:
    """A topic, and a share group of its name that reads it from its beginning."""
    return topic_of(server, PARTITIONS)


@pytest.fixture
def narrow(server: KafkaServer) -> str:
    """Such a topic of one partition, so that all members of its group have that one."""
    return topic_of(server, 1)


def topic_of(server: KafkaServer, partitions: int) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with Admin(server.bootstrap) as admin:
        admin.create_topic(name, partitions=partitions)
        admin.alter_configs(
            ResourceKind.GROUP,
            name,
            {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)},
        )
    return name


def fill(server: KafkaServer, topic: str, count: int, first: int = 0, **settings: Any) -> set[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    with Producer(server.bootstrap, **settings) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % PARTITIONS)
    return set(values)


def consumer_of(server: KafkaServer, topic: str, **settings: Any) -> ShareConsumer[Any, Any]:
    consumer: ShareConsumer[Any, Any] = ShareConsumer(server.bootstrap, group_id=topic, **settings)
    consumer.subscribe(topic)
    return consumer


def drain(consumer: ShareConsumer[Any, Any], until: Any) -> list[Any]:
    """Take messages, accepted by the next call in implicit mode, until something is true."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while not until(found):
        assert time.monotonic() < deadline, len(found)
        found += consumer.poll_many(timeout=0.2)
    return found


def assert_nothing_left(server: KafkaServer, topic: str) -> None:
    with consumer_of(server, topic) as consumer:
        drain(consumer, lambda _: consumer.assignment)
        assert consumer.poll(2) is None


def test_every_message_comes_once_and_none_after_commit(server: KafkaServer, topic: str) -> None:
    values = fill(server, topic, 300, compression_type="gzip")
    with consumer_of(server, topic) as consumer:
        found = drain(consumer, lambda found: len(found) >= 300)
        assert {message.value for message in found} == values
        assert len(found) == 300
        assert {message.delivery_count for message in found} == {1}
        results = consumer.commit_sync()
        assert set(results.values()) <= {None}
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
    assert_nothing_left(server, topic)


def test_kinds_of_acknowledgements(server: KafkaServer, topic: str) -> None:
    fill(server, topic, 30)
    with consumer_of(server, topic, share_acknowledgement_mode="explicit") as consumer:
        counts: Counter[bytes] = Counter()
        deadline = time.monotonic() + PATIENCE_S
        while sum(counts.values()) < 20 + 10 * 2:
            assert time.monotonic() < deadline, counts
            for message in consumer.poll_many(timeout=0.5):
                counts[message.value] += 1
                assert message.delivery_count == counts[message.value]
                number = int(message.value)
                again = "release" if message.delivery_count == 1 else "accept"
                consumer.acknowledge(message, {0: "accept", 1: again, 2: "reject"}[number % 3])
            assert not any(consumer.commit_sync().values())
        assert sorted(counts.values()) == [1] * 20 + [2] * 10
    assert_nothing_left(server, topic)


def test_renewed_message_outlives_its_lock(server: KafkaServer, narrow: str) -> None:
    fill(server, narrow, 1)
    with (
        consumer_of(server, narrow, share_acknowledgement_mode="explicit") as slow,
        consumer_of(server, narrow) as other,
    ):
        (message,) = drain(slow, bool)
        began = time.monotonic()
        while time.monotonic() < began + 1.5 * LOCK_MS / 1000:
            slow.acknowledge(message, "renew")
            assert slow.commit_sync() == {TopicPartition(narrow, 0): None}
            assert other.poll(3) is None
        slow.acknowledge(message)
        assert slow.commit_sync() == {TopicPartition(narrow, 0): None}
    assert_nothing_left(server, narrow)


def test_lapsed_message_goes_to_another_member(server: KafkaServer, narrow: str) -> None:
    fill(server, narrow, 1)
    with (
        consumer_of(server, narrow, share_acknowledgement_mode="explicit") as slow,
        consumer_of(server, narrow) as other,
    ):
        (message,) = drain(slow, bool)
        (again,) = drain(other, bool)
        assert (again.value, again.delivery_count) == (message.value, 2)
        other.commit_sync()
        slow.acknowledge(message)
        (error,) = slow.commit_sync().values()
        # below the start of the share partition, Kafka passes acknowledgements over
        assert error is None or (isinstance(error, ApiError) and error.code is ErrorCode.INVALID_RECORD_STATE)
    assert_nothing_left(server, narrow)


def test_members_share_partitions_and_leave_messages_of_each_other_alone(server: KafkaServer, topic: str) -> None:
    values = fill(server, topic, 600, batch_size=200)
    found: list[list[Any]] = [[] for _ in range(4)]
    done = threading.Event()

    def work(number: int) -> None:
        with consumer_of(server, topic, max_poll_records=10) as consumer:
            while not done.is_set():
                found[number] += consumer.poll_many(timeout=0.3)
                time.sleep(0.005)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: sum(map(len, found)) >= 600, PATIENCE_S)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    every = [message.value for each in found for message in each]
    assert set(every) == values
    assert len(every) == 600
    assert sum(1 for each in found if each) >= 2
    assert_nothing_left(server, topic)


CRASHING = """
import os, sys
from barnabas import ShareConsumer
consumer = ShareConsumer(sys.argv[1], group_id=sys.argv[2])
consumer.subscribe(sys.argv[2])
for message in consumer:
    print(message.offset, flush=True)
    if message.offset == 5:
        import time; time.sleep(600)
"""


def test_messages_of_killed_consumer_come_again(server: KafkaServer, narrow: str, tmp_path: Path) -> None:
    with Producer(server.bootstrap) as producer:
        for number in range(10):
            producer.send(narrow, b"%d" % number, partition=0)
    program = tmp_path / "crashing.py"
    program.write_text(CRASHING)
    with subprocess.Popen(
        [sys.executable, str(program), server.bootstrap, narrow], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "5":
                break
        time.sleep(2.5)  # the first five are acknowledged meanwhile
        os.kill(process.pid, signal.SIGKILL)
    with consumer_of(server, narrow) as consumer:
        found = drain(consumer, lambda found: len(found) >= 5)
    assert [(message.offset, message.delivery_count) for message in found] == [(offset, 2) for offset in range(5, 10)]
    assert_nothing_left(server, narrow)


def test_broker_that_starts_again_costs_nothing_but_repetition(server: KafkaServer, topic: str) -> None:
    values = fill(server, topic, 60)
    with consumer_of(server, topic, max_poll_records=10) as consumer:
        found = drain(consumer, lambda found: len(found) >= 20)
        consumer.commit_sync()
        server.kill()
        server.start()
        server.wait_ready()
        found += drain(consumer, lambda more: {message.value for message in [*found, *more]} == values)
    assert len(found) <= 60 + 2 * 20
    assert_nothing_left(server, topic)


def test_consumer_of_confluent_kafka_shares_group_with_ours(server: KafkaServer, topic: str) -> None:
    values = fill(server, topic, 400, batch_size=200)
    other = confluent_kafka.ShareConsumer({"bootstrap.servers": server.bootstrap, "group.id": topic})
    other.subscribe([topic])
    theirs: list[Any] = []
    ours: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        with consumer_of(server, topic, max_poll_records=10) as consumer:
            while set(theirs + ours) != values:
                assert time.monotonic() < deadline
                theirs += [message.value() for message in other.poll(0.2) if message.error() is None]
                ours += [message.value for message in consumer.poll_many(timeout=0.2)]
            other.commit_sync()
    finally:
        other.close()
    assert len(theirs + ours) == 400
    assert_nothing_left(server, topic)


def test_transactions_and_record_limit(server: KafkaServer, topic: str) -> None:
    """Markers of transactions are gaps among the acquired records; the default isolation reads aborted ones."""
    with Producer(server.bootstrap, transactional_id=topic) as producer:
        for number in range(5):
            with producer.transaction():
                for part in range(4):
                    producer.send(topic, b"%d" % (4 * number + part), partition=0)
    with consumer_of(server, topic, max_poll_records=3, share_acquire_mode="record_limit") as consumer:
        found = drain(consumer, lambda found: len(found) >= 20)
        assert [message.value for message in found] == [b"%d" % number for number in range(20)]
        assert consumer.metrics()["records-per-request-avg"] <= 3
        consumer.commit_sync()
    assert_nothing_left(server, topic)


def test_consume_command_accepts_what_it_prints(server: KafkaServer, narrow: str) -> None:
    fill(server, narrow, 1)
    common = ("consume", narrow, "--share", "--group", narrow, "--bootstrap", server.bootstrap)
    (line,) = barnabas_here(*common, "--count", "1", "--json").stdout.splitlines()
    assert (json.loads(line)["value"], json.loads(line)["delivery_count"]) == ("0", 1)
    assert barnabas_here(*common, "--timeout", "3").stdout == b""


def test_group_of_another_type_says_so(server: KafkaServer, topic: str) -> None:
    from barnabas import Consumer

    with Consumer(server.bootstrap, group_id=topic, group_protocol="consumer") as plain:
        plain.subscribe(topic)
        plain.poll(5)
        wait_for(lambda: plain.poll(0.1) is None and plain.settled, PATIENCE_S)
        with consumer_of(server, topic) as consumer, pytest.raises(ApiError, match="not a share group"):
            consumer.poll(PATIENCE_S)


def test_asyncio_consumer_reads_every_message(server: KafkaServer, topic: str) -> None:
    values = fill(server, topic, 50)

    async def run() -> set[bytes | None]:
        found: set[bytes | None] = set()
        async with AsyncShareConsumer(server.bootstrap, group_id=topic) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                found.add(message.value)
                if len(found) == 50:
                    break
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == values
    assert_nothing_left(server, topic)
