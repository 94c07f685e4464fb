"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


class ElectionType(IntEnum):
    """The type of an election: of the preferred replica, or of any live replica, even if it lacks messages."""

    PREFERRED = 0
    UNCLEAN = 1


@frozen(kw_only=True)
class ElectLeaders(Request["ElectLeadersResult"]):
    """Elect leaders of partitions (topic → numbers; None: all). `election_type` may be an unknown number."""

    topics: Mapping[str, Sequence[int]] | None
    election_type: int = ElectionType.PREFERRED
    timeout_ms: int = 60_000

    def failed(self, error: ApiError) -> "ElectLeadersResult":
        return ElectLeadersResult(partitions=(), error=error.code)


@frozen(kw_only=True)
class PartitionChange:
    """The outcome for one partition of an election or a reassignment."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class ElectLeadersResult:
    """The outcomes. In a request for all partitions those that need no election are absent."""

    partitions: Sequence[PartitionChange]
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class Reassignment:
    """The new replicas of a partition, the preferred leader first; None = cancel the reassignment."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


@frozen(kw_only=True)
class AlterPartitionReassignments(Request["AlterPartitionReassignmentsResult"]):
    """Reassign partitions. Without `allow_replication_factor_change` a different number of replicas is refused
    (KIP-860)."""

    partitions: Sequence[Reassignment]
    timeout_ms: int = 60_000
    allow_replication_factor_change: bool = True

    def failed(self, error: ApiError) -> "AlterPartitionReassignmentsResult":
        return AlterPartitionReassignmentsResult(partitions=(), error=error.code, error_message=error.message)


@frozen(kw_only=True)
class AlterPartitionReassignmentsResult:
    """The outcomes in the order of the request; `error` concerns the whole request."""

    partitions: Sequence[PartitionChange]
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
    allow_replication_factor_change: bool = True


@frozen(kw_only=True)
class ListPartitionReassignments(Request["ListPartitionReassignmentsResult"]):
    """List the ongoing reassignments of these partitions (topic → numbers) or of all (None)."""

    topics: Mapping[str, Sequence[int]] | None = None
    timeout_ms: int = 60_000

    def failed(self, error: ApiError) -> "ListPartitionReassignmentsResult":
        return ListPartitionReassignmentsResult(partitions=(), error=error.code, error_message=error.message)


@frozen(kw_only=True)
class OngoingReassignment:
    """An ongoing reassignment: all replicas, the adding and the removing ones."""

    topic: str
    partition: int
    replicas: Sequence[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


@frozen(kw_only=True)
class ListPartitionReassignmentsResult:
    partitions: Sequence[OngoingReassignment]
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
