"""DescribeLogDirs: what the data folders hold."""

from ...ports.broker_api import (
    Caller,
    DescribeLogDirs,
    DescribeLogDirsResult,
    LogDirDescription,
    LogDirReplica,
    Reply,
)
from ...ports.error_codes import ErrorCode
from ...ports.storage import StorageError
from .state import BrokerState


class LogDirService:
    """Describes the data folders."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeLogDirs, _caller: Caller, reply: Reply[DescribeLogDirsResult]) -> None:
        replicas: dict[str, list[LogDirReplica]] = {log_dir.path: [] for log_dir in self._state.logs.dirs}
        for (topic, number), partition in self._state.partitions.items():
            if request.topics is None or number in request.topics.get(topic, ()):
                log = partition.log
                lag = max(0, partition.high_watermark - log.log_end_offset)
                replica = LogDirReplica(topic=topic, partition=number, size_bytes=log.size_bytes, lag=lag)
                replicas[self._state.logs.dir_of(partition.topic_partition).path].append(replica)
        reply(DescribeLogDirsResult(log_dirs=[self._describe(path, found) for path, found in replicas.items()]))

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
