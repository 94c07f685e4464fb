"""Produce: append record batches, and answer when acks says so (facts B2, C6, D8)."""

from collections.abc import Hashable, Sequence

from ...core.cluster.topics import INTERNAL_TOPICS
from ...core.message.record_check import InvalidRecords
from ...core.replica.partition import Partition
from ...core.replica.purgatory import DelayedProduce, Required
from ...ports.broker_api import (
    Caller,
    Origin,
    Produce,
    ProducePartition,
    ProduceResult,
    ProduceResultPartition,
    RecordError,
    Reply,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import StorageError
from .failures import broker_failed
from .internal_topics import check_not_internal
from .state import BrokerState, unwritable

NO_TOPICS: frozenset[str] = frozenset()
_ACKS = frozenset((-1, 0, 1))


class ProduceService:
    """Appends what producers send. One partition's failure leaves the others of the request alone."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._partitions = state.partitions
        self._clock = state.clock
        self._purgatory = state.purgatory

    def handle(self, request: Produce, caller: Caller, reply: Reply[ProduceResult]) -> None:
        refused = _refusal(request)
        if refused is not None:
            reply(ProduceResult(partitions=[_failed(entry, *refused) for entry in request.partitions]))
            return
        now_ms = self._clock.now_ms()
        pending: dict[Hashable, Required] = {}
        closed = NO_TOPICS if caller.origin is Origin.BROKER else INTERNAL_TOPICS
        results = [self._append(entry, request, now_ms, pending, closed) for entry in request.partitions]
        if not pending:
            reply(ProduceResult(partitions=results))
        else:
            self._answer_later(results, pending, max(0, request.timeout_ms), reply)
        check = self._purgatory.check
        for result in results:
            if result.error is ErrorCode.NONE:
                check((result.topic, result.partition))

    def _append(
        self,
        entry: ProducePartition,
        request: Produce,
        now_ms: int,
        pending: dict[Hashable, Required],
        closed: frozenset[str],
    ) -> ProduceResultPartition:
        topic, number, records = entry.topic, entry.partition, entry.records
        partition = self._partitions.get((topic, number))
        try:
            if topic in closed:
                check_not_internal(topic, "clients do not write into it")
            if partition is None:
                raise self._state.unknown_partition(topic, number)
            partition.check_leader()
            if request.acks == -1 and partition.under_min_isr:
                raise ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(partition.isr)} in sync, min.insync.replicas is {partition.log.config.min_insync_replicas}",
                )
            appended = partition.append_as_leader(records, now_ms=now_ms, allows_zstd=request.allows_zstd)
        except InvalidRecords as error:
            return _failed(entry, error.code, error.message, error.record_errors)
        except ApiError as error:
            return _failed(entry, error.code, error.message)
        except StorageError as error:
            self._state.storage_failed(partition, error)
            return _failed(entry, ErrorCode.KAFKA_STORAGE_ERROR, unwritable(topic, number))
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._state.failed(f"appending to {topic}-{number}", error)
            failure = broker_failed()
            return _failed(entry, failure.code, failure.message)
        stats = self._state.topic_stats(topic)
        if appended.messages:
            stats.messages_in.add(appended.messages)
            stats.bytes_in.add(len(records))
        end = appended.last_offset + 1
        flushing = self._state.flush_if_due(partition, now_ms)
        if request.acks != 0 and (flushing or (request.acks == -1 and partition.high_watermark < end)):
            pending[(topic, number)] = Required(
                partition, end if request.acks == -1 else 0, recovery_point=end if flushing else 0
            )
        return ProduceResultPartition(
            topic, number, ErrorCode.NONE, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        )

    def _answer_later(
        self,
        results: Sequence[ProduceResultPartition],
        pending: dict[Hashable, Required],
        timeout_ms: int,
        reply: Reply[ProduceResult],
    ) -> None:
        required = dict(pending)

        def finish() -> None:
            reply(ProduceResult(partitions=[_final(result, required, pending) for result in results]))

        waiting = DelayedProduce(pending, finish, lambda: reply(broker_failed()))
        self._purgatory.watch(waiting, tuple(pending), timeout_ms)


def _refusal(request: Produce) -> tuple[ErrorCode, str] | None:
    """What is wrong with the request as a whole."""
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use 0, 1 or -1 (all)"
    if request.transactional_id is not None:
        return (
            ErrorCode.INVALID_TXN_STATE,
            "this broker does not support transactions; produce without transactional.id",
        )
    return None


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
    elif wanted.high_watermark and _shrunk(wanted.partition):
        code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return result if code is ErrorCode.NONE else ProduceResultPartition(*key, code)


def _shrunk(partition: Partition) -> bool:
    return partition.under_min_isr
