"""An access log (combined or common log format) as figures: who asked for what, when, and how it ended."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
LINE = (
    r"(?s)^(\S+) \S+ \S+ \[([^\]]+)\] "  # address, identity, user, time
    + _QUOTED  # request
    + r" (\d{3}) (\d+|-)"  # status, bytes
    + rf"(?: {_QUOTED} {_QUOTED}.*)?\s*$"  # referrer, agent, and what some servers add
)
"""Valid for Java and for Python; possessive, so that no line makes a matcher go back and forth or deep."""

_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
_MARK = "\x01"
CRAWLER = (
    r"(?i)bot\b|bot[/_ -]|spider|crawl|slurp|archiver|mediapartners|facebookexternalhit|feedfetcher|preview"
    r"|^(curl|wget|python|java|go-http|libwww|ruby|perl|php)\b"
)
ASSET = r"(?i)\.(css|js|mjs|map|json|xml|txt|png|jpe?g|gif|svg|ico|webp|avif|woff2?|ttf|eot|mp[34]|webm|pdf|zip|gz)$"
TOP = 15
SAMPLES = 10


@frozen(kw_only=True)
class TopEntry:
    """A line of a top list."""

    name: str
    count: int
    size_bytes: int


@frozen(kw_only=True)
class AccessFigures:
    """The figures of a report of an access log. Hours are seconds since 1970; `lines` = `parsed` + `malformed`."""

    lines: int
    parsed: int
    malformed: int
    malformed_samples: Sequence[str]
    addresses: int
    views: int
    failed: int
    size_bytes: int
    crawler_requests: int
    crawler_addresses: int
    views_per_hour: Mapping[int, int]
    crawler_per_hour: Mapping[int, int]
    bytes_per_hour: Mapping[int, int]
    statuses: Mapping[str, int]
    top: Mapping[str, Sequence[TopEntry]]
    """The top entries by kind: page, referrer, failed, crawler."""


def is_access_log(samples: Sequence[bytes]) -> bool:
    """True if most of the sample lines are of the format."""
    pattern = re.compile(LINE)
    hits = sum(1 for sample in samples if pattern.match(sample.decode("utf-8", "replace")))
    return bool(samples) and hits * 2 > len(samples)


def parse(lines: "DataFrame") -> "DataFrame":
    """One row per line, with what it says; `time` is null for a line that is not of the format, none is left out."""
    from pyspark.sql import functions as f

    text = f.make_valid_utf8(f.coalesce(f.col("value").cast("string"), f.lit("")))
    cut = f.split(
        f.regexp_replace(f.translate(text, _MARK, " "), LINE, _MARK.join(f"${i}" for i in range(1, 8))), _MARK
    )
    rows = lines.select(text.alias("line"), cut.alias("cut"))
    whole = f.size("cut") == 7
    names = ("address", "time", "request", "status", "bytes", "referrer", "agent")
    fields = [f.when(whole, f.get("cut", f.lit(i))).alias(name) for i, name in enumerate(names)]
    rows = rows.select("line", *fields)
    target = f.get(f.split("request", " "), f.lit(1))
    path = f.get(f.split(target, r"[?#]", 2), f.lit(0))
    moment = f.try_to_timestamp("time", f.lit(_TIME))
    return rows.select(
        "line",
        "address",
        f.when(moment.between("1970-01-01", "9999-12-31"), moment).alias("time"),
        f.get(f.split("request", " "), f.lit(0)).alias("method"),
        path.alias("path"),
        f.col("status").cast("int").alias("status"),
        f.coalesce(f.expr("try_cast(bytes AS bigint)"), f.lit(0)).alias("bytes"),
        f.when(f.col("referrer").isin("", "-"), None).otherwise(f.col("referrer")).alias("referrer"),
        f.when(f.col("agent").isin("", "-"), None).otherwise(f.col("agent")).alias("agent"),
    )


def figures(lines: "DataFrame") -> AccessFigures:
    """All figures of the rows with a column `value`."""
    from pyspark.sql import functions as f

    parsed = parse(lines).persist()
    try:
        good = parsed.where(f.col("time").isNotNull())
        marked = _marked(good)
        bad = parsed.where(f.col("time").isNull())
        samples = [row.line[:500] for row in bad.select("line").limit(SAMPLES).collect()]
        malformed = bad.count()
        totals = marked.agg(
            f.count("*").alias("parsed"),
            f.count_distinct("address").alias("addresses"),
            f.count_distinct(f.when(f.col("crawler"), f.col("address"))).alias("crawlers"),
        ).first()
        hours = marked.groupBy(
            f.unix_timestamp(f.date_trunc("hour", "time")).alias("hour"), "crawler", "view", "status"
        ).agg(f.count("*").alias("count"), f.sum("bytes").alias("bytes"))
        cells = [row.asDict() for row in hours.collect()]
        top = _top(marked)
    finally:
        parsed.unpersist()
    assert totals is not None
    return _sum_up(cells, totals.asDict(), malformed, samples, top)


def _marked(good: "DataFrame") -> "DataFrame":
    """Add `crawler` (the agent says so, or the address asked for robots.txt) and `view` (a page that a person got)."""
    from pyspark.sql import functions as f

    asked = good.where(f.col("path") == "/robots.txt").select("address").distinct().withColumn("asked", f.lit(True))
    crawler = f.coalesce(f.col("asked"), f.lit(False)) | f.coalesce(f.col("agent").rlike(CRAWLER), f.lit(False))
    delivered = f.col("status").between(200, 299) | (f.col("status") == 304)
    page = (f.col("method") == "GET") & delivered & ~f.col("path").rlike(ASSET)
    rows = good.join(f.broadcast(asked), "address", "left").withColumn("crawler", crawler)
    return rows.withColumn("view", f.coalesce(page & ~f.col("crawler"), f.lit(False))).drop("asked", "line")


def _top(marked: "DataFrame") -> dict[str, list[TopEntry]]:
    """The top lists of all kinds in one pass."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def entry(kind: str, condition: "Column", name: "Column") -> "Column":
        return f.when(condition, f.struct(f.lit(kind).alias("kind"), name.alias("name")))

    site = f.regexp_extract("referrer", r"^[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]+)", 1)
    entries = f.array_compact(
        f.array(
            entry("page", f.col("view"), f.col("path")),
            entry("referrer", f.col("referrer").isNotNull(), f.when(site != "", site).otherwise(f.col("referrer"))),
            entry("failed", f.col("status") >= 400, f.concat_ws(" ", "status", f.coalesce("path", f.lit("-")))),
            entry("crawler", f.col("crawler"), f.coalesce("agent", f.concat(f.lit("no agent, "), "address"))),
        )
    )
    counted = (
        marked.select(f.explode(entries).alias("e"), "bytes")
        .groupBy("e.kind", "e.name")
        .agg(f.count("*").alias("count"), f.sum("bytes").alias("bytes"))
    )
    rank = f.row_number().over(Window.partitionBy("kind").orderBy(f.desc("count"), "name"))
    result: dict[str, list[TopEntry]] = {"page": [], "referrer": [], "failed": [], "crawler": []}
    for row in counted.withColumn("rank", rank).where(f.col("rank") <= TOP).orderBy("kind", "rank").collect():
        result[row.kind].append(TopEntry(name=row.name or "-", count=row["count"], size_bytes=row.bytes))
    return result


def _sum_up(
    cells: Sequence[Mapping[str, int]],
    totals: Mapping[str, int],
    malformed: int,
    samples: Sequence[str],
    top: Mapping[str, Sequence[TopEntry]],
) -> AccessFigures:
    views: dict[int, int] = {}
    crawler: dict[int, int] = {}
    size: dict[int, int] = {}
    statuses: dict[str, int] = {}
    for cell in cells:
        hour, count = cell["hour"], cell["count"]
        views[hour] = views.get(hour, 0) + (count if cell["view"] else 0)
        crawler[hour] = crawler.get(hour, 0) + (count if cell["crawler"] else 0)
        size[hour] = size.get(hour, 0) + cell["bytes"]
        status = f"{cell['status'] // 100}xx"
        statuses[status] = statuses.get(status, 0) + count
    return AccessFigures(
        lines=totals["parsed"] + malformed,
        parsed=totals["parsed"],
        malformed=malformed,
        malformed_samples=samples,
        addresses=totals["addresses"],
        views=sum(views.values()),
        failed=statuses.get("4xx", 0) + statuses.get("5xx", 0),
        size_bytes=sum(size.values()),
        crawler_requests=sum(crawler.values()),
        crawler_addresses=totals["crawlers"],
        views_per_hour=views,
        crawler_per_hour=crawler,
        bytes_per_hour=size,
        statuses=dict(sorted(statuses.items())),
        top=top,
    )
