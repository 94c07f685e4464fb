"""The states of share groups, between brokers (KIP-932): InitializeShareGroupState (83), ReadShareGroupState (84),
WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87).
"""

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
from .api import Api
from .schema import ERROR, ERROR_TEXT, I8, I16, I32, I64, TEXT, Array, ByTopicId, Field, Struct

_STATE_BATCHES = Array(
    Struct(
        StateBatch,
        Field("first_offset", I64),
        Field("last_offset", I64),
        Field("delivery_state", I8),
        Field("delivery_count", I16),
    )
)
_OUTCOMES = ByTopicId(StateOutcome, Field("partition", I32), Field("error", ERROR), Field("error_message", ERROR_TEXT))
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
                Field("error", ERROR),
                Field("error_message", ERROR_TEXT),
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
                Field("error", ERROR),
                Field("error_message", ERROR_TEXT),
                Field("state_epoch", I32),
                Field("leader_epoch", I32),
                Field("start_offset", I64),
                Field("delivery_complete_count", I32, since=1, absent=NO_COUNT),
            ),
        ),
    ),
)

APIS = (
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    WRITE_SHARE_GROUP_STATE,
    DELETE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
)
