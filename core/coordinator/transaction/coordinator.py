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
    DescribeTransactions,
    DescribeTransactionsResult,
    EndTxn,
    EndTxnResult,
    ListTransactions,
    ListTransactionsResult,
)
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.report import info
from ....ports.scheduler import Scheduler, Timer
from ....ports.types import TopicPartition
from ...cluster.topics import INTERNAL_TOPICS
from ...traffic.steps import StepRunner
from ..runtime import Append
from .config import TransactionConfig
from .describing import describe_transactions, list_transactions
from .effects import Effects, TransactionAsked
from .entry import TransactionEntry
from .loading import TransactionLoading
from .markers import MarkerSender
from .shard import TransactionShard
from .transactional_id import TransactionalId

FreshId = Callable[[Callable[[int | None], None]], None]
"""Call back with a producer id that no producer has, at once or later; None: none is available now."""

_LOOK_AT_ONCE = 1000
"""The number of ids that are checked for timeouts in one step, before other work gets its turn."""


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
    ) -> None:
        """`refusal` returns the error for a partition that cannot be in a transaction, `offsets_partition` the
        partition that stores a group's positions, None if they cannot be stored now. `partition_count` is that of
        `__transaction_state`, and `leads` is true while this broker may still answer for one of them."""
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
                self._init_with_fresh_id(asked, request)
                return
            timeout_ms = request.transaction_timeout_ms
            entry = entry or self._shard.create(transactional_id, fresh_id, timeout_ms)
        self._runtime.apply(entry, entry.transaction.init(asked, request, self._shard.now_ms, fresh_id))

    def _init_with_fresh_id(self, asked: TransactionAsked, request: InitProducerId) -> None:
        def got(fresh_id: int | None) -> None:
            if fresh_id is None:  # what Kafka says while it has no ids: clients ask again
                self._refuse(asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                self._init(asked, request, fresh_id)

        self._fresh_id(got)

    def add_partitions(
        self, request: AddPartitionsToTxn, _caller: Caller, reply: Reply[AddPartitionsToTxnResult]
    ) -> None:
        if request.verify_only:
            self._runtime.respond(reply, self._verified(request))
            return
        refused = [self._refusal_of(each) for each in request.partitions]
        if any(refused):
            errors = [each or ErrorCode.OPERATION_NOT_ATTEMPTED for each in refused]
            self._runtime.respond(reply, _each(request, errors))
            return
        self._add(TransactionAsked(request, reply), request, request.partitions)

    def _refusal_of(self, partition: TopicPartition) -> ErrorCode:
        if partition.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # positions come by AddOffsetsToTxn
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
        asked = TransactionAsked(request, reply)
        entry = self._find(asked, request.transactional_id)
        if entry is not None:
            self._runtime.apply(entry, entry.transaction.end(asked, request, self._shard.now_ms))

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
                self.end(request, Caller(), asked.reply)

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
            look(tuple(self._table), 0)

        def look(entries: Sequence[TransactionEntry], start: int) -> None:
            now_ms = self._shard.now_ms
            for entry in entries[start : start + _LOOK_AT_ONCE]:
                if self._table.get(entry.transaction.transactional_id) is entry:
                    self._runtime.apply(entry, event(entry.transaction, now_ms))
            if start + _LOOK_AT_ONCE < len(entries):
                wait(0, lambda: look(entries, start + _LOOK_AT_ONCE))
            else:
                wait(interval_ms, begin)

        def wait(delay_ms: float, then: Callable[[], None]) -> None:
            self._timers[event.__name__] = self._scheduler.call_later(delay_ms, then)

        wait(interval_ms, begin)


def _each(request: AddPartitionsToTxn, errors: Sequence[ErrorCode]) -> AddPartitionsToTxnResult:
    """Return the result with the outcome of each partition."""
    outcomes = [PartitionOutcome(*each, error) for each, error in zip(request.partitions, errors, strict=True)]
    return AddPartitionsToTxnResult(partitions=outcomes, transactional_id=request.transactional_id)
