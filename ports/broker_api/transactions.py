"""Transactions (KIP-98, 360, 447): AddPartitionsToTxn (24) to TxnOffsetCommit (28), DescribeTransactions (65) and
ListTransactions (66)."""

from collections.abc import Mapping, Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..types import TopicPartition
from ..values import frozen
from .envelope import Request
from .groups import NO_GENERATION, OffsetCommitPartition, PartitionOutcome


@frozen(kw_only=True)
class AddPartitionsToTxn(Request["AddPartitionsToTxnResult"]):
    """Tell the coordinator which partitions the transaction comes to; the first ones begin it.

    `verify_only`: a leader asks whether they belong to it (KIP-890); nothing changes.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    verify_only: bool = False

    def answer(self, error: ErrorCode) -> "AddPartitionsToTxnResult":
        """A result that says the same of each partition."""
        outcomes = [PartitionOutcome(topic, number, error) for topic, number in self.partitions]
        return AddPartitionsToTxnResult(partitions=outcomes, transactional_id=self.transactional_id)

    def failed(self, error: ApiError) -> "AddPartitionsToTxnResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class AddPartitionsToTxnResult:
    """In the order of the request. With one refused none is added, and the others have OPERATION_NOT_ATTEMPTED."""

    partitions: Sequence[PartitionOutcome]
    transactional_id: str = ""
    """Told to brokers alone."""
    throttle_ms: int = 0


@frozen(kw_only=True)
class AddOffsetsToTxn(Request["AddOffsetsToTxnResult"]):
    """Tell the coordinator that positions of a group belong to the transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

    def answer(self, error: ErrorCode) -> "AddOffsetsToTxnResult":
        """A result that says no more than this."""
        return AddOffsetsToTxnResult(error=error)

    def failed(self, error: ApiError) -> "AddOffsetsToTxnResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class AddOffsetsToTxnResult:
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class EndTxn(Request["EndTxnResult"]):
    """Commit the transaction, or abort it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

    def answer(self, error: ErrorCode) -> "EndTxnResult":
        """A result that says no more than this."""
        return EndTxnResult(error=error)

    def failed(self, error: ApiError) -> "EndTxnResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class EndTxnResult:
    """NONE when the decision stands; the markers follow."""

    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class TxnMarker:
    """How a producer's transaction ended, for partitions of one leader.

    `coordinator_epoch`: of the leader of the partition of `__transaction_state`; it fences those before it.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: Sequence[TopicPartition]
    coordinator_epoch: int = 0


@frozen(kw_only=True)
class WriteTxnMarkers(Request["WriteTxnMarkersResult"]):
    """A coordinator, or a person who ends a hanging transaction, asks leaders to write markers."""

    markers: Sequence[TxnMarker]

    def failed(self, error: ApiError) -> "WriteTxnMarkersResult":
        return WriteTxnMarkersResult(
            markers=[
                WrittenTxnMarker(
                    producer_id=marker.producer_id,
                    partitions=[PartitionOutcome(key.topic, key.partition, error.code) for key in marker.partitions],
                )
                for marker in self.markers
            ]
        )


@frozen(kw_only=True)
class WrittenTxnMarker:
    producer_id: int
    partitions: Sequence[PartitionOutcome]


@frozen(kw_only=True)
class WriteTxnMarkersResult:
    """In the order of the request; NONE when the in-sync replicas have the marker."""

    markers: Sequence[WrittenTxnMarker]


@frozen(kw_only=True)
class TxnOffsetCommit(Request["TxnOffsetCommitResult"]):
    """Keep positions of a group if the transaction commits. It goes to the group's coordinator.

    `generation_id` -1 and `member_id` "": the caller does not say that it is a member (before KIP-447).
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[OffsetCommitPartition]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None

    def failed(self, error: ApiError) -> "TxnOffsetCommitResult":
        return TxnOffsetCommitResult(
            partitions=[PartitionOutcome(p.topic, p.partition, error.code) for p in self.partitions]
        )


@frozen(kw_only=True)
class TxnOffsetCommitResult:
    """In the order of the request."""

    partitions: Sequence[PartitionOutcome]
    throttle_ms: int = 0


@frozen(kw_only=True)
class DescribeTransactions(Request["DescribeTransactionsResult"]):
    transactional_ids: Sequence[str]

    def failed(self, error: ApiError) -> "DescribeTransactionsResult":
        return DescribeTransactionsResult(
            transactions=[
                DescribedTransaction(transactional_id=each, error=error.code) for each in self.transactional_ids
            ]
        )


@frozen(kw_only=True)
class DescribedTransaction:
    """A transactional id and its transaction, or why it is not told.

    `state`: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort". `start_ms` is -1
    when none is under way. `topics`: the partitions in it, by topic.
    """

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    topics: Mapping[str, Sequence[int]] = {}


@frozen(kw_only=True)
class DescribeTransactionsResult:
    """In the order of the request."""

    transactions: Sequence[DescribedTransaction]
    throttle_ms: int = 0


@frozen(kw_only=True)
class ListTransactions(Request["ListTransactionsResult"]):
    """The transactional ids of this coordinator; empty filters let all pass, `duration_ms` those that last longer,
    `pattern` those that a regular expression (RE2) matches whole."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    pattern: str | None = None

    def failed(self, error: ApiError) -> "ListTransactionsResult":
        return ListTransactionsResult(error=error.code)


@frozen(kw_only=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@frozen(kw_only=True)
class ListTransactionsResult:
    transactions: Sequence[ListedTransaction] = ()
    error: ErrorCode = ErrorCode.NONE
    unknown_states: Sequence[str] = ()
    throttle_ms: int = 0
