"""Samples of the APIs about leaders, replicas, quotas, and of AlterConfigs."""

from support.kafka_sample import LONG_NAME, Sample

from barnabas.ports.broker_api.configs import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigReplacement,
    ConfigResource,
    ResourceOutcome,
)
from barnabas.ports.broker_api.epochs import (
    EpochEndOffset,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
)
from barnabas.ports.broker_api.quotas import (
    AlterClientQuotas,
    AlterClientQuotasResult,
    AlteredQuota,
    DescribeClientQuotas,
    DescribeClientQuotasResult,
    QuotaAlteration,
    QuotaEntry,
    QuotaFilter,
    QuotaOp,
)
from barnabas.ports.broker_api.replicas import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    ElectLeaders,
    ElectLeadersResult,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    OngoingReassignment,
    PartitionChange,
    Reassignment,
)
from barnabas.ports.error_codes import ErrorCode

_TOPIC, _BROKER = ConfigResource(kind=2, name="clicks"), ConfigResource(kind=4, name="")

REPLACE_CONFIGS = Sample(
    AlterConfigs(
        resources=[
            ConfigReplacement(resource=_TOPIC, configs={"a": "1", "b": None}),
            ConfigReplacement(resource=_BROKER, configs={}),
        ],
        validate_only=True,
    ),
    {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "clicks",
                "configs": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
            },
            {"resource_type": 4, "resource_name": "", "configs": []},
        ],
        "validate_only": True,
    },
    AlterConfigsResult(
        resources=[
            ResourceOutcome(resource=_TOPIC),
            ResourceOutcome(resource=_BROKER, error=ErrorCode.INVALID_CONFIG, error_message="no such key"),
        ],
        throttle_ms=71,
    ),
    {
        "throttle_time": 71,
        "responses": [
            {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "clicks"},
            {"error_code": 40, "error_message": "no such key", "resource_type": 4, "resource_name": ""},
        ],
    },
)

OFFSET_FOR_LEADER_EPOCH = Sample(
    OffsetForLeaderEpoch(
        partitions=[
            OffsetForLeaderPartition(topic="clicks", partition=0, leader_epoch=4, current_leader_epoch=6),
            OffsetForLeaderPartition(topic="clicks", partition=9, leader_epoch=0),
            OffsetForLeaderPartition(topic=LONG_NAME, partition=1, leader_epoch=2),
        ],
        replica_id=-2,
    ),
    {
        "replica_id": -2,
        "topics": [
            {
                "topic": "clicks",
                "partitions": [
                    {"partition": 0, "current_leader_epoch": 6, "leader_epoch": 4},
                    {"partition": 9, "current_leader_epoch": -1, "leader_epoch": 0},
                ],
            },
            {"topic": LONG_NAME, "partitions": [{"partition": 1, "current_leader_epoch": -1, "leader_epoch": 2}]},
        ],
    },
    OffsetForLeaderEpochResult(
        partitions=[
            EpochEndOffset(topic="clicks", partition=0, leader_epoch=3, end_offset=1 << 40),
            EpochEndOffset(topic="clicks", partition=9),
            EpochEndOffset(topic=LONG_NAME, partition=1, error=ErrorCode.FENCED_LEADER_EPOCH),
        ],
        throttle_ms=13,
    ),
    {
        "throttle_time": 13,
        "topics": [
            {
                "topic": "clicks",
                "partitions": [
                    {"error_code": 0, "partition": 0, "leader_epoch": 3, "end_offset": 1 << 40},
                    {"error_code": 0, "partition": 9, "leader_epoch": -1, "end_offset": -1},
                ],
            },
            {
                "topic": LONG_NAME,
                "partitions": [{"error_code": 74, "partition": 1, "leader_epoch": -1, "end_offset": -1}],
            },
        ],
    },
)

_CHANGES = [
    PartitionChange(topic="clicks", partition=0),
    PartitionChange(topic="clicks", partition=5, error=ErrorCode.ELECTION_NOT_NEEDED, error_message="it leads"),
]

ELECT_LEADERS = Sample(
    ElectLeaders(topics={"clicks": [0, 5], LONG_NAME: []}, election_type=1, timeout_ms=41),
    {
        "election_type": 1,
        "topic_partitions": [
            {"topic": "clicks", "partitions": [0, 5]},
            {"topic": LONG_NAME, "partitions": []},
        ],
        "timeout": 41,
    },
    ElectLeadersResult(partitions=_CHANGES, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, throttle_ms=3),
    {
        "throttle_time": 3,
        "error_code": 31,
        "replica_election_results": [
            {
                "topic": "clicks",
                "partition_result": [
                    {"partition_id": 0, "error_code": 0, "error_message": None},
                    {"partition_id": 5, "error_code": 84, "error_message": "it leads"},
                ],
            }
        ],
    },
    older=Sample(
        ElectLeaders(topics=None, timeout_ms=41),
        {"topic_partitions": None, "timeout": 41},
        ElectLeadersResult(partitions=(), throttle_ms=3),
        {"throttle_time": 3, "replica_election_results": []},
    ),
    older_until=0,
)

ALTER_PARTITION_REASSIGNMENTS = Sample(
    AlterPartitionReassignments(
        partitions=[
            Reassignment(topic="clicks", partition=0, replicas=[2, 1]),
            Reassignment(topic="clicks", partition=5, replicas=None),
            Reassignment(topic=LONG_NAME, partition=1, replicas=[]),
        ],
        timeout_ms=42,
    ),
    {
        "timeout": 42,
        "allow_replication_factor_change": True,
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {"partition_index": 0, "replicas": [2, 1]},
                    {"partition_index": 5, "replicas": None},
                ],
            },
            {"name": LONG_NAME, "partitions": [{"partition_index": 1, "replicas": []}]},
        ],
    },
    AlterPartitionReassignmentsResult(
        partitions=_CHANGES, error=ErrorCode.NOT_CONTROLLER, error_message="ask broker 3", throttle_ms=4
    ),
    {
        "throttle_time": 4,
        "allow_replication_factor_change": True,
        "error_code": 41,
        "error_message": "ask broker 3",
        "responses": [
            {
                "name": "clicks",
                "partitions": [
                    {"partition_index": 0, "error_code": 0, "error_message": None},
                    {"partition_index": 5, "error_code": 84, "error_message": "it leads"},
                ],
            }
        ],
    },
)

LIST_PARTITION_REASSIGNMENTS = Sample(
    ListPartitionReassignments(topics={"clicks": [0, 5]}, timeout_ms=43),
    {"timeout": 43, "topics": [{"name": "clicks", "partition_indexes": [0, 5]}]},
    ListPartitionReassignmentsResult(
        partitions=[
            OngoingReassignment(topic="clicks", partition=0, replicas=[1, 2, 3], adding=[3], removing=[1]),
            OngoingReassignment(topic=LONG_NAME, partition=5, replicas=[]),
        ],
        error=ErrorCode.NOT_CONTROLLER,
        error_message="ask broker 3",
        throttle_ms=5,
    ),
    {
        "throttle_time": 5,
        "error_code": 41,
        "error_message": "ask broker 3",
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {"partition_index": 0, "replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [1]}
                ],
            },
            {
                "name": LONG_NAME,
                "partitions": [{"partition_index": 5, "replicas": [], "adding_replicas": [], "removing_replicas": []}],
            },
        ],
    },
)

DESCRIBE_CLIENT_QUOTAS = Sample(
    DescribeClientQuotas(
        filters=[QuotaFilter(entity_type="user", match=0, name="ann"), QuotaFilter(entity_type="client-id", match=2)],
        strict=True,
    ),
    {
        "components": [
            {"entity_type": "user", "match_type": 0, "match": "ann"},
            {"entity_type": "client-id", "match_type": 2, "match": None},
        ],
        "strict": True,
    },
    DescribeClientQuotasResult(
        entries=[
            QuotaEntry(entity={"user": "ann", "client-id": None}, limits={"producer_byte_rate": 1.5}),
            QuotaEntry(entity={}, limits={}),
        ],
        error=ErrorCode.INVALID_REQUEST,
        error_message="no such type",
        throttle_ms=6,
    ),
    {
        "throttle_time": 6,
        "error_code": 42,
        "error_message": "no such type",
        "entries": [
            {
                "entity": [
                    {"entity_type": "user", "entity_name": "ann"},
                    {"entity_type": "client-id", "entity_name": None},
                ],
                "values": [{"key": "producer_byte_rate", "value": 1.5}],
            },
            {"entity": [], "values": []},
        ],
    },
)

ALTER_CLIENT_QUOTAS = Sample(
    AlterClientQuotas(
        entries=[
            QuotaAlteration(
                entity={"user": "ann", "client-id": None},
                ops=[
                    QuotaOp(key="producer_byte_rate", value=1.5),
                    QuotaOp(key="consumer_byte_rate", value=None),
                ],
            ),
            QuotaAlteration(entity={}, ops=[]),
        ],
        validate_only=True,
    ),
    {
        "entries": [
            {
                "entity": [
                    {"entity_type": "user", "entity_name": "ann"},
                    {"entity_type": "client-id", "entity_name": None},
                ],
                "ops": [
                    {"key": "producer_byte_rate", "value": 1.5, "remove": False},
                    {"key": "consumer_byte_rate", "value": 0.0, "remove": True},
                ],
            },
            {"entity": [], "ops": []},
        ],
        "validate_only": True,
    },
    AlterClientQuotasResult(
        entries=[
            AlteredQuota(entity={"user": "ann", "client-id": None}),
            AlteredQuota(entity={}, error=ErrorCode.INVALID_REQUEST, error_message="Invalid empty entity"),
        ],
        throttle_ms=6,
    ),
    {
        "throttle_time": 6,
        "entries": [
            {
                "error_code": 0,
                "error_message": None,
                "entity": [
                    {"entity_type": "user", "entity_name": "ann"},
                    {"entity_type": "client-id", "entity_name": None},
                ],
            },
            {"error_code": 42, "error_message": "Invalid empty entity", "entity": []},
        ],
    },
)
