"""DescribeSharePartitions (30001), which only we have: the messages that share groups have in flight at a leader."""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


@frozen(kw_only=True)
class DescribeSharePartitions(Request["DescribeSharePartitionsResult"]):
    """Ask a broker for the share partitions of a group that it leads, as far as a member fetches from them."""

    group_id: str

    def failed(self, error: ApiError) -> "DescribeSharePartitionsResult":
        return DescribeSharePartitionsResult(error=error.code, error_message=error.message)


@frozen
class DeliveredRecords:
    """A number of records in flight that were delivered so often: the last delivery is not acknowledged yet, or was
    released."""

    delivery_count: int
    records: int


@frozen
class HeldRecords:
    """The records that a member has acquired. `lock_ms`: the time until the first of its locks lapses."""

    member_id: str
    records: int
    lock_ms: int


@frozen(kw_only=True)
class SharePartitionDescription:
    """A share partition.

    start_offset: every record below is acknowledged or archived.
    acquired:     records that members have.
    available:    records that were delivered, and may be delivered again.
    acknowledged: records from the start offset on that are done with.
    archived:     records from the start offset on that were given up, or skipped.
    """

    topic: str
    partition: int
    start_offset: int
    acquired: int
    available: int
    acknowledged: int
    archived: int
    deliveries: Sequence[DeliveredRecords] = ()
    holders: Sequence[HeldRecords] = ()


@frozen(kw_only=True)
class DescribeSharePartitionsResult:
    """The share partitions that the broker leads, by topic and number."""

    partitions: Sequence[SharePartitionDescription] = ()
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0
