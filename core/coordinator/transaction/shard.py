"""The transactional ids of one broker: what `CoordinatorRuntime` does with them."""

from collections.abc import Callable

from ....ports.broker_api.transactions import TxnMarker
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.scheduler import Scheduler
from ...traffic.steps import StepRunner
from ..runtime import Append, CoordinatorRuntime
from .config import TransactionConfig
from .effects import Again, Effect, SendMarkers, StoreTransaction, TransactionAnswer, TransactionAsked
from .entry import TransactionEntry
from .loading import TransactionLoading
from .markers import MarkerSender
from .records import StoredTransaction, encode_key, encode_value
from .states import TransactionState
from .transactional_id import TransactionalId

_RETRY_MS = 100.0


class TransactionShard:
    """Executes the effects of transactional ids: responses, records of `__transaction_state`, markers, timers. Owner
    thread only."""

    def __init__(
        self,
        *,
        config: TransactionConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        leads: Callable[[int], bool],
        steps: StepRunner,
        report: Callable[[str], None],
        markers: MarkerSender,
        again: Callable[[TransactionAsked], None],
    ) -> None:
        """`again` handles a request that has waited."""
        self.runtime = CoordinatorRuntime[TransactionEntry, TransactionLoading, Effect](
            self,
            topic="__transaction_state",
            partition_count=partition_count,
            bad_key=ErrorCode.INVALID_REQUEST,
            leads=leads,
            clock=clock,
            scheduler=scheduler,
            append=append,
            steps=steps,
            report=report,
        )
        self.table = self.runtime.table
        self.config = config
        self.retrying = 0
        """The number of transactions that have ended and whose completion is not written yet."""
        self._markers = markers
        self._again = again
        self._coordinator_epochs: dict[int, int] = {}
        """The coordinator epoch of each partition: the leader epoch in which this broker leads it."""

    @property
    def now_ms(self) -> int:
        """The wall-clock time, which is in the records of transactions."""
        return self.runtime.clock.now_ms()

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int) -> TransactionEntry:
        """Add a new transactional id; an event of it must follow."""
        stored = StoredTransaction(producer_id=producer_id, producer_epoch=-1, timeout_ms=timeout_ms)
        return self._add(transactional_id, self.table.partition_of(transactional_id), stored)

    def _add(self, transactional_id: str, partition: int, stored: StoredTransaction) -> TransactionEntry:
        entry = TransactionEntry(
            transaction=TransactionalId(transactional_id, stored, self.config), partition=partition
        )
        self.table.add(entry)
        return entry

    def begin_load(self, partition: int, coordinator_epoch: int) -> TransactionLoading:
        """Start to load a partition that this broker leads in this epoch."""
        self._coordinator_epochs[partition] = coordinator_epoch
        return self.runtime.begin_load(TransactionLoading(partition))

    def restore(self, loading: TransactionLoading) -> None:
        """Add the ids of a partition that has been loaded, and complete the transactions that were decided."""
        if not self.runtime.finish_load(loading):
            return
        for transactional_id, stored in loading.stored.items():
            entry = self._add(transactional_id, loading.partition, stored)
            self.runtime.apply(entry, entry.transaction.resumed())

    # --- for the runtime

    def execute(self, entry: TransactionEntry, effect: Effect) -> None:
        """Send a response, write the transaction, send its markers, or handle a request that has waited."""
        if isinstance(effect, TransactionAnswer):
            self.runtime.respond(effect.asked.reply, effect.result)
        elif isinstance(effect, Again):
            self._again(effect.asked)
        elif not self.table.is_current(entry):
            pass  # the id has been removed since, and waiting requests have been answered
        elif isinstance(effect, StoreTransaction):
            self._store(entry, effect.value)
        elif isinstance(effect, SendMarkers):
            self._send_markers(entry, effect)
        else:
            self._complete_later(entry)

    def on_event(self, entry: TransactionEntry) -> None:
        """Remove an id without state, and bound the time for which a request waits."""
        transaction = entry.transaction
        if transaction.is_void:
            self.table.remove(entry)
        if entry.timed is transaction.waiting:
            return
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        entry.timed = transaction.waiting
        if entry.timed is not None:
            delay_ms = self.config.patience_ms
            entry.timer = self.runtime.scheduler.call_later(delay_ms, lambda: self._on_wait_timeout(entry))

    def size_of(self, entry: TransactionEntry) -> int:
        """Return the bytes of the transaction and its partitions."""
        return entry.transaction.size_bytes

    def on_unloaded(self, entry: TransactionEntry) -> None:
        """Stop to send markers, and answer requests that wait with NOT_COORDINATOR."""
        if entry.stop_marking is not None:
            entry.stop_marking()
            entry.stop_marking = None
        self.runtime.apply(entry, entry.transaction.die())

    # --- within

    def _on_wait_timeout(self, entry: TransactionEntry) -> None:
        entry.timer = None
        self.runtime.apply(entry, entry.transaction.give_up_waiting())

    def _store(self, entry: TransactionEntry, value: StoredTransaction | None) -> None:
        transaction = entry.transaction

        def done(error: ErrorCode) -> None:
            if self.table.is_current(entry):
                what = f"transactional id {transaction.transactional_id[:260]!r}"
                self.runtime.report_failed_write(what, entry.partition, error)
                self.runtime.apply(entry, transaction.written(error))

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
            self.runtime.write(entry.partition, [record], done)

    def _is_too_much(self, entry: TransactionEntry, value: StoredTransaction | None) -> bool:
        """Return whether the transaction would grow beyond the memory for all. One that exists may always end."""
        transaction = entry.transaction
        grows = transaction.stored.producer_epoch < 0 or (value is not None and value.state is TransactionState.ONGOING)
        if value is None or not grows:
            return False
        return not self.runtime.has_memory_for(entry, transaction.size_with(value), self.config.size_max_bytes)

    def _send_markers(self, entry: TransactionEntry, effect: SendMarkers) -> None:
        value = effect.value
        marker = TxnMarker(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            committed=value.state is TransactionState.PREPARE_COMMIT,
            partitions=sorted(value.partitions),
            coordinator_epoch=self._coordinator_epochs[entry.partition],
        )
        entry.stop_marking = self._markers.send(
            marker, lambda: self._on_markers_written(entry), is_resumed=effect.is_resumed
        )

    def _on_markers_written(self, entry: TransactionEntry) -> None:
        entry.stop_marking = None
        if self.table.is_current(entry):
            self.runtime.apply(entry, entry.transaction.marked(self.now_ms))

    def _complete_later(self, entry: TransactionEntry) -> None:
        self.retrying += 1

        def retry() -> None:
            self.retrying -= 1
            self._on_markers_written(entry)

        self.runtime.scheduler.call_later(_RETRY_MS, retry)
