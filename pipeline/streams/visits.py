"""Sessions: rows of one key that follow each other without a long gap."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .windows import watermarked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def sessions(
    rows: "DataFrame",
    *by: str,
    gapDuration: str,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
    exprs: "Sequence[Column]" = (),
) -> "DataFrame":
    """One row per session of each value of the columns `by`: it ends where nothing comes for `gapDuration`.

    Result: `session_window` (struct; its end is that of the last row and the gap), `by`, `started` and `ended` (times
    of the first and the last row), `count` (bigint), and `exprs`, aggregates with a name. `by` may be empty on a batch
    only. Streams: append, with `delayThreshold` or a watermark before; complete. Spark has no update for sessions.
    """
    from pyspark.sql import functions as f

    timed = watermarked(rows, timeColumn, delayThreshold).where(f.col(timeColumn).isNotNull())
    return timed.groupBy(f.session_window(timeColumn, gapDuration).alias("session_window"), *by).agg(
        f.min(timeColumn).alias("started"), f.max(timeColumn).alias("ended"), f.count("*").alias("count"), *exprs
    )
