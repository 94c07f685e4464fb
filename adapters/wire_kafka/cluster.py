"""DescribeCluster (60) and DescribeLogDirs (35)."""

from ...ports.broker_api.cluster import (
    BrokerNode,
    DescribeCluster,
    DescribeClusterResult,
    DescribeLogDirs,
    DescribeLogDirsResult,
    LogDirDescription,
    LogDirReplica,
)
from .api import Api
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
    I8,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    Array,
    ByTopic,
    Field,
    Filler,
    Missing,
    Pairs,
    Struct,
)

DESCRIBE_CLUSTER = Api(
    key=60,
    versions=(0, 2),
    flexible_from=0,
    request_type=DescribeCluster,
    request=Struct(
        DescribeCluster,
        Field("include_authorized_operations", BOOL),
        Field("endpoint_type", I8, since=1),
        Filler(BOOL, False, since=2),  # with brokers that are fenced: those that do not live are not known
    ),
    result=Struct(
        DescribeClusterResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("error_message", ERROR_TEXT),
        Field("endpoint_type", I8, since=1),
        Field("cluster_id", TEXT),
        Field("controller_id", I32),
        Field(
            "brokers",
            Array(
                Struct(
                    BrokerNode,
                    Field("node_id", I32),
                    Field("host", TEXT),
                    Field("port", I32),
                    Field("rack", NULLABLE_TEXT),
                    Filler(BOOL, False, since=2),  # whether it is fenced
                )
            ),
        ),
        Field("authorized_operations", I32),
    ),
)

DESCRIBE_LOG_DIRS = Api(
    key=35,
    versions=(0, 5),
    flexible_from=2,
    request_type=DescribeLogDirs,
    request=Struct(DescribeLogDirs, Field("topics", Pairs(TEXT, Array(I32), Missing.NULL))),
    result=Struct(
        DescribeLogDirsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR, since=3),
        Field(
            "log_dirs",
            Array(
                Struct(
                    LogDirDescription,
                    Field("error", ERROR),
                    Field("path", TEXT),
                    Field(
                        "replicas",
                        ByTopic(
                            LogDirReplica,
                            Field("partition", I32),
                            Field("size_bytes", I64),
                            Field("lag", I64),
                            Field("is_future", BOOL),
                        ),
                    ),
                    Field("total_bytes", I64, since=4),
                    Field("usable_bytes", I64, since=4),
                    Filler(BOOL, False, since=5),  # whether it is cordoned (KIP-1066): none is
                )
            ),
        ),
    ),
    long_answers=True,
)

APIS = (DESCRIBE_CLUSTER, DESCRIBE_LOG_DIRS)
