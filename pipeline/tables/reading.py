"""The rows of a table for Spark, and which files have the rows that a load replaces."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from ..topics.model import NO_BROKER, ClusterPartition
from .store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


def read_files(
    spark: "SparkSession", store: TableStore, paths: Sequence[Path], types: "Mapping[str, DataType] | None" = None
) -> "DataFrame":
    """Return the rows of these files of the table, or of its folder; `types` of columns that are wider than the
    table's."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    wider = types or {}
    columns = from_arrow_schema(store.columns())
    schema = StructType([StructField(each.name, wider.get(each.name, each.dataType)) for each in columns])
    if not paths:
        return spark.createDataFrame([], schema)
    named = [spark_path(path, to_read=True) for path in paths]
    return spark.read.schema(schema).option("basePath", spark_path(store.folder)).parquet(*named)


def spark_path(path: Path, *, to_read: bool = False) -> str:
    """Return a path for Spark, which takes it as it is (no %20), except that it expands patterns in paths that it
    reads."""
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
    """Return the files with rows at or after the offsets in `replaced_from`, and all files of `replaced_topics`."""
    import numpy as np
    import pyarrow.parquet as pq

    topics = {tp.topic for tp in replaced_from} | set(replaced_topics)
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
