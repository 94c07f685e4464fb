"""Samples of the administrative APIs."""

from support.kafka_sample import ID_A, ID_B, NO_ID, Sample

from barnabas.ports.broker_api.cluster import (
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
from barnabas.ports.broker_api.configs import (
    AlterConfigsResult,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribeConfigs,
    DescribeConfigsResult,
    IncrementalAlterConfigs,
    ListConfigResources,
    ListConfigResourcesResult,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.broker_api.metadata import (
    DescribedTopic,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResult,
    PartitionDescription,
    TopicPartitionCursor,
)
from barnabas.ports.broker_api.mirroring import MirrorRecords, MirrorRecordsResult
from barnabas.ports.broker_api.topics import (
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
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicOutcomes,
)
from barnabas.ports.error_codes import ErrorCode

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

DESCRIBE_CONNECTIONS = Sample(
    DescribeConnections(after=70, limit=71),
    {},  # kio knows Kafka's APIs only
    DescribeConnectionsResult(
        connections=[
            ConnectionDescription(
                connection_id=72,
                listener="SASL_SSL",
                host="10.0.0.1",
                port=73,
                principal="User:alice",
                is_encrypted=True,
                client_id=None,
                software_name="librdkafka",
                software_version="2.14.0",
                connected_at_ms=74,
                requests=75,
                in_flight=76,
                bytes_in=77,
                bytes_out=78,
            )
        ],
        total=79,
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        error_message="no",
        throttle_ms=80,
    ),
    {},
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
                is_cordoned=True,
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
                "is_cordoned": True,
            },
            {
                "error_code": 56,
                "log_dir": "/data/2",
                "topics": [],
                "total_bytes": -1,
                "usable_bytes": -1,
                "is_cordoned": False,
            },
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

UNREGISTER_BROKER = Sample(
    UnregisterBroker(broker_id=4),
    {"broker_id": 4},
    UnregisterBrokerResult(throttle_ms=96, error=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no broker 4"),
    {"throttle_time": 96, "error_code": 102, "error_message": "no broker 4"},
)

DESCRIBE_CLUSTER = Sample(
    DescribeCluster(include_authorized_operations=True),
    {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False},
    DescribeClusterResult(
        cluster_id="cluster",
        controller_id=3,
        brokers=[BrokerNode(node_id=3, host="three.example", port=9094, rack="r3")],
        throttle_ms=95,
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        error_message="not you",
        authorized_operations=0b1100,
    ),
    {
        "throttle_time": 95,
        "error_code": 31,
        "error_message": "not you",
        "endpoint_type": 1,
        "cluster_id": "cluster",
        "controller_id": 3,
        "brokers": [{"broker_id": 3, "host": "three.example", "port": 9094, "rack": "r3", "is_fenced": False}],
        "cluster_authorized_operations": 0b1100,
    },
)

_VOTER = ReplicaState(replica_id=1, directory_id=ID_A, log_end_offset=7, last_fetch_ms=8, last_caught_up_ms=9)
_VOTER_WIRE = {
    "replica_id": 1,
    "replica_directory_id": ID_A,
    "log_end_offset": 7,
    "last_fetch_timestamp": 8,
    "last_caught_up_timestamp": 9,
}
_OBSERVER = ReplicaState(replica_id=2, directory_id=ID_B, log_end_offset=6, last_fetch_ms=5, last_caught_up_ms=4)
_OBSERVER_WIRE = {
    "replica_id": 2,
    "replica_directory_id": ID_B,
    "log_end_offset": 6,
    "last_fetch_timestamp": 5,
    "last_caught_up_timestamp": 4,
}

DESCRIBE_QUORUM = Sample(
    DescribeQuorum(partitions=[QuorumPartition("__cluster_metadata", 0), QuorumPartition("clicks", 3)]),
    {
        "topics": [
            {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
            {"topic_name": "clicks", "partitions": [{"partition_index": 3}]},
        ]
    },
    DescribeQuorumResult(
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        error_message="not you",
        partitions=[
            QuorumDescription(
                topic="__cluster_metadata",
                partition=0,
                leader_id=1,
                leader_epoch=12,
                high_watermark=6,
                voters=[_VOTER],
                observers=[_OBSERVER],
            ),
            QuorumDescription(
                topic="clicks",
                partition=3,
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message="no quorum",
            ),
        ],
        nodes=[QuorumNode(node_id=1, listeners=[QuorumListener(name="PLAIN", host="one.example", port=60_000)])],
    ),
    {
        "error_code": 31,
        "error_message": "not you",
        "topics": [
            {
                "topic_name": "__cluster_metadata",
                "partitions": [
                    {
                        "partition_index": 0,
                        "error_code": 0,
                        "error_message": None,
                        "leader_id": 1,
                        "leader_epoch": 12,
                        "high_watermark": 6,
                        "current_voters": [_VOTER_WIRE],
                        "observers": [_OBSERVER_WIRE],
                    }
                ],
            },
            {
                "topic_name": "clicks",
                "partitions": [
                    {
                        "partition_index": 3,
                        "error_code": 3,
                        "error_message": "no quorum",
                        "leader_id": -1,
                        "leader_epoch": -1,
                        "high_watermark": -1,
                        "current_voters": [],
                        "observers": [],
                    }
                ],
            },
        ],
        "nodes": [{"node_id": 1, "listeners": [{"name": "PLAIN", "host": "one.example", "port": 60_000}]}],
    },
)

LIST_CONFIG_RESOURCES = Sample(
    ListConfigResources(kinds=[ResourceKind.GROUP, ResourceKind.TOPIC]),
    {"resource_types": [32, 2]},
    ListConfigResourcesResult(
        throttle_ms=41,
        error=ErrorCode.UNSUPPORTED_VERSION,
        resources=[ConfigResource(kind=32, name="readers"), ConfigResource(kind=2, name="clicks")],
    ),
    {
        "throttle_time": 41,
        "error_code": 35,
        "config_resources": [
            {"resource_name": "readers", "resource_type": 32},
            {"resource_name": "clicks", "resource_type": 2},
        ],
    },
    older=Sample(
        ListConfigResources(kinds=(ResourceKind.CLIENT_METRICS,)),
        {},
        ListConfigResourcesResult(throttle_ms=42, resources=[ConfigResource(kind=16, name="clients")]),
        {"throttle_time": 42, "error_code": 0, "config_resources": [{"resource_name": "clients"}]},
    ),
    older_until=0,
)

DESCRIBE_TOPIC_PARTITIONS = Sample(
    DescribeTopicPartitions(
        topics=["clicks", "views"], partitions_max=17, cursor=TopicPartitionCursor(topic="clicks", partition=4)
    ),
    {
        "topics": [{"name": "clicks"}, {"name": "views"}],
        "response_partition_limit": 17,
        "cursor": {"topic_name": "clicks", "partition_index": 4},
    },
    DescribeTopicPartitionsResult(
        throttle_ms=43,
        topics=[
            DescribedTopic(
                name="clicks",
                topic_id=ID_A,
                internal=True,
                partitions=[
                    PartitionDescription(
                        partition=4,
                        leader=3,
                        leader_epoch=9,
                        replicas=[3, 4, 5],
                        isr=[3],
                        offline_replicas=[6],
                        eligible_leader_replicas=[4],
                        last_known_elr=[5],
                    ),
                    PartitionDescription(
                        partition=5,
                        leader=-1,
                        leader_epoch=2,
                        replicas=[7],
                        isr=[],
                        error=ErrorCode.LEADER_NOT_AVAILABLE,
                    ),
                ],
                authorized_operations=0b110,
            ),
            DescribedTopic(name="views", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ],
        next_cursor=TopicPartitionCursor(topic="views", partition=1),
    ),
    {
        "throttle_time": 43,
        "topics": [
            {
                "error_code": 0,
                "name": "clicks",
                "topic_id": ID_A,
                "is_internal": True,
                "partitions": [
                    {
                        "error_code": 0,
                        "partition_index": 4,
                        "leader_id": 3,
                        "leader_epoch": 9,
                        "replica_nodes": [3, 4, 5],
                        "isr_nodes": [3],
                        "eligible_leader_replicas": [4],
                        "last_known_elr": [5],
                        "offline_replicas": [6],
                    },
                    {
                        "error_code": 5,
                        "partition_index": 5,
                        "leader_id": -1,
                        "leader_epoch": 2,
                        "replica_nodes": [7],
                        "isr_nodes": [],
                        "eligible_leader_replicas": None,
                        "last_known_elr": None,
                        "offline_replicas": [],
                    },
                ],
                "topic_authorized_operations": 0b110,
            },
            {
                "error_code": 29,
                "name": "views",
                "topic_id": NO_ID,
                "is_internal": False,
                "partitions": [],
                "topic_authorized_operations": -0x8000_0000,
            },
        ],
        "next_cursor": {"topic_name": "views", "partition_index": 1},
    },
)

MIRROR_RECORDS = Sample(
    MirrorRecords(
        topic="clicks",
        partition=80,
        source="there",
        log_end=81,
        last_epoch=91,
        leader_epoch=82,
        truncate_to=83,
        truncate_epoch=90,
        log_start=84,
        records=b"batches",
    ),
    {},
    MirrorRecordsResult(
        error=ErrorCode.OFFSET_OUT_OF_RANGE,
        error_message="it ends at 86",
        log_start=85,
        log_end=86,
        high_watermark=87,
        last_epoch=88,
        leader_epoch=89,
        throttle_ms=79,
    ),
    {},
)
