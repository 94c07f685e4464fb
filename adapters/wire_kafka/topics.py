"""CreateTopics (19), DeleteTopics (20), DeleteRecords (21), CreatePartitions (37)."""

from attrs import evolve

from ...ports.broker_api.configs import ConfigEntry, ConfigSource
from ...ports.broker_api.metadata import NO_TOPIC_ID
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
from . import wire
from .api import Api
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
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
    Flag,
    Missing,
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

APIS = (CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS)
