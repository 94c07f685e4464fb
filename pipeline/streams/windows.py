"""Event time: watermarks, aggregates per window, sessions, and limits of rates."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.state import GroupState


def over_limit(
    rows: "DataFrame",
    *by: str,
    limit: int,
    windowDuration: str,
    slideDuration: str | None = None,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Return the windows in which a value of the columns `by` has more than `limit` rows: columns as of
    `windowed_counts`.

    Streams: append (once, when the window is over), update (as soon as it is above the limit, and at each change then).
    """
    from pyspark.sql import functions as f

    counts = windowed_counts(
        rows,
        *by,
        windowDuration=windowDuration,
        slideDuration=slideDuration,
        timeColumn=timeColumn,
        delayThreshold=delayThreshold,
    )
    return counts.where(f.col("count") > limit)


def rate_limited(
    rows: "DataFrame",
    *by: str,
    limit: int,
    windowDuration: str,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Return every row with a column `allowed` (boolean): true for the first `limit` rows of its key (`by`) in its
    window.

    The first are those with the smallest `timeColumn`; on a stream, of those that came in earlier micro-batches first.
    No row is left out, those without a time are allowed. Streams: append, `delayThreshold` needed (or a watermark
    before): counts are forgotten behind it. This runs in Python, a few milliseconds per key and micro-batch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f
    from pyspark.sql.types import BooleanType, StructField, StructType

    timed = watermarked(rows, timeColumn, delayThreshold)
    start = f.unix_micros(f.window(timeColumn, windowDuration).getField("start"))
    if not rows.isStreaming:
        place = f.row_number().over(Window.partitionBy(*by, start).orderBy(timeColumn))
        return rows.withColumn("allowed", (place <= limit) | f.col(timeColumn).isNull())
    end = f.unix_millis(f.window(timeColumn, windowDuration).getField("end"))
    marked = timed.withColumn("_window_end_ms", f.coalesce(end, f.lit(0)))
    shape = StructType([*rows.schema.fields, StructField("allowed", BooleanType())])

    def decide(_: tuple[Any, ...], parts: "Iterator[pd.DataFrame]", state: "GroupState") -> "Iterator[pd.DataFrame]":
        if state.hasTimedOut:
            state.remove()
            return
        seen: dict[int, int] = dict(json.loads(state.get[0])) if state.exists else {}
        for part in parts:
            ends = part["_window_end_ms"].tolist()
            allowed = [True] * len(ends)
            for place in part[timeColumn].argsort(kind="stable").tolist():
                end = ends[place]
                allowed[place] = end == 0 or seen.get(end, 0) < limit
                seen[end] = seen.get(end, 0) + 1
            del part["_window_end_ms"]
            part["allowed"] = allowed
            yield part
        watermark = state.getCurrentWatermarkMs()
        open_windows = {end: count for end, count in seen.items() if end > watermark}
        if open_windows:
            state.update((json.dumps(list(open_windows.items())),))
            state.setTimeoutTimestamp(max(open_windows))
        elif state.exists:
            state.remove()

    return marked.groupBy(*by).applyInPandasWithState(decide, shape, "counts STRING", "append", "EventTimeTimeout")


def sessions(
    rows: "DataFrame",
    *by: str,
    gapDuration: str,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
    exprs: "Sequence[Column]" = (),
) -> "DataFrame":
    """Return one row per session of each value of the columns `by`: it ends where nothing comes for `gapDuration`.

    Result: `session_window` (struct; its end is that of the last row and the gap), `by`, `started` and `ended` (times
    of the first and the last row), `count` (bigint), and `exprs`, aggregates with a name. `by` may be empty on a batch
    only. Streams: append, with `delayThreshold` or a watermark before; complete. Spark has no update for sessions.
    """
    from pyspark.sql import functions as f

    timed = watermarked(rows, timeColumn, delayThreshold).where(f.col(timeColumn).isNotNull())
    return timed.groupBy(f.session_window(timeColumn, gapDuration).alias("session_window"), *by).agg(
        f.min(timeColumn).alias("started"), f.max(timeColumn).alias("ended"), f.count("*").alias("count"), *exprs
    )


def watermarked(rows: "DataFrame", timeColumn: str, delayThreshold: str | None) -> "DataFrame":
    """Return the rows with a watermark on `timeColumn`, if a threshold is given; a batch ignores it."""
    return rows if delayThreshold is None else rows.withWatermark(timeColumn, delayThreshold)


def windowed_counts(
    rows: "DataFrame",
    *by: str,
    windowDuration: str,
    slideDuration: str | None = None,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
    exprs: "Sequence[Column]" = (),
) -> "DataFrame":
    """Count the rows in each window of time, for each value of the columns `by`.

    `timeColumn` is a timestamp; durations are Spark's ("1 hour", "10 minutes"), windows overlap with `slideDuration`.
    Result: `window` (struct of start and end, end exclusive), `by`, `count` (bigint), and `exprs`, aggregates with a
    name, for instance `sum("bytes").alias("bytes")`. Rows without a time are left out.

    Streams: append (a window comes once, when the watermark has passed its end: needs `delayThreshold`, or a watermark
    before), update (each change), complete (needs no watermark, keeps everything in memory).
    """
    from pyspark.sql import functions as f

    windows = f.window(timeColumn, windowDuration, slideDuration)
    timed = watermarked(rows, timeColumn, delayThreshold).where(f.col(timeColumn).isNotNull())
    return timed.groupBy(windows.alias("window"), *by).agg(f.count("*").alias("count"), *exprs)
