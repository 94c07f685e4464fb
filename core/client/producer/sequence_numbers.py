"""The interface by which the sender numbers batches: of an idempotent producer's identity, or of a transaction."""

from typing import NamedTuple, Protocol

from ....ports.broker_api.transactions import TransactionSupportedOperation
from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ..effects import Poll
from .producer_batch import ProducerBatch


class Refusal(NamedTuple):
    """The error for batches that are not in flight and will not be sent; `tried`: includes those sent before."""

    error: BarnabasError
    tried: bool = True


class SequenceAssigner(Protocol):
    """Used by the sender, on the reactor's thread only; all but `number` under the lock, if there is one."""

    @property
    def supported_operation(self) -> TransactionSupportedOperation:
        """The way in which leaders are to handle partitions that are not in the transaction."""
        ...

    def poll(self, now_ms: float) -> Poll: ...

    def prepare(self) -> bool:
        """Prepare the producer's state; return True if batches can be sent in this turn."""
        ...

    def admits(self, tp: TopicPartition) -> bool:
        """Return True if batches of a partition can be sent now; if not, request what is missing."""
        ...

    def number(self, batch: ProducerBatch) -> None:
        """Give the batch its numbers, unless it has them. After `prepare` has said yes, and for that turn only."""
        ...

    def release_numbers(self, batch: ProducerBatch) -> None:
        """The batch has certainly not been appended and will not be sent as it is: its numbers are free again."""
        ...

    def give_up(self, batch: ProducerBatch) -> None:
        """Give up a batch that is not sent again and may or may not have been appended."""
        ...

    def lost_count(self, batch: ProducerBatch) -> bool:
        """Handle a broker that has other numbers. Return True if the batch is to be sent again, with new numbers."""
        ...

    def failed(self, error: BarnabasError) -> None:
        """Note the error of failed messages."""
        ...

    def take_refusal(self) -> Refusal | None:
        """Return the error that makes sending useless now, if there is one; called on each poll."""
        ...


SEQUENCE_MASK = 0x7FFFFFFF


class _NextSequence(NamedTuple):
    """The next sequence number of a partition, in one epoch of a producer."""

    producer_id: int
    epoch: int
    next_sequence: int


class SequenceNumbers:
    """Numbers the batches of one producer. One batch per partition is on its way, so numbers never wait."""

    def __init__(self) -> None:
        self._runs: dict[TopicPartition, _NextSequence] = {}

    def number(self, batch: ProducerBatch, producer_id: int, epoch: int) -> None:
        """Give a batch that has no numbers its own."""
        run = self._runs.get(batch.tp)
        if run is None or run.producer_id != producer_id or run.epoch != epoch:
            run = _NextSequence(producer_id, epoch, 0)
        batch.producer_id, batch.producer_epoch, batch.base_sequence = run
        self._runs[batch.tp] = run._replace(next_sequence=(run.next_sequence + batch.count) & SEQUENCE_MASK)

    def release_numbers(self, batch: ProducerBatch) -> None:
        """The batch has certainly not been appended and will not be sent as it is: its numbers are free again."""
        run = self._runs.get(batch.tp)
        if batch.base_sequence >= 0 and run is not None:
            if (run.producer_id, run.epoch) == (batch.producer_id, batch.producer_epoch):
                self._runs[batch.tp] = run._replace(next_sequence=batch.base_sequence)
            batch.base_sequence = -1

    def forget(self, tp: TopicPartition) -> None:
        """Forget the numbers of the partition, because those of the broker are not known."""
        self._runs.pop(tp, None)
