"""The state of a partition's producers as plain values (Kafka: ProducerStateEntry, ProducerAppendInfo).

The last five batches of each producer are stored to detect duplicates. An unknown producer may begin with any sequence
number (KIP-360); only older brokers return UNKNOWN_PRODUCER_ID.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Buffer
from ...message.batch_header import TRANSACTIONAL_BIT, BatchHeader, parse_header
from ..append_origin import AppendOrigin

_ENDED_MAX = 1024
"""Maximum number of ended transactions that are tracked one by one until their markers are replicated."""


class _Ended:
    """Ended transactions whose markers are not replicated, or not durable, yet."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: list[tuple[int, int]] = []
        """(offset of a marker, smallest first offset of those that end there or later), both ascending. A list: an
        empty deque takes 600 bytes, and every partition has two of these."""

    def add(self, first_offset: int, marker_offset: int) -> None:
        ended = self._ended
        while ended and ended[-1][1] >= first_offset:
            ended.pop()
        ended.append((marker_offset, first_offset))
        if len(ended) > _ENDED_MAX:
            self._merge()

    def first(self, arrived: int) -> int | None:
        """Return the first offset of them; markers below `arrived`, which never decreases, are complete."""
        ended = self._ended
        while ended and ended[0][0] < arrived:
            ended.pop(0)
        return ended[0][1] if ended else None

    def clear(self) -> None:
        self._ended.clear()

    def _merge(self) -> None:
        """Merge the older half into one entry that ends with its last marker, which is conservative."""
        ended = self._ended
        first_offset, marker = ended[0][1], 0
        for _ in range(_ENDED_MAX // 2):
            marker = ended.pop(0)[0]
        ended.insert(0, (marker, first_offset))


class OpenTransactions:
    """Open transactions, ordered by the offset of their first batch. Owner thread only."""

    __slots__ = ("_not_durable", "_not_replicated", "_open", "may_hold_back")

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()
        self._not_replicated = _Ended()
        self._not_durable = _Ended()
        self.may_hold_back = False
        """False if `first_unstable` is None, which saves the call in nearly every fetch."""

    def __len__(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    @property
    def first_offset(self) -> int | None:
        """First offset of the oldest open transaction, or None."""
        return next(iter(self._open)) if self._open else None

    @property
    def oldest(self) -> int | None:
        """Producer of the oldest open transaction, or None."""
        return next(iter(self._open.values())) if self._open else None

    def begun(self, first_offset: int, producer_id: int) -> None:
        """Add a transaction; transactions must be added in the order of their first offsets."""
        self._open[first_offset] = producer_id
        self.may_hold_back = True

    def ended(self, first_offset: int, marker_offset: int) -> None:
        """Note the marker of the transaction that began at `first_offset`; markers are added in order."""
        self._open.pop(first_offset, None)
        self.may_hold_back = True
        self._not_replicated.add(first_offset, marker_offset)
        self._not_durable.add(first_offset, marker_offset)

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not replicated.

        The high watermark never decreases except with `clear`.
        """
        first = self._first(self._not_replicated.first(high_watermark))
        self.may_hold_back = first is not None
        return first

    def first_not_durable(self, recovery_point: int) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not durable.

        The recovery point never decreases except with `clear`.
        """
        return self._first(self._not_durable.first(recovery_point))

    def _first(self, ended: int | None) -> int | None:
        if not self._open:
            return ended
        first = next(iter(self._open))
        return first if ended is None else min(first, ended)

    def clear(self) -> None:
        self.may_hold_back = False
        self._open.clear()
        self._not_replicated.clear()
        self._not_durable.clear()


SEQUENCE_MASK = 0x7FFFFFFF
"""After sequence 2^31-1 comes 0."""
IN_FLIGHT_MAX = 5
"""Maximum number of in-flight batches of a producer."""
PRODUCERS_MAX = 10_000
"""Maximum number of producers per partition without those in a transaction. Beyond it, the tenth that was idle longest
expires early."""
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
_CLIENT = AppendOrigin.CLIENT  # a member costs a tenth of a microsecond to look up
_VERSION_2 = AppendOrigin.TRANSACTION_VERSION_2


class SentBatch(NamedTuple):
    """A batch that was appended."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    """ms; with log-append time when it was appended."""


class ProducerStateEntry:
    """The state of one producer. It is a plain slotted class, since every batch changes it."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_sequence", "seen_ms", "txn_first_offset")

    def __init__(
        self,
        epoch: int,
        last_sequence: int,
        batches: tuple[SentBatch, ...],
        seen_ms: int,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.epoch = epoch
        self.last_sequence = last_sequence
        """Last sequence number; -1 before the first batch of the epoch."""
        self.batches = batches
        """Last batches of this epoch, oldest first."""
        self.seen_ms = seen_ms
        """Time of the last append, by the clock of the broker if known."""
        self.coordinator_epoch = coordinator_epoch
        """Coordinator epoch of the newest marker; -1 without one."""
        self.txn_first_offset = txn_first_offset
        """First offset of the open transaction; -1 without one."""


class RetriableRejection(NamedTuple):
    """The next batch of a producer, which was rejected with a retriable error."""

    epoch: int
    base_sequence: int
    code: ErrorCode
    """The retriable error."""


class EndedTransaction(NamedTuple):
    """A transaction ended by a marker, and the last stable offset after it."""

    first_offset: int
    last_stable_offset: int


class ProducerStates:
    """The producers of one partition. Owner thread only."""

    __slots__ = ("_limit", "_producers", "_rejected", "admitting", "open", "verifying")

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self._producers: dict[int, ProducerStateEntry] = {}
        self._rejected: dict[int, RetriableRejection] = {}
        self._limit = limit
        self.open = OpenTransactions()
        self.verifying: dict[int, None] = {}
        """Producers whose transaction is being verified; a marker removes them, since it ended the transaction.

        Dictionaries, since each partition has them, and an empty set takes 216 bytes."""
        self.admitting: dict[int, None] = {}
        """Producers whose transactional batches are being validated; a marker removes them too."""

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        """Return the producers by id."""
        return self._producers

    def check(self, header: BatchHeader, origin: AppendOrigin = _CLIENT) -> SentBatch | None:
        """Check a batch with a producer id: return None for a new batch, or the appended batch that it duplicates.

        Raises `ApiError`: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE for a batch outside
        of the open transaction, TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch without a transactional
        id, and for a batch after one that was rejected with a retriable error, the same error.
        """
        transactional = header.attributes & TRANSACTIONAL_BIT
        if transactional and origin is _CLIENT:
            text = "a batch of a transaction needs a transactional id in its request"
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        known = self._producers.get(header.producer_id)
        if self._rejected:
            self._check_rejected(header, known)
        if known is None:
            if origin is _VERSION_2 and header.base_sequence > 0:
                what = f"sequence {header.base_sequence} of producer {header.producer_id}, which must begin with 0"
                raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what)
            return None
        epoch, base = header.producer_epoch, header.base_sequence
        if epoch == known.epoch:
            if base != (known.last_sequence + 1) & SEQUENCE_MASK and base >= 0:
                last = header.last_sequence
                for batch in known.batches:
                    if batch[0] == base and batch[1] == last:
                        return batch
                what = f"sequence {base} of producer {header.producer_id}, epoch {epoch}, after {known.last_sequence}"
                raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what)
        elif epoch < known.epoch:
            raise _fenced(header.producer_id, epoch, known)
        elif base > 0:
            what = f"sequence {base} of producer {header.producer_id} where the new epoch {epoch} must begin with 0"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what)
        if known.txn_first_offset >= 0 and not transactional:
            text = f"producer {header.producer_id} is in a transaction, to which the batch does not belong"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, text)
        return None

    def reject_retriable(self, records: Buffer, code: ErrorCode) -> None:
        """Record a batch rejected with a retriable error; its producer will send it again.

        Later batches in flight are rejected with the same error until it has arrived. OUT_OF_ORDER_SEQUENCE_NUMBER
        would be correct as well, but librdkafka then begins a new epoch, in which appended batches without a response
        are unknown, and sends them twice. Without this record an unknown producer, which may begin with any sequence
        number, would begin with those later batches.
        """
        try:
            header = parse_header(records)
        except ApiError:
            return  # validation reports the error at the retry
        self.reject_batch_retriable(header, code)

    def reject_batch_retriable(self, header: BatchHeader, code: ErrorCode) -> None:
        """Record a rejected batch whose header alone is known (see `reject_retriable`)."""
        producer_id, epoch, base = header.producer_id, header.producer_epoch, header.base_sequence
        known, before = self._producers.get(producer_id), self._rejected.get(producer_id)
        if producer_id < 0 or base < 0 or not _is_next(known, epoch, base):
            return
        if known is None and before is not None and before.epoch == epoch and _is_behind(base, before.base_sequence):
            return  # an unknown producer may begin anywhere: its first rejected batch counts
        if len(self._rejected) >= self._limit:
            self._rejected.clear()
        self._rejected[producer_id] = RetriableRejection(epoch, base, code)

    def _check_rejected(self, header: BatchHeader, known: ProducerStateEntry | None) -> None:
        rejected = self._rejected.get(header.producer_id)
        if rejected is None or header.producer_epoch < rejected.epoch:
            return
        epoch, base, code = rejected
        if header.producer_epoch != epoch or not _is_next(known, epoch, base):
            del self._rejected[header.producer_id]  # it has arrived, or will not
        elif _is_behind(header.base_sequence, base):
            text = f"sequence {base} of producer {header.producer_id} was rejected and must be retried first"
            raise ApiError(code, text)

    def update(self, header: BatchHeader, base_offset: int, seen_ms: int) -> None:
        """Update the producer after an append at `base_offset`."""
        base, delta, epoch = header.base_sequence, header.last_offset_delta, header.producer_epoch
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != epoch:
            known = self._renewed(header.producer_id, known, epoch, seen_ms)
        else:
            known.seen_ms = seen_ms
        if base >= 0:
            last = known.last_sequence = (base + delta) & SEQUENCE_MASK
            batch = SentBatch(base, last, base_offset, base_offset + delta, header.max_timestamp)
            known.batches = (*known.batches[1 - IN_FLIGHT_MAX :], batch)
        if header.attributes & TRANSACTIONAL_BIT and known.txn_first_offset < 0:
            known.txn_first_offset = base_offset
            self.open.begun(base_offset, header.producer_id)

    def _renewed(
        self, producer_id: int, known: ProducerStateEntry | None, epoch: int, seen_ms: int
    ) -> ProducerStateEntry:
        """Store the producer with a new epoch; an open transaction stays open until a marker ends it."""
        renewed = ProducerStateEntry(epoch, NO_SEQUENCE, (), seen_ms)
        if known is not None:
            renewed.coordinator_epoch, renewed.txn_first_offset = known.coordinator_epoch, known.txn_first_offset
        self.put(producer_id, renewed)
        return renewed

    # --- transactions

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction in this epoch."""
        known = self._producers.get(producer_id)
        return known is not None and known.txn_first_offset >= 0 and known.epoch == epoch

    def oldest_open_seen_ms(self) -> int | None:
        """Return the last append time of the producer of the oldest open transaction, or None."""
        oldest = self.open.oldest
        return None if oldest is None else self._producers[oldest].seen_ms

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, bumps_epoch: bool = False
    ) -> None:
        """Reject a marker with a stale producer epoch or coordinator epoch.

        `bumps_epoch`: in version 2 of transactions (KIP-890) a marker has the epoch after that of its transaction. With
        the epoch of the open transaction it is a repetition of the marker before.

        Raises `ApiError` INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return
        is_repeated = bumps_epoch and producer_epoch == known.epoch and known.txn_first_offset >= 0
        if producer_epoch < known.epoch or is_repeated:
            raise _fenced(producer_id, producer_epoch, known)
        if coordinator_epoch < known.coordinator_epoch:
            text = f"a marker of coordinator epoch {coordinator_epoch}; it has been at {known.coordinator_epoch}"
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)

    def end(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, offset: int, seen_ms: int
    ) -> EndedTransaction | None:
        """Apply the marker at `offset`; return the transaction that it ends, or None."""
        self.verifying.pop(producer_id, None)
        self.admitting.pop(producer_id, None)
        known = self._producers.get(producer_id)
        if known is None or known.epoch != producer_epoch:
            known = self._renewed(producer_id, known, producer_epoch, seen_ms)
        first_offset, known.txn_first_offset = known.txn_first_offset, NO_OFFSET
        known.coordinator_epoch, known.seen_ms = coordinator_epoch, seen_ms
        if first_offset < 0:
            return None
        self.open.ended(first_offset, offset)
        oldest = self.open.first_offset
        return EndedTransaction(first_offset, offset + 1 if oldest is None else oldest)

    # --- adding and expiring producers

    def put(self, producer_id: int, producer: ProducerStateEntry) -> None:
        """Store the state of a producer. A producer in a transaction never expires; new ones must be added in the
        order of their transactions' first offsets."""
        producers = self._producers
        producers[producer_id] = producer
        if producer.txn_first_offset >= 0:
            self.open.begun(producer.txn_first_offset, producer_id)
        if len(producers) - len(self.open) > self._limit:
            idle = [number for number, each in producers.items() if each.txn_first_offset < 0 and each is not producer]
            idle.sort(key=lambda number: producers[number].seen_ms)
            for number in idle[: max(1, self._limit // 10)]:
                del producers[number]

    def complete(self, earlier: "ProducerStates") -> None:
        """Add older batches to producers with only the last one."""
        for producer_id, known in self._producers.items():
            found = earlier.producers.get(producer_id)
            if found is not None and found.epoch == known.epoch and found.batches and known.batches:
                if found.batches[-1].last_offset != known.batches[-1].last_offset:
                    continue  # the batch was in a deleted segment
                known.batches = found.batches

    def expire(self, before_ms: int) -> int:
        """Remove idle producers without a transaction whose last append was before `before_ms`; return the count."""
        silent = [
            number
            for number, producer in self._producers.items()
            if producer.seen_ms <= before_ms and producer.txn_first_offset < 0
        ]
        for number in silent:
            del self._producers[number]
            self._rejected.pop(number, None)
        return len(silent)

    def keep_rejected(self, before: "ProducerStates") -> None:
        """Keep the rejected batches of a state that was read `before`: their producers will send them again."""
        self._rejected = before._rejected

    def clear(self) -> None:
        self._producers.clear()
        self._rejected.clear()
        self.open.clear()


def _is_next(known: ProducerStateEntry | None, epoch: int, base_sequence: int) -> bool:
    if known is None:
        return True
    if epoch == known.epoch:
        return base_sequence == (known.last_sequence + 1) & SEQUENCE_MASK
    return epoch > known.epoch and base_sequence == 0


def _is_behind(sequence: int, other: int) -> bool:
    """Return True if `sequence` follows `other`, within half of the sequence range."""
    return 0 < (sequence - other) & SEQUENCE_MASK < SEQUENCE_MASK >> 1


def _fenced(producer_id: int, epoch: int, known: ProducerStateEntry) -> ApiError:
    text = f"epoch {epoch} of producer {producer_id}; it has been at {known.epoch}"
    return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
