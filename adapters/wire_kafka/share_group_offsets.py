"""Start offsets of share groups (KIP-932): DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91),
DeleteShareGroupOffsets (92)."""

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
from .api import Api
from .schema import ERROR, ERROR_TEXT, I32, I64, TEXT, UUID, Array, ByTopic, Field, NullableArray, Row, Struct

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
                                            Field("error", ERROR),
                                            Field("error_message", ERROR_TEXT),
                                        )
                                    ),
                                ),
                            )
                        ),
                    ),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
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
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
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
                                Field("error", ERROR),
                                Field("error_message", ERROR_TEXT),
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
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field(
            "topics",
            Array(
                Struct(
                    DeletedShareTopic,
                    Field("topic", TEXT),
                    Field("topic_id", UUID),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT),
                )
            ),
        ),
    ),
)

APIS = (DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS)
