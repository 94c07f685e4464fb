"""Consumer groups of KIP-848: ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69)."""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen, quick_frozen
from .envelope import Request
from .operations import NO_AUTHORIZED_OPERATIONS

JOIN_GROUP_MEMBER_EPOCH = 0
"""The epoch with which a member joins, and joins again after it was fenced."""
LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""The epoch with which a static member leaves that will return: the group holds its partitions for it."""

MEMBER_TYPE_UNKNOWN = -1


@quick_frozen
class TopicIdPartitions:
    """Some partitions of one topic, by the topic's id."""

    topic_id: bytes
    partitions: Sequence[int]


@quick_frozen(kw_only=True)
class ConsumerGroupHeartbeat(Request["ConsumerGroupHeartbeatResult"]):
    """Join, stay in or leave a group, and say what has changed since the last heartbeat.

    `member_epoch` 0 joins, -1 leaves, -2 leaves as a static member that will return. None, and a
    `rebalance_timeout_ms` of -1, mean: as it was in the last heartbeat. A join names everything, with no
    `topic_partitions`; later ones are the partitions that the member owns. `subscribed_topic_regex` adds the topics
    that match to `subscribed_topic_names`; "" takes an earlier one back.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicIdPartitions] | None = None
    makes_member_id: bool = True
    """False in version 0, in which the coordinator makes the id of a member that joins without one."""

    def failed(self, error: ApiError) -> "ConsumerGroupHeartbeatResult":
        return ConsumerGroupHeartbeatResult(error=error.code, error_message=error.message)


@quick_frozen(kw_only=True)
class ConsumerGroupHeartbeatResult:
    """The member's epoch, and its assignment where that has changed: None = as before, empty = give up everything."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Sequence[TopicIdPartitions] | None = None
    throttle_ms: int = 0


@frozen(kw_only=True)
class ConsumerGroupDescribe(Request["ConsumerGroupDescribeResult"]):
    """Describe consumer groups; groups of another type get GROUP_ID_NOT_FOUND."""

    group_ids: Sequence[str]
    include_authorized_operations: bool = False

    def failed(self, error: ApiError) -> "ConsumerGroupDescribeResult":
        return ConsumerGroupDescribeResult(
            groups=[
                ConsumerGroupDescription(group_id=group_id, error=error.code, error_message=error.message)
                for group_id in self.group_ids
            ]
        )


@frozen
class DescribedTopicPartitions:
    """Some partitions of one topic, by id and name."""

    topic_id: bytes
    topic_name: str
    partitions: Sequence[int]


@frozen(kw_only=True)
class ConsumerGroupMember:
    """One member: `assignment` is the one it got last, `target_assignment` the one it will have."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = None
    assignment: Sequence[DescribedTopicPartitions] = ()
    target_assignment: Sequence[DescribedTopicPartitions] = ()
    member_type: int = MEMBER_TYPE_UNKNOWN
    """From version 1 on: whether the member uses the classic protocol (0) or the one of KIP-848 (1)."""


@frozen(kw_only=True)
class ConsumerGroupDescription:
    """One group. `group_state` is Empty, Assigning, Reconciling, Stable or Dead."""

    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[ConsumerGroupMember] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    """The bit field of operations that the caller may perform on the group (see `operations`)."""


@frozen(kw_only=True)
class ConsumerGroupDescribeResult:
    """The groups in the order of the request."""

    groups: Sequence[ConsumerGroupDescription]
    throttle_ms: int = 0
