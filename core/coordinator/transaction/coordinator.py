"""The transaction coordinator: transactional ids decide on requests, and the results go to the log and partitions."""

from collections.abc import Callable, Sequence

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.groups import PartitionOutcome
from ....ports.broker_api.producers import InitProducerId, InitProducerIdResult
from ....ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResult,
    EndTxn,
    EndTxnResult,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResult,
    TxnMarker,
)
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.report import info
from ....ports.scheduler import Scheduler, Timer
from ....ports.types import TopicPartition
from ....ports.values import define
from ...cluster.topics import INTERNAL_TOPICS
from ...traffic.steps import StepRunner, Steps
from ..runtime import Append, CoordinatorRuntime
from ..table import CoordinatorTable
from .config import TransactionConfig
from .effects import Effect, Effects, HandleAgain, SendMarkers, StoreTransaction, TransactionAnswer, TransactionAsked
from .loading import TransactionLoading
from .markers import MarkerSender
from .records import StoredTransaction, encode_key, encode_value
from .states import TransactionState
from .transactional_id import TransactionalId

FreshId = Callable[[Callable[[int | None], None]], None]
"""Call back with a producer id that no producer has, at once or later; None: none is available now."""

_LOOK_AT_ONCE = 1000
"""The number of ids that are checked for timeouts in one step, before other work gets its turn."""


# ListTransactions and DescribeTransactions: answers built in steps, since they may be large.

_IDS_PER_STEP = 64
_WORDS = {state.word for state in TransactionState}


# One transactional id of a coordinator, with its timer and its marker sending.


@define(kw_only=True, eq=False)
class TransactionEntry:
    """A transactional id as the coordinator holds it: `partition` is that of `__transaction_state` which stores it. The
    timer is for the request that waits (`timed`), `completion_timer` for a completion that waits for one."""

    transaction: TransactionalId
    partition: int
    size_bytes: int = 0
    """The memory of the id, as counted so far."""
    timer: Timer | None = None
    timed: TransactionAsked | None = None
    completion_timer: Timer | None = None
    stop_marking: Callable[[], None] | None = None
    """Ends the sending of markers; None while none are being sent."""

    @property
    def key(self) -> str:
        return self.transaction.transactional_id


TransactionTable = CoordinatorTable[TransactionEntry, TransactionLoading]


def list_transactions(table: TransactionTable, request: ListTransactions, now_ms: int) -> Steps[ListTransactionsResult]:
    """Return the transactions that pass all filters; while a partition is being loaded, only
    COORDINATOR_LOAD_IN_PROGRESS."""
    if table.is_loading:
        return ListTransactionsResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = None
        if request.pattern:
            from ..regular_expression import RegularExpression

            pattern = RegularExpression(request.pattern)
    except ApiError as error:
        return ListTransactionsResult(error=error.code)
    unknown = [state for state in request.states if state not in _WORDS]
    states, producer_ids = frozenset(request.states), frozenset(request.producer_ids)
    listed = []
    for number, entry in enumerate(tuple(table), 1):
        stored = entry.transaction.stored
        if (
            stored.producer_epoch >= 0
            and (not states or stored.state.word in states)
            and (not producer_ids or stored.producer_id in producer_ids)
            and _lasts(stored, request.duration_ms, now_ms)
            and (pattern is None or (yield from pattern.matches(entry.transaction.transactional_id)))
        ):
            listed.append(
                ListedTransaction(
                    transactional_id=entry.transaction.transactional_id,
                    producer_id=stored.producer_id,
                    state=stored.state.word,
                )
            )
        if not number % _IDS_PER_STEP:
            yield None
    return ListTransactionsResult(transactions=listed, unknown_states=unknown)


def _lasts(stored: StoredTransaction, duration_ms: int, now_ms: int) -> bool:
    """Return True if the transaction is ongoing for longer than `duration_ms`; a negative one accepts all."""
    return duration_ms < 0 or (not stored.state.is_idle and now_ms - stored.started_ms > duration_ms)


def describe_transactions(table: TransactionTable, request: DescribeTransactions) -> Steps[DescribeTransactionsResult]:
    """Describe each transactional id of a request once."""
    described = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        described.append(_described(table, transactional_id))
        yield None
    return DescribeTransactionsResult(transactions=described)


def _described(table: TransactionTable, transactional_id: str) -> DescribedTransaction:
    error = table.check_key(transactional_id)
    entry = table.get(transactional_id) if error is ErrorCode.NONE else None
    if entry is None or entry.transaction.stored.producer_epoch < 0:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if error is ErrorCode.NONE else error
        return DescribedTransaction(transactional_id=transactional_id, error=error)
    stored = entry.transaction.stored
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(stored.partitions):
        topics.setdefault(topic, []).append(number)
    return DescribedTransaction(
        transactional_id=transactional_id,
        state=stored.state.word,
        timeout_ms=stored.timeout_ms,
        start_ms=stored.started_ms,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        topics=topics,
    )


# The transactional ids of one broker: what `CoordinatorRuntime` does with them.

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
        transaction_version: Callable[[], int],
    ) -> None:
        """`again` handles a request that has waited; `transaction_version` returns the level of that feature."""
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
        self._transaction_version = transaction_version
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
        elif isinstance(effect, HandleAgain):
            self._again(effect.asked)
        elif not self.table.is_current(entry):
            pass  # the id has been removed since, and waiting requests have been answered
        elif isinstance(effect, StoreTransaction):
            self._store(entry, effect.value, effect.before)
        elif isinstance(effect, SendMarkers):
            self._send_markers(entry, effect)
        else:
            self._complete_later(entry)

    def on_event(self, entry: TransactionEntry) -> None:
        """Remove an id without state, and bound the time for which a request waits, or a completion for a request."""
        transaction = entry.transaction
        if transaction.is_void:
            self.table.remove(entry)
        if transaction.is_marked:
            if entry.completion_timer is None:
                delay_ms = self.config.completion_delay_ms
                entry.completion_timer = self.runtime.scheduler.call_later(delay_ms, lambda: self._complete(entry))
        elif entry.completion_timer is not None:
            entry.completion_timer.cancel()
            entry.completion_timer = None
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

    def _complete(self, entry: TransactionEntry) -> None:
        entry.completion_timer = None
        self.runtime.apply(entry, entry.transaction.complete(self.now_ms))

    def _store(
        self, entry: TransactionEntry, value: StoredTransaction | None, before: StoredTransaction | None
    ) -> None:
        transaction = entry.transaction

        def done(error: ErrorCode) -> None:
            if self.table.is_current(entry):
                what = f"transactional id {transaction.transactional_id[:260]!r}"
                self.runtime.report_failed_write(what, entry.partition, error)
                self.runtime.apply(entry, transaction.written(error))

        try:
            key, version = encode_key(transaction.transactional_id), self._transaction_version()
            content = None if value is None else encode_value(value, version)
            records = [(key, content)]
            if before is not None:
                records.insert(0, (key, encode_value(before, version)))
        except ApiError as error:
            done(error.code)
            return
        if content is not None and len(content) > self.config.record_max_bytes:
            done(ErrorCode.MESSAGE_TOO_LARGE)
        elif self._is_too_much(entry, value):
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.runtime.write(entry.partition, records, done)

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
            transaction_version=value.client_transaction_version,
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


class TransactionCoordinator:
    """The handlers take `(request, caller, reply)` as in every service, and reply exactly once. Owner thread only.

    A partition of `__transaction_state` that this broker comes to lead goes through `begin_load`, then `loaded`; one
    that it no longer leads through `unload`. Requests of its ids get NOT_COORDINATOR before `begin_load`, and
    COORDINATOR_LOAD_IN_PROGRESS from there to `loaded`.
    """

    def __init__(
        self,
        *,
        config: TransactionConfig,
        partition_count: int,
        clock: Clock,
        scheduler: Scheduler,
        append: Append,
        markers: MarkerSender,
        fresh_id: FreshId,
        refusal: Callable[[TopicPartition], ErrorCode],
        offsets_partition: Callable[[str], TopicPartition | None],
        leads: Callable[[int], bool],
        steps: StepRunner,
        report: Callable[[str], None],
        transaction_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`refusal` returns the error for a partition that cannot be in a transaction, `offsets_partition` the
        partition that stores a group's positions, None if they cannot be stored now. `partition_count` is that of
        `__transaction_state`, and `leads` is true while this broker may still answer for one of them.
        `transaction_version` returns the level of that feature in the cluster."""
        self._config = config
        self._shard = TransactionShard(
            config=config,
            partition_count=partition_count,
            clock=clock,
            scheduler=scheduler,
            append=append,
            leads=leads,
            steps=steps,
            report=report,
            markers=markers,
            again=self._again,
            transaction_version=transaction_version,
        )
        self._runtime = self._shard.runtime
        self._table = self._shard.table
        self._markers = markers
        self._scheduler = scheduler
        self._fresh_id = fresh_id
        self._refusal = refusal
        self._offsets_partition = offsets_partition
        self._report = report
        self._timers: dict[str, Timer] = {}

    @property
    def partition_count(self) -> int:
        """The partition count of `__transaction_state`; it may be set before the first `begin_load`."""
        return self._table.partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        self._table.partition_count = count

    @property
    def retrying(self) -> int:
        """The number of transactions that have ended, and whose end waits to be written. Any thread."""
        return self._shard.retrying

    # --- the partitions that are here

    def start(self) -> None:
        """Abort transactions that last too long, and forget ids that are not used, from now on."""
        config = self._config
        self._look_every(config.abort_check_interval_ms, self._time_out)
        self._look_every(config.expiry_check_interval_ms, TransactionalId.expire)

    def close(self) -> None:
        """Unload all partitions: every waiting request is answered with NOT_COORDINATOR."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._markers.close()
        for partition in self._table.partitions:
            self.unload(partition)

    def begin_load(self, partition: int, coordinator_epoch: int) -> TransactionLoading:
        """Begin to load a partition that this broker leads. Feed its records to the returned object (on any thread),
        then call `loaded`."""
        self.unload(partition)
        return self._shard.begin_load(partition, coordinator_epoch)

    def loaded(self, loading: TransactionLoading) -> None:
        """End the loading of a partition that was read to its end. A no-op if it was unloaded or begun again since."""
        self._shard.restore(loading)

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads; every waiting request is answered with NOT_COORDINATOR."""
        self._runtime.unload(partition)

    # --- producers

    def init_producer_id(self, request: InitProducerId, _caller: Caller, reply: Reply[InitProducerIdResult]) -> None:
        """Handle a request with a transactional id."""
        self._init(TransactionAsked(request, reply), request)

    def _init(self, asked: TransactionAsked, request: InitProducerId, fresh_id: int = -1) -> None:
        transactional_id = request.transactional_id or ""
        error = self._table.check_key(transactional_id)
        if not 0 < request.transaction_timeout_ms <= self._config.max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT if error is not ErrorCode.INVALID_REQUEST else error
        elif (request.producer_id == -1) != (request.producer_epoch == -1):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            self._refuse(asked, error)
            return
        entry = self._table.get(transactional_id)
        if entry is None or entry.transaction.wants_fresh_id(request):
            if fresh_id < 0:
                self._with_fresh_id(asked, lambda fresh_id: self._init(asked, request, fresh_id))
                return
            timeout_ms = request.transaction_timeout_ms
            entry = entry or self._shard.create(transactional_id, fresh_id, timeout_ms)
        self._runtime.apply(entry, entry.transaction.init(asked, request, self._shard.now_ms, fresh_id))

    def _with_fresh_id(self, asked: TransactionAsked, handle: Callable[[int], None]) -> None:
        def got(fresh_id: int | None) -> None:
            if fresh_id is None:  # what Kafka says while it has no ids: clients ask again
                self._refuse(asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                handle(fresh_id)

        self._fresh_id(got)

    def add_partitions(
        self, request: AddPartitionsToTxn, _caller: Caller, reply: Reply[AddPartitionsToTxnResult]
    ) -> None:
        if request.verify_only:
            self._runtime.respond(reply, self._verified(request))
            return
        refused = [self._refusal_of(each, request) for each in request.partitions]
        if any(refused):
            errors = [each or ErrorCode.OPERATION_NOT_ATTEMPTED for each in refused]
            self._runtime.respond(reply, _each(request, errors))
            return
        self._add(TransactionAsked(request, reply), request, request.partitions)

    def _refusal_of(self, partition: TopicPartition, request: AddPartitionsToTxn) -> ErrorCode:
        if partition.topic in INTERNAL_TOPICS and not request.supports_epoch_bump:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # producers add positions by AddOffsetsToTxn, brokers so
        return self._refusal(partition)

    def add_offsets(self, request: AddOffsetsToTxn, _caller: Caller, reply: Reply[AddOffsetsToTxnResult]) -> None:
        partition = self._offsets_partition(request.group_id)
        asked = TransactionAsked(request, reply)
        if partition is None:
            self._refuse(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._add(asked, request, [partition])

    def _add(
        self,
        asked: TransactionAsked,
        request: AddPartitionsToTxn | AddOffsetsToTxn,
        partitions: Sequence[TopicPartition],
    ) -> None:
        entry = self._find(asked, request.transactional_id)
        if entry is not None:
            self._runtime.apply(entry, entry.transaction.add(asked, request, partitions, self._shard.now_ms))

    def end(self, request: EndTxn, _caller: Caller, reply: Reply[EndTxnResult]) -> None:
        self._end(TransactionAsked(request, reply), request)

    def _end(self, asked: TransactionAsked, request: EndTxn, fresh_id: int = -1) -> None:
        entry = self._find(asked, request.transactional_id)
        if entry is None:
            return
        if fresh_id < 0 and entry.transaction.wants_fresh_id(request):
            self._with_fresh_id(asked, lambda fresh_id: self._end(asked, request, fresh_id))
            return
        self._runtime.apply(entry, entry.transaction.end(asked, request, self._shard.now_ms, fresh_id))

    # --- administration

    def describe(self, request: DescribeTransactions, caller: Caller, reply: Reply[DescribeTransactionsResult]) -> None:
        self._runtime.respond_in_steps(describe_transactions(self._table, request), caller, reply)

    def list_transactions(
        self, request: ListTransactions, caller: Caller, reply: Reply[ListTransactionsResult]
    ) -> None:
        self._runtime.respond_in_steps(list_transactions(self._table, request, self._shard.now_ms), caller, reply)

    # --- within

    def _again(self, asked: TransactionAsked) -> None:
        """Handle a request that has waited for the previous transaction."""
        match asked.request:
            case InitProducerId() as request:
                self._init(asked, request)
            case AddPartitionsToTxn() as request:
                self._add(asked, request, request.partitions)
            case AddOffsetsToTxn() as request:
                self.add_offsets(request, Caller(), asked.reply)
            case EndTxn() as request:
                self._end(asked, request)

    def _find(self, asked: TransactionAsked, transactional_id: str) -> TransactionEntry | None:
        """Return the entry of the id; None where it is not here, and then the request has been answered."""
        error = self._table.check_key(transactional_id)
        entry = self._table.get(transactional_id) if error is ErrorCode.NONE else None
        if entry is None:
            self._refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING if error is ErrorCode.NONE else error)
        return entry

    def _verified(self, request: AddPartitionsToTxn) -> AddPartitionsToTxnResult:
        error = self._table.check_key(request.transactional_id)
        entry = self._table.get(request.transactional_id) if error is ErrorCode.NONE else None
        if entry is not None:
            errors = entry.transaction.verified(request)
        else:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING if error is ErrorCode.NONE else error
            errors = [error] * len(request.partitions)
        return _each(request, errors)

    def _refuse(self, asked: TransactionAsked, error: ErrorCode) -> None:
        self._runtime.respond(asked.reply, asked.request.answer(error))

    def _time_out(self, transaction: TransactionalId, now_ms: int) -> Effects:
        stored = transaction.stored
        effects = transaction.time_out(now_ms)
        if effects:
            text = f"the transaction of {transaction.transactional_id[:260]!r} is aborted"
            lasted_ms = now_ms - stored.started_ms
            text += f": it has lasted {lasted_ms} ms, more than the {stored.timeout_ms} ms that it was to last"
            fields = {"transactional_id": transaction.transactional_id, "producer": stored.producer_id}
            self._report(info(text, **fields, lasted_ms=lasted_ms))
        return effects

    def _look_every(self, interval_ms: float, event: Callable[[TransactionalId, int], Effects]) -> None:
        """Call `event` on every id at this interval, a limited number of ids at a time."""

        def begin() -> None:
            check_entries(tuple(self._table), 0)

        def check_entries(entries: Sequence[TransactionEntry], start: int) -> None:
            now_ms = self._shard.now_ms
            for entry in entries[start : start + _LOOK_AT_ONCE]:
                if self._table.get(entry.transaction.transactional_id) is entry:
                    self._runtime.apply(entry, event(entry.transaction, now_ms))
            if start + _LOOK_AT_ONCE < len(entries):
                wait(0, lambda: check_entries(entries, start + _LOOK_AT_ONCE))
            else:
                wait(interval_ms, begin)

        def wait(delay_ms: float, then: Callable[[], None]) -> None:
            self._timers[event.__name__] = self._scheduler.call_later(delay_ms, then)

        wait(interval_ms, begin)


def _each(request: AddPartitionsToTxn, errors: Sequence[ErrorCode]) -> AddPartitionsToTxnResult:
    """Return the result with the outcome of each partition."""
    outcomes = [PartitionOutcome(*each, error) for each, error in zip(request.partitions, errors, strict=True)]
    return AddPartitionsToTxnResult(partitions=outcomes, transactional_id=request.transactional_id)
