"""Joins of two streams by time, and of a stream with a table that changes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .windows import watermarked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def join_within(
    left: "DataFrame",
    right: "DataFrame",
    on: Sequence[str],
    *,
    within: str,
    early: str = "0 seconds",
    leftTime: str,
    rightTime: str,
    delayThreshold: str | None = None,
    how: str = "inner",
) -> "DataFrame":
    """Each row of `left` with the rows of `right` that agree in the columns `on` and follow it `within` a duration.

    For instance views with the clicks on them. `early` is how long before the left row the right one may be (clocks
    differ). `leftTime` and `rightTime` are timestamps with different names. `how`: inner, left_outer, right_outer,
    left_semi. Columns `on` come once. A right row joins every left row that it follows.

    Streams: append; `delayThreshold` (or watermarks before) on both sides, so that Spark knows how long to keep rows;
    outer rows without a partner come when the watermark has passed the time in which one could come.
    """
    from pyspark.sql import functions as f

    first = watermarked(left, leftTime, delayThreshold).alias("_left")
    other = watermarked(right, rightTime, delayThreshold)
    names = {name: f"_right_{name}" for name in on}
    second = other.withColumnsRenamed(names).alias("_right")
    condition: Column = f.expr(
        f"`{rightTime}` >= `{leftTime}` - interval {early} AND `{rightTime}` <= `{leftTime}` + interval {within}"
    )
    for name, renamed in names.items():
        condition &= f.col(f"_left.{name}") == f.col(f"_right.{renamed}")
    joined = first.join(second, condition, how)
    if how == "right_outer":
        joined = joined.withColumns({name: f.coalesce(f.col(name), f.col(renamed)) for name, renamed in names.items()})
    return joined.drop(*names.values())


def latest(rows: "DataFrame", *by: str, orderBy: Sequence[str] = ("timestamp",)) -> "DataFrame":
    """The newest row for each value of the columns `by`: a topic of changes, read as the table that it describes.

    The newest has the largest `orderBy`, compared column by column (of a topic: `("partition", "offset")` with the
    key in `by`, since a key stays in its partition). All columns of `rows`. Batch only; a stream reads it by
    `join_latest`.
    """
    from pyspark.sql import functions as f

    newest = f.max_by(f.struct(*rows.columns), f.struct(*orderBy)).alias("_newest")
    return rows.groupBy(*by).agg(newest).select("_newest.*")


def join_latest(
    rows: "DataFrame",
    changes: "DataFrame",
    on: Sequence[str],
    *,
    orderBy: Sequence[str] = ("timestamp",),
    how: str = "left",
) -> "DataFrame":
    """Each row with what is known of its key at that moment: `rows` joined with the newest row per key of `changes`.

    `changes` is a batch frame over a topic or a table (`spark.read.format("barnabas")`, `read_table`); those of its
    columns that `rows` has too (`timestamp`, ...) are left out. `orderBy` as of `latest`. `how`: left, inner,
    left_anti, left_semi. Streams: every output mode, no watermark, but with what the table held when the query began:
    Spark plans the reading of a data source in Python once. For a table that changes meanwhile call it inside of
    `foreachBatch`, with a frame that is loaded there (examples/streams/orders_with_names.py).
    """
    again = [name for name in changes.columns if name in rows.columns and name not in on]
    return rows.join(latest(changes, *on, orderBy=orderBy).drop(*again), [*on], how)
