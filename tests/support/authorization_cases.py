"""The rights that each API needs, by the table of Apache Kafka (facts A7): one case per API and operation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from barnabas.ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    CreateAcls,
    DeleteAcls,
    DescribeAcls,
    ResourceType,
)
from barnabas.ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicOffsets,
    ClassicProduce,
    ClassicProducePartition,
)
from barnabas.ports.broker_api.cluster import (
    DescribeConnections,
    DescribeLogDirs,
    DescribeQuorum,
    QuorumPartition,
    UnregisterBroker,
)
from barnabas.ports.broker_api.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigDescription,
    ConfigReplacement,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ListConfigResources,
    ResourceKind,
)
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from barnabas.ports.broker_api.envelope import Caller, Principal, Request
from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.features import FeatureUpdate, UpdateFeatures
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.groups import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    SyncGroup,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.mirroring import MirrorRecords
from barnabas.ports.broker_api.offsets import ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.operations import (
    Operation,
)
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.producers import DescribeProducers, InitProducerId
from barnabas.ports.broker_api.quotas import AlterClientQuotas, DescribeClientQuotas, QuotaAlteration
from barnabas.ports.broker_api.replicas import (
    AlterPartitionReassignments,
    ElectLeaders,
    ListPartitionReassignments,
    Reassignment,
)
from barnabas.ports.broker_api.scram import AlterUserScramCredentials, DescribeUserScramCredentials, ScramDeletion
from barnabas.ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
    ShareGroupOffsetsQuery,
    ShareGroupTopic,
    SharePartitionStart,
)
from barnabas.ports.broker_api.share_groups import (
    ShareAcknowledge,
    ShareFetch,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
)
from barnabas.ports.broker_api.share_partitions import DescribeSharePartitions
from barnabas.ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializePartition,
    InitializeShareGroupState,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    StatePartition,
    WritePartition,
    WriteShareGroupState,
)
from barnabas.ports.broker_api.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from barnabas.ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransactions,
    EndTxn,
    TxnMarker,
    TxnOffsetCommit,
    WriteTxnMarkers,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import batch

Op, R = Operation, ResourceType
ALICE = Caller(client_id="app", host="10.0.0.9", connection=1, principal=Principal("User", "alice"))
ADMIN = Caller(client_id="app", host="10.0.0.9", connection=2, principal=Principal("User", "admin"))
Right = tuple[Operation, ResourceType, str]
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLUSTER_NAME = "kafka-cluster"
SHARE_GROUP = "shared"
TOPIC_29, GROUP_30, CLUSTER_31, TRANSACTIONAL_ID_53 = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def cluster(operation: Operation) -> Right:
    return (operation, R.CLUSTER, CLUSTER_NAME)


def topic(operation: Operation, name: str = "t") -> Right:
    return (operation, R.TOPIC, name)


def group(operation: Operation, name: str = "g") -> Right:
    return (operation, R.GROUP, name)


def transactional_id(operation: Operation) -> Right:
    return (operation, R.TRANSACTIONAL_ID, "tx")


@frozen
class Case:
    """A request, the rights that it needs together, and the error if a right is missing."""

    request: Request[Any]
    rights: Mapping[Right, ErrorCode]
    also: Sequence[Sequence[Right]] = ()
    """Other rights that suffice as well."""

    @property
    def name(self) -> str:
        return type(self.request).__name__


TP = TopicPartition("t", 0)
CONFIG_TOPIC = ConfigResource(kind=ResourceKind.TOPIC, name="t")
CONFIG_BROKER = ConfigResource(kind=ResourceKind.BROKER, name="1")
COMMIT = OffsetCommitPartition("t", 0, 1)
FOLLOWER = 7
OTHER = Principal("User", "bob")
ACL = AclBinding(resource_type=R.TOPIC, resource_name="t", principal="User:bob", operation=Op.READ)


def _cases() -> Iterator[Case]:
    def case(request: Request[Any], rights: Mapping[Right, ErrorCode], *also: Sequence[Right]) -> Case:
        return Case(request, rights, also)

    records, transactional = memoryview(bytearray(batch(b"x"))), memoryview(bytearray(batch(b"x")))
    transactional[22] |= 0x10
    yield case(Produce(partitions=[ProducePartition("t", 0, records)]), {topic(Op.WRITE): TOPIC_29})
    yield case(
        Produce(partitions=[ProducePartition("t", 0, transactional)], transactional_id="tx"),
        {transactional_id(Op.WRITE): TRANSACTIONAL_ID_53, topic(Op.WRITE): TOPIC_29},
    )
    yield case(Fetch(partitions=[FetchPartition("t", 0, 0, 100)]), {topic(Op.READ): TOPIC_29})
    yield case(
        Fetch(partitions=[FetchPartition("t", 0, 0, 100)], replica_id=FOLLOWER), {cluster(Op.CLUSTER_ACTION): TOPIC_29}
    )
    listed = [ListOffsetsPartition(topic="t", partition=0, timestamp=-1)]
    yield case(ListOffsets(partitions=listed), {topic(Op.DESCRIBE): TOPIC_29})
    yield case(
        ListOffsets(partitions=listed, replica_id=FOLLOWER),
        {cluster(Op.CLUSTER_ACTION): TOPIC_29, topic(Op.DESCRIBE): TOPIC_29},
    )
    yield case(Metadata(topics=["t"]), {topic(Op.DESCRIBE): TOPIC_29})
    yield case(OffsetCommit(group_id="g", partitions=[COMMIT]), {group(Op.READ): GROUP_30, topic(Op.READ): TOPIC_29})
    yield case(
        OffsetFetch(groups=[OffsetFetchGroup(group_id="g", partitions=[TP])]),
        {group(Op.DESCRIBE): GROUP_30, topic(Op.DESCRIBE): TOPIC_29},
    )
    yield case(FindCoordinator(keys=["g"]), {group(Op.DESCRIBE): GROUP_30})
    yield case(FindCoordinator(keys=["tx"], key_type=1), {transactional_id(Op.DESCRIBE): TRANSACTIONAL_ID_53})
    yield case(FindCoordinator(keys=["g:t:0"], key_type=2), {cluster(Op.CLUSTER_ACTION): CLUSTER_31})
    yield case(
        JoinGroup(group_id="g", session_timeout_ms=6000, protocol_type="consumer", protocols=[]),
        {group(Op.READ): GROUP_30},
    )
    yield case(Heartbeat(group_id="g", generation_id=1, member_id="m"), {group(Op.READ): GROUP_30})
    yield case(LeaveGroup(group_id="g", members=[LeavingMember(member_id="m")]), {group(Op.READ): GROUP_30})
    yield case(
        SyncGroup(group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"),
        {group(Op.READ): GROUP_30},
    )
    yield case(DescribeGroups(group_ids=["g"]), {group(Op.DESCRIBE): GROUP_30})
    yield case(ConsumerGroupDescribe(group_ids=["g"]), {group(Op.DESCRIBE): GROUP_30})
    joining = ConsumerGroupHeartbeat(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    yield case(joining, {group(Op.READ): GROUP_30, topic(Op.DESCRIBE): TOPIC_29})
    yield case(CreateTopics(topics=[NewTopic(name="t")]), {topic(Op.CREATE): TOPIC_29}, [cluster(Op.CREATE)])
    yield case(DeleteTopics(names=["t"]), {topic(Op.DELETE): TOPIC_29}, [cluster(Op.DELETE)])
    yield case(
        DeleteRecords(partitions=[DeleteRecordsPartition(topic="t", partition=0, offset=0)]),
        {topic(Op.DELETE): TOPIC_29},
    )
    yield case(InitProducerId(transactional_id="tx"), {transactional_id(Op.WRITE): TRANSACTIONAL_ID_53})
    yield case(InitProducerId(), {cluster(Op.IDEMPOTENT_WRITE): CLUSTER_31}, [topic(Op.WRITE, "any")])
    epochs = [OffsetForLeaderPartition(topic="t", partition=0, leader_epoch=0)]
    yield case(OffsetForLeaderEpoch(partitions=epochs), {topic(Op.DESCRIBE): TOPIC_29}, [cluster(Op.CLUSTER_ACTION)])
    yield case(OffsetForLeaderEpoch(partitions=epochs, replica_id=FOLLOWER), {cluster(Op.CLUSTER_ACTION): TOPIC_29})
    added = AddPartitionsToTxn(transactional_id="tx", producer_id=1, producer_epoch=0, partitions=[TP])
    yield case(added, {transactional_id(Op.WRITE): TRANSACTIONAL_ID_53, topic(Op.WRITE): TOPIC_29})
    yield case(evolve(added, verify_only=True), {cluster(Op.CLUSTER_ACTION): CLUSTER_31})
    yield case(evolve(added, supports_epoch_bump=True), {cluster(Op.CLUSTER_ACTION): CLUSTER_31})
    ended: dict[str, Any] = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
    yield case(
        AddOffsetsToTxn(group_id="g", **ended),
        {transactional_id(Op.WRITE): TRANSACTIONAL_ID_53, group(Op.READ): GROUP_30},
    )
    yield case(EndTxn(committed=True, **ended), {transactional_id(Op.WRITE): TRANSACTIONAL_ID_53})
    marker = TxnMarker(producer_id=1, producer_epoch=0, committed=True, partitions=[TP])
    yield case(WriteTxnMarkers(markers=[marker]), {cluster(Op.CLUSTER_ACTION): CLUSTER_31}, [cluster(Op.ALTER)])
    yield case(
        TxnOffsetCommit(group_id="g", partitions=[COMMIT], **ended),
        {transactional_id(Op.WRITE): TRANSACTIONAL_ID_53, group(Op.READ): GROUP_30, topic(Op.READ): TOPIC_29},
    )
    yield case(DescribeAcls(), {cluster(Op.DESCRIBE): CLUSTER_31})
    yield case(CreateAcls(acls=[ACL]), {cluster(Op.ALTER): CLUSTER_31})
    yield case(DeleteAcls(filters=[AclBindingFilter(resource_name="no")]), {cluster(Op.ALTER): CLUSTER_31})
    for resource, right, code in (
        (CONFIG_TOPIC, topic, TOPIC_29),
        (ConfigResource(kind=ResourceKind.GROUP, name="g"), group, GROUP_30),
        (CONFIG_BROKER, cluster, CLUSTER_31),
    ):
        changed = ConfigAlteration(resource=resource, name="retention.ms", value="1")
        altering = {right(Op.ALTER_CONFIGS): code}
        yield case(
            DescribeConfigs(resources=[ConfigDescription(resource=resource)]), {right(Op.DESCRIBE_CONFIGS): code}
        )
        yield case(AlterConfigs(resources=[ConfigReplacement(resource=resource, configs={})]), altering)
        yield case(IncrementalAlterConfigs(resources=[resource], alterations=[changed]), altering)
    yield case(DescribeLogDirs(), {cluster(Op.DESCRIBE): CLUSTER_31})
    yield case(DescribeConnections(), {cluster(Op.DESCRIBE): CLUSTER_31})
    yield case(MirrorRecords(topic="t", partition=0, source="there"), {cluster(Op.CLUSTER_ACTION): CLUSTER_31})
    yield case(DescribeSharePartitions(group_id="g"), {group(Op.DESCRIBE): GROUP_30})
    yield case(CreatePartitions(topics=[NewPartitions(topic="t", count=2)]), {topic(Op.ALTER): TOPIC_29})
    yield case(DeleteGroups(group_ids=["g"]), {group(Op.DELETE): GROUP_30})
    yield case(ElectLeaders(topics=None), {cluster(Op.ALTER): CLUSTER_31})
    moved = Reassignment(topic="t", partition=0, replicas=[1])
    yield case(AlterPartitionReassignments(partitions=[moved]), {cluster(Op.ALTER): CLUSTER_31})
    yield case(ListPartitionReassignments(), {cluster(Op.DESCRIBE): CLUSTER_31})
    yield case(UnregisterBroker(broker_id=9), {cluster(Op.ALTER): CLUSTER_31})
    quorum = QuorumPartition("__cluster_metadata", 0)
    yield case(DescribeQuorum(partitions=[quorum]), {cluster(Op.DESCRIBE): CLUSTER_31})
    yield case(ListConfigResources(), {cluster(Op.DESCRIBE_CONFIGS): CLUSTER_31})
    feature = FeatureUpdate(feature="group.version", max_version_level=1)
    yield case(UpdateFeatures(updates=[feature]), {cluster(Op.ALTER): CLUSTER_31})
    yield case(OffsetDelete(group_id="g", partitions=[TP]), {group(Op.DELETE): GROUP_30, topic(Op.READ): TOPIC_29})
    yield case(DescribeClientQuotas(filters=[]), {cluster(Op.DESCRIBE_CONFIGS): CLUSTER_31})
    altered = QuotaAlteration(entity={"user": "u"}, ops=[])
    yield case(AlterClientQuotas(entries=[altered]), {cluster(Op.ALTER_CONFIGS): CLUSTER_31})
    yield case(DescribeUserScramCredentials(users=["u"]), {cluster(Op.DESCRIBE): CLUSTER_31})
    deletion = ScramDeletion(user="u", mechanism=1)
    yield case(AlterUserScramCredentials(deletions=[deletion]), {cluster(Op.ALTER): CLUSTER_31})
    yield case(DescribeProducers(topics={"t": [0]}), {topic(Op.READ): TOPIC_29})
    yield case(DescribeTransactions(transactional_ids=["tx"]), {transactional_id(Op.DESCRIBE): TRANSACTIONAL_ID_53})
    yield case(
        ShareFetch(
            group_id="g",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=10,
            max_records=10,
            batch_size=10,
        ),
        {group(Op.READ): GROUP_30},
    )
    sharing = ShareGroupHeartbeat(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    yield case(sharing, {group(Op.READ): GROUP_30, topic(Op.DESCRIBE): TOPIC_29})
    yield case(ShareGroupDescribe(group_ids=["g"]), {group(Op.DESCRIBE): GROUP_30})
    asked = ShareGroupOffsetsQuery(group_id=SHARE_GROUP, topics=[ShareGroupTopic("t", [0])])
    yield case(
        DescribeShareGroupOffsets(groups=[asked]),
        {group(Op.DESCRIBE, SHARE_GROUP): GROUP_30, topic(Op.DESCRIBE): TOPIC_29},
    )
    starts = [SharePartitionStart("t", 0, 0)]
    yield case(
        AlterShareGroupOffsets(group_id=SHARE_GROUP, partitions=starts),
        {group(Op.READ, SHARE_GROUP): GROUP_30, topic(Op.READ): TOPIC_29},
    )
    yield case(
        DeleteShareGroupOffsets(group_id=SHARE_GROUP, topics=["t"]),
        {group(Op.DELETE, SHARE_GROUP): GROUP_30, topic(Op.READ): TOPIC_29},
    )
    acknowledged = ShareAcknowledge(group_id="g", member_id="m", share_session_epoch=1, partitions=[])
    yield case(acknowledged, {group(Op.READ): GROUP_30})
    id_ = bytes(16)
    between_brokers: list[Request[Any]] = [
        InitializeShareGroupState(group_id="g", partitions=[InitializePartition(id_, 0, 0)]),
        ReadShareGroupState(group_id="g", partitions=[ReadPartition(id_, 0)]),
        WriteShareGroupState(group_id="g", partitions=[WritePartition(id_, 0, 0, 0)]),
        DeleteShareGroupState(group_id="g", partitions=[StatePartition(id_, 0)]),
        ReadShareGroupStateSummary(group_id="g", partitions=[ReadPartition(id_, 0)]),
    ]
    for each in between_brokers:
        yield case(each, {cluster(Op.CLUSTER_ACTION): CLUSTER_31})
    yield case(
        ClassicProduce(partitions=[ClassicProducePartition("t", 0, memoryview(b""))]), {topic(Op.WRITE): TOPIC_29}
    )
    yield case(
        ClassicFetch(partitions=[ClassicFetchPartition("t", 0, 0, 10)]),
        {topic(Op.READ): ErrorCode.UNKNOWN_SERVER_ERROR},
    )
    yield case(ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=1), {topic(Op.DESCRIBE): TOPIC_29})


CASES = list(_cases())


def codes(value: Any) -> set[ErrorCode]:
    """Return all errors in a result."""
    if isinstance(value, ApiError):
        return {value.code}
    if isinstance(value, ErrorCode):
        return {value} - {ErrorCode.NONE}
    if isinstance(value, list | tuple):
        return set().union(*map(codes, value)) if value else set()
    if hasattr(value, "__attrs_attrs__"):
        return set().union(*(codes(getattr(value, each.name)) for each in value.__attrs_attrs__))
    return set()
