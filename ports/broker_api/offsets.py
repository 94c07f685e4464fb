"""ListOffsets (API key 2)."""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import quick_frozen
from .envelope import Request

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
"""The first offset on the broker's own disks (KIP-405)."""
LATEST_TIERED = -5
"""The last offset in remote storage (KIP-1005)."""
EARLIEST_PENDING_UPLOAD = -6
"""The first offset that is not in remote storage yet (KIP-1023)."""


@quick_frozen(kw_only=True)
class ListOffsetsPartition:
    """`timestamp` in ms, or LATEST, EARLIEST, and the other constants here."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@quick_frozen(kw_only=True)
class ListOffsets(Request["ListOffsetsResult"]):
    """The offset of the first record whose timestamp is at least the given one, per partition."""

    partitions: Sequence[ListOffsetsPartition]
    isolation_level: int = 0
    replica_id: int = -1

    def failed(self, error: ApiError) -> "ListOffsetsResult":
        return ListOffsetsResult(
            partitions=[
                ListOffsetsResultPartition(topic=p.topic, partition=p.partition, error=error.code)
                for p in self.partitions
            ]
        )


@quick_frozen(kw_only=True)
class ListOffsetsResultPartition:
    """-1 for offset and timestamp when there is no such record."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@quick_frozen(kw_only=True)
class ListOffsetsResult:
    """The answers, in the order of the request."""

    partitions: Sequence[ListOffsetsResultPartition]
    throttle_ms: int = 0
