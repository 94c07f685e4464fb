"""ClassicProduce, ClassicFetch and ClassicOffsets (facts A3, A4). Everything is answered at once."""

from ...core.replica.append import unwritable
from ...ports.broker_api import (
    EARLIEST,
    LATEST,
    RANDOM_PARTITION,
    Caller,
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
    Reply,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import StorageError, size_of
from ...ports.words import Offset, TopicPartition
from .state import BrokerState

ANSWER_BYTES_MAX = 2**31 - 2**20
"""Of all sets of one fetch: the length before the answer is a signed 32-bit number."""

_FETCH_CODES = frozenset(
    (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_FETCH_SIZE,
    )
)
"""What the classic protocol can say; all else is UNKNOWN_SERVER_ERROR."""

_NOTHING = ClassicFetchResultPartition()


class ClassicService:
    """Answers the classic requests. One partition's failure leaves the others of the request alone."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._topics = state.classic
        self._clock = state.clock
        self._below = state.entropy.below

    # --- produce

    def produce(self, request: ClassicProduce, _caller: Caller, reply: Reply[ClassicProduceResult]) -> None:
        now_ms = self._clock.now_ms()
        reply(ClassicProduceResult(partitions=[self._append(entry, now_ms) for entry in request.partitions]))

    def _append(self, entry: ClassicProducePartition, now_ms: int) -> ClassicProduceResultPartition:
        topic, number = entry.topic, entry.partition
        try:
            if number == RANDOM_PARTITION:
                number = self._below(self._topics.partitions(topic))
            log = self._topics.log_to_append(topic, number)
            appended = log.append(entry.records, leader_epoch=0, now_ms=now_ms)
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
                result, size = _NOTHING, 0  # cut short it would look like a message too large for the fetch
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
