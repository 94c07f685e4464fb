"""`df.write.format("barnabas")`: rows to topics through the producer.

At least once: a task that Spark runs again writes its rows again, and rows of a job that failed stay in the topic. When
a job succeeds, every row was acknowledged. With the option `txnAppId` exactly once: see `exactly_once`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructType

from ...ports.errors import ConfigError
from ..spark.errors import plain_worker_errors
from ..spark.garbage import settle_worker
from .options import WriteOptions

if TYPE_CHECKING:
    from .exactly_once import TaskTransaction, WriteTarget

_TEXT = (BinaryType, StringType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "headers": (ArrayType,),
}


class Written(WriterCommitMessage):
    """The number of rows that a task has written, and its transaction if there is one."""

    def __init__(self, rows: int, transaction: "TaskTransaction | None" = None) -> None:
        self.rows = rows
        self.transaction = transaction


class ArrowWriter(DataSourceArrowWriter):
    """Writes the columns key, value, headers, topic, partition; others are ignored, as Spark's Kafka sink does."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options = options
        self.columns = _checked(options, schema)
        _settle(options)
        settle_worker()

    @plain_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = _write(self.options, self.columns, iterator)
        settle_worker()
        return written

    @plain_worker_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every row of every task is acknowledged; what is in transactions is committed."""
        _commit(self.options, messages, self.options.txn_version)

    @plain_worker_errors()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A log is only appended to: without transactions there is nothing to undo."""
        _abort(self.options, messages)


class StreamArrowWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a stream as `ArrowWriter` writes a batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Spark makes one for each micro-batch, and another one to commit it."""
        self.options = options
        self.columns = _checked(options, schema)
        _settle(options)
        settle_worker()

    @plain_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = _write(self.options, self.columns, iterator)
        settle_worker()
        return written

    @plain_worker_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the micro-batch; see `ArrowWriter.commit`."""
        _commit(self.options, messages, batchId)

    @plain_worker_errors()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Abort the micro-batch; see `ArrowWriter.abort`."""
        _abort(self.options, messages)


def by_topic(batch: pa.RecordBatch, columns: Sequence[str], topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(topic, its rows) with the columns that messages have, in their order. Raises `ConfigError`.

    `columns` are those of `_COLUMNS` that the batch has. A partition is null where the partitioner says it; so it is
    for a negative one.
    """
    rows = batch.select([name for name in columns if name != "topic"])
    if "partition" in columns:
        place = rows.schema.get_field_index("partition")
        given = rows.column(place)
        rows = rows.set_column(place, "partition", pc.if_else(pc.less(given, 0), pa.scalar(None, given.type), given))
    if topic is not None:
        yield topic, rows
        return
    topics = batch.column("topic").dictionary_encode()
    if topics.null_count:
        raise ConfigError("a row has null in its topic column; set it, or give the option 'topic'")
    names = topics.dictionary.to_pylist()
    for number, name in enumerate(names):
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics.indices, number))


def _write(options: WriteOptions, columns: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Written:
    from ..topics.connect import RowProducer, open_producer

    if options.encoding is not None:
        from .encoding import encoded_batches

        batches = encoded_batches(batches, options.encoding, options.topic)

    def send(producer: RowProducer) -> int:
        written = 0
        for batch in batches:
            for topic, rows in by_topic(batch, columns, options.topic):
                producer.send(topic, rows)
            written += batch.num_rows
        return written

    if options.txn_app_id is None:
        with open_producer(options.bootstrap, options.producer) as producer:
            return Written(send(producer))
    from .exactly_once import write_task

    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    return Written(*write_task(_target(options), task, send))


def _target(options: WriteOptions) -> "WriteTarget":
    from .exactly_once import WriteTarget

    assert options.txn_app_id is not None
    return WriteTarget(bootstrap=options.bootstrap, name=options.txn_app_id, producer=options.producer)


def _settle(options: WriteOptions) -> None:
    if options.txn_app_id is not None:
        from .exactly_once import settle

        settle(_target(options))


def _commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], version: int | None) -> None:
    if options.txn_app_id is not None:
        from .exactly_once import commit

        commit(_target(options), _transactions(messages), version)


def _abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    if options.txn_app_id is not None:
        from .exactly_once import abort

        abort(_target(options), _transactions(messages))


def _transactions(messages: Sequence[WriterCommitMessage | None]) -> "list[TaskTransaction]":
    written = [message for message in messages if isinstance(message, Written)]
    return [message.transaction for message in written if message.transaction is not None]


def _mend(column: str) -> str:
    if column not in ("key", "value"):
        return "cast it"
    return f"cast it, or say how it is to be encoded: {column}.format = avro, json or protobuf"


def _checked(options: WriteOptions, schema: StructType) -> list[str]:
    """The columns to write. Raises `ConfigError` for a missing column or a wrong type."""
    present = {field.name: field.dataType for field in schema}
    encoded = {each.column for each in options.encoding.columns} if options.encoding is not None else set()
    for name, kinds in _COLUMNS.items():
        if name in present and name not in encoded and not isinstance(present[name], kinds):
            allowed = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigError(f"column {name!r} must be {allowed}, not {present[name].simpleString()}; {_mend(name)}")
    if "value" not in present:
        raise ConfigError(f"a column 'value' is needed (there is {', '.join(present) or 'none'})")
    if options.topic is None and "topic" not in present:
        raise ConfigError("say where to: option 'topic', or a column 'topic'")
    headers = present.get("headers")
    wanted = "array<struct<key:string,value:binary>>"
    if headers is not None and headers.simpleString() != wanted:
        raise ConfigError(f"column 'headers' must be {wanted}, not {headers.simpleString()}")
    return [name for name in _COLUMNS if name in present]
