"""MirrorRecords (30002), which is ours."""

from ...ports.broker_api.mirroring import MirrorRecords, MirrorRecordsResult
from .api import Api
from .schema import DATA, ERROR, ERROR_TEXT, I32, I64, TEXT, Field, Struct

MIRROR_RECORDS = Api(
    key=30_002,  # see DescribeConnections
    versions=(0, 0),
    flexible_from=0,
    request_type=MirrorRecords,
    request=Struct(
        MirrorRecords,
        Field("topic", TEXT),
        Field("partition", I32),
        Field("source", TEXT),
        Field("log_end", I64),
        Field("last_epoch", I32),
        Field("leader_epoch", I32),
        Field("truncate_to", I64),
        Field("truncate_epoch", I32),
        Field("log_start", I64),
        Field("records", DATA),
    ),
    result=Struct(
        MirrorRecordsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("log_start", I64),
        Field("log_end", I64),
        Field("high_watermark", I64),
        Field("last_epoch", I32),
        Field("leader_epoch", I32),
    ),
    is_own=True,
)

APIS = (MIRROR_RECORDS,)
