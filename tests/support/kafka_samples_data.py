"""Samples of the APIs that move data and find it."""

from support.kafka_sample import ID_A, LONG_NAME, NO_ID, NO_LEADER, UNSET, Sample, newer_by_id

from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.fetch import CurrentLeader
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult, PartitionMetadata, TopicMetadata
from barnabas.ports.broker_api.offsets import (
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from barnabas.ports.broker_api.produce import (
    Produce,
    ProducePartition,
    ProduceResult,
    ProduceResultPartition,
    RecordError,
)
from barnabas.ports.broker_api.transactions import TransactionSupportedOperation
from barnabas.ports.error_codes import ErrorCode

_PRODUCE = Sample(
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
                current_leader=CurrentLeader(31, 32),
            ),
            ProduceResultPartition(LONG_NAME, 0, ErrorCode.NONE, 8, -1, 2),
        ],
        throttle_ms=77,
        nodes=[BrokerNode(node_id=31, host="one.example", port=9092, rack="r1")],
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
                        "current_leader": NO_LEADER,
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
                        "current_leader": {"leader_id": 31, "leader_epoch": 32},
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
                        "current_leader": NO_LEADER,
                    }
                ],
            },
        ],
        "throttle_time": 77,
        "node_endpoints": [{"node_id": 31, "host": "one.example", "port": 9092, "rack": "r1"}],
    },
)

PRODUCE = newer_by_id(_PRODUCE, older_until=12, supported_operation=TransactionSupportedOperation.ADD_PARTITION)


def _list_offsets(not_available: ErrorCode, older: Sample | None = None) -> Sample:
    return Sample(
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
            "timeout": 30_000,
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
                ListOffsetsResultPartition(topic="views", partition=2, error=not_available),
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
                        {
                            "partition_index": 2,
                            "error_code": int(not_available),
                            "timestamp": -1,
                            "offset": -1,
                            "leader_epoch": -1,
                        }
                    ],
                },
            ],
        },
        older=older,
        older_until=4,
    )


LIST_OFFSETS = _list_offsets(ErrorCode.OFFSET_NOT_AVAILABLE, _list_offsets(ErrorCode.LEADER_NOT_AVAILABLE))
"""Before version 5, clients do not know that error."""

METADATA = Sample(
    Metadata(topics=["clicks", "views"], include_topic_authorized_operations=True),
    {
        "topics": [{"topic_id": NO_ID, "name": "clicks"}, {"topic_id": NO_ID, "name": "views"}],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": True,
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
                authorized_operations=0b1001,
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
                "topic_authorized_operations": 0b1001,
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
        "error_code": 0,
    },
)
