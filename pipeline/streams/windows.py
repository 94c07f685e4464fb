"""Event time: watermarks, and counts or other aggregates per window."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
