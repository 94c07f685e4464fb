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
        for key, log in self._state.logs.logs().items():
            partition = self._state.partitions.get(key)
            if partition is None and not self._state.classic.has(key.topic):
                continue  # what is left of a topic that is no more
            if request.topics is None or key.partition in request.topics.get(key.topic, ()):
                lag = max(0, partition.high_watermark - log.log_end_offset) if partition is not None else 0
                replica = LogDirReplica(topic=key.topic, partition=key.partition, size_bytes=log.size_bytes, lag=lag)
                replicas[self._state.logs.dir_of(key).path].append(replica)
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
