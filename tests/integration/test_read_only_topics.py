"""Topics that are read from the remote storage of another cluster, which alone changes it."""

import subprocess
from pathlib import Path

import pytest
from attrs import evolve
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from support.s3_server import S3Server
from support.tiered_topics import QUICK, TIERED, read_all, wait_for, write
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker
from barnabas.adapters.remote_s3 import open_s3_remote_storage
from barnabas.core.tiering.manifest import MANIFEST, decode_manifest, encode_manifest
from barnabas.ports.errors import ApiError
from barnabas.testing import TestCluster


@pytest.fixture
def remote(tmp_path: Path) -> dict[str, object]:
    return {**QUICK, "remote.log.storage.manager.class.name": f"file://{tmp_path}/remote"}


def latest(bootstrap: str, topic: str = "t") -> int:
    with Admin(bootstrap) as admin:
        return next(iter(admin.list_offsets({(topic, 0): "latest"}).values()))


def copied(folder: Path) -> int:
    """Return the end offset of the partition in the remote storage that has messages."""
    return max((decode_manifest(path.read_bytes()).end for path in folder.rglob(MANIFEST)), default=0)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(command: Path, *words: str) -> str:
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def filled(tmp_path: Path, remote: dict[str, object], count: int = 300) -> str:
    """Write a topic of another cluster that ends after this; return its folder in the remote storage."""
    with Broker(tmp_path / "writer", config=remote) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
        write(broker.bootstrap, "t", range(count))
        wait_for(lambda: copied(tmp_path / "remote") > count - 100)
        wait_for(lambda: len(list((tmp_path / "writer" / "t-0").glob("*.log"))) == 1)
    return next((tmp_path / "remote").rglob(MANIFEST)).parent.parent.name


def test_topic_of_another_cluster_is_read_and_followed(
    tmp_path: Path, remote: dict[str, object], command: Path
) -> None:
    folder = tmp_path / "remote"
    with Broker(tmp_path / "writer", config=remote) as writer, Broker(tmp_path / "reader", config=remote) as reader:
        with Admin(writer.bootstrap) as admin:
            admin.create_topic("t", partitions=2, configs=TIERED)
        write(writer.bootstrap, "t", range(300))
        wait_for(lambda: copied(folder) > 200)
        said = run(
            command,
            *("topics", "open-remote", "t", "--as", "there", "--from", f"file://{folder}"),
            *("--bootstrap", reader.bootstrap),
        )
        assert said.startswith("opened there, read-only: 2 partitions")
        end = latest(reader.bootstrap, "there")
        assert 200 < end <= 300
        assert read_all(reader.bootstrap, "there", 0, end)[:end] == list(range(end))
        write(writer.bootstrap, "t", range(300, 600))
        wait_for(lambda: latest(reader.bootstrap, "there") > 500)
        end = latest(reader.bootstrap, "there")
        assert read_all(reader.bootstrap, "there", 277, end)[: end - 277] == list(range(277, end))
        consumer = Consumer({"bootstrap.servers": reader.bootstrap, "group.id": "g"})
        found = consumer.offsets_for_times([TopicPartition("there", 0, 1_000_155)], timeout=30)
        consumer.close()
        assert found[0].offset == 155
        shown = run(command, "topics", "describe", "there", "--bootstrap", reader.bootstrap)
        assert "read-only: the records are those of t-" in shown


def test_read_only_topic_refuses_changes_and_leaves_the_remote_storage_as_it_is(
    tmp_path: Path, remote: dict[str, object]
) -> None:
    source = filled(tmp_path, remote)
    before = contents(tmp_path / "remote")
    with Broker(tmp_path / "reader", config=remote) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", configs={"remote.storage.source": source, "retention.ms": "1", "retention.bytes": "1"})
        wait_for(lambda: latest(broker.bootstrap) > 200)
        failures: list[str] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"v", on_delivery=lambda error, _: failures.append(str(error)))
        producer.flush(PATIENCE_S)
        assert ["POLICY_VIOLATION" in failure for failure in failures] == [True]
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)
        producer.abort_transaction(30)
        with pytest.raises(ApiError, match="POLICY_VIOLATION"):
            admin.delete_records({("t", 0): 10})
        with pytest.raises(ApiError, match="cannot change"):
            admin.alter_topic_configs("t", {"remote.storage.source": None})
        end = latest(broker.bootstrap)
        assert read_all(broker.bootstrap, "t", 0, end) == list(range(end))
        admin.delete_topics(["t"])
        wait_for(lambda: not list((tmp_path / "reader").glob("t-*")))
    assert contents(tmp_path / "remote") == before


def test_read_only_topic_has_the_same_offsets_after_a_restart(tmp_path: Path, remote: dict[str, object]) -> None:
    source = filled(tmp_path, remote)
    with Broker(tmp_path / "reader", config=remote) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", configs={"remote.storage.source": source})
        wait_for(lambda: latest(broker.bootstrap) > 200)
        end = latest(broker.bootstrap)
    with Broker(tmp_path / "reader", config=remote) as broker:
        assert latest(broker.bootstrap) == end
        assert read_all(broker.bootstrap, "t", 0, end) == list(range(end))


def test_leader_epoch_is_raised_to_that_of_the_other_cluster(tmp_path: Path, remote: dict[str, object]) -> None:
    source = filled(tmp_path, remote)
    (path,) = (tmp_path / "remote").rglob(MANIFEST)
    path.write_bytes(encode_manifest(evolve(decode_manifest(path.read_bytes()), leader_epoch=7)))
    with Broker(tmp_path / "reader", config=remote) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", configs={"remote.storage.source": source})
        wait_for(lambda: latest(broker.bootstrap) > 200)
        (topic,) = admin.describe_topics(["t"])
        assert topic.partitions[0].leader_epoch == 7


def test_log_start_follows_what_the_other_cluster_deletes(tmp_path: Path, remote: dict[str, object]) -> None:
    source = filled(tmp_path, remote)
    slow = {**remote, "remote.log.manager.task.interval.ms": "3600000"}
    with Broker(tmp_path / "writer", config=remote) as writer, Broker(tmp_path / "reader", config=slow) as reader:
        with Admin(reader.bootstrap) as admin:
            admin.create_topic("t", configs={"remote.storage.source": source})
        wait_for(lambda: latest(reader.bootstrap) > 200)
        segments = set((tmp_path / "remote" / source).rglob("*.log"))
        with Admin(writer.bootstrap) as admin:
            admin.delete_records({("t", 0): 150})
        wait_for(lambda: not min(segments).exists())
        consumer = Consumer({"bootstrap.servers": reader.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("t", 0, 0)])
        found = consumer.poll(60)
        consumer.close()
        assert found is not None, "a missing object is the reason to read the manifest before its time"
        assert (found.error(), found.offset()) == (None, 150)


@pytest.mark.slow
def test_later_leader_of_a_read_only_topic_continues(tmp_path: Path, remote: dict[str, object]) -> None:
    with Broker(tmp_path / "writer", config=remote) as writer:
        with Admin(writer.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
        write(writer.bootstrap, "t", range(300))
        wait_for(lambda: copied(tmp_path / "remote") > 200)
        source = next((tmp_path / "remote").rglob(MANIFEST)).parent.parent.name
        with TestCluster(3, remote) as cluster:
            with Admin(cluster.source) as admin:
                admin.create_topic("t", replication_factor=3, configs={"remote.storage.source": source})
            wait_for(lambda: latest(cluster.bootstrap) > 200)
            first = latest(cluster.bootstrap)
            leader = cluster.wait_for_leader("t")
            cluster.wait_in_sync("t")
            cluster.kill(leader)
            wait_for(lambda: cluster.wait_for_leader("t") != leader)
            assert latest(cluster.bootstrap) >= first
            write(writer.bootstrap, "t", range(300, 600))
            wait_for(lambda: latest(cluster.bootstrap) > 500)
            cluster.restart(leader)
            cluster.wait_in_sync("t")
            end = latest(cluster.bootstrap)
            assert read_all(cluster.bootstrap, "t", 0, end)[:end] == list(range(end))


@pytest.mark.slow
def test_followers_of_a_read_only_topic_in_s3_lead_and_change_nothing_there(s3_server: S3Server) -> None:
    bucket = s3_server.make_bucket()
    remote = {
        **QUICK,
        "remote.log.storage.manager.class.name": bucket,
        **{f"rsm.config.{name}": value for name, value in s3_server.settings.items()},
    }
    storage = open_s3_remote_storage(bucket, s3_server.settings)

    def objects() -> dict[str, str]:
        """Return the version of each object, without the offsets of groups, which each cluster stores."""
        keys = [each.key for each in storage.list_objects("") if not each.key.startswith("groups/")]
        return {key: storage.read(key).version for key in keys}

    with TestCluster(1, remote) as writer:
        with Admin(writer.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
        write(writer.bootstrap, "t", range(300))

        def end() -> int:
            found = [key for key in objects() if key.endswith(MANIFEST)]
            return decode_manifest(storage.read(found[0]).content).end if found else 0

        wait_for(lambda: end() > 200)
        with TestCluster(3, remote) as cluster:
            source = next(key for key in objects() if key.endswith(MANIFEST)).partition("/")[0]
            with Admin(cluster.source) as admin:
                admin.create_topic("t", replication_factor=3, configs={"remote.storage.source": source})
            wait_for(lambda: latest(cluster.bootstrap) > 200)
            leader = cluster.wait_for_leader("t")
            cluster.wait_in_sync("t")
            before, first = objects(), latest(cluster.bootstrap)
            cluster.kill(leader)
            wait_for(lambda: cluster.wait_for_leader("t") != leader)
            wait_for(lambda: latest(cluster.bootstrap) >= first)
            assert read_all(cluster.bootstrap, "t", 0, first)[:first] == list(range(first))
            assert objects() == before
            write(writer.bootstrap, "t", range(300, 600))
            wait_for(lambda: latest(cluster.bootstrap) > 500)
            cluster.restart(leader)
            cluster.wait_in_sync("t")
            reached = latest(cluster.bootstrap)
            assert read_all(cluster.bootstrap, "t", 0, reached)[:reached] == list(range(reached))
            with Admin(cluster.bootstrap) as admin:
                before = objects()
                admin.delete_topics(["t"])
                wait_for(lambda: "t" not in admin.list_topics())
            assert objects().keys() >= before.keys()
    storage.close()
