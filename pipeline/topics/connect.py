"""The clients of `app`, as the pipeline needs them: what a cluster has, ranges of records in columns, a producer."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from ...app.clients.admin.admin import Admin
from ...app.clients.consumer.simple_consumer import FetchedSet, SimpleConsumer
from ...app.clients.producer.producer import Producer
from ...app.clients.shared.delivery import ManyHandle
from ...app.clients.shared.settings import CommonSettings, FetchSettings, read_settings
from ...core.message.batch_header import BatchHeader
from ...core.message.corrupt_record import CorruptRecord, Damage
from ...plugins.host import PluginHost
from ...ports.broker_api.metadata import TopicMetadata
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import TopicPartition
from .client_cache import ClientCache
from .damage import DamagedRange
from .model import Cluster, ClusterPartition, PartitionColumns, TopicInfo, Where

if TYPE_CHECKING:
    import pyarrow as pa

    from ...app.clients.arrow.decode import ArrowColumns

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
        from .connect_classic import ClassicCluster

        return ClassicCluster(where, client)
    return ClientCluster(where.bootstrap, client)


def common_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a reader that every client knows."""
    return {name: value for name, value in client.items() if name in _COMMON or name.startswith(_SECURITY)}


class ClientCluster:
    """Fulfils `cluster.Cluster` with Admin and SimpleConsumer, each opened when it is needed first."""

    def __init__(self, bootstrap: str, client: Mapping[str, str]) -> None:
        self._settings = read_settings(FetchSettings, client, {})
        self._bootstrap = bootstrap
        self._client = dict(client)
        self._admin: Admin | None = None
        self._consumer: SimpleConsumer | None = None
        self._plugins = PluginHost()

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicInfo]:
        described = {topic.name: topic for topic in self._described(names) if not topic.internal}
        return {name: _info(topic) for name, topic in described.items() if name and (names is None or name in names)}

    def offsets(self, places: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        asked: dict[TopicPartition | tuple[str, int], int | str] = {_plain(place): timestamp_ms for place in places}
        found = self._ask().list_offsets(asked, isolation_level=self._settings.isolation_level) if asked else {}
        return {ClusterPartition(*partition): offset for partition, offset in found.items()}

    def read(
        self, place: ClusterPartition, start: int, end: int, *, with_headers: bool = False
    ) -> Iterator[PartitionColumns]:
        partition = _plain(place)
        if self._consumer is None:
            self._consumer = SimpleConsumer(self._bootstrap, config=self._client, plugins=self._plugins)
        for piece in self._fetch(self._consumer, partition, start, end):
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

    def boundary(self, place: ClusterPartition, start: int, wanted: int) -> int:  # noqa: ARG002
        return wanted

    def where(self, place: ClusterPartition) -> Where:  # noqa: ARG002
        return Where(bootstrap=self._bootstrap)

    def close(self) -> None:
        for client in (self._admin, self._consumer):
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

    def _fetch(self, consumer: SimpleConsumer, partition: TopicPartition, start: int, end: int) -> Iterator[FetchedSet]:
        size = None if _CHUNK_SETTING in self._client else CHUNK_BYTES
        return consumer.read(partition.topic, partition.partition, start, end, size)


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


def _plain(place: ClusterPartition) -> TopicPartition:
    return TopicPartition(place.topic, place.partition)


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
