"""Share groups (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77), ShareFetch (78), ShareAcknowledge (79),
our own DescribeSharePartitions (30001); start offsets: DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91),
DeleteShareGroupOffsets (92); states between brokers: InitializeShareGroupState (83), ReadShareGroupState (84),
WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87).

Records are never copied here, as in Fetch: an answer holds them as pieces, a client gets slices of the frame.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from ...ports.broker_api.cluster import BrokerNode
from ...ports.broker_api.consumer_groups import DescribedTopicPartitions
from ...ports.broker_api.fetch import CurrentLeader
from ...ports.broker_api.share_group_offsets import (
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
from ...ports.broker_api.share_groups import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    ForgottenSharePartition,
    ShareAcknowledge,
    ShareAcknowledgeOutcome,
    ShareAcknowledgePartition,
    ShareAcknowledgeResult,
    ShareAcquireMode,
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
from ...ports.broker_api.share_partitions import (
    DeliveredRecords,
    DescribeSharePartitions,
    DescribeSharePartitionsResult,
    HeldRecords,
    SharePartitionDescription,
)
from ...ports.broker_api.share_state import (
    NO_COUNT,
    DeleteShareGroupState,
    DeleteShareGroupStateResult,
    InitializePartition,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    ReadStatePartition,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateSummary,
    WritePartition,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from ...ports.storage import Region
from ...ports.types import Buffer
from .api import Api
from .consumer_groups import TOPIC_ID_PARTITIONS
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
    I8,
    I16,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    UUID,
    Array,
    ByTopic,
    ByTopicId,
    Field,
    Flag,
    Nullable,
    NullableArray,
    Row,
    Struct,
)
from .wire import Reader, Writer

_ERROR = (Field("error", ERROR), Field("error_message", ERROR_TEXT))
_THROTTLE_AND_ERROR = (Field("throttle_ms", I32), *_ERROR)
_STATE_BATCHES = Array(
    Struct(
        StateBatch,
        Field("first_offset", I64),
        Field("last_offset", I64),
        Field("delivery_state", I8),
        Field("delivery_count", I16),
    )
)
_OUTCOMES = ByTopicId(StateOutcome, Field("partition", I32), *_ERROR)
_READ_PARTITIONS = ByTopicId(ReadPartition, Field("partition", I32), Field("leader_epoch", I32))

INITIALIZE_SHARE_GROUP_STATE = Api(
    key=83,
    versions=(0, 0),
    flexible_from=0,
    request_type=InitializeShareGroupState,
    request=Struct(
        InitializeShareGroupState,
        Field("group_id", TEXT),
        Field(
            "partitions",
            ByTopicId(
                InitializePartition, Field("partition", I32), Field("state_epoch", I32), Field("start_offset", I64)
            ),
        ),
    ),
    result=Struct(InitializeShareGroupStateResult, Field("partitions", _OUTCOMES)),
)

READ_SHARE_GROUP_STATE = Api(
    key=84,
    versions=(0, 0),
    flexible_from=0,
    request_type=ReadShareGroupState,
    request=Struct(ReadShareGroupState, Field("group_id", TEXT), Field("partitions", _READ_PARTITIONS)),
    result=Struct(
        ReadShareGroupStateResult,
        Field(
            "partitions",
            ByTopicId(
                ReadStatePartition,
                Field("partition", I32),
                *_ERROR,
                Field("state_epoch", I32),
                Field("start_offset", I64),
                Field("state_batches", _STATE_BATCHES),
            ),
        ),
    ),
)

WRITE_SHARE_GROUP_STATE = Api(
    key=85,
    versions=(0, 1),
    flexible_from=0,
    request_type=WriteShareGroupState,
    request=Struct(
        WriteShareGroupState,
        Field("group_id", TEXT),
        Field(
            "partitions",
            ByTopicId(
                WritePartition,
                Field("partition", I32),
                Field("state_epoch", I32),
                Field("leader_epoch", I32),
                Field("start_offset", I64),
                Field("delivery_complete_count", I32, since=1, absent=NO_COUNT),
                Field("state_batches", _STATE_BATCHES),
            ),
        ),
    ),
    result=Struct(WriteShareGroupStateResult, Field("partitions", _OUTCOMES)),
)

DELETE_SHARE_GROUP_STATE = Api(
    key=86,
    versions=(0, 0),
    flexible_from=0,
    request_type=DeleteShareGroupState,
    request=Struct(
        DeleteShareGroupState,
        Field("group_id", TEXT),
        Field("partitions", ByTopicId(StatePartition, Field("partition", I32))),
    ),
    result=Struct(DeleteShareGroupStateResult, Field("partitions", _OUTCOMES)),
)

READ_SHARE_GROUP_STATE_SUMMARY = Api(
    key=87,
    versions=(0, 1),
    flexible_from=0,
    request_type=ReadShareGroupStateSummary,
    request=Struct(ReadShareGroupStateSummary, Field("group_id", TEXT), Field("partitions", _READ_PARTITIONS)),
    result=Struct(
        ReadShareGroupStateSummaryResult,
        Field(
            "partitions",
            ByTopicId(
                StateSummary,
                Field("partition", I32),
                *_ERROR,
                Field("state_epoch", I32),
                Field("leader_epoch", I32),
                Field("start_offset", I64),
                Field("delivery_complete_count", I32, since=1, absent=NO_COUNT),
            ),
        ),
    ),
)


DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    key=90,
    versions=(0, 1),
    flexible_from=0,
    request_type=DescribeShareGroupOffsets,
    request=Struct(
        DescribeShareGroupOffsets,
        Field(
            "groups",
            Array(
                Struct(
                    ShareGroupOffsetsQuery,
                    Field("group_id", TEXT),
                    Field(
                        "topics",
                        NullableArray(Struct(ShareGroupTopic, Field("topic", TEXT), Field("partitions", Array(I32)))),
                    ),
                )
            ),
        ),
    ),
    result=Struct(
        DescribeShareGroupOffsetsResult,
        Field("throttle_ms", I32),
        Field(
            "groups",
            Array(
                Struct(
                    ShareGroupOffsets,
                    Field("group_id", TEXT),
                    Field(
                        "topics",
                        Array(
                            Struct(
                                ShareTopicOffsets,
                                Field("topic", TEXT),
                                Field("topic_id", UUID),
                                Field(
                                    "partitions",
                                    Array(
                                        Struct(
                                            SharePartitionOffset,
                                            Field("partition", I32),
                                            Field("start_offset", I64),
                                            Field("leader_epoch", I32),
                                            Field("lag", I64, since=1),
                                            *_ERROR,
                                        )
                                    ),
                                ),
                            )
                        ),
                    ),
                    *_ERROR,
                )
            ),
        ),
    ),
    long_answers=True,
)

ALTER_SHARE_GROUP_OFFSETS = Api(
    key=91,
    versions=(0, 0),
    flexible_from=0,
    request_type=AlterShareGroupOffsets,
    request=Struct(
        AlterShareGroupOffsets,
        Field("group_id", TEXT),
        Field("partitions", ByTopic(SharePartitionStart, Field("partition", I32), Field("start_offset", I64))),
    ),
    result=Struct(
        AlterShareGroupOffsetsResult,
        *_THROTTLE_AND_ERROR,
        Field(
            "topics",
            Array(
                Struct(
                    AlteredShareTopic,
                    Field("topic", TEXT),
                    Field("topic_id", UUID),
                    Field(
                        "partitions",
                        Array(
                            Struct(
                                ShareStartOutcome,
                                Field("partition", I32),
                                *_ERROR,
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

DELETE_SHARE_GROUP_OFFSETS = Api(
    key=92,
    versions=(0, 0),
    flexible_from=0,
    request_type=DeleteShareGroupOffsets,
    request=Struct(DeleteShareGroupOffsets, Field("group_id", TEXT), Field("topics", Array(Row(TEXT)))),
    result=Struct(
        DeleteShareGroupOffsetsResult,
        *_THROTTLE_AND_ERROR,
        Field(
            "topics",
            Array(
                Struct(
                    DeletedShareTopic,
                    Field("topic", TEXT),
                    Field("topic_id", UUID),
                    *_ERROR,
                )
            ),
        ),
    ),
)


_WITH_RENEW = 2
_NO_LEADER = CurrentLeader(-1, -1)
_NOTHING = memoryview(b"")


class _TextOrEmpty:
    """A string; null, which no broker accepts here, is read as an empty one."""

    def read(self, reader: Reader, version: int) -> str:  # noqa: ARG002
        return reader.nullable_text() or ""

    def write(self, writer: Writer, version: int, value: str) -> None:  # noqa: ARG002
        writer.text(value)


class _AcknowledgeTypes:
    """An array of one byte for each type, which we hold as bytes."""

    def read(self, reader: Reader, version: int) -> bytes:  # noqa: ARG002
        return bytes(reader.span(reader.count()))

    def write(self, writer: Writer, version: int, value: bytes) -> None:  # noqa: ARG002
        writer.count(len(value))
        writer.out += value


class _Records:
    """Record batches, by reference."""

    def read(self, reader: Reader, version: int) -> memoryview:  # noqa: ARG002
        records = reader.nullable_data()
        return _NOTHING if records is None else records

    def write(self, writer: Writer, version: int, value: Buffer | Region) -> None:  # noqa: ARG002
        writer.data(value)


class _Leader:
    """The current leader; None is -1 on the wire."""

    _FIELDS = Struct(CurrentLeader, Field("leader_id", I32), Field("leader_epoch", I32))

    def read(self, reader: Reader, version: int) -> CurrentLeader | None:
        leader = self._FIELDS.read(reader, version)
        return None if leader.leader_id < 0 else leader

    def write(self, writer: Writer, version: int, value: CurrentLeader | None) -> None:
        self._FIELDS.write(writer, version, value or _NO_LEADER)


_ID = _TextOrEmpty()
_LEADER = _Leader()
_NODES = Array(
    Struct(BrokerNode, Field("node_id", I32), Field("host", TEXT), Field("port", I32), Field("rack", NULLABLE_TEXT))
)

SHARE_GROUP_HEARTBEAT = Api(
    key=76,
    versions=(1, 1),
    flexible_from=0,
    request_type=ShareGroupHeartbeat,
    request=Struct(
        ShareGroupHeartbeat,
        Field("group_id", TEXT),
        Field("member_id", TEXT),
        Field("member_epoch", I32),
        Field("rack_id", NULLABLE_TEXT),
        Field("subscribed_topic_names", NullableArray(TEXT)),
    ),
    result=Struct(
        ShareGroupHeartbeatResult,
        *_THROTTLE_AND_ERROR,
        Field("member_id", NULLABLE_TEXT),
        Field("member_epoch", I32),
        Field("heartbeat_interval_ms", I32),
        Field("assignment", Nullable(Row(Array(TOPIC_ID_PARTITIONS)))),
    ),
)

SHARE_GROUP_DESCRIBE = Api(
    key=77,
    versions=(1, 1),
    flexible_from=0,
    request_type=ShareGroupDescribe,
    request=Struct(
        ShareGroupDescribe,
        Field("group_ids", Array(TEXT)),
        Field("include_authorized_operations", BOOL),
    ),
    result=Struct(
        ShareGroupDescribeResult,
        Field("throttle_ms", I32),
        Field(
            "groups",
            Array(
                Struct(
                    ShareGroupDescription,
                    *_ERROR,
                    Field("group_id", TEXT),
                    Field("group_state", TEXT),
                    Field("group_epoch", I32),
                    Field("assignment_epoch", I32),
                    Field("assignor_name", TEXT),
                    Field(
                        "members",
                        Array(
                            Struct(
                                ShareGroupMember,
                                Field("member_id", TEXT),
                                Field("rack_id", NULLABLE_TEXT),
                                Field("member_epoch", I32),
                                Field("client_id", TEXT),
                                Field("client_host", TEXT),
                                Field("subscribed_topic_names", Array(TEXT)),
                                Field(
                                    "assignment",
                                    Row(
                                        Array(
                                            Struct(
                                                DescribedTopicPartitions,
                                                Field("topic_id", UUID),
                                                Field("topic_name", TEXT),
                                                Field("partitions", Array(I32)),
                                            )
                                        )
                                    ),
                                ),
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

_ACKNOWLEDGEMENT_BATCHES = Array(
    Struct(
        AcknowledgementBatch,
        Field("first_offset", I64),
        Field("last_offset", I64),
        Field("acknowledge_types", _AcknowledgeTypes()),
    )
)


def _has_renewals(partitions: Sequence[ShareFetchPartition] | Sequence[ShareAcknowledgePartition]) -> bool:
    return any(
        AcknowledgeType.RENEW in batch.acknowledge_types
        for partition in partitions
        for batch in partition.acknowledgement_batches
    )


def _least_fetch(request: ShareFetch) -> int:
    needs_two = request.is_renew_ack or request.share_acquire_mode == ShareAcquireMode.RECORD_LIMIT
    return _WITH_RENEW if needs_two or _has_renewals(request.partitions) else 1


def _least_acknowledge(request: ShareAcknowledge) -> int:
    return _WITH_RENEW if request.is_renew_ack or _has_renewals(request.partitions) else 1


def _named(request: Any, topic_name: Callable[[bytes], str]) -> Any:
    forgotten = getattr(request, "forgotten", ())
    if not request.partitions and not forgotten:
        return request
    names = {each.topic_id: topic_name(each.topic_id) for each in (*request.partitions, *forgotten)}
    lists = {"partitions": request.partitions, "forgotten": forgotten}
    return evolve(
        request,
        **{
            field: [evolve(each, topic=names[each.topic_id]) for each in entries]
            for field, entries in lists.items()
            if entries
        },
    )


SHARE_FETCH = Api(
    key=78,
    versions=(1, 2),
    flexible_from=0,
    request_type=ShareFetch,
    request=Struct(
        ShareFetch,
        Field("group_id", _ID),
        Field("member_id", _ID),
        Field("share_session_epoch", I32),
        Field("max_wait_ms", I32),
        Field("min_bytes", I32),
        Field("max_bytes", I32),
        Field("max_records", I32),
        Field("batch_size", I32),
        Field("share_acquire_mode", I8, since=2),
        Field("is_renew_ack", BOOL, since=2),
        Field(
            "partitions",
            ByTopicId(
                ShareFetchPartition,
                Field("partition", I32),
                Field("acknowledgement_batches", _ACKNOWLEDGEMENT_BATCHES),
            ),
        ),
        Field("forgotten", ByTopicId(ForgottenSharePartition, Field("partition", I32), inline=True)),
        Flag("allows_renew", since=_WITH_RENEW),
    ),
    result=Struct(
        ShareFetchResult,
        *_THROTTLE_AND_ERROR,
        Field("acquisition_lock_timeout_ms", I32),
        Field(
            "partitions",
            ByTopicId(
                ShareFetchResultPartition,
                Field("partition", I32),
                *_ERROR,
                Field("acknowledge_error", ERROR),
                Field("acknowledge_error_message", ERROR_TEXT),
                Field("current_leader", _LEADER),
                Field("records", _Records()),
                Field(
                    "acquired_records",
                    Array(
                        Struct(
                            AcquiredRecords,
                            Field("first_offset", I64),
                            Field("last_offset", I64),
                            Field("delivery_count", I16),
                        )
                    ),
                ),
            ),
        ),
        Field("nodes", _NODES),
    ),
    least_version=_least_fetch,
    named=_named,
)

SHARE_ACKNOWLEDGE = Api(
    key=79,
    versions=(1, 2),
    flexible_from=0,
    request_type=ShareAcknowledge,
    request=Struct(
        ShareAcknowledge,
        Field("group_id", _ID),
        Field("member_id", _ID),
        Field("share_session_epoch", I32),
        Field("is_renew_ack", BOOL, since=2),
        Field(
            "partitions",
            ByTopicId(
                ShareAcknowledgePartition,
                Field("partition", I32),
                Field("acknowledgement_batches", _ACKNOWLEDGEMENT_BATCHES),
            ),
        ),
        Flag("allows_renew", since=_WITH_RENEW),
    ),
    result=Struct(
        ShareAcknowledgeResult,
        *_THROTTLE_AND_ERROR,
        Field("acquisition_lock_timeout_ms", I32, since=2),
        Field(
            "partitions",
            ByTopicId(
                ShareAcknowledgeOutcome,
                Field("partition", I32),
                *_ERROR,
                Field("current_leader", _LEADER),
            ),
        ),
        Field("nodes", _NODES),
    ),
    least_version=_least_acknowledge,
    named=_named,
)

DESCRIBE_SHARE_PARTITIONS = Api(
    key=30_001,
    versions=(0, 0),
    flexible_from=0,
    request_type=DescribeSharePartitions,
    request=Struct(DescribeSharePartitions, Field("group_id", TEXT)),
    result=Struct(
        DescribeSharePartitionsResult,
        *_THROTTLE_AND_ERROR,
        Field(
            "partitions",
            Array(
                Struct(
                    SharePartitionDescription,
                    Field("topic", TEXT),
                    Field("partition", I32),
                    Field("start_offset", I64),
                    Field("acquired", I32),
                    Field("available", I32),
                    Field("acknowledged", I32),
                    Field("archived", I32),
                    Field(
                        "deliveries",
                        Array(Struct(DeliveredRecords, Field("delivery_count", I16), Field("records", I32))),
                    ),
                    Field(
                        "holders",
                        Array(
                            Struct(HeldRecords, Field("member_id", TEXT), Field("records", I32), Field("lock_ms", I32))
                        ),
                    ),
                )
            ),
        ),
    ),
    is_own=True,
    long_answers=True,
)

APIS = (
    SHARE_GROUP_HEARTBEAT,
    SHARE_GROUP_DESCRIBE,
    SHARE_FETCH,
    SHARE_ACKNOWLEDGE,
    DESCRIBE_SHARE_PARTITIONS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    WRITE_SHARE_GROUP_STATE,
    DELETE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
)
