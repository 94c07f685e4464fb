"""The largest few of each group."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def top_k(rows: "DataFrame", *by: str, k: int, orderBy: str = "count") -> "DataFrame":
    """The `k` rows with the largest `orderBy` (a number) for each value of the columns `by`, such as `window`.

    Result: `by`, `rank` (int, from 1), then the other columns as they are; of equal numbers the one whose other columns
    come first. Each group is gathered whole in one task, so count first (`windowed_counts`), then take the top: the
    different items of a window have to fit into memory, a few tens of bytes each.

    Streams: append only, behind `windowed_counts(..., delayThreshold=...)` with `window` among `by`. Without `by`, on a
    batch, the top of all.
    """
    from pyspark.sql import functions as f

    others = [name for name in rows.columns if name not in by]
    entry = f.struct((-f.col(orderBy)).alias("_order"), *(name for name in others if name != orderBy))
    gathered = rows.groupBy(*by).agg(f.slice(f.sort_array(f.collect_list(entry)), 1, k).alias("_top"))
    placed = gathered.select(*by, f.posexplode("_top").alias("_place", "_entry"))
    values = [
        (-f.col("_entry._order") if name == orderBy else f.col(f"_entry.`{name}`")).alias(name) for name in others
    ]
    return placed.select(*by, (f.col("_place") + 1).alias("rank"), *values)
