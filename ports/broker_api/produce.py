"""Produce (API key 0)."""

from collections.abc import Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import quick_frozen
from .cluster import BrokerNode
from .envelope import Request
from .fetch import CurrentLeader
from .metadata import NO_TOPIC_ID
from .transactions import TransactionSupportedOperation


@quick_frozen
class ProducePartition:
    """A record batch to append to one partition.

    `records` is the batch in memory that the broker may write to (it sets the offset in place). The batch is refused
    unless the topic has this `topic_id`; NO_TOPIC_ID: any topic of the name.
    """

    topic: str
    partition: int
    records: memoryview = field(repr=lambda records: f"<{len(records)} bytes>")
    topic_id: bytes = NO_TOPIC_ID


@quick_frozen(kw_only=True)
class Produce(Request["ProduceResult"]):
    """Append record batches. `acks`: 0 no answer wanted, 1 after the local append, -1 after the in-sync replicas."""

    partitions: Sequence[ProducePartition]
    acks: int = -1
    timeout_ms: int = 30_000
    transactional_id: str | None = None
    allows_zstd: bool = True
    """False when the client's version predates zstd (Produce < 7): zstd batches then get error 76."""
    supported_operation: TransactionSupportedOperation = TransactionSupportedOperation.DEFAULT_ERROR
    """The way to handle partitions that are not in the transaction."""

    def failed(self, error: ApiError) -> "ProduceResult":
        return ProduceResult(
            partitions=[
                ProduceResultPartition(p.topic, p.partition, error.code, error_message=error.message)
                for p in self.partitions
            ]
        )


@quick_frozen(kw_only=True)
class RecordError:
    """The index of a rejected record in its batch, and the reason."""

    index: int
    message: str | None = None


@quick_frozen
class ProduceResultPartition:
    """The outcome for one partition; `base_offset` is -1 on error, `log_append_time_ms` -1 for CreateTime topics.

    `current_leader` comes with an error that another broker leads (KIP-951).
    """

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[RecordError] = ()
    current_leader: CurrentLeader | None = None


@quick_frozen(kw_only=True)
class ProduceResult:
    """The outcomes, in the order of the request. `nodes`: the addresses of the current leaders."""

    partitions: Sequence[ProduceResultPartition]
    throttle_ms: int = 0
    nodes: Sequence[BrokerNode] = ()
