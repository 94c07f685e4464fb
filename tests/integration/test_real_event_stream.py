"""A real event stream through the broker, byte for byte, by librdkafka and by kcat, with each codec; and kill -9."""

import gzip
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from support.confluent import AdminClient, NewTopic
from support.process import BrokerProcess, broker_process
from support.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("stream")]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
kcat_installed = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@pytest.fixture(scope="module")
def events(data_dir: Path) -> list[bytes]:
    return gzip.decompress((data_dir / "zeek_events.ndjson.gz").read_bytes()).splitlines()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("stream") / "data") as running:
        yield running


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)


def send(bootstrap: str, topic: str, lines: list[bytes], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    errors: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    for line in lines:
        while True:
            try:
                producer.produce(topic, line, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert not errors


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            # The end is a message, too, and stays in the batch until it is full or its linger time is over.
            for message in consumer.consume(10_000, timeout=0.1):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return values
        raise TimeoutError(f"{topic} has no end after {len(values)} messages")
    finally:
        consumer.close()


@pytest.mark.data
@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_round_trip(broker: BrokerProcess, events: list[bytes], codec: str) -> None:
    topic = f"rdkafka-{codec}"
    create(broker, topic)
    send(broker.bootstrap, topic, events, **{"compression.type": codec})
    assert read_all(broker.bootstrap, topic) == events


@pytest.mark.data
@kcat_installed
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_round_trip(broker: BrokerProcess, events: list[bytes], codec: str) -> None:
    topic = f"kcat-{codec}"
    create(broker, topic)
    content = b"\n".join(events) + b"\n"
    base = ["kcat", "-b", broker.bootstrap, "-t", topic, "-p", "0"]
    subprocess.run([*base, "-P", "-z", codec], input=content, check=True, timeout=PATIENCE_S)
    read = subprocess.run(
        [*base, "-C", "-e", "-q", "-o", "beginning"], stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S
    )
    assert read.stdout == content


def test_kill_keeps_what_was_acknowledged_and_serves_nothing_damaged(tmp_path: Path) -> None:
    """The log is killed in the middle of production; then a torn write is added to the end of its newest segment."""
    data = tmp_path / "data"
    acknowledged: dict[int, bytes] = {}
    enough = threading.Event()

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]
            if len(acknowledged) >= 20_000:
                enough.set()

    settings = ("log.segment.bytes=1000000", "log.flush.interval.messages=1000")
    with broker_process(data, *settings) as running:
        create(running, "killed")
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 1})
        number = 0
        while not enough.is_set():
            try:
                producer.produce("killed", b"%010d" % number + bytes(90), partition=0, on_delivery=delivered)
                number += 1
                producer.poll(0)
            except BufferError:  # its queue is full: the broker has little time now
                producer.poll(0.1)
        running.kill()
        producer.purge()
        producer.flush(PATIENCE_S)
    newest = max((data / "killed-0").glob("*.log"))
    with newest.open("ab") as segment:
        segment.write(newest.read_bytes()[:130])
    with broker_process(data, *settings) as running:
        values = read_all(running.bootstrap, "killed")
        assert {offset: values[offset] for offset in acknowledged} == acknowledged
        numbers = [int(value[:10]) for value in values]
        assert sorted(set(numbers)) == list(range(max(numbers) + 1))
        send(running.bootstrap, "killed", [b"after"])
        assert read_all(running.bootstrap, "killed") == [*values, b"after"]
