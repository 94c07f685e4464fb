"""An access log as requests, and which of them are pages that a person looked at."""

from typing import TYPE_CHECKING

from ..report.access_log import ASSET, CRAWLER, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def requests(messages: "DataFrame") -> "DataFrame":
    """One row per line of the log that is one: `time`, `address`, `method`, `path`, `status`, `bytes`, `referrer`,
    `agent`, and `crawler` (its agent says that it is a program)."""
    from pyspark.sql import functions as f

    found = parse(messages).where(f.col("time").isNotNull()).drop("line")
    return found.withColumn("crawler", f.coalesce(f.col("agent").rlike(CRAWLER), f.lit(False)))


def page_views(found: "DataFrame") -> "DataFrame":
    """The requests that brought a page to a person: GET, delivered, no asset, no crawler."""
    from pyspark.sql import functions as f

    delivered = f.col("status").between(200, 299) | (f.col("status") == 304)
    return found.where((f.col("method") == "GET") & delivered & ~f.col("crawler") & ~f.col("path").rlike(ASSET))
