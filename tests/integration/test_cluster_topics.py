"""Topics of several brokers: made, grown, changed and deleted at any of them, while others die and come back."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import wait_for

from barnabas.core.cluster.metadata_listener import MetadataListener
from barnabas.core.cluster.reassignment import touched
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.replicas import AlterPartitionReassignments, Reassignment
from barnabas.ports.broker_api.topics import CreatePartitions, CreateTopics, DeleteTopics, NewPartitions, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing import TestCluster


@pytest.fixture(scope="module")
def quiet() -> Iterator[TestCluster]:
    """For tests that leave all brokers as they are."""
    with TestCluster(brokers=3) as running:
        yield running


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


def _metadata(cluster: TestCluster, broker_id: int, topic: str) -> Any:
    (found,) = cluster.broker(broker_id).ask(Metadata(topics=[topic], allow_auto_topic_creation=False)).topics
    return found


def _log_of(cluster: TestCluster, broker_id: int, topic: str, partition: int = 0) -> Any:
    """Return the log of a partition at one broker, or None."""
    logs = cluster.broker(broker_id).inner.node.state.logs.logs()
    return {(key.topic, key.partition): log for key, log in logs.items()}.get((topic, partition))


def _others(cluster: TestCluster, broker_id: int) -> list[int]:
    return [each for each in cluster.broker_ids if each != broker_id]


# --- agreed by all


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_change_at_one_broker_reaches_all(quiet: TestCluster, broker_id: int) -> None:
    topic, asked = f"made-at-{broker_id}", quiet.broker(broker_id)
    made = asked.ask(
        CreateTopics(
            topics=[NewTopic(name=topic, partitions=3, replication_factor=2, configs={"retention.ms": "1000000"})]
        )
    )
    assert made.topics[0].error is ErrorCode.NONE
    quiet.wait_in_sync(topic)
    views = [_metadata(quiet, each, topic) for each in quiet.broker_ids]
    assert views[0].error is ErrorCode.NONE
    assert [view.partitions for view in views] == [views[0].partitions] * 3
    assert [len(partition.replicas) for partition in views[0].partitions] == [2, 2, 2]
    assert sorted(partition.leader for partition in views[0].partitions) == [1, 2, 3]

    grown = asked.ask(CreatePartitions(topics=[NewPartitions(topic=topic, count=5)]))
    assert grown.topics[0].error is ErrorCode.NONE
    quiet.wait_in_sync(topic)
    assert [len(_metadata(quiet, each, topic).partitions) for each in quiet.broker_ids] == [5, 5, 5]
    for partition in range(5):
        quiet.produce(topic, [f"{partition}"], partition=partition)
    quiet.assert_produced(topic, [f"{partition}" for partition in range(5)])

    assert asked.ask(DeleteTopics(names=[topic])).topics[0].error is ErrorCode.NONE
    quiet.wait_until(
        lambda: all(
            _metadata(quiet, each, topic).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and all(_log_of(quiet, each, topic, number) is None for number in range(5))
            for each in quiet.broker_ids
        ),
        "not all have forgotten the topic",
    )


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_settings_of_a_topic_reach_every_replica(quiet: TestCluster, broker_id: int) -> None:
    topic = quiet.create_topic()
    quiet.wait_in_sync(topic)
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=topic)
    change = ConfigAlteration(resource=resource, name="segment.bytes", value="1000001")
    changed = quiet.broker(broker_id).ask(IncrementalAlterConfigs(resources=[resource], alterations=[change]))
    assert changed.resources[0].error is ErrorCode.NONE
    quiet.wait_until(
        lambda: all(_log_of(quiet, each, topic).config.segment_bytes == 1_000_001 for each in quiet.broker_ids),
        "not every replica has the setting",
    )


def test_broker_that_has_not_heard_of_the_last_state_changes_a_topic(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a partition is the last one in the tree, not the one that a broker knows."""
    topic = cluster.create_topic(partitions=1, replication_factor=2)
    cluster.wait_in_sync(topic)
    (free,) = set(cluster.broker_ids) - set(cluster.replicas(topic))
    monkeypatch.setattr(MetadataListener, "_note", lambda *_: None)

    def change_state() -> None:
        stored = cluster._tree.topic(topic)
        assert stored is not None
        cluster._tree.set_state(stored, 0, touched(stored.states[0]))

    change_state()
    grown = cluster.broker(free).ask(CreatePartitions(topics=[NewPartitions(topic=topic, count=2)]))
    assert grown.topics[0].error is ErrorCode.NONE
    change_state()
    wanted = Reassignment(topic=topic, partition=0, replicas=[*cluster.replicas(topic), free])
    moved = cluster.broker(free).ask(AlterPartitionReassignments(partitions=[wanted]))
    assert moved.partitions[0].error is ErrorCode.NONE, moved.partitions[0].error_message


def test_a_topic_cannot_have_more_replicas_than_there_are_brokers(quiet: TestCluster) -> None:
    with pytest.raises(ApiError) as raised:
        quiet.create_topic(replication_factor=4)
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_records_are_deleted_on_all_replicas(quiet: TestCluster) -> None:
    topic = quiet.create_topic()
    quiet.wait_in_sync(topic)
    quiet.produce(topic, [f"{number}" for number in range(10)])
    with quiet.admin() as admin:
        assert admin.delete_records({(topic, 0): 4}) == {(topic, 0): 4}
        assert admin.list_offsets({(topic, 0): "earliest"}) == {(topic, 0): 4}
    quiet.wait_until(
        lambda: [_log_of(quiet, each, topic).log_start_offset for each in quiet.broker_ids] == [4, 4, 4],
        "not every replica has dropped them",
    )
    quiet.assert_produced(topic, [f"{number}" for number in range(4, 10)])


def test_only_leaders_answer(quiet: TestCluster) -> None:
    topic = quiet.create_topic()
    quiet.wait_in_sync(topic)
    quiet.produce(topic, ["a", "b"])
    leader = quiet.leader(topic)
    assert leader is not None
    for broker_id in quiet.broker_ids:
        offsets = ListOffsets(partitions=[ListOffsetsPartition(topic=topic, partition=0, timestamp=LATEST)])
        (listed,) = quiet.broker(broker_id).ask(offsets).partitions
        epoch = quiet.leader_epoch(topic)
        question = OffsetForLeaderPartition(topic=topic, partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        (ended,) = quiet.broker(broker_id).ask(OffsetForLeaderEpoch(partitions=[question])).partitions
        if broker_id == leader:
            assert (listed.error, listed.offset) == (ErrorCode.NONE, 2)
            assert (ended.error, ended.end_offset) == (ErrorCode.NONE, 2)
        else:
            assert listed.error is ended.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_epochs_end_where_another_leader_began(quiet: TestCluster) -> None:
    topic = quiet.create_topic()
    quiet.wait_in_sync(topic)
    leader = quiet.leader(topic)
    assert leader is not None
    quiet.produce(topic, ["a", "b"])
    first = quiet.leader_epoch(topic)
    second = _others(quiet, leader)[0]
    quiet.move_leader(topic, 0, second)
    quiet.produce(topic, ["c"])
    now = quiet.leader_epoch(topic)

    def end_of(epoch: int, current: int = -1) -> Any:
        question = OffsetForLeaderPartition(topic=topic, partition=0, current_leader_epoch=current, leader_epoch=epoch)
        return quiet.broker(second).ask(OffsetForLeaderEpoch(partitions=[question])).partitions[0]

    assert (end_of(first).leader_epoch, end_of(first).end_offset) == (first, 2)
    assert (end_of(now).leader_epoch, end_of(now).end_offset) == (now, 3)
    assert end_of(first, current=now - 1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert end_of(first, current=now + 1).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    quiet.assert_produced(topic, ["a", "b", "c"])


# --- while brokers are away


def test_a_topic_is_deleted_while_a_replica_is_down(cluster: TestCluster) -> None:
    topic = cluster.create_topic("t", partitions=2)
    cluster.wait_in_sync(topic)
    cluster.produce(topic, ["old"], partition=0)
    cluster.kill(3)
    cluster.wait_until(lambda: 3 not in cluster.in_sync(topic, 0), "it is still in sync")
    cluster.delete_topic(topic)
    cluster.wait_until(lambda: _log_of(cluster, 1, topic) is None and _log_of(cluster, 2, topic) is None, "logs stay")
    cluster.start(3)
    cluster.wait_until(
        lambda: all(_log_of(cluster, 3, topic, number) is None for number in range(2)), "it has kept its logs"
    )
    assert not [name for name in cluster.broker(3).inner.node.state.logs.dirs[0].folders() if name.startswith("t-")]


def test_a_topic_is_deleted_that_was_made_while_a_replica_was_down(cluster: TestCluster) -> None:
    """The folders that the replica makes at its start are known by the id of their topic, too."""
    cluster.create_topic("stays")
    cluster._tree.close()  # time stands still: the dead one is not missed yet, and gets its share
    cluster.kill(1)
    with cluster.admin() as admin:
        admin.create_topic("t", partitions=3)
    cluster._tree.start()
    cluster.start(1)
    cluster.wait_in_sync("t")
    folders = cluster.broker(1).inner.node.state.logs.dirs[0]
    wait_for(lambda: all("partition.metadata" in folders.folder(f"t-{number}").files() for number in range(3)))
    cluster.kill(1)
    cluster.delete_topic("t")
    cluster.start(1)
    folders = cluster.broker(1).inner.node.state.logs.dirs[0]
    wait_for(lambda: not [name for name in folders.folders() if name.startswith("t-")])


def test_a_topic_made_again_is_another_one(cluster: TestCluster) -> None:
    """Messages of the deleted topic on a broker that was down never get into the new topic."""
    cluster.create_topic("t")
    cluster.wait_in_sync("t")
    cluster.produce("t", ["old 1", "old 2", "old 3"])
    cluster.kill(3)
    cluster.wait_until(lambda: cluster.leader("t") in (1, 2), "no leader")
    cluster.delete_topic("t")
    cluster.wait_until(lambda: _log_of(cluster, 1, "t") is None and _log_of(cluster, 2, "t") is None, "logs stay")
    with cluster.admin() as admin:
        admin.create_topic("t", replication_factor=2)
    cluster.produce("t", ["new"])
    cluster.start(3)
    with cluster.admin() as admin:
        admin.reassign_partitions({("t", 0): [3, 1, 2]})
    cluster.wait_until(lambda: cluster.replicas("t") == [3, 1, 2] and len(cluster.in_sync("t")) == 3, "not reassigned")
    cluster.move_leader("t", 0, 3)
    cluster.assert_produced("t", ["new"])


def test_partitions_are_added_while_a_broker_is_down(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=1, replication_factor=2)
    cluster.wait_in_sync(topic)
    cluster.kill(2)
    cluster.wait_until(lambda: 2 not in cluster.in_sync(topic), "it is still in sync")
    with cluster.admin() as admin:
        admin.create_partitions(topic, 4)
    cluster.wait_for_leader(topic, 3)
    for partition in range(4):
        cluster.produce(topic, [f"{partition}"], partition=partition)
    cluster.start(2)
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, ["0", "1", "2", "3"])


def test_a_partition_without_a_leader_says_so(cluster: TestCluster) -> None:
    topic = cluster.create_topic(replication_factor=1)
    (only,) = cluster.replicas(topic)
    cluster.produce(topic, ["a"])
    cluster.kill(only)
    cluster.wait_until(lambda: cluster.leader(topic) is None, "a leader")
    for broker_id in cluster.running:
        wait_for(lambda: _metadata(cluster, broker_id, topic).partitions[0].leader == -1)  # noqa: B023
        (partition,) = _metadata(cluster, broker_id, topic).partitions
        assert partition.error is ErrorCode.LEADER_NOT_AVAILABLE
        assert (list(partition.replicas), list(partition.offline_replicas)) == ([only], [only])
    cluster.start(only)
    cluster.wait_for_leader(topic)
    cluster.assert_produced(topic, ["a"])


def test_metadata_lists_offline_replicas_of_killed_broker(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    cluster.kill(2)
    for broker_id in (1, 3):
        wait_for(lambda: sorted(_metadata(cluster, broker_id, topic).partitions[0].isr) == [1, 3])  # noqa: B023
        assert list(_metadata(cluster, broker_id, topic).partitions[0].offline_replicas) == [2]
        brokers = cluster.broker(broker_id).ask(Metadata(topics=[])).brokers
        assert sorted(broker.node_id for broker in brokers) == [1, 3]


def test_the_controller_dies_together_with_a_leader(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    cluster.wait_in_sync(topic)
    controller = cluster.controller
    assert controller is not None
    leader = _others(cluster, controller)[0]
    cluster.move_leader(topic, 0, leader)
    cluster.produce(topic, ["a"])
    cluster.kill(controller)
    cluster.kill(leader)
    (left,) = cluster.running
    assert cluster.wait_for_leader(topic) == left
    assert cluster.controller == left
    cluster.produce(topic, ["b"])
    cluster.start()
    cluster.wait_in_sync(topic)
    cluster.assert_produced(topic, ["a", "b"])
