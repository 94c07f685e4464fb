"""DescribeTopicPartitions page by page, ListConfigResources, and DescribeQuorum."""

from collections.abc import Iterator

import pytest

from barnabas.core.cluster.topics import PartitionState
from barnabas.ports.broker_api.acls import AclBinding, CreateAcls, ResourceType
from barnabas.ports.broker_api.cluster import DescribeQuorum, QuorumPartition, ReplicaState
from barnabas.ports.broker_api.configs import (
    ConfigAlteration,
    ConfigOp,
    ConfigResource,
    IncrementalAlterConfigs,
    ListConfigResources,
    ResourceKind,
)
from barnabas.ports.broker_api.envelope import Caller, Principal
from barnabas.ports.broker_api.metadata import (
    DescribeTopicPartitions,
    DescribeTopicPartitionsResult,
    TopicPartitionCursor,
)
from barnabas.ports.broker_api.operations import Operation, bit_field
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing import ManualBroker

Pages = list[list[tuple[str, list[int]]]]


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    running = ManualBroker(auto_create_topics_enable=False)
    for name, count in (("b", 3), ("a", 5), ("c", 1)):
        running.create(name, partitions=count)
    yield running
    running.stop()


def pages(broker: ManualBroker, topics: list[str] | None, most: int, caller: Caller | None = None) -> Pages:
    found: Pages = []
    cursor: TopicPartitionCursor | None = None
    while not found or cursor is not None:
        request = DescribeTopicPartitions(topics=topics, partitions_max=most, cursor=cursor)
        result: DescribeTopicPartitionsResult = broker.ask(request, *(() if caller is None else (caller,)))
        found.append([(str(topic.name), [each.partition for each in topic.partitions]) for topic in result.topics])
        cursor = result.next_cursor
    return found


def test_topics_come_in_pages_in_the_order_of_their_names(broker: ManualBroker) -> None:
    assert pages(broker, None, 100) == [[("a", [0, 1, 2, 3, 4]), ("b", [0, 1, 2]), ("c", [0])]]
    assert pages(broker, None, 4) == [[("a", [0, 1, 2, 3])], [("a", [4]), ("b", [0, 1, 2])], [("c", [0])]]
    assert pages(broker, ["c", "b"], 2) == [[("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert pages(broker, ["c", "c"], 0) == [[("c", [0])]], "a page has one partition at least"


def test_a_page_says_all_of_its_partitions(broker: ManualBroker) -> None:
    result = broker.ask(DescribeTopicPartitions(topics=["c", "nowhere"]))
    known, unknown = result.topics
    image = broker.node.state.image
    state: PartitionState = image.states_of("c").get(0) or PartitionState(leader=1, leader_epoch=0, isr=(1,))
    (partition,) = known.partitions
    assert (known.name, known.topic_id, known.error) == ("c", image.topics["c"].topic_id, ErrorCode.NONE)
    assert (partition.leader, partition.leader_epoch, list(partition.isr)) == (
        state.leader,
        state.leader_epoch,
        [state.leader],
    )
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()
    assert known.authorized_operations > 0
    assert (unknown.name, unknown.error, unknown.partitions) == ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())


def test_a_topic_that_is_deleted_between_pages_is_passed_over(broker: ManualBroker) -> None:
    cursor = TopicPartitionCursor("bb", 3)
    result = broker.ask(DescribeTopicPartitions(cursor=cursor))
    assert [topic.name for topic in result.topics] == ["c"]


ADMIN = Caller(client_id="admin", principal=Principal("User", "admin"))
ALICE = Caller(client_id="alice", principal=Principal("User", "alice"))


@pytest.fixture
def guarded() -> Iterator[ManualBroker]:
    running = ManualBroker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:admin",
        auto_create_topics_enable=False,
    )
    new = [NewTopic(name=name, partitions=2) for name in ("a", "b", "c", "d")]
    running.ask(CreateTopics(topics=new), ADMIN)
    acls = [
        AclBinding(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            principal="User:alice",
            operation=Operation.DESCRIBE,
        )
        for name in ("a", "c")
    ]
    running.ask(CreateAcls(acls=acls), ADMIN)
    yield running
    running.stop()


def test_hidden_topics_are_in_no_page_and_in_no_cursor(guarded: ManualBroker) -> None:
    assert pages(guarded, None, 2, ALICE) == [[("a", [0, 1])], [("c", [0, 1])]]
    result = guarded.ask(DescribeTopicPartitions(partitions_max=2), ALICE)
    assert result.next_cursor == TopicPartitionCursor("c", 0)


def test_hidden_topics_that_are_named_are_denied(guarded: ManualBroker) -> None:
    result = guarded.ask(DescribeTopicPartitions(topics=["a", "b", "nowhere"], partitions_max=1), ALICE)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [(topic.name, topic.error) for topic in result.topics] == [
        ("a", ErrorCode.NONE),
        ("b", denied),
        ("nowhere", denied),
    ]
    assert result.topics[0].authorized_operations == bit_field([Operation.DESCRIBE])


def test_resources_with_configs_are_listed_by_kind(broker: ManualBroker) -> None:
    group = ConfigResource(kind=ResourceKind.GROUP, name="readers")
    change = ConfigAlteration(resource=group, name="consumer.session.timeout.ms", value="50000", op=ConfigOp.SET)
    broker.ask(IncrementalAlterConfigs(resources=[group], alterations=[change]))
    own = str(broker.node.state.node_id)

    def listed(*kinds: int) -> list[tuple[int, str]]:
        result = broker.ask(ListConfigResources(kinds=kinds))
        assert result.error is ErrorCode.NONE
        return [(each.kind, each.name) for each in result.resources]

    assert listed(ResourceKind.TOPIC) == [(2, "a"), (2, "b"), (2, "c")]
    assert listed(ResourceKind.GROUP, ResourceKind.BROKER) == [(32, "readers"), (4, own)]
    assert listed(ResourceKind.CLIENT_METRICS) == []
    assert listed() == [(2, "a"), (2, "b"), (2, "c"), (4, own), (8, own), (32, "readers")]


def test_resources_of_an_unknown_kind_are_an_error(broker: ManualBroker) -> None:
    assert broker.ask(ListConfigResources(kinds=[2, 3])).error is ErrorCode.UNSUPPORTED_VERSION


def test_the_quorum_is_the_controller_and_the_live_brokers() -> None:
    broker = ManualBroker(shared=True)
    own = broker.node.state.node_id
    result = broker.ask(DescribeQuorum(partitions=[QuorumPartition("__cluster_metadata", 0), QuorumPartition("t", 0)]))
    (metadata, other) = result.partitions
    assert (metadata.leader_id, metadata.leader_epoch, metadata.error) == (own, 1, ErrorCode.NONE)
    assert metadata.voters == [ReplicaState(replica_id=own, log_end_offset=0)]
    assert other.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [node.node_id for node in result.nodes] == [own]
    broker.stop()
