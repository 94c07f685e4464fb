"""Reads of tiered topics from the bucket itself: the rows that brokers would return, without asking them for these."""

import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from attrs import evolve
from confluent_kafka import Producer
from support.command import barnabas_here
from support.ports import free_port
from support.tiered_topics import QUICK, TIERED, wait_for, write
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, SimpleConsumer
from barnabas.app.clients.consumer.remote_ranges import RemoteRanges
from barnabas.core.tiering.manifest import TieredTopic, decode_manifest, encode_manifest, manifest_key
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.offsets import EARLIEST_LOCAL, LATEST_TIERED
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition

WRITTEN = 600


class Tiered(NamedTuple):
    broker: Broker
    folder: Path
    """The remote storage."""
    metrics: str

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    @property
    def topic_id(self) -> bytes:
        with Admin(self.broker.bootstrap) as admin:
            return bytes(admin.describe_topics(["t"])[0].topic_id)

    def remote_fetches(self) -> float:
        """Return how often the broker has read its remote storage for clients."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        name = "kafka_server_brokertopicmetrics_remotefetchrequests_total"
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Tiered]:
    """Records of which the last some are on the broker's disk, the others in the store only."""
    folder, metrics = tmp_path / "remote", f"127.0.0.1:{free_port()}"
    config = {**QUICK, "remote.log.storage.manager.class.name": f"file://{folder}", "num.partitions": 1}
    config["transaction.state.log.num.partitions"] = 1
    with Broker(tmp_path / "data", config=config, metrics_listen=metrics) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
        yield Tiered(broker, folder, metrics)


def wait_until_copied(tiered: Tiered, tmp_path: Path) -> None:
    wait_for(lambda: len(list((tmp_path / "data" / "t-0").glob("*.log"))) == 1)


def query(tiered: Tiered, *options: str) -> tuple[str, str]:
    statement = 'select "offset", value, timestamp from t order by "offset"'
    done = barnabas_here("query", statement, "-b", str(tiered.broker.bootstrap), "--format", "csv", *options)
    return done.stdout.decode(), done.stderr.decode()


def rows(
    tiered: Tiered, start: int, end: int, level: str = "read_committed", *, direct: bool
) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    with SimpleConsumer(tiered.broker.bootstrap, isolation_level=level) as consumer, RemoteRanges(tiered.url) as ranges:
        remote = ranges.find(consumer, TopicPartition("t", 0), tiered.topic_id) if direct else None
        for table in consumer.read_arrow("t", 0, start, end, remote=remote):
            found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def test_query_with_bucket_returns_rows_of_brokers_without_their_remote_reads(tiered: Tiered, tmp_path: Path) -> None:
    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    wait_until_copied(tiered, tmp_path)
    with SimpleConsumer(tiered.broker.bootstrap) as consumer:
        local = consumer.offset_at("t", 0, EARLIEST_LOCAL)
    assert 0 < local < WRITTEN
    direct, said = query(tiered, "--from-bucket", tiered.url)
    assert f"t-0: offsets 0 to {local} from {tiered.url}, offsets {local} to {WRITTEN} through the brokers" in said
    assert tiered.remote_fetches() == 0
    through_brokers, said = query(tiered)
    assert direct == through_brokers
    assert len(direct.splitlines()) == WRITTEN + 1
    assert "from file://" not in said
    assert tiered.remote_fetches() > 0


@pytest.mark.parametrize(("start", "end"), [(0, 600), (1, 2), (77, 333), (599, 600)])
def test_direct_read_of_a_range_equals_that_through_brokers(
    tiered: Tiered, tmp_path: Path, start: int, end: int
) -> None:
    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    wait_until_copied(tiered, tmp_path)
    found = rows(tiered, start, end, direct=True)
    assert tiered.remote_fetches() == 0
    assert [offset for offset, _ in found] == list(range(start, end))
    assert found == rows(tiered, start, end, direct=False)


def test_direct_read_leaves_out_aborted_transactions_as_brokers_do(tiered: Tiered, tmp_path: Path) -> None:
    """One that has records in the store has its marker on the broker's disk."""
    producer = Producer({"bootstrap.servers": tiered.broker.bootstrap, "transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(30)

    def write_transaction(records: int, size: int) -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce("t", value=b"x" * size, partition=0)
            producer.flush(PATIENCE_S)

    for number in range(5):
        write_transaction(5, 600)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    write_transaction(20, 900)
    producer.abort_transaction(30)
    wait_until_copied(tiered, tmp_path)
    with SimpleConsumer(tiered.broker.bootstrap) as consumer:
        end, local = (consumer.offset_at("t", 0, time) for time in (-1, EARLIEST_LOCAL))
    assert end - 21 < local < end - 1
    levels = {"read_committed": 15, "read_uncommitted": 45}
    direct = {level: rows(tiered, 0, end, level, direct=True) for level in levels}
    assert tiered.remote_fetches() == 0
    assert {level: len(found) for level, found in direct.items()} == levels
    assert direct == {level: rows(tiered, 0, end, level, direct=False) for level in levels}


def test_segments_that_vanish_during_a_direct_read_come_through_brokers(tiered: Tiered, tmp_path: Path) -> None:
    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    wait_until_copied(tiered, tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(tiered.folder, copy)
    found: list[int] = []
    with SimpleConsumer(tiered.broker.bootstrap) as consumer, RemoteRanges(f"file://{copy}") as ranges:
        remote = ranges.find(consumer, TopicPartition("t", 0), tiered.topic_id)
        for number, table in enumerate(consumer.read_arrow("t", 0, 0, WRITTEN, remote=remote)):
            found += table["offset"].to_pylist()
            if number == 1:
                for path in copy.rglob("*.log"):
                    path.unlink()
                assert tiered.remote_fetches() == 0
    assert found == list(range(WRITTEN))
    assert tiered.remote_fetches() > 0


def test_damaged_segment_in_the_bucket_is_not_read(tiered: Tiered, tmp_path: Path) -> None:
    from barnabas.core.message.corrupt_record import CorruptRecord

    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    wait_until_copied(tiered, tmp_path)
    damaged = sorted(tiered.folder.rglob("*.log"))[0]
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptRecord):
        rows(tiered, 0, WRITTEN, direct=True)


def test_copied_segments_that_are_also_local_come_from_brokers(tiered: Tiered) -> None:
    with Admin(tiered.broker.bootstrap) as admin:
        admin.alter_configs(ResourceKind.TOPIC, "t", {"local.retention.bytes": "-2", "local.retention.ms": "-2"})
    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    with SimpleConsumer(tiered.broker.bootstrap) as consumer:
        wait_for(lambda: consumer.offset_at("t", 0, LATEST_TIERED) > 400)
    for path in tiered.folder.rglob("*.log"):
        path.write_bytes(b"")
    _, said = query(tiered, "--from-bucket", tiered.url)
    assert f"t-0: offsets 0 to {WRITTEN} through the brokers" in said
    assert len(rows(tiered, 0, WRITTEN, direct=True)) == WRITTEN


def test_bucket_without_the_topic_leaves_all_to_brokers(tiered: Tiered, tmp_path: Path) -> None:
    write(tiered.broker.bootstrap, "t", range(50))
    (tmp_path / "other").mkdir()
    found, said = query(tiered, "--from-bucket", f"file://{tmp_path}/other")
    assert "t-0: offsets 0 to 50 through the brokers" in said
    assert len(found.splitlines()) == 51


def test_manifest_of_another_topic_is_refused(tiered: Tiered, tmp_path: Path) -> None:
    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    wait_until_copied(tiered, tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(tiered.folder, copy)
    path = copy / manifest_key(TopicPartition("t", 0), tiered.topic_id)
    manifest = decode_manifest(path.read_bytes())
    other = TieredTopic(name="t", topic_id=bytes(15) + b"\1", partitions=1)
    path.write_bytes(encode_manifest(evolve(manifest, topic=other)))
    with (
        SimpleConsumer(tiered.broker.bootstrap) as consumer,
        RemoteRanges(f"file://{copy}") as ranges,
        pytest.raises(ConfigError, match="not of t-0"),
    ):
        ranges.find(consumer, TopicPartition("t", 0), tiered.topic_id)
