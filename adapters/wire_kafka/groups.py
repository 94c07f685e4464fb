"""Groups: OffsetCommit (8), OffsetFetch (9), FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13),
SyncGroup (14), DescribeGroups (15), ListGroups (16), TxnOffsetCommit (28), DeleteGroups (42), OffsetDelete (47).
"""

from collections.abc import Iterator

from attrs import evolve

from ...ports.broker_api.groups import (
    GROUP_COORDINATOR,
    SHARE_COORDINATOR,
    Coordinator,
    DeleteGroups,
    DeleteGroupsResult,
    DescribeGroups,
    DescribeGroupsResult,
    FetchedGroup,
    FetchedOffset,
    FindCoordinator,
    FindCoordinatorResult,
    GroupDescription,
    GroupMember,
    GroupOutcome,
    GroupProtocol,
    Heartbeat,
    HeartbeatResult,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    PartitionOutcome,
    SyncGroup,
    SyncGroupResult,
)
from ...ports.broker_api.transactions import TransactionSupportedOperation, TxnOffsetCommit, TxnOffsetCommitResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.types import TopicPartition
from .api import Api, in_order
from .schema import (
    BOOL,
    DATA,
    ERROR,
    ERROR_TEXT,
    I8,
    I16,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    TEXT_OR_NONE,
    Array,
    ByTopic,
    ByVersion,
    Field,
    FieldCodec,
    Flag,
    NullableByTopic,
    One,
    Struct,
    write_in_steps,
)
from .topic_ids import commits_by_id, offset_commit_by_id, resolve_offset_commit, resolve_offset_fetch
from .wire import Reader, Writer

_WITH_GROUP_NOT_FOUND = 6
"""The version of DescribeGroups that says that there is no such group."""

_WITH_SHARE_COORDINATORS = 6
"""The version of FindCoordinator that has share partitions."""


def _least_find_coordinator(request: FindCoordinator) -> int:
    if request.key_type == SHARE_COORDINATOR:
        return _WITH_SHARE_COORDINATORS
    if len(request.keys) != 1:
        return 4
    return 0 if request.key_type == GROUP_COORDINATOR else 1


def _complete_find_coordinator(request: FindCoordinator, result: FindCoordinatorResult) -> FindCoordinatorResult:
    """Add the key of the request, which answers before version 4 do not name."""
    if len(request.keys) != 1 or len(result.coordinators) != 1:
        return result
    return evolve(result, coordinators=[evolve(result.coordinators[0], key=request.keys[0])])


FIND_COORDINATOR = Api(
    key=10,
    versions=(0, 6),
    flexible_from=3,
    request_type=FindCoordinator,
    request=Struct(
        FindCoordinator,
        Field("keys", One(TEXT), until=3),
        Field("key_type", I8, since=1),
        Field("keys", Array(TEXT), since=4),
        Flag("knows_share", since=_WITH_SHARE_COORDINATORS),
    ),
    result=Struct(
        FindCoordinatorResult,
        Field("throttle_ms", I32, since=1),
        Field(
            "coordinators",
            One(
                Struct(
                    Coordinator,
                    Field("key", TEXT, since=4, absent=""),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT, since=1),
                    Field("node_id", I32),
                    Field("host", TEXT),
                    Field("port", I32),
                    inline=True,
                )
            ),
            until=3,
        ),
        Field(
            "coordinators",
            Array(
                Struct(
                    Coordinator,
                    Field("key", TEXT),
                    Field("node_id", I32),
                    Field("host", TEXT),
                    Field("port", I32),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                )
            ),
            since=4,
        ),
    ),
    least_version=_least_find_coordinator,
    completed=_complete_find_coordinator,
)

JOIN_GROUP = Api(
    key=11,
    versions=(0, 9),
    flexible_from=6,
    request_type=JoinGroup,
    request=Struct(
        JoinGroup,
        Field("group_id", TEXT),
        Field("session_timeout_ms", I32),
        Field("rebalance_timeout_ms", I32, since=1),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=5),
        Field("protocol_type", TEXT),
        Field("protocols", Array(Struct(GroupProtocol, Field("name", TEXT), Field("metadata", DATA)))),
        Field("reason", NULLABLE_TEXT, since=8),
        Flag("knows_member_id_required", since=4),
        Flag("can_skip_assignment", since=9),
    ),
    result=Struct(
        JoinGroupResult,
        Field("throttle_ms", I32, since=2),
        Field("error", ERROR),
        Field("generation_id", I32),
        Field("protocol_type", NULLABLE_TEXT, since=7),
        Field("protocol_name", TEXT_OR_NONE, until=6),
        Field("protocol_name", NULLABLE_TEXT, since=7),
        Field("leader", TEXT),
        Field("skip_assignment", BOOL, since=9),
        Field("member_id", TEXT),
        Field(
            "members",
            Array(
                Struct(
                    JoinedMember,
                    Field("member_id", TEXT),
                    Field("group_instance_id", NULLABLE_TEXT, since=5),
                    Field("metadata", DATA),
                )
            ),
        ),
    ),
    least_version=lambda request: 0 if request.group_instance_id is None else 5,
)

HEARTBEAT = Api(
    key=12,
    versions=(0, 4),
    flexible_from=4,
    request_type=Heartbeat,
    request=Struct(
        Heartbeat,
        Field("group_id", TEXT),
        Field("generation_id", I32),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=3),
    ),
    result=Struct(HeartbeatResult, Field("throttle_ms", I32, since=1), Field("error", ERROR)),
    least_version=lambda request: 0 if request.group_instance_id is None else 3,
)


class LeaveGroupResponse:
    """The response: before version 3 only the error of the one member."""

    _LAYOUT = Struct(
        LeaveGroupResult,
        Field("throttle_ms", I32, since=1),
        Field("error", ERROR),
        Field(
            "members",
            Array(
                Struct(
                    LeftMember,
                    Field("member_id", TEXT),
                    Field("group_instance_id", NULLABLE_TEXT),
                    Field("error", ERROR),
                )
            ),
            since=3,
        ),
    )

    def read(self, reader: Reader, version: int) -> LeaveGroupResult:
        return self._LAYOUT.read(reader, version)

    def write(self, writer: Writer, version: int, value: LeaveGroupResult) -> None:
        if version < 3 and value.error is ErrorCode.NONE and value.members:
            value = evolve(value, error=value.members[0].error)
        self._LAYOUT.write(writer, version, value)


def _least_leave_group(request: LeaveGroup) -> int:
    return 0 if len(request.members) == 1 and request.members[0].group_instance_id is None else 3


LEAVE_GROUP = Api(
    key=13,
    versions=(0, 5),
    flexible_from=4,
    request_type=LeaveGroup,
    request=Struct(
        LeaveGroup,
        Field("group_id", TEXT),
        Field("members", One(Struct(LeavingMember, Field("member_id", TEXT), inline=True)), until=2),
        Field(
            "members",
            Array(
                Struct(
                    LeavingMember,
                    Field("member_id", TEXT),
                    Field("group_instance_id", NULLABLE_TEXT),
                    Field("reason", NULLABLE_TEXT, since=5),
                )
            ),
            since=3,
        ),
    ),
    result=LeaveGroupResponse(),
    least_version=_least_leave_group,
)

SYNC_GROUP = Api(
    key=14,
    versions=(0, 5),
    flexible_from=4,
    request_type=SyncGroup,
    request=Struct(
        SyncGroup,
        Field("group_id", TEXT),
        Field("generation_id", I32),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=3),
        Field("protocol_type", NULLABLE_TEXT, since=5),
        Field("protocol_name", NULLABLE_TEXT, since=5),
        Field("assignments", Array(Struct(MemberAssignment, Field("member_id", TEXT), Field("assignment", DATA)))),
    ),
    result=Struct(
        SyncGroupResult,
        Field("throttle_ms", I32, since=1),
        Field("error", ERROR),
        Field("protocol_type", NULLABLE_TEXT, since=5),
        Field("protocol_name", NULLABLE_TEXT, since=5),
        Field("assignment", DATA),
    ),
    least_version=lambda request: 0 if request.group_instance_id is None else 3,
)


class DescribedGroup:
    """A described group. A group that does not exist has the state Dead and no error; from version 6 on (KIP-1043) it
    has the error GROUP_ID_NOT_FOUND, too."""

    _DEAD = "Dead"
    has_steps = True

    def __init__(self, layout: Struct[GroupDescription]) -> None:
        self._layout = layout

    def read(self, reader: Reader, version: int) -> GroupDescription:
        value = self._layout.read(reader, version)
        if value.error is ErrorCode.GROUP_ID_NOT_FOUND:
            return evolve(value, error=ErrorCode.NONE, error_message=None, state=self._DEAD)
        return value

    def write(self, writer: Writer, version: int, value: GroupDescription) -> None:
        for _ in self.write_in_steps(writer, version, value):
            pass

    def write_in_steps(self, writer: Writer, version: int, value: GroupDescription) -> Iterator[None]:
        if version >= _WITH_GROUP_NOT_FOUND and value.state == self._DEAD and value.error is ErrorCode.NONE:
            text = f"Group {value.group_id} not found."
            value = evolve(value, error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
        elif version < _WITH_GROUP_NOT_FOUND and value.error is ErrorCode.GROUP_ID_NOT_FOUND:
            value = evolve(value, error=ErrorCode.NONE, error_message=None, state=self._DEAD)
        yield from self._layout.write_in_steps(writer, version, value)


DESCRIBE_GROUPS = Api(
    key=15,
    versions=(0, 6),
    flexible_from=5,
    request_type=DescribeGroups,
    request=Struct(
        DescribeGroups,
        Field("group_ids", Array(TEXT)),
        Field("include_authorized_operations", BOOL, since=3),
    ),
    result=Struct(
        DescribeGroupsResult,
        Field("throttle_ms", I32, since=1),
        Field(
            "groups",
            Array(
                DescribedGroup(
                    Struct(
                        GroupDescription,
                        Field("error", ERROR),
                        Field("error_message", ERROR_TEXT, since=6),
                        Field("group_id", TEXT),
                        Field("state", TEXT),
                        Field("protocol_type", TEXT),
                        Field("protocol", TEXT),
                        Field(
                            "members",
                            Array(
                                Struct(
                                    GroupMember,
                                    Field("member_id", TEXT),
                                    Field("group_instance_id", NULLABLE_TEXT, since=4),
                                    Field("client_id", TEXT),
                                    Field("client_host", TEXT),
                                    Field("metadata", DATA),
                                    Field("assignment", DATA),
                                )
                            ),
                        ),
                        Field("authorized_operations", I32, since=3),
                    )
                )
            ),
        ),
    ),
    long_answers=True,
)


def _least_list_groups(request: ListGroups) -> int:
    if request.types:
        return 5
    return 4 if request.states else 0


LIST_GROUPS = Api(
    key=16,
    versions=(0, 5),
    flexible_from=3,
    request_type=ListGroups,
    request=Struct(
        ListGroups,
        Field("states", Array(TEXT), since=4),
        Field("types", Array(TEXT), since=5),
    ),
    result=Struct(
        ListGroupsResult,
        Field("throttle_ms", I32, since=1),
        Field("error", ERROR),
        Field(
            "groups",
            Array(
                Struct(
                    ListedGroup,
                    Field("group_id", TEXT),
                    Field("protocol_type", TEXT),
                    Field("state", TEXT, since=4, absent=""),
                    Field("group_type", TEXT, since=5),
                )
            ),
        ),
    ),
    least_version=_least_list_groups,
    long_answers=True,
)

DELETE_GROUPS = Api(
    key=42,
    versions=(0, 3),
    flexible_from=2,
    request_type=DeleteGroups,
    request=Struct(DeleteGroups, Field("group_ids", Array(TEXT))),
    result=Struct(
        DeleteGroupsResult,
        Field("throttle_ms", I32),
        Field(
            "groups",
            Array(
                Struct(
                    GroupOutcome,
                    Field("group_id", TEXT),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT, since=3),
                )
            ),
        ),
    ),
)


_WITH_IDS = 10
_OUTCOMES = ByTopic(PartitionOutcome, Field("partition", I32), Field("error", ERROR))


_WITH_MEMBER_EPOCH = 9


def _least_offset_commit(request: OffsetCommit) -> int:
    if request.knows_group_id_not_found:
        return _WITH_MEMBER_EPOCH
    return 2 if request.group_instance_id is None else 7


def _most_offset_commit(request: OffsetCommit) -> int:
    """Return 8 for members of classic groups, whose generations mean nothing different in version 9."""
    if commits_by_id(request):
        return _WITH_IDS
    return _WITH_MEMBER_EPOCH if request.knows_group_id_not_found else 8


def _complete_offset_commit(request: OffsetCommit, result: OffsetCommitResult) -> OffsetCommitResult:
    """Our classic members know one error for a generation that is over, whether the group exists or not."""
    is_found = all(part.error is not ErrorCode.GROUP_ID_NOT_FOUND for part in result.partitions)
    if request.knows_group_id_not_found or is_found:
        return result
    translated = [
        evolve(part, error=ErrorCode.ILLEGAL_GENERATION) if part.error is ErrorCode.GROUP_ID_NOT_FOUND else part
        for part in result.partitions
    ]
    return evolve(result, partitions=translated)


OFFSET_COMMIT = Api(
    key=8,
    versions=(2, 10),
    flexible_from=8,
    request_type=OffsetCommit,
    request=Struct(
        OffsetCommit,
        Field("group_id", TEXT),
        Field("generation_id", I32),
        Field("member_id", TEXT),
        Field("group_instance_id", NULLABLE_TEXT, since=7),
        Field("retention_ms", I64, until=4),
        Field(
            "partitions",
            ByTopic(
                OffsetCommitPartition,
                Field("partition", I32),
                Field("offset", I64),
                Field("leader_epoch", I32, since=6),
                Field("metadata", NULLABLE_TEXT),
                ids_since=_WITH_IDS,
            ),
        ),
        Flag("knows_group_id_not_found", since=9),
    ),
    result=Struct(
        OffsetCommitResult,
        Field("throttle_ms", I32, since=3),
        Field(
            "partitions",
            ByTopic(PartitionOutcome, Field("partition", I32), Field("error", ERROR), ids_since=_WITH_IDS),
        ),
    ),
    least_version=_least_offset_commit,
    most_version=_most_offset_commit,
    by_partition=True,
    ids_since=_WITH_IDS,
    resolved=resolve_offset_commit,
    by_id=offset_commit_by_id,
    completed=_complete_offset_commit,
)


_ADDS_OFFSETS = 5
"""From this version on the coordinator of the group adds its offsets to the transaction (KIP-890)."""
_TXN_COMMIT_WITH_IDS = 6


def _operation_of(version: int) -> TransactionSupportedOperation:
    if version >= _ADDS_OFFSETS:
        return TransactionSupportedOperation.ADD_PARTITION
    if version == _ADDS_OFFSETS - 1:
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED
    return TransactionSupportedOperation.DEFAULT_ERROR


def _most_txn_offset_commit(request: TxnOffsetCommit) -> int:
    if request.supported_operation is not TransactionSupportedOperation.ADD_PARTITION:
        return _ADDS_OFFSETS - 1
    return _TXN_COMMIT_WITH_IDS if commits_by_id(request) else _ADDS_OFFSETS


def _least_txn_offset_commit(request: TxnOffsetCommit) -> int:
    """Below 3 it cannot say of which member it is."""
    if request.supported_operation is TransactionSupportedOperation.ADD_PARTITION:
        return _ADDS_OFFSETS
    is_named = request.generation_id >= 0 or request.member_id or request.group_instance_id is not None
    return 3 if is_named else 0


_WANTED = ByTopic(TopicPartition, Field("partition", I32), inline=True, ids_since=_WITH_IDS)
_WANTED_OR_ALL = NullableByTopic(_WANTED)
_POSITION = (
    Field("partition", I32),
    Field("offset", I64),
    Field("leader_epoch", I32, since=5),
    Field("metadata", NULLABLE_TEXT),
    Field("error", ERROR),
)


class PositionsOfGroup:
    """The positions of one group, or its error in their place; in version 1 the error of every partition."""

    has_steps = True

    def __init__(self, layout: FieldCodec[FetchedGroup]) -> None:
        self._layout = layout

    def read(self, reader: Reader, version: int) -> FetchedGroup:
        return self._layout.read(reader, version)

    def write(self, writer: Writer, version: int, value: FetchedGroup) -> None:
        for _ in self.write_in_steps(writer, version, value):
            pass

    def write_in_steps(self, writer: Writer, version: int, value: FetchedGroup) -> Iterator[None]:
        if value.error is not ErrorCode.NONE:
            translated = () if version >= 2 else [evolve(each, error=value.error) for each in value.partitions]
            value = evolve(value, partitions=translated)
        yield from write_in_steps(self._layout, writer, version, value)


def _names_member(request: OffsetFetch) -> bool:
    return any(group.member_id is not None for group in request.groups)


def _least_offset_fetch(request: OffsetFetch) -> int:
    if _names_member(request):
        return _WITH_MEMBER_EPOCH
    if len(request.groups) != 1:
        return 8
    if request.require_stable:
        return 7
    return 2 if request.groups[0].partitions is None else 1


def _complete_offset_fetch(request: OffsetFetch, result: OffsetFetchResult) -> OffsetFetchResult:
    """Groups and their partitions in the order of the request; before version 8 a group is not named."""
    if len(request.groups) == 1 == len(result.groups):
        found = {request.groups[0].group_id: result.groups[0]}
    else:
        found = {group.group_id: group for group in result.groups}
    groups = []
    for wanted in request.groups:
        group = found.get(wanted.group_id)
        if group is None:
            raise Malformed(f"the response lacks group {wanted.group_id!r}")
        group = group if wanted.partitions is None else in_order(wanted, group)
        groups.append(evolve(group, group_id=wanted.group_id))
    return evolve(result, groups=groups)


OFFSET_FETCH = Api(
    key=9,
    versions=(1, 10),
    flexible_from=6,
    request_type=OffsetFetch,
    request=Struct(
        OffsetFetch,
        Field(
            "groups",
            One(
                Struct(
                    OffsetFetchGroup,
                    Field("group_id", TEXT),
                    Field("partitions", _WANTED, until=1),
                    Field("partitions", _WANTED_OR_ALL, since=2),
                    inline=True,
                )
            ),
            until=7,
        ),
        Field(
            "groups",
            Array(
                Struct(
                    OffsetFetchGroup,
                    Field("group_id", TEXT),
                    Field("member_id", NULLABLE_TEXT, since=9),
                    Field("member_epoch", I32, since=9),
                    Field("partitions", _WANTED_OR_ALL),
                )
            ),
            since=8,
        ),
        Field("require_stable", BOOL, since=7),
    ),
    result=Struct(
        OffsetFetchResult,
        Field("throttle_ms", I32, since=3),
        Field(
            "groups",
            One(
                PositionsOfGroup(
                    Struct(
                        FetchedGroup,
                        Field("group_id", TEXT, since=8, absent=""),
                        Field("partitions", ByTopic(FetchedOffset, *_POSITION)),
                        Field("error", ERROR, since=2),
                        inline=True,
                    )
                )
            ),
            until=7,
        ),
        Field(
            "groups",
            Array(
                PositionsOfGroup(
                    Struct(
                        FetchedGroup,
                        Field("group_id", TEXT),
                        Field("partitions", ByTopic(FetchedOffset, *_POSITION, ids_since=_WITH_IDS)),
                        Field("error", ERROR),
                    )
                )
            ),
            since=8,
        ),
    ),
    least_version=_least_offset_fetch,
    most_version=lambda request: _WITH_MEMBER_EPOCH if _names_member(request) else 8,
    ids_since=_WITH_IDS,
    resolved=resolve_offset_fetch,
    completed=_complete_offset_fetch,
    long_answers=True,
)

TXN_OFFSET_COMMIT = Api(
    key=28,
    versions=(0, 6),
    flexible_from=3,
    request_type=TxnOffsetCommit,
    request=Struct(
        TxnOffsetCommit,
        Field("transactional_id", TEXT),
        Field("group_id", TEXT),
        Field("producer_id", I64),
        Field("producer_epoch", I16),
        Field("generation_id", I32, since=3),
        Field("member_id", TEXT, since=3),
        Field("group_instance_id", NULLABLE_TEXT, since=3),
        Field(
            "partitions",
            ByTopic(
                OffsetCommitPartition,
                Field("partition", I32),
                Field("offset", I64),
                Field("leader_epoch", I32, since=2),
                Field("metadata", NULLABLE_TEXT),
                ids_since=_TXN_COMMIT_WITH_IDS,
            ),
        ),
        ByVersion("supported_operation", _operation_of),
    ),
    result=Struct(
        TxnOffsetCommitResult,
        Field("throttle_ms", I32),
        Field(
            "partitions",
            ByTopic(PartitionOutcome, Field("partition", I32), Field("error", ERROR), ids_since=_TXN_COMMIT_WITH_IDS),
        ),
    ),
    least_version=_least_txn_offset_commit,
    most_version=_most_txn_offset_commit,
    by_partition=True,
    ids_since=_TXN_COMMIT_WITH_IDS,
    resolved=resolve_offset_commit,
    by_id=offset_commit_by_id,
)

OFFSET_DELETE = Api(
    key=47,
    versions=(0, 0),
    flexible_from=1,
    request_type=OffsetDelete,
    request=Struct(
        OffsetDelete,
        Field("group_id", TEXT),
        Field("partitions", ByTopic(TopicPartition, Field("partition", I32))),
    ),
    result=Struct(
        OffsetDeleteResult,
        Field("error", ERROR),
        Field("throttle_ms", I32),
        Field("partitions", _OUTCOMES),
    ),
    by_partition=True,
)


APIS = (
    FIND_COORDINATOR,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    OFFSET_DELETE,
)
