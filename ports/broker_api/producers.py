"""InitProducerId (22) and DescribeProducers (61)."""

from collections.abc import Mapping, Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@frozen(kw_only=True)
class InitProducerId(Request["InitProducerIdResult"]):
    """Ask for the identity of an idempotent producer; with the present id and epoch, for the next epoch (KIP-360)."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def answer(self, error: ErrorCode) -> "InitProducerIdResult":
        """Return a result with this error alone."""
        return InitProducerIdResult(error=error)

    def failed(self, error: ApiError) -> "InitProducerIdResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class InitProducerIdResult:
    """The identity to produce with; id and epoch are -1 on error."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    throttle_ms: int = 0


@frozen(kw_only=True)
class DescribeProducers(Request["DescribeProducersResult"]):
    """Ask leaders for the idempotent producers of partitions: topic → partitions."""

    topics: Mapping[str, Sequence[int]]

    def failed(self, error: ApiError) -> "DescribeProducersResult":
        return DescribeProducersResult(
            partitions=[
                DescribedPartition(topic=topic, partition=number, error=error.code, error_message=error.message)
                for topic, numbers in self.topics.items()
                for number in numbers
            ]
        )


@frozen(kw_only=True)
class ActiveProducer:
    """The state of a producer in a partition. `last_sequence` is -1 before its first batch of this epoch.

    `last_timestamp_ms` is the time of its last append. The other fields are for transactions; -1 without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


@frozen(kw_only=True)
class DescribedPartition:
    """The producers of one partition, or an error."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    producers: Sequence[ActiveProducer] = ()


@frozen(kw_only=True)
class DescribeProducersResult:
    partitions: Sequence[DescribedPartition]
    throttle_ms: int = 0
