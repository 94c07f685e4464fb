"""What a partition knows of its idempotent producers: the rules of facts B2 as plain values, without files.

Of each producer the last five batches are known, so that one of them that is sent again is recognised. A producer that
is not known may begin anywhere (KIP-360): UNKNOWN_PRODUCER_ID is an answer of older brokers.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ..message.batch_header import TRANSACTIONAL_BIT, BatchHeader

SEQUENCE_MASK = 0x7FFFFFFF
"""After sequence 2^31-1 comes 0."""
BATCHES_KEPT = 5
"""As many as a producer may have on their way."""
PRODUCERS_MAX = 10_000
"""Of one partition. Beyond, the tenth that has been silent for longest is forgotten, before its time."""
NO_SEQUENCE = -1


class SentBatch(NamedTuple):
    """A batch that was appended."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    """ms; with log-append time when it was appended."""


class ProducerStateEntry:
    """One producer. A plain slotted class: it is changed with every batch."""

    __slots__ = ("batches", "epoch", "last_sequence", "seen_ms")

    def __init__(self, epoch: int, last_sequence: int, batches: tuple[SentBatch, ...], seen_ms: int) -> None:
        self.epoch = epoch
        self.last_sequence = last_sequence
        """-1: its next batch of this epoch begins at 0."""
        self.batches = batches
        """Its last ones in this epoch, oldest first."""
        self.seen_ms = seen_ms
        """When it appended last, by the broker's clock as far as known."""


class ProducerStates:
    """The producers of one partition. Owner thread only."""

    __slots__ = ("_limit", "_producers")

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self._producers: dict[int, ProducerStateEntry] = {}
        self._limit = limit

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        """By producer id."""
        return self._producers

    def check(self, header: BatchHeader) -> SentBatch | None:
        """What a batch with a producer id is: None for the next one, or the appended batch that it repeats.

        Raises `ApiError`: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        if header.attributes & TRANSACTIONAL_BIT:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "this broker does not support transactions")
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        epoch, base = header.producer_epoch, header.base_sequence
        if epoch == known.epoch:
            if base == (known.last_sequence + 1) & SEQUENCE_MASK:
                return None
            last = header.last_sequence
            for batch in known.batches:
                if batch[0] == base and batch[1] == last:
                    return batch
            what = f"sequence {base} of producer {header.producer_id}, epoch {epoch}, after {known.last_sequence}"
        elif epoch < known.epoch:
            text = f"epoch {epoch} of producer {header.producer_id}; it has been at {known.epoch}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
        elif base == 0:
            return None
        else:
            what = f"sequence {base} of producer {header.producer_id} where the new epoch {epoch} must begin with 0"
        raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what)

    def note(self, header: BatchHeader, base_offset: int, seen_ms: int) -> None:
        """The batch has been appended at `base_offset`."""
        base, delta, epoch = header.base_sequence, header.last_offset_delta, header.producer_epoch
        last = (base + delta) & SEQUENCE_MASK
        batch = SentBatch(base, last, base_offset, base_offset + delta, header.max_timestamp)
        known = self._producers.get(header.producer_id)
        if known is not None and known.epoch == epoch:
            known.last_sequence = last
            known.batches = (*known.batches[1 - BATCHES_KEPT :], batch)
            known.seen_ms = seen_ms
        else:
            self.put(header.producer_id, ProducerStateEntry(epoch, last, (batch,), seen_ms))

    def put(self, producer_id: int, producer: ProducerStateEntry) -> None:
        """Let a producer be known, in place of what was known of it."""
        producers = self._producers
        producers[producer_id] = producer
        if len(producers) > self._limit:
            longest_silent = sorted(producers, key=lambda number: producers[number].seen_ms)
            for number in longest_silent[: max(1, self._limit // 10)]:
                del producers[number]

    def overlay(self, later: "ProducerStates") -> None:
        """Take in what was noted separately, of the batches right after those noted here."""
        for producer_id, new in later.producers.items():
            known = self._producers.get(producer_id)
            if known is not None and known.epoch == new.epoch:
                new.batches = (*known.batches, *new.batches)[-BATCHES_KEPT:]
            self.put(producer_id, new)

    def complete(self, earlier: "ProducerStates") -> None:
        """Learn older batches of producers of whom only the last one is known."""
        for producer_id, known in self._producers.items():
            found = earlier.producers.get(producer_id)
            if found is not None and found.epoch == known.epoch and found.batches and known.batches:
                if found.batches[-1].last_offset != known.batches[-1].last_offset:
                    continue  # it stands in a segment that is gone
                known.batches = found.batches

    def expire(self, before_ms: int) -> int:
        """Forget the producers that have been silent since `before_ms`; returns how many."""
        silent = [number for number, producer in self._producers.items() if producer.seen_ms <= before_ms]
        for number in silent:
            del self._producers[number]
        return len(silent)

    def clear(self) -> None:
        self._producers.clear()
