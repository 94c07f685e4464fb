"""Consumer groups of KIP-848: ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69)."""

from ...ports.broker_api.consumer_groups import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupMember,
    DescribedTopicPartitions,
    TopicIdPartitions,
)
from .api import Api
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
    I8,
    I32,
    NULLABLE_TEXT,
    TEXT,
    UUID,
    Array,
    Field,
    Flag,
    Nullable,
    NullableArray,
    Row,
    Struct,
)

TOPIC_ID_PARTITIONS = Struct(TopicIdPartitions, Field("topic_id", UUID), Field("partitions", Array(I32)))
_WITH_REGEX = 1


def _least_heartbeat(request: ConsumerGroupHeartbeat) -> int:
    return 0 if request.subscribed_topic_regex is None else _WITH_REGEX


CONSUMER_GROUP_HEARTBEAT = Api(
    key=68,
    versions=(0, 1),
    flexible_from=0,
    request_type=ConsumerGroupHeartbeat,
    request=Struct(
        ConsumerGroupHeartbeat,
        Field("group_id", TEXT),
        Field("member_id", TEXT),
        Field("member_epoch", I32),
        Field("instance_id", NULLABLE_TEXT),
        Field("rack_id", NULLABLE_TEXT),
        Field("rebalance_timeout_ms", I32),
        Field("subscribed_topic_names", NullableArray(TEXT)),
        Field("subscribed_topic_regex", NULLABLE_TEXT, since=_WITH_REGEX),
        Field("server_assignor", NULLABLE_TEXT),
        Field("topic_partitions", NullableArray(TOPIC_ID_PARTITIONS)),
        Flag("makes_member_id", since=1),
    ),
    result=Struct(
        ConsumerGroupHeartbeatResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("member_id", NULLABLE_TEXT),
        Field("member_epoch", I32),
        Field("heartbeat_interval_ms", I32),
        Field("assignment", Nullable(Row(Array(TOPIC_ID_PARTITIONS)))),
    ),
    least_version=_least_heartbeat,
)

_ASSIGNMENT = Row(
    Array(
        Struct(
            DescribedTopicPartitions,
            Field("topic_id", UUID),
            Field("topic_name", TEXT),
            Field("partitions", Array(I32)),
        )
    )
)

CONSUMER_GROUP_DESCRIBE = Api(
    key=69,
    versions=(0, 1),
    flexible_from=0,
    request_type=ConsumerGroupDescribe,
    request=Struct(
        ConsumerGroupDescribe,
        Field("group_ids", Array(TEXT)),
        Field("include_authorized_operations", BOOL),
    ),
    result=Struct(
        ConsumerGroupDescribeResult,
        Field("throttle_ms", I32),
        Field(
            "groups",
            Array(
                Struct(
                    ConsumerGroupDescription,
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                    Field("group_id", TEXT),
                    Field("group_state", TEXT),
                    Field("group_epoch", I32),
                    Field("assignment_epoch", I32),
                    Field("assignor_name", TEXT),
                    Field(
                        "members",
                        Array(
                            Struct(
                                ConsumerGroupMember,
                                Field("member_id", TEXT),
                                Field("instance_id", NULLABLE_TEXT),
                                Field("rack_id", NULLABLE_TEXT),
                                Field("member_epoch", I32),
                                Field("client_id", TEXT),
                                Field("client_host", TEXT),
                                Field("subscribed_topic_names", Array(TEXT)),
                                Field("subscribed_topic_regex", NULLABLE_TEXT),
                                Field("assignment", _ASSIGNMENT),
                                Field("target_assignment", _ASSIGNMENT),
                                Field("member_type", I8, since=1),
                            )
                        ),
                    ),
                    Field("authorized_operations", I32),
                )
            ),
        ),
    ),
    long_answers=True,
)

APIS = (CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)
