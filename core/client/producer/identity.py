"""The identity of an idempotent producer: id, epoch, and the next sequence number of each partition (facts B2).

A batch gets its numbers when it is sent for the first time, and its retries use the same ones. One batch per partition
is in flight, so numbers never wait for each other. If the outcome of a batch stays unknown, or the broker has other
numbers, a new epoch begins: each partition continues in it, from 0, when it has no batch in flight.
"""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.producers import InitProducerId, InitProducerIdResult
from ....ports.broker_api.transactions import TransactionSupportedOperation
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll, Send, backoff_ms
from .producer_batch import ProducerBatch
from .sequence_numbers import Refusal, SequenceNumbers

EPOCH_MAX = 2**15 - 1

DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""The broker has appended the batch, though it no longer knows the offset."""
SEQUENCE_LOST = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""The errors of a broker whose sequence numbers differ from the producer's."""


class ProducerIdentity:
    """Asks a broker for an id when one is needed. Used by the sender, on the reactor's thread only."""

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        *,
        retry_backoff_ms: float,
        retry_backoff_max_ms: float,
        unsupported: Callable[[], None],
    ) -> None:
        """`unsupported` is called once if the brokers are too old to know idempotent producers."""
        self._view = view
        self._entropy = entropy
        self._backoff = (retry_backoff_ms, retry_backoff_max_ms)
        self._unsupported = unsupported
        self.producer_id = -1
        self.epoch = -1
        self.supported = True
        """False after a broker did not support the request: batches then have no numbers."""
        self._sequences = SequenceNumbers()
        self._next_epoch = False
        self._in_flight = False
        self._failures = 0
        self._not_before_ms = -NEVER
        self._error: BarnabasError | None = None

    def poll(self, now_ms: float) -> Poll:
        if self._in_flight or self.producer_id >= 0 or not self.supported:
            return Poll([], NEVER)
        if now_ms < self._not_before_ms:
            return Poll([], self._not_before_ms)
        self._in_flight = True
        return Poll([Send(self._view.any_node(), InitProducerId(), self._answered)], NEVER)

    @property
    def supported_operation(self) -> TransactionSupportedOperation:
        """The value does not matter: the batches belong to no transaction."""
        return TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED

    def prepare(self) -> bool:
        """Begin the next epoch if one is needed; True if batches can be sent."""
        if self._next_epoch:
            self._next_epoch = False
            self.epoch += 1
            if self.epoch >= EPOCH_MAX:
                self.producer_id = self.epoch = -1  # a fresh id is asked for
        return self.producer_id >= 0 or not self.supported

    def admits(self, tp: TopicPartition) -> bool:  # noqa: ARG002  # a transaction differs by partition
        return True

    def take_refusal(self) -> Refusal | None:
        """Return the error that makes further requests for an id useless, if there is one, and clear it."""
        error, self._error = self._error, None
        return None if error is None else Refusal(error)

    def failed(self, error: BarnabasError) -> None:
        pass

    def number(self, batch: ProducerBatch) -> None:
        if batch.base_sequence >= 0 or self.producer_id < 0:
            return
        self._sequences.number(batch, self.producer_id, self.epoch)

    def release_numbers(self, batch: ProducerBatch) -> None:
        self._sequences.release_numbers(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        """Begin a new epoch for what follows: the batch is not sent again, and may or may not have been appended."""
        if batch.base_sequence >= 0:
            self._begin_epoch_after(batch)

    def lost_count(self, batch: ProducerBatch) -> bool:
        """Begin a new epoch, in which the batch gets new numbers, because the broker has other ones."""
        self._begin_epoch_after(batch)
        batch.base_sequence = -1
        return True

    def _begin_epoch_after(self, batch: ProducerBatch) -> None:
        if (batch.producer_id, batch.producer_epoch) == (self.producer_id, self.epoch):
            self._next_epoch = True
        self._sequences.forget(batch.tp)

    def _answered(self, result: Any, now_ms: float) -> None:
        self._in_flight = False
        error: BarnabasError | None = result if isinstance(result, BarnabasError) else None
        if isinstance(result, InitProducerIdResult):
            if result.error is ErrorCode.NONE:
                self.producer_id, self.epoch = result.producer_id, result.producer_epoch
                self._failures = 0
                self._not_before_ms = -NEVER
                return
            error = ApiError(result.error, "the broker gives no producer id")
        if isinstance(error, ApiError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            self.supported = False
            self._unsupported()
            return
        if isinstance(error, ApiError) and not error.retriable:
            self._error = error
        self._view.try_another()
        self._failures += 1
        self._not_before_ms = now_ms + backoff_ms(self._failures, *self._backoff, self._entropy.fraction())
