"""Samples of the APIs of consumer groups of KIP-848."""

from support.kafka_sample import ID_A, ID_B, Sample

from barnabas.ports.broker_api.consumer_groups import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupMember,
    DescribedTopicPartitions,
    TopicIdPartitions,
)
from barnabas.ports.error_codes import ErrorCode

_PARTITIONS = [TopicIdPartitions(ID_A, [0, 3]), TopicIdPartitions(ID_B, [])]
_PARTITIONS_WIRE = [{"topic_id": ID_A, "partitions": [0, 3]}, {"topic_id": ID_B, "partitions": []}]

_OLDER = Sample(
    ConsumerGroupHeartbeat(
        group_id="audit", member_id="", member_epoch=-2, instance_id="left", topic_partitions=(), makes_member_id=False
    ),
    {
        "group_id": "audit",
        "member_id": "",
        "member_epoch": -2,
        "instance_id": "left",
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": [],
    },
    ConsumerGroupHeartbeatResult(
        error=ErrorCode.FENCED_MEMBER_EPOCH, error_message="the member epoch is older", throttle_ms=5
    ),
    {
        "throttle_time": 5,
        "error_code": 110,
        "error_message": "the member epoch is older",
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    },
)

CONSUMER_GROUP_HEARTBEAT = Sample(
    ConsumerGroupHeartbeat(
        group_id="audit",
        member_id="c1+4/711",
        member_epoch=2**31 - 1,
        instance_id="left",
        rack_id="rack-7",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["clicks", "views"],
        subscribed_topic_regex="^bills-.*",
        server_assignor="uniform",
        topic_partitions=_PARTITIONS,
    ),
    {
        "group_id": "audit",
        "member_id": "c1+4/711",
        "member_epoch": 2**31 - 1,
        "instance_id": "left",
        "rack_id": "rack-7",
        "rebalance_timeout": 300_000,
        "subscribed_topic_names": ["clicks", "views"],
        "subscribed_topic_regex": "^bills-.*",
        "server_assignor": "uniform",
        "topic_partitions": _PARTITIONS_WIRE,
    },
    ConsumerGroupHeartbeatResult(
        member_id="c1+4/711", member_epoch=12, heartbeat_interval_ms=5_000, assignment=_PARTITIONS, throttle_ms=6
    ),
    {
        "throttle_time": 6,
        "error_code": 0,
        "error_message": None,
        "member_id": "c1+4/711",
        "member_epoch": 12,
        "heartbeat_interval": 5_000,
        "assignment": {"topic_partitions": _PARTITIONS_WIRE},
    },
    older=_OLDER,
    older_until=0,
)

_ASSIGNMENT = [DescribedTopicPartitions(ID_A, "clicks", [0, 3]), DescribedTopicPartitions(ID_B, "views", [1])]
_ASSIGNMENT_WIRE = {
    "topic_partitions": [
        {"topic_id": ID_A, "topic_name": "clicks", "partitions": [0, 3]},
        {"topic_id": ID_B, "topic_name": "views", "partitions": [1]},
    ]
}
_NONE_WIRE: dict[str, list[object]] = {"topic_partitions": []}


def _described(*, member_types: bool) -> Sample:
    consumer, classic = (1, 0) if member_types else (-1, -1)
    kinds: list[dict[str, int]] = [{"member_type": kind} if member_types else {} for kind in (1, 0)]
    return Sample(
        ConsumerGroupDescribe(group_ids=["audit", "bills"], include_authorized_operations=True),
        {"group_ids": ["audit", "bills"], "include_authorized_operations": True},
        ConsumerGroupDescribeResult(
            groups=[
                ConsumerGroupDescription(
                    group_id="audit",
                    group_state="Reconciling",
                    group_epoch=13,
                    assignment_epoch=12,
                    assignor_name="uniform",
                    members=[
                        ConsumerGroupMember(
                            member_id="c1+4/711",
                            instance_id="left",
                            rack_id="rack-7",
                            member_epoch=11,
                            client_id="c1",
                            client_host="/10.0.0.7",
                            subscribed_topic_names=["clicks", "views"],
                            subscribed_topic_regex="^bills-.*",
                            assignment=_ASSIGNMENT,
                            target_assignment=_ASSIGNMENT[:0],
                            member_type=consumer,
                        ),
                        ConsumerGroupMember(member_id="c2", target_assignment=_ASSIGNMENT, member_type=classic),
                    ],
                    authorized_operations=264,
                ),
                ConsumerGroupDescription(
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
                    "group_state": "Reconciling",
                    "group_epoch": 13,
                    "assignment_epoch": 12,
                    "assignor_name": "uniform",
                    "members": [
                        {
                            "member_id": "c1+4/711",
                            "instance_id": "left",
                            "rack_id": "rack-7",
                            "member_epoch": 11,
                            "client_id": "c1",
                            "client_host": "/10.0.0.7",
                            "subscribed_topic_names": ["clicks", "views"],
                            "subscribed_topic_regex": "^bills-.*",
                            "assignment": _ASSIGNMENT_WIRE,
                            "target_assignment": _NONE_WIRE,
                            **kinds[0],
                        },
                        {
                            "member_id": "c2",
                            "instance_id": None,
                            "rack_id": None,
                            "member_epoch": 0,
                            "client_id": "",
                            "client_host": "",
                            "subscribed_topic_names": [],
                            "subscribed_topic_regex": None,
                            "assignment": _NONE_WIRE,
                            "target_assignment": _ASSIGNMENT_WIRE,
                            **kinds[1],
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
        older=_described(member_types=False) if member_types else None,
        older_until=0 if member_types else -1,
    )


CONSUMER_GROUP_DESCRIBE = _described(member_types=True)
