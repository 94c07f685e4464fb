"""Produce (0) and Fetch (1), by hand: these two are nearly all requests, and carry the records.

Records are never copied here: a request holds slices of its frame, an answer holds them as pieces between its other
bytes.
"""

from collections.abc import Sequence
from struct import Struct

from ...ports.broker_api import (
    AbortedTransaction,
    Fetch,
    FetchPartition,
    FetchResult,
    FetchResultPartition,
    Produce,
    ProducePartition,
    ProduceResult,
    ProduceResultPartition,
    RecordError,
)
from ...ports.error_codes import ErrorCode
from . import wire
from .api import Api
from .schema import ERROR, by_topic, cut
from .wire import Reader, Writer

PRODUCE_FLEXIBLE = 9
PRODUCE_ZSTD = 7
FETCH_FLEXIBLE = 12
FETCH_ZSTD = 10

_NOTHING = memoryview(b"")
_ACKS_TIMEOUT = Struct(">hi")
_THROTTLE_ERROR_SESSION = Struct(">ihi")
_NO_SESSION = 0
_FULL_FETCH_EPOCHS = (0, -1)


class ProduceRequest:
    """The request of Produce 3 to 11."""

    def read(self, reader: Reader, version: int) -> Produce:
        transactional_id = reader.nullable_text()
        acks, timeout_ms = reader.take(_ACKS_TIMEOUT)
        partitions = []
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                (index,) = reader.take(wire.I32)
                records = reader.nullable_data()
                partitions.append(ProducePartition(topic, index, _NOTHING if records is None else records))
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
        return Produce(
            partitions=partitions,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=transactional_id,
            allows_zstd=version >= PRODUCE_ZSTD,
        )

    def write(self, writer: Writer, version: int, value: Produce) -> None:  # noqa: ARG002
        writer.nullable_text(value.transactional_id)
        writer.put(_ACKS_TIMEOUT, value.acks, value.timeout_ms)
        topics = by_topic(value.partitions)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                writer.put(wire.I32, part.partition)
                writer.data(part.records)
                writer.end()
            writer.end()
        writer.end()


class ProduceResponse:
    """The response of Produce 3 to 11."""

    _V3 = Struct(">ihqq")
    _V5 = Struct(">ihqqq")
    _V8_DONE = b"\x00\x00\x00\x00\xff\xff"  # no record errors, no message
    _V9_DONE = b"\x01\x00\x00"  # the same, and no tagged fields

    def read(self, reader: Reader, version: int) -> ProduceResult:
        partitions = []
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                partitions.append(self._read_partition(reader, version, topic))
            reader.skip_tags()
        (throttle_ms,) = reader.take(wire.I32)
        reader.skip_tags()
        return ProduceResult(partitions=partitions, throttle_ms=throttle_ms)

    def _read_partition(self, reader: Reader, version: int, topic: str) -> ProduceResultPartition:
        log_start_offset, message, record_errors = -1, None, []
        if version >= 5:
            index, error, base_offset, append_time_ms, log_start_offset = reader.take(self._V5)
        else:
            index, error, base_offset, append_time_ms = reader.take(self._V3)
        if version >= 8:
            for _ in range(reader.count()):
                (record,) = reader.take(wire.I32)
                record_errors.append(RecordError(index=record, message=reader.nullable_text()))
                reader.skip_tags()
            message = reader.nullable_text()
        reader.skip_tags()
        code = ERROR.of(error)
        return ProduceResultPartition(
            topic, index, code, base_offset, append_time_ms, log_start_offset, message, record_errors
        )

    def write(self, writer: Writer, version: int, value: ProduceResult) -> None:
        topics = by_topic(value.partitions)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                fixed = (part.partition, part.error, part.base_offset, part.log_append_time_ms)
                if version <= 4:
                    writer.out += self._V3.pack(*fixed)
                elif version <= 7:
                    writer.out += self._V5.pack(*fixed, part.log_start_offset)
                elif part.error_message is None and not part.record_errors:
                    done = self._V8_DONE if version < PRODUCE_FLEXIBLE else self._V9_DONE
                    writer.out += self._V5.pack(*fixed, part.log_start_offset) + done
                else:
                    writer.out += self._V5.pack(*fixed, part.log_start_offset)
                    self._write_errors(writer, part)
            writer.end()
        writer.out += wire.I32.pack(value.throttle_ms)
        writer.end()

    def _write_errors(self, writer: Writer, part: ProduceResultPartition) -> None:
        writer.count(len(part.record_errors))
        for refused in part.record_errors:
            writer.put(wire.I32, refused.index)
            writer.nullable_text(cut(refused.message))
            writer.end()
        writer.nullable_text(cut(part.error_message))
        writer.end()


class Answered(Exception):
    """Raised by the reader of a request that the protocol itself answers, without the broker."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


class FetchRequest:
    """The request of Fetch 4 to 12.

    No fetch session is ever granted: every answer says session 0, every request is a full one (facts C6).
    """

    _HEAD_V4 = Struct(">iiiib")
    _HEAD_V7 = Struct(">iiiibii")
    _PARTITION_V4 = Struct(">iqi")
    _PARTITION_V5 = Struct(">iqqi")
    _PARTITION_V9 = Struct(">iiqqi")
    _PARTITION_V12 = Struct(">iiqiqi")

    def read(self, reader: Reader, version: int) -> Fetch:
        session_id, session_epoch = _NO_SESSION, -1
        if version >= 7:
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = reader.take(
                self._HEAD_V7
            )
        else:
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation = reader.take(self._HEAD_V4)
        partitions = []
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                partitions.append(self._read_partition(reader, version, topic))
            reader.skip_tags()
        if version >= 7:
            self._skip_forgotten(reader)
            if version >= 11:
                reader.text()  # the rack
        reader.skip_tags()
        if session_id != _NO_SESSION and session_epoch not in _FULL_FETCH_EPOCHS:
            # It goes on with a session of the broker that was at this address before.
            raise Answered(FetchResult(partitions=(), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return Fetch(
            partitions=partitions,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            replica_id=replica_id,
            allows_zstd=version >= FETCH_ZSTD,
        )

    def _read_partition(self, reader: Reader, version: int, topic: str) -> FetchPartition:
        if version >= 12:
            index, epoch, offset, fetched_epoch, start, max_bytes = reader.take(self._PARTITION_V12)
            reader.skip_tags()
            return FetchPartition(topic, index, offset, max_bytes, epoch, start, fetched_epoch)
        if version >= 9:
            index, epoch, offset, start, max_bytes = reader.take(self._PARTITION_V9)
            return FetchPartition(topic, index, offset, max_bytes, epoch, start)
        if version >= 5:
            index, offset, start, max_bytes = reader.take(self._PARTITION_V5)
            return FetchPartition(topic, index, offset, max_bytes, -1, start)
        index, offset, max_bytes = reader.take(self._PARTITION_V4)
        return FetchPartition(topic, index, offset, max_bytes)

    def _skip_forgotten(self, reader: Reader) -> None:
        for _ in range(reader.count()):
            reader.text()
            reader.span(4 * max(0, reader.count()))
            reader.skip_tags()

    def write(self, writer: Writer, version: int, value: Fetch) -> None:
        head = (value.replica_id, value.max_wait_ms, value.min_bytes, value.max_bytes, value.isolation_level)
        if version >= 7:
            writer.put(self._HEAD_V7, *head, _NO_SESSION, -1)
        else:
            writer.put(self._HEAD_V4, *head)
        topics = by_topic(value.partitions)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                self._write_partition(writer, version, part)
            writer.end()
        if version >= 7:
            writer.count(0)  # forgotten topics
            if version >= 11:
                writer.text("")  # the rack
        writer.end()

    def _write_partition(self, writer: Writer, version: int, part: FetchPartition) -> None:
        index, offset, epoch = part.partition, part.offset, part.current_leader_epoch
        start, max_bytes = part.log_start_offset, part.max_bytes
        if version >= 12:
            writer.put(self._PARTITION_V12, index, epoch, offset, part.last_fetched_epoch, start, max_bytes)
            writer.end()
        elif version >= 9:
            writer.put(self._PARTITION_V9, index, epoch, offset, start, max_bytes)
        elif version >= 5:
            writer.put(self._PARTITION_V5, index, offset, start, max_bytes)
        else:
            writer.put(self._PARTITION_V4, index, offset, max_bytes)


class FetchResponse:
    """The response of Fetch 4 to 12. Without aborted transactions their list is null; the preferred replica is none."""

    _FIXED_V4 = Struct(">ihqq")
    _FIXED_V5 = Struct(">ihqqq")
    _TAIL_V4 = b"\xff\xff\xff\xff"  # aborted transactions
    _TAIL_V11 = b"\xff\xff\xff\xff\xff\xff\xff\xff"  # and the preferred replica
    _TAIL_V12 = b"\x00\xff\xff\xff\xff"
    _ABORTED = Struct(">qq")
    _NO_REPLICA = b"\xff\xff\xff\xff"

    def read(self, reader: Reader, version: int) -> FetchResult:
        """The records are slices of the frame."""
        error = 0
        if version >= 7:
            throttle_ms, error, _ = reader.take(_THROTTLE_ERROR_SESSION)
        else:
            (throttle_ms,) = reader.take(wire.I32)
        partitions = []
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                partitions.append(self._read_partition(reader, version, topic))
            reader.skip_tags()
        reader.skip_tags()
        return FetchResult(partitions=partitions, error=ERROR.of(error), throttle_ms=throttle_ms)

    def _read_partition(self, reader: Reader, version: int, topic: str) -> FetchResultPartition:
        log_start_offset = -1
        if version >= 5:
            index, error, high_watermark, last_stable, log_start_offset = reader.take(self._FIXED_V5)
        else:
            index, error, high_watermark, last_stable = reader.take(self._FIXED_V4)
        count = reader.count()
        aborted = tuple(self._read_aborted(reader) for _ in range(count)) if count > 0 else ()
        if version >= 11:
            reader.span(4)  # the preferred replica
        records = reader.nullable_data()
        reader.skip_tags()
        return FetchResultPartition(
            topic,
            index,
            ERROR.of(error),
            high_watermark,
            last_stable,
            log_start_offset,
            _NOTHING if records is None else records,
            aborted,
        )

    def _read_aborted(self, reader: Reader) -> AbortedTransaction:
        producer_id, first_offset = reader.take(self._ABORTED)
        reader.skip_tags()
        return AbortedTransaction(producer_id, first_offset)

    def write(self, writer: Writer, version: int, value: FetchResult) -> None:
        if version >= 7:
            writer.put(_THROTTLE_ERROR_SESSION, value.throttle_ms, value.error, _NO_SESSION)
        else:
            writer.put(wire.I32, value.throttle_ms)
        tail = self._TAIL_V12 if version >= 12 else self._TAIL_V11 if version >= 11 else self._TAIL_V4
        topics = by_topic(value.partitions)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                fixed = (part.partition, part.error, part.high_watermark, part.last_stable_offset)
                if version >= 5:
                    writer.put(self._FIXED_V5, *fixed, part.log_start_offset)
                else:
                    writer.put(self._FIXED_V4, *fixed)
                if part.aborted:
                    self._write_aborted(writer, version, part.aborted)
                else:
                    writer.out += tail
                writer.data(part.records)
                writer.end()
            writer.end()
        writer.end()

    def _write_aborted(self, writer: Writer, version: int, aborted: Sequence[AbortedTransaction]) -> None:
        writer.count(len(aborted))
        for each in aborted:
            writer.put(self._ABORTED, each.producer_id, each.first_offset)
            writer.end()
        if version >= 11:
            writer.out += self._NO_REPLICA


APIS = (
    Api(
        key=0,
        versions=(3, 11),
        advertised_from=0,  # librdkafka before 2.11.1 compresses only if 0 is in the range (facts C3)
        flexible_from=PRODUCE_FLEXIBLE,
        request_type=Produce,
        request=ProduceRequest(),
        result=ProduceResponse(),
        by_partition=True,
    ),
    Api(
        key=1,
        versions=(4, 12),
        flexible_from=FETCH_FLEXIBLE,
        request_type=Fetch,
        request=FetchRequest(),
        result=FetchResponse(),
        by_partition=True,
    ),
)
