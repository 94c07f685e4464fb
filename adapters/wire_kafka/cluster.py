"""The cluster, its replicas and data folders: OffsetForLeaderEpoch (23), DescribeLogDirs (35), ElectLeaders (43),
AlterPartitionReassignments (45), ListPartitionReassignments (46), DescribeQuorum (55), DescribeCluster (60),
UnregisterBroker (64), metrics of clients (71 and 72, KIP-714), and our own DescribeConnections (30000) and
MirrorRecords (30002).
"""

from ...ports.broker_api.cluster import (
    BrokerNode,
    ConnectionDescription,
    DescribeCluster,
    DescribeClusterResult,
    DescribeConnections,
    DescribeConnectionsResult,
    DescribeLogDirs,
    DescribeLogDirsResult,
    DescribeQuorum,
    DescribeQuorumResult,
    LogDirDescription,
    LogDirReplica,
    QuorumDescription,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    ReplicaState,
    UnregisterBroker,
    UnregisterBrokerResult,
)
from ...ports.broker_api.epochs import (
    EpochEndOffset,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
)
from ...ports.broker_api.mirroring import MirrorRecords, MirrorRecordsResult
from ...ports.broker_api.replicas import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    OngoingReassignment,
    PartitionChange,
    Reassignment,
)
from ...ports.broker_api.telemetry import (
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResult,
    PushTelemetry,
    PushTelemetryResult,
)
from .api import Api
from .schema import (
    BOOL,
    DATA,
    ERROR,
    ERROR_TEXT,
    I8,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    U16,
    UUID,
    Array,
    ByTopic,
    Field,
    Filler,
    Missing,
    NullableArray,
    Pairs,
    Struct,
)

DESCRIBE_CLUSTER = Api(
    key=60,
    versions=(0, 2),
    flexible_from=0,
    request_type=DescribeCluster,
    request=Struct(
        DescribeCluster,
        Field("include_authorized_operations", BOOL),
        Field("endpoint_type", I8, since=1),
        Filler(BOOL, False, since=2),  # with brokers that are fenced: those that do not live are not known
    ),
    result=Struct(
        DescribeClusterResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("endpoint_type", I8, since=1),
        Field("cluster_id", TEXT),
        Field("controller_id", I32),
        Field(
            "brokers",
            Array(
                Struct(
                    BrokerNode,
                    Field("node_id", I32),
                    Field("host", TEXT),
                    Field("port", I32),
                    Field("rack", NULLABLE_TEXT),
                    Filler(BOOL, False, since=2),  # whether it is fenced
                )
            ),
        ),
        Field("authorized_operations", I32),
    ),
)

_REPLICA_STATES = Array(
    Struct(
        ReplicaState,
        Field("replica_id", I32),
        Field("directory_id", UUID, since=2),
        Field("log_end_offset", I64),
        Field("last_fetch_ms", I64, since=1),
        Field("last_caught_up_ms", I64, since=1),
    )
)

DESCRIBE_QUORUM = Api(
    key=55,
    versions=(0, 2),
    flexible_from=0,
    request_type=DescribeQuorum,
    request=Struct(DescribeQuorum, Field("partitions", ByTopic(QuorumPartition, Field("partition", I32)))),
    result=Struct(
        DescribeQuorumResult,
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT, since=2),
        Field(
            "partitions",
            ByTopic(
                QuorumDescription,
                Field("partition", I32),
                Field("error", ERROR),
                Field("error_message", ERROR_TEXT, since=2),
                Field("leader_id", I32),
                Field("leader_epoch", I32),
                Field("high_watermark", I64),
                Field("voters", _REPLICA_STATES),
                Field("observers", _REPLICA_STATES),
            ),
        ),
        Field(
            "nodes",
            Array(
                Struct(
                    QuorumNode,
                    Field("node_id", I32),
                    Field(
                        "listeners",
                        Array(
                            Struct(QuorumListener, Field("name", TEXT), Field("host", TEXT), Field("port", U16)),
                        ),
                    ),
                )
            ),
            since=2,
        ),
    ),
)

UNREGISTER_BROKER = Api(
    key=64,
    versions=(0, 0),
    flexible_from=0,
    request_type=UnregisterBroker,
    request=Struct(UnregisterBroker, Field("broker_id", I32)),
    result=Struct(
        UnregisterBrokerResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
    ),
)

DESCRIBE_LOG_DIRS = Api(
    key=35,
    versions=(0, 5),
    flexible_from=2,
    request_type=DescribeLogDirs,
    request=Struct(DescribeLogDirs, Field("topics", Pairs(TEXT, Array(I32), Missing.NULL))),
    result=Struct(
        DescribeLogDirsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR, since=3),
        Field(
            "log_dirs",
            Array(
                Struct(
                    LogDirDescription,
                    Field("error", ERROR),
                    Field("path", TEXT),
                    Field(
                        "replicas",
                        ByTopic(
                            LogDirReplica,
                            Field("partition", I32),
                            Field("size_bytes", I64),
                            Field("lag", I64),
                            Field("is_future", BOOL),
                        ),
                    ),
                    Field("total_bytes", I64, since=4),
                    Field("usable_bytes", I64, since=4),
                    Field("is_cordoned", BOOL, since=5),
                )
            ),
        ),
    ),
    long_answers=True,
)

DESCRIBE_CONNECTIONS = Api(
    key=30_000,  # Kafka counts from 0, and Confluent's server from 10,000
    versions=(0, 0),
    flexible_from=0,
    request_type=DescribeConnections,
    request=Struct(DescribeConnections, Field("after", I64), Field("limit", I32)),
    result=Struct(
        DescribeConnectionsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("total", I32),
        Field(
            "connections",
            Array(
                Struct(
                    ConnectionDescription,
                    Field("connection_id", I64),
                    Field("listener", TEXT),
                    Field("host", TEXT),
                    Field("port", I32),
                    Field("principal", TEXT),
                    Field("is_encrypted", BOOL),
                    Field("client_id", NULLABLE_TEXT),
                    Field("software_name", TEXT),
                    Field("software_version", TEXT),
                    Field("connected_at_ms", I64),
                    Field("requests", I64),
                    Field("in_flight", I32),
                    Field("bytes_in", I64),
                    Field("bytes_out", I64),
                )
            ),
        ),
    ),
    is_own=True,
    long_answers=True,
)


_TOPICS = Pairs(TEXT, Array(I32), Missing.NULL)
_CHANGES = ByTopic(PartitionChange, Field("partition", I32), Field("error", ERROR), Field("error_message", ERROR_TEXT))

OFFSET_FOR_LEADER_EPOCH = Api(
    key=23,
    versions=(2, 4),
    flexible_from=4,
    request_type=OffsetForLeaderEpoch,
    request=Struct(
        OffsetForLeaderEpoch,
        Field("replica_id", I32, since=3),
        Field(
            "partitions",
            ByTopic(
                OffsetForLeaderPartition,
                Field("partition", I32),
                Field("current_leader_epoch", I32),
                Field("leader_epoch", I32),
            ),
        ),
    ),
    result=Struct(
        OffsetForLeaderEpochResult,
        Field("throttle_ms", I32),
        Field(
            "partitions",
            ByTopic(
                EpochEndOffset,
                Field("error", ERROR),
                Field("partition", I32),
                Field("leader_epoch", I32),
                Field("end_offset", I64),
            ),
        ),
    ),
    by_partition=True,
)

ELECT_LEADERS = Api(
    key=43,
    versions=(0, 2),
    flexible_from=2,
    request_type=ElectLeaders,
    request=Struct(
        ElectLeaders,
        Field("election_type", I8, since=1, absent=ElectionType.PREFERRED),
        Field("topics", _TOPICS),
        Field("timeout_ms", I32),
    ),
    result=Struct(
        ElectLeadersResult,
        Field("throttle_ms", I32),
        Field("error", ERROR, since=1),
        Field("partitions", _CHANGES),
    ),
    least_version=lambda request: 0 if request.election_type == ElectionType.PREFERRED else 1,
)

ALTER_PARTITION_REASSIGNMENTS = Api(
    key=45,
    versions=(0, 1),
    flexible_from=0,
    request_type=AlterPartitionReassignments,
    request=Struct(
        AlterPartitionReassignments,
        Field("timeout_ms", I32),
        Field("allow_replication_factor_change", BOOL, since=1),
        Field("partitions", ByTopic(Reassignment, Field("partition", I32), Field("replicas", NullableArray(I32)))),
    ),
    result=Struct(
        AlterPartitionReassignmentsResult,
        Field("throttle_ms", I32),
        Field("allow_replication_factor_change", BOOL, since=1),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("partitions", _CHANGES),
    ),
    least_version=lambda request: 0 if request.allow_replication_factor_change else 1,
)

LIST_PARTITION_REASSIGNMENTS = Api(
    key=46,
    versions=(0, 0),
    flexible_from=0,
    request_type=ListPartitionReassignments,
    request=Struct(ListPartitionReassignments, Field("timeout_ms", I32), Field("topics", _TOPICS)),
    result=Struct(
        ListPartitionReassignmentsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field(
            "partitions",
            ByTopic(
                OngoingReassignment,
                Field("partition", I32),
                Field("replicas", Array(I32)),
                Field("adding", Array(I32)),
                Field("removing", Array(I32)),
            ),
        ),
    ),
)


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    key=71,
    versions=(0, 0),
    flexible_from=0,
    request_type=GetTelemetrySubscriptions,
    request=Struct(GetTelemetrySubscriptions, Field("client_instance_id", UUID)),
    result=Struct(
        GetTelemetrySubscriptionsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("client_instance_id", UUID),
        Field("subscription_id", I32),
        Field("accepted_compression_types", Array(I8)),
        Field("push_interval_ms", I32),
        Field("telemetry_max_bytes", I32),
        Field("delta_temporality", BOOL),
        Field("requested_metrics", Array(TEXT)),
    ),
    is_unlisted=True,
)

PUSH_TELEMETRY = Api(
    key=72,
    versions=(0, 0),
    flexible_from=0,
    request_type=PushTelemetry,
    request=Struct(
        PushTelemetry,
        Field("client_instance_id", UUID),
        Field("subscription_id", I32),
        Field("terminating", BOOL),
        Field("compression_type", I8),
        Field("metrics", DATA),
    ),
    result=Struct(PushTelemetryResult, Field("throttle_ms", I32), Field("error", ERROR)),
    is_unlisted=True,
)


MIRROR_RECORDS = Api(
    key=30_002,  # see DescribeConnections
    versions=(0, 0),
    flexible_from=0,
    request_type=MirrorRecords,
    request=Struct(
        MirrorRecords,
        Field("topic", TEXT),
        Field("partition", I32),
        Field("source", TEXT),
        Field("log_end", I64),
        Field("last_epoch", I32),
        Field("leader_epoch", I32),
        Field("truncate_to", I64),
        Field("truncate_epoch", I32),
        Field("log_start", I64),
        Field("records", DATA),
    ),
    result=Struct(
        MirrorRecordsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("log_start", I64),
        Field("log_end", I64),
        Field("high_watermark", I64),
        Field("last_epoch", I32),
        Field("leader_epoch", I32),
    ),
    is_own=True,
)

APIS = (
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_CONNECTIONS,
    OFFSET_FOR_LEADER_EPOCH,
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    UNREGISTER_BROKER,
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    MIRROR_RECORDS,
)
