"""Each thing once, however often it was sent."""

from typing import TYPE_CHECKING

from .windows import watermarked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
