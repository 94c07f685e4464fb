"""One transactional id as a state machine: its producer and its current transaction (KIP-98, KIP-360, KIP-890).

A producer of version 2 gets the next epoch with each end of a transaction. So what is late, a batch or a marker, has an
epoch that is over, and cannot be taken for a part of the next transaction.
"""

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from ....ports.broker_api.producers import InitProducerId, InitProducerIdResult
from ....ports.broker_api.transactions import EPOCH_BUMP, AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, EndTxnResult
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..runtime import write_error
from .config import TransactionConfig
from .effects import (
    Effects,
    HandleAgain,
    RetryMarked,
    SendMarkers,
    StoreTransaction,
    TransactionAnswer,
    TransactionAsked,
)
from .records import NO_ID, NO_PARTITIONS, StoredTransaction
from .states import ENDS_IN_VERSION_2, TRANSITIONS, Event, TransactionState

LAST_EPOCH = 2**15 - 2
"""The last epoch that a producer gets: one more remains for fencing it."""
NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
_ID_BYTES, _PARTITION_BYTES = 1000, 120


@frozen(kw_only=True, eq=False)
class Pending:
    """A state that is being written. `last_id` and `last_epoch` are the previous identity, if a producer may still use
    it in InitProducerId."""

    value: StoredTransaction | None
    asked: TransactionAsked | None = None
    result: Any = None
    last_id: int = -1
    last_epoch: int = -1


class TransactionalId:
    """A state machine that takes events with the wall-clock time and returns effects. No change counts before it is in
    the log.

    One write is pending at a time. A request that comes meanwhile, or while the previous transaction is being ended,
    waits, at most one and at most `patience_ms`; others get CONCURRENT_TRANSACTIONS. (Kafka answers so at once, so that
    a quick producer spends most of its time in the pauses between two attempts.)

    stored:     the state in the log; an epoch of -1: there is none yet.
    pending:    the state that is being written.
    waiting:    the request that waits for it.
    last_id, last_epoch: the identity of the producer before its last epoch bump, whose answer may have been lost
                (KIP-360).
    ends_alone: the last write has failed, perhaps because what begins next is too large for the log or the memory: the
                end is written without it.
    is_marked:  all partitions have their markers, and the completion waits for what begins next: both are one batch
                then. The driver calls `complete` after `completion_delay_ms`.
    """

    __slots__ = (
        "config",
        "ends_alone",
        "is_marked",
        "last_epoch",
        "last_id",
        "pending",
        "stored",
        "transactional_id",
        "waiting",
    )

    def __init__(self, transactional_id: str, stored: StoredTransaction, config: TransactionConfig) -> None:
        self.transactional_id = transactional_id
        self.stored = stored
        self.config = config
        self.pending: Pending | None = None
        self.waiting: TransactionAsked | None = None
        self.last_id = self.last_epoch = -1
        self.ends_alone = self.is_marked = False

    @property
    def state(self) -> TransactionState:
        return self.stored.state

    @property
    def is_void(self) -> bool:
        """True if nothing of it is stored or being written."""
        return self.stored.producer_epoch < 0 and self.pending is None

    @property
    def size_bytes(self) -> int:
        """The memory of the id, roughly."""
        return self.size_with(self.stored)

    def size_with(self, stored: StoredTransaction) -> int:
        """Return the memory of the id with this state."""
        return _ID_BYTES + len(self.transactional_id) + _PARTITION_BYTES * len(stored.partitions)

    # --- the producer's identity

    def wants_fresh_id(self, request: InitProducerId | EndTxn) -> bool:
        """Return True if the request needs a new producer id, because the present one has no epochs left."""
        epoch = self.stored.producer_epoch
        if isinstance(request, EndTxn):
            is_last = request.supports_epoch_bump and epoch == request.producer_epoch == LAST_EPOCH
            return is_last and self.pending is None and not self.state.is_decided
        # A producer whose id was fenced with the epoch after the last one still has the last one.
        mine = (-1, epoch) if epoch <= LAST_EPOCH else (-1, epoch, self.last_epoch)
        return self.pending is None and self.state.is_idle and epoch >= LAST_EPOCH and request.producer_epoch in mine

    def init(self, asked: TransactionAsked, request: InitProducerId, now_ms: int, fresh_id: int = -1) -> Effects:
        """Give a producer its identity and fence the previous one. `fresh_id` is needed where `wants_fresh_id`."""
        stored, knows = self.stored, request.producer_id >= 0
        follows = TRANSITIONS[self.state, Event.INIT]
        if self.pending is not None or follows is CONCURRENT:
            return self._wait(asked, now_ms)
        if knows and not self._may_be(request.producer_id, request.producer_epoch):
            return _refused(asked, ErrorCode.PRODUCER_FENCED)
        if follows is TransactionState.PREPARE_ABORT:
            if knows and request.producer_epoch != stored.producer_epoch:
                return _refused(asked, ErrorCode.PRODUCER_FENCED)
            self.waiting = asked
            return self._fence(now_ms, last_epoch=stored.producer_epoch if knows else -1)
        producer_id, epoch, last_epoch = stored.producer_id, stored.producer_epoch + 1, -1
        if self.wants_fresh_id(request):
            producer_id, epoch, last_epoch = fresh_id, 0, request.producer_epoch
        elif knows and stored.producer_epoch in (-1, request.producer_epoch):
            last_epoch = stored.producer_epoch
        elif knows and request.producer_epoch == self.last_epoch:  # the answer to its first attempt was lost
            epoch, last_epoch = stored.producer_epoch, self.last_epoch
        elif knows:
            return _refused(asked, ErrorCode.PRODUCER_FENCED)
        is_same = producer_id == stored.producer_id
        after = StoredTransaction(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=request.transaction_timeout_ms,
            updated_ms=now_ms,
            previous_producer_id=stored.previous_producer_id if is_same else stored.producer_id,
        )
        return self._store(
            Pending(
                value=after,
                asked=asked,
                result=InitProducerIdResult(producer_id=producer_id, producer_epoch=epoch),
                last_id=self.last_id if is_same else stored.producer_id,
                last_epoch=last_epoch,
            )
        )

    def _may_be(self, producer_id: int, epoch: int) -> bool:
        """Return True if this producer id and epoch may be those of the last producer that was answered."""
        stored = self.stored
        is_last = producer_id in (self.last_id, stored.previous_producer_id) and epoch >= LAST_EPOCH
        return stored.producer_epoch < 0 or producer_id == stored.producer_id or is_last

    def _fence(self, now_ms: int, last_epoch: int = -1) -> Effects:
        """Abort the transaction with an epoch that the producer does not have."""
        after = evolve(
            self.stored,
            producer_epoch=self.stored.producer_epoch + 1,
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
        )
        return self._store(Pending(value=after, last_epoch=last_epoch))

    # --- the transaction

    def identity_error(self, producer_id: int, epoch: int) -> ErrorCode:
        """Return NONE for the producer that has this id now, else the error."""
        return _identity_error(self.stored, producer_id, epoch)

    def add(
        self,
        asked: TransactionAsked,
        request: AddPartitionsToTxn | AddOffsetsToTxn,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> Effects:
        """Add partitions to the transaction; the first ones begin it."""
        stored, version_2 = self.stored, isinstance(request, AddPartitionsToTxn) and request.supports_epoch_bump
        is_busy = self.pending is not None or TRANSITIONS[self.state, Event.ADD] is CONCURRENT
        if is_busy and version_2:  # the producer may have an identity already that comes with the end of the markers
            return self._wait(asked, now_ms)
        error = self.identity_error(request.producer_id, request.producer_epoch)
        if error is not NONE:
            return _refused(asked, error)
        if is_busy:
            return self._wait(asked, now_ms)
        wanted = frozenset(partitions)
        if self.state is TransactionState.ONGOING and wanted <= stored.partitions:
            return [TransactionAnswer(asked, asked.request.answer(NONE))]
        after = _with_partitions(stored, wanted, now_ms, is_version_2=version_2)
        return self._store(Pending(value=after, asked=asked, result=asked.request.answer(NONE)))

    def verified(self, request: AddPartitionsToTxn) -> list[ErrorCode]:
        """Return for each partition of the request NONE if it belongs to the transaction, else the error."""
        error = self.identity_error(request.producer_id, request.producer_epoch)
        if error is NONE and self.state.is_decided:
            error = CONCURRENT
        if error is not NONE:
            return [error] * len(request.partitions)
        here = self.stored.partitions
        return [NONE if each in here else ErrorCode.INVALID_TXN_STATE for each in request.partitions]

    def end(self, asked: TransactionAsked, request: EndTxn, now_ms: int, fresh_id: int = NO_ID) -> Effects:
        """Commit or abort the transaction for its producer. `fresh_id` is needed where `wants_fresh_id`."""
        event = Event.COMMIT if request.committed else Event.ABORT
        if request.supports_epoch_bump:
            return self._end_with_epoch_bump(asked, request, event, now_ms, fresh_id)
        error = self.identity_error(request.producer_id, request.producer_epoch)
        if error is not NONE:
            return _refused(asked, error)
        follows = TRANSITIONS[self.state, event]
        if self.pending is not None or follows is CONCURRENT:
            return self._wait(asked, now_ms)
        if isinstance(follows, ErrorCode):
            return _refused(asked, follows)
        after = evolve(self.stored, state=follows, updated_ms=now_ms, client_transaction_version=0)
        return self._store(Pending(value=after, asked=asked, result=request.answer(NONE)))

    def _end_with_epoch_bump(
        self, asked: TransactionAsked, request: EndTxn, event: Event, now_ms: int, fresh_id: int
    ) -> Effects:
        stored = self.stored
        if self.pending is not None or self.state.is_decided:
            return self._wait(asked, now_ms)
        if self._repeats_end(request):
            follows = TRANSITIONS[self.state, event]
            if follows is not NONE:
                return _refused(asked, ErrorCode.INVALID_TXN_STATE)
            return [TransactionAnswer(asked, _next_identity(stored.producer_id, stored.producer_epoch))]
        error = self.identity_error(request.producer_id, request.producer_epoch)
        if error is NONE and request.producer_epoch > LAST_EPOCH:
            error = ErrorCode.PRODUCER_FENCED  # no producer has got it
        if error is not NONE:
            return _refused(asked, error)
        follows = ENDS_IN_VERSION_2[self.state, event]
        if isinstance(follows, ErrorCode):
            return _refused(asked, follows)
        is_exhausted = stored.producer_epoch >= LAST_EPOCH
        after = evolve(
            stored,
            producer_epoch=stored.producer_epoch + 1,
            next_producer_id=fresh_id if is_exhausted else NO_ID,
            state=follows,
            updated_ms=now_ms,
            started_ms=now_ms if self.state.is_idle else stored.started_ms,
            client_transaction_version=EPOCH_BUMP,
        )
        result = (
            _next_identity(fresh_id, 0) if is_exhausted else _next_identity(stored.producer_id, after.producer_epoch)
        )
        return self._store(Pending(value=after, asked=asked, result=result, last_epoch=stored.producer_epoch))

    def _repeats_end(self, request: EndTxn) -> bool:
        """Return True if the request repeats an EndTxn that was done, whose answer the producer did not get."""
        stored = self.stored
        if self.state is TransactionState.EMPTY or not self.state.is_idle or not stored.supports_epoch_bump:
            return False
        if request.producer_id == stored.producer_id:
            return request.producer_epoch + 1 == stored.producer_epoch <= LAST_EPOCH
        is_previous = request.producer_id == stored.previous_producer_id and request.producer_epoch == LAST_EPOCH
        return is_previous and stored.producer_epoch == 0

    def time_out(self, now_ms: int) -> Effects:
        """Abort a transaction that has lasted too long; its producer is fenced."""
        stored = self.stored
        if self.pending is not None or (self.state, Event.TIME_OUT) not in TRANSITIONS:
            return []
        return self._fence(now_ms) if stored.started_ms + stored.timeout_ms < now_ms else []

    def marked(self, now_ms: int) -> Effects:
        """Complete the transaction, all of whose partitions have their markers: with the request that waits, with
        the next one, or after a short delay.

        Partitions that begin the next transaction come into the same batch: a second write would cost a quick producer
        the same time once more. Until then the log has the decision, and another coordinator sends the markers again.
        """
        if self.pending is not None or not self.state.is_decided:
            return []
        self.is_marked = True
        return [] if self.waiting is None else self.complete(now_ms)

    def complete(self, now_ms: int) -> Effects:
        """Write that the transaction has ended, if all partitions have their markers."""
        follows = TRANSITIONS.get((self.state, Event.MARKED))
        if not self.is_marked or not isinstance(follows, TransactionState):
            return []
        self.is_marked = False
        stored, last_id = self.stored, self.last_id
        after = evolve(stored, state=follows, partitions=NO_PARTITIONS, updated_ms=now_ms)
        if stored.next_producer_id != NO_ID:
            last_id = stored.producer_id
            after = evolve(
                after,
                producer_id=stored.next_producer_id,
                producer_epoch=0,
                previous_producer_id=stored.producer_id,
                next_producer_id=NO_ID,
            )
        return self._begin_next(after, now_ms) or self._store(
            Pending(value=after, last_id=last_id, last_epoch=self.last_epoch)
        )

    def _begin_next(self, completed: StoredTransaction, now_ms: int) -> Effects:
        """Write the end of a transaction and the beginning of the next one together, if that is what waits."""
        asked = self.waiting
        if self.ends_alone or asked is None or not isinstance(request := asked.request, AddPartitionsToTxn):
            return []
        if _identity_error(completed, request.producer_id, request.producer_epoch) is not NONE:
            return []
        self.waiting = None
        wanted = frozenset(request.partitions)
        value = _with_partitions(completed, wanted, now_ms, is_version_2=request.supports_epoch_bump)
        return self._store(Pending(value=value, asked=asked, result=request.answer(NONE)), before=completed)

    def expire(self, now_ms: int) -> Effects:
        """Forget an id that was not used for `id_expiration_ms`."""
        is_old = self.stored.updated_ms + self.config.id_expiration_ms <= now_ms
        if self.pending is not None or not self.state.is_idle or not is_old:
            return []
        return self._store(Pending(value=None))

    def resumed(self) -> Effects:
        """Resume an id that was just read from the log: send the markers if its end is decided."""
        return [SendMarkers(self.stored, is_resumed=True)] if self.state.is_decided else []

    # --- the log

    def written(self, error: ErrorCode) -> Effects:
        """Handle the end of a write: the state is in the log (NONE), or it may not be."""
        pending, self.pending = self.pending, None
        if pending is None:
            return []
        asked = pending.asked
        self.ends_alone = error is not NONE
        if error is not NONE:
            answer_error = write_error(error, ErrorCode.UNKNOWN_SERVER_ERROR)
            answers: Effects = [] if asked is None else [TransactionAnswer(asked, asked.request.answer(answer_error))]
            # The waiting request fails, too: handled now, it would write again at once, as long as the log fails.
            return answers + ([RetryMarked()] if self.state.is_decided else self.give_up_waiting(answer_error))
        if pending.value is None:
            self.stored = evolve(self.stored, producer_epoch=-1)
            return self._next()
        self.stored, self.last_id, self.last_epoch = pending.value, pending.last_id, pending.last_epoch
        effects: Effects = [] if asked is None else [TransactionAnswer(asked, pending.result)]
        return effects + ([SendMarkers(self.stored)] if self.state.is_decided else self._next())

    def give_up_waiting(self, error: ErrorCode = CONCURRENT) -> Effects:
        """Refuse the request that waits."""
        asked, self.waiting = self.waiting, None
        return [] if asked is None else _refused(asked, error)

    def die(self) -> Effects:
        """Refuse all requests with NOT_COORDINATOR: another broker coordinates the id."""
        pending, self.pending = self.pending, None
        self.is_marked = False
        asked = None if pending is None else pending.asked
        answers = [] if asked is None else _refused(asked, ErrorCode.NOT_COORDINATOR)
        return answers + self.give_up_waiting(ErrorCode.NOT_COORDINATOR)

    # --- within

    def _store(self, pending: Pending, *, before: StoredTransaction | None = None) -> Effects:
        self.pending = pending
        return [StoreTransaction(pending.value, before)]

    def _wait(self, asked: TransactionAsked, now_ms: int) -> Effects:
        if self.waiting is not None:
            return _refused(asked, CONCURRENT)
        self.waiting = asked
        return self.complete(now_ms)

    def _next(self) -> Effects:
        asked, self.waiting = self.waiting, None
        return [] if asked is None else [HandleAgain(asked)]


def _identity_error(stored: StoredTransaction, producer_id: int, epoch: int) -> ErrorCode:
    if producer_id != stored.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return NONE if 0 <= epoch == stored.producer_epoch else ErrorCode.PRODUCER_FENCED


def _with_partitions(
    stored: StoredTransaction, wanted: frozenset[TopicPartition], now_ms: int, *, is_version_2: bool
) -> StoredTransaction:
    """Return the state of the transaction with these partitions; of the next one where the last one has ended."""
    is_ongoing = stored.state is TransactionState.ONGOING
    return evolve(
        stored,
        state=TransactionState.ONGOING,
        partitions=stored.partitions | wanted,
        updated_ms=now_ms,
        started_ms=stored.started_ms if is_ongoing else now_ms,
        client_transaction_version=EPOCH_BUMP if is_version_2 else 0,
    )


def _refused(asked: TransactionAsked, error: ErrorCode) -> Effects:
    return [TransactionAnswer(asked, asked.request.answer(error))]


def _next_identity(producer_id: int, producer_epoch: int) -> EndTxnResult:
    return EndTxnResult(producer_id=producer_id, producer_epoch=producer_epoch)
