"""Requests of three admin libraries other than topics and settings: each gets an answer, or a clear refusal."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as CkTopicPartition
from support.abandoned_sockets import abandoned_sockets  # noqa: F401  a fixture
from support.confluent import AdminClient, ConfigResource, OffsetSpecs
from support.group_member import IdleMember
from support.kafka_python import KafkaAdminClient, OffsetAndMetadata, OffsetSpec, TopicPartition, kafka_errors
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Producer

pytestmark = [
    pytest.mark.xdist_group("admin-libraries"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0, log_retention_ms=-1) as running:
        yield running


@pytest.fixture
def ours(broker: Broker) -> Iterator[Admin]:
    with Admin(broker) as admin:
        yield admin


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker, ours: Admin) -> str:
    """Two partitions; ten messages in the first, of which the third is the youngest."""
    name = f"topic-of-{request.node.name}"
    ours.create_topic(name, partitions=2)
    with Producer(broker) as producer:
        for n in range(10):
            producer.send(name, b"%d" % n, partition=0, timestamp_ms=START_MS + (99 if n == 2 else n))
        producer.confirm(PATIENCE_S)
    return name


TOPIC_OPERATIONS = {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
GROUP_OPERATIONS = {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
CLUSTER_OPERATIONS = {
    "CREATE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
}


def outcome(asked: Future[Any]) -> Any:
    """Return the result, or the code of the error."""
    try:
        return asked.result(PATIENCE_S)
    except KafkaException as error:
        return error.args[0].code()


def outcomes(asked: Mapping[Any, Future[Any]]) -> list[Any]:
    return [outcome(each) for each in asked.values()]


@pytest.fixture(scope="module")
def confluent(broker: Broker) -> Any:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def test_confluent_replaces_configs(confluent: Any, topic: str, ours: Admin) -> None:
    for wanted in ({"retention.ms": "5000", "segment.bytes": "1048576"}, {"retention.ms": "7000"}):
        assert outcomes(confluent.alter_configs([ConfigResource("topic", topic, set_config=wanted)])) == [None]
        assert ours.topic_overrides(topic) == wanted
    unknown = ConfigResource("topic", topic, set_config={"no.such.key": "1"})
    assert outcomes(confluent.alter_configs([unknown])) == [KafkaError.INVALID_CONFIG]


def test_confluent_asks_for_leaders_and_offsets(confluent: Any, topic: str) -> None:
    places = [CkTopicPartition(topic, 0), CkTopicPartition(topic, 9)]
    for kind in ElectionType:
        elected = confluent.elect_leaders(kind, places).result(PATIENCE_S)
        assert [elected[tp].code() for tp in places] == [
            KafkaError.ELECTION_NOT_NEEDED,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        ]
        assert confluent.elect_leaders(kind, None).result(PATIENCE_S) == {}
    specs = [
        OffsetSpecs.earliest(),
        OffsetSpecs.latest(),
        OffsetSpecs.max_timestamp(),
        OffsetSpecs.for_timestamp(START_MS + 5),
    ]
    found = [outcomes(confluent.list_offsets({places[0]: spec}))[0].offset for spec in specs]
    assert found == [0, 10, 2, 2]
    low = confluent.delete_records([CkTopicPartition(topic, 0, 3), CkTopicPartition(topic, 1, 9)])
    deleted, refused = outcomes(low)
    assert (deleted.low_watermark, refused) == (3, KafkaError.OFFSET_OUT_OF_RANGE)


def test_confluent_describes_cluster_and_topics(confluent: Any, topic: str) -> None:
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert [node.id for node in cluster.nodes] == [cluster.controller.id]
    described, unknown = outcomes(confluent.describe_topics(TopicCollection([topic, "nowhere"])))
    assert (len(described.partitions), unknown) == (2, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_confluent_gets_authorized_operations_on_request(confluent: Any, topic: str, ours: Admin) -> None:
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert {each.name for each in cluster.authorized_operations} == CLUSTER_OPERATIONS
    (observed,) = outcomes(confluent.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert {each.name for each in observed.authorized_operations} == TOPIC_OPERATIONS
    member = IdleMember(ours, "ck-operations", [(topic, 0)])
    (group,) = outcomes(confluent.describe_consumer_groups(["ck-operations"], include_authorized_operations=True))
    assert {each.name for each in group.authorized_operations} == GROUP_OPERATIONS
    (unasked,) = outcomes(confluent.describe_consumer_groups(["ck-operations"]))
    assert not unasked.authorized_operations
    member.leave()


def test_confluent_administers_groups(confluent: Any, topic: str, ours: Admin) -> None:
    place = CkTopicPartition(topic, 0, 5)
    (altered,) = outcomes(confluent.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("ck", [place])]))
    assert [each.error for each in altered.topic_partitions] == [None]
    for wanted in (None, [CkTopicPartition(topic, 0)]):
        (observed,) = outcomes(confluent.list_consumer_group_offsets([ConsumerGroupTopicPartitions("ck", wanted)]))
        assert [each.offset for each in observed.topic_partitions] == [5]
    member = IdleMember(ours, "ck", [(topic, 0)])
    for states, expected in ((set(), True), ({ConsumerGroupState.STABLE}, True), ({ConsumerGroupState.EMPTY}, False)):
        listed = confluent.list_consumer_groups(states=states).result(PATIENCE_S)
        assert (listed.errors, "ck" in {group.group_id for group in listed.valid}) == ([], expected)
    (described,) = outcomes(confluent.describe_consumer_groups(["ck"]))
    assert described.state is ConsumerGroupState.STABLE
    assert [each.member_id for each in described.members] == [member.member_id]
    assert [(p.topic, p.partition) for p in described.members[0].assignment.topic_partitions] == [(topic, 0)]
    assert outcomes(confluent.delete_consumer_groups(["ck"])) == [KafkaError.NON_EMPTY_GROUP]
    member.leave()
    deleted = outcomes(confluent.delete_consumer_groups(["ck", "nowhere"]))
    assert deleted == [None, KafkaError.GROUP_ID_NOT_FOUND]


def test_confluent_finds_no_scram_credentials_of_a_broker_without_users(confluent: Any) -> None:
    assert outcome(confluent.describe_user_scram_credentials()) == {}


@pytest.fixture(scope="module")
def kafka_python(broker: Broker) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def test_kafka_python_asks_for_leaders_and_replicas(kafka_python: Any, topic: str, ours: Admin) -> None:
    here = ours.describe_cluster().controller_id
    for kind in (0, 1):
        observed = kafka_python.elect_leaders(kind, {topic: [0, 1, 9]}, raise_errors=False)
        assert [each.error_code for each in observed.replica_election_results[0].partition_result] == [84, 84, 3]
    tp = TopicPartition(topic, 0)
    assert kafka_python.list_partition_reassignments() == kafka_python.list_partition_reassignments({topic: [0]}) == {}
    assert kafka_python.alter_partition_reassignments({tp: [here]}) == {tp: None}
    for replicas, error in (
        ([99], kafka_errors.InvalidReplicationAssignmentError),
        (None, kafka_errors.NoReassignmentInProgressError),
    ):
        assert kafka_python.alter_partition_reassignments({tp: replicas}) == {tp: error}


def test_kafka_python_looks_into_partitions(kafka_python: Any, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    for spec, offset in ((-2, 0), (-1, 10), (-3, 2), (START_MS + 5, 2)):
        assert kafka_python.list_partition_offsets({tp: spec})[tp].offset == offset
    (producer,) = kafka_python.describe_producers([tp])[tp].active_producers
    assert producer.last_sequence == 9
    assert kafka_python.delete_records({tp: 4})[tp]["low_watermark"] == 4
    with pytest.raises(kafka_errors.OffsetOutOfRangeError):
        kafka_python.delete_records({tp: 99})
    (folders,) = [each["log_dirs"] for each in kafka_python.describe_log_dirs()]
    assert topic in {each["name"] for folder in folders for each in folder["topics"]}
    assert kafka_python.describe_cluster()["controller_id"] == 1


def test_kafka_python_administers_groups(kafka_python: Any, topic: str, ours: Admin) -> None:
    place, none = TopicPartition(topic, 0), kafka_errors.NoError
    position = OffsetAndMetadata(5, "m", -1)
    assert kafka_python.alter_group_offsets("kp", {place: position}) == {place: none}
    assert kafka_python.list_group_offsets("kp")["kp"] == {place: position}
    moved = kafka_python.reset_group_offsets("kp", {place: OffsetSpec.EARLIEST})
    assert moved == {place: {"error": none, "offset": 0}}
    member = IdleMember(ours, "kp", [(topic, 0)])
    assert "kp" in str(kafka_python.list_groups())
    described = kafka_python.describe_groups(["kp"])["kp"]
    assert described["group_state"] == "Stable"
    assert member.member_id in str(described["members"])
    subscribed = kafka_python.delete_group_offsets("kp", [place])
    assert subscribed == {place: kafka_errors.GroupSubscribedToTopicError}
    member.leave()
    assert kafka_python.delete_group_offsets("kp", [place]) == {place: none}
    assert kafka_python.delete_groups(["kp"]) == {"kp": "OK"}


def test_kafka_python_describes_topic_partitions_and_the_quorum(kafka_python: Any, topic: str) -> None:
    (quorum,) = kafka_python.describe_metadata_quorum()["topics"]
    assert quorum["topic_name"] == "__cluster_metadata"
    assert [each["leader_id"] for each in quorum["partitions"]] == [1]
    (described,) = kafka_python.describe_topic_partitions([topic])["topics"]
    assert (described["name"], described["error_code"]) == (topic, 0)
    assert [each["partition_index"] for each in described["partitions"]] == [0, 1]


def test_aiokafka_admin_manages_records_and_groups(broker: Broker, topic: str, ours: Admin) -> None:
    ours.alter_group_offsets("aio", {(topic, 0): 5})
    member = IdleMember(ours, "aio", [(topic, 0)])
    place = AioTopicPartition(topic, 0)

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            assert await admin.find_coordinator("aio") == 1
            assert await admin.delete_records({place: RecordsToDelete(before_offset=4)}) == {place: 4}
            assert ("aio", "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups(["aio"])
            assert member.member_id in str(described)
            assert (await admin.list_consumer_group_offsets("aio"))[place].offset == 5
            assert (await admin.describe_cluster())["controller_id"] == 1
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
