"""Topics in remote storage: what clients read from both tiers is what was acknowledged."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.s3_server import S3Server

from barnabas import Admin, Broker

TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "8000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
QUICK: dict[str, object] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
}


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def write(bootstrap: str, topic: str, numbers: range, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.size": 4000, **settings})
    for number in numbers:
        producer.produce(topic, value=f"{number:06d}".encode() * 20, partition=0, timestamp=1_000_000 + number)
        if number % 50 == 49:
            producer.flush()
    assert producer.flush(30) == 0


def read_all(bootstrap: str, topic: str, start: int, end: int, **settings: object) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    try:
        while len(found) < end - start:
            assert time.monotonic() < deadline, f"only {len(found)} came"
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                found.append(int((message.value() or b"")[:6]))
    finally:
        consumer.close()
    return found


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "folder":
        return {"remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}
    server: S3Server = request.getfixturevalue("s3_server")
    return {
        "remote.log.storage.manager.class.name": server.make_bucket(),
        **{f"rsm.config.{name}": value for name, value in server.settings.items()},
    }


def test_records_are_read_from_both_tiers_in_order(tmp_path: Path, remote: dict[str, str]) -> None:
    with Broker(tmp_path / "data", config={**QUICK, **remote}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
        write(broker.bootstrap, "t", range(600))
        folder = tmp_path / "data" / "t-0"
        wait_for(lambda: len(list(folder.glob("*.log"))) == 1)
        assert int(min(folder.glob("*.log")).stem) > 400
        assert read_all(broker.bootstrap, "t", 0, 600) == list(range(600))
        assert read_all(broker.bootstrap, "t", 277, 600) == list(range(277, 600))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30) == (0, 600)
        found = consumer.offsets_for_times([TopicPartition("t", 0, 1_000_155)], timeout=30)
        assert found[0].offset == 155
        consumer.close()
    with Broker(tmp_path / "data", config={**QUICK, **remote}) as broker:
        write(broker.bootstrap, "t", range(600, 650))
        assert read_all(broker.bootstrap, "t", 0, 650) == list(range(650))


@pytest.mark.slow
def test_topic_is_restored_from_remote_storage_alone(tmp_path: Path, command: Path) -> None:
    remote = {"remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}
    with Broker(tmp_path / "lost", config={**QUICK, **remote}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=2, configs=TIERED)
        write(broker.bootstrap, "t", range(600))
        wait_for(lambda: len(list((tmp_path / "lost" / "t-0").glob("*.log"))) == 1)
    shown = run(command, "log", "tier", "status", "--from", f"file://{tmp_path}/remote", "--json")
    (zero,) = [row for row in json.loads(shown) if row["partition"] == 0]
    assert (zero["topic"], zero["start"], zero["unfinished"]) == ("t", 0, 0)
    assert 400 < zero["end"] <= 600
    with Broker(tmp_path / "new", config={**QUICK, **remote}) as broker:
        said = run(command, "topics", "restore", "--bootstrap", broker.bootstrap, "--from", f"file://{tmp_path}/remote")
        assert f"restored t: 2 partitions, {zero['end']} offsets" in said
        assert read_all(broker.bootstrap, "t", 0, zero["end"]) == list(range(zero["end"]))
        write(broker.bootstrap, "t", range(zero["end"], zero["end"] + 10))
        assert read_all(broker.bootstrap, "t", 0, zero["end"] + 10) == list(range(zero["end"] + 10))
        with Admin(broker.bootstrap) as admin:
            assert admin.topic_overrides("t")["remote.storage.enable"] == "true"


def run(command: Path, *words: str) -> str:
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
