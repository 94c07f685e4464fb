"""Transactions (KIP-98, 360, 447): AddPartitionsToTxn (24) to TxnOffsetCommit (28), DescribeTransactions (65) and
ListTransactions (66)."""

from collections.abc import Mapping, Sequence
from enum import Enum

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..types import TopicPartition
from ..values import frozen
from .envelope import Request
from .groups import NO_GENERATION, OffsetCommitPartition, PartitionOutcome

EPOCH_BUMP = 2
"""The version of transactions from which on each one has an epoch of its own (KIP-890)."""


class TransactionSupportedOperation(Enum):
    """The way in which a broker handles a partition that is not in the transaction, by the version of Produce or of
    TxnOffsetCommit (Kafka: TransactionSupportedOperation)."""

    DEFAULT_ERROR = "refuse it with INVALID_TXN_STATE"
    GENERIC_ERROR_SUPPORTED = "refuse it with TRANSACTION_ABORTABLE"
    ADD_PARTITION = "add it to the transaction"


@frozen(kw_only=True)
class AddPartitionsToTxn(Request["AddPartitionsToTxnResult"]):
    """Add partitions to a transaction at its coordinator; the first ones begin the transaction.

    `verify_only`: a leader verifies that they belong to the transaction (KIP-890); nothing changes.
    `supports_epoch_bump`: a leader, or the coordinator of a group, adds them for a producer of version 2.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    verify_only: bool = False
    supports_epoch_bump: bool = False

    def answer(self, error: ErrorCode) -> "AddPartitionsToTxnResult":
        """Return a result with this error for each partition."""
        outcomes = [PartitionOutcome(topic, number, error) for topic, number in self.partitions]
        return AddPartitionsToTxnResult(partitions=outcomes, transactional_id=self.transactional_id)

    def failed(self, error: ApiError) -> "AddPartitionsToTxnResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class AddPartitionsToTxnResult:
    """The outcomes in the order of the request. If one fails, none is added; the others get OPERATION_NOT_ATTEMPTED."""

    partitions: Sequence[PartitionOutcome]
    transactional_id: str = ""
    """Set in answers to brokers only."""
    error: ErrorCode = ErrorCode.NONE
    """Set in answers to brokers only: nothing was verified."""
    throttle_ms: int = 0


@frozen(kw_only=True)
class AddOffsetsToTxn(Request["AddOffsetsToTxnResult"]):
    """Add the offsets of a group to a transaction at its coordinator."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

    def answer(self, error: ErrorCode) -> "AddOffsetsToTxnResult":
        """Return a result with this error alone."""
        return AddOffsetsToTxnResult(error=error)

    def failed(self, error: ApiError) -> "AddOffsetsToTxnResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class AddOffsetsToTxnResult:
    error: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


@frozen(kw_only=True)
class EndTxn(Request["EndTxnResult"]):
    """Commit the transaction, or abort it. `supports_epoch_bump`: the producer has version 2 of transactions, and
    continues in the next epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    supports_epoch_bump: bool = False

    def answer(self, error: ErrorCode) -> "EndTxnResult":
        """Return a result with this error alone."""
        return EndTxnResult(error=error)

    def failed(self, error: ApiError) -> "EndTxnResult":
        return self.answer(error.code)


@frozen(kw_only=True)
class EndTxnResult:
    """The outcome: NONE when the decision is stored; the markers follow.

    In version 2 the producer id and epoch are those of the producer's next transaction; -1 otherwise.
    """

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = -1
    producer_epoch: int = -1
    throttle_ms: int = 0


@frozen(kw_only=True)
class TxnMarker:
    """The end of a producer's transaction, for partitions of one leader.

    `coordinator_epoch`: the leader epoch of the partition of `__transaction_state`; it fences earlier coordinators.
    `transaction_version`: that of the producer. From 2 on the epoch is the one after the transaction's.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: Sequence[TopicPartition]
    coordinator_epoch: int = 0
    transaction_version: int = 0

    @property
    def supports_epoch_bump(self) -> bool:
        return self.transaction_version >= EPOCH_BUMP


@frozen(kw_only=True)
class WriteTxnMarkers(Request["WriteTxnMarkersResult"]):
    """Write transaction markers, sent by a coordinator or by an admin who ends a hanging transaction."""

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
    """The outcomes in the order of the request; NONE when the in-sync replicas have the marker."""

    markers: Sequence[WrittenTxnMarker]


@frozen(kw_only=True)
class TxnOffsetCommit(Request["TxnOffsetCommitResult"]):
    """Commit offsets of a group as part of a transaction, at the group's coordinator.

    `generation_id` -1 and `member_id` "": the caller does not identify a member (before KIP-447).
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[OffsetCommitPartition]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    supported_operation: TransactionSupportedOperation = TransactionSupportedOperation.DEFAULT_ERROR
    """The way to handle a group that is not in the transaction."""

    def failed(self, error: ApiError) -> "TxnOffsetCommitResult":
        return TxnOffsetCommitResult(
            partitions=[PartitionOutcome(p.topic, p.partition, error.code) for p in self.partitions]
        )


@frozen(kw_only=True)
class TxnOffsetCommitResult:
    """The outcomes in the order of the request."""

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
    """A transactional id and its transaction, or an error.

    `state`: "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort". `start_ms` is -1
    without an ongoing transaction. `topics`: its partitions, by topic.
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
    """The outcomes in the order of the request."""

    transactions: Sequence[DescribedTransaction]
    throttle_ms: int = 0


@frozen(kw_only=True)
class ListTransactions(Request["ListTransactionsResult"]):
    """List the transactional ids of this coordinator. Empty filters match all. `duration_ms` selects longer ones,
    `pattern` full matches of a regular expression (RE2)."""

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
