"""The Spark data source `barnabas`: topics as a table and as a stream, straight from the brokers."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, ConfigError
from .arrow import arrow_batches
from .cluster import EARLIEST, LATEST, Cluster, Columns, Place, Where
from .group_offsets import GroupProgress, commit_to_group
from .options import ReadOptions, parse_partitions_json, partitions_json, read_options, write_options
from .ranges import OffsetRange, data_loss, plan_ranges, resolve, select, slices, within
from .writer import ArrowWriter, StreamArrowWriter

FORMAT = "barnabas"
_log = logging.getLogger("barnabas.pipeline")

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


def source_schema(*, include_headers: bool, classic: bool = False) -> StructType:
    """The columns of Spark's own Kafka source.

    Those of a classic cluster are more: `broker`, whose partition it is, and `wrapperIndex`, which message of its
    compressed wrapper (null: in none). `offset` is the byte at which the message, or its wrapper, begins; key,
    timestamp, timestampType and headers are null.
    """
    fields = [StructField(name, kind) for name, kind in (*_COLUMNS, *(_CLASSIC_COLUMNS if classic else ()))]
    return StructType([*fields, StructField("headers", _HEADERS)] if include_headers else fields)


class Slice(InputPartition):
    """What one task reads."""

    def __init__(self, part: OffsetRange, where: Where) -> None:
        super().__init__(part)
        self.part = part
        self.where = where


class BarnabasDataSource(DataSource):
    """`spark.read.format("barnabas")`, `df.write.format("barnabas")`, and the same for streams."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def connect(self) -> Connect:
        """How tasks and planning reach the brokers; it is pickled, so it is a plain function."""
        from .connect import connect_cluster

        return connect_cluster

    def schema(self) -> StructType:
        return _schema(read_options(self.options, streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        _check_schema(schema, options)
        return BatchReader(options, self.connect())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = read_options(self.options, streaming=True)
        _check_schema(schema, options)
        return StreamReader(options, self.connect())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError("a topic can only be appended to: write with mode('append')")
        return ArrowWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise ConfigError("a topic can only be appended to: use outputMode('append') or 'update'")
        return StreamArrowWriter(write_options(self.options), schema)


class _SliceReader:
    """What batch and stream share: reading a slice in a task."""

    def __init__(self, options: ReadOptions, connect: Connect) -> None:
        self.options = options
        self.connect = connect

    def open(self) -> Cluster:
        return self.connect(self.options.where, self.options.client)

    def split(self, cluster: Cluster, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        """One slice per range, or more of one that counts records; the registries are not for the tasks."""
        options = self.options
        cut = slices(ranges, at_least=options.min_partitions, at_most_records=options.max_records_per_partition)
        return [Slice(part, cluster.where(part.place)) for part in cut]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):
            return
        schema = to_arrow_schema(_schema(self.options), timezone="UTC")
        cluster = self.connect(partition.where, self.options.client)
        try:
            pieces = _read_range(cluster, partition.part, self.options)
            yield from arrow_batches(partition.part.place, pieces, schema)
        finally:
            cluster.close()


class BatchReader(_SliceReader, DataSourceReader):
    """A read of what the topics have when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        cluster = self.open()
        try:
            return self.split(cluster, plan_ranges(cluster, self.options, _log.warning))
        finally:
            cluster.close()


class StreamReader(_SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the topics. Its offsets are {"offsets": JSON as in the option startingOffsets}; they are kept by
    Spark in the checkpoint, and told to a group on request. New partitions are read from their beginning."""

    def __init__(self, options: ReadOptions, connect: Connect) -> None:
        super().__init__(options, connect)
        self._target: dict[Place, int] | None = None
        self._progress = _progress(options)

    def initialOffset(self) -> dict[str, str]:
        cluster = self.open()
        try:
            partitions = select(cluster, self.options.selection)
            strict = not self.options.latest_when_no_timestamp
            starts = resolve(cluster, self.options.starting, partitions, "starting", strict=strict)
            if self._progress is not None:
                self._progress.begin(starts)
            return _pack(starts)
        finally:
            cluster.close()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit is not None else ReadAllAvailable()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        before = _unpack(start)
        self._reached(before)
        target = self._target if self._target is not None else self._latest()
        new = sorted(set(target) - set(before))
        if new:
            before.update(self._earliest(new))
        end = {p: max(offset, before[p]) for p, offset in target.items()}
        end.update({p: offset for p, offset in before.items() if p not in end})
        if isinstance(limit, ReadMaxRows):
            end = self._whole(before, end, _limited(before, end, limit.max_rows))
        return _pack(end)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def commit(self, end: dict[str, str]) -> None:
        self._reached(_unpack(end))

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        before, after = _unpack(start), _unpack(end)
        new = sorted(set(after) - set(before))
        if new:
            before.update(self._earliest(new))
        wanted = [OffsetRange.of(p, before[p], offset) for p, offset in sorted(after.items())]
        wanted = [part for part in wanted if part.size]
        if not wanted:
            return []
        cluster = self.open()
        try:
            involved = [part.place for part in wanted]
            first, last = cluster.offsets(involved, EARLIEST), cluster.offsets(involved, LATEST)
            fail = self.options.fail_on_data_loss
            return self.split(cluster, within(wanted, first, last, fail_on_data_loss=fail, report=_log.warning))
        finally:
            cluster.close()

    def _reached(self, offsets: Mapping[Place, int]) -> None:
        if self._progress is not None:
            self._progress.reached(offsets)

    def _whole(
        self, before: Mapping[Place, int], end: Mapping[Place, int], limited: dict[Place, int]
    ) -> dict[Place, int]:
        """A limit may fall into a message: then before that one, if the log has still got what is before it."""
        cut = [p for p, offset in limited.items() if offset < end[p]]
        if not self.options.where.classic or not cut:
            return limited
        cluster = self.open()
        try:
            first = cluster.offsets(cut, EARLIEST)
            starts = {p: max(before[p], first[p]) for p in cut}
            return {**limited, **{p: cluster.boundary(p, starts[p], max(starts[p], limited[p])) for p in cut}}
        finally:
            cluster.close()

    def _latest(self) -> dict[Place, int]:
        cluster = self.open()
        try:
            return dict(cluster.offsets(select(cluster, self.options.selection), LATEST))
        finally:
            cluster.close()

    def _earliest(self, partitions: Sequence[Place]) -> Mapping[Place, int]:
        cluster = self.open()
        try:
            return cluster.offsets(partitions, EARLIEST)
        finally:
            cluster.close()


def _progress(options: ReadOptions) -> GroupProgress | None:
    group = options.commit_to_group
    if group is None:
        return None
    from .connect import common_settings

    return GroupProgress(
        partial(commit_to_group, options.where.bootstrap, common_settings(options.client), group),
        partial(_log.warning, "the group %s is not told what was read: %s", group),
    )


def _read_range(cluster: Cluster, part: OffsetRange, options: ReadOptions) -> Iterator[Columns]:
    """The records of a range. Offsets that vanish meanwhile are an error, or skipped, as `failOnDataLoss` says."""
    position = part.start
    while position < part.end:
        try:
            for piece in cluster.read(part.place, position, part.end, with_headers=options.include_headers):
                position = max(position, piece.next_offset)
                yield piece
            return
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            there = [part.place]
            first = cluster.offsets(there, EARLIEST)[part.place]
            last = cluster.offsets(there, LATEST)[part.place]
            if first <= position and part.end <= last:
                raise
            text = f"{part.place}: offsets {position} to {part.end} were planned, the log has {first} to {last}"
            data_loss(text, fail_on_data_loss=options.fail_on_data_loss, report=_log.warning)
            part = evolve(part, end=min(part.end, last))
            position = max(position, first)


def _limited(start: Mapping[Place, int], end: Mapping[Place, int], max_rows: int) -> dict[Place, int]:
    """The share of `max_rows` that each partition's backlog has, at least one record where there is any."""
    total = sum(end[p] - start[p] for p in end)
    if total <= max_rows:
        return dict(end)
    return {p: start[p] + min(end[p] - start[p], -(-(end[p] - start[p]) * max_rows // total)) for p in end}


def _pack(offsets: Mapping[Place, int]) -> dict[str, str]:
    return {"offsets": partitions_json(offsets)}


def _unpack(offset: Mapping[str, Any]) -> dict[Place, int]:
    return parse_partitions_json(str(offset["offsets"]), "the offsets in the checkpoint")


def _schema(options: ReadOptions) -> StructType:
    return source_schema(include_headers=options.include_headers, classic=options.where.classic)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    expected = _schema(options)
    if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in expected]:
        raise ConfigError(
            f"format 'barnabas' has a schema of its own, leave .schema(...) out: {expected.simpleString()}"
        )
