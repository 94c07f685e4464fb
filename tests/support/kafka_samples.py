"""One rich request and result per API, every value a different one, and what an independent decoder should see in them.

`wire` trees use the field names of the protocol's own definitions (snake case, as kio has them), for the newest version
that we speak; older versions have a part of the fields.
"""

from typing import Any

from attrs import frozen

from barnabas.ports.broker_api import (
    AlterConfigsResult,
    BrokerNode,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeletedTopic,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResult,
    DeleteRecordsResultPartition,
    DeleteTopics,
    DeleteTopicsResult,
    DescribeCluster,
    DescribeClusterResult,
    DescribeConfigs,
    DescribeConfigsResult,
    DescribeLogDirs,
    DescribeLogDirsResult,
    Fetch,
    FetchPartition,
    FetchResult,
    FetchResultPartition,
    IncrementalAlterConfigs,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
    LogDirDescription,
    LogDirReplica,
    Metadata,
    MetadataResult,
    NewPartitions,
    NewTopic,
    PartitionMetadata,
    Produce,
    ProducePartition,
    ProduceResult,
    ProduceResultPartition,
    RecordError,
    ResourceOutcome,
    TopicMetadata,
    TopicOutcome,
    TopicOutcomes,
)
from barnabas.ports.error_codes import ErrorCode

ID_A, ID_B = bytes(range(16)), bytes(range(16, 32))
NO_ID = bytes(16)
LONG_NAME = "n" * 249
UNSET = -0x8000_0000


@frozen
class Sample:
    """A request and a result of one API, each with the tree that it is on the wire."""

    request: Any
    request_wire: dict[str, Any]
    result: Any
    result_wire: dict[str, Any]


PRODUCE = Sample(
    Produce(
        partitions=[
            ProducePartition("clicks", 3, memoryview(b"first batch")),
            ProducePartition("clicks", 4, memoryview(b"")),
            ProducePartition(LONG_NAME, 0, memoryview(b"x" * 300)),
        ],
        acks=-1,
        timeout_ms=1234,
        transactional_id="pay-1",
    ),
    {
        "transactional_id": "pay-1",
        "acks": -1,
        "timeout": 1234,
        "topic_data": [
            {
                "name": "clicks",
                "partition_data": [{"index": 3, "records": b"first batch"}, {"index": 4, "records": b""}],
            },
            {"name": LONG_NAME, "partition_data": [{"index": 0, "records": b"x" * 300}]},
        ],
    },
    ProduceResult(
        partitions=[
            ProduceResultPartition("clicks", 3, ErrorCode.NONE, 2**40 + 1, 1_700_000_000_123, 17),
            ProduceResultPartition(
                "clicks",
                4,
                ErrorCode.INVALID_RECORD,
                error_message="no",
                record_errors=[RecordError(index=5, message="héllo"), RecordError(index=6)],
            ),
            ProduceResultPartition(LONG_NAME, 0, ErrorCode.NONE, 8, -1, 2),
        ],
        throttle_ms=77,
    ),
    {
        "responses": [
            {
                "name": "clicks",
                "partition_responses": [
                    {
                        "index": 3,
                        "error_code": 0,
                        "base_offset": 2**40 + 1,
                        "log_append_time": 1_700_000_000_123,
                        "log_start_offset": 17,
                        "record_errors": [],
                        "error_message": None,
                    },
                    {
                        "index": 4,
                        "error_code": 87,
                        "base_offset": -1,
                        "log_append_time": None,
                        "log_start_offset": -1,
                        "record_errors": [
                            {"batch_index": 5, "batch_index_error_message": "héllo"},
                            {"batch_index": 6, "batch_index_error_message": None},
                        ],
                        "error_message": "no",
                    },
                ],
            },
            {
                "name": LONG_NAME,
                "partition_responses": [
                    {
                        "index": 0,
                        "error_code": 0,
                        "base_offset": 8,
                        "log_append_time": None,
                        "log_start_offset": 2,
                        "record_errors": [],
                        "error_message": None,
                    }
                ],
            },
        ],
        "throttle_time": 77,
    },
)

FETCH = Sample(
    Fetch(
        partitions=[
            FetchPartition("clicks", 1, 2**33, 1000, 4, 5, 6),
            FetchPartition("clicks", 2, 7, 1001),
            FetchPartition("views", 0, 8, 1002),
        ],
        max_wait_ms=501,
        min_bytes=502,
        max_bytes=503,
        isolation_level=1,
        replica_id=9,
    ),
    {
        "replica_id": 9,
        "max_wait": 501,
        "min_bytes": 502,
        "max_bytes": 503,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": "clicks",
                "partitions": [
                    {
                        "partition": 1,
                        "current_leader_epoch": 4,
                        "fetch_offset": 2**33,
                        "last_fetched_epoch": 6,
                        "log_start_offset": 5,
                        "partition_max_bytes": 1000,
                    },
                    {
                        "partition": 2,
                        "current_leader_epoch": -1,
                        "fetch_offset": 7,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1001,
                    },
                ],
            },
            {
                "topic": "views",
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "fetch_offset": 8,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1002,
                    }
                ],
            },
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
        "cluster_id": None,
    },
    FetchResult(
        partitions=[
            FetchResultPartition("clicks", 1, ErrorCode.NONE, 2**34, 2**34 - 1, 11, b"some records"),
            FetchResultPartition("clicks", 2, ErrorCode.OFFSET_OUT_OF_RANGE),
            FetchResultPartition("views", 0, ErrorCode.NONE, 12, 13, 14, b"y" * 200),
        ],
        throttle_ms=15,
    ),
    {
        "throttle_time": 15,
        "error_code": 0,
        "session_id": 0,
        "responses": [
            {
                "topic": "clicks",
                "partitions": [
                    {
                        "partition_index": 1,
                        "error_code": 0,
                        "high_watermark": 2**34,
                        "last_stable_offset": 2**34 - 1,
                        "log_start_offset": 11,
                        "aborted_transactions": None,
                        "preferred_read_replica": -1,
                        "records": b"some records",
                    },
                    {
                        "partition_index": 2,
                        "error_code": 1,
                        "high_watermark": -1,
                        "last_stable_offset": -1,
                        "log_start_offset": -1,
                        "aborted_transactions": None,
                        "preferred_read_replica": -1,
                        "records": b"",
                    },
                ],
            },
            {
                "topic": "views",
                "partitions": [
                    {
                        "partition_index": 0,
                        "error_code": 0,
                        "high_watermark": 12,
                        "last_stable_offset": 13,
                        "log_start_offset": 14,
                        "aborted_transactions": None,
                        "preferred_read_replica": -1,
                        "records": b"y" * 200,
                    }
                ],
            },
        ],
    },
)

LIST_OFFSETS = Sample(
    ListOffsets(
        partitions=[
            ListOffsetsPartition(topic="clicks", partition=1, timestamp=1_700_000_000_000, current_leader_epoch=3),
            ListOffsetsPartition(topic="views", partition=2, timestamp=-2),
        ],
        isolation_level=1,
        replica_id=-1,
    ),
    {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [
            {
                "name": "clicks",
                "partitions": [{"partition_index": 1, "current_leader_epoch": 3, "timestamp": 1_700_000_000_000}],
            },
            {"name": "views", "partitions": [{"partition_index": 2, "current_leader_epoch": -1, "timestamp": -2}]},
        ],
    },
    ListOffsetsResult(
        partitions=[
            ListOffsetsResultPartition(topic="clicks", partition=1, timestamp=21, offset=22, leader_epoch=23),
            ListOffsetsResultPartition(topic="views", partition=2, error=ErrorCode.OFFSET_NOT_AVAILABLE),
        ],
        throttle_ms=24,
    ),
    {
        "throttle_time": 24,
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {"partition_index": 1, "error_code": 0, "timestamp": 21, "offset": 22, "leader_epoch": 23}
                ],
            },
            {
                "name": "views",
                "partitions": [
                    {"partition_index": 2, "error_code": 78, "timestamp": -1, "offset": -1, "leader_epoch": -1}
                ],
            },
        ],
    },
)

METADATA = Sample(
    Metadata(topics=["clicks", "views"]),
    {
        "topics": [{"topic_id": NO_ID, "name": "clicks"}, {"topic_id": NO_ID, "name": "views"}],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    },
    MetadataResult(
        brokers=[
            BrokerNode(node_id=1, host="one.example", port=9092, rack="r1"),
            BrokerNode(node_id=2, host="::1", port=9093),
        ],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            TopicMetadata(
                name="clicks",
                topic_id=ID_A,
                internal=True,
                partitions=[
                    PartitionMetadata(
                        partition=5, leader=1, leader_epoch=6, replicas=[1, 2], isr=[2], offline_replicas=[7]
                    ),
                    PartitionMetadata(
                        partition=8,
                        leader=-1,
                        leader_epoch=9,
                        replicas=[3],
                        isr=[],
                        error=ErrorCode.LEADER_NOT_AVAILABLE,
                    ),
                ],
            ),
            TopicMetadata(name="views", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        throttle_ms=10,
    ),
    {
        "throttle_time": 10,
        "brokers": [
            {"node_id": 1, "host": "one.example", "port": 9092, "rack": "r1"},
            {"node_id": 2, "host": "::1", "port": 9093, "rack": None},
        ],
        "cluster_id": "cluster",
        "controller_id": 2,
        "topics": [
            {
                "error_code": 0,
                "name": "clicks",
                "topic_id": ID_A,
                "is_internal": True,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": 5,
                        "leader_id": 1,
                        "leader_epoch": 6,
                        "replica_nodes": [1, 2],
                        "isr_nodes": [2],
                        "offline_replicas": [7],
                    },
                    {
                        "error_code": 5,
                        "partition_index": 8,
                        "leader_id": -1,
                        "leader_epoch": 9,
                        "replica_nodes": [3],
                        "isr_nodes": [],
                        "offline_replicas": [],
                    },
                ],
                "topic_authorized_operations": UNSET,
            },
            {
                "error_code": 3,
                "name": "views",
                "topic_id": NO_ID,
                "is_internal": False,
                "partitions": [],
                "topic_authorized_operations": UNSET,
            },
        ],
        "cluster_authorized_operations": UNSET,
    },
)

CREATE_TOPICS = Sample(
    CreateTopics(
        topics=[
            NewTopic(name="clicks", partitions=3, replication_factor=2, configs={"retention.ms": "5", "x": None}),
            NewTopic(name="views", assignments={0: [1, 2], 1: [3]}),
        ],
        timeout_ms=31,
        validate_only=True,
    ),
    {
        "topics": [
            {
                "name": "clicks",
                "num_partitions": 3,
                "replication_factor": 2,
                "assignments": [],
                "configs": [{"name": "retention.ms", "value": "5"}, {"name": "x", "value": None}],
            },
            {
                "name": "views",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [
                    {"partition_index": 0, "broker_ids": [1, 2]},
                    {"partition_index": 1, "broker_ids": [3]},
                ],
                "configs": [],
            },
        ],
        "timeout": 31,
        "validate_only": True,
    },
    CreateTopicsResult(
        topics=[
            CreatedTopic(
                name="clicks",
                topic_id=ID_B,
                partitions=3,
                replication_factor=2,
                configs=[
                    ConfigEntry(name="retention.ms", value="5", source=ConfigSource.TOPIC, read_only=True),
                    ConfigEntry(name="secret", value=None, source=ConfigSource.STATIC_BROKER, sensitive=True),
                ],
            ),
            CreatedTopic(name="views", error=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="it exists"),
        ],
        throttle_ms=32,
    ),
    {
        "throttle_time": 32,
        "topics": [
            {
                "name": "clicks",
                "topic_id": ID_B,
                "error_code": 0,
                "error_message": None,
                "topic_config_error_code": 0,
                "num_partitions": 3,
                "replication_factor": 2,
                "configs": [
                    {
                        "name": "retention.ms",
                        "value": "5",
                        "read_only": True,
                        "config_source": 1,
                        "is_sensitive": False,
                    },
                    {"name": "secret", "value": None, "read_only": False, "config_source": 4, "is_sensitive": True},
                ],
            },
            {
                "name": "views",
                "topic_id": NO_ID,
                "error_code": 36,
                "error_message": "it exists",
                "topic_config_error_code": 0,
                "num_partitions": -1,
                "replication_factor": -1,
                "configs": None,
            },
        ],
    },
)

DELETE_TOPICS = Sample(
    DeleteTopics(names=["clicks", "views"], timeout_ms=41),
    {
        "topics": [{"name": "clicks", "topic_id": NO_ID}, {"name": "views", "topic_id": NO_ID}],
        "topic_names": ["clicks", "views"],
        "timeout": 41,
    },
    DeleteTopicsResult(
        topics=[
            DeletedTopic(name="clicks", topic_id=ID_A),
            DeletedTopic(name="views", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message="which?"),
        ],
        throttle_ms=42,
    ),
    {
        "throttle_time": 42,
        "responses": [
            {"name": "clicks", "topic_id": ID_A, "error_code": 0, "error_message": None},
            {"name": "views", "topic_id": NO_ID, "error_code": 3, "error_message": "which?"},
        ],
    },
)

DELETE_RECORDS = Sample(
    DeleteRecords(
        partitions=[
            DeleteRecordsPartition(topic="clicks", partition=1, offset=51),
            DeleteRecordsPartition(topic="clicks", partition=2, offset=-1),
            DeleteRecordsPartition(topic="views", partition=0, offset=52),
        ],
        timeout_ms=53,
    ),
    {
        "topics": [
            {
                "name": "clicks",
                "partitions": [{"partition_index": 1, "offset": 51}, {"partition_index": 2, "offset": -1}],
            },
            {"name": "views", "partitions": [{"partition_index": 0, "offset": 52}]},
        ],
        "timeout": 53,
    },
    DeleteRecordsResult(
        partitions=[
            DeleteRecordsResultPartition(topic="clicks", partition=1, low_watermark=51),
            DeleteRecordsResultPartition(topic="clicks", partition=2, low_watermark=54),
            DeleteRecordsResultPartition(topic="views", partition=0, error=ErrorCode.OFFSET_OUT_OF_RANGE),
        ],
        throttle_ms=55,
    ),
    {
        "throttle_time": 55,
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {"partition_index": 1, "low_watermark": 51, "error_code": 0},
                    {"partition_index": 2, "low_watermark": 54, "error_code": 0},
                ],
            },
            {"name": "views", "partitions": [{"partition_index": 0, "low_watermark": -1, "error_code": 1}]},
        ],
    },
)

_TOPIC = ConfigResource(kind=2, name="clicks")
_BROKER = ConfigResource(kind=4, name="1")

DESCRIBE_CONFIGS = Sample(
    DescribeConfigs(
        resources=[
            ConfigDescription(resource=_TOPIC, keys=["a", "b"]),
            ConfigDescription(resource=_BROKER),
        ],
        include_synonyms=True,
        include_documentation=True,
    ),
    {
        "resources": [
            {"resource_type": 2, "resource_name": "clicks", "configuration_keys": ["a", "b"]},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    },
    DescribeConfigsResult(
        resources=[
            ResourceOutcome(
                resource=_TOPIC,
                entries=[
                    ConfigEntry(
                        name="a",
                        value="1",
                        source=ConfigSource.TOPIC,
                        read_only=True,
                        synonyms=[ConfigSynonym(name="log.a", value="2", source=ConfigSource.DEFAULT)],
                        type=ConfigType.LONG,
                        documentation="what a is",
                    ),
                    ConfigEntry(name="b", value=None, source=ConfigSource.STATIC_BROKER, sensitive=True),
                ],
            ),
            ResourceOutcome(resource=_BROKER, error=ErrorCode.INVALID_REQUEST, error_message="not here"),
        ],
        throttle_ms=61,
    ),
    {
        "throttle_time": 61,
        "results": [
            {
                "error_code": 0,
                "error_message": None,
                "resource_type": 2,
                "resource_name": "clicks",
                "configs": [
                    {
                        "name": "a",
                        "value": "1",
                        "read_only": True,
                        "config_source": 1,
                        "is_sensitive": False,
                        "synonyms": [{"name": "log.a", "value": "2", "source": 5}],
                        "config_type": 5,
                        "documentation": "what a is",
                    },
                    {
                        "name": "b",
                        "value": None,
                        "read_only": False,
                        "config_source": 4,
                        "is_sensitive": True,
                        "synonyms": [],
                        "config_type": 0,
                        "documentation": None,
                    },
                ],
            },
            {
                "error_code": 42,
                "error_message": "not here",
                "resource_type": 4,
                "resource_name": "1",
                "configs": [],
            },
        ],
    },
)

ALTER_CONFIGS = Sample(
    IncrementalAlterConfigs(
        resources=[_TOPIC, _BROKER],
        alterations=[
            ConfigAlteration(resource=_TOPIC, name="a", value="1"),
            ConfigAlteration(resource=_TOPIC, name="b", value=None, op=ConfigOp.DELETE),
        ],
        validate_only=True,
    ),
    {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "clicks",
                "configs": [
                    {"name": "a", "config_operation": 0, "value": "1"},
                    {"name": "b", "config_operation": 1, "value": None},
                ],
            },
            {"resource_type": 4, "resource_name": "1", "configs": []},
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
            {"error_code": 40, "error_message": "no such key", "resource_type": 4, "resource_name": "1"},
        ],
    },
)

DESCRIBE_LOG_DIRS = Sample(
    DescribeLogDirs(topics={"clicks": [1, 2], "views": []}),
    {"topics": [{"topic": "clicks", "partitions": [1, 2]}, {"topic": "views", "partitions": []}]},
    DescribeLogDirsResult(
        log_dirs=[
            LogDirDescription(
                path="/data/1",
                replicas=[
                    LogDirReplica(topic="clicks", partition=1, size_bytes=81, lag=82, is_future=True),
                    LogDirReplica(topic="clicks", partition=2, size_bytes=83),
                    LogDirReplica(topic="views", partition=0, size_bytes=84),
                ],
                total_bytes=85,
                usable_bytes=86,
            ),
            LogDirDescription(path="/data/2", replicas=[], error=ErrorCode.KAFKA_STORAGE_ERROR),
        ],
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        throttle_ms=87,
    ),
    {
        "throttle_time": 87,
        "error_code": 31,
        "results": [
            {
                "error_code": 0,
                "log_dir": "/data/1",
                "topics": [
                    {
                        "name": "clicks",
                        "partitions": [
                            {"partition_index": 1, "partition_size": 81, "offset_lag": 82, "is_future_key": True},
                            {"partition_index": 2, "partition_size": 83, "offset_lag": 0, "is_future_key": False},
                        ],
                    },
                    {
                        "name": "views",
                        "partitions": [
                            {"partition_index": 0, "partition_size": 84, "offset_lag": 0, "is_future_key": False}
                        ],
                    },
                ],
                "total_bytes": 85,
                "usable_bytes": 86,
            },
            {"error_code": 56, "log_dir": "/data/2", "topics": [], "total_bytes": -1, "usable_bytes": -1},
        ],
    },
)

CREATE_PARTITIONS = Sample(
    CreatePartitions(
        topics=[
            NewPartitions(topic="clicks", count=9),
            NewPartitions(topic="views", count=4, assignments=[[1, 2], [3]]),
        ],
        timeout_ms=91,
        validate_only=True,
    ),
    {
        "topics": [
            {"name": "clicks", "count": 9, "assignments": None},
            {"name": "views", "count": 4, "assignments": [{"broker_ids": [1, 2]}, {"broker_ids": [3]}]},
        ],
        "timeout": 91,
        "validate_only": True,
    },
    TopicOutcomes(
        topics=[
            TopicOutcome(name="clicks"),
            TopicOutcome(name="views", error=ErrorCode.INVALID_PARTITIONS, error_message="fewer"),
        ],
        throttle_ms=92,
    ),
    {
        "throttle_time": 92,
        "results": [
            {"name": "clicks", "error_code": 0, "error_message": None},
            {"name": "views", "error_code": 37, "error_message": "fewer"},
        ],
    },
)

DESCRIBE_CLUSTER = Sample(
    DescribeCluster(),
    {"include_cluster_authorized_operations": False, "endpoint_type": 1},
    DescribeClusterResult(
        cluster_id="cluster",
        controller_id=3,
        brokers=[BrokerNode(node_id=3, host="three.example", port=9094, rack="r3")],
        throttle_ms=95,
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        error_message="not you",
    ),
    {
        "throttle_time": 95,
        "error_code": 31,
        "error_message": "not you",
        "endpoint_type": 1,
        "cluster_id": "cluster",
        "controller_id": 3,
        "brokers": [{"broker_id": 3, "host": "three.example", "port": 9094, "rack": "r3"}],
        "cluster_authorized_operations": UNSET,
    },
)

SAMPLES: dict[int, Sample] = {
    0: PRODUCE,
    1: FETCH,
    2: LIST_OFFSETS,
    3: METADATA,
    19: CREATE_TOPICS,
    20: DELETE_TOPICS,
    21: DELETE_RECORDS,
    32: DESCRIBE_CONFIGS,
    35: DESCRIBE_LOG_DIRS,
    37: CREATE_PARTITIONS,
    44: ALTER_CONFIGS,
    60: DESCRIBE_CLUSTER,
}
