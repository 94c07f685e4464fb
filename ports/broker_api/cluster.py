"""DescribeCluster (60), DescribeQuorum (55), DescribeLogDirs (35), UnregisterBroker (64), and DescribeConnections
(30000), which Kafka does not have.
"""

from collections.abc import Mapping, Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request
from .operations import NO_AUTHORIZED_OPERATIONS


@frozen(kw_only=True)
class BrokerNode:
    """A broker and its address for the listener in question."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@frozen(kw_only=True)
class DescribeCluster(Request["DescribeClusterResult"]):
    endpoint_type: int = 1
    include_authorized_operations: bool = False

    def failed(self, error: ApiError) -> "DescribeClusterResult":
        return DescribeClusterResult(
            cluster_id="", controller_id=-1, brokers=(), error=error.code, error_message=error.message
        )


@frozen(kw_only=True)
class DescribeClusterResult:
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerNode]
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    endpoint_type: int = 1
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS
    """The bit field of operations that the caller may perform on the cluster (see `operations`)."""
    throttle_ms: int = 0


METADATA_TOPIC = "__cluster_metadata"
"""The only topic with a quorum: that of Kafka's controllers."""
NO_DIRECTORY = bytes(16)


@frozen
class QuorumPartition:
    """A partition whose quorum is asked for."""

    topic: str
    partition: int


@frozen(kw_only=True)
class DescribeQuorum(Request["DescribeQuorumResult"]):
    """Ask who the controller is, and who may become it, in the form of a Raft quorum (KIP-595)."""

    partitions: Sequence[QuorumPartition]

    def failed(self, error: ApiError) -> "DescribeQuorumResult":
        return DescribeQuorumResult(error=error.code, error_message=error.message)


@frozen(kw_only=True)
class ReplicaState:
    """A voter or observer; times and offsets of -1 are not known."""

    replica_id: int
    directory_id: bytes = NO_DIRECTORY
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


@frozen(kw_only=True)
class QuorumDescription:
    """The quorum of one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    voters: Sequence[ReplicaState] = ()
    observers: Sequence[ReplicaState] = ()


@frozen(kw_only=True)
class QuorumListener:
    """An address of a voter."""

    name: str
    host: str
    port: int


@frozen(kw_only=True)
class QuorumNode:
    """The addresses of a voter."""

    node_id: int
    listeners: Sequence[QuorumListener]


@frozen(kw_only=True)
class DescribeQuorumResult:
    partitions: Sequence[QuorumDescription] = ()
    nodes: Sequence[QuorumNode] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
    """Not on the wire: the broker mutes the connection, and does not say so."""


@frozen(kw_only=True)
class UnregisterBroker(Request["UnregisterBrokerResult"]):
    """Forget a broker that has left the cluster for good."""

    broker_id: int

    def failed(self, error: ApiError) -> "UnregisterBrokerResult":
        return UnregisterBrokerResult(error=error.code, error_message=error.message)


@frozen(kw_only=True)
class UnregisterBrokerResult:
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0


@frozen(kw_only=True)
class DescribeLogDirs(Request["DescribeLogDirsResult"]):
    """`topics` (topic → partitions) None = everything."""

    topics: Mapping[str, Sequence[int]] | None = None

    def failed(self, error: ApiError) -> "DescribeLogDirsResult":
        return DescribeLogDirsResult(log_dirs=(), error=error.code)


@frozen(kw_only=True)
class LogDirReplica:
    """One partition in a data folder; `lag` is how far it is behind the high watermark."""

    topic: str
    partition: int
    size_bytes: int
    lag: int = 0
    is_future: bool = False


@frozen(kw_only=True)
class LogDirDescription:
    """One data folder; volume sizes are -1 when unknown."""

    path: str
    replicas: Sequence[LogDirReplica]
    error: ErrorCode = ErrorCode.NONE
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    """True if the folder gets no new replicas (`cordoned.log.dirs`, KIP-1066)."""


@frozen(kw_only=True)
class DescribeLogDirsResult:
    log_dirs: Sequence[LogDirDescription]
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class DescribeConnections(Request["DescribeConnectionsResult"]):
    """Ask one broker for its connections in the order of their ids: those above `after`, at most `limit` of them."""

    after: int = 0
    limit: int = 1000

    def failed(self, error: ApiError) -> "DescribeConnectionsResult":
        return DescribeConnectionsResult(connections=(), error=error.code, error_message=error.message)


@frozen(kw_only=True)
class ConnectionDescription:
    """One connection of a client or of another broker.

    `client_id`, `software_name` and `software_version` are what the client says of itself (KIP-511); the last two are
    empty for clients that do not say it. Bytes are those of frames with their lengths, before TLS.
    """

    connection_id: int
    """The number of the connection on this broker; later connections have higher ones."""
    listener: str
    host: str
    port: int
    principal: str
    is_encrypted: bool
    client_id: str | None
    software_name: str
    software_version: str
    connected_at_ms: int
    requests: int
    in_flight: int
    """The number of requests without an answer."""
    bytes_in: int
    bytes_out: int


@frozen(kw_only=True)
class DescribeConnectionsResult:
    """`total`: the number of all connections of the broker; -1 on error."""

    connections: Sequence[ConnectionDescription]
    total: int = -1
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
