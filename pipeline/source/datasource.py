"""The Spark data source `barnabas`: topics as a table and as a stream, straight from the brokers."""

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...core.message.corrupt_record import CorruptRecord
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ..option_names import Option
from ..spark.errors import in_worker, plain_worker_errors
from ..topics.client_cache import ClientCache
from ..topics.damage import DamagedRange, write_damage
from ..topics.group_offsets import GroupProgress, commit_to_group
from ..topics.model import (
    EARLIEST,
    LATEST,
    NO_BROKER,
    REMOTE_STORAGE,
    Cluster,
    ClusterPartition,
    PartitionColumns,
    Where,
)
from ..topics.read_progress import write_progress
from .options import ReadOptions, WriteOptions, read_options, write_options
from .ranges import OffsetRange, data_loss, offsets_in_bucket, plan_ranges, resolve, selected, slices, together
from .stream_plan import Pace, StreamOffsets, batch_ranges, falls_short, limited, log_ends, next_step

if TYPE_CHECKING:
    from .exactly_once import TaskTransaction, WriteTarget


BATCH_ROWS = 20_000
BATCH_BYTES = 8 * 1024 * 1024
_TIMESTAMPS_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999. Producers may send any number; one that is no date becomes the nearest, and stops no load."""


def arrow_batches(
    tp: ClusterPartition,
    pieces: Iterable[PartitionColumns],
    schema: pa.Schema,
    *,
    rows: int = BATCH_ROWS,
    size_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows and about `size_bytes` bytes, in the order of the pieces.

    `schema` has columns of the data source: those of a classic cluster or not, with or without `headers`.
    """
    waiting: list[PartitionColumns] = []
    waiting_rows = waiting_bytes = 0
    for piece in pieces:
        for part in _split(piece, rows, size_bytes):
            count = len(part.offsets)
            if waiting and (waiting_rows + count > rows or waiting_bytes + part.size_bytes > size_bytes):
                yield _batch(tp, waiting, schema)
                waiting, waiting_rows, waiting_bytes = [], 0, 0
            waiting.append(part)
            waiting_rows += count
            waiting_bytes += part.size_bytes
    if waiting:
        yield _batch(tp, waiting, schema)


def _split(piece: PartitionColumns, rows: int, size_bytes: int) -> Iterator[PartitionColumns]:
    count = len(piece.offsets)
    step = min(rows, max(1, count * size_bytes // piece.size_bytes)) if piece.size_bytes > size_bytes else rows
    if count <= step:
        if count:
            yield piece
        return
    for start in range(0, count, step):
        end = min(start + step, count)
        yield PartitionColumns(
            piece.next_offset,
            piece.offsets[start:end],
            piece.timestamps_ms[start:end],
            piece.log_append_time[start:end],
            piece.keys[start:end],
            piece.values[start:end],
            piece.headers[start:end],
            piece.wrapper_indexes[start:end],
            size_bytes=piece.size_bytes * (end - start) // count,
        )


def _batch(tp: ClusterPartition, pieces: list[PartitionColumns], schema: pa.Schema) -> pa.RecordBatch:
    count = sum(len(piece.offsets) for piece in pieces)
    ints = np.int32
    columns: dict[str, pa.Array] = {
        "key": _joined([_binary(piece.keys, len(piece.offsets)) for piece in pieces]),
        "value": _joined([_binary(piece.values, len(piece.offsets)) for piece in pieces]),
        "topic": pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        "partition": pa.array(np.full(count, tp.partition, dtype=ints)),
        "offset": pa.array(np.concatenate([np.asarray(piece.offsets, dtype=np.int64) for piece in pieces])),
    }
    if tp.broker == NO_BROKER:
        milliseconds = np.concatenate([np.asarray(piece.timestamps_ms, dtype=np.int64) for piece in pieces])
        columns["timestamp"] = pa.array(milliseconds.clip(*_TIMESTAMPS_MS) * 1000).cast(pa.timestamp("us", "UTC"))
        types = [np.asarray(piece.log_append_time, dtype=ints) for piece in pieces]
        columns["timestampType"] = pa.array(np.concatenate(types))
        if "headers" in schema.names:
            columns["headers"] = _joined([_headers(piece.headers, schema.field("headers").type) for piece in pieces])
    else:
        columns["broker"] = pa.array(np.full(count, tp.broker, dtype=ints))
        columns["wrapperIndex"] = _joined([_indexes(piece.wrapper_indexes, len(piece.offsets)) for piece in pieces])
    arrays = [columns.get(field.name) for field in schema]
    filled = [pa.nulls(count, field.type) if a is None else a for a, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(filled, schema=schema)


def _binary(column: Sequence[bytes | None] | pa.Array, count: int) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return pa.array(column, pa.binary()) if column else pa.nulls(count, pa.binary())


def _indexes(column: Sequence[int | None], count: int) -> pa.Array:
    return pa.array(column, pa.int32()) if column else pa.nulls(count, pa.int32())


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _headers(column: Sequence[Sequence[tuple[str, bytes | None]]] | pa.Array, kind: pa.DataType) -> pa.Array:
    """Build the column of headers. As in Spark's Kafka source, no headers are null, not an empty array."""
    if isinstance(column, pa.Array):
        return column.cast(kind)
    return pa.array([[{"key": key, "value": value} for key, value in pairs] or None for pairs in column], kind)


FORMAT = "barnabas"
_log = logging.getLogger("barnabas.pipeline")
_END_TRIES = 3
_END_PAUSE_S = 0.5

_COLUMNS = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_CLASSIC_COLUMNS = (("broker", IntegerType()), ("wrapperIndex", IntegerType()))


Connect = Callable[[Where, Mapping[str, str]], Cluster]
_CLUSTERS: ClientCache[Cluster] = ClientCache()


def source_schema(*, include_headers: bool, classic: bool = False) -> StructType:
    """Return the columns of Spark's own Kafka source.

    Those of a classic cluster are more: `broker`, whose partition it is, and `wrapperIndex`, which message of its
    compressed wrapper (null: in none). `offset` is the byte at which the message, or its wrapper, begins; key,
    timestamp, timestampType and headers are null.
    """
    fields = [StructField(name, kind) for name, kind in (*_COLUMNS, *(_CLASSIC_COLUMNS if classic else ()))]
    return StructType([*fields, StructField("headers", _HEADERS)] if include_headers else fields)


class Slice(InputPartition):
    """The work of one task: one range, or several small ones of the same cluster."""

    def __init__(self, parts: Sequence[OffsetRange], where: Where) -> None:
        super().__init__(parts)
        self.parts = parts
        self.where = where


# `df.write.format("barnabas")`: rows to topics through the producer.
#
# At least once: a task that Spark runs again writes its rows again, and rows of a job that failed stay in the topic.
# When a job succeeds, every row was acknowledged. With the option `txnAppId` exactly once: see `exactly_once`.

_TEXT = (BinaryType, StringType)
_WRITE_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
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


# Python workers of Spark collect garbage after each task: here that becomes cheap.

_is_frozen = False


def freeze_worker_heap() -> None:
    """Take what a Python worker of Spark has loaded until now out of later collections; elsewhere nothing.

    Spark's daemon has its workers collect after every task. With pandas and pyarrow loaded that takes 30 to 60 ms, on a
    core that the next task needs: half the time of a stream's small batches. Called when everything is loaded; once per
    process, since what a later task leaves is to be collected.
    """
    global _is_frozen  # noqa: PLW0603  one per process, as what it is about
    if not _is_frozen and in_worker():
        _is_frozen = True
        gc.freeze()


class ArrowWriter(DataSourceArrowWriter):
    """Writes the columns key, value, headers, topic, partition; others are ignored, as Spark's Kafka sink does."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options = options
        self.columns = _checked(options, schema)
        _finish_decided(options)
        freeze_worker_heap()

    @plain_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = _write(self.options, self.columns, iterator)
        freeze_worker_heap()
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
        _finish_decided(options)
        freeze_worker_heap()

    @plain_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = _write(self.options, self.columns, iterator)
        freeze_worker_heap()
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
        index = rows.schema.get_field_index("partition")
        given = rows.column(index)
        rows = rows.set_column(index, "partition", pc.if_else(pc.less(given, 0), pa.scalar(None, given.type), given))
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


def _finish_decided(options: WriteOptions) -> None:
    if options.txn_app_id is not None:
        from .exactly_once import finish_decided

        finish_decided(_target(options))


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


def _encoding_hint(column: str) -> str:
    if column not in ("key", "value"):
        return "cast it"
    return f"cast it, or say how it is to be encoded: {column}.format = avro, json or protobuf"


def _checked(options: WriteOptions, schema: StructType) -> list[str]:
    """Return the columns to write. Raises `ConfigError` for a missing column or a wrong type."""
    present = {field.name: field.dataType for field in schema}
    encoded = {each.column for each in options.encoding.columns} if options.encoding is not None else set()
    for name, kinds in _WRITE_COLUMNS.items():
        if name in present and name not in encoded and not isinstance(present[name], kinds):
            allowed = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigError(
                f"column {name!r} must be {allowed}, not {present[name].simpleString()}; {_encoding_hint(name)}"
            )
    if "value" not in present:
        raise ConfigError(f"a column 'value' is needed (there is {', '.join(present) or 'none'})")
    if options.topic is None and "topic" not in present:
        raise ConfigError("say where to: option 'topic', or a column 'topic'")
    headers = present.get("headers")
    wanted = "array<struct<key:string,value:binary>>"
    if headers is not None and headers.simpleString() != wanted:
        raise ConfigError(f"column 'headers' must be {wanted}, not {headers.simpleString()}")
    return [name for name in _WRITE_COLUMNS if name in present]


class BarnabasDataSource(DataSource):
    """`spark.read.format("barnabas")`, `df.write.format("barnabas")`, and the same for streams."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def connect(self) -> Connect:
        """Return the function with which tasks and planning reach the brokers; a plain one, as it is pickled."""
        from ..topics.connect import connect_cluster

        return connect_cluster

    @plain_worker_errors()
    def schema(self) -> StructType:
        return _schema(self._resolved(read_options(self.options, streaming=None)))

    @plain_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._resolved(read_options(self.options), schema)
        _check_schema(schema, options)
        return BatchReader(options, self.connect())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = self._resolved(read_options(self.options, streaming=True), schema)
            _check_schema(schema, options)
            return TopicStreamReader(options, self.connect())
        except BarnabasError as error:
            return RefusedStream(error)

    def _resolved(self, options: ReadOptions, schema: StructType | None = None) -> ReadOptions:
        """Return the options with the schemas of decoded columns, chosen once for all tasks."""
        if options.decoding is None:
            return options
        from .decoding import settled_by

        connect = partial(self.connect(), options.where, options.client)
        return evolve(options, decoding=settled_by(connect, options.decoding, options.selection, schema))

    @plain_worker_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError("a topic can only be appended to: write with mode('append')")
        return ArrowWriter(write_options(self.options), schema)

    @plain_worker_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """In the output mode `complete` (then Spark says overwrite) each batch appends the whole result.

        So does Spark's Kafka sink: a log is only appended to.
        """
        del overwrite
        return StreamArrowWriter(write_options(self.options), schema)


class _SliceReader:
    """Base of the batch and the stream reader: reads a slice in a task."""

    def __init__(self, options: ReadOptions, connect: Connect) -> None:
        self.options = options
        self.connect = connect

    def opened(self, where: Where | None = None) -> AbstractContextManager[Cluster]:
        """Return a connection to where the options say, or to there."""
        address, client = where or self.options.where, self.options.client
        return _CLUSTERS.opened(
            (self.connect, address, frozenset(client.items())), partial(self.connect, address, client)
        )

    def split(self, cluster: Cluster, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        """Return a slice per range, or several of a large one, or one of several small ones; the registries are not for
        the tasks."""
        options = self.options
        if REMOTE_STORAGE in options.client:
            for topic, count in offsets_in_bucket(cluster, ranges).items():
                total = sum(part.size for part in ranges if part.topic == topic)
                if count:  # a warning, since the process that plans shows nothing else
                    _log.warning("%s: %d of %d offsets come from %s", topic, count, total, REMOTE_STORAGE)
        cut = slices(ranges, at_least=options.min_partitions, at_most_records=options.max_records_per_partition)
        if options.where.classic or options.min_partitions is not None:
            return [Slice([part], cluster.where(part.tp)) for part in cut]
        return [Slice(parts, cluster.where(parts[0].tp)) for parts in together(cut, options.max_records_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):
            return
        raw = to_arrow_schema(_raw_schema(self.options), timezone="UTC")
        with plain_worker_errors(), self.opened(partition.where) as cluster:
            for part in partition.parts:
                batches = arrow_batches(part.tp, _read_range(cluster, part, self.options), raw)
                yield from self.typed(batches)
            _check_same_topics(cluster, partition.parts, self.options)
        freeze_worker_heap()

    def typed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoding = self.options.decoding
        if decoding is None:
            return batches
        from .decoding import decoded_batches

        return decoded_batches(batches, decoding, to_arrow_schema(_schema(self.options), timezone="UTC"))


class BatchReader(_SliceReader, DataSourceReader):
    """A read of what the topics have when the query is planned."""

    @plain_worker_errors()
    def partitions(self) -> Sequence[InputPartition]:
        with self.opened() as cluster:
            return self.split(cluster, plan_ranges(cluster, self.options, _log.warning))


class TopicStreamReader(_SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the topics. Spark keeps its offsets, which are those of `StreamOffsets`, in the checkpoint; on
    request they are committed to a group. New partitions are read from their beginning.
    """

    def __init__(self, options: ReadOptions, connect: Connect, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, connect)
        self._target: StreamOffsets | None = None
        self._latest: StreamOffsets | None = None
        self._pace = Pace(options.min_offsets_per_trigger, options.max_trigger_delay_s, clock)
        self._progress = _progress(options)

    @plain_worker_errors()
    def initialOffset(self) -> dict[str, Any]:
        with self.opened() as cluster:
            infos = selected(cluster, self.options.selection)
            partitions = [tp for info in infos for tp in info.partitions]
            strict = not self.options.latest_when_no_timestamp
            starts = resolve(cluster, self.options.starting, partitions, "starting", strict=strict)
            if self._progress is not None:
                self._progress.set_initial_offsets(starts)
            return StreamOffsets(starts, {info.name: info.topic_id for info in infos}).packed()

    def getDefaultReadLimit(self) -> ReadLimit:
        """`minOffsetsPerTrigger` with a maximum is looked after here: Python has no limit of two."""
        most, least = self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadMinRows(least) if least is not None else ReadAllAvailable()

    @plain_worker_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = StreamOffsets.unpacked(start)
        self._reached(before.positions)
        with self.opened() as cluster:
            self._latest = target = self._target or self._ends(cluster, before)
            step = next_step(cluster, self.options, before, target, _log.warning)
            # What is there when a stream of availableNow begins is all that will come: waiting for more would not end.
            if self._target is None and not isinstance(limit, ReadAllAvailable) and self._pace.waits(step.size):
                return start
            if isinstance(limit, ReadMaxRows):
                return limited(cluster, self.options, step, limit.max_rows).packed()
            return step.end.packed()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.packed()

    @plain_worker_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        with self.opened() as cluster:
            self._target = log_ends(cluster, self.options)

    @plain_worker_errors()
    def commit(self, end: dict[str, Any]) -> None:
        self._reached(StreamOffsets.unpacked(end).positions)

    @plain_worker_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = StreamOffsets.unpacked(start), StreamOffsets.unpacked(end)
        if before.positions == after.positions and before.topic_ids == after.topic_ids:
            return []
        with self.opened() as cluster:
            return self.split(cluster, batch_ranges(cluster, self.options, before, after, _log.warning))

    def _reached(self, offsets: Mapping[ClusterPartition, int]) -> None:
        if self._progress is not None:
            self._progress.reached(offsets)

    def _ends(self, cluster: Cluster, before: StreamOffsets) -> StreamOffsets:
        """Asked again when they lie before the stream's position: a new leader may know an older end for a moment."""
        for _ in range(_END_TRIES - 1):
            found = log_ends(cluster, self.options)
            if not falls_short(before, found):
                return found
            time.sleep(_END_PAUSE_S)
        return log_ends(cluster, self.options)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot be, and says why at the first call.

    What is raised where a reader is made Spark 4.3 hides behind a fault of its own.
    """

    def __init__(self, error: BarnabasError) -> None:
        self.error = error

    @plain_worker_errors()
    def _refuse(self) -> NoReturn:
        raise self.error

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        self._refuse()


def _progress(options: ReadOptions) -> GroupProgress | None:
    group = options.commit_to_group
    if group is None:
        return None
    from ..topics.connect import common_settings

    return GroupProgress(
        partial(commit_to_group, options.where.bootstrap, common_settings(options.client), group),
        partial(_log.warning, "the offsets were not committed to group %s: %s", group),
    )


def _read_range(cluster: Cluster, part: OffsetRange, options: ReadOptions) -> Iterator[PartitionColumns]:
    """Yield the records of a range. Offsets that vanish meanwhile are an error, or skipped, as `failOnDataLoss`
    says."""
    position = start = part.start
    slice_name = f"{part.tp.key}-{start}"
    while position < part.end:
        try:
            for piece in cluster.read(part.tp, position, part.end, with_headers=options.include_headers):
                position = max(position, piece.next_offset)
                if piece.damage is not None:
                    _note(piece.damage, options)
                if options.progress_report is not None:
                    write_progress(Path(options.progress_report), part.topic, slice_name, position - start)
                yield piece
            return
        except CorruptRecord as error:
            hint = f"set {Option.SKIP_DAMAGED.spark} to continue behind it"
            raise ApiError(error.code, f"{error.message}; {hint}") from error
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            there = [part.tp]
            first = cluster.offsets(there, EARLIEST)[part.tp]
            last = cluster.offsets(there, LATEST)[part.tp]
            if first <= position and part.end <= last:
                raise
            text = f"{part.tp}: offsets {position} to {part.end} were planned, the log has {first} to {last}"
            data_loss(text, fail_on_data_loss=options.fail_on_data_loss, report=_log.warning)
            part = evolve(part, end=min(part.end, last))
            position = max(position, first)


def _note(damage: DamagedRange, options: ReadOptions) -> None:
    _log.warning("left out, since it is damaged: %s", damage)
    if options.damage_report is not None:
        write_damage(Path(options.damage_report), damage)


def _check_same_topics(cluster: Cluster, parts: Sequence[OffsetRange], options: ReadOptions) -> None:
    """Raise or report if a topic was created again while a slice was read: the slice may have rows of both."""
    names = {part.topic for part in parts if part.topic_id}
    found = cluster.topics(names) if names else {}
    for part in parts:
        info = found.get(part.topic)
        if part.topic_id and (info is None or info.topic_id != part.topic_id):
            text = (
                f"topic {part.topic!r} was deleted or created again while offsets {part.start} to {part.end} were read"
            )
            data_loss(f"{text} of {part.tp}", fail_on_data_loss=options.fail_on_data_loss, report=_log.warning)


def _raw_schema(options: ReadOptions) -> StructType:
    return source_schema(include_headers=options.include_headers, classic=options.where.classic)


def _schema(options: ReadOptions) -> StructType:
    """`options` are settled."""
    raw = _raw_schema(options)
    if options.decoding is None:
        return raw
    from .decoding import typed_schema

    return typed_schema(raw, options.decoding)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    expected = _schema(options)
    if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in expected]:
        raise ConfigError(
            f"format 'barnabas' has a schema of its own, leave .schema(...) out: {expected.simpleString()}"
        )
