"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28), OffsetDelete (47)."""

from collections.abc import Iterator

from attrs import evolve

from ...ports.broker_api.groups import (
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
from ...ports.broker_api.transactions import TxnOffsetCommit, TxnOffsetCommitResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.types import TopicPartition
from .api import Api, in_order
from .schema import (
    BOOL,
    ERROR,
    I16,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    Array,
    ByTopic,
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

_WITH_IDS = 10
_OUTCOMES = ByTopic(PartitionOutcome, Field("partition", I32), Field("error", ERROR))


def _complete_offset_commit(_: OffsetCommit, result: OffsetCommitResult) -> OffsetCommitResult:
    """Our clients know one error for a generation that is over, whether the group exists or not."""
    if all(part.error is not ErrorCode.GROUP_ID_NOT_FOUND for part in result.partitions):
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
    least_version=lambda request: 2 if request.group_instance_id is None else 7,
    most_version=lambda request: _WITH_IDS if commits_by_id(request) else 8,
    by_partition=True,
    ids_since=_WITH_IDS,
    resolved=resolve_offset_commit,
    by_id=offset_commit_by_id,
    completed=_complete_offset_commit,
)


def _least_txn_offset_commit(request: TxnOffsetCommit) -> int:
    """Below 3 it cannot say of which member it is."""
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


def _least_offset_fetch(request: OffsetFetch) -> int:
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
            raise Malformed(f"the answer leaves out group {wanted.group_id!r}")
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
    most_version=lambda _: 8,
    ids_since=_WITH_IDS,
    resolved=resolve_offset_fetch,
    completed=_complete_offset_fetch,
    long_answers=True,
)

TXN_OFFSET_COMMIT = Api(
    key=28,
    versions=(0, 4),
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
            ),
        ),
    ),
    result=Struct(TxnOffsetCommitResult, Field("throttle_ms", I32), Field("partitions", _OUTCOMES)),
    least_version=_least_txn_offset_commit,
    by_partition=True,
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

APIS = (OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT, OFFSET_DELETE)
