"""Samples of the APIs of share groups (KIP-932)."""

from typing import Any

from attrs import evolve
from support.kafka_sample import ID_A, ID_B, NO_ID, NO_LEADER, Sample

from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.consumer_groups import DescribedTopicPartitions, TopicIdPartitions
from barnabas.ports.broker_api.fetch import CurrentLeader
from barnabas.ports.broker_api.share_group_offsets import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    DeletedShareTopic,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResult,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResult,
    ShareGroupOffsets,
    ShareGroupOffsetsQuery,
    ShareGroupTopic,
    SharePartitionOffset,
    SharePartitionStart,
    ShareStartOutcome,
    ShareTopicOffsets,
)
from barnabas.ports.broker_api.share_groups import (
    AcknowledgementBatch,
    AcquiredRecords,
    ForgottenSharePartition,
    ShareAcknowledge,
    ShareAcknowledgeOutcome,
    ShareAcknowledgePartition,
    ShareAcknowledgeResult,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchResult,
    ShareFetchResultPartition,
    ShareGroupDescribe,
    ShareGroupDescribeResult,
    ShareGroupDescription,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupMember,
)
from barnabas.ports.broker_api.share_partitions import (
    DeliveredRecords,
    DescribeSharePartitions,
    DescribeSharePartitionsResult,
    HeldRecords,
    SharePartitionDescription,
)
from barnabas.ports.error_codes import ErrorCode

SHARE_GROUP_HEARTBEAT = Sample(
    ShareGroupHeartbeat(
        group_id="audit",
        member_id="c1+4/711",
        member_epoch=2**31 - 1,
        rack_id="rack-7",
        subscribed_topic_names=["clicks", "views"],
    ),
    {
        "group_id": "audit",
        "member_id": "c1+4/711",
        "member_epoch": 2**31 - 1,
        "rack_id": "rack-7",
        "subscribed_topic_names": ["clicks", "views"],
    },
    ShareGroupHeartbeatResult(
        error=ErrorCode.GROUP_MAX_SIZE_REACHED,
        error_message="full",
        member_id="c1+4/711",
        member_epoch=12,
        heartbeat_interval_ms=5_000,
        assignment=[TopicIdPartitions(ID_A, [0, 3]), TopicIdPartitions(ID_B, [])],
        throttle_ms=6,
    ),
    {
        "throttle_time": 6,
        "error_code": 81,
        "error_message": "full",
        "member_id": "c1+4/711",
        "member_epoch": 12,
        "heartbeat_interval": 5_000,
        "assignment": {
            "topic_partitions": [
                {"topic_id": ID_A, "partitions": [0, 3]},
                {"topic_id": ID_B, "partitions": []},
            ]
        },
    },
)

DESCRIBE_SHARE_PARTITIONS = Sample(
    DescribeSharePartitions(group_id="audit"),
    {},  # kio knows Kafka's APIs only
    DescribeSharePartitionsResult(
        partitions=[
            SharePartitionDescription(
                topic="clicks",
                partition=3,
                start_offset=51,
                acquired=52,
                available=53,
                acknowledged=54,
                archived=55,
                deliveries=[DeliveredRecords(1, 56), DeliveredRecords(4, 57)],
                holders=[HeldRecords("c1", 58, 59)],
            )
        ],
        error=ErrorCode.GROUP_AUTHORIZATION_FAILED,
        error_message="no",
        throttle_ms=60,
    ),
    {},
)

SHARE_GROUP_DESCRIBE = Sample(
    ShareGroupDescribe(group_ids=["audit", "bills"], include_authorized_operations=True),
    {"group_ids": ["audit", "bills"], "include_authorized_operations": True},
    ShareGroupDescribeResult(
        groups=[
            ShareGroupDescription(
                group_id="audit",
                group_state="Stable",
                group_epoch=13,
                assignment_epoch=12,
                assignor_name="simple",
                members=[
                    ShareGroupMember(
                        member_id="c1+4/711",
                        rack_id="rack-7",
                        member_epoch=11,
                        client_id="c1",
                        client_host="/10.0.0.7",
                        subscribed_topic_names=["clicks", "views"],
                        assignment=[DescribedTopicPartitions(ID_A, "clicks", [0, 3])],
                    ),
                    ShareGroupMember(member_id="c2"),
                ],
                authorized_operations=264,
            ),
            ShareGroupDescription(
                group_id="bills", error=ErrorCode.GROUP_ID_NOT_FOUND, error_message="Group bills not found."
            ),
        ],
        throttle_ms=7,
    ),
    {
        "throttle_time": 7,
        "groups": [
            {
                "error_code": 0,
                "error_message": None,
                "group_id": "audit",
                "group_state": "Stable",
                "group_epoch": 13,
                "assignment_epoch": 12,
                "assignor_name": "simple",
                "members": [
                    {
                        "member_id": "c1+4/711",
                        "rack_id": "rack-7",
                        "member_epoch": 11,
                        "client_id": "c1",
                        "client_host": "/10.0.0.7",
                        "subscribed_topic_names": ["clicks", "views"],
                        "assignment": {
                            "topic_partitions": [{"topic_id": ID_A, "topic_name": "clicks", "partitions": [0, 3]}]
                        },
                    },
                    {
                        "member_id": "c2",
                        "rack_id": None,
                        "member_epoch": 0,
                        "client_id": "",
                        "client_host": "",
                        "subscribed_topic_names": [],
                        "assignment": {"topic_partitions": []},
                    },
                ],
                "authorized_operations": 264,
            },
            {
                "error_code": 69,
                "error_message": "Group bills not found.",
                "group_id": "bills",
                "group_state": "",
                "group_epoch": 0,
                "assignment_epoch": 0,
                "assignor_name": "",
                "members": [],
                "authorized_operations": -(2**31),
            },
        ],
    },
)

_BATCHES = [
    AcknowledgementBatch(2**33, 2**33 + 3, b"\x01\x02\x03\x00"),
    AcknowledgementBatch(2**34, 2**34 + 9, b"\x01"),
]
_BATCHES_WIRE: list[dict[str, Any]] = [
    {"first_offset": 2**33, "last_offset": 2**33 + 3, "acknowledge_types": [1, 2, 3, 0]},
    {"first_offset": 2**34, "last_offset": 2**34 + 9, "acknowledge_types": [1]},
]
_RENEWALS = [AcknowledgementBatch(7, 7, b"\x04")]
_RENEWALS_WIRE: list[dict[str, Any]] = [{"first_offset": 7, "last_offset": 7, "acknowledge_types": [4]}]
_TOPICS_WIRE = [
    {
        "topic_id": ID_A,
        "partitions": [
            {"partition_index": 1, "acknowledgement_batches": _BATCHES_WIRE},
            {"partition_index": 2, "acknowledgement_batches": []},
        ],
    },
    {"topic_id": ID_B, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]},
]
_LEADER = CurrentLeader(21, 22)
_LEADER_WIRE = {"leader_id": 21, "leader_epoch": 22}
_NODES = [
    BrokerNode(node_id=21, host="one.example", port=9092, rack="r1"),
    BrokerNode(node_id=25, host="::1", port=65535),
]
_NODES_WIRE = [
    {"node_id": 21, "host": "one.example", "port": 9092, "rack": "r1"},
    {"node_id": 25, "host": "::1", "port": 65535, "rack": None},
]

_FETCH_V1 = Sample(
    ShareFetch(
        group_id="audit",
        member_id="c1+4/711",
        share_session_epoch=2**31 - 1,
        partitions=[
            ShareFetchPartition(ID_A, 1, _BATCHES),
            ShareFetchPartition(ID_A, 2),
            ShareFetchPartition(ID_B, 0),
        ],
        forgotten=[
            ForgottenSharePartition(ID_A, 3),
            ForgottenSharePartition(ID_A, 4),
            ForgottenSharePartition(ID_B, 1),
        ],
        max_wait_ms=501,
        min_bytes=502,
        max_bytes=503,
        max_records=504,
        batch_size=505,
        allows_renew=False,
    ),
    {
        "group_id": "audit",
        "member_id": "c1+4/711",
        "share_session_epoch": 2**31 - 1,
        "max_wait": 501,
        "min_bytes": 502,
        "max_bytes": 503,
        "max_records": 504,
        "batch_size": 505,
        "topics": _TOPICS_WIRE,
        "forgotten_topics_data": [
            {"topic_id": ID_A, "partitions": [3, 4]},
            {"topic_id": ID_B, "partitions": [1]},
        ],
    },
    ShareFetchResult(
        partitions=[
            ShareFetchResultPartition(
                ID_A,
                1,
                records=b"some records",
                acquired_records=[AcquiredRecords(2**33, 2**33 + 4, 1), AcquiredRecords(2**34, 2**34, 32_767)],
            ),
            ShareFetchResultPartition(
                ID_A,
                2,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "elsewhere",
                ErrorCode.INVALID_RECORD_STATE,
                "the lock has lapsed",
                current_leader=_LEADER,
            ),
            ShareFetchResultPartition(ID_B, 0, records=b"y" * 200),
        ],
        error_message="so far",
        acquisition_lock_timeout_ms=30_000,
        nodes=_NODES,
        throttle_ms=15,
    ),
    {
        "throttle_time": 15,
        "error_code": 0,
        "error_message": "so far",
        "acquisition_lock_timeout": 30_000,
        "responses": [
            {
                "topic_id": ID_A,
                "partitions": [
                    {
                        "partition_index": 1,
                        "error_code": 0,
                        "error_message": None,
                        "acknowledge_error_code": 0,
                        "acknowledge_error_message": None,
                        "current_leader": NO_LEADER,
                        "records": b"some records",
                        "acquired_records": [
                            {"first_offset": 2**33, "last_offset": 2**33 + 4, "delivery_count": 1},
                            {"first_offset": 2**34, "last_offset": 2**34, "delivery_count": 32_767},
                        ],
                    },
                    {
                        "partition_index": 2,
                        "error_code": 6,
                        "error_message": "elsewhere",
                        "acknowledge_error_code": 121,
                        "acknowledge_error_message": "the lock has lapsed",
                        "current_leader": _LEADER_WIRE,
                        "records": b"",
                        "acquired_records": [],
                    },
                ],
            },
            {
                "topic_id": ID_B,
                "partitions": [
                    {
                        "partition_index": 0,
                        "error_code": 0,
                        "error_message": None,
                        "acknowledge_error_code": 0,
                        "acknowledge_error_message": None,
                        "current_leader": NO_LEADER,
                        "records": b"y" * 200,
                        "acquired_records": [],
                    }
                ],
            },
        ],
        "node_endpoints": _NODES_WIRE,
    },
)


def _renewing(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    parts = [{**topics[1]["partitions"][0], "acknowledgement_batches": _RENEWALS_WIRE}]
    return [topics[0], {**topics[1], "partitions": parts}]


SHARE_FETCH = Sample(
    evolve(
        _FETCH_V1.request,
        partitions=[*_FETCH_V1.request.partitions[:2], ShareFetchPartition(ID_B, 0, _RENEWALS)],
        share_acquire_mode=1,
        is_renew_ack=True,
        allows_renew=True,
    ),
    {
        **_FETCH_V1.request_wire,
        "topics": _renewing(_TOPICS_WIRE),
        "share_acquire_mode": 1,
        "is_renew_ack": True,
    },
    _FETCH_V1.result,
    _FETCH_V1.result_wire,
    older=_FETCH_V1,
    older_until=1,
)

_ACKNOWLEDGE_V1 = Sample(
    ShareAcknowledge(
        group_id="audit",
        member_id="c1+4/711",
        share_session_epoch=-1,
        partitions=[
            ShareAcknowledgePartition(ID_A, 1, _BATCHES),
            ShareAcknowledgePartition(ID_A, 2, []),
            ShareAcknowledgePartition(ID_B, 0, []),
        ],
        allows_renew=False,
    ),
    {"group_id": "audit", "member_id": "c1+4/711", "share_session_epoch": -1, "topics": _TOPICS_WIRE},
    ShareAcknowledgeResult(
        partitions=[
            ShareAcknowledgeOutcome(ID_A, 1),
            ShareAcknowledgeOutcome(ID_A, 2, ErrorCode.FENCED_LEADER_EPOCH, "elsewhere", _LEADER),
            ShareAcknowledgeOutcome(ID_B, 0),
        ],
        error=ErrorCode.NONE,
        error_message="so far",
        nodes=_NODES,
        throttle_ms=16,
    ),
    {
        "throttle_time": 16,
        "error_code": 0,
        "error_message": "so far",
        "responses": [
            {
                "topic_id": ID_A,
                "partitions": [
                    {"partition_index": 1, "error_code": 0, "error_message": None, "current_leader": NO_LEADER},
                    {
                        "partition_index": 2,
                        "error_code": 74,
                        "error_message": "elsewhere",
                        "current_leader": _LEADER_WIRE,
                    },
                ],
            },
            {
                "topic_id": ID_B,
                "partitions": [
                    {"partition_index": 0, "error_code": 0, "error_message": None, "current_leader": NO_LEADER}
                ],
            },
        ],
        "node_endpoints": _NODES_WIRE,
    },
)
SHARE_ACKNOWLEDGE = Sample(
    evolve(
        _ACKNOWLEDGE_V1.request,
        partitions=[*_ACKNOWLEDGE_V1.request.partitions[:2], ShareAcknowledgePartition(ID_B, 0, _RENEWALS)],
        is_renew_ack=True,
        allows_renew=True,
    ),
    {**_ACKNOWLEDGE_V1.request_wire, "topics": _renewing(_TOPICS_WIRE), "is_renew_ack": True},
    evolve(_ACKNOWLEDGE_V1.result, acquisition_lock_timeout_ms=45_000),
    {**_ACKNOWLEDGE_V1.result_wire, "acquisition_lock_timeout": 45_000},
    older=_ACKNOWLEDGE_V1,
    older_until=1,
)

DESCRIBE_SHARE_GROUP_OFFSETS = Sample(
    DescribeShareGroupOffsets(
        groups=[
            ShareGroupOffsetsQuery(group_id="audit", topics=[ShareGroupTopic("clicks", [0, 3])]),
            ShareGroupOffsetsQuery(group_id="bills", topics=[]),
            ShareGroupOffsetsQuery(group_id="calls"),
        ]
    ),
    {
        "groups": [
            {"group_id": "audit", "topics": [{"topic_name": "clicks", "partitions": [0, 3]}]},
            {"group_id": "bills", "topics": []},
            {"group_id": "calls", "topics": None},
        ]
    },
    DescribeShareGroupOffsetsResult(
        groups=[
            ShareGroupOffsets(
                group_id="audit",
                topics=[
                    ShareTopicOffsets(
                        topic="clicks",
                        topic_id=ID_A,
                        partitions=[
                            SharePartitionOffset(0, 2**40, 7, 19),
                            SharePartitionOffset(3, -1, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere"),
                        ],
                    ),
                    ShareTopicOffsets(topic="views", topic_id=ID_B),
                ],
            ),
            ShareGroupOffsets(group_id="bills", error=ErrorCode.GROUP_ID_NOT_FOUND, error_message="unknown"),
        ],
        throttle_ms=4,
    ),
    {
        "throttle_time": 4,
        "groups": [
            {
                "group_id": "audit",
                "topics": [
                    {
                        "topic_name": "clicks",
                        "topic_id": ID_A,
                        "partitions": [
                            {
                                "partition_index": 0,
                                "start_offset": 2**40,
                                "leader_epoch": 7,
                                "lag": 19,
                                "error_code": 0,
                                "error_message": None,
                            },
                            {
                                "partition_index": 3,
                                "start_offset": -1,
                                "leader_epoch": 0,
                                "lag": -1,
                                "error_code": 6,
                                "error_message": "elsewhere",
                            },
                        ],
                    },
                    {"topic_name": "views", "topic_id": ID_B, "partitions": []},
                ],
                "error_code": 0,
                "error_message": None,
            },
            {"group_id": "bills", "topics": [], "error_code": 69, "error_message": "unknown"},
        ],
    },
)

ALTER_SHARE_GROUP_OFFSETS = Sample(
    AlterShareGroupOffsets(
        group_id="audit",
        partitions=[
            SharePartitionStart("clicks", 0, 2**40),
            SharePartitionStart("clicks", 3, 0),
            SharePartitionStart("views", 1, 12),
        ],
    ),
    {
        "group_id": "audit",
        "topics": [
            {
                "topic_name": "clicks",
                "partitions": [
                    {"partition_index": 0, "start_offset": 2**40},
                    {"partition_index": 3, "start_offset": 0},
                ],
            },
            {"topic_name": "views", "partitions": [{"partition_index": 1, "start_offset": 12}]},
        ],
    },
    AlterShareGroupOffsetsResult(
        error=ErrorCode.NON_EMPTY_GROUP,
        error_message="in use",
        topics=[
            AlteredShareTopic(
                topic="clicks",
                topic_id=ID_A,
                partitions=[ShareStartOutcome(0), ShareStartOutcome(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")],
            ),
            AlteredShareTopic(topic="views", topic_id=ID_B),
        ],
        throttle_ms=3,
    ),
    {
        "throttle_time": 3,
        "error_code": 68,
        "error_message": "in use",
        "responses": [
            {
                "topic_name": "clicks",
                "topic_id": ID_A,
                "partitions": [
                    {"partition_index": 0, "error_code": 0, "error_message": None},
                    {"partition_index": 3, "error_code": 3, "error_message": "gone"},
                ],
            },
            {"topic_name": "views", "topic_id": ID_B, "partitions": []},
        ],
    },
)

DELETE_SHARE_GROUP_OFFSETS = Sample(
    DeleteShareGroupOffsets(group_id="audit", topics=["clicks", "views"]),
    {"group_id": "audit", "topics": [{"topic_name": "clicks"}, {"topic_name": "views"}]},
    DeleteShareGroupOffsetsResult(
        error=ErrorCode.NON_EMPTY_GROUP,
        error_message="in use",
        topics=[
            DeletedShareTopic(topic="clicks", topic_id=ID_A),
            DeletedShareTopic(topic="views", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message="gone"),
        ],
        throttle_ms=3,
    ),
    {
        "throttle_time": 3,
        "error_code": 68,
        "error_message": "in use",
        "responses": [
            {"topic_name": "clicks", "topic_id": ID_A, "error_code": 0, "error_message": None},
            {"topic_name": "views", "topic_id": NO_ID, "error_code": 3, "error_message": "gone"},
        ],
    },
)
