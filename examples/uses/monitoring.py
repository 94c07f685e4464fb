"""Operational monitoring with alerts: counters of a web server, 47 metrics with known incidents, the broker's own.

The quality of the metrics' alerts can be measured: NAB comes with the windows in which people saw an incident.
"""

import json
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from attrs import frozen

from barnabas import Message
from barnabas.pipeline.report import charts
from barnabas.pipeline.report.panels import Cards, ChartPanel, Heading, Panel, TablePanel
from barnabas.pipeline.streams import anomaly_scores, deduplicated, json_fields, sessions, windowed_counts

from .data import SERIES, SERVER_STATUS, anomaly_windows, series_messages, status_messages
from .stage import Stage, Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATUS = (
    "server_zones MAP<STRING, STRUCT<requests: BIGINT, sent: BIGINT, responses: MAP<STRING, BIGINT>>>, "
    "upstreams MAP<STRING, STRUCT<peers: ARRAY<STRUCT<server: STRING, state: STRING>>>>"
)
THRESHOLD = 12
CALM = "1 day"
_SHOWN = ("realKnownCause/machine_temperature_system_failure.csv", "realAWSCloudwatch/rds_cpu_utilization_cc0c53.csv")
_SHOWN_OF_BROKER = {
    "kafka_network_requestmetrics_requests_total": "requests",
    "kafka_server_replicamanager_partitioncount": "partitions",
}
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
Windows = Mapping[str, Sequence[tuple[datetime, datetime]]]


@frozen(kw_only=True)
class Verdict:
    """Alerts compared with the labels of people: `right` of `alerts` fall into a labelled window, `found` of the
    `windows` have an alert; `share` of all values lies in labelled windows.
    """

    alerts: int
    right: int
    windows: int
    found: int
    share: float

    @property
    def precision(self) -> float:
        return self.right / (self.alerts or 1)

    @property
    def recall(self) -> float:
        return self.found / (self.windows or 1)


def _zones(messages: "DataFrame") -> "DataFrame":
    """Return the counters of each zone of the server: `timestamp`, `zone`, `requests`, `errors` (5xx), `sent`
    (bytes)."""
    from pyspark.sql import functions as f

    found = json_fields(messages, _STATUS, "timestamp").select(
        "timestamp", f.explode("server_zones").alias("zone", "of")
    )
    return found.select("timestamp", "zone", "of.requests", f.col("of.responses")["5xx"].alias("errors"), "of.sent")


def zones_per_minute(messages: "DataFrame") -> "DataFrame":
    """Compute the load of each zone of the server in each minute, from counters that only grow: `window`, `zone`,
    `count` (of snapshots), and per second `requests`, `errors` (5xx), `sent` (bytes), between the first and the last
    snapshot of the minute; null when there is one snapshot only.
    """
    from pyspark.sql import functions as f

    seconds = (f.unix_millis(f.max("timestamp")) - f.unix_millis(f.min("timestamp"))) / 1000
    rates = [
        f.round((f.max(name) - f.min(name)) / f.nullif(seconds, f.lit(0)), 3).alias(name)
        for name in ("requests", "errors", "sent")
    ]
    return windowed_counts(_zones(messages), "zone", windowDuration="1 minute", delayThreshold="1 minute", exprs=rates)


def server_alerts(messages: "DataFrame") -> "DataFrame":
    """Peers that are not up, each once an hour for as long as it lasts: `hour`, `what`, `state`."""
    from pyspark.sql import functions as f

    found = json_fields(messages, _STATUS, "timestamp").withWatermark("timestamp", "1 minute")
    groups = found.select(f.window("timestamp", "1 hour").alias("hour"), f.explode("upstreams").alias("group", "of"))
    peers = groups.select("hour", "group", f.explode("of.peers").alias("peer"))
    down = peers.where("peer.state <> 'up'").select(
        "hour", f.concat_ws(" ", "group", "peer.server").alias("what"), f.col("peer.state").alias("state")
    )
    return deduplicated(down, "hour", "what", "state")


def anomalies(messages: "DataFrame") -> "DataFrame":
    """Return values far from what their series did in the 288 values before (a day of five minutes): `timestamp`,
    `series`, `value`, `expected`, `score`."""
    from pyspark.sql import functions as f

    scored = json_fields(messages, "series STRING, value DOUBLE", "timestamp").transform(anomaly_scores, "series")
    return scored.where(f.abs("score") > THRESHOLD)


def alerts(found: "DataFrame") -> "DataFrame":
    """Return one alert for anomalies of a series that follow each other within a day: columns of `sessions`, and
    `score`, the largest."""
    from pyspark.sql import functions as f

    return found.transform(sessions, "series", gapDuration=CALM, exprs=[f.max(f.abs("score")).alias("score")])


def judge(found: Sequence[tuple[str, datetime, datetime]], windows: Windows, share: float) -> Verdict:
    """Compare alerts (series, from, to) with labelled windows; they agree where they overlap."""

    def overlap(alert: tuple[str, datetime, datetime], series: str, window: tuple[datetime, datetime]) -> bool:
        return alert[0] == series and alert[1] <= window[1] and alert[2] >= window[0]

    labelled = [(series, window) for series, some in windows.items() for window in some]
    return Verdict(
        alerts=len(found),
        right=sum(any(overlap(alert, *each) for each in labelled) for alert in found),
        windows=len(labelled),
        found=sum(any(overlap(alert, *each) for alert in found) for each in labelled),
        share=share,
    )


def broker_messages(address: str) -> Iterator[Message]:
    """Yield the counters of a broker now, from where Prometheus would fetch them, summed over topics and partitions."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    now_ms = time.time_ns() // 1_000_000
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        sums[name] = sums.get(name, 0.0) + float(value)
    for name, total in sums.items():
        value = json.dumps({"metric": name, "value": total}).encode()
        yield Message(value=value, key=name.encode(), timestamp_ms=now_ms)


def _server(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    stage.fill("server", status_messages(SERVER_STATUS.find(stage.data)))
    stage.send(zones_per_minute(stage.stream("server")), "zones", "window", "zone")
    stage.send(server_alerts(stage.stream("server")), "server-alerts", "what")
    start = f.unix_timestamp("window.start").alias("start")
    minutes = zones_per_minute(stage.read("server")).select(start, "zone", "requests").collect()
    grown = (
        _zones(stage.read("server"))
        .groupBy("zone")
        .agg(*((f.max(name) - f.min(name)).alias(name) for name in ("requests", "errors")))
    )
    total = grown.agg(f.sum("requests"), f.sum("errors")).first()
    assert total is not None
    down = server_alerts(stage.read("server")).select("what", "state").distinct().orderBy("what").collect()
    rates: dict[str, dict[int, float]] = {}
    for row in minutes:
        rates.setdefault(row.zone, {})[row.start] = 60 * (row.requests or 0.0)
    chart = charts.stacked(charts.per_bucket(rates, (60,)), title="requests per minute")
    figures = [
        (f"{total[0]:,}", "requests"),
        (f"{total[1]:,}", "answered with 5xx"),
        (f"{len(down)}", "peers that are not up"),
    ]
    return [
        Heading("A web server", "nginx.org's own status, every five seconds"),
        Cards(figures),
        ChartPanel("Requests per minute", chart, legend=list(rates)),
        TablePanel("Alerts", ["peer", "state"], [[row.what, row.state] for row in down]),
    ], [
        f"web server: {total[0]:,} requests in {len({row.start for row in minutes})} minutes, {total[1]} answered with "
        f"5xx; {len(down)} peers are not up"
    ]


def _metrics(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    path = SERIES.find(stage.data)
    values = stage.fill("metrics", series_messages(path))
    stage.send(anomalies(stage.stream("metrics")), "anomalies", "series")
    fields = "timestamp TIMESTAMP, series STRING, value DOUBLE, expected DOUBLE, score DOUBLE"
    alert_rows = alerts(json_fields(stage.read("anomalies"), fields)).orderBy(f.desc("score")).persist()
    stage.send(alert_rows, "alerts", "series")
    rows = alert_rows.collect()
    windows = anomaly_windows(path)
    series = json_fields(stage.read("metrics"), "series STRING, value DOUBLE", "timestamp").persist()
    found = judge([(row.series, row.started, row.ended) for row in rows], windows, _share(stage, series, windows))
    figures = [
        (f"{values:,}", "values"),
        (f"{found.alerts}", "alerts"),
        (f"{100 * found.precision:.0f} %", "of them in a labelled window (precision)"),
        (f"{100 * found.recall:.0f} %", f"of {found.windows} labelled windows have an alert (recall)"),
    ]
    note = (
        f"An anomaly is more than {THRESHOLD} robust standard deviations off (median and MAD of 288 values before); "
        "anomalies within a day of each other are one alert. One setting for all metrics, not tuned to them. "
        f"{100 * found.share:.0f} % of all values lie in labelled windows: so often would one at random."
    )
    strongest = [[_plain(row.series), f"{row.started:%d %b %Y %H:%M}", row["count"]] for row in rows[:15]]
    return [
        Heading("47 metrics with known incidents", "a dot is an alert, the shaded spans are what people have labelled"),
        Cards(figures),
        *_charts(series, windows, [(row.series, row.started) for row in rows]),
        TablePanel("Strongest alerts", ["metric", "from", "anomalies"], strongest, note=note),
    ], [
        f"{values:,} values of {len(windows)} metrics: {found.alerts} alerts, {found.right} in a labelled window "
        f"(precision {found.precision:.2f}), {found.found} of {found.windows} labelled windows found "
        f"(recall {found.recall:.2f}); {found.share:.2f} of all values lie in labelled windows"
    ]


def _share(stage: Stage, series: "DataFrame", windows: Windows) -> float:
    """Return the share of all values that lies in labelled windows."""
    from pyspark.sql import functions as f

    labels = [(name, start, end) for name, some in windows.items() for start, end in some]
    labelled = stage.spark.createDataFrame(labels, "series STRING, start TIMESTAMP, end TIMESTAMP")
    inside = series.join(f.broadcast(labelled), "series").where("timestamp BETWEEN start AND end")
    return inside.count() / series.count()


def _charts(series: "DataFrame", windows: Windows, alert_times: Sequence[tuple[str, datetime]]) -> list[ChartPanel]:
    from pyspark.sql import functions as f

    hours = f.window("timestamp", "2 hours").alias("window")
    figures = [f.avg("value").alias("mean"), f.min("value").alias("low"), f.max("value").alias("high")]
    shown = series.where(f.col("series").isin(*_SHOWN)).groupBy("series", hours).agg(*figures)
    rows = shown.select("*", f.unix_timestamp("window.start").alias("start")).orderBy("start").collect()
    panels = []
    for name in _SHOWN:
        some = [row for row in rows if row.series == name]
        chart = charts.line(
            [row.start for row in some],
            [row["mean"] for row in some],
            [row.low for row in some],
            [row.high for row in some],
            spans=[(_seconds(start), _seconds(end)) for start, end in windows[name]],
            marks=[_seconds(moment) for each, moment in alert_times if each == name],
        )
        panels.append(ChartPanel(_plain(name), chart))
    return panels


def _plain(series: str) -> str:
    return series.rpartition("/")[2].removesuffix(".csv")


def _broker(stage: Stage) -> tuple[list[Panel], list[str]]:
    if stage.metrics is None:
        return [], ["the broker is yours: its metrics are where its metrics.listen says"]
    stage.fill("broker", broker_messages(stage.metrics))
    found = json_fields(stage.read("broker"), "metric STRING, value DOUBLE").where("value > 0").collect()
    values = {row.metric: row.value for row in found}
    messages = values.get("kafka_server_brokertopicmetrics_messagesin_total", 0.0)
    size = charts.compact(values.get("kafka_server_brokertopicmetrics_bytesin_total", 0.0), "B")
    figures = [(charts.compact(messages), "messages in"), (size, "in")]
    figures += [(f"{values[name]:,.0f}", text) for name, text in _SHOWN_OF_BROKER.items() if name in values]
    return [
        Heading("The broker of this run", "its own metrics, sent to itself as messages"),
        Cards(figures),
    ], [f"the broker took {messages:,.0f} messages, {size}, by its own metrics"]


def _seconds(moment: datetime) -> float:
    """Return the seconds since 1970 of a time in UTC without a zone, as Spark and NAB have it."""
    return (moment - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001  both are without a zone


def play(stage: Stage) -> Sequence[str]:
    parts = [_server(stage), _metrics(stage), _broker(stage)]
    panels = [panel for some, _ in parts for panel in some]
    stage.show("Monitoring", "a web server, 47 metrics, a broker", panels)
    return [line for _, lines in parts for line in lines]


USE = Use(
    name="monitoring",
    title="operational monitoring with alerts: a web server, metrics with known incidents, the broker",
    files=[SERVER_STATUS, SERIES],
    play=play,
)
