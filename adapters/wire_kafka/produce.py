"""Produce (0), by hand: with Fetch it is nearly all requests, and carries the records.

Records are never copied here: a request holds slices of its frame.
"""

from collections.abc import Mapping
from operator import attrgetter
from struct import Struct

from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition, RecordError
from ...ports.broker_api.transactions import TransactionSupportedOperation
from . import wire
from .api import Api
from .grouping import by_topic, grouped
from .leaders import end_with_nodes, leader_field, read_leader, read_nodes
from .schema import ERROR, cut
from .topic_ids import id_of, read_id, resolve_produce, write_id
from .wire import Reader, Writer

FLEXIBLE = 9
ZSTD = 7
WITH_LEADER = 10
WITH_IDS = 13
BY_NAME = 12
"""The highest version of a request that names its topics."""
ADDS_PARTITIONS = 12
"""From this version on leaders add partitions to the transaction (KIP-890)."""

_NOTHING = memoryview(b"")
_ACKS_TIMEOUT = Struct(">hi")
_LEADER_TAG = 0
_ID_SIZE = len(NO_TOPIC_ID)
_TOPIC = attrgetter("topic")
_GENERIC_ERROR = 11
_OPERATIONS = (
    *(TransactionSupportedOperation.DEFAULT_ERROR for _ in range(_GENERIC_ERROR)),
    TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED,
    *(TransactionSupportedOperation.ADD_PARTITION for _ in range(ADDS_PARTITIONS, WITH_IDS + 1)),
)
"""By version."""
_ADD_PARTITION = TransactionSupportedOperation.ADD_PARTITION


class ProduceRequest:
    """The request of Produce 3 to 13. Versions 11 and 12 say what a client knows of transactions; their form is that of
    10."""

    def read(self, reader: Reader, version: int) -> Produce:
        transactional_id = reader.nullable_text()
        acks, timeout_ms = reader.unpack(_ACKS_TIMEOUT)
        partitions = []
        for _ in range(reader.count()):
            topic = read_id(reader) if version >= WITH_IDS else reader.text()
            for _ in range(reader.count()):
                (index,) = reader.unpack(wire.I32)
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
            allows_zstd=version >= ZSTD,
            supported_operation=_OPERATIONS[version],
        )

    def write(self, writer: Writer, version: int, value: Produce) -> None:
        writer.nullable_text(value.transactional_id)
        writer.put(_ACKS_TIMEOUT, value.acks, value.timeout_ms)
        topics = grouped(value.partitions, _id_of if version >= WITH_IDS else _TOPIC)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            if isinstance(topic, bytes):
                writer.raw(topic)
            else:
                writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                writer.put(wire.I32, part.partition)
                writer.data(part.records)
                writer.end()
            writer.end()
        writer.end()


class ProduceResponse:
    """The response of Produce 3 to 13; `names`: for a client, of the topics whose ids the request had."""

    _V3 = Struct(">ihqq")
    _V5 = Struct(">ihqqq")
    _V8_DONE = b"\x00\x00\x00\x00\xff\xff"  # no record errors, no message
    _V9_DONE = b"\x01\x00\x00"  # the same, and no tagged fields

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names = {} if names is None else names

    def read(self, reader: Reader, version: int) -> ProduceResult:
        partitions = []
        for _ in range(reader.count()):
            if version >= WITH_IDS:
                topic_id = bytes(reader.span(_ID_SIZE))
                topic = self._names.get(topic_id) or topic_id.hex()
            else:
                topic = reader.text()
            for _ in range(reader.count()):
                partitions.append(self._read_partition(reader, version, topic))
            reader.skip_tags()
        (throttle_ms,) = reader.unpack(wire.I32)
        nodes = read_nodes(reader, version)
        return ProduceResult(partitions=partitions, throttle_ms=throttle_ms, nodes=nodes)

    def _read_partition(self, reader: Reader, version: int, topic: str) -> ProduceResultPartition:
        log_start_offset, message, record_errors = -1, None, []
        if version >= 5:
            index, error, base_offset, append_time_ms, log_start_offset = reader.unpack(self._V5)
        else:
            index, error, base_offset, append_time_ms = reader.unpack(self._V3)
        if version >= 8:
            for _ in range(reader.count()):
                (record,) = reader.unpack(wire.I32)
                record_errors.append(RecordError(index=record, message=reader.nullable_text()))
                reader.skip_tags()
            message = reader.nullable_text()
        leader = None
        for tag, content in reader.tags():
            if tag == _LEADER_TAG:
                leader = read_leader(content)
        code = ERROR.of(error)
        return ProduceResultPartition(
            topic, index, code, base_offset, append_time_ms, log_start_offset, message, record_errors, leader
        )

    def write(self, writer: Writer, version: int, value: ProduceResult) -> None:
        topics = by_topic(value.partitions)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            if version >= WITH_IDS:
                write_id(writer, topic)
            else:
                writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                fixed = (part.partition, part.error, part.base_offset, part.log_append_time_ms)
                if version <= 4:
                    writer.out += self._V3.pack(*fixed)
                elif version <= 7:
                    writer.out += self._V5.pack(*fixed, part.log_start_offset)
                elif part.error_message is None and not part.record_errors and part.current_leader is None:
                    done = self._V8_DONE if version < FLEXIBLE else self._V9_DONE
                    writer.out += self._V5.pack(*fixed, part.log_start_offset) + done
                else:
                    writer.out += self._V5.pack(*fixed, part.log_start_offset)
                    self._write_errors(writer, version, part)
            writer.end()
        writer.out += wire.I32.pack(value.throttle_ms)
        end_with_nodes(writer, version, value.nodes if version >= WITH_LEADER else ())

    def _write_errors(self, writer: Writer, version: int, part: ProduceResultPartition) -> None:
        writer.count(len(part.record_errors))
        for refused in part.record_errors:
            writer.put(wire.I32, refused.index)
            writer.nullable_text(cut(refused.message))
            writer.end()
        writer.nullable_text(cut(part.error_message))
        if part.current_leader is not None and version >= WITH_LEADER:
            writer.tagged([(_LEADER_TAG, leader_field(part.current_leader))])
        else:
            writer.end()


def _id_of(part: ProducePartition) -> bytes:
    return id_of(part.topic) if part.topic_id == NO_TOPIC_ID else part.topic_id


def _least(request: Produce) -> int:
    return ADDS_PARTITIONS if request.supported_operation is _ADD_PARTITION else 0


def _most(request: Produce) -> int:
    if request.transactional_id is not None and request.supported_operation is not _ADD_PARTITION:
        return ADDS_PARTITIONS - 1
    for part in request.partitions:
        if part.topic_id == NO_TOPIC_ID:
            return BY_NAME
    return WITH_IDS


def _answer_to(request: Produce, version: int) -> ProduceResponse:
    if version < WITH_IDS:
        return _ANSWER
    return ProduceResponse({part.topic_id: part.topic for part in request.partitions})


_ANSWER = ProduceResponse()

APIS = (
    Api(
        key=0,
        versions=(3, 13),
        advertised_from=0,  # librdkafka before 2.11.1 compresses only if 0 is in the range (facts C3)
        flexible_from=FLEXIBLE,
        request_type=Produce,
        request=ProduceRequest(),
        result=_ANSWER,
        by_partition=True,
        least_version=_least,
        most_version=_most,
        result_of=_answer_to,
        ids_since=WITH_IDS,
        resolved=resolve_produce,
    ),
)
