"""Carries out what transactional ids want done: answers, writes to `__transaction_state`, markers, timers."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ....ports.broker_api.transactions import TxnMarker
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.scheduler import Scheduler
from ..log import Record
from .config import TransactionConfig
from .effects import Again, Effect, Effects, SendMarkers, StoreTransaction, TransactionAnswer, TransactionAsked
from .entry import TransactionEntry, TransactionTable
from .loading import TransactionLoading
from .markers import MarkerSender
from .records import StoredTransaction, encode_key, encode_value
from .states import TransactionState
from .transactional_id import TransactionalId

Append = Callable[[int, Sequence[Record], Callable[[ErrorCode], None]], None]
"""Append these records to that partition of `__transaction_state`, as `CoordinatorLog.append` does."""

_RETRY_MS = 100.0


class TransactionRuntime:
    """The transactional ids of one broker, and the hands that they have. Owner thread only."""

    def __init__(
        self,
        *,
        config: TransactionConfig,
        table: TransactionTable,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        markers: MarkerSender,
        again: Callable[[TransactionAsked], None],
        report: Callable[[str], None],
    ) -> None:
        """`again` handles a request that has waited."""
        self.config = config
        self.table = table
        self.epochs: dict[int, int] = {}
        """The coordinator epoch of each partition: the leader epoch in which it is led here."""
        self.clock = clock
        self.scheduler = scheduler
        self._append = append
        self._markers = markers
        self._again = again
        self.report = report
        self.size_bytes = 0
        """What all ids take, roughly."""
        self.retrying = 0
        """How many transactions have ended, and wait for that to be written."""
        self._waiting: deque[tuple[TransactionEntry, Effect]] = deque()
        self._is_busy = False

    @property
    def now_ms(self) -> int:
        """The time of transactions, which is in their records: the wall clock's."""
        return self.clock.now_ms()

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int) -> TransactionEntry:
        """An id that nobody has used; `drive` is to follow."""
        stored = StoredTransaction(producer_id=producer_id, producer_epoch=-1, timeout_ms=timeout_ms)
        return self._add(transactional_id, self.table.partition_of(transactional_id), stored)

    def _add(self, transactional_id: str, partition: int, stored: StoredTransaction) -> TransactionEntry:
        entry = TransactionEntry(
            transaction=TransactionalId(transactional_id, stored, self.config), partition=partition
        )
        self.table.add(entry)
        return entry

    def drive(self, entry: TransactionEntry, effects: Effects) -> None:
        """Carry out what an event has led to, in the order in which things came up, also when one leads to others."""
        self._settle(entry)
        self._waiting.extend((entry, effect) for effect in effects)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._waiting:
                self._carry_out(*self._waiting.popleft())
        finally:
            self._is_busy = False

    def restore(self, loading: TransactionLoading) -> None:
        """A partition is read: its ids are here from now on, and what was decided is carried out."""
        if not self.table.finish(loading):
            return
        text = loading.report()
        if text is not None:
            self.report(text)
        for transactional_id, stored in loading.stored.items():
            entry = self._add(transactional_id, loading.partition, stored)
            self.drive(entry, entry.transaction.resumed())

    def end(self, entry: TransactionEntry) -> None:
        """The id, which is not in the table any more, is coordinated elsewhere."""
        if entry.stop_marking is not None:
            entry.stop_marking()
            entry.stop_marking = None
        self.drive(entry, entry.transaction.die())

    def answer(self, to: Callable[[Any], None], result: Any) -> None:
        """Give an answer. That it cannot be taken is the asker's trouble: others wait for theirs."""
        try:
            to(result)
        except Exception as error:  # noqa: BLE001  reported; the event belongs to somebody else
            self.report(f"an answer about a transaction failed: {type(error).__name__}: {error}")

    # --- within

    def _settle(self, entry: TransactionEntry) -> None:
        """After any change: count it, let who waits not wait for ever; drop it when there is nothing."""
        transaction = entry.transaction
        if transaction.is_void:
            self.table.remove(entry)
        is_here = self.table.get(transaction.transactional_id) is entry
        size_bytes = transaction.size_bytes if is_here else 0
        self.size_bytes += size_bytes - entry.size_bytes
        entry.size_bytes = size_bytes
        if entry.timed is transaction.waiting:
            return
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        entry.timed = transaction.waiting
        if entry.timed is not None:
            entry.timer = self.scheduler.call_later(self.config.patience_ms, lambda: self._give_up_waiting(entry))

    def _give_up_waiting(self, entry: TransactionEntry) -> None:
        entry.timer = None
        self.drive(entry, entry.transaction.give_up_waiting())

    def _carry_out(self, entry: TransactionEntry, effect: Effect) -> None:
        is_here = self.table.get(entry.transaction.transactional_id) is entry
        if isinstance(effect, TransactionAnswer):
            self.answer(effect.asked.reply, effect.result)
        elif isinstance(effect, Again):
            self._again(effect.asked)
        elif not is_here:
            pass  # it came to its end before its turn, when who waits was told
        elif isinstance(effect, StoreTransaction):
            self._store(entry, effect.value)
        elif isinstance(effect, SendMarkers):
            self._send_markers(entry, effect)
        else:
            self._mark_later(entry)

    def _store(self, entry: TransactionEntry, value: StoredTransaction | None) -> None:
        transaction = entry.transaction

        def done(error: ErrorCode) -> None:
            if self.table.get(transaction.transactional_id) is not entry:
                return
            if error not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                what = f"__transaction_state-{entry.partition}: transactional id {transaction.transactional_id[:260]!r}"
                self.report(f"{what} could not be written: {error.name}")
            self.drive(entry, transaction.written(error))

        try:
            record = encode_key(transaction.transactional_id), None if value is None else encode_value(value)
        except ApiError as error:
            done(error.code)
            return
        if record[1] is not None and len(record[1]) > self.config.record_max_bytes:
            done(ErrorCode.MESSAGE_TOO_LARGE)
        elif self._is_too_much(entry, value):
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._append(entry.partition, [record], done)

    def _is_too_much(self, entry: TransactionEntry, value: StoredTransaction | None) -> bool:
        """What is there may end; nothing more may begin when the memory for all is used up."""
        transaction = entry.transaction
        grows = transaction.stored.producer_epoch < 0 or (value is not None and value.state is TransactionState.ONGOING)
        if value is None or not grows:
            return False
        return self.size_bytes - entry.size_bytes + transaction.size_with(value) > self.config.size_max_bytes

    def _send_markers(self, entry: TransactionEntry, effect: SendMarkers) -> None:
        value = effect.value
        marker = TxnMarker(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            committed=value.state is TransactionState.PREPARE_COMMIT,
            partitions=sorted(value.partitions),
            coordinator_epoch=self.epochs[entry.partition],
        )
        entry.stop_marking = self._markers.send(marker, lambda: self._marked(entry), is_resumed=effect.is_resumed)

    def _marked(self, entry: TransactionEntry) -> None:
        entry.stop_marking = None
        if self.table.get(entry.transaction.transactional_id) is entry:
            self.drive(entry, entry.transaction.marked(self.now_ms))

    def _mark_later(self, entry: TransactionEntry) -> None:
        self.retrying += 1

        def again() -> None:
            self.retrying -= 1
            self._marked(entry)

        self.scheduler.call_later(_RETRY_MS, again)
