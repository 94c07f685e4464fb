"""Consumer groups: FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14),
DescribeGroups (15), ListGroups (16), DeleteGroups (42), and their offsets: OffsetCommit (8), OffsetFetch (9),
OffsetDelete (47)."""

from collections.abc import Mapping, Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..types import TopicPartition
from ..values import frozen, quick_frozen
from .envelope import Request
from .metadata import NO_TOPIC_ID
from .operations import NO_AUTHORIZED_OPERATIONS

NO_GENERATION = -1
"""The generation in commits without membership, and in errors."""

GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
SHARE_COORDINATOR = 2


def _size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


@frozen(kw_only=True)
class FindCoordinator(Request["FindCoordinatorResult"]):
    """Find the coordinators of groups (`key_type` 0), of transactional ids (1), or of share partitions (2).

    The key of a share partition is `GROUP:TOPIC_ID:PARTITION`, the topic id in base64.
    `knows_share`: the version of the request has share partitions.
    """

    keys: Sequence[str]
    key_type: int = GROUP_COORDINATOR
    knows_share: bool = True

    def failed(self, error: ApiError) -> "FindCoordinatorResult":
        return FindCoordinatorResult(
            coordinators=[Coordinator(key=key, error=error.code, error_message=error.message) for key in self.keys]
        )


@frozen(kw_only=True)
class Coordinator:
    """The coordinator of one key, with its address for the caller's listener; -1 and "" on error."""

    key: str
    node_id: int = -1
    host: str = ""
    port: int = -1
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class FindCoordinatorResult:
    """The outcomes in the order of the request."""

    coordinators: Sequence[Coordinator]
    throttle_ms: int = 0


@frozen
class GroupProtocol:
    """An assignor that a member supports, with the member's metadata for the leader; opaque to the broker."""

    name: str
    metadata: bytes = field(default=b"", repr=_size)


@frozen(kw_only=True)
class JoinGroup(Request["JoinGroupResult"]):
    """Join a group, or rejoin for the next generation. `protocols` in the order of preference.

    `rebalance_timeout_ms` -1 = the session timeout. `member_id` "" = a new member.
    """

    group_id: str
    session_timeout_ms: int
    protocol_type: str
    protocols: Sequence[GroupProtocol]
    member_id: str = ""
    group_instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    reason: str | None = None
    knows_member_id_required: bool = True
    """False for versions below 4: a member without an id then joins at once instead of with its second request."""
    can_skip_assignment: bool = True
    """False for versions below 9: a returning static leader then gets the former leader id, not its own."""

    def failed(self, error: ApiError) -> "JoinGroupResult":
        return JoinGroupResult(error=error.code, member_id=self.member_id)


@frozen(kw_only=True)
class JoinedMember:
    """A member of the new generation, as the leader sees it."""

    member_id: str
    metadata: bytes = field(default=b"", repr=_size)
    group_instance_id: str | None = None


@frozen(kw_only=True)
class JoinGroupResult:
    """`members` only for the leader. With MEMBER_ID_REQUIRED the member must rejoin with this `member_id`."""

    error: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False
    throttle_ms: int = 0


@frozen
class MemberAssignment:
    """The assignment of one member; opaque to the broker."""

    member_id: str
    assignment: bytes = field(repr=_size)


@frozen(kw_only=True)
class SyncGroup(Request["SyncGroupResult"]):
    """Get the assignment; the leader sends those of all members. Protocol type and name are checked if given."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[MemberAssignment] = ()

    def failed(self, error: ApiError) -> "SyncGroupResult":
        return SyncGroupResult(error=error.code)


@frozen(kw_only=True)
class SyncGroupResult:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = field(default=b"", repr=_size)
    throttle_ms: int = 0


@quick_frozen(kw_only=True)
class Heartbeat(Request["HeartbeatResult"]):
    """Keep a membership alive; REBALANCE_IN_PROGRESS means that the member must rejoin."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None

    def failed(self, error: ApiError) -> "HeartbeatResult":
        return HeartbeatResult(error=error.code)


@quick_frozen(kw_only=True)
class HeartbeatResult:
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class LeavingMember:
    """A member by its id; a static member also by its instance id alone."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


@frozen(kw_only=True)
class LeaveGroup(Request["LeaveGroupResult"]):
    group_id: str
    members: Sequence[LeavingMember]

    def failed(self, error: ApiError) -> "LeaveGroupResult":
        return LeaveGroupResult(error=error.code)


@frozen(kw_only=True)
class LeftMember:
    member_id: str
    group_instance_id: str | None = None
    error: ErrorCode = ErrorCode.NONE


@frozen(kw_only=True)
class LeaveGroupResult:
    """The outcomes in the order of the request; below version 3 the error of the one member is that of the request."""

    error: ErrorCode = ErrorCode.NONE
    members: Sequence[LeftMember] = ()
    throttle_ms: int = 0


@quick_frozen
class OffsetCommitPartition:
    """The offset of the next record to read; `leader_epoch` -1 = unknown.

    The commit is refused unless the topic has this `topic_id`; NO_TOPIC_ID: any topic of the name.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = NO_TOPIC_ID


@quick_frozen(kw_only=True)
class OffsetCommit(Request["OffsetCommitResult"]):
    """Commit offsets of a group. `generation_id` -1 and `member_id` "" = not from a member; for a member by KIP-848 it
    is the member epoch.

    `retention_ms` -1 = the broker's configuration.
    """

    group_id: str
    partitions: Sequence[OffsetCommitPartition]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1
    knows_group_id_not_found: bool = False
    """True for versions from 9 on: a member of a group that does not exist gets GROUP_ID_NOT_FOUND. A client that sets
    it sends no older version; members by KIP-848 must, whose epochs older versions cannot carry."""

    def failed(self, error: ApiError) -> "OffsetCommitResult":
        return OffsetCommitResult(
            partitions=[PartitionOutcome(p.topic, p.partition, error.code) for p in self.partitions]
        )


@quick_frozen
class PartitionOutcome:
    """The outcome for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


@quick_frozen(kw_only=True)
class OffsetCommitResult:
    """The outcomes in the order of the request."""

    partitions: Sequence[PartitionOutcome]
    throttle_ms: int = 0


@quick_frozen(kw_only=True)
class OffsetFetchGroup:
    """The requested offsets of a group; `partitions` None = all committed offsets.

    A member by KIP-848 says its id and epoch, from version 9 on. `topic_ids`: the topics by name; an offset that was
    committed for another topic of the name does not count.
    """

    group_id: str
    partitions: Sequence[TopicPartition] | None = None
    member_id: str | None = None
    member_epoch: int = -1
    topic_ids: Mapping[str, bytes] = {}


@quick_frozen(kw_only=True)
class OffsetFetch(Request["OffsetFetchResult"]):
    """Fetch committed offsets. `require_stable`: offsets with a pending transaction get UNSTABLE_OFFSET_COMMIT."""

    groups: Sequence[OffsetFetchGroup]
    require_stable: bool = False

    def failed(self, error: ApiError) -> "OffsetFetchResult":
        def outcomes(group: OffsetFetchGroup) -> list[FetchedOffset]:
            """Return the error of a group for each partition: old versions have no other place for it."""
            return [FetchedOffset(p.topic, p.partition, error=error.code) for p in group.partitions or ()]

        return OffsetFetchResult(
            groups=[FetchedGroup(group_id=g.group_id, partitions=outcomes(g), error=error.code) for g in self.groups]
        )


@quick_frozen
class FetchedOffset:
    """A committed offset; -1, -1 and "" when there is none, which is no error."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str | None = ""
    error: ErrorCode = ErrorCode.NONE
    topic_id: bytes = NO_TOPIC_ID
    """The id of the topic, if it is known."""


@quick_frozen(kw_only=True)
class FetchedGroup:
    group_id: str
    partitions: Sequence[FetchedOffset] = ()
    error: ErrorCode = ErrorCode.NONE


@quick_frozen(kw_only=True)
class OffsetFetchResult:
    """In the order of the request. Versions below 8 have one group; below 2 its error goes to every partition."""

    groups: Sequence[FetchedGroup]
    throttle_ms: int = 0


@frozen(kw_only=True)
class OffsetDelete(Request["OffsetDeleteResult"]):
    """Delete committed offsets of partitions to which no member of the group is subscribed."""

    group_id: str
    partitions: Sequence[TopicPartition]

    def failed(self, error: ApiError) -> "OffsetDeleteResult":
        return OffsetDeleteResult(error=error.code)


@frozen(kw_only=True)
class OffsetDeleteResult:
    error: ErrorCode = ErrorCode.NONE
    partitions: Sequence[PartitionOutcome] = ()
    throttle_ms: int = 0


@frozen(kw_only=True)
class DescribeGroups(Request["DescribeGroupsResult"]):
    group_ids: Sequence[str]
    include_authorized_operations: bool = False

    def failed(self, error: ApiError) -> "DescribeGroupsResult":
        return DescribeGroupsResult(
            groups=[
                GroupDescription(group_id=group_id, error=error.code, error_message=error.message)
                for group_id in self.group_ids
            ]
        )


@frozen(kw_only=True)
class GroupMember:
    """Metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    metadata: bytes = field(default=b"", repr=_size)
    assignment: bytes = field(default=b"", repr=_size)


@frozen(kw_only=True)
class GroupDescription:
    """One group; an unknown one is in state "Dead". `protocol` is "" unless the group is stable."""

    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[GroupMember] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    """The bit field of operations that the caller may perform on the group (see `operations`)."""


@frozen(kw_only=True)
class DescribeGroupsResult:
    groups: Sequence[GroupDescription]
    throttle_ms: int = 0


@frozen(kw_only=True)
class ListGroups(Request["ListGroupsResult"]):
    """The groups that this broker coordinates; empty filters match all; case does not matter."""

    states: Sequence[str] = ()
    types: Sequence[str] = ()

    def failed(self, error: ApiError) -> "ListGroupsResult":
        return ListGroupsResult(groups=(), error=error.code)


@frozen(kw_only=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@frozen(kw_only=True)
class ListGroupsResult:
    """The groups; with COORDINATOR_LOAD_IN_PROGRESS those loaded so far."""

    groups: Sequence[ListedGroup]
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class DeleteGroups(Request["DeleteGroupsResult"]):
    group_ids: Sequence[str]

    def failed(self, error: ApiError) -> "DeleteGroupsResult":
        return DeleteGroupsResult(groups=[GroupOutcome(group_id=name, error=error.code) for name in self.group_ids])


@frozen(kw_only=True)
class GroupOutcome:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class DeleteGroupsResult:
    groups: Sequence[GroupOutcome]
    throttle_ms: int = 0
