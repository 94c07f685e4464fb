"""An access log as requests, and which of them are pages that a person looked at."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
LINE = rf"^(\S+) \S+ \S+ \[([^\]]+)\] {_QUOTED} (\d{{3}}) (\d+|-) {_QUOTED} {_QUOTED}"
"""The combined log format; possessive, so that a long line without an end takes no longer than others."""
FIELDS = ("address", "time", "request", "status", "bytes", "referrer", "agent")
CRAWLER = (
    r"(?i)bot\b|bot[/_ -]|spider|crawl|slurp|archiver|mediapartners|facebookexternalhit|feedfetcher|preview"
    r"|^(curl|wget|python|java|go-http|libwww|ruby|perl|php)\b"
)
ASSET = r"(?i)\.(css|js|mjs|map|json|xml|txt|png|jpe?g|gif|svg|ico|webp|avif|woff2?|ttf|eot|mp[34]|webm|pdf|zip|gz)$"


def requests(messages: "DataFrame") -> "DataFrame":
    """Parse each line of the log that is a request: `time`, `address`, `method`, `path`, `status`, `bytes`, `referrer`,
    `agent` (both null if absent), and `crawler` (the user agent names a program).
    """
    from pyspark.sql import functions as f

    line = f.make_valid_utf8(f.col("value").cast("string"))
    parts = messages.select(*(f.regexp_extract(line, LINE, i).alias(name) for i, name in enumerate(FIELDS, start=1)))
    words = f.split("request", " ")
    return parts.select(
        f.try_to_timestamp("time", f.lit("dd/MMM/yyyy:HH:mm:ss Z")).alias("time"),
        "address",
        f.get(words, f.lit(0)).alias("method"),
        f.get(f.split(f.get(words, f.lit(1)), "[?#]"), f.lit(0)).alias("path"),
        f.expr("try_cast(status AS INT)").alias("status"),
        f.expr("coalesce(try_cast(bytes AS BIGINT), 0)").alias("bytes"),
        *(f.when(~f.col(name).isin("", "-"), f.col(name)).alias(name) for name in ("referrer", "agent")),
        f.coalesce(f.col("agent").rlike(CRAWLER), f.lit(False)).alias("crawler"),
    ).where(f.col("time").isNotNull())


def page_views(found: "DataFrame") -> "DataFrame":
    """Select the requests that brought a page to a person: GET, delivered, no asset, no crawler."""
    from pyspark.sql import functions as f

    delivered = f.col("status").between(200, 299) | (f.col("status") == 304)
    return found.where((f.col("method") == "GET") & delivered & ~f.col("crawler") & ~f.col("path").rlike(ASSET))
