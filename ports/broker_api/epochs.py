"""OffsetForLeaderEpoch (23)."""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request

CONSUMER = -1
"""The replica id of a consumer; -2 = a debugging consumer."""


@frozen(kw_only=True)
class OffsetForLeaderPartition:
    """Ask for the end of a leader epoch. `current_leader_epoch` -1 = not checked."""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@frozen(kw_only=True)
class OffsetForLeaderEpoch(Request["OffsetForLeaderEpochResult"]):
    """Find the end of leader epochs, to detect log truncation after a change of leader (KIP-320)."""

    partitions: Sequence[OffsetForLeaderPartition]
    replica_id: int = CONSUMER

    def failed(self, error: ApiError) -> "OffsetForLeaderEpochResult":
        return OffsetForLeaderEpochResult(
            partitions=[EpochEndOffset(topic=p.topic, partition=p.partition, error=error.code) for p in self.partitions]
        )


@frozen(kw_only=True)
class EpochEndOffset:
    """The largest epoch up to the requested one, and its end offset; -1 and -1 when unknown."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    leader_epoch: int = -1
    end_offset: int = -1


@frozen(kw_only=True)
class OffsetForLeaderEpochResult:
    """The outcomes in the order of the request."""

    partitions: Sequence[EpochEndOffset]
    throttle_ms: int = 0
