"""The clients of `app`, as the pipeline needs them: what a cluster has, ranges of records in columns, a producer.

A classic cluster is planned by its registries, and each broker is asked separately.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import attrs

from ...app.clients.admin.admin import Admin
from ...app.clients.classic.choice import find_out
from ...app.clients.classic.cluster_listing import ClusterListing, address_text, count_partitions, list_cluster
from ...app.clients.classic.producer_settings import ClassicConsumerSettings, RegistrySettings
from ...app.clients.classic.simple_consumer import ClassicSimpleConsumer
from ...app.clients.consumer.remote_ranges import RemoteRange, RemoteRanges
from ...app.clients.consumer.simple_consumer import FetchedSet, SimpleConsumer
from ...app.clients.producer.producer import Producer
from ...app.clients.shared.delivery import ManyHandle
from ...app.clients.shared.settings import CommonSettings, FetchSettings, read_settings
from ...core.message.batch_header import BatchHeader
from ...core.message.classic.entry import find_next_intact_entry, read_entry, read_plain_run
from ...core.message.classic.message_set import ClassicMessageSet
from ...core.message.classic.reader import SetDecoder
from ...core.message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ...core.message.corrupt_record import CorruptRecord, Damage, is_damage
from ...plugins.host import PluginHost
from ...ports.broker_api.metadata import TopicMetadata
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.transport import Address, TransportError
from ...ports.types import Buffer, TopicPartition
from .client_cache import ClientCache
from .client_options import registry_names
from .damage import DamagedRange
from .model import EARLIEST, REMOTE_STORAGE, Cluster, ClusterPartition, PartitionColumns, TopicInfo, Where

if TYPE_CHECKING:
    import pyarrow as pa

    from ...app.clients.arrow.decode import ArrowColumns


PIECE_BYTES = 1024 * 1024
"""Pieces are handed on when they have grown so far: many small wrappers make one, a large one several."""


class _Piece:
    """Columns that grow."""

    def __init__(self) -> None:
        self._offsets: list[list[int]] = []
        self._indexes: list[list[int | None]] = []
        self._values: list[list[bytes]] = []
        self._wrapped = False
        self.size_bytes = 0

    def plain(self, payloads: list[bytes], starts: list[int]) -> None:
        self._offsets.append(starts)
        self._indexes.append([None] * len(starts))
        self._values.append(payloads)
        self.size_bytes += sum(map(len, payloads))

    def wrapped(self, payloads: list[bytes], start: int, first: int) -> None:
        """`first`: how many messages of the wrapper came before these."""
        self._offsets.append([start] * len(payloads))
        self._indexes.append(list(range(first, first + len(payloads))))
        self._values.append(payloads)
        self._wrapped = True
        self.size_bytes += sum(map(len, payloads))

    def columns(self, next_offset: int) -> PartitionColumns:
        join = chain.from_iterable
        indexes = list(join(self._indexes)) if self._wrapped else ()
        values: list[bytes | None] = list(join(self._values))
        return PartitionColumns(
            next_offset, list(join(self._offsets)), (), (), (), values, (), indexes, size_bytes=self.size_bytes
        )


def classic_columns(
    data: bytes,
    codecs: Codecs,
    *,
    from_offset: int,
    upto: int,
    check_crc: bool = True,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[PartitionColumns]:
    """Yield the messages of a set that begins at byte `from_offset` of its log, up to the entry that begins at `upto`.

    The last piece's `next_offset` is behind the last whole entry that was taken; before that, a piece that ends inside
    a wrapper leads back to the wrapper's start. Yields at least one piece, perhaps without rows. A part of an entry at
    the end is left out. Raises `ApiError` as iterating over a `ClassicMessageSet` does; the piece before that leads on
    to the entry that is wrong.
    """
    piece, position = _Piece(), 0
    try:
        while from_offset + position < upto:
            payloads, ends = read_plain_run(data, position, check_crc)
            if ends:
                starts = [from_offset + start for start in (position, *ends[:-1])]
                count = bisect_left(starts, upto)
                piece.plain(payloads[:count], starts[:count])
                position = ends[count - 1]
            else:
                entry = read_entry(data, position, check_crc=check_crc)
                if entry is None:
                    break
                if entry.codec_id:
                    start = from_offset + position
                    first = 0
                    for values in _opened(data[position : entry.end], codecs, check_crc):
                        piece.wrapped(values, start, first)
                        first += len(values)
                        if piece.size_bytes >= piece_bytes:
                            yield piece.columns(start)
                            piece = _Piece()
                else:
                    piece.plain([data[entry.payload_start : entry.end]], [from_offset + position])
                position = entry.end
            if piece.size_bytes >= piece_bytes:
                yield piece.columns(from_offset + position)
                piece = _Piece()
    except ApiError:
        yield piece.columns(from_offset + position)
        raise
    yield piece.columns(from_offset + position)


def _opened(wrapper: bytes, codecs: Codecs, check_crc: bool) -> Iterator[list[bytes]]:
    """Yield the payloads in one wrapper, some at a time."""
    decoder = SetDecoder(codecs, "", -1, DECOMPRESSED_BYTES_MAX, check_crc)
    for run in decoder.runs(wrapper, 0):
        yield [message.value or b"" for message in run]


_CLASSIC_FETCH_BYTES = 4 * 1024 * 1024
"""The fetch size, unless the settings give another one: as large as in the current generation."""
_SIZE_BYTES = 4
"""The size of the length field of a message: a fetch of only these bytes grows until it has exactly one message."""
_TRIES = 6
_FIRST_PAUSE_S = 0.1


class ClassicCluster:
    """Fulfils `cluster.Cluster` with the registries, or a fixed list of brokers, and a SimpleConsumer per broker."""

    def __init__(self, where: Where, client: Mapping[str, str]) -> None:
        """`client` has settings of the simple consumer and of registries by their dotted names. Raises `ConfigError`;
        connects when it is used."""
        registry = {name: client[name] for name in registry_names(client)}
        self._registry_settings = read_settings(RegistrySettings, registry, {})
        self._consumer_settings = {name: value for name, value in client.items() if name not in registry}
        chosen = read_settings(ClassicConsumerSettings, self._consumer_settings, {})
        given = {"fetch.size", "max.partition.fetch.bytes"} & self._consumer_settings.keys()
        self._fetch_bytes = chosen.fetch_size if given else _CLASSIC_FETCH_BYTES
        self._check_crcs = chosen.check_crcs
        self._skip_damaged = chosen.skip_damaged
        self._whereabouts = find_out(
            where.bootstrap,
            broker_list=where.broker_list,
            zk_connect=where.zk_connect,
            etcd_connect=where.etcd_connect,
            coordination=where.coordination,
        )
        self._listing: ClusterListing | None = None
        self._consumers: dict[Address, ClassicSimpleConsumer] = {}
        """The consumers by address: a broker may come back at another one while this is kept."""
        self._plugins = PluginHost()
        self._codecs = self._plugins.codecs()

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicInfo]:
        self._listing = listing = list_cluster(self._whereabouts, self._registry_settings, names)
        if self._whereabouts.brokers is None:
            return {name: _classic_info(name, counts) for name, counts in listing.topics.items()}
        return {
            name: _classic_info(
                name, {broker: count_partitions(self._consumer(broker), name) for broker in listing.brokers}
            )
            for name in names or ()
        }

    def offsets(self, partitions: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        return {tp: self._offset(tp, timestamp_ms) for tp in partitions}

    def read(
        self, tp: ClusterPartition, start: int, end: int, *, with_headers: bool = False
    ) -> Iterator[PartitionColumns]:
        del with_headers  # there are none
        position = start
        while position < end:
            piece = self._fetch(tp, position, self._fetch_bytes)
            if not piece.size:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} ends at {position}, before offset {end}")
            records = piece.records
            data = bytes(records if isinstance(records, Buffer) else records.read())
            reached = position
            try:
                for columns in classic_columns(
                    data, self._codecs, from_offset=position, upto=end, check_crc=self._check_crcs
                ):
                    yield columns
                    reached = columns.next_offset
            except ApiError as error:
                if not (is_damage(error) or (self._skip_damaged and error.code is ErrorCode.INVALID_FETCH_SIZE)):
                    text = f"{tp}: {error.message} (of a fetch at offset {position})"
                    raise ApiError(error.code, text) from error
                if not self._skip_damaged:
                    reason = f"broker {tp.broker}: {error.message}"
                    raise CorruptRecord(tp.topic, tp.partition, reached, reason) from error
                behind = position + _behind(data, reached - position, whole=position + len(data) >= end)
                yield PartitionColumns.without_records(_classic_damage(tp, reached, behind, error.message))
                reached = behind
            if reached <= position:
                text = f"broker {tp.broker}: there is no message, only {len(data)} bytes"
                if not self._skip_damaged:
                    raise CorruptRecord(tp.topic, tp.partition, position, text)
                yield PartitionColumns.without_records(_classic_damage(tp, position, end, text))
                reached = end
            position = reached

    def in_bucket(self, tp: ClusterPartition, start: int, end: int) -> int:  # noqa: ARG002
        return start

    def boundary(self, tp: ClusterPartition, start: int, wanted: int) -> int:
        position = start
        while position < wanted:
            piece = self._fetch(tp, position, min(self._fetch_bytes, max(_SIZE_BYTES, wanted - position)))
            if not piece.valid_bytes or (piece.next_offset > wanted and position > start):
                break  # the log ends here, or the next message goes too far
            position = piece.next_offset
        return position

    def where(self, tp: ClusterPartition) -> Where:
        return Where(broker_list=f"{tp.broker}:{address_text(self._address(tp.broker))}")

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def _offset(self, tp: ClusterPartition, timestamp_ms: int) -> int:
        try:
            consumer = self._consumer(tp.broker)
            found = consumer.get_offsets_before(tp.topic, tp.partition, timestamp_ms)
            return found[0] if found else consumer.get_offsets_before(tp.topic, tp.partition, EARLIEST)[0]
        except (TransportError, IndexError) as error:
            self._listing = None
            text = f"broker {tp.broker} returned no offsets of {tp}: {error}"
            raise TransportError(text) from error

    def _fetch(self, tp: ClusterPartition, offset: int, max_bytes: int) -> ClassicMessageSet:
        """Return a set that is not empty unless the log ends there; tried again while the broker cannot be reached."""
        for failures in range(1, _TRIES):
            try:
                return self._consumer(tp.broker).fetch(tp.topic, tp.partition, offset, max_bytes)
            except TransportError:
                self._listing = None
                time.sleep(_FIRST_PAUSE_S * 2**failures)
        return self._consumer(tp.broker).fetch(tp.topic, tp.partition, offset, max_bytes)

    def _consumer(self, broker: int) -> ClassicSimpleConsumer:
        address = self._address(broker)
        found = self._consumers.get(address)
        if found is None:
            url = f"classic://{address_text(address)}"
            found = ClassicSimpleConsumer(url, config=self._consumer_settings, plugins=self._plugins)  # type: ignore[arg-type]  # a host is taken as it is
            self._consumers[address] = found
        return found

    def _address(self, broker: int) -> Address:
        if self._listing is None:
            self._listing = list_cluster(self._whereabouts, self._registry_settings, ())
        address = self._listing.brokers.get(broker)
        if address is None:
            alive = ", ".join(map(str, sorted(self._listing.brokers))) or "none"
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not alive; there is {alive}")
        return address


def _classic_info(topic: str, counts: Mapping[int, int]) -> TopicInfo:
    return TopicInfo(
        topic,
        [ClusterPartition(topic, number, broker) for broker in sorted(counts) for number in range(counts[broker])],
    )


def _behind(data: bytes, position: int, *, whole: bool) -> int:
    """Return the position in the fetched bytes at which to continue. If no intact entry follows, an entry may still
    begin in the second half and continue behind it, unless this is the `whole` rest.
    """
    found = find_next_intact_entry(data, position)
    if found is not None:
        return found
    return len(data) if whole else max(position + 1, position + (len(data) - position) // 2)


def _classic_damage(tp: ClusterPartition, start: int, end: int, reason: str) -> DamagedRange:
    return DamagedRange(topic=tp.topic, partition=tp.partition, broker=tp.broker, start=start, end=end, reason=reason)


CHUNK_BYTES = 4 * 1024 * 1024
"""The fetch size. It is large, so that round trips to the broker cost little: a second thread that fetches ahead was
tried, and was no quicker.
"""
_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.")
_CHUNK_SETTING = "max.partition.fetch.bytes"
_COMMON = frozenset(field.name.replace("_", ".") for field in attrs.fields(CommonSettings))
_BATCH_SETTING = "batch.size"
_BATCH_BYTES = 128 * 1024
"""Rows come by the thousand, so larger batches than those of clients that are given one message after the other."""
_UNSETTLED_MAX = 4
"""The number of unacknowledged Arrow batches above which a writer waits for the oldest."""


def connect_cluster(where: Where, client: Mapping[str, str]) -> Cluster:
    """Return a connection with client settings by their dotted names. Raises `ConfigError`; connects when it is
    used."""
    if where.classic:
        return ClassicCluster(where, client)
    return ClientCluster(where.bootstrap, client)


def common_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a reader that every client knows."""
    return {name: value for name, value in client.items() if name in _COMMON or name.startswith(_SECURITY)}


class ClientCluster:
    """Fulfils `cluster.Cluster` with Admin and SimpleConsumer, each opened when it is needed first."""

    def __init__(self, bootstrap: str, client: Mapping[str, str]) -> None:
        self._client = dict(client)
        self._bucket = self._client.pop(REMOTE_STORAGE, "")
        self._settings = read_settings(FetchSettings, self._client, {})
        self._bootstrap = bootstrap
        self._admin: Admin | None = None
        self._consumer: SimpleConsumer | None = None
        self._ranges: RemoteRanges | None = None
        self._plugins = PluginHost()

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicInfo]:
        described = {topic.name: topic for topic in self._described(names) if not topic.internal}
        return {name: _info(topic) for name, topic in described.items() if name and (names is None or name in names)}

    def offsets(self, partitions: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        asked: dict[TopicPartition | tuple[str, int], int | str] = {_plain(tp): timestamp_ms for tp in partitions}
        found = self._ask().list_offsets(asked, isolation_level=self._settings.isolation_level) if asked else {}
        return {ClusterPartition(*partition): offset for partition, offset in found.items()}

    def read(
        self, tp: ClusterPartition, start: int, end: int, *, with_headers: bool = False
    ) -> Iterator[PartitionColumns]:
        partition = _plain(tp)
        for piece in self._fetch(partition, start, end):
            if piece.damage is not None:
                yield PartitionColumns.without_records(_damaged(piece.damage))
            yield from self._columns(piece, partition, upto=end, with_headers=with_headers)

    def _columns(
        self, piece: FetchedSet, partition: TopicPartition, *, upto: int, with_headers: bool
    ) -> Iterator[PartitionColumns]:
        """Decode a piece to columns. Records that cannot be decoded although their CRC is right raise `CorruptRecord`,
        or are reported as damage with `skip.damaged`.
        """
        from ...app.clients.arrow.decode import decode_set

        damaged: deque[DamagedRange] = deque()

        def met(header: BatchHeader, error: ApiError) -> None:
            if not self._settings.skip_damaged:
                raise CorruptRecord(*partition, max(piece.from_offset, header.base_offset), error.message) from error
            damaged.append(_damaged(Damage(*partition, header.base_offset, header.next_offset, error.message)))

        piece.on_damage = met
        for found in decode_set(piece, upto=upto, with_headers=with_headers):
            yield _columns(found)
            while damaged:
                yield PartitionColumns.without_records(damaged.popleft())
        while damaged:
            yield PartitionColumns.without_records(damaged.popleft())

    def in_bucket(self, tp: ClusterPartition, start: int, end: int) -> int:
        remote = self._remote(_plain(tp), start)
        return start if remote is None else remote.reach(start, end)

    def boundary(self, tp: ClusterPartition, start: int, wanted: int) -> int:  # noqa: ARG002
        return wanted

    def where(self, tp: ClusterPartition) -> Where:  # noqa: ARG002
        return Where(bootstrap=self._bootstrap)

    def close(self) -> None:
        for client in (self._admin, self._consumer, self._ranges):
            if client is not None:
                client.close()

    def _described(self, names: Collection[str] | None) -> Sequence[TopicMetadata]:
        """Describe only these topics, if all of them exist: a task need not receive thousands of others."""
        if names is not None:
            try:
                return self._ask().describe_topics(sorted(names))
            except ApiError as error:
                if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    raise
        return self._ask().describe_topics()

    def _ask(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self._bootstrap, config=common_settings(self._client))
        return self._admin

    def _read_by(self) -> SimpleConsumer:
        if self._consumer is None:
            self._consumer = SimpleConsumer(self._bootstrap, config=self._client, plugins=self._plugins)
        return self._consumer

    def _fetch(self, partition: TopicPartition, start: int, end: int) -> Iterator[FetchedSet]:
        size = None if _CHUNK_SETTING in self._client else CHUNK_BYTES
        remote = self._remote(partition, start)
        return self._read_by().read(partition.topic, partition.partition, start, end, size, remote=remote)

    def _remote(self, partition: TopicPartition, start: int) -> RemoteRange | None:
        """Return what comes from remote storage. The topic's id is asked for each time: it may be created again."""
        if not self._bucket:
            return None
        if self._ranges is None:
            self._ranges = RemoteRanges(self._bucket)

        def topic_id() -> bytes:
            (described,) = self._ask().describe_topics([partition.topic])
            return bytes(described.topic_id)

        return self._ranges.find(self._read_by(), partition, start, topic_id)


class RowProducer:
    """Takes rows in groups; at most a few groups are on their way, and the first failure is raised."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._unsettled: deque[ManyHandle] = deque()
        self.topics: frozenset[str] = frozenset()
        """The topics to which rows were sent."""

    def send(self, topic: str, rows: "pa.RecordBatch") -> None:
        """Send the rows of an Arrow batch to a topic (see `Producer.send_arrow`). Raises why earlier ones failed."""
        if topic not in self.topics:
            self.topics |= {topic}
        self._unsettled.append(self._producer.send_arrow(rows, topic))
        while len(self._unsettled) > _UNSETTLED_MAX:
            self._unsettled.popleft().result()

    def finish(self) -> None:
        """Wait until everything is acknowledged. Raises the first failure."""
        self._producer.flush()
        while self._unsettled:
            self._unsettled.popleft().result()


_PRODUCERS: ClientCache[Producer] = ClientCache()


@contextmanager
def open_producer(bootstrap: str, settings: Mapping[str, str]) -> Iterator[RowProducer]:
    """A producer with settings by their dotted names, perhaps that of a task before; on leaving without an error all
    rows are acknowledged."""
    config = {_BATCH_SETTING: _BATCH_BYTES, **settings}
    key = (bootstrap, frozenset(settings.items()))
    with _PRODUCERS.opened(key, lambda: Producer(bootstrap, config=config)) as producer:
        rows = RowProducer(producer)
        yield rows
        rows.finish()


def _info(topic: TopicMetadata) -> TopicInfo:
    topic_id = topic.topic_id.hex() if any(topic.topic_id) else ""
    name = topic.name or ""
    return TopicInfo(name, [ClusterPartition(name, partition) for partition in range(len(topic.partitions))], topic_id)


def _plain(tp: ClusterPartition) -> TopicPartition:
    return TopicPartition(tp.topic, tp.partition)


def _damaged(damage: Damage) -> DamagedRange:
    return DamagedRange(
        topic=damage.topic, partition=damage.partition, start=damage.start, end=damage.end, reason=damage.reason
    )


def _columns(found: "ArrowColumns") -> PartitionColumns:
    return PartitionColumns(
        found.next_offset,
        found.offsets,
        found.timestamps_ms,
        found.log_append_time,
        found.keys,
        found.values,
        () if found.headers is None else found.headers,
        size_bytes=max(found.size_bytes, found.keys.nbytes + found.values.nbytes),
    )
