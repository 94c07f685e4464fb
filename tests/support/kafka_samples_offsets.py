"""Samples of the APIs of the positions of consumer groups."""

from attrs import evolve
from support.kafka_sample import Sample, newer_by_id

from barnabas.ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    PartitionOutcome,
)
from barnabas.ports.broker_api.transactions import TransactionSupportedOperation, TxnOffsetCommit, TxnOffsetCommitResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

_OFFSET_COMMIT = Sample(
    OffsetCommit(
        group_id="audit",
        generation_id=12,
        member_id="c1-4711",
        group_instance_id="left",
        partitions=[
            OffsetCommitPartition("clicks", 3, 2**40, 5, "half way"),
            OffsetCommitPartition("clicks", 4, 0),
            OffsetCommitPartition("views", 0, 17, metadata=""),
        ],
    ),
    {
        "group_id": "audit",
        "generation_id_or_member_epoch": 12,
        "member_id": "c1-4711",
        "group_instance_id": "left",
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {
                        "partition_index": 3,
                        "committed_offset": 2**40,
                        "committed_leader_epoch": 5,
                        "committed_metadata": "half way",
                    },
                    {
                        "partition_index": 4,
                        "committed_offset": 0,
                        "committed_leader_epoch": -1,
                        "committed_metadata": None,
                    },
                ],
            },
            {
                "name": "views",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 17,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            },
        ],
    },
    OffsetCommitResult(
        partitions=[
            PartitionOutcome("clicks", 3),
            PartitionOutcome("clicks", 4, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            PartitionOutcome("views", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        throttle_ms=5,
    ),
    {
        "throttle_time": 5,
        "topics": [
            {
                "name": "clicks",
                "partitions": [{"partition_index": 3, "error_code": 0}, {"partition_index": 4, "error_code": 12}],
            },
            {"name": "views", "partitions": [{"partition_index": 0, "error_code": 3}]},
        ],
    },
    older_until=6,
    older=Sample(
        OffsetCommit(
            group_id="audit",
            retention_ms=86_400_000,
            partitions=[OffsetCommitPartition("clicks", 3, 2**40, 5, "half way")],
        ),
        {
            "group_id": "audit",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time": 86_400_000,
            "topics": [
                {
                    "name": "clicks",
                    "partitions": [
                        {
                            "partition_index": 3,
                            "committed_offset": 2**40,
                            "committed_leader_epoch": 5,
                            "committed_metadata": "half way",
                        }
                    ],
                }
            ],
        },
        OffsetCommitResult(partitions=[PartitionOutcome("clicks", 3, ErrorCode.ILLEGAL_GENERATION)], throttle_ms=6),
        {
            "throttle_time": 6,
            "topics": [{"name": "clicks", "partitions": [{"partition_index": 3, "error_code": 22}]}],
        },
    ),
)

OFFSET_COMMIT = newer_by_id(_OFFSET_COMMIT, older_until=9, knows_group_id_not_found=True)

_FETCHED = [
    FetchedOffset("clicks", 3, 2**40, 5, "half way"),
    FetchedOffset("clicks", 4),
    FetchedOffset("views", 0, 17, 6, None, ErrorCode.UNSTABLE_OFFSET_COMMIT),
]
_FETCHED_WIRE = [
    {
        "name": "clicks",
        "partitions": [
            {
                "partition_index": 3,
                "committed_offset": 2**40,
                "committed_leader_epoch": 5,
                "metadata": "half way",
                "error_code": 0,
            },
            {
                "partition_index": 4,
                "committed_offset": -1,
                "committed_leader_epoch": -1,
                "metadata": "",
                "error_code": 0,
            },
        ],
    },
    {
        "name": "views",
        "partitions": [
            {
                "partition_index": 0,
                "committed_offset": 17,
                "committed_leader_epoch": 6,
                "metadata": None,
                "error_code": 88,
            }
        ],
    },
]
_WANTED = [TopicPartition("clicks", 3), TopicPartition("clicks", 4), TopicPartition("views", 0)]
_WANTED_WIRE = [{"name": "clicks", "partition_indexes": [3, 4]}, {"name": "views", "partition_indexes": [0]}]

_OFFSET_FETCH = Sample(
    OffsetFetch(
        groups=[
            OffsetFetchGroup(group_id="audit", partitions=_WANTED),
            OffsetFetchGroup(group_id="bills"),
            OffsetFetchGroup(group_id="debts", partitions=[], member_id="d-1", member_epoch=4),
        ],
        require_stable=True,
    ),
    {
        "groups": [
            {"group_id": "audit", "member_id": None, "member_epoch": -1, "topics": _WANTED_WIRE},
            {"group_id": "bills", "member_id": None, "member_epoch": -1, "topics": None},
            {"group_id": "debts", "member_id": "d-1", "member_epoch": 4, "topics": []},
        ],
        "require_stable": True,
    },
    OffsetFetchResult(
        groups=[
            FetchedGroup(group_id="audit", partitions=_FETCHED),
            FetchedGroup(group_id="bills", error=ErrorCode.NOT_COORDINATOR),
            FetchedGroup(group_id="debts"),
        ],
        throttle_ms=7,
    ),
    {
        "throttle_time": 7,
        "groups": [
            {"group_id": "audit", "topics": _FETCHED_WIRE, "error_code": 0},
            {"group_id": "bills", "topics": [], "error_code": 16},
            {"group_id": "debts", "topics": [], "error_code": 0},
        ],
    },
    older_until=7,
    older=Sample(
        OffsetFetch(groups=[OffsetFetchGroup(group_id="audit", partitions=_WANTED)]),
        {"group_id": "audit", "topics": _WANTED_WIRE, "require_stable": False},
        OffsetFetchResult(groups=[FetchedGroup(group_id="audit", partitions=_FETCHED)], throttle_ms=8),
        {"throttle_time": 8, "topics": _FETCHED_WIRE, "error_code": 0},
    ),
)

OFFSET_FETCH = newer_by_id(_OFFSET_FETCH, older_until=9)

OFFSET_DELETE = Sample(
    OffsetDelete(group_id="audit", partitions=_WANTED),
    {
        "group_id": "audit",
        "topics": [
            {"name": "clicks", "partitions": [{"partition_index": 3}, {"partition_index": 4}]},
            {"name": "views", "partitions": [{"partition_index": 0}]},
        ],
    },
    OffsetDeleteResult(
        partitions=[
            PartitionOutcome("clicks", 3),
            PartitionOutcome("clicks", 4, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
            PartitionOutcome("views", 0),
        ],
        throttle_ms=9,
    ),
    {
        "error_code": 0,
        "throttle_time": 9,
        "topics": [
            {
                "name": "clicks",
                "partitions": [{"partition_index": 3, "error_code": 0}, {"partition_index": 4, "error_code": 86}],
            },
            {"name": "views", "partitions": [{"partition_index": 0, "error_code": 0}]},
        ],
    },
)

_TXN_OFFSET_COMMIT = Sample(
    TxnOffsetCommit(
        transactional_id="orders",
        group_id="audit",
        producer_id=2**40 + 1,
        producer_epoch=7,
        generation_id=12,
        member_id="c1-4711",
        group_instance_id="left",
        partitions=[
            OffsetCommitPartition("clicks", 3, 2**40, 5, "half way"),
            OffsetCommitPartition("clicks", 4, 0),
        ],
    ),
    {
        "transactional_id": "orders",
        "group_id": "audit",
        "producer_id": 2**40 + 1,
        "producer_epoch": 7,
        "generation_id": 12,
        "member_id": "c1-4711",
        "group_instance_id": "left",
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {
                        "partition_index": 3,
                        "committed_offset": 2**40,
                        "committed_leader_epoch": 5,
                        "committed_metadata": "half way",
                    },
                    {
                        "partition_index": 4,
                        "committed_offset": 0,
                        "committed_leader_epoch": -1,
                        "committed_metadata": None,
                    },
                ],
            }
        ],
    },
    TxnOffsetCommitResult(
        partitions=[
            PartitionOutcome("clicks", 3, ErrorCode.INVALID_PRODUCER_EPOCH),
            PartitionOutcome("clicks", 4),
        ],
        throttle_ms=5,
    ),
    {
        "throttle_time": 5,
        "topics": [
            {
                "name": "clicks",
                "partitions": [{"partition_index": 3, "error_code": 47}, {"partition_index": 4, "error_code": 0}],
            }
        ],
    },
    older_until=2,
    older=Sample(
        TxnOffsetCommit(
            transactional_id="orders",
            group_id="audit",
            producer_id=7,
            producer_epoch=0,
            partitions=[OffsetCommitPartition("clicks", 3, 5)],
        ),
        {
            "transactional_id": "orders",
            "group_id": "audit",
            "producer_id": 7,
            "producer_epoch": 0,
            "topics": [
                {
                    "name": "clicks",
                    "partitions": [
                        {
                            "partition_index": 3,
                            "committed_offset": 5,
                            "committed_leader_epoch": -1,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
        },
        TxnOffsetCommitResult(partitions=[PartitionOutcome("clicks", 3)], throttle_ms=6),
        {
            "throttle_time": 6,
            "topics": [{"name": "clicks", "partitions": [{"partition_index": 3, "error_code": 0}]}],
        },
    ),
)

_ADDING = {"supported_operation": TransactionSupportedOperation.ADD_PARTITION}
_TXN_OFFSET_COMMIT_ADDING = evolve(
    _TXN_OFFSET_COMMIT,
    request=evolve(_TXN_OFFSET_COMMIT.request, **_ADDING),
    older=_TXN_OFFSET_COMMIT,
    older_until=4,
)
TXN_OFFSET_COMMIT = newer_by_id(_TXN_OFFSET_COMMIT_ADDING, older_until=5)
