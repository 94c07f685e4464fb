"""Operators on DataFrames: the largest few of each group, anomalies, pairs, duplicates and joins."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .windows import watermarked

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.state import GroupState


def top_k(rows: "DataFrame", *by: str, k: int, orderBy: str = "count") -> "DataFrame":
    """Return the `k` rows with the largest `orderBy` (a number) for each value of the columns `by`, such as `window`.

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


# Anomaly scores: how far a value is from the recent values of its series, by a measure that resists outliers.

MAD_TO_SIGMA = 1.4826
"""The standard deviation of normal values is this times the median of their absolute deviations."""


def anomaly_scores(
    rows: "DataFrame",
    *by: str,
    valueColumn: str = "value",
    timeColumn: str = "timestamp",
    windowRows: int = 288,
    minScale: float = 0.01,
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Return every row with `expected` and `score` (doubles): how many robust standard deviations its `valueColumn` is
    off.

    Per value of the columns `by`, a series in the order of `timeColumn`: `expected` is the median of the `windowRows`
    values before, the deviation is divided by 1.4826 times the median of the absolute deviations before (MAD), at
    least `minScale` times the expected value. Positive above, negative below; null until half of `windowRows` is there,
    and for values that are null. Rules of thumb: |score| > 6 is rare, > 12 wants a look.

    Streams: append, any watermark or none; a series keeps 2 * `windowRows` values (8 bytes each) for ever.
    Within a micro-batch rows are put in order, late ones of later micro-batches are scored when they come.
    """
    from pyspark.sql.types import DoubleType, StructField, StructType

    shape = StructType([*rows.schema.fields, StructField("expected", DoubleType()), StructField("score", DoubleType())])

    def scored(part: "pd.DataFrame", history: "np.ndarray") -> "pd.DataFrame":
        found = part.sort_values(timeColumn, kind="stable")
        values = found[valueColumn].to_numpy(dtype="float64", na_value=float("nan"))
        found["expected"], found["score"] = robust_scores(values, history, window=windowRows, min_scale=minScale)
        return found

    if not rows.isStreaming:
        import numpy as np

        return rows.groupBy(*by).applyInPandas(lambda part: scored(part, np.empty(0)), shape)

    def score_rows(
        _: tuple[Any, ...], parts: "Iterator[pd.DataFrame]", state: "GroupState"
    ) -> "Iterator[pd.DataFrame]":
        import numpy as np
        import pandas as pd

        history = np.frombuffer(state.get[0] if state.exists else b"", dtype="<f8")
        found = scored(pd.concat(list(parts)), history)
        known = found[valueColumn].to_numpy(dtype="float64", na_value=float("nan"))
        newest = np.concatenate([history, known[~np.isnan(known)]])[-2 * windowRows :]
        state.update((newest.astype("<f8").tobytes(),))
        yield found

    timed = watermarked(rows, timeColumn, delayThreshold)
    return timed.groupBy(*by).applyInPandasWithState(score_rows, shape, "history BINARY", "append", "NoTimeout")


def robust_scores(
    values: "np.ndarray", history: "np.ndarray", *, window: int, min_scale: float
) -> "tuple[np.ndarray, np.ndarray]":
    """(expected, score) of each of `values`, which follow those of `history`; NaN where there is too little before.

    With the last 2 * `window` values as history the scores are the same as over the whole series.
    """
    import numpy as np
    import pandas as pd

    known = ~np.isnan(values)
    series = pd.Series(np.concatenate([history, values[known]]))
    least = max(2, window // 2)
    expected = series.rolling(window, min_periods=least).median().shift(1)
    deviation = series - expected
    spread = deviation.abs().rolling(window, min_periods=least).median().shift(1) * MAD_TO_SIGMA
    scale = np.maximum(np.maximum(spread, expected.abs() * min_scale), np.finfo(float).tiny)
    result = np.full((2, len(values)), np.nan)
    result[0, known] = expected.to_numpy()[len(history) :]
    result[1, known] = (deviation / scale).to_numpy()[len(history) :]
    return result[0], result[1]


def item_pairs(baskets: "DataFrame", items: str, *, maxItems: int = 200) -> "DataFrame":
    """Return each unordered pair of different items of each basket: the other columns of `baskets`, `item`, `other`.

    `items` is a column with an array, one row is one basket. `item` < `other`. Baskets with more than `maxItems`
    different items are left out: a basket of n items has n * (n - 1) / 2 pairs, and a wholesaler's says little.
    Streams: append, update, no watermark, nothing is kept.
    """
    from pyspark.sql import functions as f

    others = [name for name in baskets.columns if name != items]
    ordered = baskets.select(*others, f.array_sort(f.array_distinct(f.array_compact(items))).alias("_items"))
    small = ordered.where(f.size("_items").between(2, maxItems))
    firsts = small.select("*", f.posexplode("_items").alias("_place", "item"))
    rest = f.slice("_items", f.col("_place") + 2, f.size("_items"))
    return firsts.select(*others, "item", f.explode(rest).alias("other"))


def co_occurrence(
    baskets: "DataFrame", items: str, *, minCount: int = 5, maxItems: int = 200, others: Sequence[str] | None = None
) -> "DataFrame":
    """Compute how strongly items go together, each pair in both directions.

    Result: `item`, `other`, `together` (baskets with both), `count` and `other_count` (baskets with each), `score`: the
    cosine, together / sqrt(count * other_count), from 0 to 1. Pairs in fewer than `minCount` baskets, and baskets with
    more than `maxItems` items, are left out. `others`: only pairs of which `other` is one of these (much quicker when
    they are few). Batch: a stream keeps `item_pairs` in a topic or a table, or calls this in `foreachBatch` on what was
    loaded.
    """
    from pyspark.sql import functions as f

    once = baskets.select(f.array_distinct(f.array_compact(items)).alias("items"))
    small = once.where(f.size("items").between(1, maxItems))
    counts = small.select(f.explode("items").alias("item")).groupBy("item").agg(f.count("*").alias("count"))
    if others is None:
        pairs = item_pairs(once, "items", maxItems=maxItems)
    else:
        wanted = f.array_intersect("items", f.array(*map(f.lit, others)).cast("array<string>")).alias("_others")
        firsts = small.select("items", wanted).select(f.explode("items").alias("item"), "_others")
        pairs = firsts.select("item", f.explode("_others").alias("other")).where("item <> other")
    together = pairs.groupBy("item", "other").agg(f.count("*").alias("together")).where(f.col("together") >= minCount)
    both = together if others is not None else together.union(together.select("other", "item", "together"))
    other_counts = counts.withColumnsRenamed({"item": "other", "count": "other_count"})
    score = f.col("together") / f.sqrt(f.col("count") * f.col("other_count"))
    return (
        both.join(counts, "item")
        .join(other_counts, "other")
        .select("item", "other", "together", "count", "other_count", score.alias("score"))
    )


# Each thing once, however often it was sent.


def deduplicated(
    rows: "DataFrame", *subset: str, timeColumn: str = "timestamp", delayThreshold: str | None = None
) -> "DataFrame":
    """Keep one row for each value of the columns `subset`: any of them on a batch, the first to arrive on a stream.

    Streams: any output mode that Spark takes behind it (append by itself). With `delayThreshold`, duplicates are found
    that come within that much event time (`dropDuplicatesWithinWatermark`), and the state is dropped after it; without,
    every value is kept for ever. A message that producers may have sent twice needs an id of its own for this; topic,
    partition and offset identify a message in the log only.
    """
    if rows.isStreaming and delayThreshold is not None:
        return watermarked(rows, timeColumn, delayThreshold).dropDuplicatesWithinWatermark([*subset])
    return rows.dropDuplicates([*subset])


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
    """Return each row of `left` with the rows of `right` that agree in the columns `on` and follow it `within` a
    duration.

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
    """Return the newest row for each value of the columns `by`: a topic of changes, read as the table that it
    describes.

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
    """Return each row with what is known of its key at that moment: `rows` joined with the newest row per key of
    `changes`.

    `changes` is a batch frame over a topic or a table (`spark.read.format("barnabas")`, `read_table`); those of its
    columns that `rows` has too (`timestamp`, ...) are left out. `orderBy` as of `latest`. `how`: left, inner,
    left_anti, left_semi. Streams: every output mode, no watermark, but with what the table held when the query began:
    Spark plans the reading of a data source in Python once. For a table that changes meanwhile call it inside of
    `foreachBatch`, with a frame that is loaded there (examples/streams/orders_with_names.py).
    """
    again = [name for name in changes.columns if name in rows.columns and name not in on]
    return rows.join(latest(changes, *on, orderBy=orderBy).drop(*again), [*on], how)


def json_fields(rows: "DataFrame", schema: str, *keep: str) -> "DataFrame":
    """Return the fields of JSON values as columns: `schema` is Spark's ("address STRING, bytes BIGINT"), `keep` names
    columns of the messages that stay (`timestamp`, `key`, ...). A value that is no JSON object has null in all fields;
    a field of the same name as a kept column takes its place. Batches and streams.
    """
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("value").cast("string"), schema).alias("_fields")
    columns = [f.col(name).alias(name) for name in keep]
    return rows.select(*columns, parsed).select(*keep, "_fields.*")


def as_messages(rows: "DataFrame", *key: str) -> "DataFrame":
    """Turn rows into messages, for `write.format("barnabas")`: `key` (the named columns, as text, with "|" between
    several; a window is given by its start) and `value`, all columns as a JSON object. Without names the key is null.
    Batches and streams.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    def text(name: str) -> "Column":
        column = f.col(name)
        window = isinstance(rows.schema[name].dataType, StructType)
        return (column.getField("start") if window else column).cast("string")

    named = f.concat_ws("|", *map(text, key)) if key else f.lit(None).cast("string")
    return rows.select(named.alias("key"), f.to_json(f.struct(*rows.columns)).alias("value"))
