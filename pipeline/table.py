"""A table that `load` fills: Parquet files below a folder, in one of the formats of `tables.formats`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .tables.formats import open_store, require_format
from .tables.reading import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", folder: Path | str, *, topics: Iterable[str] | None = None) -> "DataFrame":
    """Return the records that the loads into `folder` have committed, each once.

    The columns are those of the data source with headers, for a classic cluster or not, and those by which the table is
    partitioned, in UTC; classic messages have no time, theirs is that of the load. Raises `TableError` when nothing was
    ever loaded there.
    """
    from pyspark.sql import functions

    store = open_store(Path(folder))
    require_format(store.format)
    store.finish_commit()
    frame = read_files(spark, store, store.paths())
    return frame if topics is None else frame.where(functions.col("topic").isin(*topics))
