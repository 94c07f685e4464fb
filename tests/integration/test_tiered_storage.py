"""Topics in remote storage: what clients read from both tiers is what was acknowledged."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.ports import free_port
from support.process import BrokerProcess
from support.s3_server import S3Server
from support.tiered_topics import QUICK, TIERED, read_all, wait_for, write
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.offsets import EARLIEST_LOCAL, LATEST_TIERED, ListOffsets, ListOffsetsPartition
from barnabas.testing import TestCluster


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
    address = f"127.0.0.1:{free_port()}"
    with Broker(tmp_path / "data", config={**QUICK, **remote}, metrics_listen=address) as broker:
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
        check_metrics(address)
    with Broker(tmp_path / "data", config={**QUICK, **remote}) as broker:
        write(broker.bootstrap, "t", range(600, 650))
        assert read_all(broker.bootstrap, "t", 0, 650) == list(range(650))


def check_metrics(address: str) -> None:
    """The names are Kafka's, with small letters and without dots, as those of its exporter for Prometheus."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
    found = {name: float(value) for name, _, value in lines if "remote" in name and not name.startswith("#")}
    prefix, topic = "kafka_server_brokertopicmetrics_remote", '{topic="t"}'
    for name in ("copyrequests", "copybytes", "fetchrequests", "fetchbytes"):
        assert found[f"{prefix}{name}_total{topic}"] > 0, name
    place = '{partition="0",topic="t"}'
    assert found[f"{prefix}logsizebytes{place}"] == found[f"{prefix}copybytes_total{topic}"]
    assert found[f"{prefix}logmetadatacount{place}"] == found[f"{prefix}copyrequests_total{topic}"]
    assert found[f"{prefix}copylagbytes{place}"] == found[f"{prefix}copylagsegments{place}"] == 0
    assert found["kafka_log_remote_storage_remotelogreadertaskqueuesize"] == 0


@pytest.mark.slow
def test_aborted_transactions_in_remote_storage_are_skipped(tmp_path: Path) -> None:
    remote = {"remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}
    with Broker(tmp_path / "data", config={**QUICK, **remote, "transaction.state.log.num.partitions": 1}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs={**TIERED, "segment.bytes": "3000"})
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "linger.ms": 0})
        producer.init_transactions(30)
        committed: list[int] = []
        for number in range(40):
            producer.begin_transaction()
            for part in range(10):
                producer.produce("t", value=f"{number * 10 + part:06d}".encode() * 10, partition=0)
            producer.flush(PATIENCE_S)
            if number % 3:
                producer.commit_transaction(30)
                committed += range(number * 10, number * 10 + 10)
            else:
                producer.abort_transaction(30)
        wait_for(lambda: len(list((tmp_path / "data" / "t-0").glob("*.log"))) == 1)
        assert read_values(broker.bootstrap, "t", len(committed), "read_committed") == committed
        assert len(read_values(broker.bootstrap, "t", 400, "read_uncommitted")) == 400


def read_values(bootstrap: str, topic: str, count: int, isolation: str) -> list[int]:
    return read_all(bootstrap, topic, 0, count, **{"isolation.level": isolation})


@pytest.mark.slow
def test_follower_is_rebuilt_from_remote_storage_and_leads(tmp_path: Path) -> None:
    remote = {"remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}
    with TestCluster(3, {**QUICK, **remote}) as cluster:
        with Admin(cluster.source) as admin:
            admin.create_topic("t", partitions=1, replication_factor=3, configs=TIERED)
        leader = cluster.wait_for_leader("t")
        away, last = (number for number in cluster.broker_ids if number != leader)
        cluster.kill(away)
        write(cluster.bootstrap, "t", range(600), acks="all")
        earliest_local = ListOffsets(
            partitions=[ListOffsetsPartition(topic="t", partition=0, timestamp=EARLIEST_LOCAL)]
        )
        wait_for(lambda: cluster.broker(leader).ask(earliest_local).partitions[0].offset > 400)
        cluster.restart(away)
        cluster.wait_in_sync("t")
        cluster.kill(leader)
        cluster.kill(last)
        cluster.restart(last)
        assert read_all(cluster.bootstrap, "t", 0, 600) == list(range(600))


@pytest.mark.slow
@pytest.mark.parametrize("begins_in_tier", [False, True])
def test_new_replica_copies_what_is_not_in_remote_storage(tmp_path: Path, *, begins_in_tier: bool) -> None:
    """The leader has all locally, and all but the newest segment in remote storage."""
    remote = {"remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}
    local = {**TIERED, "local.retention.bytes": "-2", "local.retention.ms": "-2"}
    with TestCluster(2, {**QUICK, **remote}) as cluster, Admin(cluster.source) as admin:
        admin.create_topic("t", partitions=1, replication_factor=1, configs=local)
        leader = cluster.wait_for_leader("t")
        new = next(number for number in cluster.broker_ids if number != leader)
        write(cluster.bootstrap, "t", range(600), acks="all")
        last_tiered = ListOffsets(partitions=[ListOffsetsPartition(topic="t", partition=0, timestamp=LATEST_TIERED)])
        wait_for(lambda: cluster.broker(leader).ask(last_tiered).partitions[0].offset > 400)
        if begins_in_tier:
            setting = "follower.fetch.last.tiered.offset.enable"
            admin.alter_configs(ResourceKind.BROKER, "", {setting: "true"})
            wait_for(lambda: setting in cluster.broker(new).image.configs.get(None, {}))
        admin.reassign_partitions({("t", 0): [leader, new]})
        wait_for(lambda: len(admin.describe_topics(["t"])[0].partitions[0].isr) == 2)
        earliest_local = ListOffsets(
            partitions=[ListOffsetsPartition(topic="t", partition=0, timestamp=EARLIEST_LOCAL)], replica_id=-2
        )
        assert (cluster.broker(new).ask(earliest_local).partitions[0].offset > 400) is begins_in_tier
        cluster.kill(leader)
        assert read_all(cluster.bootstrap, "t", 0, 600) == list(range(600))


@pytest.mark.slow
def test_topic_is_restored_from_remote_storage_alone(tmp_path: Path, command: Path) -> None:
    remote = {"remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}
    with Broker(tmp_path / "lost", config={**QUICK, **remote}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=2, configs=TIERED)
        write(broker.bootstrap, "t", range(600))
        with Admin(broker.bootstrap) as admin:
            admin.alter_group_offsets("readers", {("t", 0): 300})
            admin.alter_group_offsets("ahead", {("t", 0): 600})
        wait_for(lambda: len(list((tmp_path / "lost" / "t-0").glob("*.log"))) == 1)
        wait_for(lambda: len(list((tmp_path / "remote" / "groups").rglob("*.gz"))) == 2)
    shown = run(command, "log", "tier", "status", "--from", f"file://{tmp_path}/remote", "--json")
    (zero,) = [row for row in json.loads(shown) if row["partition"] == 0]
    assert (zero["topic"], zero["start"], zero["unfinished"]) == ("t", 0, 0)
    assert 400 < zero["end"] <= 600
    with Broker(tmp_path / "new", config={**QUICK, **remote}) as broker:
        said = run(command, "topics", "restore", "--bootstrap", broker.bootstrap, "--from", f"file://{tmp_path}/remote")
        assert f"restored t: 2 partitions, {zero['end']} offsets" in said
        assert "offsets of 2 groups" in said
        with Admin(broker.bootstrap) as admin:
            found = {group: next(iter(admin.group_offsets(group).values())).offset for group in ("readers", "ahead")}
        assert found == {"readers": 300, "ahead": zero["end"]}
        assert read_all(broker.bootstrap, "t", 0, zero["end"]) == list(range(zero["end"]))
        write(broker.bootstrap, "t", range(zero["end"], zero["end"] + 10))
        assert read_all(broker.bootstrap, "t", 0, zero["end"] + 10) == list(range(zero["end"] + 10))
        with Admin(broker.bootstrap) as admin:
            assert admin.topic_overrides("t")["remote.storage.enable"] == "true"


def run(command: Path, *words: str) -> str:
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.process
def test_objects_of_a_deleted_topic_go_after_its_only_broker_was_killed(tmp_path: Path) -> None:
    """The store is out of reach from the deletion until after the kill."""
    store, away = tmp_path / "remote", tmp_path / "away"
    store.mkdir()
    given = {**QUICK, "remote.log.storage.manager.class.name": f"file://{store}"}
    settings = [f"{key}={value}" for key, value in given.items()]
    first = BrokerProcess(tmp_path / "data", *settings)
    try:
        with Admin(first.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
            write(first.bootstrap, "t", range(300))
            wait_for(lambda: any(store.rglob("*.log")))
            (folder,) = store.glob("t-*")
            folder.rename(away)
            admin.delete_topics(["t"])
    finally:
        first.kill()
    shutil.rmtree(folder, ignore_errors=True)  # the leader may have stored a manifest after the others had gone
    away.rename(folder)
    second = BrokerProcess(tmp_path / "data", *settings)
    try:
        wait_for(lambda: not [each for each in store.rglob("*") if each.is_file() and not each.name.startswith(".")])
    finally:
        second.stop()
