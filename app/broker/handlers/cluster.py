"""DescribeCluster (facts C6), and DescribeLogDirs: the replicas and the space of the data folders."""

from ....core.traffic.steps import Steps
from ....ports.broker_api.cluster import (
    DescribeCluster,
    DescribeClusterResult,
    DescribeLogDirs,
    DescribeLogDirsResult,
    LogDirDescription,
    LogDirReplica,
)
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.operations import CLUSTER_OPERATIONS, NO_AUTHORIZED_OPERATIONS
from ....ports.error_codes import ErrorCode
from ....ports.storage import StorageError
from ..state.broker_state import BrokerState

_BROKERS = 1


class ClusterService:
    """Returns the cluster id, the controller and the brokers."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeCluster, caller: Caller, reply: Reply[DescribeClusterResult]) -> None:
        state = self._state
        known = request.endpoint_type == _BROKERS
        asked = request.include_authorized_operations
        reply(
            DescribeClusterResult(
                cluster_id=state.cluster_id,
                controller_id=state.controller_id,
                brokers=state.endpoints.nodes_with_own(state.image.brokers, caller) if known else (),
                error=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
                error_message=None if known else "only brokers (endpoint type 1) are supported",
                endpoint_type=request.endpoint_type,
                authorized_operations=CLUSTER_OPERATIONS if asked and known else NO_AUTHORIZED_OPERATIONS,
            )
        )


class LogDirService:
    """Describes the data folders."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeLogDirs, caller: Caller, reply: Reply[DescribeLogDirsResult]) -> None:
        self._state.answer_in_steps("DescribeLogDirs", self._describe_all(request), caller, reply)

    def _describe_all(self, request: DescribeLogDirs) -> Steps[DescribeLogDirsResult]:
        state = self._state
        replicas: dict[str, list[LogDirReplica]] = {log_dir.path: [] for log_dir in state.logs.dirs}
        wanted = None if request.topics is None else {topic: set(asked) for topic, asked in request.topics.items()}
        for key, log in tuple(state.logs.logs().items()):
            partition = state.replicas.partitions.get(key)
            if log.closed or (partition is None and not state.classic.has(key.topic)):
                continue  # left of a deleted topic
            if wanted is None or key.partition in wanted.get(key.topic, ()):
                lag = max(0, partition.high_watermark - log.log_end_offset) if partition is not None else 0
                replica = LogDirReplica(topic=key.topic, partition=key.partition, size_bytes=log.size_bytes, lag=lag)
                replicas[state.logs.dir_of(key).path].append(replica)
            yield None
        return DescribeLogDirsResult(log_dirs=[self._describe(path, found) for path, found in replicas.items()])

    def _describe(self, path: str, replicas: list[LogDirReplica]) -> LogDirDescription:
        log_dir = next(log_dir for log_dir in self._state.logs.dirs if log_dir.path == path)
        if self._state.logs.failure_of(log_dir) is not None:
            return LogDirDescription(path=path, replicas=replicas, error=ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            total, usable = log_dir.space()
        except StorageError as error:
            self._state.failed(f"looking at {path}", error)
            return LogDirDescription(path=path, replicas=replicas, error=ErrorCode.KAFKA_STORAGE_ERROR)
        return LogDirDescription(path=path, replicas=replicas, total_bytes=total, usable_bytes=usable)
