"""Appends to the partitions that a broker leads: answered at once, or when acks says so (facts B2, C6, D8)."""

from collections.abc import Callable, Hashable, Sequence

from ...ports.broker_api import ProducePartition, ProduceResultPartition, RecordError
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, broker_failed
from ...ports.storage import StorageError
from ...ports.words import Offset, TopicPartition
from ..cluster.topics import INTERNAL_TOPICS, check_not_internal
from ..log.origin import AppendOrigin
from ..message.record_check import InvalidRecords
from .delayed_produce import NONE, DelayedProduce, Required
from .early_batches import EarlyBatches
from .flushes import DurableFlushes
from .local_partitions import LocalPartitions
from .partition import Partition
from .purgatory import Purgatory
from .topic_stats import BrokerTopicStats

AppendResults = Callable[[Sequence[ProduceResultPartition] | ApiError], None]
"""Told the outcomes in the order of the appends; an `ApiError` when the broker itself failed on the way."""

ALL_IN_SYNC = -1
_COMES_AGAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_BROKER = AppendOrigin.BROKER


class Appends:
    """One partition's failure leaves the others of an append alone. Owner thread only."""

    def __init__(
        self,
        local: LocalPartitions,
        purgatory: Purgatory,
        flushes: DurableFlushes,
        stats: BrokerTopicStats,
        clock: Clock,
    ) -> None:
        self._local = local
        self._purgatory = purgatory
        self._flushes = flushes
        self._stats = stats
        self._clock = clock
        self._early = EarlyBatches()

    def append(
        self,
        entries: Sequence[ProducePartition],
        done: AppendResults,
        *,
        acks: int,
        timeout_ms: float,
        allows_zstd: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        """Append record batches to partitions that this broker leads.

        `done` is called once, at once or later: with `acks` 0 or 1 after the append, with -1 when the in-sync replicas
        have it, at the latest after `timeout_ms` (REQUEST_TIMED_OUT); where the topic's configuration asks for a flush
        then, after that, unless acks is 0. Topics of the broker itself are open to the `origin` BROKER alone;
        `allows_zstd` off refuses zstd. The memory of the records is the caller's again when this returns.
        """
        now_ms = self._clock.now_ms()
        pending: dict[Hashable, Required] = {}
        results = [self._append(entry, acks, now_ms, pending, origin, allows_zstd=allows_zstd) for entry in entries]
        if not pending:
            done(results)
        else:
            self._answer_later(results, pending, timeout_ms, done)
        check = self._purgatory.check
        for result in results:
            if result.error is ErrorCode.NONE:
                check((result.topic, result.partition))

    def put_off(self, entry: ProducePartition, code: ErrorCode) -> None:
        """What is told `code` comes again: see `ProducerStates.put_off`."""
        partition = self._local.by_key.get((entry.topic, entry.partition))
        if partition is not None:
            partition.log.producers.put_off(entry.records, code)
        else:
            self._early.note(entry, self._clock.now_ms())

    def opened(self, partition: Partition) -> None:
        """It is here from now on."""
        self._early.opened(partition, self._clock.now_ms())

    def _append(
        self,
        entry: ProducePartition,
        acks: int,
        now_ms: int,
        pending: dict[Hashable, Required],
        origin: AppendOrigin,
        *,
        allows_zstd: bool,
    ) -> ProduceResultPartition:
        topic, number, records = entry.topic, entry.partition, entry.records
        try:
            if topic in INTERNAL_TOPICS and origin is not _BROKER:
                check_not_internal(topic, "clients do not write into it")
            partition = self._local.led(topic, number)
            if acks == ALL_IN_SYNC and partition.under_min_isr:
                self.put_off(entry, ErrorCode.NOT_ENOUGH_REPLICAS)
                raise ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(partition.isr)} in sync, {partition.min_isr} are needed",
                )
            appended = partition.append_as_leader(records, now_ms=now_ms, allows_zstd=allows_zstd, origin=origin)
        except InvalidRecords as error:
            return _failed(entry, error.code, error.message, error.record_errors)
        except ApiError as error:
            if error.code in _COMES_AGAIN:
                self.put_off(
                    entry, error.code
                )  # the lease, or word of being the leader, may come before what is behind it
            return _failed(entry, error.code, error.message)
        except StorageError as error:
            self.put_off(entry, ErrorCode.KAFKA_STORAGE_ERROR)
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
            pending[(topic, number)] = Required(
                partition, required if acks == ALL_IN_SYNC else NONE, recovery_point=required if flushing else NONE
            )
        return ProduceResultPartition(
            topic, number, ErrorCode.NONE, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        )

    def _answer_later(
        self,
        results: Sequence[ProduceResultPartition],
        pending: dict[Hashable, Required],
        timeout_ms: float,
        done: AppendResults,
    ) -> None:
        required = dict(pending)

        def finish() -> None:
            done([_final(result, required, pending) for result in results])

        waiting = DelayedProduce(pending, finish, lambda: done(broker_failed()))
        self._purgatory.watch(waiting, tuple(pending), timeout_ms)


def unwritable(topic: str, number: int) -> str:
    """What a client is told of a log whose disk failed; where it lies is for the broker's log."""
    return f"the log of {topic[:260]}-{number} cannot be written; the broker's log says why"


def _failed(
    entry: ProducePartition, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()
) -> ProduceResultPartition:
    return ProduceResultPartition(
        entry.topic, entry.partition, code, error_message=message or None, record_errors=record_errors
    )


def _final(
    result: ProduceResultPartition, required: dict[Hashable, Required], pending: dict[Hashable, Required]
) -> ProduceResultPartition:
    """The result of a partition at the end of the wait: the provisional one, or why it does not stand."""
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
