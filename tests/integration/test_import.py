"""`barnabas import` of folders made by hand: what is taken over and refused, and that the source stays as it is."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from support.classic_frames import entry, message_set
from support.command import Command
from support.etcd_server import EtcdServer
from support.kafka_folder import CLUSTER, CLUSTER_ID, ORDERS_ID, SECURITY, KafkaDataDir, legacy_messages, segment_batch
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.app.embedded_broker import Broker

CLASSIC_WORDS = ("--partition", "0", "--from-beginning", "--max-messages", "3")


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def source(tmp_path: Path) -> KafkaDataDir:
    made = KafkaDataDir(tmp_path / "kafka")
    made.add_metadata([*CLUSTER, *SECURITY])
    return made


def read(broker: Broker, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is not None:
            break
        found.append((message.offset() or 0, message.value()))
    consumer.close()
    return found


def imported(barnabas: Command, into: Path, *words: str | Path) -> Any:
    return json.loads(barnabas("import", *map(str, words), "--into", str(into), "--json").out)


def test_import_of_a_crashed_folder_serves_what_was_intact(
    barnabas: Command, source: KafkaDataDir, tmp_path: Path
) -> None:
    torn = segment_batch([b"torn"], 3)[:-2]
    first, second = segment_batch([b"a", b"b"], 0), segment_batch([b"c"], 2)
    source.add_partition("orders-0", {0: first, 2: second + torn})
    before = source.contents()
    report = imported(barnabas, tmp_path / "data", source.path)
    assert source.contents() == before
    assert (report["cluster_id"], report["executed"], report["entities"]) == (CLUSTER_ID, True, {"acls": 1, "users": 1})
    assert report["features"] == {"group.version": 1}
    assert report["next_producer_id"] == 1000
    with Broker(tmp_path / "data") as broker, Admin(broker.bootstrap) as admin:
        assert read(broker, "orders") == [(0, b"a"), (1, b"b"), (2, b"c")]
        (topic,) = admin.describe_topics(["orders"])
        assert topic.topic_id == ORDERS_ID
        assert topic.partitions[0].leader_epoch == 1
        assert admin.topic_overrides("orders") == {"retention.ms": "-1"}


def test_dry_run_writes_nothing(barnabas: Command, source: KafkaDataDir, tmp_path: Path) -> None:
    source.add_partition("orders-0", {0: segment_batch([b"a"], 0)})
    report = imported(barnabas, tmp_path / "data", source.path, "--dry-run")
    assert [topic["topic"] for topic in report["topics"]] == ["orders"]
    assert not (tmp_path / "data").exists()


def test_linked_segments_are_copied_before_barnabas_writes_to_them(
    barnabas: Command, source: KafkaDataDir, tmp_path: Path
) -> None:
    source.add_partition("orders-0", {0: segment_batch([b"a"], 0), 1: segment_batch([b"b"], 1)})
    (source.path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    report = imported(barnabas, tmp_path / "data", source.path, "--link")
    assert report["copied"]["linked_segments"] == 1
    before = source.contents()
    log = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    assert log.stat().st_nlink == 2
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "orders") == [(0, b"a"), (1, b"b")]
    assert source.contents() == before


def test_replica_with_the_highest_epoch_then_end_is_taken(barnabas: Command, tmp_path: Path) -> None:
    first, second, third = (KafkaDataDir(tmp_path / f"kafka-{number}", node_id=number) for number in (1, 2, 3))
    for each in (first, second, third):
        each.add_metadata(CLUSTER)
    old = segment_batch([b"never committed", b"x", b"y"], 0)
    first.add_partition("orders-0", {0: old})
    second.add_partition("orders-0", {0: segment_batch([b"a"], 0, 1)}, epochs=[(1, 0)])
    third.add_partition("orders-0", {0: segment_batch([b"a", b"b"], 0, 1)}, epochs=[(1, 0)])
    report = imported(barnabas, tmp_path / "data", first.path, second.path, third.path)
    assert [topic["from"] for topic in report["topics"]] == [str(third.path)]
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "orders") == [(0, b"a"), (1, b"b")]


def test_missing_partition_is_refused_unless_allowed(barnabas: Command, source: KafkaDataDir, tmp_path: Path) -> None:
    ended = barnabas("import", str(source.path), "--into", str(tmp_path / "data"), expect=1)
    assert "orders-0" in ended.err
    assert "--allow-missing" in ended.err
    assert not (tmp_path / "data").exists()
    imported(barnabas, tmp_path / "data", source.path, "--allow-missing")
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "orders") == []


def test_messages_from_before_batches_are_converted(barnabas: Command, source: KafkaDataDir, tmp_path: Path) -> None:
    """With the format raised within a segment, and lowered within the one before."""
    segments = {
        0: segment_batch([b"0", b"1"], 0),
        2: segment_batch([b"2"], 2) + legacy_messages([3]),
        4: legacy_messages(range(4, 6)) + segment_batch([b"6", b"7"], 6),
        8: segment_batch([b"8"], 8) + legacy_messages([9]) + b"torn",
    }
    source.add_partition("orders-0", segments)
    (source.path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    before = source.contents()
    plan = imported(barnabas, tmp_path / "data", source.path, "--dry-run")
    assert plan["topics"][0]["note"] == "3 segments converted to record batches"
    report = imported(barnabas, tmp_path / "data", source.path, "--link")
    assert report["copied"]["converted_segments"] == 3
    assert report["copied"]["linked_segments"] == 1
    assert "formats 0 and 1" in report["notes"][-1]
    assert source.contents() == before
    data = tmp_path / "data"
    assert json.loads(barnabas("log", "verify", "--json", str(data)).out)["problems"] == []
    with Broker(data) as broker:
        assert read(broker, "orders") == [(number, b"%d" % number) for number in range(10)]


def test_replica_with_more_messages_from_before_batches_is_taken(barnabas: Command, tmp_path: Path) -> None:
    short, long = (KafkaDataDir(tmp_path / f"kafka-{number}", node_id=number) for number in (1, 2))
    for each, count in ((short, 2), (long, 3)):
        each.add_metadata(CLUSTER)
        each.add_partition("orders-0", {0: segment_batch([b"0"], 0) + legacy_messages(range(1, count))}, epochs=[])
    report = imported(barnabas, tmp_path / "data", short.path, long.path)
    assert [topic["from"] for topic in report["topics"]] == [str(long.path)]


def test_damaged_message_from_before_batches_ends_the_log(
    barnabas: Command, source: KafkaDataDir, tmp_path: Path
) -> None:
    damaged = legacy_messages(range(2))[:-1] + b"?"
    source.add_partition("orders-0", {0: damaged, 2: segment_batch([b"2"], 2)})
    ended = barnabas("import", str(source.path), "--into", str(tmp_path / "data"))
    assert ended.code == 0
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "orders") == [(0, b"0")]


def test_folder_of_another_cluster_is_refused(barnabas: Command, source: KafkaDataDir, tmp_path: Path) -> None:
    other = KafkaDataDir(tmp_path / "other")
    text = (other.path / "meta.properties").read_text()
    (other.path / "meta.properties").write_text(text.replace(CLUSTER_ID, "AAAAAAAAAAAAAAAAAAAAAA"))
    ended = barnabas("import", str(source.path), str(other.path), "--into", str(tmp_path / "data"), expect=2)
    assert "several clusters" in ended.err


def test_target_with_files_is_refused(barnabas: Command, source: KafkaDataDir, tmp_path: Path) -> None:
    source.add_partition("orders-0", {0: segment_batch([b"a"], 0)})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").touch()
    ended = barnabas("import", str(source.path), "--into", str(tmp_path / "data"), expect=2)
    assert "not empty" in ended.err


def test_interrupted_import_begins_again(barnabas: Command, source: KafkaDataDir, tmp_path: Path) -> None:
    source.add_partition("orders-0", {0: segment_batch([b"a"], 0)})
    half = tmp_path / "data" / "orders-0"
    half.mkdir(parents=True)
    (half / "00000000000000000000.log").write_bytes(b"half")
    (tmp_path / "data" / "import-incomplete").touch()
    imported(barnabas, tmp_path / "data", source.path)
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "orders") == [(0, b"a")]


def test_folder_of_kafka_0_7_is_served_to_classic_clients(barnabas: Command, tmp_path: Path) -> None:
    folder = tmp_path / "kafka-0.7" / "page views-0"
    folder.mkdir(parents=True)
    whole = message_set(b"a", b"b")
    (folder / f"{0:020d}.kafka").write_bytes(whole)
    (folder / f"{len(whole):020d}.kafka").write_bytes(message_set(b"c") + entry(b"torn")[:-1])
    report = imported(barnabas, tmp_path / "data", folder.parent)
    assert [topic["topic"] for topic in report["topics"]] == ["page views"]
    with Broker(tmp_path / "data", listeners="classic://127.0.0.1:0") as broker:
        address = broker.listeners[0].partition("://")[2]
        out = barnabas("consume", "--bootstrap", f"classic://{address}", *CLASSIC_WORDS, "page views").out
        assert out.split() == ["a", "b", "c"]


def test_folders_of_two_brokers_of_kafka_0_7_are_refused(barnabas: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "t-0").mkdir(parents=True)
        (tmp_path / name / "t-0" / f"{0:020d}.kafka").write_bytes(message_set(b"a"))
    ended = barnabas("import", str(tmp_path / "one"), str(tmp_path / "two"), "--into", str(tmp_path / "d"), expect=1)
    assert "partitions of its own" in ended.out


def test_folder_without_metadata_gives_topics_by_their_folders(barnabas: Command, tmp_path: Path) -> None:
    source = KafkaDataDir(tmp_path / "kafka", version=0)
    source.add_partition("logs-1", {5: segment_batch([b"a"], 5)}, topic_id=None)
    source.add_partition("logs-0", {0: b""}, topic_id=None)
    report = imported(barnabas, tmp_path / "data", source.path)
    assert [(topic["topic"], topic["partitions"]) for topic in report["topics"]] == [("logs", 2)]
    assert any("ZooKeeper" in note for note in report["notes"])
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "logs", 1) == [(5, b"a")]


def cluster_broker(folder: Path, number: int, where: str) -> Broker:
    return Broker(folder, broker_id=number, coordination=where, listeners=["kafka://127.0.0.1:0"])


@pytest.mark.process
@pytest.mark.xdist_group("etcd")
def test_import_into_several_brokers_places_replicas_in_sync(
    barnabas: Command, tmp_path: Path, etcd_server: EtcdServer
) -> None:
    kafkas = [KafkaDataDir(tmp_path / f"kafka-{number}", node_id=number) for number in (1, 2, 3)]
    values = [b"a", b"b", b"c"]
    for number, each in enumerate(kafkas, 1):
        each.add_partition("orders-0", {0: segment_batch(values[:number], 0)})
    where = f"etcd://127.0.0.1:{etcd_server.port}/{tmp_path.name}"
    targets = {number: tmp_path / f"data-{number}" for number in (1, 2)}
    words = [word for number, path in targets.items() for word in ("--into", f"{number}={path}")]
    sources = [str(each.path) for each in kafkas]
    refused = barnabas("import", *sources, *words, expect=2)
    assert "--coordination" in refused.err
    report = json.loads(barnabas("import", *sources, *words, "--coordination", where, "--json").out)
    assert report["copied"]["partitions"] == 1
    again = barnabas("import", *sources, "--into", f"3={tmp_path / 'more'}", "--coordination", where, expect=2)
    assert "has a cluster already" in again.err
    for path in targets.values():
        assert json.loads(barnabas("log", "verify", "--json", str(path)).out)["problems"] == []
    with ExitStack() as running:
        brokers = [running.enter_context(cluster_broker(path, number, where)) for number, path in targets.items()]
        admin = running.enter_context(Admin(brokers[0].bootstrap))
        wait_for(lambda: len(admin.describe_topics(["orders"])[0].partitions[0].isr) == len(targets), PATIENCE_S)
        (topic,) = admin.describe_topics(["orders"])
        assert topic.topic_id == ORDERS_ID
        assert sorted(topic.partitions[0].replicas) == [1, 2]
        assert read(brokers[0], "orders") == [(0, b"a"), (1, b"b"), (2, b"c")]
        producer = Producer({"bootstrap.servers": brokers[0].bootstrap, "acks": "all"})
        producer.produce("orders", b"d", partition=0)
        assert producer.flush(PATIENCE_S) == 0
    logs = [(path / "orders-0" / f"{0:020d}.log").read_bytes() for path in targets.values()]
    assert logs[0] == logs[1]
