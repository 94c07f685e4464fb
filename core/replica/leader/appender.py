"""Appends to the partitions that a broker leads, answered at once or when acks is satisfied (facts B2, C6, D8)."""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, NamedTuple

from attrs import evolve

from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.broker_api.produce import ProducePartition, ProduceResultPartition, RecordError
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.scheduler import Outcome, Scheduler
from ....ports.storage import StorageError
from ....ports.types import Offset, TopicPartition
from ...cluster.topics import INTERNAL_TOPICS, check_not_internal
from ...log.append_origin import AppendOrigin
from ...log.check_budget import AlwaysChecked, CheckBudget
from ...log.config import LogConfig
from ...log.formats.validation import DecompressedTooLarge, ValidationTakesLong
from ...log.log_format import ValidatedBatch
from ...log.partition_log.unified_log import AppendResult
from ...log.producers.producer_state import ProducerStates
from ...message.batch_header import BatchHeader, parse_header
from ...message.codec import DECOMPRESSED_BYTES_MAX
from ...message.record_validation import InvalidRecords
from ...traffic.steps import StepRunner, Steps
from ..partition.local_partitions import LocalPartitions
from ..partition.partition import Partition
from ..partition.topic_stats import BrokerTopicStats
from ..purgatory import Purgatory
from .delayed_produce import NONE, DelayedProduce, ProducePartitionStatus
from .durable_flushes import DurableFlushes

AppendResults = Callable[[Sequence[ProduceResultPartition] | ApiError], None]
"""Called with the results in the order of the appends, or with an `ApiError` when the broker itself failed."""

ALL_IN_SYNC = -1
_COMES_AGAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_BROKER = AppendOrigin.BROKER
_ALWAYS = AlwaysChecked()
_BUDGETS_MAX = 10_000
"""The maximum number of budgets; beyond, all are cleared."""
_OF_THE_PRODUCER = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
)
"""The errors that result from the producer state of the log."""


# Batches for partitions whose log is not open yet: producers may know a new topic before its leader has the log.

PATIENCE_MS = 30_000
"""The age beyond which a refused batch is no longer expected again."""
BATCHES_MAX = 1_000
"""The limit, beyond which all are forgotten: a producer may then begin with a later batch than its first."""


class EarlyBatches:
    """Remembers the first batch of each producer that was refused because the partition is not open here.

    When the partition opens, its producer has to begin with that batch, not with a later one. Owner thread only.
    """

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, int], dict[int, tuple[BatchHeader, int]]] = {}
        self._count = 0

    def record_refusal(self, entry: ProducePartition, now_ms: int) -> None:
        """Record a refused batch."""
        try:
            header = parse_header(entry.records)
        except ApiError:
            return
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        if self._count >= BATCHES_MAX:
            self._by_place, self._count = {}, 0
        refused = self._by_place.setdefault((entry.topic, entry.partition), {})
        known = refused.get(header.producer_id)
        if known is None:
            self._count += 1
        elif known[0].producer_epoch == header.producer_epoch and now_ms - known[1] <= PATIENCE_MS:
            return
        refused[header.producer_id] = header, now_ms

    def opened(self, partition: Partition, now_ms: int) -> None:
        """Apply the noted batches to the producers of a partition that was opened."""
        refused = self._by_place.pop(partition.topic_partition, {})
        self._count -= len(refused)
        for header, since_ms in refused.values():
            if now_ms - since_ms <= PATIENCE_MS:
                partition.log.producers.reject_batch_retriable(header, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# Produce requests whose records take long to decompress: they are validated in turns with other work.
#
# The reasons are in docs/design/log.md, 'Long appends'.
#
# Requests that are validated quickly never come here. Records are decompressed where a topic requires it: compaction,
# log-append time of messages without a timestamp, a compression of the topic, `record.validation`.

COPIED_BYTES_MAX = 256 << 20
"""The limit for the records of all such requests; a single request may exceed it."""
_OVERHEAD_BYTES = 1_000
"""The memory of a request in addition to its records."""


class LongAppend:
    """A produce request that is being appended, with its own copy of the records."""

    def __init__(
        self,
        entries: Sequence[ProducePartition],
        results: list[ProduceResultPartition],
        pending: dict[Hashable, Any],
        done: Callable[[Any], None],
        *,
        acks: int,
        timeout_ms: float,
        allows_zstd: bool,
        origin: AppendOrigin,
        owner: Hashable,
        through: Callable[[], None] | None,
    ) -> None:
        self.entries = entries
        self.results = results
        """The results of the first entries, as many as are done."""
        self.pending = pending
        self.done = done
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.allows_zstd = allows_zstd
        self.origin = origin
        self.owner: Hashable = self if owner is None else owner
        self.through = through
        self.size = _OVERHEAD_BYTES + sum(len(each.records) for each in entries[len(results) :])
        self.admitting: tuple[int, ProducerStates] | None = None
        """The transactional entry whose records are being validated, and the producers of its partition."""

    @property
    def rest(self) -> Sequence[ProducePartition]:
        """The entries that are not done."""
        return self.entries[len(self.results) :]

    def keep(self) -> None:
        """Copy the records: the caller will soon reuse their memory."""
        done = len(self.results)
        copies = [evolve(each, records=memoryview(bytearray(each.records))) for each in self.entries[done:]]
        self.entries = [*self.entries[:done], *copies]


class _Lane:
    """Requests whose batches decompress to at most `unpacked_max` bytes; at most `at_a_time` of them run."""

    def __init__(self, unpacked_max: int, at_a_time: int) -> None:
        self.unpacked_max = unpacked_max
        self.free = at_a_time
        self.waiting: deque[LongAppend] = deque()


AppendSteps = Generator[Callable[[], Any] | None, Any, None]


class LongAppends:
    """Runs the requests. Owner thread only.

    One request of an owner is under way at a time; later ones wait behind it, so that the requests of one connection
    are appended in their order. `append_steps` appends the rest of a request; `finish` answers it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        *,
        append_steps: Callable[[LongAppend, int], AppendSteps],
        finish: Callable[[LongAppend, BaseException | None], None],
        report: Callable[[BaseException], None],
    ) -> None:
        self._steps = StepRunner(scheduler, clock, report)
        self._append_steps = append_steps
        self._finish = finish
        self._report = report
        # Batches that decompress to many bytes must not delay the others, nor fill the memory.
        self._large = _Lane(DECOMPRESSED_BYTES_MAX, 2)
        self._small = _Lane(4 << 20, 32)
        self.by_owner: dict[Hashable, deque[LongAppend]] = {}
        """The requests of each owner; the first of each is under way."""
        self.copied_bytes = 0

    def is_busy(self, owner: Hashable) -> bool:
        """Return True while a request of this owner is being validated."""
        return owner in self.by_owner

    def add(self, request: LongAppend) -> bool:
        """Accept a request and copy its records; returns False, and takes nothing, if too many bytes are waiting."""
        if self.copied_bytes and self.copied_bytes + request.size > COPIED_BYTES_MAX:
            return False
        request.keep()
        self.copied_bytes += request.size
        waiting = self.by_owner.get(request.owner)
        if waiting is not None:
            waiting.append(request)
        else:
            self.by_owner[request.owner] = deque((request,))
            self._enter(self._small, request)
        return True

    def _enter(self, lane: _Lane, request: LongAppend) -> None:
        if not lane.free:
            lane.waiting.append(request)
            return
        lane.free -= 1

        def done(outcome: Outcome[None]) -> None:
            lane.free += 1
            if lane.waiting:
                self._enter(lane, lane.waiting.popleft())
            if isinstance(outcome.error, DecompressedTooLarge) and lane is not self._large:
                self._enter(self._large, request)
            else:
                self._end(request, outcome.error)

        self._steps.run(self._append_steps(request, lane.unpacked_max), done)

    def _end(self, request: LongAppend, error: BaseException | None) -> None:
        self.copied_bytes -= request.size
        waiting = self.by_owner[request.owner]
        waiting.popleft()
        try:
            self._finish(request, error)
        finally:
            if waiting:
                self._enter(self._small, waiting[0])
            elif self.by_owner.get(request.owner) is waiting:
                del self.by_owner[request.owner]
            if request.through is not None:
                request.through()


class ReplicaAppender:
    """Appends record batches. A failure in one partition does not affect the others. Owner thread only."""

    def __init__(
        self,
        local: LocalPartitions,
        purgatory: Purgatory,
        flushes: DurableFlushes,
        stats: BrokerTopicStats,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._local = local
        self._purgatory = purgatory
        self._flushes = flushes
        self._stats = stats
        self._clock = clock
        self._early = EarlyBatches()
        self._long = LongAppends(
            scheduler,
            clock,
            append_steps=self._append_rest,
            finish=self._finish_long,
            report=lambda error: local.failed("an append that took long", error),
        )
        self._owners = self._long.by_owner
        self._budgets: dict[Hashable, CheckBudget | None] = {}
        """The check budgets of the owners that have appended lately."""

    def append(
        self,
        entries: Sequence[ProducePartition],
        done: AppendResults,
        *,
        acks: int,
        timeout_ms: float,
        allows_zstd: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        owner: Hashable = None,
        through: Callable[[], None] | None = None,
    ) -> bool:
        """Append record batches to partitions that this broker leads.

        `done` is called once, at once or later: with `acks` 0 or 1 after the append, with -1 when the in-sync replicas
        have it, at the latest after `timeout_ms` (REQUEST_TIMED_OUT). Where the topic's configuration asks for a flush
        then, `done` is called after the flush, unless acks is 0. Only the `origin` BROKER may append to internal
        topics; `allows_zstd` off refuses zstd. The caller may reuse the memory of the records when this returns.

        Records that take long to decompress are validated in turns with other work. Then this returns False, and
        `through` is called when the logs have appended or refused all of it. Later appends of the same `owner` wait
        behind it.
        """
        now_ms = self._clock.now_ms()
        pending: dict[Hashable, ProducePartitionStatus] = {}
        results: list[ProduceResultPartition] = []
        takes_long = owner in self._owners
        budget = self._budgets.get(owner) or self._new_budget(owner)
        if not takes_long:
            try:
                for entry in entries:
                    results.append(self._append(entry, acks, now_ms, pending, origin, budget, allows_zstd=allows_zstd))
            except ValidationTakesLong:
                takes_long = True
        if takes_long:
            request = LongAppend(
                entries,
                results,
                pending,
                done,
                acks=acks,
                timeout_ms=timeout_ms,
                allows_zstd=allows_zstd,
                origin=origin,
                owner=owner,
                through=through,
            )
            if self._long.add(request):
                return False
            results += [self._refuse_for_now(entry) for entry in request.rest]
        self._finish(results, pending, timeout_ms, done)
        return True

    def _new_budget(self, owner: Hashable) -> CheckBudget | None:
        if owner is None:
            return None
        if len(self._budgets) >= _BUDGETS_MAX:
            self._budgets.clear()
        budget = self._budgets[owner] = CheckBudget()
        return budget

    def is_busy(self, owner: Hashable) -> bool:
        """Return True while records of this owner are being validated."""
        return self._long.is_busy(owner)

    def _refuse_for_now(self, entry: ProducePartition) -> ProduceResultPartition:
        self.reject_retriable(entry, ErrorCode.NOT_ENOUGH_REPLICAS)
        return _failed(entry, ErrorCode.NOT_ENOUGH_REPLICAS, "too many batches wait until their records are checked")

    def _append_rest(self, request: LongAppend, unpacked_max: int) -> Steps[None]:
        """Append the remaining entries of a request; raises `UnpackedTooLong`."""
        while len(request.results) < len(request.entries):
            entry = request.entries[len(request.results)]
            try:
                result = self._append_long(request, entry, None)
            except ValidationTakesLong:
                opened = yield from self._open(request, entry, unpacked_max)
                result = self._append_long(request, entry, opened)
            request.results.append(result)
            yield None

    def _append_long(
        self, request: LongAppend, entry: ProducePartition, opened: "_Opened | None"
    ) -> ProduceResultPartition:
        return self._append(
            entry,
            request.acks,
            self._clock.now_ms(),
            request.pending,
            request.origin,
            _ALWAYS if request.owner is not request else None,
            allows_zstd=request.allows_zstd,
            opened=opened,
        )

    def _open(self, request: LongAppend, entry: ProducePartition, unpacked_max: int) -> Steps["_Opened"]:
        """Validate the records of the entry that `_append` could not append at once."""
        partition = self._local.by_key[entry.topic, entry.partition]
        log, config, states = partition.log, partition.log.config, partition.log.producers
        header = parse_header(entry.records)
        number = len(request.results)
        if header.transactional and (request.admitting is None or request.admitting[0] != number):
            states.admitting[header.producer_id] = None
            request.admitting = number, states
        admitted: ValidatedBatch | None = None
        refused: ApiError | None = None
        try:
            admitted = yield from log.validate_in_steps(
                entry.records,
                clock_ms=self._clock.now_ms,
                allows_zstd=request.allows_zstd,
                origin=request.origin,
                unpacked_max=unpacked_max,
                whole=request.owner is not request,
            )
        except ApiError as error:
            refused = error
        producer_id = header.producer_id if header.transactional else -1
        began = request.admitting[1] if header.transactional and request.admitting is not None else states
        has_own_epoch = request.origin is AppendOrigin.TRANSACTION_VERSION_2
        return _Opened(partition, config, began, producer_id, has_own_epoch, admitted, refused)

    def _finish_long(self, request: LongAppend, error: BaseException | None) -> None:
        if error is not None:
            self._local.failed("appending records that took long to open", error)
            failure = broker_failed()
            request.results += [_failed(each, failure.code, failure.message) for each in request.rest]
        self._finish(request.results, request.pending, request.timeout_ms, request.done)

    def _finish(
        self,
        results: Sequence[ProduceResultPartition],
        pending: dict[Hashable, ProducePartitionStatus],
        timeout_ms: float,
        done: AppendResults,
    ) -> None:
        if not pending:
            done(results)
        else:
            self._answer_later(results, pending, timeout_ms, done)
        check = self._purgatory.check
        for result in results:
            if result.error is ErrorCode.NONE:
                check((result.topic, result.partition))

    def _check_producers_known(self, partition: Partition, entry: ProducePartition) -> None:
        """Refuse the batch of a producer as `LocalPartitions.check_producers_known`."""
        try:
            if parse_header(entry.records).producer_id < 0:
                return
        except ApiError:
            return  # an old format has no producers; validation reports any other error
        try:
            self._local.check_producers_known(partition)
        except ApiError as error:
            self.reject_retriable(entry, error.code)
            raise

    def reject_retriable(self, entry: ProducePartition, code: ErrorCode) -> None:
        """Note a batch that is refused with a retriable error; see `ProducerStates.reject_retriable`."""
        partition = self._local.by_key.get((entry.topic, entry.partition))
        if partition is not None:
            partition.log.producers.reject_retriable(entry.records, code)
        else:
            self._early.record_refusal(entry, self._clock.now_ms())

    def opened(self, partition: Partition) -> None:
        """Apply the noted early batches to a partition that was opened."""
        self._early.opened(partition, self._clock.now_ms())

    def _append(
        self,
        entry: ProducePartition,
        acks: int,
        now_ms: int,
        pending: dict[Hashable, ProducePartitionStatus],
        origin: AppendOrigin,
        budget: CheckBudget | None,
        *,
        allows_zstd: bool,
        opened: "_Opened | None" = None,
    ) -> ProduceResultPartition:
        """Append one entry. Raises `ValidationTakesLong` where its records have to be `opened` first."""
        topic, number, records = entry.topic, entry.partition, entry.records
        try:
            if topic in INTERNAL_TOPICS and origin is not _BROKER:
                check_not_internal(topic, "clients do not write into it")
            partition = self._local.led_for_append(topic, number, all_in_sync=acks == ALL_IN_SYNC)
            if entry.topic_id not in (NO_TOPIC_ID, partition.topic_id):
                text = f"{partition.topic_partition} is of another topic of that name"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, text)
            if source := partition.log.config.remote_storage_source:
                text = f"topic {topic} is read-only: its records are those of {source}, of another cluster"
                raise ApiError(ErrorCode.POLICY_VIOLATION, text)
            if partition.log.config.mirror_source and origin is not _BROKER:
                text = f"topic {topic} is a mirror of {partition.log.config.mirror_source}: read-only until promoted"
                raise ApiError(ErrorCode.POLICY_VIOLATION, text)
            if acks == ALL_IN_SYNC and partition.under_min_isr:
                self.reject_retriable(entry, ErrorCode.NOT_ENOUGH_REPLICAS)
                raise ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(partition.isr)} in sync, {partition.min_isr} are needed",
                )
            if partition.log.hidden_producers_at:
                self._check_producers_known(partition, entry)
            admitted = opened.check(partition) if opened is not None else None
            appended = self._append_to(partition, records, now_ms, origin, admitted, budget, allows_zstd=allows_zstd)
        except InvalidRecords as error:
            return _failed(entry, error.code, error.message, error.record_errors)
        except ApiError as error:
            if error.code in _COMES_AGAIN:
                self.reject_retriable(
                    entry, error.code
                )  # the lease, or word of being the leader, may come before what is behind it
            return _failed(entry, error.code, error.message)
        except ValidationTakesLong:
            raise
        except StorageError as error:
            self.reject_retriable(entry, ErrorCode.KAFKA_STORAGE_ERROR)
            self._local.storage_failed(TopicPartition(topic, number), error)
            return _failed(entry, ErrorCode.KAFKA_STORAGE_ERROR, unwritable(topic, number))
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._local.failed(f"appending to {topic}-{number}", error)
            failure = broker_failed()
            return _failed(entry, failure.code, failure.message)
        stats = self._stats.of(topic)
        if appended.messages:
            stats.messages_in.add(appended.messages)
            stats.bytes_in.add(len(records))
        end = appended.last_offset + 1
        flushing = self._flushes.begin_if_due(partition, now_ms)
        if acks != 0 and (flushing or (acks == ALL_IN_SYNC and partition.high_watermark < end)):
            required = Offset(end)
            pending[(topic, number)] = ProducePartitionStatus(
                partition, required if acks == ALL_IN_SYNC else NONE, recovery_point=required if flushing else NONE
            )
        return ProduceResultPartition(
            topic, number, ErrorCode.NONE, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        )

    def _append_to(
        self,
        partition: Partition,
        records: memoryview,
        now_ms: int,
        origin: AppendOrigin,
        admitted: ValidatedBatch | None,
        budget: CheckBudget | None,
        *,
        allows_zstd: bool,
    ) -> AppendResult:
        """Append the records. Raises as `Partition.append_as_leader`.

        An error of the producer state is final only where this broker is sure to lead: another leader may have a newer
        state.
        """
        try:
            return partition.append_as_leader(
                records,
                now_ms=now_ms,
                allows_zstd=allows_zstd,
                origin=origin,
                admitted=admitted,
                bounded=True,
                budget=budget,
            )
        except ApiError as error:
            if error.code in _OF_THE_PRODUCER and not self._local.may_lead():
                text = f"{partition.topic_partition} may have another leader, which knows more of the producer"
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text) from error
            raise

    def _answer_later(
        self,
        results: Sequence[ProduceResultPartition],
        pending: dict[Hashable, ProducePartitionStatus],
        timeout_ms: float,
        done: AppendResults,
    ) -> None:
        required = dict(pending)

        def finish() -> None:
            done([_final(result, required, pending) for result in results])

        waiting = DelayedProduce(pending, finish, lambda: done(broker_failed()))
        self._purgatory.watch(waiting, tuple(pending), timeout_ms)


class _Opened(NamedTuple):
    """The result of validating the records of an entry, and the partition, configuration and producers used for it."""

    partition: Partition
    config: LogConfig
    states: ProducerStates
    producer_id: int
    """The producer of a transactional batch, else -1."""
    has_own_epoch: bool
    """True if the epoch says whether a marker has ended the transaction, in version 2."""
    admitted: ValidatedBatch | None
    refused: ApiError | None

    def check(self, partition: Partition) -> ValidatedBatch:
        """Return the validated batch. Raises `ApiError`, also if the partition has changed since then."""
        states = self.states
        is_in_transaction = self.producer_id < 0 or self.has_own_epoch or self.producer_id in states.admitting
        states.admitting.pop(self.producer_id, None)
        if self.refused is not None:
            raise self.refused
        if partition is not self.partition or partition.log.config is not self.config:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition} has changed; send it again")
        if not is_in_transaction:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "a marker has ended the transaction of the batch")
        if self.producer_id >= 0 and partition.log.producers is not states:
            text = f"the log of {partition.topic_partition} was cut; send the batch again"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        assert self.admitted is not None
        return self.admitted


def unwritable(topic: str, number: int) -> str:
    """Return the error message for a client whose log cannot be written; it does not contain the path of the log."""
    return f"the log of {topic[:260]}-{number} cannot be written; see the broker's log"


def _failed(
    entry: ProducePartition, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()
) -> ProduceResultPartition:
    return ProduceResultPartition(
        entry.topic, entry.partition, code, error_message=message or None, record_errors=record_errors
    )


def _final(
    result: ProduceResultPartition,
    required: dict[Hashable, ProducePartitionStatus],
    pending: dict[Hashable, ProducePartitionStatus],
) -> ProduceResultPartition:
    """Return the final result of a partition after the wait: the provisional result, or an error."""
    key = (result.topic, result.partition)
    wanted = required.get(key)
    if wanted is None or result.error is not ErrorCode.NONE:
        return result
    code = ErrorCode.NONE
    if wanted.lost():
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif wanted.failed():
        code = ErrorCode.KAFKA_STORAGE_ERROR
    elif key in pending:
        code = ErrorCode.REQUEST_TIMED_OUT
    elif wanted.high_watermark and wanted.partition.under_min_isr:
        code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return result if code is ErrorCode.NONE else ProduceResultPartition(*key, code)
