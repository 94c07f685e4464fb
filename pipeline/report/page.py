"""One self-contained HTML page about what a table holds: a section per topic, by the kind of its lines.

With an audit, a section says whether every message that was produced is in every tier.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ...app.cli.times import age_text
from ...app.extras import require
from ...audit.reading import AuditReader
from ...audit.reconcile import Reconciliation, reconcile
from ...audit.words import share_text
from ...ports.errors import BarnabasError, ConfigError
from ..session import REPORT_PACKAGES, local_session, session_settings
from ..spark.errors import plain_spark_errors
from ..table import read_table
from ..tables.formats import open_store, require_format
from ..tables.upkeep.describe import TopicDescription, describe_table
from ..topics.damage import DamagedRange
from ..topics.model import NO_BROKER, ClusterPartition
from . import charts
from .charts import bucket_for
from .panels import write_whole
from .rendering import render_template
from .sql import access_queries, event_expression, field_expression, identifier, metric_queries, record_queries

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_SAMPLE_ROWS = 2000


@frozen(kw_only=True)
class ReportResult:
    """The page that was written, and its counts; over all sections `lines` = `parsed` + `malformed`."""

    page: Path
    kinds: Mapping[str, str]
    """The kind of each topic: "access log", "metrics" or "lines", which is any other."""
    lines: int
    parsed: int
    malformed: int
    damaged: Sequence[DamagedRange] = ()
    """The ranges of these topics that the table lacks, since they were damaged."""


def report(
    folder: Path | str,
    out: Path | str,
    *,
    topic: str | None = None,
    audit: Sequence[str] = (),
    event_time: str | None = None,
    spark: "SparkSession | None" = None,
    log_file: Path | None = None,
    progress: Callable[[str], object] = lambda _step: None,
) -> ReportResult:
    """Write the page about the table in `folder` to the file `out`: about one topic, or about all of them.

    `audit`: clusters whose audit topics say how complete the topics are. `event_time`: a field of JSON values (`a.b` is
    a field of a field) with a time in ISO 8601, or in seconds, milliseconds, microseconds or nanoseconds since 1970;
    rows are shown by it, in topics that have it, and not by the time of the record. `spark` None = a local session for
    this report; its Java's messages go to `log_file`. `progress` is called with each step. Raises `TableError` when
    `folder` is not a table, `ConfigError` for a topic that is not in it and for a field that no topic has.
    """
    require("a report", REPORT_PACKAGES, "spark")
    path = Path(out)
    described = _described(Path(folder))
    if topic is not None and topic not in described:
        raise ConfigError(f"there is no topic {topic!r} in {folder}; there is {', '.join(described) or 'none'}")
    chosen = list(described) if topic is None else [topic]
    audits: Mapping[str, TopicAudit] = {}
    if audit:
        audits = audited(audit, chosen)
    if spark is None:
        progress("starting Spark")
    with (
        local_session(log_file=log_file) if spark is None else nullcontext(spark) as session,
        plain_spark_errors(),
        session_settings(session, {"spark.sql.session.timeZone": "UTC"}),
    ):
        sections = []
        for number, name in enumerate(chosen, start=1):
            progress(f"reading {name}, {described[name].rows:,} rows (topic {number} of {len(chosen)})")
            rows = read_table(session, folder, topics=[name])
            sections.append(section_of(name, rows, event_time, identifier(Path(folder).resolve().name)))
    if event_time is not None:
        _check_event_times(event_time, sections)
    progress(f"writing {path}")
    damaged = [each for each in _damaged(Path(folder)) if each.topic in chosen]
    for section in sections:
        name = section["topic"]
        section["damaged"] = [str(each) for each in damaged if each.topic == name]
        section["audit"] = audits.get(name)
        section["about"] = described[name]
    html = render(Path(folder), sections, datetime.now(UTC))
    write_whole(path, html)
    return ReportResult(
        page=path,
        kinds={section["topic"]: section["kind"] for section in sections},
        lines=sum(section["figures"].lines for section in sections),
        parsed=sum(section["figures"].parsed for section in sections),
        malformed=sum(section["figures"].malformed for section in sections),
        damaged=damaged,
    )


def _check_event_times(name: str, sections: Sequence[Mapping[str, Any]]) -> None:
    found: list[RecordFigures] = [section["records"]["figures"] for section in sections]
    if any(each.event_time for each in found):
        return
    with_field = [section["topic"] for section, each in zip(sections, found, strict=True) if each.event_values]
    if with_field:
        raise ConfigError(
            f"event time {name!r}: the values of this field in {', '.join(with_field)} are not times: give a field "
            "with ISO 8601 (2026-01-31T12:00:00Z), or with seconds, ms, us or ns since 1970"
        )
    topics = ", ".join(section["topic"] for section in sections)
    fields = [each.path for figures in found for each in figures.fields]
    there = f"fields: {', '.join(dict.fromkeys(fields[:30]))}" if fields else "they are not JSON objects"
    raise ConfigError(f"event time {name!r}: no value in {topics} has this field; {there}")


def render(folder: Path, sections: Sequence[Mapping[str, Any]], now: datetime) -> str:
    """Return the page as text: of one topic under its name, of several with an index. Everything from the data is
    escaped."""
    now_ms = int(now.timestamp() * 1000)
    title = sections[0]["topic"] if len(sections) == 1 else folder.name
    defaults: dict[str, Any] = {"damaged": [], "audit": None, "about": None, "records": None, "queries": {}}
    return render_template(
        "page.html.j2",
        title=title,
        folder=folder.name,
        sections=[
            {**defaults, **section, "anchor": f"t{n}", "label": _label(section)} for n, section in enumerate(sections)
        ],
        made=f"{now:%Y-%m-%d %H:%M} UTC",
        age=lambda ms: age_text(now_ms - ms),
    )


def _label(section: Mapping[str, Any]) -> str:
    """Return the kind of a topic for people."""
    if section["kind"] != "lines":
        return str(section["kind"])
    return "JSON" if section["figures"].fields else "records"


# An access log (combined or common log format) as figures: who asked for what, when, and how it ended.

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
    """Return True if most of the sample lines are of the format."""
    pattern = re.compile(LINE)
    hits = sum(1 for sample in samples if pattern.match(sample.decode("utf-8", "replace")))
    return bool(samples) and hits * 2 > len(samples)


def parse(lines: "DataFrame") -> "DataFrame":
    """Return one row per line, with what it says; `time` is null for a line that is not of the format, none is left
    out."""
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
    """Return all figures of the rows with a column `value`."""
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
    """Return the top lists of all kinds in one pass."""
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


def access_section(topic: str, found: AccessFigures, source: str = "topic") -> dict[str, Any]:
    """Return the template's values for an access log. `source` is its name in a query."""
    traffic = charts.per_bucket({"views": found.views_per_hour, "crawlers": found.crawler_per_hour})
    size = charts.per_bucket({"bytes": found.bytes_per_hour})
    return {
        "kind": "access log",
        "topic": topic,
        "figures": found,
        "bucket": charts.bucket_name(traffic.bucket_s),
        "span": charts.span_text(traffic),
        "queries": access_queries(source, charts.bucket_name(traffic.bucket_s), CRAWLER, ASSET),
        "views_chart": charts.stacked(traffic, title="views and crawler requests over time"),
        "bytes_chart": charts.stacked(size, unit="B", title="traffic over time"),
    }


POINTS = 240
SERIES_MAX = 24
SAMPLES = 10
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""
_UNITS_FROM = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""(from which number on a time is in smaller units than seconds, units per second): 1e11 s would be the year 5138."""


@frozen(kw_only=True)
class Series:
    """One metric: averages, lowest and highest per bucket; times in seconds since 1970."""

    name: str
    count: int
    times: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


@frozen(kw_only=True)
class MetricFigures:
    """The figures of a report of metrics; `lines` = `parsed` + `malformed`."""

    lines: int
    parsed: int
    malformed: int
    malformed_samples: Sequence[str]
    counts: Mapping[str, int]
    series: Sequence[Series]


def is_metrics(samples: Sequence[bytes]) -> bool:
    """Return True if most of the samples are JSON objects with a metric and a number."""

    def fits(sample: bytes) -> bool:
        try:
            found = json.loads(sample)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, dict) and "metric" in found and isinstance(found.get("value"), int | float)

    return bool(samples) and sum(map(fits, samples)) * 2 > len(samples)


def metric_figures(lines: "DataFrame") -> MetricFigures:
    """Return all figures of the rows with a column `value`."""
    from pyspark.sql import functions as f

    parsed = _parse(lines).persist()
    try:
        good = parsed.where("seconds IS NOT NULL AND metric IS NOT NULL AND number IS NOT NULL")
        span = good.agg(f.min("seconds"), f.max("seconds"), f.count("*")).first()
        assert span is not None
        first, last, count = span
        bad = parsed.where("seconds IS NULL OR metric IS NULL OR number IS NULL")
        malformed = bad.count()
        samples = [row.line[:500] for row in bad.select("line").limit(SAMPLES).collect()] if malformed else []
        cells: Sequence[Mapping[str, Any]] = []
        if count:
            width = max((last - first) / POINTS, 0.001)
            bucket = f.floor((f.col("seconds") - first) / width).alias("bucket")
            grouped = good.groupBy(f.col("metric"), bucket).agg(
                f.avg("seconds").alias("time"),
                f.avg("number").alias("mean"),
                f.min("number").alias("low"),
                f.max("number").alias("high"),
                f.count("*").alias("count"),
            )
            rows = grouped.orderBy("metric", "bucket").collect()
            cells = [row.asDict() for row in rows]
    finally:
        parsed.unpersist()
    series = _series(cells)
    return MetricFigures(
        lines=count + malformed,
        parsed=count,
        malformed=malformed,
        malformed_samples=samples,
        counts={each.name: each.count for each in series},
        series=series[:SERIES_MAX],
    )


def _parse(lines: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    text = f.make_valid_utf8(f.coalesce(f.col("value").cast("string"), f.lit("")))
    found = f.from_json(text, "ts STRING, metric STRING, value DOUBLE")
    rows = lines.select(text.alias("line"), found.alias("json"))
    number = f.col("json.value")
    finite = number.isNotNull() & ~f.isnan(number) & (f.abs(number) < float("inf"))
    return rows.select(
        "line",
        _seconds(f.col("json.ts")).alias("seconds"),
        f.col("json.metric").alias("metric"),
        f.when(finite, number).alias("number"),
    )


def _seconds(ts: "Column") -> "Column":
    """Seconds since 1970 of a number of seconds, milliseconds, microseconds or nanoseconds, or of an ISO time."""
    from pyspark.sql import functions as f

    number = ts.try_cast("double")
    seconds = number
    for least, per_second in reversed(_UNITS_FROM):
        seconds = f.when(f.abs(number) >= least, number / per_second).otherwise(seconds)
    found = f.coalesce(seconds, f.unix_micros(f.try_to_timestamp(ts)) / 1e6)
    return f.when(found.between(*_SECONDS), found)


def _per_second(number: float) -> float:
    return next((per_second for least, per_second in _UNITS_FROM if abs(number) >= least), 1.0)


def _series(cells: Sequence[Mapping[str, Any]]) -> list[Series]:
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        by_name.setdefault(str(cell["metric"]), []).append(cell)
    return [
        Series(
            name=name,
            count=sum(int(cell["count"]) for cell in rows),
            times=[cell["time"] for cell in rows],
            means=[cell["mean"] for cell in rows],
            lows=[cell["low"] for cell in rows],
            highs=[cell["high"] for cell in rows],
        )
        for name, rows in by_name.items()
    ]


def metrics_section(topic: str, found: MetricFigures, source: str = "topic") -> dict[str, Any]:
    """Return the template's values for metrics. `source` is the topic's name in a query."""
    lines = [(each, charts.line(each.times, each.means, each.lows, each.highs)) for each in found.series]
    queries = metric_queries(source, [each.name for each in found.series])
    return {"kind": "metrics", "topic": topic, "figures": found, "lines": lines, "queries": queries}


KEYS = 15
NEWEST = 5
SHOWN_CHARACTERS = 600
FIELDS_MAX = 60
_DEPTH_MAX = 4


@frozen(kw_only=True)
class SampleRecord:
    """One record as text; bytes that are no text are shown as hexadecimal digits. `key` and `value` None: null."""

    partition: str
    offset: int
    time_ms: int | None
    key: str | None
    value: str | None


@frozen(kw_only=True)
class FieldFigures:
    """A field of JSON objects, by its path: in how many of the rows that were looked at, and what it holds."""

    path: str
    rows: int
    types: Sequence[str]
    example: str


@frozen(kw_only=True)
class RecordFigures:
    """Sizes in bytes, of values; buckets of time in seconds since 1970."""

    lines: int
    size_bytes: int
    median_bytes: int
    largest_bytes: int
    tombstones: int
    bucket_s: int
    rows_per_bucket: Mapping[int, int]
    bytes_per_bucket: Mapping[int, int]
    partitions: Mapping[str, int]
    """The counts by partition number, or by "broker-partition" of a classic cluster."""
    keyed: int
    """Rows that have a key."""
    distinct_keys: int
    """The approximate number of different keys."""
    key_counts: Mapping[str, int]
    newest: Sequence[SampleRecord]
    fields: Sequence[FieldFigures] = ()
    field_rows: int = 0
    """Rows that were looked at for fields, and were JSON objects."""
    malformed: int = 0
    """Rows whose value is no JSON, of a topic of JSON objects."""
    malformed_samples: Sequence[str] = ()
    event_time: str = ""
    """The field whose time counts; "" for the time of the record."""
    event_values: int = 0
    """Rows that have this field."""
    untimed: int = 0
    """Rows without a time in this field: they are not in the buckets."""
    event_per_second: float = 0.0
    """The number of units of the field in a second; 0 where it has texts."""

    @property
    def parsed(self) -> int:
        return self.lines - self.malformed


def record_figures(rows: "DataFrame", some_values: Sequence[bytes], event_time: str | None = None) -> RecordFigures:
    """Figures of the rows of one topic of a table. `some_values`: in which fields are looked for. `event_time`: a field
    of JSON values by whose time the rows are shown, if it has one in some row.
    """
    fields, objects = json_fields(some_values)
    if event_time is not None:
        return _figures_by_event_time(rows, fields, objects, event_time)
    return _figures_of(rows, fields, objects)


def _figures_by_event_time(rows: "DataFrame", fields: Sequence[FieldFigures], objects: int, name: str) -> RecordFigures:
    """Return the figures by the time in a field; by that of the record, with the count of the field, if none is one."""
    from pyspark.sql import functions as f

    text = _text(f.col("value"))
    steps = "".join(f"['{part}']" for part in name.split("."))
    field = f.coalesce(f.get_json_object(text, f"$['{name}']"), f.get_json_object(text, f"${steps}"))
    moment = f.timestamp_micros((_seconds(field) * 1e6).cast("bigint"))
    timed = rows.withColumn("_field", field).withColumn("_event", moment)
    counts = timed.agg(
        f.count("_field").alias("values"),
        f.count("_event").alias("times"),
        f.count(f.col("_field").try_cast("double")).alias("numbers"),
        f.max(f.abs(f.col("_field").try_cast("double"))).alias("largest"),
    ).first()
    assert counts is not None
    if not counts["times"]:
        return evolve(_figures_of(rows, fields, objects), event_values=counts["values"])
    found = _figures_of(timed, fields, objects, "_event")
    return evolve(
        found,
        event_time=name,
        event_values=counts["values"],
        untimed=found.lines - counts["times"],
        event_per_second=_per_second(counts["largest"]) if counts["numbers"] * 2 > counts["values"] else 0.0,
    )


def _figures_of(
    rows: "DataFrame", fields: Sequence[FieldFigures], objects: int, moment_column: str = ""
) -> RecordFigures:
    from pyspark.sql import functions as f

    there = set(rows.columns)
    moment = f.coalesce(f.col("timestamp"), f.to_timestamp("day")) if "day" in there else f.col("timestamp")
    if moment_column:
        moment = f.col(moment_column)
    broker = f.col("broker") if "broker" in there else f.lit(NO_BROKER)
    seconds, size = f.unix_timestamp(moment), f.length("value")
    rows = rows.select(
        *("key", "value", "partition", "offset", "timestamp"),
        f.coalesce(broker, f.lit(NO_BROKER)).alias("broker"),
        seconds.alias("seconds"),
        f.unix_timestamp("timestamp").alias("record_seconds"),
        size.alias("size"),
    )
    found = rows.agg(
        f.count("*").alias("lines"),
        f.sum("size").alias("bytes"),
        f.percentile_approx("size", 0.5).alias("median"),
        f.max("size").alias("largest"),
        f.count("value").alias("values"),
        f.count("key").alias("keyed"),
        f.approx_count_distinct("key", 0.01).alias("keys"),
        f.min("seconds").alias("first"),
        f.max("seconds").alias("last"),
    ).first()
    assert found is not None
    bucket_s = bucket_for((found["last"] or 0) - (found["first"] or 0))
    per_bucket: Counter[int] = Counter()
    bytes_per_bucket: Counter[int] = Counter()
    per_partition: Counter[ClusterPartition] = Counter()
    bucket = (f.floor(f.col("seconds") / bucket_s) * bucket_s).alias("bucket")
    cells = rows.groupBy(bucket, "broker", "partition").agg(f.count("*").alias("count"), f.sum("size").alias("bytes"))
    for cell in cells.collect():
        per_partition[ClusterPartition("", cell.partition, cell.broker)] += cell["count"]
        if cell.bucket is not None:
            per_bucket[cell.bucket] += cell["count"]
            bytes_per_bucket[cell.bucket] += cell.bytes or 0
    malformed, samples = _malformed(rows) if fields else (0, [])
    newest = rows.orderBy(f.desc("record_seconds"), f.desc("offset")).limit(NEWEST).collect()
    return RecordFigures(
        lines=found["lines"],
        size_bytes=found["bytes"] or 0,
        median_bytes=found["median"] or 0,
        largest_bytes=found["largest"] or 0,
        tombstones=found["lines"] - found["values"],
        bucket_s=bucket_s,
        rows_per_bucket=per_bucket,
        bytes_per_bucket=bytes_per_bucket,
        partitions={tp.key: count for tp, count in sorted(per_partition.items())},
        keyed=found["keyed"],
        distinct_keys=min(found["keys"], found["keyed"]),
        key_counts=_top_keys(rows) if found["keyed"] else {},
        newest=[_sample(row) for row in newest],
        fields=fields,
        field_rows=objects,
        malformed=malformed,
        malformed_samples=samples,
    )


def _malformed(rows: "DataFrame") -> tuple[int, list[str]]:
    """Return the number of values that are no JSON, and some of them."""
    from pyspark.sql import functions as f

    text = _text(f.col("value"))
    bad = rows.where(f.col("value").isNotNull() & f.get_json_object(text, "$").isNull())
    count = bad.count()
    return count, [row.line[:500] for row in bad.select(text.alias("line")).limit(SAMPLES).collect()] if count else []


def json_fields(values: Sequence[bytes]) -> tuple[list[FieldFigures], int]:
    """Return the fields of those values that are JSON objects, the most frequent first; and how many are."""
    seen: dict[str, _Seen] = {}
    objects = 0
    for value in values:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            objects += 1
            for path, each in _leaves(found, "", 1):
                seen.setdefault(path, _Seen()).add(each)
    if objects * 2 <= len(values):
        return [], 0
    ordered = sorted(seen.items(), key=lambda item: -item[1].rows)[:FIELDS_MAX]
    figures = [
        FieldFigures(path=path, rows=each.rows, types=sorted(each.types), example=each.example)
        for path, each in ordered
    ]
    return figures, objects


@define
class _Seen:
    rows: int = 0
    types: set[str] = field(factory=set)
    example: str = ""

    def add(self, value: Any) -> None:
        self.rows += 1
        self.types.add(_type_of(value))
        if not self.example and value is not None:
            self.example = json.dumps(value, ensure_ascii=False)[:80]


def _leaves(found: Mapping[str, Any], above: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, value


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names[type(value)]


def _top_keys(rows: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as f

    key = _text(f.substring(f.col("key"), 1, 200)).alias("name")
    keys = rows.where("key IS NOT NULL").groupBy(key).count().orderBy(f.desc("count"), "name").limit(KEYS).collect()
    return {row.name: row["count"] for row in keys}


def _text(column: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.make_valid_utf8(column.cast("string"))


def _sample(row: Any) -> SampleRecord:
    time_ms = None if row.record_seconds is None else int(row.record_seconds) * 1000
    tp = ClusterPartition("", row.partition, row.broker)
    return SampleRecord(
        partition=tp.key, offset=row.offset, time_ms=time_ms, key=shown(row.key), value=shown(row.value)
    )


def shown(content: bytes | None) -> str | None:
    """Return content for a person: text, or else hexadecimal digits; shortened if it is long."""
    if content is None:
        return None
    data = bytes(content[: SHOWN_CHARACTERS * 4])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3 or len(data) == len(content):
            return f"0x{data[: SHOWN_CHARACTERS // 4].hex()}" + ("..." if len(content) > SHOWN_CHARACTERS // 4 else "")
        text = data[: error.start].decode()
    more = len(text) > SHOWN_CHARACTERS or len(data) < len(content)
    return text[:SHOWN_CHARACTERS] + ("..." if more else "")


def lines_section(topic: str, found: RecordFigures) -> dict[str, Any]:
    """Return the template's values for any other topic: its records."""
    return {"kind": "lines", "topic": topic, "figures": found}


def record_part(
    found: RecordFigures,
    source: str = "topic",
    *,
    text: bool = True,
    columns: Sequence[str] = (),
    typed: bool = False,
) -> dict[str, Any]:
    """Return the template's values for the records of any topic. `source` is its name in a query, `columns` the columns
    that the table has; `text`: its values are UTF-8; `typed`: they are structs, whose sizes are those of their JSON.
    """
    whole = "value" if typed else "json"
    classic = any("-" in key for key in found.partitions)
    moment = "timestamp"
    if found.event_time:
        moment = event_expression(field_expression(found.event_time, columns, whole), found.event_per_second)
    fields = {each.path: field_expression(each.path, columns, whole) for each in found.fields if each.rows}
    queries = record_queries(
        source, text=text, moment=moment, bucket_s=found.bucket_s, classic=classic, whole=whole, fields=fields
    )
    sizes = [found.bucket_s]
    rows = charts.per_bucket({"rows": found.rows_per_bucket}, sizes)
    size = charts.per_bucket({"bytes": found.bytes_per_bucket}, sizes)
    return {
        "figures": found,
        "bucket": charts.bucket_name(found.bucket_s),
        "typed": typed,
        "span": charts.span_text(rows),
        "queries": queries,
        "rows_chart": charts.stacked(rows, title="rows over time"),
        "bytes_chart": charts.stacked(size, unit="B", title="bytes over time"),
    }


def section_of(
    topic: str, rows: "DataFrame", event_time: str | None = None, table: str = "warehouse"
) -> dict[str, Any]:
    """Return all that the template shows of a topic's rows. `table` is the table's name in queries."""
    rows, typed = _values_as_bytes(rows)
    values = [row.value for row in rows.select("value").limit(_SAMPLE_ROWS).collect()]
    samples = [bytes(value or b"") for value in values]
    found = record_figures(rows, [bytes(value) for value in values if value is not None], event_time)
    source = f"{table}.{identifier(topic)}"
    if is_access_log(samples):
        section = access_section(topic, figures(rows.select("value")), source)
    elif is_metrics(samples):
        section = metrics_section(topic, metric_figures(rows.select("value")), source)
    else:
        section = lines_section(topic, found)
    return {
        **section,
        "records": record_part(found, source, text=all(map(_is_text, samples)), columns=rows.columns, typed=typed),
    }


def _values_as_bytes(rows: "DataFrame") -> tuple["DataFrame", bool]:
    """Return the rows, typed values as JSON, and whether they are typed."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StructType

    type_ = rows.schema["value"].dataType
    if isinstance(type_, BinaryType):
        return rows, False
    text = f.to_json("value") if isinstance(type_, StructType) else f.col("value").cast("string")
    return rows.withColumn("value", text.cast("binary")), True


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _damaged(folder: Path) -> Sequence[DamagedRange]:
    last = open_store(folder).last()
    return () if last is None else last.damaged


def _described(folder: Path) -> dict[str, TopicDescription]:
    """Return the topics that have rows."""
    store = open_store(folder)
    require_format(store.format)
    store.finish_commit()
    found = {each.topic: each for each in describe_table(store).topics if each.rows}
    if not found:
        raise BarnabasError(f"the table in {folder} has no rows; load something first")
    return dict(sorted(found.items()))


@frozen(kw_only=True)
class TopicAudit:
    """Over all windows of the audit."""

    windows: int
    agreeing: int
    expected: int
    """Messages that the tiers were to have, each tier and message once."""
    arrived: int
    lost: int
    doubled: int
    pending: int

    @property
    def sound(self) -> bool:
        return not self.lost and not self.doubled

    @property
    def share(self) -> str:
        """The share of arrived messages among those that were to be expected by now."""
        due = self.expected - self.pending
        return share_text(self.arrived / due if due > 0 else None)


def audited(bootstraps: Sequence[str], topics: Sequence[str]) -> dict[str, TopicAudit]:
    """Return the audits of those topics that have been counted. Raises what reading the audit topic raises."""
    reader = AuditReader(bootstraps)
    try:
        reader.read()
        found = reconcile(reader.totals, now_ms=time.time_ns() // 1_000_000, topics=topics)
    finally:
        reader.close()
    return by_topic(found)


def by_topic(found: Reconciliation) -> dict[str, TopicAudit]:
    """Return a reconciliation, summed up."""
    result = {}
    for topic in dict.fromkeys(window.topic for window in found.windows):
        windows = [window for window in found.windows if window.topic == topic]
        tiers = [tier for window in windows for tier in window.tiers if tier.after]
        result[topic] = TopicAudit(
            windows=len(windows),
            agreeing=sum(window.state == "complete" for window in windows),
            expected=sum(tier.expected for tier in tiers),
            arrived=sum(tier.arrived for tier in tiers),
            lost=sum(which.messages for tier in tiers for which in tier.lost),
            doubled=sum(which.messages for tier in tiers for which in tier.doubled),
            pending=sum(tier.pending for tier in tiers),
        )
    return result
