"""ClassicProduce, ClassicFetch and ClassicOffsets (facts A3, A4).

All are answered at once, except message sets that take long to check.
"""

from collections import deque
from collections.abc import Sequence

from ....core.log.append_origin import AppendOrigin
from ....core.log.formats.validation import ValidationTakesLong
from ....core.log.log_format import ValidatedBatch
from ....core.replica.leader.appender import unwritable
from ....core.traffic.steps import StepRunner, Steps
from ....ports.broker_api.classic import (
    RANDOM_PARTITION,
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResult,
    ClassicProduceResultPartition,
)
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, broker_failed
from ....ports.scheduler import Outcome
from ....ports.storage import StorageError, size_of
from ....ports.types import Offset, TopicPartition
from ..state.broker_state import BrokerState

ANSWER_BYTES_MAX = 2**31 - 2**20
"""The limit for all sets of one fetch: the length before the response is a signed 32-bit number."""

_FETCH_CODES = frozenset(
    (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_FETCH_SIZE,
    )
)
"""The errors that the classic protocol has; all others become UNKNOWN_SERVER_ERROR."""

_NOTHING = ClassicFetchResultPartition()
_LONG_AT_A_TIME = 4
_LONG_BYTES_MAX = 256 << 20
"""The limit for the records of requests that take long; a single request may exceed it."""
_LongProduce = tuple[
    Sequence[ClassicProducePartition], list[ClassicProduceResultPartition], Reply[ClassicProduceResult]
]
"""The rest of a request, the results of its first entries, and its reply."""


class ClassicService:
    """Answers the classic requests. A failure in one partition does not affect the others of the request."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._topics = state.classic
        self._clock = state.clock
        self._below = state.entropy.below
        self._steps = StepRunner(
            state.scheduler, state.clock, lambda error: state.failed("a classic append that took long", error)
        )
        self._long: deque[_LongProduce] = deque()
        """The requests that wait for their check."""
        self._long_free = _LONG_AT_A_TIME
        self._long_bytes = 0
        """The bytes of the records of all long requests, including those under way."""

    # --- produce

    def produce(self, request: ClassicProduce, _caller: Caller, reply: Reply[ClassicProduceResult]) -> None:
        """Append the message sets.

        Sets that take long to check are appended in turns with other work; the connection is not read meanwhile.
        """
        results: list[ClassicProduceResultPartition] = []
        try:
            for entry in request.partitions:
                results.append(self._append(entry))
        except ValidationTakesLong:
            rest = request.partitions[len(results) :]
            size = sum(len(each.records) for each in rest)
            if not self._long_bytes or self._long_bytes + size <= _LONG_BYTES_MAX:
                self._long_bytes += size
                self._long.append(([_with_own_memory(each) for each in rest], results, reply))
                self._begin_long()
                return
            text = "too many message sets wait until they are checked"
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            results += [ClassicProduceResultPartition(e.topic, e.partition, code, error_message=text) for e in rest]
        reply(ClassicProduceResult(partitions=results))

    def _begin_long(self) -> None:
        """Begin the next long requests: a few at a time, since their decompressed records take memory."""
        while self._long and self._long_free:
            rest, results, reply = self._long.popleft()
            self._long_free -= 1
            size = sum(len(each.records) for each in rest)

            def done(
                outcome: Outcome[None],
                results: list[ClassicProduceResultPartition] = results,
                reply: Reply[ClassicProduceResult] = reply,
                size: int = size,
            ) -> None:
                self._long_free += 1
                self._long_bytes -= size
                self._begin_long()
                if outcome.error is not None:
                    self._state.failed("appending message sets that take long to check", outcome.error)
                    reply(broker_failed())
                else:
                    reply(ClassicProduceResult(partitions=results))

            self._steps.run(self._append_long(rest, results), done)

    def _append_long(
        self, entries: Sequence[ClassicProducePartition], results: list[ClassicProduceResultPartition]
    ) -> Steps[None]:
        for entry in entries:
            admitted: ValidatedBatch | BarnabasError
            try:
                log = self._topics.log_to_append(entry.topic, self._number(entry))
                admitted = yield from log.validate_in_steps(
                    entry.records, clock_ms=self._clock.now_ms, allows_zstd=True, origin=AppendOrigin.CLIENT
                )
            except (ApiError, StorageError) as error:
                admitted = error
            results.append(self._append(entry, admitted))
            yield None

    def _number(self, entry: ClassicProducePartition) -> int:
        number = entry.partition
        return self._below(self._topics.partitions(entry.topic)) if number == RANDOM_PARTITION else number

    def _append(
        self, entry: ClassicProducePartition, admitted: ValidatedBatch | BarnabasError | None = None
    ) -> ClassicProduceResultPartition:
        """Return the result of one set; `admitted` is the validated set, or the error that refuses it.

        Raises `ValidationTakesLong` for a set that is not `admitted` yet, and takes long to check.
        """
        topic, number, now_ms = entry.topic, entry.partition, self._clock.now_ms()
        try:
            if isinstance(admitted, BarnabasError):
                raise admitted
            number = self._number(entry)
            log = self._topics.log_to_append(topic, number)
            appended = log.append(entry.records, leader_epoch=0, now_ms=now_ms, admitted=admitted, bounded=True)
        except ApiError as error:
            return ClassicProduceResultPartition(topic, number, error.code, error_message=error.message or None)
        except StorageError as error:
            self._state.replicas.storage_failed(TopicPartition(topic, number), error)
            return ClassicProduceResultPartition(
                topic, number, ErrorCode.KAFKA_STORAGE_ERROR, error_message=unwritable(topic, number)
            )
        stats = self._state.replicas.stats.of(topic)
        stats.messages_in.add(appended.messages)
        stats.bytes_in.add(len(entry.records))
        self._state.logs.flush_if_due(log, now_ms)
        return ClassicProduceResultPartition(topic, number, next_offset=log.log_end_offset)

    # --- fetch

    def fetch(self, request: ClassicFetch, _caller: Caller, reply: Reply[ClassicFetchResult]) -> None:
        left = ANSWER_BYTES_MAX
        results = []
        for entry in request.partitions:
            result = self._read(entry, min(entry.max_bytes, left))
            size = size_of(result.records)
            if size == left < min(entry.max_bytes, ANSWER_BYTES_MAX):
                result, size = _NOTHING, 0  # a partial set would look like a message too large for the fetch
            if size:
                left -= size
                self._state.replicas.stats.of(entry.topic).bytes_out.add(size)
            results.append(result)
        reply(ClassicFetchResult(partitions=results))

    def _read(self, entry: ClassicFetchPartition, max_bytes: int) -> ClassicFetchResultPartition:
        try:
            log = self._topics.log(entry.topic, entry.partition)
            if max_bytes < 0:
                return ClassicFetchResultPartition(ErrorCode.INVALID_FETCH_SIZE)
            if log is None:
                return _NOTHING
            found = log.read(entry.offset, max_bytes=max_bytes, limit=log.readable_end, whole_first_batch=False)
        except ApiError as error:
            code = error.code if error.code in _FETCH_CODES else ErrorCode.UNKNOWN_SERVER_ERROR
            return ClassicFetchResultPartition(code)
        except StorageError as error:
            self._state.replicas.storage_failed(TopicPartition(entry.topic, entry.partition), error)
            return ClassicFetchResultPartition(ErrorCode.UNKNOWN_SERVER_ERROR)
        return ClassicFetchResultPartition(ErrorCode.NONE, found.records)

    # --- offsets

    def offsets(self, request: ClassicOffsets, _caller: Caller, reply: Reply[ClassicOffsetsResult]) -> None:
        try:
            if request.max_offsets < 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{request.max_offsets} offsets are asked for")
            log = self._topics.log(request.topic, request.partition)
            if log is not None:
                now_ms = self._clock.now_ms()
                offsets = log.times.offsets_before(request.time_ms, max_offsets=request.max_offsets, now_ms=now_ms)
            elif self._state.logs.is_unopened(TopicPartition(request.topic, request.partition)):
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                offsets = [Offset(0)][: request.max_offsets] if request.time_ms in (LATEST, EARLIEST) else []
        except ApiError as error:
            reply(ClassicOffsetsResult(error=error.code))
            return
        except StorageError as error:
            self._state.replicas.storage_failed(TopicPartition(request.topic, request.partition), error)
            reply(ClassicOffsetsResult(error=ErrorCode.KAFKA_STORAGE_ERROR))
            return
        reply(ClassicOffsetsResult(offsets=offsets))


def _with_own_memory(entry: ClassicProducePartition) -> ClassicProducePartition:
    """Return a copy: the records are in the connection's memory."""
    return ClassicProducePartition(entry.topic, entry.partition, memoryview(bytearray(entry.records)))
