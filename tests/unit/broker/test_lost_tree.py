"""A coordination tree that does not fit the data folders: nothing is replaced, moved or lost without a log line."""

import pytest
from support.classic_frames import message_set

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.cluster import layout
from barnabas.core.log.checkpoints import PARTITION_METADATA, format_partition_metadata, parse_partition_metadata
from barnabas.core.log.manager.meta_properties import META_PROPERTIES, parse_meta_properties
from barnabas.ports.broker_api.classic import ClassicProduce, ClassicProducePartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import CreatePartitions, CreateTopics, DeleteTopics, NewPartitions, NewTopic
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ConfigError
from barnabas.testing.manual_broker import ManualBroker

CLASSIC = ["kafka://broker:9092", "classic://broker:9093"]


def begin_again(broker: ManualBroker) -> None:
    """Stop, and start with an empty tree."""
    broker.stop()
    broker.tree = MemoryTree(deliver=broker.scheduler.call_soon)
    broker.reports.clear()
    broker.node = broker._started()


def forget(broker: ManualBroker, topic: str) -> None:
    """Restart the broker with a tree that does not know the topic."""
    broker.stop()
    session = broker.tree.session()
    session.delete(layout.topic_path(topic))
    session.close()
    broker.reports.clear()
    broker.node = broker._started()


def contents(broker: ManualBroker) -> dict[str, dict[str, bytes]]:
    return {name: {file: bytes(c.data) for file, c in files.items()} for name, files in broker.disk.folders.items()}


def broker_with(*topics: str) -> ManualBroker:
    broker = ManualBroker()
    for topic in topics:
        broker.create(topic, 2)
        assert broker.produce(topic, b"kept").error is ErrorCode.NONE
    return broker


def test_a_tree_without_topics_is_refused_and_nothing_is_touched() -> None:
    broker = broker_with("orders", "users")
    broker.stop()
    before = contents(broker)
    with pytest.raises(CoordinationError, match=r"4 partitions of 2 topics \(such as orders\).*topics recover"):
        begin_again(broker)
    assert contents(broker) == before
    assert not broker.disk.in_use


def test_deleting_the_last_topic_is_no_loss() -> None:
    broker = ManualBroker()
    broker.create("only")
    assert broker.ask(DeleteTopics(names=["only"])).topics[0].error is ErrorCode.NONE
    broker.restart()
    broker.create("only")
    assert broker.values("only") == []


def test_the_broker_and_its_cluster_are_noted_and_checked() -> None:
    broker = broker_with("t")
    noted = parse_meta_properties(bytes(broker.disk.root[META_PROPERTIES].data))
    assert (noted.cluster_id, noted.broker_id) == (broker.node.state.cluster_id, 1)
    broker.stop()
    broker.settings = {"broker_id": 2}
    with pytest.raises(ConfigError, match=r"belongs to broker 1.*this is broker 2"):
        broker._started()
    broker.settings = {}
    other = "AAAAAAAAAAAAAAAAAAAAAQ"
    session = broker.tree.session()
    session.set(layout.CLUSTER_ID, layout.encode_cluster_id(other))
    session.close()
    with pytest.raises(ConfigError, match=f"belongs to the cluster {noted.cluster_id}.*to {other}"):
        broker._started()


def test_the_cluster_id_outlives_a_tree_without_topics() -> None:
    broker = ManualBroker()
    before = broker.node.state.cluster_id
    begin_again(broker)
    assert broker.node.state.cluster_id == before


def test_folders_of_earlier_versions_are_labelled() -> None:
    broker = broker_with("t")
    topic_id = broker.node.state.image.topic("t").topic_id
    broker.stop()
    del broker.disk.root[META_PROPERTIES]
    for files in broker.disk.folders.values():
        assert parse_partition_metadata(bytes(files.pop(PARTITION_METADATA).data)) == topic_id
    broker.node = broker._started()
    broker.scheduler.run_pending()
    labels = {bytes(files[PARTITION_METADATA].data) for files in broker.disk.folders.values()}
    assert labels == {format_partition_metadata(topic_id)}
    assert META_PROPERTIES in broker.disk.root
    assert broker.values("t") == [b"kept"]


def test_corrupt_partition_metadata_file_is_rewritten() -> None:
    broker = broker_with("t")
    broker.stop()
    broker.disk.folders["t-0"][PARTITION_METADATA].data[:] = b"\0\0"
    broker.node = broker._started()
    broker.scheduler.run_pending()
    assert any("partition.metadata is corrupt" in line for line in broker.reports)
    topic_id = broker.node.state.image.topic("t").topic_id
    assert bytes(broker.disk.folders["t-0"][PARTITION_METADATA].data) == format_partition_metadata(topic_id)
    assert broker.values("t") == [b"kept"]


def test_folder_with_other_topic_id_is_renamed_to_stray_and_not_served() -> None:
    broker = broker_with("t")
    broker.stop()
    broker.disk.folders["t-0"][PARTITION_METADATA].data[:] = format_partition_metadata(b"another topic's.")
    broker.node = broker._started()
    assert broker.values("t") == []
    assert broker.produce("t", b"new").base_offset == 0
    stray = [name for name in broker.disk.folders if name.endswith("-stray")]
    assert len(stray) == 1
    assert b"kept" in bytes(broker.disk.folders[stray[0]]["00000000000000000000.log"].data)
    assert any("belongs to another topic of that name" in line for line in broker.reports)


def test_tree_that_lacks_some_topics_is_left_unchanged() -> None:
    broker = broker_with("lost", "known")
    broker.settings = {"log_retention_ms": 1, "log_roll_ms": 1}
    forget(broker, "lost")
    assert sorted(line.split(" ")[0] for line in broker.reports if "left alone" in line) == [
        "memory:/lost-0",
        "memory:/lost-1",
    ]
    assert broker.values("known") == [b"kept"]
    broker.scheduler.advance(600_000)
    assert broker.fetch("known").partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE, "retention was there"
    assert b"kept" in bytes(broker.disk.folders["lost-0"]["00000000000000000000.log"].data)


def test_topic_with_unknown_folders_cannot_be_created_until_folders_are_moved() -> None:
    broker = broker_with("lost", "known")
    forget(broker, "lost")
    for _ in range(2):
        assert broker.ask(Metadata(topics=["lost"])).topics[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = broker.ask(CreateTopics(topics=[NewTopic(name="lost")])).topics[0]
    assert refused.error is ErrorCode.POLICY_VIOLATION
    assert "topics recover" in (refused.error_message or "")
    assert "memory:" not in (refused.error_message or ""), "paths are no business of clients"
    assert sum("topic lost is not made" in line for line in broker.reports) == 1
    for number in range(2):
        broker.disk.folders[f"elsewhere-{number}"] = broker.disk.folders.pop(f"lost-{number}")
    broker.create("lost")
    assert broker.values("lost") == []


@pytest.mark.parametrize("other_files", [(), ("partition.metadata.tmp",)])
def test_the_folder_of_an_interrupted_creation_gives_way_to_the_next_topic_of_that_name(
    other_files: tuple[str, ...],
) -> None:
    broker = broker_with("known")
    broker.stop()
    log_dir = MemoryLogDir(broker.disk)
    for name in ("00000000000000000000.log", "00000000000000000000.index", *other_files):
        log_dir.folder("begun-0").open(name).close()
    log_dir.close()
    broker.node = broker._started()
    assert any("begun-0 was created for a deleted topic and never used" in line for line in broker.reports)
    broker.create("begun")
    assert broker.produce("begun", b"new").base_offset == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("00000000000000000000.log", b"records"),
        ("00000000000000000007.log", b""),
        (PARTITION_METADATA, format_partition_metadata(b"another topic's.")),
        (PARTITION_METADATA, b"damaged"),
    ],
)
def test_creating_a_topic_is_refused_where_an_unknown_folder_may_have_records(name: str, content: bytes) -> None:
    broker = broker_with("known")
    broker.stop()
    log_dir = MemoryLogDir(broker.disk)
    folder = log_dir.folder("lost-0")
    folder.open("00000000000000000000.log").close()
    folder.write_small(name, content)
    log_dir.close()
    broker.node = broker._started()
    refused = broker.ask(CreateTopics(topics=[NewTopic(name="lost")])).topics[0]
    assert refused.error is ErrorCode.POLICY_VIOLATION
    assert broker.disk.folders["lost-0"]


def test_partitions_beyond_those_that_the_tree_has_are_left_alone_too() -> None:
    broker = broker_with("t")
    old = broker.tree.session()
    before = old.get(layout.topic_path("t")).data
    grow = CreatePartitions(topics=[NewPartitions(topic="t", count=4)])
    assert broker.ask(grow).topics[0].error is ErrorCode.NONE
    broker.produce("t", b"later", partition=3)
    old.set(layout.topic_path("t"), before)
    old.close()
    broker.restart()
    assert len(broker.ask(Metadata(topics=["t"])).topics[0].partitions) == 2
    assert broker.ask(grow).topics[0].error is ErrorCode.POLICY_VIOLATION
    assert b"later" in bytes(broker.disk.folders["t-3"]["00000000000000000000.log"].data)


def test_classic_topics_live_without_the_tree() -> None:
    broker = ManualBroker(listeners=CLASSIC, log_flush_interval_messages=1)
    put = ClassicProduce(partitions=[ClassicProducePartition("old", 0, memoryview(bytearray(message_set(b"kept"))))])
    assert broker.ask(put).partitions[0].error is ErrorCode.NONE
    begin_again(broker)
    assert broker.node.state.classic.names == ["old"]
    assert broker.ask(put).partitions[0].next_offset == 2 * len(message_set(b"kept"))
