"""docs/moving.md: a live cluster of Apache Kafka moves to Barnabas, with the commands of the page; librdkafka's and
Java's clients continue where they were."""

import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from support.compat.java_client import java_4
from support.compat.model import Record, Start, Unavailable
from support.confluent import AdminClient, NewTopic
from support.kafka_server import KafkaServer
from support.process import COMMAND, BrokerProcess, barnabas
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

STOP_GOAL_S = 5.0
TEN_TIMES = 10
"""A machine that is as much slower than those on which a stop takes less than a second."""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    (tmp_path / "kafka").mkdir()
    server = KafkaServer(tmp_path / "kafka")
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()


class RunningProducer:
    """A producer of librdkafka that writes numbers until it is stopped; `sent` are those that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: list[int] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            self._send(number)
            self._producer.poll(0.001)
            number += 1
        self._producer.flush(PATIENCE_S)

    def _send(self, number: int) -> None:
        def done(error: object, _: object) -> None:
            assert error is None
            self.sent.append(number)

        self._producer.produce("orders", b"%d" % number, partition=number % 2, on_delivery=done)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def consumer(bootstrap: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "app", "auto.offset.reset": "earliest"})


def poll(member: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        for message in member.consume(count - len(found), PATIENCE_S):
            assert message.error() is None
            found.append(int(message.value() or b""))
    return found


def test_live_cluster_moves_topic_by_topic(kafka: KafkaServer, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    wait_for(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 1, PATIENCE_S)
    admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "-1"})])["orders"].result(PATIENCE_S)
    producer = RunningProducer(kafka.bootstrap)
    target = BrokerProcess(tmp_path / "data")
    files = {"source": kafka.bootstrap, "target": target.bootstrap}
    for name, bootstrap in files.items():
        (tmp_path / f"{name}.properties").write_text(f"bootstrap.servers={bootstrap}\n")
    words = ["mirror", "--identical"]
    for name in files:
        words += [f"--{name}-config", str(tmp_path / f"{name}.properties")]
    mirror = subprocess.Popen([str(COMMAND), *words, "--whitelist", "orders"], stdout=subprocess.PIPE)
    try:
        wait_for(lambda: len(producer.sent) > 500, PATIENCE_S)
        member = consumer(kafka.bootstrap)
        member.subscribe(["orders"])
        seen = poll(member, 200)
        member.commit(asynchronous=False)
        member.close()
        with Admin(target.bootstrap) as copies:
            wait_for(lambda: len(copies.group_offsets("app")) > 0, PATIENCE_S)
        began = time.monotonic()
        producer.stop()
        said = barnabas(*words, "--promote", "orders").stdout.decode()
        stopped_s = time.monotonic() - began
        assert stopped_s < STOP_GOAL_S * TEN_TIMES
        found = re.search(r"since ([\d.]+) s", said)
        assert found is not None
        print(f"stop: {float(found[1]):.2f} s, with the start of the command {stopped_s:.2f} s")
        # librdkafka
        after = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True})
        last = len(producer.sent)
        after.produce("orders", b"%d" % last, partition=0)
        assert after.flush(PATIENCE_S) == 0
        member = consumer(target.bootstrap)
        member.subscribe(["orders"])
        seen += poll(member, last + 1 - len(seen))
        member.close()
        assert sorted(seen) == list(range(last + 1))
        # Java
        try:
            java = java_4(target.bootstrap)
        except Unavailable as error:
            pytest.skip(f"the Java client cannot be had here: {error}")
        try:
            java.produce("orders", [Record(value=b"%d" % (last + 1))])
            for number in range(2):
                values = [*range(number, last, 2), *([last] if number == 0 else [])]
                read = java.read("orders", len(values), Start(partition=number))
                assert [int(each.value or b"") for each in read] == values
        finally:
            java.close()
        member = consumer(target.bootstrap)
        member.subscribe(["orders"])
        assert poll(member, 1) == [last + 1]
        member.close()
    finally:
        producer.stop()
        mirror.send_signal(signal.SIGTERM)
        mirror.communicate(timeout=PATIENCE_S)
        target.stop()
