"""Metadata and the requests that make, grow and remove topics."""

from typing import Any

import pytest

from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.deltas import BrokersChanged
from barnabas.ports.broker_api.cluster import DescribeCluster
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker


@pytest.fixture
def broker() -> ManualBroker:
    return ManualBroker()


def create(broker: ManualBroker, *topics: NewTopic, validate_only: bool = False) -> list[ErrorCode]:
    answer = broker.ask(CreateTopics(topics=topics, validate_only=validate_only))
    return [topic.error for topic in answer.topics]


def test_broker_lists_itself_in_metadata_while_all_registrations_have_expired(broker: ManualBroker) -> None:
    create(broker, NewTopic(name="t", partitions=1))
    broker.node.state.registry.apply(BrokersChanged(brokers={}))
    requests: list[Any] = [Metadata(topics=["t"]), Metadata(topics=None), DescribeCluster()]
    for request in requests:
        assert [(node.node_id, node.port) for node in broker.ask(request).brokers] == [(1, 9092)]


def test_create_and_describe(broker: ManualBroker) -> None:
    created = broker.ask(CreateTopics(topics=[NewTopic(name="t", partitions=3, configs={"retention.ms": "5"})])).topics[
        0
    ]
    assert (created.error, created.partitions, created.replication_factor) == (ErrorCode.NONE, 3, 1)
    assert created.topic_id != bytes(16)
    assert {entry.name: entry.value for entry in created.configs or ()}["retention.ms"] == "5"
    for asked in (Metadata(topics=["t"]), Metadata(topics=None), Metadata(topics=[], topic_ids=[created.topic_id])):
        answer = broker.ask(asked)
        topic = answer.topics[0]
        assert (topic.name, topic.topic_id, topic.error) == ("t", created.topic_id, ErrorCode.NONE)
        assert [(p.partition, p.leader, p.leader_epoch, tuple(p.isr)) for p in topic.partitions] == [
            (number, 1, 0, (1,)) for number in range(3)
        ]
        assert answer.cluster_id == broker.node.state.cluster_id
        assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "broker", 9092)]
        assert answer.controller_id == 1


def test_metadata_with_empty_topic_list_returns_brokers_only(broker: ManualBroker) -> None:
    broker.create("t")
    answer = broker.ask(Metadata(topics=[]))
    assert (len(answer.brokers), len(answer.topics)) == (1, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "a" * 250, "a b", "../etc"])
def test_create_topics_rejects_illegal_names(broker: ManualBroker, name: str) -> None:
    assert create(broker, NewTopic(name=name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    for allowed in (True, False):
        asked = Metadata(topics=[name], allow_auto_topic_creation=allowed)
        assert broker.ask(asked).topics[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.disk.folders == {}


def test_the_longest_legal_name(broker: ManualBroker) -> None:
    assert create(broker, NewTopic(name="a" * 249)) == [ErrorCode.NONE]
    assert broker.produce("a" * 249, b"x").error is ErrorCode.NONE


def test_invalid_topic_is_refused_with_its_error(broker: ManualBroker) -> None:
    broker.create("t")
    broker.create("with.dot")
    expected = [
        (NewTopic(name="t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic(name="with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="none", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="many", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="both", partitions=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="where", assignments={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="key", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="value", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="null", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="policy", configs={"deletion.policy": "no-such-plugin"}), ErrorCode.INVALID_CONFIG),
    ]
    assert create(broker, *(new for new, _ in expected)) == [code for _, code in expected]
    assert set(broker.node.state.image.topics) == {"t", "with.dot"}


def test_a_topic_named_twice_is_refused_once(broker: ManualBroker) -> None:
    assert create(broker, NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="t")) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


def test_validate_only_has_no_effect(broker: ManualBroker) -> None:
    assert create(broker, NewTopic(name="t"), validate_only=True) == [ErrorCode.NONE]
    assert create(broker, NewTopic(name=".."), validate_only=True) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert broker.ask(Metadata(topics=None)).topics == []


def test_topics_are_made_when_they_are_named(broker: ManualBroker) -> None:
    assert broker.ask(Metadata(topics=["no"], allow_auto_topic_creation=False)).topics[0].error is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    made = broker.ask(Metadata(topics=["yes", "yes"])).topics
    assert [(topic.name, topic.error, len(topic.partitions)) for topic in made] == [("yes", ErrorCode.NONE, 1)]
    assert [topic.name for topic in broker.ask(Metadata(topics=None)).topics] == ["yes"]


def test_topics_are_not_made_where_it_is_forbidden() -> None:
    broker = ManualBroker(auto_create_topics_enable=False)
    assert broker.ask(Metadata(topics=["t"])).topics[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_made_topics_have_the_brokers_defaults() -> None:
    broker = ManualBroker(num_partitions=4)
    assert len(broker.ask(Metadata(topics=["t"])).topics[0].partitions) == 4
    broker.ask(CreateTopics(topics=[NewTopic(name="u")]))
    assert len(broker.ask(Metadata(topics=["u"])).topics[0].partitions) == 4


def test_an_unknown_topic_id(broker: ManualBroker) -> None:
    topic = broker.ask(Metadata(topics=[], topic_ids=[b"x" * 16])).topics[0]
    assert (topic.name, topic.topic_id, topic.error) == (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)


def test_create_partitions_grows_topic_and_rejects_smaller_counts(broker: ManualBroker) -> None:
    broker.create("t", 2)
    broker.produce("t", b"kept")

    def grow(topic: str, count: int, *, validate_only: bool = False) -> ErrorCode:
        request = CreatePartitions(topics=[NewPartitions(topic=topic, count=count)], validate_only=validate_only)
        return broker.ask(request).topics[0].error

    assert grow("t", 2) is ErrorCode.INVALID_PARTITIONS
    assert grow("t", 1) is ErrorCode.INVALID_PARTITIONS
    assert grow("nowhere", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow("t", 5, validate_only=True) is ErrorCode.NONE
    assert len(broker.ask(Metadata(topics=["t"])).topics[0].partitions) == 2
    assert grow("t", 5) is ErrorCode.NONE
    assert broker.produce("t", b"x", partition=4).error is ErrorCode.NONE
    assert broker.values("t") == [b"kept"]


def test_delete_topics_by_name_and_id_removes_them(broker: ManualBroker) -> None:
    broker.create("t", 2)
    broker.create("u")
    broker.produce("t", b"gone")
    u = broker.node.state.image.topic("u").topic_id
    deleted = broker.ask(DeleteTopics(names=["t", "nowhere"], topic_ids=[u, b"y" * 16])).topics
    assert [(topic.name, topic.error) for topic in deleted] == [
        ("t", ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert broker.produce("t", b"x").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create("t", 2)
    assert broker.values("t") == [], "a new topic of the same name is empty"
    broker.restart()
    assert set(broker.node.state.image.topics) == {"t"}


def test_deletion_can_be_forbidden() -> None:
    broker = ManualBroker(delete_topic_enable=False)
    broker.create("t")
    assert broker.ask(DeleteTopics(names=["t"])).topics[0].error is ErrorCode.TOPIC_DELETION_DISABLED


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(broker: ManualBroker) -> None:
    broker.create("t")
    broker.produce("t", b"gone")
    complete(broker.node.state.registry.begin_delete("t"))
    broker.restart()
    broker.create("t")
    assert broker.values("t") == []


def test_delete_records_advances_log_start_offset(broker: ManualBroker) -> None:
    broker.create("t")
    broker.produce("t", b"a", b"b", b"c")

    def delete(offset: int, topic: str = "t", partition: int = 0) -> tuple[ErrorCode, int]:
        entry = DeleteRecordsPartition(topic=topic, partition=partition, offset=offset)
        answer = broker.ask(DeleteRecords(partitions=[entry])).partitions[0]
        return answer.error, answer.low_watermark

    assert delete(1) == (ErrorCode.NONE, 1)
    assert broker.fetch("t", 0).partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert broker.values("t", 1) == [b"b", b"c"]
    assert delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(0) == (ErrorCode.NONE, 1), "the start never goes back"
    assert delete(-1) == (ErrorCode.NONE, 3)
    assert delete(0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_topics_survive_a_restart(broker: ManualBroker) -> None:
    broker.create("t", 3, retention_ms="77")
    before = broker.node.state.image.topic("t")
    cluster_id = broker.node.state.cluster_id
    broker.restart()
    assert broker.node.state.image.topic("t") == before
    assert broker.node.state.cluster_id == cluster_id
    assert broker.node.state.replicas.partitions[("t", 2)].log.config.retention_ms == 77
