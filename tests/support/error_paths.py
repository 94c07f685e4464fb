"""Invalid requests of each API, and the error codes of Kafka's protocol for them."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from barnabas import Message
from barnabas.core.message.batch_header import write_crc
from barnabas.core.message.batch_writer import encode_batch
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    CreateAcls,
    DeleteAcls,
    DescribeAcls,
    ResourceType,
)
from barnabas.ports.broker_api.cluster import DescribeCluster, DescribeQuorum, QuorumPartition, UnregisterBroker
from barnabas.ports.broker_api.configs import (
    AlterConfigs,
    ConfigAlteration,
    ConfigDescription,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ListConfigResources,
    ResourceKind,
)
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from barnabas.ports.broker_api.envelope import Principal, Request
from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch, OffsetForLeaderPartition
from barnabas.ports.broker_api.features import FeatureUpdate, UpdateFeatures
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.groups import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetDelete,
    SyncGroup,
)
from barnabas.ports.broker_api.metadata import DescribeTopicPartitions, Metadata, TopicPartitionCursor
from barnabas.ports.broker_api.mirroring import MirrorRecords
from barnabas.ports.broker_api.offsets import ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.producers import DescribeProducers, InitProducerId
from barnabas.ports.broker_api.quotas import (
    AlterClientQuotas,
    DescribeClientQuotas,
    QuotaAlteration,
    QuotaFilter,
    QuotaOp,
)
from barnabas.ports.broker_api.replicas import AlterPartitionReassignments, ElectLeaders, Reassignment
from barnabas.ports.broker_api.scram import AlterUserScramCredentials, DescribeUserScramCredentials, ScramDeletion
from barnabas.ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
    ShareGroupOffsetsQuery,
    SharePartitionStart,
)
from barnabas.ports.broker_api.share_groups import (
    ShareAcknowledge,
    ShareFetch,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
)
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
from barnabas.ports.broker_api.telemetry import PushTelemetry
from barnabas.ports.broker_api.tokens import (
    CreateDelegationToken,
    DescribeDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
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
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition
from barnabas.ports.values import Secret

LONG = "x" * 32_767
CLASSIC_COMPACTED = {"cleanup.policy": "compact", "message.format": "classic"}
"""The longest text of the protocol."""
OFFSETS = "__consumer_offsets"
NOW_MS = 1_700_000_000_000


@frozen
class Wrong:
    """A request, and the errors of its answer in every version from `since` to `until`; () = it is answered well.

    `ask` gets the id of the one member of the group "taken", in its first generation.
    """

    name: str
    ask: Callable[[str], Request[Any]]
    errors: Sequence[E]
    since: int = 0
    until: int = 99


def marker(*partitions: TopicPartition) -> WriteTxnMarkers:
    return WriteTxnMarkers(
        markers=[TxnMarker(producer_id=4001, producer_epoch=0, committed=True, partitions=partitions)]
    )


# --- records


def records(*values: bytes, at: int = NOW_MS, codec: str = "", **more: Any) -> memoryview:
    named = builtin_codecs().by_name(codec) if codec else None
    return memoryview(
        encode_batch([Message(value, timestamp_ms=at) for value in values], now_ms=at, codec=named, **more)
    )


def spoilt(layout: str, position: int, value: int, *, crc: bool = True) -> memoryview:
    """Return a batch with one field of its header changed."""
    batch = records(b"a", b"b")
    struct.pack_into(layout, batch, position, value)
    if crc:
        write_crc(batch, 0, len(batch))
    return batch


def twice(batch: memoryview) -> memoryview:
    return memoryview(bytearray(bytes(batch) * 2))


def produce(topic: str, batch: memoryview, *, partition: int = 0, **more: Any) -> Callable[[str], Request[Any]]:
    return lambda _: Produce(
        partitions=[ProducePartition(topic, partition, memoryview(bytearray(batch)))], **{"acks": 1, **more}
    )


GOOD = records(b"a")
IN_TRANSACTION = records(b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
PRODUCE = [
    Wrong("no such acks", produce("t", GOOD, acks=5), [E.INVALID_REQUIRED_ACKS]),
    Wrong("no such topic", produce("nowhere", GOOD), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("a topic of the longest name", produce(LONG, GOOD), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("no such partition", produce("t", GOOD, partition=-1), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("the broker's own topic", produce(OFFSETS, GOOD), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("a classic topic", produce("classic", GOOD), [E.UNSUPPORTED_FOR_MESSAGE_FORMAT]),
    Wrong("in a transaction without a name", produce("t", IN_TRANSACTION), [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]),
    Wrong("wrong CRC", produce("t", spoilt(">i", 57, 3, crc=False)), [E.CORRUPT_MESSAGE]),
    Wrong("cut", produce("t", GOOD[:-1]), [E.CORRUPT_MESSAGE]),
    Wrong("no records", produce("t", memoryview(bytearray())), [E.INVALID_RECORD]),
    Wrong("two batches", produce("t", twice(GOOD)), [E.INVALID_RECORD]),
    Wrong("magic 1", produce("t", spoilt(">b", 16, 1)), [E.INVALID_RECORD]),
    Wrong("a wrong count", produce("t", spoilt(">i", 57, 3)), [E.INVALID_RECORD]),
    Wrong("a control batch", produce("t", spoilt(">h", 21, 0x20)), [E.INVALID_RECORD]),
    Wrong("log-append time", produce("t", spoilt(">h", 21, 0x08)), [E.INVALID_TIMESTAMP]),
    Wrong("no such codec", produce("t", spoilt(">h", 21, 0x07)), [E.UNSUPPORTED_COMPRESSION_TYPE]),
    Wrong("zstd too early", produce("t", records(b"a", codec="zstd")), [E.UNSUPPORTED_COMPRESSION_TYPE], until=6),
    Wrong("too large", produce("small", records(bytes(200))), [E.MESSAGE_TOO_LARGE]),
    Wrong("larger than a segment", produce("short", records(bytes(2000))), [E.RECORD_LIST_TOO_LARGE]),
    Wrong("too old", produce("recent", records(b"a", at=1)), [E.INVALID_TIMESTAMP]),
    Wrong("a record too old", produce("recent", records(b"a", at=-1)), []),
    Wrong("not what it says", produce("checked", spoilt(">b", 61, 2)), [E.INVALID_RECORD]),
    Wrong(
        "a sequence that leaves a gap",
        produce("numbered", records(b"a", producer_id=7, producer_epoch=3, base_sequence=9)),
        [E.OUT_OF_ORDER_SEQUENCE_NUMBER],
    ),
    Wrong(
        "an epoch that is over",
        produce("numbered", records(b"a", producer_id=7, producer_epoch=2, base_sequence=0)),
        [E.INVALID_PRODUCER_EPOCH],
    ),
]

# --- reading


def fetch(topic: str, offset: int = 0, *, partition: int = 0, max_bytes: int = 1000, epoch: int = -1) -> Any:
    entry = FetchPartition(topic, partition, offset, max_bytes, epoch)
    return lambda _: Fetch(partitions=[entry], max_wait_ms=0)


def fetch_by_id(topic_id: bytes) -> Any:
    entry = FetchPartition("", 0, 0, 1000, topic_id=topic_id)
    return lambda _: Fetch(partitions=[entry], max_wait_ms=0)


def offsets(topic: str, timestamp: int = -1, *, partition: int = 0, epoch: int = -1) -> Any:
    entry = ListOffsetsPartition(topic=topic, partition=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return lambda _: ListOffsets(partitions=[entry])


def epochs(topic: str, *, partition: int = 0, epoch: int = -1) -> Any:
    entry = OffsetForLeaderPartition(topic=topic, partition=partition, leader_epoch=0, current_leader_epoch=epoch)
    return lambda _: OffsetForLeaderEpoch(partitions=[entry])


def features(name: str, level: int, times: int = 1) -> UpdateFeatures:
    return UpdateFeatures(updates=[FeatureUpdate(feature=name, max_version_level=level)] * times)


def telemetry(instance: bytes, subscription: int, metrics: bytes = b"", *, codec: int = 0) -> PushTelemetry:
    return PushTelemetry(
        client_instance_id=instance * 16, subscription_id=subscription, compression_type=codec, metrics=metrics
    )


def quorum(topic: str, partition: int) -> DescribeQuorum:
    return DescribeQuorum(partitions=[QuorumPartition(topic, partition)])


def partitions(topic: str, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitions:
    first = None if cursor is None else TopicPartitionCursor(*cursor)
    return DescribeTopicPartitions(topics=[topic], cursor=first)


READING = [
    Wrong("fetch: no such topic", fetch("nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("fetch: no such id", fetch_by_id(b"nobody has this!"), [E.UNKNOWN_TOPIC_ID], since=13),
    Wrong("fetch: no such partition", fetch("t", partition=9), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("fetch: a classic topic", fetch("classic"), [E.UNSUPPORTED_FOR_MESSAGE_FORMAT]),
    Wrong("fetch: beyond the end", fetch("t", 99), [E.OFFSET_OUT_OF_RANGE]),
    Wrong("fetch: before the start", fetch("t", -3), [E.OFFSET_OUT_OF_RANGE]),
    Wrong("fetch: less than nothing", fetch("t", max_bytes=-1), [E.INVALID_FETCH_SIZE]),
    Wrong("fetch: zstd too early", fetch("packed"), [E.UNSUPPORTED_COMPRESSION_TYPE], until=9),
    Wrong("fetch: an epoch to come", fetch("t", epoch=9), [E.UNKNOWN_LEADER_EPOCH], since=9),
    Wrong("offsets: no such topic", offsets("nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("offsets: a classic topic", offsets("classic"), [E.UNSUPPORTED_FOR_MESSAGE_FORMAT]),
    Wrong("offsets: no such time", offsets("t", -99), [E.UNSUPPORTED_VERSION]),
    Wrong("offsets: an epoch to come", offsets("t", epoch=9), [E.UNKNOWN_LEADER_EPOCH], since=4),
    Wrong("epochs: no such topic", epochs("nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("epochs: a classic topic", epochs("classic"), [E.UNSUPPORTED_FOR_MESSAGE_FORMAT]),
    Wrong("epochs: one to come", epochs("t", epoch=9), [E.UNKNOWN_LEADER_EPOCH]),
    Wrong("metadata: no such topic", lambda _: Metadata(topics=["nowhere"]), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("metadata: no name", lambda _: Metadata(topics=["a/b"]), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("metadata: the longest name", lambda _: Metadata(topics=[LONG]), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("metadata: no such id", lambda _: Metadata(topics=[], topic_ids=[b"i" * 16]), [E.UNKNOWN_TOPIC_ID], since=12),
    Wrong("markers: no such topic", lambda _: marker(TopicPartition("nowhere", 0)), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("markers: of no transaction", lambda _: marker(TopicPartition("t", 0)), []),
    Wrong(
        "markers: a classic topic", lambda _: marker(TopicPartition("classic", 0)), [E.UNSUPPORTED_FOR_MESSAGE_FORMAT]
    ),
    Wrong("markers: none", lambda _: WriteTxnMarkers(markers=[]), []),
    Wrong(
        "producers: no such topic", lambda _: DescribeProducers(topics={"nowhere": [0]}), [E.UNKNOWN_TOPIC_OR_PARTITION]
    ),
    Wrong("cluster: no such broker", lambda _: UnregisterBroker(broker_id=99), [E.BROKER_ID_NOT_REGISTERED]),
    Wrong("telemetry: of no client", lambda _: telemetry(b"\0", 1), [E.INVALID_REQUEST]),
    Wrong("telemetry: not subscribed", lambda _: telemetry(b"i", 7), [E.UNKNOWN_SUBSCRIPTION_ID]),
    Wrong("telemetry: no such codec", lambda _: telemetry(b"i", 1, codec=9), [E.UNSUPPORTED_COMPRESSION_TYPE]),
    Wrong("telemetry: too much", lambda _: telemetry(b"i", 1, b"m" * 1_048_577), [E.TELEMETRY_TOO_LARGE]),
    Wrong("telemetry: dropped", lambda _: telemetry(b"i", 1, b"m"), []),
    Wrong("quorum: of a topic", lambda _: quorum("t", 0), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("quorum: of another partition", lambda _: quorum("__cluster_metadata", 1), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("resources: of no kind", lambda _: ListConfigResources(kinds=[3]), [E.UNSUPPORTED_VERSION]),
    Wrong("partitions: no such topic", lambda _: partitions("nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("partitions: no name", lambda _: partitions("a/b"), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("partitions: elsewhere", lambda _: partitions("t", cursor=("u", 0)), [E.INVALID_REQUEST]),
    Wrong("partitions: before the first", lambda _: partitions("t", cursor=("t", -1)), [E.INVALID_REQUEST]),
    Wrong("partitions: beyond the last", lambda _: partitions("t", cursor=("t", 99)), []),
    Wrong("features: an unknown one", lambda _: features("fruit.version", 1), [E.INVALID_UPDATE_VERSION]),
    Wrong("features: less than none", lambda _: features("group.version", -1), [E.INVALID_UPDATE_VERSION]),
    Wrong("features: twice", lambda _: features("a", 1, times=2), [E.INVALID_UPDATE_VERSION]),
    Wrong("cluster: its controllers", lambda _: DescribeCluster(endpoint_type=2), [E.UNSUPPORTED_VERSION], since=1),
]

# --- topics


def create(name: str = "new", **more: Any) -> Callable[[str], Request[Any]]:
    return lambda _: CreateTopics(topics=[NewTopic(name=name, **{"partitions": 1, "replication_factor": 1, **more})])


def grow(topic: str, count: int, assignments: Any = None) -> Callable[[str], Request[Any]]:
    return lambda _: CreatePartitions(topics=[NewPartitions(topic=topic, count=count, assignments=assignments)])


def delete_records(topic: str, offset: int, partition: int = 0) -> Callable[[str], Request[Any]]:
    entry = DeleteRecordsPartition(topic=topic, partition=partition, offset=offset)
    return lambda _: DeleteRecords(partitions=[entry])


def reassign(topic: str, *replicas: int, cancel: bool = False) -> Callable[[str], Request[Any]]:
    wanted = Reassignment(topic=topic, partition=0, replicas=None if cancel else replicas)
    return lambda _: AlterPartitionReassignments(partitions=[wanted])


def mirror(topic: str, *, partition: int = 0, log_end: int = -1, records: bytes = b"") -> Any:
    request = MirrorRecords(
        topic=topic, partition=partition, source="another cluster", log_end=log_end, records=records
    )
    return lambda _: request


TOPICS = [
    Wrong("create: no name", create("a/b"), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("create: the longest name", create(LONG), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("create: it is there", create("t"), [E.TOPIC_ALREADY_EXISTS]),
    Wrong("create: no partitions", create(partitions=0), [E.INVALID_PARTITIONS]),
    Wrong("create: too many partitions", create(partitions=2**31 - 1), [E.POLICY_VIOLATION]),
    Wrong("create: too many replicas", create(replication_factor=3), [E.INVALID_REPLICATION_FACTOR]),
    Wrong(
        "create: on no such broker",
        create(partitions=-1, replication_factor=-1, assignments={0: [99]}),
        [E.INVALID_REPLICA_ASSIGNMENT],
    ),
    Wrong("create: counts and brokers", create(assignments={0: [1]}), [E.INVALID_REQUEST]),
    Wrong("create: no such key", create(configs={"nonsense": "1"}), [E.INVALID_CONFIG]),
    Wrong("create: the longest key", create(configs={LONG: "1"}), [E.INVALID_CONFIG]),
    Wrong("create: the longest value", create(configs={"retention.ms": LONG}), [E.INVALID_CONFIG]),
    Wrong("create: classic and compacted", create(configs=CLASSIC_COMPACTED), [E.INVALID_CONFIG]),
    Wrong(
        "create: twice",
        lambda _: CreateTopics(topics=[NewTopic(name="n", partitions=1, replication_factor=1)] * 2),
        [E.INVALID_REQUEST],
    ),
    Wrong("grow: no such topic", grow("nowhere", 3), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("grow: the longest name", grow(LONG, 3), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("grow: to fewer", grow("t", 1), [E.INVALID_PARTITIONS]),
    Wrong("grow: on no such broker", grow("t", 3, [[99]]), [E.INVALID_REPLICA_ASSIGNMENT]),
    Wrong("grow: the broker's own topic", grow(OFFSETS, 9), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("delete: no such topic", lambda _: DeleteTopics(names=["nowhere"]), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("delete: the longest name", lambda _: DeleteTopics(names=[LONG]), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("delete: no such id", lambda _: DeleteTopics(names=[], topic_ids=[b"i" * 16]), [E.UNKNOWN_TOPIC_ID], since=6),
    Wrong("delete: the broker's own topic", lambda _: DeleteTopics(names=[OFFSETS]), [E.INVALID_TOPIC_EXCEPTION]),
    Wrong("delete records: no such topic", delete_records("nowhere", 0), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("delete records: beyond the end", delete_records("t", 99), [E.OFFSET_OUT_OF_RANGE]),
    Wrong("delete records: of positions", delete_records(OFFSETS, -1), [E.POLICY_VIOLATION]),
    Wrong("elect: no such topic", lambda _: ElectLeaders(topics={"nowhere": [0]}), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("elect: the longest name", lambda _: ElectLeaders(topics={LONG: [0]}), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("elect: who leads already", lambda _: ElectLeaders(topics={"t": [0]}), [E.ELECTION_NOT_NEEDED]),
    Wrong("elect: in no such way", lambda _: ElectLeaders(topics=None, election_type=7), [E.INVALID_REQUEST], since=1),
    Wrong("mirror: no such topic", mirror("nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("mirror: the longest name", mirror(LONG), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("mirror: no such partition", mirror("t", partition=-1), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("mirror: a topic that is no mirror", mirror("t"), [E.POLICY_VIOLATION]),
    Wrong("mirror: a producer", produce("mirror", GOOD), [E.POLICY_VIOLATION]),
    Wrong("mirror: another log end", mirror("mirror", log_end=9, records=b"x"), [E.OFFSET_OUT_OF_RANGE]),
    Wrong("mirror: no batches", mirror("mirror", log_end=0, records=b"nonsense" * 9), [E.CORRUPT_MESSAGE]),
    Wrong("mirror: half a batch", mirror("mirror", log_end=0, records=bytes(GOOD[:-1])), [E.CORRUPT_MESSAGE]),
    Wrong("reassign: no such topic", reassign("nowhere", 1), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("reassign: the longest name", reassign(LONG, 1), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("reassign: to no such broker", reassign("t", 99), [E.INVALID_REPLICA_ASSIGNMENT]),
    Wrong("reassign: nothing to cancel", reassign("t", cancel=True), [E.NO_REASSIGNMENT_IN_PROGRESS]),
]

# --- configs

TOPIC, BROKER, LOGGER = ResourceKind.TOPIC, ResourceKind.BROKER, ResourceKind.BROKER_LOGGER


def described(kind: int, name: str) -> Callable[[str], Request[Any]]:
    return lambda _: DescribeConfigs(resources=[ConfigDescription(resource=ConfigResource(kind=kind, name=name))])


def altered(kind: int, name: str, key: str, value: str | None, op: int = ConfigOp.SET) -> Callable[[str], Request[Any]]:
    resource = ConfigResource(kind=kind, name=name)
    change = ConfigAlteration(resource=resource, name=key, value=value, op=op)
    return lambda _: IncrementalAlterConfigs(resources=[resource], alterations=[change])


def replaced(kind: int, name: str, **configs: str) -> Callable[[str], Request[Any]]:
    wanted = {key.replace("_", "."): value for key, value in configs.items()}
    return lambda _: AlterConfigs(
        resources=[ConfigReplacement(resource=ConfigResource(kind=kind, name=name), configs=wanted)]
    )


CONFIGS = [
    Wrong("describe: no such topic", described(TOPIC, "nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("describe: the longest name", described(TOPIC, LONG), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("describe: another broker", described(BROKER, "99"), [E.INVALID_REQUEST]),
    Wrong("describe: the longest broker", described(BROKER, LONG), [E.INVALID_REQUEST]),
    Wrong("describe: no such kind", described(77, "t"), [E.INVALID_REQUEST]),
    Wrong("alter: no such topic", altered(TOPIC, "nowhere", "retention.ms", "1"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("alter: no such key", altered(TOPIC, "t", "nonsense", "1"), [E.INVALID_CONFIG]),
    Wrong("alter: the longest key", altered(TOPIC, "t", LONG, "1"), [E.INVALID_CONFIG]),
    Wrong("alter: no such value", altered(TOPIC, "t", "retention.ms", "soon"), [E.INVALID_CONFIG]),
    Wrong("alter: the longest value", altered(TOPIC, "t", "cleanup.policy", LONG, ConfigOp.APPEND), [E.INVALID_CONFIG]),
    Wrong("alter: no value", altered(TOPIC, "t", "retention.ms", None), [E.INVALID_REQUEST]),
    Wrong("alter: no such operation", altered(TOPIC, "t", "retention.ms", "1", 9), [E.INVALID_REQUEST]),
    Wrong("alter: no such policy", altered(TOPIC, "t", "cleanup.policy", "compost"), [E.INVALID_CONFIG]),
    Wrong("alter: what needs a restart", altered(BROKER, "1", "broker.id", "2"), [E.INVALID_REQUEST]),
    Wrong("alter: another broker", altered(BROKER, "99", "log.retention.ms", "1"), [E.INVALID_REQUEST]),
    Wrong("replace: no such topic", replaced(TOPIC, "nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("replace: no such value", replaced(TOPIC, "t", retention_ms="soon"), [E.INVALID_CONFIG]),
    Wrong("replace: no such kind", replaced(77, "t"), [E.INVALID_REQUEST]),
]

# --- groups and producers


def join(group: str, member: str = "", **more: Any) -> Callable[[str], Request[Any]]:
    given = {"session_timeout_ms": 60_000, "protocols": [GroupProtocol("range", b"")], **more}
    return lambda _: JoinGroup(
        group_id=group, member_id=member, protocol_type="consumer", rebalance_timeout_ms=60_000, **given
    )


def consumer_heartbeat(group: str, epoch: int, **more: Any) -> Callable[[str], Request[Any]]:
    return lambda _: ConsumerGroupHeartbeat(group_id=group, member_id="m", member_epoch=epoch, **more)


def commit(group: str, topic: str, *, metadata: str = "", generation: int = -1, member: str = "") -> Any:
    position = OffsetCommitPartition(topic, 0, 1, metadata=metadata)
    return lambda _: OffsetCommit(group_id=group, generation_id=generation, member_id=member, partitions=[position])


def commit_in_transaction(
    group: str, topic: str, *, generation: int = -1, member: str = "", instance: str | None = None, **more: Any
) -> Any:
    given = {"transactional_id": "x", "producer_id": 900, "producer_epoch": 0, **more}
    return lambda real: TxnOffsetCommit(
        group_id=group,
        partitions=[OffsetCommitPartition(topic, 0, 1)],
        generation_id=generation,
        member_id=real if member == "real" else member,
        group_instance_id=instance,
        **given,
    )


def leave(group: str) -> Callable[[str], Request[Any]]:
    return lambda _: LeaveGroup(group_id=group, members=[LeavingMember(member_id="who")])


def forget(group: str) -> Callable[[str], Request[Any]]:
    return lambda _: OffsetDelete(group_id=group, partitions=[TopicPartition("t", 0)])


GROUPS = [
    Wrong("find: no such kind", lambda _: FindCoordinator(keys=["x"], key_type=9), [E.INVALID_REQUEST], 1),
    Wrong("join: no group", join(""), [E.INVALID_GROUP_ID]),
    Wrong("join: no time", join("bad", session_timeout_ms=1), [E.INVALID_SESSION_TIMEOUT]),
    Wrong("join: nothing in common", join("bad", protocols=[]), [E.INCONSISTENT_GROUP_PROTOCOL]),
    Wrong("join: a stranger", join("taken", "who"), [E.UNKNOWN_MEMBER_ID]),
    Wrong("join: the longest name", join(LONG), [E.MEMBER_ID_REQUIRED], since=4),
    Wrong("join: who comes first", join("bad"), [E.MEMBER_ID_REQUIRED], since=4),
    Wrong(
        "sync: a stranger",
        lambda _: SyncGroup(group_id="taken", generation_id=1, member_id="who"),
        [E.UNKNOWN_MEMBER_ID],
    ),
    Wrong(
        "sync: a generation to come",
        lambda member: SyncGroup(group_id="taken", generation_id=9, member_id=member),
        [E.ILLEGAL_GENERATION],
    ),
    Wrong(
        "sync: another protocol",
        lambda member: SyncGroup(
            group_id="taken", generation_id=1, member_id=member, protocol_type="consumer", protocol_name="sticky"
        ),
        [E.INCONSISTENT_GROUP_PROTOCOL],
        since=5,
    ),
    Wrong(
        "heartbeat: a stranger",
        lambda _: Heartbeat(group_id="taken", generation_id=1, member_id="who"),
        [E.UNKNOWN_MEMBER_ID],
    ),
    Wrong(
        "heartbeat: a generation to come",
        lambda member: Heartbeat(group_id="taken", generation_id=9, member_id=member),
        [E.ILLEGAL_GENERATION],
    ),
    Wrong(
        "heartbeat: no group", lambda _: Heartbeat(group_id="", generation_id=1, member_id="x"), [E.INVALID_GROUP_ID]
    ),
    Wrong("new heartbeat: no group", consumer_heartbeat("nobody", 1), [E.GROUP_ID_NOT_FOUND]),
    Wrong("new heartbeat: a classic group", consumer_heartbeat("taken", 1), [E.GROUP_ID_NOT_FOUND]),
    Wrong("new heartbeat: an impossible epoch", consumer_heartbeat("idle", -3), [E.INVALID_REQUEST]),
    Wrong("new heartbeat: too little to join", consumer_heartbeat("idle", 0), [E.INVALID_REQUEST]),
    Wrong(
        "new heartbeat: no such assignor",
        consumer_heartbeat("idle", 1, server_assignor="sticky"),
        [E.UNSUPPORTED_ASSIGNOR],
    ),
    Wrong(
        "new describe: a classic group",
        lambda _: ConsumerGroupDescribe(group_ids=["taken"]),
        [E.GROUP_ID_NOT_FOUND],
    ),
    Wrong("leave: a stranger", leave("taken"), [E.UNKNOWN_MEMBER_ID]),
    Wrong("commit: no such topic", commit("idle", "nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("commit: too much to say", commit("idle", "t", metadata="m" * 5000), [E.OFFSET_METADATA_TOO_LARGE]),
    Wrong("commit: from outside", commit("taken", "t"), [E.UNKNOWN_MEMBER_ID]),
    Wrong("commit: a stranger", commit("taken", "t", generation=1, member="who"), [E.UNKNOWN_MEMBER_ID]),
    Wrong("in transaction: no group", commit_in_transaction("", "t"), [E.INVALID_GROUP_ID]),
    Wrong("in transaction: the longest name", commit_in_transaction(LONG, "nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong("in transaction: no such topic", commit_in_transaction("idle", "nowhere"), [E.UNKNOWN_TOPIC_OR_PARTITION]),
    Wrong(
        "in transaction: no producer",
        commit_in_transaction("idle", "t", producer_id=-1),
        [E.INVALID_PRODUCER_ID_MAPPING],
    ),
    Wrong(
        "in transaction: an unknown group",
        commit_in_transaction("nobody", "t", generation=1),
        [E.ILLEGAL_GENERATION],
    ),
    Wrong(
        "in transaction: a stranger",
        commit_in_transaction("taken", "t", generation=1, member="who"),
        [E.UNKNOWN_MEMBER_ID],
    ),
    Wrong(
        "in transaction: who is away",
        commit_in_transaction("taken", "t", generation=1, member="real", instance="i"),
        [E.UNKNOWN_MEMBER_ID],
    ),
    Wrong(
        "in transaction: another generation",
        commit_in_transaction("taken", "t", generation=9, member="real"),
        [E.ILLEGAL_GENERATION],
    ),
    Wrong("forget: no such group", forget("nobody"), [E.GROUP_ID_NOT_FOUND]),
    Wrong("end: who is there", lambda _: DeleteGroups(group_ids=["taken"]), [E.NON_EMPTY_GROUP]),
    Wrong("end: who is not", lambda _: DeleteGroups(group_ids=[f"y{LONG[1:]}"]), [E.GROUP_ID_NOT_FOUND]),
    Wrong("describe: who is not", lambda _: DescribeGroups(group_ids=[LONG]), []),
    Wrong("producer: no transaction", lambda _: InitProducerId(transactional_id=""), [E.INVALID_REQUEST]),
    Wrong("producer: half an identity", lambda _: InitProducerId(producer_id=5), [E.INVALID_REQUEST], since=3),
]

# --- transactions

UNKNOWN_PRODUCER: dict[str, Any] = {"transactional_id": "nobody", "producer_id": 1, "producer_epoch": 0}
TRANSACTIONS = [
    Wrong("producer: elsewhere", lambda _: InitProducerId(transactional_id="x"), [E.NOT_COORDINATOR]),
    Wrong(
        "producer: too much time",
        lambda _: InitProducerId(transactional_id="x", transaction_timeout_ms=900_001),
        [E.INVALID_TRANSACTION_TIMEOUT],
    ),
    Wrong(
        "add: no such partition",
        lambda _: AddPartitionsToTxn(**UNKNOWN_PRODUCER, partitions=[TopicPartition("t", 0), TopicPartition("t", 77)]),
        [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION],
        until=3,
    ),
    Wrong(
        "add: the broker's own topic",
        lambda _: AddPartitionsToTxn(**UNKNOWN_PRODUCER, partitions=[TopicPartition(OFFSETS, 0)]),
        [E.TOPIC_AUTHORIZATION_FAILED],
        until=3,
    ),
    Wrong(
        "verify: elsewhere",
        lambda _: AddPartitionsToTxn(**UNKNOWN_PRODUCER, partitions=[TopicPartition("t", 0)], verify_only=True),
        [E.NOT_COORDINATOR],
        since=4,
    ),
    Wrong("add: positions", lambda _: AddOffsetsToTxn(**UNKNOWN_PRODUCER, group_id="g"), [E.NOT_COORDINATOR]),
    Wrong("end: elsewhere", lambda _: EndTxn(**UNKNOWN_PRODUCER, committed=True), [E.NOT_COORDINATOR]),
    Wrong("describe: elsewhere", lambda _: DescribeTransactions(transactional_ids=["x"]), [E.NOT_COORDINATOR]),
]

# --- security, at a broker without an authorizer, whose clients are not authenticated

_ACL = AclBinding(resource_type=ResourceType.TOPIC, resource_name="t", principal="User:a", operation=Operation.READ)
_LIMIT = [QuotaOp(key="producer_byte_rate", value=1.0)]
_ALICE = Principal("User", "alice")

SECURITY = [
    Wrong(
        "quotas: no such type",
        lambda _: DescribeClientQuotas(filters=[QuotaFilter(entity_type="planet", match=2)]),
        [E.UNSUPPORTED_VERSION],
    ),
    Wrong(
        "quotas: a type twice",
        lambda _: DescribeClientQuotas(filters=[QuotaFilter(entity_type="user", match=kind) for kind in (1, 2)]),
        [E.INVALID_REQUEST],
    ),
    Wrong(
        "quotas: entities that cannot be",
        lambda _: AlterClientQuotas(
            entries=[
                QuotaAlteration(entity={"user": ""}, ops=_LIMIT),
                QuotaAlteration(entity={"ip": None}, ops=_LIMIT),
                QuotaAlteration(entity={"user": "a", "ip": None}, ops=_LIMIT),
            ]
        ),
        [E.INVALID_REQUEST] * 3,
    ),
    Wrong("ACLs: none without an authorizer", lambda _: DescribeAcls(), [E.SECURITY_DISABLED]),
    Wrong("ACLs: none created", lambda _: CreateAcls(acls=[_ACL]), [E.SECURITY_DISABLED]),
    Wrong("ACLs: none deleted", lambda _: DeleteAcls(filters=[AclBindingFilter()]), [E.SECURITY_DISABLED]),
    Wrong(
        "SCRAM: unknown user",
        lambda _: DescribeUserScramCredentials(users=["nobody"]),
        [E.RESOURCE_NOT_FOUND],
    ),
    Wrong(
        "SCRAM: nothing to delete",
        lambda _: AlterUserScramCredentials(deletions=[ScramDeletion(user="nobody", mechanism=1)]),
        [E.RESOURCE_NOT_FOUND],
    ),
    Wrong(
        "tokens: none created", lambda _: CreateDelegationToken(owner=None), [E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]
    ),
    Wrong(
        "tokens: none renewed",
        lambda _: RenewDelegationToken(hmac=Secret(b"x"), renew_period_ms=1),
        [E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED],
    ),
    Wrong(
        "tokens: none expired",
        lambda _: ExpireDelegationToken(hmac=Secret(b"x"), expiry_time_period_ms=1),
        [E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED],
    ),
    Wrong(
        "tokens: none described",
        lambda _: DescribeDelegationToken(owners=[_ALICE]),
        [E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED],
    ),
]

# --- share groups


def share_fetch(**more: Any) -> Callable[[str], Request[Any]]:
    given = {"group_id": "s", "member_id": "m", "share_session_epoch": 0, "max_wait_ms": 0, "min_bytes": 1, **more}
    return lambda _: ShareFetch(**{"max_bytes": 10, "max_records": 10, "batch_size": 10, **given})


def share_heartbeat(group: str, epoch: int) -> Callable[[str], Request[Any]]:
    return lambda _: ShareGroupHeartbeat(group_id=group, member_id="m", member_epoch=epoch)


def share_acknowledge(epoch: int) -> Callable[[str], Request[Any]]:
    return lambda _: ShareAcknowledge(group_id="s", member_id="m", share_session_epoch=epoch, partitions=[])


_SHARE_PARTITION = (bytes(16), 0)
SHARE_GROUPS = [
    Wrong("share fetch: a renewal that fetches", share_fetch(is_renew_ack=True), [E.INVALID_REQUEST], since=2),
    Wrong("share fetch: no session", share_fetch(share_session_epoch=3), [E.SHARE_SESSION_NOT_FOUND]),
    Wrong("share heartbeat: no such group", share_heartbeat("nowhere", 1), [E.GROUP_ID_NOT_FOUND]),
    Wrong("share heartbeat: a classic group", share_heartbeat("taken", 1), [E.GROUP_ID_NOT_FOUND]),
    Wrong("share heartbeat: an impossible epoch", share_heartbeat("idle", -3), [E.INVALID_REQUEST]),
    Wrong("share heartbeat: without topics", share_heartbeat("idle", 0), [E.INVALID_REQUEST]),
    Wrong("share describe: a classic group", lambda _: ShareGroupDescribe(group_ids=["taken"]), [E.GROUP_ID_NOT_FOUND]),
    Wrong(
        "share offsets: a classic group",
        lambda _: DescribeShareGroupOffsets(groups=[ShareGroupOffsetsQuery(group_id="taken")]),
        [E.GROUP_ID_NOT_FOUND],
    ),
    Wrong(
        "share offsets: set those of no group",
        lambda _: AlterShareGroupOffsets(group_id="nowhere", partitions=[SharePartitionStart("t", 0, 1)]),
        [E.GROUP_ID_NOT_FOUND],
    ),
    Wrong(
        "share offsets: delete those of no group",
        lambda _: DeleteShareGroupOffsets(group_id="nowhere", topics=["t"]),
        [E.GROUP_ID_NOT_FOUND],
    ),
    Wrong("share acknowledge: no session", share_acknowledge(3), [E.SHARE_SESSION_NOT_FOUND]),
    Wrong("share acknowledge: too early", share_acknowledge(0), [E.INVALID_SHARE_SESSION_EPOCH]),
    Wrong(
        "share state: begin it elsewhere",
        lambda _: InitializeShareGroupState(group_id="s", partitions=[InitializePartition(*_SHARE_PARTITION, 0)]),
        [E.NOT_COORDINATOR],
    ),
    Wrong(
        "share state: read it elsewhere",
        lambda _: ReadShareGroupState(group_id="s", partitions=[ReadPartition(*_SHARE_PARTITION)]),
        [E.NOT_COORDINATOR],
    ),
    Wrong(
        "share state: write it elsewhere",
        lambda _: WriteShareGroupState(group_id="s", partitions=[WritePartition(*_SHARE_PARTITION, 0, 0)]),
        [E.NOT_COORDINATOR],
    ),
    Wrong(
        "share state: delete what no group has",
        lambda _: DeleteShareGroupState(group_id="", partitions=[StatePartition(*_SHARE_PARTITION)]),
        [E.INVALID_REQUEST],
    ),
    Wrong(
        "share state: the longest group",
        lambda _: ReadShareGroupStateSummary(group_id=LONG, partitions=[ReadPartition(*_SHARE_PARTITION)]),
        [E.INVALID_REQUEST],
    ),
]

WRONG = [*PRODUCE, *READING, *TOPICS, *CONFIGS, *GROUPS, *TRANSACTIONS, *SECURITY, *SHARE_GROUPS]
