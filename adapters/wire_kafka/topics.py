"""Topics: ListOffsets (2), Metadata (3), CreateTopics (19), DeleteTopics (20), DeleteRecords (21),
CreatePartitions (37), DescribeTopicPartitions (75).
"""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar, cast

from attrs import evolve

from ...ports.broker_api.cluster import BrokerNode
from ...ports.broker_api.configs import ConfigEntry, ConfigSource
from ...ports.broker_api.metadata import (
    NO_TOPIC_ID,
    DescribedTopic,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResult,
    Metadata,
    MetadataResult,
    PartitionDescription,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitionCursor,
)
from ...ports.broker_api.offsets import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from ...ports.broker_api.topics import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeletedTopic,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResult,
    DeleteRecordsResultPartition,
    DeleteTopics,
    DeleteTopicsResult,
    NewPartitions,
    NewTopic,
    TopicOutcome,
    TopicOutcomes,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.types import Buffer
from . import wire
from .api import Api
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
    I8,
    I16,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    UUID,
    Array,
    ByTopic,
    Choice,
    Field,
    Filler,
    Flag,
    Missing,
    Nullable,
    NullableArray,
    Pairs,
    Row,
    Struct,
)
from .wire import Reader, Writer


def _least_create_topics(request: CreateTopics) -> int:
    defaults = any(t.assignments is None and -1 in (t.partitions, t.replication_factor) for t in request.topics)
    return 4 if defaults else 2


_CONFIG_ERROR_TAG, _CONFIG_ERROR_SINCE = 0, 5


class _CreatedTopic:
    """The outcome for a topic; the error that hides its configs is a tagged field."""

    def __init__(self) -> None:
        self._fields = Struct(
            CreatedTopic,
            Field("name", TEXT),
            Field("topic_id", UUID, since=7),
            Field("error", ERROR),
            Field("error_message", ERROR_TEXT),
            Field("partitions", I32, since=5),
            Field("replication_factor", I16, since=5),
            Field(
                "configs",
                NullableArray(
                    Struct(
                        ConfigEntry,
                        Field("name", TEXT),
                        Field("value", NULLABLE_TEXT),
                        Field("read_only", BOOL),
                        Field("source", Choice(wire.I8, ConfigSource, ConfigSource.UNKNOWN)),
                        Field("sensitive", BOOL),
                    )
                ),
                since=5,
            ),
            inline=True,
        )

    def read(self, reader: Reader, version: int) -> CreatedTopic:
        topic = self._fields.read(reader, version)
        for tag, content in reader.tags():
            if tag == _CONFIG_ERROR_TAG:
                topic = evolve(topic, configs_error=ERROR.read(content, version))
        return topic

    def write(self, writer: Writer, version: int, value: CreatedTopic) -> None:
        self._fields.write(writer, version, value)
        if value.configs_error is ErrorCode.NONE or version < _CONFIG_ERROR_SINCE:
            writer.end()
        else:
            writer.tagged([(_CONFIG_ERROR_TAG, wire.I16.pack(value.configs_error))])


CREATE_TOPICS = Api(
    key=19,
    versions=(2, 7),
    flexible_from=5,
    request_type=CreateTopics,
    request=Struct(
        CreateTopics,
        Field(
            "topics",
            Array(
                Struct(
                    NewTopic,
                    Field("name", TEXT),
                    Field("partitions", I32),
                    Field("replication_factor", I16),
                    Field("assignments", Pairs(I32, Array(I32), Missing.EMPTY)),
                    Field("configs", Pairs(TEXT, NULLABLE_TEXT)),
                )
            ),
        ),
        Field("timeout_ms", I32),
        Field("validate_only", BOOL),
        Flag("allows_throttling", since=6),
    ),
    result=Struct(
        CreateTopicsResult,
        Field("throttle_ms", I32),
        Field(
            "topics",
            Array(_CreatedTopic()),
        ),
    ),
    least_version=_least_create_topics,
)


class DeleteTopicsRequest:
    """The request: names up to version 5, from 6 structs of a name or an id."""

    def read(self, reader: Reader, version: int) -> DeleteTopics:
        names: list[str] = []
        ids: list[bytes] = []
        for _ in range(reader.count()):
            if version < 6:
                names.append(reader.text())
                continue
            name, topic_id = reader.nullable_text(), bytes(reader.span(16))
            if name is not None:
                names.append(name)
            elif topic_id != NO_TOPIC_ID:
                ids.append(topic_id)
            else:
                raise Malformed("a topic without a name and an id")
            reader.skip_tags()
        (timeout_ms,) = reader.unpack(wire.I32)
        reader.skip_tags()
        return DeleteTopics(names=names, topic_ids=ids, timeout_ms=timeout_ms, allows_throttling=version >= 5)

    def write(self, writer: Writer, version: int, value: DeleteTopics) -> None:
        writer.count(len(value.names) + len(value.topic_ids))
        for name in value.names:
            writer.text(name)
            if version >= 6:
                writer.out += NO_TOPIC_ID
                writer.end()
        for topic_id in value.topic_ids:
            writer.nullable_text(None)
            UUID.write(writer, version, topic_id)
            writer.end()
        writer.put(wire.I32, value.timeout_ms)
        writer.end()


DELETE_TOPICS = Api(
    key=20,
    versions=(1, 6),
    flexible_from=4,
    request_type=DeleteTopics,
    request=DeleteTopicsRequest(),
    result=Struct(
        DeleteTopicsResult,
        Field("throttle_ms", I32),
        Field(
            "topics",
            Array(
                Struct(
                    DeletedTopic,
                    Field("name", TEXT, until=5),
                    Field("name", NULLABLE_TEXT, since=6),
                    Field("topic_id", UUID, since=6),
                    Field("error", ERROR),
                    Field("error_message", ERROR_TEXT, since=5),
                )
            ),
        ),
    ),
    least_version=lambda request: 6 if request.topic_ids else 1,
)

DELETE_RECORDS = Api(
    key=21,
    versions=(0, 2),
    flexible_from=2,
    request_type=DeleteRecords,
    request=Struct(
        DeleteRecords,
        Field("partitions", ByTopic(DeleteRecordsPartition, Field("partition", I32), Field("offset", I64))),
        Field("timeout_ms", I32),
    ),
    result=Struct(
        DeleteRecordsResult,
        Field("throttle_ms", I32),
        Field(
            "partitions",
            ByTopic(
                DeleteRecordsResultPartition,
                Field("partition", I32),
                Field("low_watermark", I64),
                Field("error", ERROR),
            ),
        ),
    ),
    by_partition=True,
)

CREATE_PARTITIONS = Api(
    key=37,
    versions=(0, 3),
    flexible_from=2,
    request_type=CreatePartitions,
    request=Struct(
        CreatePartitions,
        Field(
            "topics",
            Array(
                Struct(
                    NewPartitions,
                    Field("topic", TEXT),
                    Field("count", I32),
                    Field("assignments", NullableArray(Row(Array(I32)))),
                )
            ),
        ),
        Field("timeout_ms", I32),
        Field("validate_only", BOOL),
        Flag("allows_throttling", since=3),
    ),
    result=Struct(
        TopicOutcomes,
        Field("throttle_ms", I32),
        Field(
            "topics",
            Array(Struct(TopicOutcome, Field("name", TEXT), Field("error", ERROR), Field("error_message", ERROR_TEXT))),
        ),
    ),
)


def _least_list_offsets(request: ListOffsets) -> int:
    return max((_TIMESTAMPS_SINCE.get(part.timestamp, 1) for part in request.partitions), default=1)


_PATIENCE_MS = 30_000
_TIMESTAMPS_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_MEANINGLESS = -(2**63)


class _Timestamp:
    """A time, or a number below 0 that stands for a place in the log. In versions that do not know the number it has no
    meaning, and the partition gets UNSUPPORTED_VERSION, as in Kafka."""

    def read(self, reader: Reader, version: int) -> int:
        timestamp = I64.read(reader, version)
        return timestamp if version >= _TIMESTAMPS_SINCE.get(timestamp, 0) else _MEANINGLESS

    def write(self, writer: Writer, version: int, value: int) -> None:
        I64.write(writer, version, value)


class _OffsetError:
    """Clients of before version 5 do not know OFFSET_NOT_AVAILABLE; what they know makes them try again as well."""

    def read(self, reader: Reader, version: int) -> ErrorCode:
        return ERROR.read(reader, version)

    def write(self, writer: Writer, version: int, value: ErrorCode) -> None:
        too_new = version < 5 and value is ErrorCode.OFFSET_NOT_AVAILABLE
        ERROR.write(writer, version, ErrorCode.LEADER_NOT_AVAILABLE if too_new else value)


LIST_OFFSETS = Api(
    key=2,
    versions=(1, 11),
    flexible_from=6,
    request_type=ListOffsets,
    request=Struct(
        ListOffsets,
        Field("replica_id", I32),
        Field("isolation_level", I8, since=2),
        Field(
            "partitions",
            ByTopic(
                ListOffsetsPartition,
                Field("partition", I32),
                Field("current_leader_epoch", I32, since=4),
                Field("timestamp", _Timestamp()),
            ),
        ),
        Filler(I32, _PATIENCE_MS, since=10),  # for brokers that look into remote storage
    ),
    result=Struct(
        ListOffsetsResult,
        Field("throttle_ms", I32, since=2),
        Field(
            "partitions",
            ByTopic(
                ListOffsetsResultPartition,
                Field("partition", I32),
                Field("error", _OffsetError()),
                Field("timestamp", I64),
                Field("offset", I64),
                Field("leader_epoch", I32, since=4),
            ),
        ),
    ),
    least_version=_least_list_offsets,
    by_partition=True,
    long_answers=True,
)


class MetadataRequest:
    """The request: topics by name, from version 10 with ids, which may replace the name from 12."""

    def read(self, reader: Reader, version: int) -> Metadata:
        names: list[str] = []
        ids: list[bytes] = []
        count = reader.count()
        for _ in range(count):
            topic_id = bytes(reader.span(16)) if version >= 10 else NO_TOPIC_ID
            name = reader.nullable_text() if version >= 10 else reader.text()
            if name is not None:
                names.append(name)
            elif version >= 12 and topic_id != NO_TOPIC_ID:
                ids.append(topic_id)
            else:
                raise Malformed("a topic without a name")
            reader.skip_tags()
        allow_creation = version < 4 or BOOL.read(reader, version)
        wants_cluster_operations = 8 <= version <= 10 and BOOL.read(reader, version)
        wants_topic_operations = version >= 8 and BOOL.read(reader, version)
        reader.skip_tags()
        wants_all = count < 0 or (count == 0 and version == 0)
        return Metadata(
            topics=None if wants_all else names,
            topic_ids=ids,
            allow_auto_topic_creation=allow_creation,
            include_cluster_authorized_operations=wants_cluster_operations,
            include_topic_authorized_operations=wants_topic_operations,
        )

    def write(self, writer: Writer, version: int, value: Metadata) -> None:
        if value.topics is None:
            writer.count(0 if version == 0 else -1)
        else:
            writer.count(len(value.topics) + len(value.topic_ids))
            for name in value.topics:
                if version >= 10:
                    writer.out += NO_TOPIC_ID
                writer.text(name)
                writer.end()
            for topic_id in value.topic_ids:
                UUID.write(writer, version, topic_id)
                writer.nullable_text(None)
                writer.end()
        if version >= 4:
            BOOL.write(writer, version, value.allow_auto_topic_creation)
        if 8 <= version <= 10:
            BOOL.write(writer, version, value.include_cluster_authorized_operations)
        if version >= 8:
            BOOL.write(writer, version, value.include_topic_authorized_operations)
        writer.end()


def _least_metadata(request: Metadata) -> int:
    if request.topic_ids:
        return 12
    if request.include_cluster_authorized_operations or request.include_topic_authorized_operations:
        return 8
    if not request.allow_auto_topic_creation:
        return 4
    return 0 if request.topics is None or request.topics else 1


_PARTITION = Struct(
    PartitionMetadata,
    Field("error", ERROR),
    Field("partition", I32),
    Field("leader", I32),
    Field("leader_epoch", I32, since=7, absent=-1),
    Field("replicas", Array(I32)),
    Field("isr", Array(I32)),
    Field("offline_replicas", Array(I32), since=5),
)
_TOPIC = Struct(
    TopicMetadata,
    Field("error", ERROR),
    Field("name", TEXT, until=11),
    Field("name", NULLABLE_TEXT, since=12),
    Field("topic_id", UUID, since=10),
    Field("internal", BOOL, since=1),
    Field("partitions", Array(_PARTITION)),
    Field("authorized_operations", I32, since=8),
)
_BROKER = Struct(
    BrokerNode,
    Field("node_id", I32),
    Field("host", TEXT),
    Field("port", I32),
    Field("rack", NULLABLE_TEXT, since=1),
)


class KeepsBytes(Protocol):
    """A value that may hold the bytes that it was sent as."""

    @property
    def encoded(self) -> dict[int, bytes] | None: ...


CachedT = TypeVar("CachedT", bound=KeepsBytes)


class Cached(Generic[CachedT]):
    """A codec for values that are sent repeatedly (`encoded` is a mapping): each is written once per version."""

    has_steps = True

    def __init__(self, layout: Struct[CachedT]) -> None:
        self._layout = layout

    def read(self, reader: Reader, version: int) -> CachedT:
        return self._layout.read(reader, version)

    def write(self, writer: Writer, version: int, value: CachedT) -> None:
        for _ in self.write_in_steps(writer, version, value):
            pass

    def write_in_steps(self, writer: Writer, version: int, value: CachedT) -> Iterator[None]:
        encoded = value.encoded
        if encoded is None:
            yield from self._layout.write_in_steps(writer, version, value)
            return
        content = encoded.get(version)
        if content is None:
            part = type(writer)()
            yield from self._layout.write_in_steps(part, version, value)
            content = encoded[version] = b"".join(cast(Sequence[Buffer], part.pieces()))
        writer.raw(content)


METADATA = Api(
    key=3,
    versions=(0, 13),
    flexible_from=9,
    request_type=Metadata,
    request=MetadataRequest(),
    result=Cached(
        Struct(
            MetadataResult,
            Field("throttle_ms", I32, since=3),
            Field("brokers", Array(_BROKER)),
            Field("cluster_id", NULLABLE_TEXT, since=2, absent=None),
            Field("controller_id", I32, since=1, absent=-1),
            Field("topics", Array(Cached(_TOPIC))),
            Field("authorized_operations", I32, since=8, until=10),
            Filler(I16, ErrorCode.NONE, since=13),  # REBOOTSTRAP_REQUIRED: no broker of ours has reason to say so
        )
    ),
    least_version=_least_metadata,
    most_version=lambda _: 12,  # whose answers say all that our clients act on
    long_answers=True,
)


class _AllWhenEmpty:
    """Names of topics, each a struct; none stand for all, which we hold as None."""

    _names = Array(Row(TEXT))

    def read(self, reader: Reader, version: int) -> Sequence[str] | None:
        return self._names.read(reader, version) or None

    def write(self, writer: Writer, version: int, value: Sequence[str] | None) -> None:
        self._names.write(writer, version, value or ())


_CURSOR = Nullable(Struct(TopicPartitionCursor, Field("topic", TEXT), Field("partition", I32)))

DESCRIBE_TOPIC_PARTITIONS = Api(
    key=75,
    versions=(0, 0),
    flexible_from=0,
    request_type=DescribeTopicPartitions,
    request=Struct(
        DescribeTopicPartitions,
        Field("topics", _AllWhenEmpty()),
        Field("partitions_max", I32),
        Field("cursor", _CURSOR),
    ),
    result=Struct(
        DescribeTopicPartitionsResult,
        Field("throttle_ms", I32),
        Field(
            "topics",
            Array(
                Struct(
                    DescribedTopic,
                    Field("error", ERROR),
                    Field("name", NULLABLE_TEXT),
                    Field("topic_id", UUID),
                    Field("internal", BOOL),
                    Field(
                        "partitions",
                        Array(
                            Struct(
                                PartitionDescription,
                                Field("error", ERROR),
                                Field("partition", I32),
                                Field("leader", I32),
                                Field("leader_epoch", I32),
                                Field("replicas", Array(I32)),
                                Field("isr", Array(I32)),
                                Field("eligible_leader_replicas", NullableArray(I32)),
                                Field("last_known_elr", NullableArray(I32)),
                                Field("offline_replicas", Array(I32)),
                            )
                        ),
                    ),
                    Field("authorized_operations", I32),
                )
            ),
        ),
        Field("next_cursor", _CURSOR),
    ),
    long_answers=True,
)


APIS = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    CREATE_PARTITIONS,
    LIST_OFFSETS,
    METADATA,
    DESCRIBE_TOPIC_PARTITIONS,
)
