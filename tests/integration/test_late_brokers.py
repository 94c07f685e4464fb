"""Brokers whose image of the topics is late: what they answer to a request for the controller is true all the same.

A client may send such a request to any broker, and goes to another one when the first does not answer in time.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import pytest
from support.waiting import wait_for

from barnabas.app.broker.state.broker_state import BrokerState
from barnabas.core.cluster.change_queue import elsewhere, on_disk
from barnabas.core.cluster.topics import Topic
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.replicas import (
    AlterPartitionReassignments,
    ElectionType,
    ElectLeaders,
    ListPartitionReassignments,
    Reassignment,
)
from barnabas.ports.broker_api.topics import CreatePartitions, CreateTopics, DeleteTopics, NewPartitions, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestCluster
from barnabas.testing.logs import batch

EARLY, LATE = 1, 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        yield running


@contextmanager
def is_late(cluster: TestCluster, broker_id: int = LATE) -> Iterator[None]:
    """Delay the watch events of a broker until this context ends."""
    node = cluster.broker(broker_id).inner.node
    assert node.member is not None
    listener, held = node.member._follower, list[Collection[str] | None]()
    note = listener._note
    try:
        with patch.object(listener, "_note", held.append):
            yield
    finally:
        for paths in held:
            node.state.scheduler.call_soon(partial(note, paths))


def _state(cluster: TestCluster, broker_id: int) -> BrokerState:
    return cluster.broker(broker_id).inner.node.state


def _create(
    cluster: TestCluster, broker_id: int, name: str, replicas: Sequence[int] = (1, 2, 3)
) -> tuple[ErrorCode, bytes]:
    new = NewTopic(name=name, assignments={0: replicas})
    (made,) = cluster.broker(broker_id).ask(CreateTopics(topics=[new])).topics
    return made.error, made.topic_id


def _delete(cluster: TestCluster, broker_id: int, *names: str, ids: Collection[bytes] = ()) -> tuple[ErrorCode, bytes]:
    (deleted,) = cluster.broker(broker_id).ask(DeleteTopics(names=names, topic_ids=tuple(ids))).topics
    return deleted.error, deleted.topic_id


def _has(cluster: TestCluster, broker_id: int, name: str) -> bool:
    return name in cluster.broker(broker_id).image.topics


def _alter(cluster: TestCluster, broker_id: int, topic: str, key: str, value: str) -> ErrorCode:
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=topic)
    change = ConfigAlteration(resource=resource, name=key, value=value)
    request = IncrementalAlterConfigs(resources=[resource], alterations=[change])
    (altered,) = cluster.broker(broker_id).ask(request).resources
    return altered.error


def _known_to_all(cluster: TestCluster, topic: str) -> None:
    cluster.wait_in_sync(topic)
    cluster.wait_until(lambda: all(_has(cluster, each, topic) for each in cluster.broker_ids), "a broker is late")


def test_late_broker_deletes_topic_that_another_has_just_created(cluster: TestCluster) -> None:
    with is_late(cluster):
        error, made = _create(cluster, EARLY, "new")
        assert error is ErrorCode.NONE
        assert not _has(cluster, LATE, "new")
        assert _delete(cluster, LATE, "new") == (ErrorCode.NONE, made)
        assert _delete(cluster, LATE, "new")[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_late_broker_deletes_topic_by_an_id_that_is_new_to_it(cluster: TestCluster) -> None:
    with is_late(cluster):
        _, made = _create(cluster, EARLY, "by-id")
        assert _delete(cluster, LATE, ids=[made]) == (ErrorCode.NONE, made)
        assert _delete(cluster, LATE, ids=[made])[0] is ErrorCode.UNKNOWN_TOPIC_ID


def test_late_broker_creates_topic_that_another_has_just_deleted(cluster: TestCluster) -> None:
    _, first = _create(cluster, EARLY, "again")
    _known_to_all(cluster, "again")
    with is_late(cluster):
        assert _delete(cluster, EARLY, "again") == (ErrorCode.NONE, first)
        assert _has(cluster, LATE, "again")
        error, second = _create(cluster, LATE, "again")
        assert error is ErrorCode.NONE
        assert second != first
        assert _create(cluster, LATE, "again")[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    _known_to_all(cluster, "again")
    assert {cluster.broker(each).image.topics["again"].topic_id for each in cluster.broker_ids} == {second}


def test_late_broker_deletes_the_later_topic_of_a_name(cluster: TestCluster) -> None:
    _create(cluster, EARLY, "twice")
    _known_to_all(cluster, "twice")
    with is_late(cluster):
        _delete(cluster, EARLY, "twice")
        _, second = _create(cluster, EARLY, "twice")
        assert _delete(cluster, LATE, "twice") == (ErrorCode.NONE, second)
        assert _create(cluster, EARLY, "twice")[0] is ErrorCode.NONE
    _delete(cluster, EARLY, "twice")


def test_late_broker_adds_partitions_to_topic_that_another_has_just_created(cluster: TestCluster) -> None:
    with is_late(cluster):
        _create(cluster, EARLY, "grows")
        request = CreatePartitions(topics=[NewPartitions(topic="grows", count=3)])
        (grown,) = cluster.broker(LATE).ask(request).topics
        assert grown.error is ErrorCode.NONE
        assert len(cluster.broker(LATE).image.topics["grows"].partitions) == 3


def test_late_broker_moves_partition_of_topic_that_another_has_just_created(cluster: TestCluster) -> None:
    with is_late(cluster):
        _create(cluster, EARLY, "moves")
        request = AlterPartitionReassignments(partitions=[Reassignment(topic="moves", partition=0, replicas=[3, 1, 2])])
        (moved,) = cluster.broker(LATE).ask(request).partitions
        assert moved.error is ErrorCode.NONE


def test_late_broker_alters_configs_of_topic_that_another_has_just_created(cluster: TestCluster) -> None:
    with is_late(cluster):
        _create(cluster, EARLY, "altered")
        assert _alter(cluster, LATE, "altered", "retention.ms", "1") is ErrorCode.NONE


def test_late_broker_does_not_undo_the_configs_that_another_has_just_altered(cluster: TestCluster) -> None:
    _create(cluster, EARLY, "both")
    _known_to_all(cluster, "both")
    with is_late(cluster):
        assert _alter(cluster, EARLY, "both", "retention.ms", "12345") is ErrorCode.NONE
        assert _alter(cluster, LATE, "both", "segment.bytes", "23456") is ErrorCode.NONE
    wanted = {"retention.ms": "12345", "segment.bytes": "23456"}
    cluster.wait_until(
        lambda: all(cluster.broker(each).image.topics["both"].configs == wanted for each in cluster.broker_ids),
        "a change was undone",
    )


def test_late_broker_does_not_give_the_configs_of_a_deleted_topic_to_the_next(cluster: TestCluster) -> None:
    _create(cluster, EARLY, "next")
    _alter(cluster, EARLY, "next", "retention.ms", "12345")
    _known_to_all(cluster, "next")
    cluster.wait_until(lambda: bool(cluster.broker(LATE).image.topics["next"].configs), "the configs do not arrive")
    with is_late(cluster):
        _delete(cluster, EARLY, "next")
        _create(cluster, EARLY, "next")
        assert _alter(cluster, LATE, "next", "segment.bytes", "23456") is ErrorCode.NONE
        assert cluster.broker(LATE).image.topics["next"].configs == {"segment.bytes": "23456"}


def _produce(cluster: TestCluster, topic: str, topic_id: bytes) -> ErrorCode:
    records = bytearray(batch(b"m", at=int(time.time() * 1000)))  # retention deletes old records
    sent = ProducePartition(topic, 0, memoryview(records), topic_id)
    (answered,) = cluster.broker(LATE).ask(Produce(partitions=[sent])).partitions
    return answered.error


def _end(cluster: TestCluster, topic: str, topic_id: bytes) -> tuple[ErrorCode, int]:
    """Fetch from the start; return the high watermark."""
    wanted = FetchPartition(topic, 0, 0, 1000, topic_id=topic_id)
    (fetched,) = cluster.broker(LATE).ask(Fetch(partitions=[wanted], max_wait_ms=0)).partitions
    return fetched.error, fetched.high_watermark


def test_late_brokers_serve_a_deleted_topic_by_its_own_id_and_never_by_that_of_the_next(cluster: TestCluster) -> None:
    """All replicas of the topic still lack its deletion, as can happen in Kafka."""
    _, first = _create(cluster, EARLY, "served", [LATE, 3])
    cluster.wait_in_sync("served")
    assert cluster.leader("served") == LATE
    assert _produce(cluster, "served", first) is ErrorCode.NONE
    with is_late(cluster), is_late(cluster, 3):
        _delete(cluster, EARLY, "served")
        _, second = _create(cluster, EARLY, "served", [LATE, 3])
        assert _produce(cluster, "served", first) is ErrorCode.NONE
        assert _end(cluster, "served", first) == (ErrorCode.NONE, 2)
        assert _produce(cluster, "served", second) is ErrorCode.UNKNOWN_TOPIC_ID
        assert _end(cluster, "served", second)[0] is ErrorCode.UNKNOWN_TOPIC_ID
    cluster.wait_until(lambda: _produce(cluster, "served", second) is ErrorCode.NONE, "the next topic is not led")
    assert _produce(cluster, "served", first) is ErrorCode.UNKNOWN_TOPIC_ID
    assert _end(cluster, "served", first)[0] is ErrorCode.UNKNOWN_TOPIC_ID
    assert _end(cluster, "served", second) == (ErrorCode.NONE, 1)


def test_broker_that_is_suspended_within_a_deletion_by_name_spares_the_later_topic(cluster: TestCluster) -> None:
    _create(cluster, EARLY, "spared")
    _known_to_all(cluster, "spared")
    registry = _state(cluster, LATE).registry
    begin_delete, later = registry.begin_delete, list[tuple[ErrorCode, bytes]]()

    def replace_topic() -> None:
        _delete(cluster, EARLY, "spared")
        later.append(_create(cluster, EARLY, "spared"))

    async def begin_late(name: str, brokers: Iterable[int] = ()) -> Topic:
        await elsewhere(replace_topic)
        return await begin_delete(name, brokers)

    with is_late(cluster), patch.object(registry, "begin_delete", begin_late):
        assert _delete(cluster, LATE, "spared")[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [error for error, _ in later] == [ErrorCode.NONE]
    _known_to_all(cluster, "spared")
    assert {cluster.broker(each).image.topics["spared"].topic_id for each in cluster.broker_ids} == {later[0][1]}
    assert _delete(cluster, LATE, "spared") == later[0]


def test_deletion_that_has_no_turn_within_its_timeout_is_not_made(cluster: TestCluster) -> None:
    _create(cluster, EARLY, "in-time")
    _known_to_all(cluster, "in-time")
    changes = _state(cluster, LATE).changes
    deletion = DeleteTopics(names=["in-time"], timeout_ms=50)

    def outlast_deletion() -> None:
        wait_for(lambda: len(changes._queue._waiting) > 1)
        time.sleep(2 * deletion.timeout_ms / 1000)

    async def long_change() -> None:
        await on_disk(outlast_deletion)

    _state(cluster, LATE).scheduler.call_soon(lambda: changes.submit("a long change", long_change, lambda _: None))
    (refused,) = cluster.broker(LATE).ask(deletion).topics
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    assert _has(cluster, EARLY, "in-time")


def _elect(cluster: TestCluster, broker_id: int, topic: str) -> ErrorCode:
    request = ElectLeaders(topics={topic: [0]}, election_type=ElectionType.PREFERRED)
    (elected,) = cluster.broker(broker_id).ask(request).partitions
    return elected.error


def test_late_broker_elects_in_topic_that_another_has_just_created(cluster: TestCluster) -> None:
    with is_late(cluster):
        _create(cluster, EARLY, "elects")
        assert _elect(cluster, LATE, "elects") is ErrorCode.ELECTION_NOT_NEEDED
        assert _elect(cluster, LATE, "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_late_broker_elects_the_first_of_the_replicas_that_another_has_just_set(cluster: TestCluster) -> None:
    _create(cluster, EARLY, "ordered")
    _known_to_all(cluster, "ordered")
    before = cluster.broker(EARLY).image.topics["ordered"].partitions[0]
    with is_late(cluster):
        wanted = Reassignment(topic="ordered", partition=0, replicas=[*before[1:], before[0]])
        (moved,) = cluster.broker(EARLY).ask(AlterPartitionReassignments(partitions=[wanted])).partitions
        assert moved.error is ErrorCode.NONE
        cluster.wait_until(
            lambda: not cluster.broker(EARLY).ask(ListPartitionReassignments()).partitions, "the move does not end"
        )
        assert _elect(cluster, LATE, "ordered") in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        key = TopicPartition("ordered", 0)
        assert cluster.broker(LATE).image.state(key).leader == before[1]


@pytest.mark.parametrize("is_named", [False, True])
def test_late_broker_lists_reassignment_that_another_has_just_begun(cluster: TestCluster, is_named: bool) -> None:
    name = "lists-named" if is_named else "lists"
    _create(cluster, EARLY, name, [1, 3])
    _known_to_all(cluster, name)
    with is_late(cluster):
        # It does not hear that it should copy, until it is asked: then the move may end.
        wanted = Reassignment(topic=name, partition=0, replicas=[1, LATE])
        (moved,) = cluster.broker(EARLY).ask(AlterPartitionReassignments(partitions=[wanted])).partitions
        assert moved.error is ErrorCode.NONE
        request = ListPartitionReassignments(topics={name: [0]} if is_named else None)
        moves = cluster.broker(LATE).ask(request).partitions
        assert [(tuple(move.adding), tuple(move.removing)) for move in moves if move.topic == name] == [((LATE,), (3,))]


def _alter_default(cluster: TestCluster, broker_id: int, key: str, value: str) -> ErrorCode:
    resource = ConfigResource(kind=ResourceKind.BROKER, name="")
    change = ConfigAlteration(resource=resource, name=key, value=value)
    (altered,) = (
        cluster.broker(broker_id).ask(IncrementalAlterConfigs(resources=[resource], alterations=[change])).resources
    )
    return altered.error


def test_late_broker_does_not_undo_the_default_of_all_brokers_that_another_has_just_set(cluster: TestCluster) -> None:
    with is_late(cluster):
        assert _alter_default(cluster, EARLY, "log.retention.ms", "86400000") is ErrorCode.NONE
        assert _alter_default(cluster, LATE, "log.segment.bytes", "1048576") is ErrorCode.NONE
    wanted = {"log.retention.ms": "86400000", "log.segment.bytes": "1048576"}
    cluster.wait_until(
        lambda: all(dict(cluster.broker(each).image.configs.get(None, {})) == wanted for each in cluster.broker_ids),
        "a change was undone",
    )
