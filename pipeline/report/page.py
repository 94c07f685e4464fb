"""One self-contained HTML page about what a table holds: a section per topic, by the kind of its lines."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ...app.extras import require
from ...ports.errors import BarnabasError, ConfigError
from ..session import REPORT_PACKAGES, local_session, session_settings
from ..spark.errors import plain_spark_errors
from ..table import read_table
from ..tables.formats import open_store, require_format
from ..tables.upkeep.describe import TopicDescription, describe_table
from ..topics.damage import DamagedRange
from . import access_log, charts, metrics, records
from .panels import write_whole
from .rendering import render_template

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .completeness import TopicAudit

_SAMPLE_ROWS = 2000


@frozen(kw_only=True)
class ReportResult:
    """The page that was written, and its counts; over all sections `lines` = `parsed` + `malformed`."""

    page: Path
    kinds: Mapping[str, str]
    """The kind of each topic: "access log", "metrics" or "lines"."""
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
    spark: "SparkSession | None" = None,
    log_file: Path | None = None,
) -> ReportResult:
    """Write the page about the table in `folder` to the file `out`: about one topic, or about all of them.

    `audit`: clusters whose audit topics say how complete the topics are. `spark` None = a local session for this
    report; its Java's messages go to `log_file`. Raises `TableError` when `folder` is not a table, `ConfigError` for a
    topic that is not in it.
    """
    require("a report", REPORT_PACKAGES, "spark")
    path = Path(out)
    described = _described(Path(folder))
    if topic is not None and topic not in described:
        raise ConfigError(f"there is no topic {topic!r} in {folder}; there is {', '.join(described) or 'none'}")
    chosen = list(described) if topic is None else [topic]
    audits: Mapping[str, TopicAudit] = {}
    if audit:
        from .completeness import audited

        audits = audited(audit, chosen)
    with (
        local_session(log_file=log_file) if spark is None else nullcontext(spark) as session,
        plain_spark_errors(),
        session_settings(session, {"spark.sql.session.timeZone": "UTC"}),
    ):
        sections = [section_of(name, read_table(session, folder, topics=[name])) for name in chosen]
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
        parsed=sum(getattr(section["figures"], "parsed", section["figures"].lines) for section in sections),
        malformed=sum(getattr(section["figures"], "malformed", 0) for section in sections),
        damaged=damaged,
    )


def render(folder: Path, sections: Sequence[Mapping[str, Any]], now: datetime) -> str:
    """The page as text: of one topic under its name, of several with an index. Everything from the data is escaped."""
    now_ms = int(now.timestamp() * 1000)
    title = sections[0]["topic"] if len(sections) == 1 else folder.name
    defaults: dict[str, Any] = {"damaged": [], "audit": None, "about": None, "records": None}
    return render_template(
        "page.html.j2",
        title=title,
        folder=folder.name,
        sections=[{**defaults, **section, "anchor": f"t{n}"} for n, section in enumerate(sections)],
        made=f"{now:%Y-%m-%d %H:%M} UTC",
        age=lambda ms: age_text(now_ms - ms),
    )


def age_text(ms: int) -> str:
    """`90 s`, `12 min`, `3 h`, `40 d`; what is still to come has no age."""
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
    unit_ms, unit = next(((size, name) for size, name in units if ms >= 2 * size), (1000, "s"))
    return f"{max(0, ms) // unit_ms} {unit}"


def access_section(topic: str, found: access_log.AccessFigures) -> dict[str, Any]:
    """Return the template's values for an access log."""
    traffic = charts.per_bucket({"views": found.views_per_hour, "crawlers": found.crawler_per_hour})
    size = charts.per_bucket({"bytes": found.bytes_per_hour})
    return {
        "kind": "access log",
        "topic": topic,
        "figures": found,
        "bucket": charts.bucket_name(traffic.bucket_s),
        "views_chart": charts.stacked(traffic, title="views and crawler requests over time"),
        "bytes_chart": charts.stacked(size, unit="B", title="traffic over time"),
    }


def metrics_section(topic: str, found: metrics.MetricFigures) -> dict[str, Any]:
    """Return the template's values for metrics."""
    lines = [(each, charts.line(each.times, each.means, each.lows, each.highs)) for each in found.series]
    return {"kind": "metrics", "topic": topic, "figures": found, "lines": lines}


def lines_section(topic: str, found: records.RecordFigures) -> dict[str, Any]:
    """Return the template's values for any other topic: its records."""
    return {"kind": "lines", "topic": topic, "figures": found}


def record_part(found: records.RecordFigures) -> dict[str, Any]:
    """Return the template's values for the records of any topic."""
    sizes = [found.bucket_s]
    rows = charts.per_bucket({"rows": found.rows_per_bucket}, sizes)
    size = charts.per_bucket({"bytes": found.bytes_per_bucket}, sizes)
    return {
        "figures": found,
        "bucket": charts.bucket_name(found.bucket_s),
        "rows_chart": charts.stacked(rows, title="rows over time"),
        "bytes_chart": charts.stacked(size, unit="B", title="bytes over time"),
    }


def section_of(topic: str, rows: "DataFrame") -> dict[str, Any]:
    """All that the template shows of a topic's rows."""
    values = [row.value for row in rows.select("value").limit(_SAMPLE_ROWS).collect()]
    samples = [bytes(value or b"") for value in values]
    found = records.record_figures(rows, [bytes(value) for value in values if value is not None])
    if access_log.is_access_log(samples):
        section = access_section(topic, access_log.figures(rows.select("value")))
    elif metrics.is_metrics(samples):
        section = metrics_section(topic, metrics.metric_figures(rows.select("value")))
    else:
        section = lines_section(topic, found)
    return {**section, "records": record_part(found)}


def _damaged(folder: Path) -> Sequence[DamagedRange]:
    last = open_store(folder).last()
    return () if last is None else last.damaged


def _described(folder: Path) -> dict[str, TopicDescription]:
    """The topics that have rows."""
    store = open_store(folder)
    require_format(store.format)
    store.finish_commit()
    found = {each.topic: each for each in describe_table(store).topics if each.rows}
    if not found:
        raise BarnabasError(f"the table in {folder} has no rows; load something first")
    return dict(sorted(found.items()))
