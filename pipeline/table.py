"""A table that `load` fills: Parquet below a folder, partitioned by topic and day."""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from .tables.formats import open_store
from .tables.store import TableStore
from .topics.model import NO_BROKER, ClusterPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def table_schema() -> "StructType":
    """The columns of the table: those of the data source with headers, for a classic cluster or not, and `day`.

    The day is that of the timestamp in UTC; classic messages have none, theirs is the day of the load. A table that was
    filled before there were `broker` and `wrapperIndex` is read with null there.
    """
    from pyspark.sql.types import DateType, StructField, StructType

    from .source.datasource import source_schema

    fields = {field.name: field for field in source_schema(include_headers=True, classic=True)}
    topic = fields.pop("topic")
    return StructType([*fields.values(), topic, StructField("day", DateType())])


def read_table(spark: "SparkSession", folder: Path | str, *, topics: Iterable[str] | None = None) -> "DataFrame":
    """What the loads into `folder` have committed, each record once.

    A load that died between its commit and its last file move is finished first; one that does that right now is waited
    for. Raises `TableError` when nothing was ever loaded there.
    """
    from pyspark.sql import functions

    path = Path(folder)
    open_store(path).settle()
    frame = spark.read.schema(table_schema()).parquet(spark_path(path, to_read=True))
    return frame if topics is None else frame.where(functions.col("topic").isin(*topics))


def spark_path(path: Path, *, to_read: bool = False) -> str:
    """A path for Spark, which takes it as it is (no %20), except that it expands patterns in paths that it reads."""
    text = path.absolute().as_posix()
    return "file:" + (re.sub(r"[][{}*?\\]", r"\\\g<0>", text) if to_read else text)


@frozen(kw_only=True)
class AffectedFile:
    """A file of the table with rows that a load replaces; `name` is relative to the table's folder."""

    name: str
    rows: int
    replaced_rows: int


def affected_files(
    store: TableStore, replaced_from: Mapping[ClusterPartition, int], replaced_topics: Collection[str]
) -> list[AffectedFile]:
    """The files with rows at or after the offsets in `replaced_from`, and all files of `replaced_topics`."""
    import numpy as np
    import pyarrow.parquet as pq

    topics = {place.topic for place in replaced_from} | set(replaced_topics)
    if not topics:
        return []
    result = []
    for file in store.files():
        topic, replaced = file.partition["topic"], file.rows
        if topic not in topics:
            continue
        if topic not in replaced_topics:
            columns = pq.ParquetFile(store.folder / file.name).read(["partition", "offset", "broker"])
            partitions, offsets = columns["partition"].to_numpy(), columns["offset"].to_numpy()
            there = "broker" in columns.column_names
            brokers = columns["broker"].fill_null(NO_BROKER).to_numpy() if there else NO_BROKER
            replaced = sum(
                int(np.count_nonzero((partitions == p.partition) & (brokers == p.broker) & (offsets >= start)))
                for p, start in replaced_from.items()
                if p.topic == topic
            )
        if replaced or topic in replaced_topics:
            result.append(AffectedFile(name=file.name, rows=file.rows, replaced_rows=replaced))
    return result
