"""Transactional batches are appended after their coordinator has verified the partition, or has added it to the
transaction (KIP-890).

A partition that the coordinator does not know of would be left with a hanging transaction. So the first batch of a
transaction in a partition waits for the coordinator's answer. Later batches of the producer wait behind it, so that
they stay in order.

In version 2 each transaction has an epoch of its own, by which the log refuses a batch whose transaction a marker has
ended meanwhile. In version 1 the marker must be noticed.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence

from attrs import evolve

from ....ports.broker_api.produce import ProducePartition, ProduceResultPartition
from ....ports.broker_api.transactions import TransactionSupportedOperation
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.scheduler import Scheduler, Timer
from ....ports.types import TopicPartition
from ...log.append_origin import AppendOrigin
from ...log.producers.producer_state import ProducerStates
from ...message.batch_header import BatchHeader, parse_header
from ..partition.local_partitions import LocalPartitions
from .appender import AppendResults, ReplicaAppender

Verify = Callable[[str, int, int, TopicPartition, TransactionSupportedOperation, Callable[[ErrorCode], None]], None]
"""Asks the coordinator of (transactional id, producer id, epoch) if the partition is in the transaction, or to add it.
The last argument is called once with the result, at once or later.
"""

WAITING_BYTES_MAX = 64 << 20
"""The limit for all waiting batches; a single request may exceed it."""
_PATIENCE_MS = 1_000.0
"""The minimum time that a coordinator has to answer."""
_OVERHEAD_BYTES = 1_000
"""The memory of a request in addition to its records."""
_LATER = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""The errors that leave it unknown. The producer must retry, which all producers do at NOT_ENOUGH_REPLICAS; those of
version 2 know CONCURRENT_TRANSACTIONS too."""


class _UnverifiedRequest:
    """A request that is not appended yet."""

    def __init__(
        self,
        entries: Sequence[ProducePartition],
        headers: Sequence[BatchHeader | None],
        done: AppendResults,
        *,
        transactional_id: str,
        acks: int,
        timeout_ms: float,
        allows_zstd: bool,
        owner: Hashable,
        operation: TransactionSupportedOperation,
    ) -> None:
        self.entries = entries
        self.headers = headers
        """The headers of the transactional batches; None for other entries."""
        self.done = done
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.allows_zstd = allows_zstd
        self.owner = owner
        self.operation = operation
        self.size = 0
        """The bytes of the copied records while the request waits; 0: none were copied."""
        self.asked: dict[TopicPartition, ProducerStates] = {}
        """The partitions whose coordinator has not answered."""
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.timer: Timer | None = None

    @property
    def is_added(self) -> bool:
        """True if the leader adds the partitions to the transaction."""
        return self.operation is TransactionSupportedOperation.ADD_PARTITION

    def keep(self) -> None:
        """Copy the records: the caller will soon reuse their memory."""
        self.entries = [evolve(each, records=memoryview(bytearray(each.records))) for each in self.entries]
        self.size = _bytes_of(self.entries)


class VerifiedAppends:
    """Appends batches after verification. Owner thread only.

    `verify` asks coordinators.
    """

    def __init__(self, appends: ReplicaAppender, local: LocalPartitions, scheduler: Scheduler, verify: Verify) -> None:
        self._verify = verify
        self._appends = appends
        self._local = local
        self._scheduler = scheduler
        self._waiting: dict[int, deque[_UnverifiedRequest]] = {}
        """The requests by producer id; the first of each is being verified, or its records are being validated."""
        self.waiting_bytes = 0

    def append(
        self,
        entries: Sequence[ProducePartition],
        done: AppendResults,
        *,
        transactional_id: str,
        acks: int,
        timeout_ms: float,
        allows_zstd: bool = True,
        owner: Hashable = None,
        operation: TransactionSupportedOperation = TransactionSupportedOperation.DEFAULT_ERROR,
    ) -> None:
        """Append batches of a client that names its transactional id: see `ReplicaAppender.append`."""
        headers = [_in_transaction(each) for each in entries]
        producers = {header.producer_id for header in headers if header is not None}
        request = _UnverifiedRequest(
            entries,
            headers,
            done,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            allows_zstd=allows_zstd,
            owner=owner,
            operation=operation,
        )
        if not producers:
            self._append(request, None)
            return
        if len(producers) > 1:
            text = "batches of more than one producer in a request"
            done([_refused(each, ErrorCode.INVALID_PRODUCER_ID_MAPPING, text) for each in entries])
            return
        (producer_id,) = producers
        waiting = self._waiting.get(producer_id)
        if waiting is None and self._ask(producer_id, request):
            if not self._append(request, producer_id):
                self._waiting[producer_id] = deque([request])
            return
        size = _bytes_of(entries)
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            for states in request.asked.values():
                states.verifying.pop(producer_id, None)
            request.asked.clear()
            text = "too many batches wait for the coordinators of their transactions"
            self._reject_retriable(entries)
            done([_refused(each, ErrorCode.NOT_ENOUGH_REPLICAS, text) for each in entries])
            return
        request.keep()
        self.waiting_bytes += request.size
        if waiting is None:
            self._waiting[producer_id] = deque([request])
            self._time_out(producer_id, request)
        else:
            waiting.append(request)

    def _ask(self, producer_id: int, request: _UnverifiedRequest) -> bool:
        """Ask the coordinator about new partitions of the transaction; True if all are answered, or none is needed."""
        wanted: list[tuple[TopicPartition, BatchHeader]] = []
        for entry, header in zip(request.entries, request.headers, strict=True):
            partition = self._local.by_key.get((entry.topic, entry.partition))
            if header is None or partition is None or not partition.is_leader:
                continue
            states = partition.log.producers
            if not states.is_open(producer_id, header.producer_epoch):
                key = TopicPartition(entry.topic, entry.partition)
                request.asked[key] = states
                states.verifying[producer_id] = None
                wanted.append((key, header))
        for key, header in wanted:
            self._verify(
                request.transactional_id,
                producer_id,
                header.producer_epoch,
                key,
                request.operation,
                lambda error, key=key: self._on_verified(producer_id, request, key, error),  # type: ignore[misc]
            )
        return not request.asked

    def _on_verified(
        self, producer_id: int, request: _UnverifiedRequest, key: TopicPartition, error: ErrorCode
    ) -> None:
        states = request.asked.pop(key, None)
        if states is None:
            return  # too late
        if error is ErrorCode.NONE and producer_id not in states.verifying and not request.is_added:
            error = ErrorCode.INVALID_TXN_STATE  # a marker has ended the transaction meanwhile
        partition = self._local.by_key.get(key)
        if error is ErrorCode.NONE and partition is not None and partition.log.producers is not states:
            error = ErrorCode.NOT_ENOUGH_REPLICAS  # the log was truncated: the answer may be for a state that is gone
        states.verifying.pop(producer_id, None)
        if error is not ErrorCode.NONE:
            request.refused[key] = error
        if not request.asked and request.size:
            self._append_verified(producer_id)

    def _time_out(self, producer_id: int, request: _UnverifiedRequest) -> None:
        def over() -> None:
            for key in tuple(request.asked):
                self._on_verified(producer_id, request, key, ErrorCode.REQUEST_TIMED_OUT)

        request.timer = self._scheduler.call_later(max(_PATIENCE_MS, request.timeout_ms), over)

    def _append_verified(self, producer_id: int) -> None:
        """Append the first request of the producer, which is verified, and those behind it that need not wait."""
        waiting = self._waiting[producer_id]
        while True:
            request = waiting[0]
            if request.timer is not None:
                request.timer.cancel()
            self.waiting_bytes -= request.size
            request.size = 0
            if not self._append(request, producer_id) or not self._next(producer_id):
                return

    def _next(self, producer_id: int) -> bool:
        """Remove the producer's first request, which is done; return True if the next one is verified."""
        waiting = self._waiting[producer_id]
        waiting.popleft()
        if not waiting:
            del self._waiting[producer_id]
            return False
        following = waiting[0]
        size, following.size = following.size, 0  # an answer that comes at once does not continue here
        verified = self._ask(producer_id, following)
        following.size = size
        if not verified:
            self._time_out(producer_id, following)
        return verified

    def _append(self, request: _UnverifiedRequest, producer_id: int | None) -> bool:
        """Append; returns False if the records take long to validate: the producer's later requests wait then."""

        def through() -> None:
            if producer_id is not None and self._next(producer_id):
                self._append_verified(producer_id)

        refused, operation = request.refused, request.operation
        if not refused:
            return self._hand_over(request, request.entries, request.done, through)

        def done(results: Sequence[ProduceResultPartition] | ApiError) -> None:
            if isinstance(results, ApiError):
                request.done(results)
                return
            good = iter(results)
            request.done(
                [next(good) if code is None else _unverified(entry, code, operation) for entry, code in outcomes]
            )

        outcomes = [
            (each, refused.get(TopicPartition(each.topic, each.partition)) if header is not None else None)
            for each, header in zip(request.entries, request.headers, strict=True)
        ]
        for entry, code in outcomes:
            if code in _LATER:
                self._reject_retriable([entry], _code_for(code, operation))
        return self._hand_over(request, [entry for entry, code in outcomes if code is None], done, through)

    def _reject_retriable(
        self, entries: Sequence[ProducePartition], code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS
    ) -> None:
        """Note batches that their producer will send again: it must not begin with a later batch."""
        for each in entries:
            self._appends.reject_retriable(each, code)

    def _hand_over(
        self,
        request: _UnverifiedRequest,
        entries: Sequence[ProducePartition],
        done: AppendResults,
        through: Callable[[], None],
    ) -> bool:
        return self._appends.append(
            entries,
            done,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            allows_zstd=request.allows_zstd,
            origin=AppendOrigin.TRANSACTION_VERSION_2 if request.is_added else AppendOrigin.TRANSACTION,
            owner=request.owner,
            through=through,
        )


def _in_transaction(entry: ProducePartition) -> BatchHeader | None:
    """Return the header of a transactional batch, else None. The log reports an invalid batch."""
    try:
        header = parse_header(entry.records)
    except ApiError:
        return None
    return header if header.transactional and header.producer_id >= 0 else None


def _bytes_of(entries: Sequence[ProducePartition]) -> int:
    return _OVERHEAD_BYTES + sum(len(each.records) for each in entries)


def _code_for(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    """Return the error for a producer that knows this operation."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is TransactionSupportedOperation.ADD_PARTITION:
        return code
    if code in _LATER:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # as producers know it (facts C6)
    if code is ErrorCode.INVALID_TXN_STATE and operation is not TransactionSupportedOperation.DEFAULT_ERROR:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code


def _unverified(
    entry: ProducePartition, code: ErrorCode, operation: TransactionSupportedOperation
) -> ProduceResultPartition:
    text = "the partition is not in the transaction, as its coordinator says"
    if code in _LATER:
        text = f"the coordinator could not say if the partition is in the transaction: {code.name}"
    return _refused(entry, _code_for(code, operation), text)


def _refused(entry: ProducePartition, code: ErrorCode, text: str) -> ProduceResultPartition:
    return ProduceResultPartition(entry.topic, entry.partition, code, error_message=text)
