"""Spark's part of a load: new rows, and rows to keep of files that are replaced, as Parquet below a staging folder."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from ..session import register, session_settings
from ..source.options import partitions_json
from ..topics.model import Where
from .files import table_columns
from .layout import Layout
from .load_plan import LoadPlan, task_count
from .reading import AffectedFile, read_files, spark_path
from .store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAMAGE_NOTES = "damage"
"""Where tasks leave notes, below staging."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}
"""Days are UTC days; timestamps have the type that all readers of Parquet know, not Spark's old INT96; and a task keeps
files of several topics and days open, instead of sorting its rows by them first: it does so when there are more."""


@frozen
class LoadSource:
    """Where the rows of a load come from, and how they are read."""

    where: Where
    client: Mapping[str, str]
    fail_on_data_loss: bool
    skip_damaged: bool
    rows_per_file: int


def write_rows(
    spark: "SparkSession",
    plan: LoadPlan,
    source: LoadSource,
    store: TableStore,
    layout: Layout,
    affected: Sequence[AffectedFile],
    staging: Path,
) -> None:
    """Folders are those of the layout."""
    partly = [file.name for file in affected if file.replaced_rows < file.rows]
    with session_settings(spark, _SETTINGS):
        parts = [_new_rows(register(spark), plan, source, layout, staging)] if plan.ranges else []
        if partly:
            parts.append(_kept_rows(spark, plan, store, partly))
        if not parts:
            return
        writer = reduce(lambda a, b: a.unionByName(b), parts).write.mode("append").option("compression", "zstd")
        if source.where.classic:  # a task is a partition, however many rows it has
            writer = writer.option("maxRecordsPerFile", source.rows_per_file)
        writer.partitionBy(*layout.types).parquet(spark_path(staging))


def _new_rows(
    session: "SparkSession", plan: LoadPlan, source: LoadSource, layout: Layout, staging: Path
) -> "DataFrame":
    from pyspark.sql import functions

    assigned: dict[str, list[str]] = {}
    for part in plan.ranges:
        assigned.setdefault(part.topic, []).append(part.place.key)
    reader = session.read.format("barnabas").options(
        **{f"kafka.{key}": value for key, value in source.client.items()},
        **source.where.options,
        assign=json.dumps(assigned),
        startingOffsets=partitions_json({part.place: part.start for part in plan.ranges}),
        endingOffsets=partitions_json({part.place: part.end for part in plan.ranges}),
        failOnDataLoss=str(source.fail_on_data_loss).lower(),
        failOnDamage=str(not source.skip_damaged).lower(),
        damageReport=str((staging / DAMAGE_NOTES).absolute()),
        includeHeaders="true",
    )
    if source.where.classic:
        rows, moment = reader.load(), functions.current_timestamp()
    else:
        cores = session.sparkContext.defaultParallelism
        tasks = task_count([part.size for part in plan.ranges], cores=cores, rows_per_file=source.rows_per_file)
        sliced = reader.option("minPartitions", str(tasks)).option("maxRecordsPerPartition", str(source.rows_per_file))
        nothing = functions.lit(None).cast("int")
        rows = sliced.load().coalesce(tasks).withColumn("broker", nothing).withColumn("wrapperIndex", nothing)
        moment = functions.col("timestamp")
    return layout.with_columns(rows, moment).select(*table_columns([], layout).names)


def _kept_rows(session: "SparkSession", plan: LoadPlan, store: TableStore, names: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions

    pairs = [
        functions.lit(value)
        for place, start in plan.replaced_from.items()
        for value in (f"{place.topic}/{place.key}", start)
    ]
    position = functions.concat_ws("/", "topic", functions.concat_ws("-", "broker", "partition"))
    replaced_from = functions.try_element_at(functions.create_map(*pairs), position)
    frame = read_files(session, store, [store.folder / name for name in names])
    return frame.where(replaced_from.isNull() | (functions.col("offset") < replaced_from))
