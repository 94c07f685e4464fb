"""Offset lookup: the ends of a partition for a reader, and the offset of a timestamp (facts B3, C6)."""

from ....ports.broker_api.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Offset
from ...log.partition_log.results import TimestampOffset
from ...traffic.steps import Steps
from ..partition.fetch_isolation import FetchIsolation
from ..partition.partition import Partition

_NOTHING = TimestampOffset(-1, Offset(-1), -1)


def look_up(partition: Partition, timestamp: int, isolation: FetchIsolation) -> Steps[TimestampOffset]:
    """Return the first record that is not older than `timestamp` (ms), below the end that such a reader sees.

    The special timestamps EARLIEST, LATEST and the like return their offset. All -1 when there is none.

    Raises `ApiError` UNSUPPORTED_VERSION for an unknown special timestamp, and OFFSET_NOT_AVAILABLE instead of an end
    that may be below one that a former leader has returned (KIP-207). `StorageError` as the log.
    """
    end = partition.end_for(isolation)
    found = yield from _find(partition, timestamp, end)
    is_end = timestamp == LATEST or (found.offset < 0 and timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD))
    if isolation is FetchIsolation.LOG_END or not is_end:
        return found
    if partition.is_leader and partition.high_watermark < partition.epoch_start_offset:
        text = f"{partition.topic_partition} has a new leader, who does not know yet what all replicas have"
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
    return found


def _find(partition: Partition, timestamp: int, end: Offset) -> Steps[TimestampOffset]:
    log = partition.log
    if timestamp == LATEST:
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.log_start_offset, partition.leader_epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING  # there is no remote storage
    if timestamp == MAX_TIMESTAMP:
        found = yield from log.times.find_max_timestamp()
    elif timestamp >= 0:
        found = yield from log.times.find_first_at(timestamp)
    else:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"no meaning for timestamp {timestamp}")
    return _NOTHING if found is None or found.offset >= end else found
