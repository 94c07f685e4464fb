"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


class ElectionType(IntEnum):
    """Who may become the leader (facts C5): the first replica, or any that lives, even if it lacks messages."""

    PREFERRED = 0
    UNCLEAN = 1


@frozen(kw_only=True)
class ElectLeaders(Request["ElectLeadersResult"]):
    """Let partitions (topic → numbers; None: all) elect a leader. `election_type` may be a number we do not know."""

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
    """Asked for all partitions, those that need no election are left out."""

    partitions: Sequence[PartitionChange]
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class Reassignment:
    """The brokers that shall hold a partition, the preferred leader first; None = cancel the move under way."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


@frozen(kw_only=True)
class AlterPartitionReassignments(Request["AlterPartitionReassignmentsResult"]):
    """Without `allow_replication_factor_change` what would give a partition more replicas, or fewer, is refused
    (KIP-860)."""

    partitions: Sequence[Reassignment]
    timeout_ms: int = 60_000
    allow_replication_factor_change: bool = True

    def failed(self, error: ApiError) -> "AlterPartitionReassignmentsResult":
        return AlterPartitionReassignmentsResult(partitions=(), error=error.code, error_message=error.message)


@frozen(kw_only=True)
class AlterPartitionReassignmentsResult:
    """In the order of the request; `error` is about all of it."""

    partitions: Sequence[PartitionChange]
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
    allow_replication_factor_change: bool = True


@frozen(kw_only=True)
class ListPartitionReassignments(Request["ListPartitionReassignmentsResult"]):
    """Ask for the moves under way, of these partitions (topic → numbers) or of all (None)."""

    topics: Mapping[str, Sequence[int]] | None = None
    timeout_ms: int = 60_000

    def failed(self, error: ApiError) -> "ListPartitionReassignmentsResult":
        return ListPartitionReassignmentsResult(partitions=(), error=error.code, error_message=error.message)


@frozen(kw_only=True)
class OngoingReassignment:
    """One move under way: all replicas, those that come and those that go."""

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
