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
from ..tables.formats import open_store
from ..topics.damage import DamagedRange
from . import access_log, charts, metrics
from .panels import write_whole
from .rendering import render_template

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAMPLE_ROWS = 200


@frozen(kw_only=True)
class ReportResult:
    """What was written; over all sections `lines` = `parsed` + `malformed`."""

    page: Path
    kinds: Mapping[str, str]
    """Per topic: "access log", "metrics" or "lines"."""
    lines: int
    parsed: int
    malformed: int
    damaged: Sequence[DamagedRange] = ()
    """What the table lacks of these topics, since it was damaged."""


def report(
    folder: Path | str,
    out: Path | str,
    *,
    topic: str | None = None,
    spark: "SparkSession | None" = None,
    log_file: Path | None = None,
) -> ReportResult:
    """Write the page about the table in `folder` to the file `out`: about one topic, or about all of them.

    `spark` None = a local session for this report; its Java's messages go to `log_file`. Raises `TableError` when
    `folder` is not a table, `ConfigError` for a topic that is not in it.
    """
    require("a report", REPORT_PACKAGES, "spark")
    path = Path(out)
    topics = _topics(Path(folder))
    if topic is not None and topic not in topics:
        raise ConfigError(f"there is no topic {topic!r} in {folder}; there is {', '.join(topics) or 'none'}")
    chosen = topics if topic is None else [topic]
    with (
        local_session(log_file=log_file) if spark is None else nullcontext(spark) as session,
        plain_spark_errors(),
        session_settings(session, {"spark.sql.session.timeZone": "UTC"}),
    ):
        sections = [_section(name, read_table(session, folder, topics=[name])) for name in chosen]
    damaged = [each for each in _damaged(Path(folder)) if each.topic in chosen]
    for section in sections:
        section["damaged"] = [str(each) for each in damaged if each.topic == section["topic"]]
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
    """The page as text. Everything that comes from the data is escaped."""
    return render_template("page.html.j2", folder=folder.name, sections=sections, made=f"{now:%Y-%m-%d %H:%M} UTC")


def access_section(topic: str, found: access_log.AccessFigures) -> dict[str, Any]:
    """What the template shows of an access log."""
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
    """What the template shows of metrics."""
    lines = [(each, charts.line(each.times, each.means, each.lows, each.highs)) for each in found.series]
    return {"kind": "metrics", "topic": topic, "figures": found, "lines": lines}


def lines_section(topic: str, found: metrics.LineFigures) -> dict[str, Any]:
    """What the template shows of any other topic."""
    rows = charts.per_bucket({"rows": found.rows_per_hour})
    chart = charts.stacked(rows, title="rows over time")
    return {
        "kind": "lines",
        "topic": topic,
        "figures": found,
        "bucket": charts.bucket_name(rows.bucket_s),
        "chart": chart,
    }


def _section(topic: str, rows: "DataFrame") -> dict[str, Any]:
    samples = [bytes(row.value or b"") for row in rows.select("value").limit(_SAMPLE_ROWS).collect()]
    if access_log.is_access_log(samples):
        return access_section(topic, access_log.figures(rows.select("value")))
    if metrics.is_metrics(samples):
        return metrics_section(topic, metrics.metric_figures(rows.select("value")))
    return lines_section(topic, metrics.line_figures(rows))


def _damaged(folder: Path) -> Sequence[DamagedRange]:
    last = open_store(folder).last()
    return () if last is None else last.damaged


def _topics(folder: Path) -> list[str]:
    store = open_store(folder)
    store.settle()
    names = sorted({str(file.partition["topic"]) for file in store.files()})
    if not names:
        raise BarnabasError(f"the table in {folder} has no rows; load something first")
    return names
