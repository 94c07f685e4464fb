"""Per partition the sequence number that a producer's next batch has (facts B2). A new epoch begins at 0."""

from typing import NamedTuple

from ....ports.types import TopicPartition
from .producer_batch import ProducerBatch

SEQUENCE_MASK = 0x7FFFFFFF


class _NextSequence(NamedTuple):
    """Where a partition stands."""

    producer_id: int
    epoch: int
    next_sequence: int


class SequenceNumbers:
    """Numbers the batches of one producer. One batch per partition is on its way, so numbers never wait."""

    def __init__(self) -> None:
        self._runs: dict[TopicPartition, _NextSequence] = {}

    def number(self, batch: ProducerBatch, producer_id: int, epoch: int) -> None:
        """Give a batch that has no numbers its own."""
        run = self._runs.get(batch.place)
        if run is None or run.producer_id != producer_id or run.epoch != epoch:
            run = _NextSequence(producer_id, epoch, 0)
        batch.producer_id, batch.producer_epoch, batch.base_sequence = run
        self._runs[batch.place] = run._replace(next_sequence=(run.next_sequence + batch.count) & SEQUENCE_MASK)

    def take_back(self, batch: ProducerBatch) -> None:
        """The batch has certainly not been appended and will not be sent as it is: its numbers are free again."""
        run = self._runs.get(batch.place)
        if batch.base_sequence >= 0 and run is not None:
            if (run.producer_id, run.epoch) == (batch.producer_id, batch.producer_epoch):
                self._runs[batch.place] = run._replace(next_sequence=batch.base_sequence)
            batch.base_sequence = -1

    def forget(self, place: TopicPartition) -> None:
        """What the broker expects there is not known any more."""
        self._runs.pop(place, None)
