"""Fetch (1), by hand: with Produce it is nearly all requests, and carries the records.

Records are never copied here: an answer holds them as pieces between its other bytes. From version 13 on, topics go by
their ids alone: the broker's end puts in the names that it finds, the client's end those of its request.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import cast

from ...ports.broker_api.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    Fetch,
    FetchPartition,
    FetchResult,
    FetchResultPartition,
)
from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.error_codes import ErrorCode
from . import wire
from .api import Api, in_order
from .grouping import grouped
from .leaders import end_with_nodes, leader_field, read_leader, read_nodes
from .schema import ERROR
from .wire import Reader, Writer

FLEXIBLE = 12
ZSTD = 10
FROM_FOLLOWERS = 11
WITH_IDS = 13
_TOPIC = attrgetter("topic")
_TOPIC_ID = attrgetter("topic_id")
WITH_REPLICA_STATE = 15
WITH_NODES = 16

_NOTHING = memoryview(b"")
_THROTTLE_ERROR_SESSION = Struct(">ihi")
_NO_SESSION = 0
_FULL_FETCH_EPOCHS = (0, -1)
_ID_SIZE = 16


class Answered(Exception):
    """Raised by the reader of a request that the protocol itself answers, without the broker."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


class FetchRequest:
    """The request of Fetch 4 to 18. What 17 and 18 add, tagged, is Kafka's followers' alone, and passed over.

    No fetch session is ever granted to a consumer: every answer says session 0, every request is a full one (facts C6).
    """

    _HEAD_V4 = Struct(">iiiib")
    _HEAD_V7 = Struct(">iiiibii")
    _HEAD_V15 = Struct(">iiibii")
    _PARTITION_V4 = Struct(">iqi")
    _PARTITION_V5 = Struct(">iqqi")
    _PARTITION_V9 = Struct(">iiqqi")
    _PARTITION_V12 = Struct(">iiqiqi")
    _REPLICA_STATE_TAG = 1
    _REPLICA_STATE = Struct(">iqB")

    def read(self, reader: Reader, version: int) -> Fetch:
        session_id, session_epoch, replica_id = _NO_SESSION, -1, -1
        if version >= WITH_REPLICA_STATE:
            max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = reader.unpack(self._HEAD_V15)
        elif version >= 7:
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = reader.unpack(
                self._HEAD_V7
            )
        else:
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation = reader.unpack(self._HEAD_V4)
        partitions = self._read_partitions(reader, version)
        forgets = reader.count() if version >= 7 else 0
        forgotten = self._read_forgotten(reader, version, forgets) if forgets > 0 else ()
        rack_id = reader.text() if version >= 11 else ""
        replica_epoch = -1
        for tag, content in reader.tags():
            if tag == self._REPLICA_STATE_TAG and version >= WITH_REPLICA_STATE:
                replica_id, replica_epoch, _ = content.unpack(self._REPLICA_STATE)
        if replica_epoch >= 0:
            session = session_id, session_epoch
        elif session_id == _NO_SESSION or session_epoch in _FULL_FETCH_EPOCHS:
            session, forgotten = (_NO_SESSION, -1), ()
        else:
            # The client continues a session of the broker that had this address before.
            raise Answered(FetchResult(partitions=(), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return Fetch(
            partitions=partitions,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            session_id=session[0],
            session_epoch=session[1],
            forgotten=forgotten,
            rack_id=rack_id,
            allows_zstd=version >= ZSTD,
            allows_follower=version >= FROM_FOLLOWERS,
        )

    def _read_partitions(self, reader: Reader, version: int) -> list[FetchPartition]:
        partitions = []
        for _ in range(reader.count()):
            if version >= WITH_IDS:
                topic, topic_id = "", bytes(reader.span(_ID_SIZE))
            else:
                topic, topic_id = reader.text(), NO_TOPIC_ID
            for _ in range(reader.count()):
                partitions.append(self._read_partition(reader, version, topic, topic_id))
            reader.skip_tags()
        return partitions

    def _read_partition(self, reader: Reader, version: int, topic: str, topic_id: bytes) -> FetchPartition:
        if version >= 12:
            index, epoch, offset, fetched_epoch, start, max_bytes = reader.unpack(self._PARTITION_V12)
            reader.skip_tags()
            return FetchPartition(topic, index, offset, max_bytes, epoch, start, fetched_epoch, topic_id)
        if version >= 9:
            index, epoch, offset, start, max_bytes = reader.unpack(self._PARTITION_V9)
            return FetchPartition(topic, index, offset, max_bytes, epoch, start)
        if version >= 5:
            index, offset, start, max_bytes = reader.unpack(self._PARTITION_V5)
            return FetchPartition(topic, index, offset, max_bytes, -1, start)
        index, offset, max_bytes = reader.unpack(self._PARTITION_V4)
        return FetchPartition(topic, index, offset, max_bytes)

    def _read_forgotten(self, reader: Reader, version: int, topics: int) -> Sequence[tuple[bytes, int]]:
        """Read what is forgotten. Versions with names have nothing: only consumers use them, without fetch sessions."""
        forgotten: list[tuple[bytes, int]] = []
        for _ in range(topics):
            if version >= WITH_IDS:
                topic_id = bytes(reader.span(_ID_SIZE))
                forgotten += [(topic_id, reader.unpack(wire.I32)[0]) for _ in range(reader.count())]
            else:
                reader.text()
                reader.span(4 * max(0, reader.count()))
            reader.skip_tags()
        return forgotten

    def write(self, writer: Writer, version: int, value: Fetch) -> None:
        head = (value.max_wait_ms, value.min_bytes, value.max_bytes, value.isolation_level)
        if version >= WITH_REPLICA_STATE:
            writer.put(self._HEAD_V15, *head, value.session_id, value.session_epoch)
        elif version >= 7:
            writer.put(self._HEAD_V7, value.replica_id, *head, _NO_SESSION, -1)
        else:
            writer.put(self._HEAD_V4, value.replica_id, *head)
        topics = grouped(value.partitions, _TOPIC_ID if version >= WITH_IDS else _TOPIC)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            if isinstance(topic, bytes):
                writer.raw(topic)
            else:
                writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                self._write_partition(writer, version, part)
            writer.end()
        if version >= 7:
            self._write_forgotten(writer, value.forgotten if version >= WITH_REPLICA_STATE else ())
        if version >= 11:
            writer.text(value.rack_id)
        if version >= WITH_REPLICA_STATE and value.replica_id != -1:
            replica_state = self._REPLICA_STATE.pack(value.replica_id, value.replica_epoch, 0)
            writer.tagged([(self._REPLICA_STATE_TAG, replica_state)])
        else:
            writer.end()

    def _write_forgotten(self, writer: Writer, forgotten: Sequence[tuple[bytes, int]]) -> None:
        """Write the forgotten partitions by topic id: only followers have any, and their versions have ids."""
        topics: dict[bytes, list[int]] = {}
        for topic_id, number in forgotten:
            topics.setdefault(topic_id, []).append(number)
        writer.count(len(topics))
        for topic_id, numbers in topics.items():
            writer.raw(topic_id)
            writer.count(len(numbers))
            for number in numbers:
                writer.put(wire.I32, number)
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
    """The response of Fetch 4 to 18. Without aborted transactions their list is null.

    names: the topic names by id, for versions that carry ids only.
    """

    _FIXED_V4 = Struct(">ihqq")
    _FIXED_V5 = Struct(">ihqqq")
    _TAIL_V4 = b"\xff\xff\xff\xff"  # aborted transactions
    _TAIL_V11 = b"\xff\xff\xff\xff\xff\xff\xff\xff"  # and the preferred replica
    _TAIL_V12 = b"\x00\xff\xff\xff\xff"
    _ABORTED = Struct(">qq")
    _DIVERGING_TAG = 0
    _DIVERGING = Struct(">iqB")
    _LEADER_TAG = 1

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names = names or {}

    def read(self, reader: Reader, version: int) -> FetchResult:
        """Return the result; its records are slices of the frame."""
        error, session_id = 0, _NO_SESSION
        if version >= 7:
            throttle_ms, error, session_id = reader.unpack(_THROTTLE_ERROR_SESSION)
        else:
            (throttle_ms,) = reader.unpack(wire.I32)
        partitions = []
        for _ in range(reader.count()):
            if version >= WITH_IDS:
                topic_id = bytes(reader.span(_ID_SIZE))
                topic = self._names.get(topic_id, "")
            else:
                topic, topic_id = reader.text(), NO_TOPIC_ID
            for _ in range(reader.count()):
                partitions.append(self._read_partition(reader, version, topic, topic_id))
            reader.skip_tags()
        nodes = read_nodes(reader, version)
        return FetchResult(
            partitions=partitions, error=ERROR.of(error), throttle_ms=throttle_ms, nodes=nodes, session_id=session_id
        )

    def _read_partition(self, reader: Reader, version: int, topic: str, topic_id: bytes) -> FetchResultPartition:
        log_start_offset = -1
        if version >= 5:
            index, error, high_watermark, last_stable, log_start_offset = reader.unpack(self._FIXED_V5)
        else:
            index, error, high_watermark, last_stable = reader.unpack(self._FIXED_V4)
        count = reader.count()
        aborted = tuple(self._read_aborted(reader) for _ in range(count)) if count >= 0 else None
        preferred = reader.unpack(wire.I32)[0] if version >= 11 else -1
        records = reader.nullable_data()
        diverging = leader = None
        for tag, content in reader.tags():
            if tag == self._DIVERGING_TAG:
                epoch, end_offset, _ = content.unpack(self._DIVERGING)
                diverging = DivergingEpoch(epoch, end_offset) if end_offset >= 0 else None
            elif tag == self._LEADER_TAG:
                leader = read_leader(content)
        return FetchResultPartition(
            topic,
            index,
            ERROR.of(error),
            high_watermark,
            last_stable,
            log_start_offset,
            _NOTHING if records is None else records,
            aborted,
            diverging,
            leader,
            preferred,
            topic_id,
        )

    def _read_aborted(self, reader: Reader) -> AbortedTransaction:
        producer_id, first_offset = reader.unpack(self._ABORTED)
        reader.skip_tags()
        return AbortedTransaction(producer_id, first_offset)

    def write(self, writer: Writer, version: int, value: FetchResult) -> None:
        if version >= 7:
            writer.out += _THROTTLE_ERROR_SESSION.pack(value.throttle_ms, value.error, value.session_id)
        else:
            writer.out += wire.I32.pack(value.throttle_ms)
        tail = self._TAIL_V12 if version >= 12 else self._TAIL_V11 if version >= 11 else self._TAIL_V4
        topics = grouped(value.partitions, _TOPIC_ID if version >= WITH_IDS else _TOPIC)
        writer.count(len(topics))
        for topic, partitions in topics.items():
            if version >= WITH_IDS:
                writer.raw(topic)
            else:
                writer.text(topic)
            writer.count(len(partitions))
            for part in partitions:
                error = part.error if part.topic or version < WITH_IDS else _of_nameless(part)
                fixed = (part.partition, error, part.high_watermark, part.last_stable_offset)
                if version >= 5:
                    writer.out += self._FIXED_V5.pack(*fixed, part.log_start_offset)
                else:
                    writer.out += self._FIXED_V4.pack(*fixed)
                if part.aborted is not None or part.preferred_read_replica >= 0:
                    self._write_aborted(writer, version, part)
                else:
                    writer.out += tail
                writer.data(part.records)
                if part.diverging is None and part.current_leader is None:
                    writer.end()
                else:
                    self._end_partition(writer, version, part)
            writer.end()
        if value.nodes and version >= WITH_NODES:
            end_with_nodes(writer, version, value.nodes)
        else:
            writer.end()

    def _write_aborted(self, writer: Writer, version: int, part: FetchResultPartition) -> None:
        aborted = part.aborted
        writer.count(-1 if aborted is None else len(aborted))
        for each in aborted or ():
            writer.put(self._ABORTED, each.producer_id, each.first_offset)
            writer.end()
        if version >= 11:
            writer.put(wire.I32, part.preferred_read_replica)

    def _end_partition(self, writer: Writer, version: int, part: FetchResultPartition) -> None:
        if version < FLEXIBLE:
            return
        fields = []
        if part.diverging is not None:
            content = self._DIVERGING.pack(part.diverging.epoch, part.diverging.end_offset, 0)
            fields.append((self._DIVERGING_TAG, content))
        if part.current_leader is not None:
            fields.append((self._LEADER_TAG, leader_field(part.current_leader)))
        writer.tagged(fields)


def _of_nameless(part: FetchResultPartition) -> ErrorCode:
    """Return the error for a topic without a name. Its reader gave an id, so an unknown topic is an unknown id."""
    return ErrorCode.UNKNOWN_TOPIC_ID if part.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else part.error


def _least(request: Fetch) -> int:
    """Return the lowest version for a request: one with the broker epoch, if the follower has one (KIP-903)."""
    return 4 if request.replica_epoch < 0 else WITH_REPLICA_STATE


def _most(request: Fetch) -> int:
    """Return the highest version for a request: without the ids of all topics, one with names."""
    for part in request.partitions:  # a loop: see `_named`
        if part.topic_id == NO_TOPIC_ID:
            return WITH_IDS - 1
    return WITH_NODES


def _named(request: Fetch, topic_name: Callable[[bytes], str]) -> Fetch:
    for entry in request.partitions:  # a loop: it costs a third of `any` with a generator, in every fetch
        if not entry.topic and _is_nameless(entry):
            return _with_names(request, topic_name)
    return request


def _with_names(request: Fetch, topic_name: Callable[[bytes], str]) -> Fetch:
    """Fill in the names, in the list that `FetchRequest.read` has made for this request."""
    partitions = cast(list[FetchPartition], request.partitions)
    for number, entry in enumerate(partitions):
        partitions[number] = FetchPartition(
            topic_name(entry.topic_id),
            entry.partition,
            entry.offset,
            entry.max_bytes,
            entry.current_leader_epoch,
            entry.log_start_offset,
            entry.last_fetched_epoch,
            entry.topic_id,
        )
    return request


def _completed(request: Fetch, result: FetchResult) -> FetchResult:
    """Order the result like the request.

    In a fetch session answers have only what is new, and a client beyond its quota gets no partitions at all (KIP-219).
    """
    is_throttled = result.throttle_ms > 0 and not result.partitions
    return result if request.session_id != _NO_SESSION or is_throttled else in_order(request, result)


def _is_nameless(part: FetchPartition | FetchResultPartition) -> bool:
    return not part.topic and part.topic_id != NO_TOPIC_ID


def _answer_to(request: Fetch, version: int) -> FetchResponse:
    if version < WITH_IDS:
        return _ANSWER
    return FetchResponse({part.topic_id: part.topic for part in request.partitions})


_ANSWER = FetchResponse()

APIS = (
    Api(
        key=1,
        versions=(4, 18),
        flexible_from=FLEXIBLE,
        request_type=Fetch,
        request=FetchRequest(),
        result=_ANSWER,
        least_version=_least,
        most_version=_most,
        result_of=_answer_to,
        named=_named,
        completed=_completed,
    ),
)
