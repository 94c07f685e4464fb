"""Messages that Kafka 0.10 and 1.1 have stored in the formats 0 and 1: import, identical mirror, consumer."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from support.command import barnabas_here
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S, wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas import SimpleConsumer
from barnabas.app.embedded_broker import Broker
from barnabas.app.mirror.identical import IdenticalMirror

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-folder")]

CODECS = ("none", "gzip", "snappy", "lz4")
COUNT = 300
COMMITTED = 100
Found = list[tuple[int, int, bytes | None, bytes | None]]


class Old(NamedTuple):
    """A broker of Kafka with its format of messages, and the magic byte of that format."""

    server: KafkaServer
    data: Path
    magic: int


RELEASES = [("1.1.1", "0.9.0", 0), ("1.1.1", "0.10.2", 1), ("0.10.2.2", "0.10.2", 1)]


@pytest.fixture(params=RELEASES, ids=["1.1-0.9", "1.1-0.10", "0.10"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    release, message_format, magic = request.param
    for name in ("kafka", "zookeeper"):
        (tmp_path / name).mkdir()
    zookeeper = ZookeeperServer(tmp_path / "zookeeper")
    zookeeper.start()
    try:
        zookeeper.wait_ready()
        more = {"log.message.format.version": message_format, "log.segment.bytes": "32768"}
        server = KafkaServer(
            tmp_path / "kafka",
            release=release,
            zookeeper=f"127.0.0.1:{zookeeper.port}",
            more=more,
        )
        server.start()
        try:
            server.wait_ready()
            yield Old(server, tmp_path / "kafka" / "data", magic)
        finally:
            server.kill()
    finally:
        zookeeper.kill()


def fill(bootstrap: str) -> None:
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "batch.size": 8192}
        )
        for number in range(COUNT):
            key = None if number % 3 == 0 else b"%d" % number
            value = None if number % 50 == 1 else b"%s of %d" % (codec.encode(), number) * (1 + number % 7)
            producer.produce("t", value, key=key, partition=0, on_delivery=_delivered)
        assert producer.flush(PATIENCE_S) == 0
    consumer = reader(bootstrap)
    consumer.commit(offsets=[TopicPartition("t", 0, COMMITTED)], asynchronous=False)
    consumer.close()


def _delivered(error: KafkaError | None, _message: object) -> None:
    assert error is None, error


def reader(bootstrap: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "enable.auto.commit": False}
    )


def read(bootstrap: str) -> Found:
    consumer = reader(bootstrap)
    consumer.assign([TopicPartition("t", 0, 0)])
    found: Found = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        kind, time_ms = message.timestamp()
        time_ms = time_ms if kind else -1  # a batch has the time -1 where a message of format 0 has none
        found.append((message.offset() or 0, time_ms, message.key(), message.value()))
    consumer.close()
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_import_keeps_offsets_timestamps_and_groups_and_kafka_starts_again(old: Old, tmp_path: Path) -> None:
    kafka = old.server
    fill(kafka.bootstrap)
    at_kafka = read(kafka.bootstrap)
    assert len(at_kafka) == COUNT * len(CODECS)
    segments = sorted((old.data / "t-0").glob("*.log"))
    assert {path.read_bytes()[16] for path in segments} == {old.magic}
    kafka.kill()
    before = contents(old.data)
    words = ["--json", "--zookeeper", kafka.zookeeper or ""]
    report: Any = json.loads(barnabas_here("import", old.data, "--into", tmp_path / "data", *words).stdout)
    assert contents(old.data) == before
    assert report["copied"]["converted_segments"] >= len(segments)
    assert json.loads(barnabas_here("log", "verify", "--json", tmp_path / "data").stdout)["problems"] == []
    with Broker(tmp_path / "data") as broker:
        assert read(broker.bootstrap) == at_kafka
        consumer = reader(broker.bootstrap)
        (committed,) = consumer.committed([TopicPartition("t", 0)], PATIENCE_S)
        assert committed.offset == COMMITTED
        consumer.close()
    kafka.start()
    kafka.wait_ready()
    kafka.wait_for_topic("t")
    assert read(kafka.bootstrap) == at_kafka


def test_mirror_and_consumer_read_them(old: Old, tmp_path: Path) -> None:
    if old.server.release == "0.10.2.2":
        pytest.skip("a mirror needs the requests of Kafka 0.11")
    fill(old.server.bootstrap)
    at_kafka = read(old.server.bootstrap)
    with SimpleConsumer(old.server.bootstrap) as consumer:
        pieces = consumer.read("t", 0, 0)
        ours = [(each.offset, each.timestamp_ms, each.key, each.value) for piece in pieces for each in piece]
    assert ours == at_kafka
    with Broker(tmp_path / "data") as broker:
        mirror = IdenticalMirror(
            {"bootstrap.servers": old.server.bootstrap}, {"bootstrap.servers": broker.bootstrap}, topics="t"
        )
        thread = threading.Thread(target=mirror.run)
        thread.start()
        try:
            wait_for(lambda: mirror.copied.bytes > 0 and not mirror.differences(), PATIENCE_S)
        finally:
            mirror.stop()
            thread.join()
            mirror.promote("t")
            mirror.close()
        assert read(broker.bootstrap) == at_kafka
