"""`barnabas topics recover`, as an operator would use it: files are lost, copied, mixed; clients before and after."""

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.command import Command
from support.confluent import AdminClient, NewPartitions, NewTopic
from support.waiting import PATIENCE_S

from barnabas.app.embedded_broker import Broker
from barnabas.ports.coordination import CoordinationError

FILE = "coordination.db"


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def fill(broker: Broker, topic: str, partitions: int, count: int = 20) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def read_on(broker: Broker, topic: str, partitions: int, count: int, *, group: str) -> set[bytes]:
    """Return the messages that a member of a group reads from the committed offsets, and commit the new ones."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return set(found)


def ids(broker: Broker) -> dict[str, bytes]:
    return {name: topic.topic_id for name, topic in broker.node.state.image.topics.items()}


def test_lost_coordination_file_is_detected_and_recovered(tmp_path: Path, barnabas: Command) -> None:
    with Broker(tmp_path, group_initial_rebalance_delay_ms=0) as broker:
        fill(broker, "orders", 3)
        fill(broker, "users", 1)
        assert len(read_on(broker, "orders", 3, 20, group="g")) == 20
        before, cluster_id = ids(broker), broker.cluster_id
    for lost in tmp_path.glob(f"{FILE}*"):
        lost.unlink()
    with pytest.raises(CoordinationError, match=r"of 3 topics .*barnabas topics recover --data"):
        Broker(tmp_path).start()
    for left in tmp_path.glob(f"{FILE}*"):
        left.unlink()

    shown = barnabas("topics", "recover", "--data", str(tmp_path))
    assert "nothing was changed" in shown.err
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ["__consumer_offsets", "orders", "users"]
    assert not (tmp_path / FILE).exists()

    done = json.loads(barnabas("topics", "recover", "--data", str(tmp_path), "--execute", "--json").out)
    assert (done["executed"], done["cluster_id"]) == (True, cluster_id)
    assert {row["topic"]: (row["partitions"], row["action"], row["note"]) for row in done["topics"]} == {
        "__consumer_offsets": (50, "create", ""),
        "orders": (3, "create", ""),
        "users": (1, "create", ""),
    }
    with Broker(tmp_path, group_initial_rebalance_delay_ms=0) as broker:
        assert (ids(broker), broker.cluster_id) == (before, cluster_id)
        assert "compact" in broker.node.state.image.topic("__consumer_offsets").configs["cleanup.policy"]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(3):
            producer.produce("orders", b"new %d" % number, partition=number)
        assert producer.flush(PATIENCE_S) == 0
        assert read_on(broker, "orders", 3, 3, group="g") == {b"new 0", b"new 1", b"new 2"}, "the group continues"
    again = barnabas("topics", "recover", "--data", str(tmp_path), "--execute")
    assert "knows all topics" in again.err


def test_an_old_copy_of_the_file_gets_what_it_lacks(tmp_path: Path, barnabas: Command) -> None:
    with Broker(tmp_path) as broker:
        fill(broker, "grown", 1)
    shutil.copy(tmp_path / FILE, tmp_path / "old copy")
    with Broker(tmp_path) as broker:
        fill(broker, "later", 2)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(PATIENCE_S)
        before = ids(broker)
    for now in tmp_path.glob(f"{FILE}*"):
        now.unlink()
    (tmp_path / "old copy").rename(tmp_path / FILE)
    with Broker(tmp_path) as broker:
        assert ids(broker) == {"grown": before["grown"]}
        with pytest.raises(Exception, match="does not know"):
            fill(broker, "later", 2)
    barnabas("topics", "recover", "--data", str(tmp_path), "--execute")
    with Broker(tmp_path) as broker:
        assert ids(broker) == before
        assert len(broker.node.state.image.topic("grown").partitions) == 3
        assert len(read_on(broker, "later", 2, 20, group="g")) == 20


def test_topics_recover_refuses_ambiguous_topics_and_recovers_others(tmp_path: Path, barnabas: Command) -> None:
    with Broker(tmp_path) as broker:
        fill(broker, "mixed", 2)
        fill(broker, "fine", 2)
    (tmp_path / FILE).unlink()
    shutil.copy(tmp_path / "fine-0" / "partition.metadata", tmp_path / "mixed-1" / "partition.metadata")
    (tmp_path / "fine-1" / "partition.metadata").unlink()
    rows = json.loads(barnabas("topics", "recover", "--data", str(tmp_path), "--execute", "--json", expect=1).out)[
        "topics"
    ]
    assert [(row["topic"], row["action"]) for row in rows] == [("fine", "create"), ("mixed", "refuse")]
    assert "different topics" in rows[1]["note"]
    with Broker(tmp_path) as broker:
        assert set(ids(broker)) == {"fine"}
        assert len(read_on(broker, "fine", 2, 20, group="g")) == 20
    assert (tmp_path / "mixed-1").exists()


def test_while_the_broker_runs_nothing_is_recovered(tmp_path: Path, barnabas: Command) -> None:
    with Broker(tmp_path):
        running = barnabas("topics", "recover", "--data", str(tmp_path), expect=1)
    assert "in use by another broker" in running.err
    nowhere = barnabas("topics", "recover", "--data", str(tmp_path / "nowhere"), expect=2)
    assert "does not exist" in nowhere.err
    assert not (tmp_path / "nowhere").exists()


def test_the_main_file_alone_is_enough_while_the_broker_runs(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        fill(broker, "t", 2)
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / "data" / FILE, tmp_path / "copy" / FILE)
        before, cluster_id = ids(broker), broker.cluster_id
    assert not list((tmp_path / "data").glob(f"{FILE}-*")), "an orderly stop leaves one file"
    with Broker(tmp_path / "copy") as broker:
        assert (ids(broker), broker.cluster_id) == (before, cluster_id)
