"""Spark's part of a load: new rows, and rows to keep of files that are replaced, as Parquet below a staging folder."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from ..session import register, session_settings
from ..source.options import partitions_json
from .files import table_columns
from .layout import Layout
from .load_plan import LoadPlan, task_count
from .reading import AffectedFile, read_files, spark_path
from .source import LoadSource
from .store import TableStore
from .typed import TypedValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAMAGE_NOTES, PROGRESS_NOTES = "damage", "progress"
"""The folders below staging in which tasks leave notes."""
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}
"""Days are UTC days; timestamps have the type that all readers of Parquet know, not Spark's old INT96; and a task keeps
files of several topics and days open, instead of sorting its rows by them first: it does so when there are more."""


def write_rows(
    spark: "SparkSession",
    plan: LoadPlan,
    source: LoadSource,
    store: TableStore,
    layout: Layout,
    affected: Sequence[AffectedFile],
    staging: Path,
    typed: TypedValues | None = None,
) -> int:
    """Folders are those of the layout. Returns how many new rows do not decode, and are not written therefore."""
    from pyspark.sql import Observation, functions

    partly = [file.name for file in affected if file.replaced_rows < file.rows]
    watched = Observation() if typed is not None and plan.ranges else None
    with session_settings(spark, SETTINGS):
        parts = []
        if watched is not None and typed is not None:
            rows = typed_rows(spark, plan, source, layout, typed, staging)
            rows = rows.observe(watched, functions.count("value_error").alias("undecodable"))
            parts.append(rows.where("value_error is null").drop("value_raw", "value_error"))
        elif plan.ranges:
            parts.append(_new_rows(register(spark), plan, source, layout, staging))
        if partly:
            parts.append(remaining_rows(spark, plan, store, partly, typed))
        if parts:
            write_files(reduce(lambda a, b: a.unionByName(b), parts), source, layout, staging)
    return 0 if watched is None else int(watched.get["undecodable"])


def write_files(rows: "DataFrame", source: LoadSource, layout: Layout, staging: Path) -> None:
    """Parquet files below staging, in the layout's folders."""
    writer = rows.write.mode("append").option("compression", "zstd")
    if source.where.classic:  # a task is a partition, however many rows it has
        writer = writer.option("maxRecordsPerFile", source.rows_per_file)
    writer.partitionBy(*layout.types).parquet(spark_path(staging))


def typed_rows(
    spark: "SparkSession", plan: LoadPlan, source: LoadSource, layout: Layout, typed: TypedValues, staging: Path
) -> "DataFrame":
    """Return new rows with typed values, and `value_raw` and `value_error` of those that do not decode."""
    found = []
    for topic, options in typed.options.items():
        ranges = [part for part in plan.ranges if part.topic == topic]
        if ranges:
            part = evolve(plan, ranges=ranges)
            more = ("value_raw", "value_error")
            found.append(_new_rows(register(spark), part, source, layout, staging, options, more))
    return reduce(lambda a, b: a.unionByName(b), found)


def _new_rows(
    session: "SparkSession",
    plan: LoadPlan,
    source: LoadSource,
    layout: Layout,
    staging: Path,
    decoding: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
) -> "DataFrame":
    from pyspark.sql import functions

    assigned: dict[str, list[str]] = {}
    for part in plan.ranges:
        assigned.setdefault(part.topic, []).append(part.tp.key)
    reader = session.read.format("barnabas").options(
        **{f"kafka.{key}": value for key, value in source.client.items()},
        **source.where.options,
        assign=json.dumps(assigned),
        startingOffsets=partitions_json({part.tp: part.start for part in plan.ranges}),
        endingOffsets=partitions_json({part.tp: part.end for part in plan.ranges}),
        failOnDataLoss=str(source.fail_on_data_loss).lower(),
        failOnDamage=str(not source.skip_damaged).lower(),
        damageReport=str((staging / DAMAGE_NOTES).absolute()),
        progressReport=str((staging / PROGRESS_NOTES).absolute()),
        includeHeaders="true",
        **(decoding or {}),
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
    return layout.with_columns(rows, moment).select(*table_columns([], layout).names, *more)


def remaining_rows(
    session: "SparkSession",
    plan: LoadPlan,
    store: TableStore,
    names: Sequence[str],
    typed: TypedValues | None = None,
) -> "DataFrame":
    """Rows of these files that stay, where others of theirs are replaced."""
    from pyspark.sql import functions

    pairs = [
        functions.lit(value) for tp, start in plan.replaced_from.items() for value in (f"{tp.topic}/{tp.key}", start)
    ]
    position = functions.concat_ws("/", "topic", functions.concat_ws("-", "broker", "partition"))
    replaced_from = functions.try_element_at(functions.create_map(*pairs), position)
    types = {} if typed is None else {"value": typed.type}
    frame = read_files(session, store, [store.folder / name for name in names], types)
    return frame.where(replaced_from.isNull() | (functions.col("offset") < replaced_from))
