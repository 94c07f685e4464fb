"""How late rows may be, said once for a function of this library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def watermarked(rows: "DataFrame", timeColumn: str, delayThreshold: str | None) -> "DataFrame":
    """The rows with a watermark on `timeColumn`, if one is wanted; on a batch it changes nothing."""
    return rows if delayThreshold is None else rows.withWatermark(timeColumn, delayThreshold)
