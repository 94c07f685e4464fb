"""Delivery reports: views joined with the clicks on them.

There is no open data of single ad views and clicks. The nearest real thing is a web log: a page that was looked at is a
view of the links on it, and a request by the same address with that page as its referrer is the click on one. The two
streams are joined as those of an ad server would be. NAB has the prices of an ad exchange, summed per hour: they
are shown with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from barnabas import Message
from barnabas.pipeline.report import charts
from barnabas.pipeline.report.panels import Cards, ChartPanel, Heading, Panel, SideBySide, TablePanel
from barnabas.pipeline.streams import join_within, json_fields, top_k

from .data import ACCESS_LOG, SERIES, access_messages, series_messages
from .stage import Stage, Use
from .web import page_views, requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SITE = r"^https?://(?:www\.)?semicomplete\.com(/[^?#]*)"
WITHIN = "30 minutes"
LATE = "1 hour"
LATER_MS = 2 * 3_600_000
"""More than WITHIN and LATE together."""


def views(found: "DataFrame") -> "DataFrame":
    """Pages that a person looked at: `view` (an id), `viewed`, `address`, `page`."""
    from pyspark.sql import functions as f

    identity = f.xxhash64("address", "path", "time").alias("view")
    return page_views(found).select(identity, f.col("time").alias("viewed"), "address", f.col("path").alias("page"))


def clicks(found: "DataFrame") -> "DataFrame":
    """Pages that were reached by a link on another page of the site: `clicked`, `address`, `page` (with the link),
    `target`."""
    from pyspark.sql import functions as f

    origin = f.regexp_extract("referrer", SITE, 1)
    reached = page_views(found).select(
        f.col("time").alias("clicked"), "address", origin.alias("page"), f.col("path").alias("target")
    )
    return reached.where("page <> '' AND page <> target")


def delivered(found: "DataFrame") -> "DataFrame":
    """Join each view with the clicks on it, within half an hour (the log's seconds are out of order inside of a
    minute): columns of `views`, and `clicked` and `target`, null without a click.
    """
    return join_within(
        views(found),
        clicks(found),
        ["address", "page"],
        within=WITHIN,
        early="1 minute",
        leftTime="viewed",
        rightTime="clicked",
        delayThreshold=LATE,
        how="left_outer",
    )


def and_a_later_click(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages, and one that is later than the time in which any of them could be clicked.

    A stream joins a view without a click when its watermark has passed the time for one, which takes later views and
    later clicks: without traffic after the end of the log, the views of its last 90 minutes would never be counted.
    This one is a view and a click that no result contains, since nothing comes after it.
    """
    newest_ms = 0
    for message in messages:
        newest_ms = max(newest_ms, message.timestamp_ms or 0)
        yield message
    moment = datetime.fromtimestamp(newest_ms / 1000, UTC) + timedelta(milliseconds=LATER_MS)
    request = f'- - - [{moment:%d/%b/%Y:%H:%M:%S %z}] "GET /later HTTP/1.1" 200 0 "http://semicomplete.com/end" "-"'
    yield Message(value=request.encode(), key=b"-", timestamp_ms=newest_ms + LATER_MS)


def report(joined: "DataFrame") -> "DataFrame":
    """Count per page: `views`, `clicked` (views with a click), `rate`."""
    from pyspark.sql import functions as f

    per_view = joined.groupBy("page", "view").agg(f.max(f.col("clicked").isNotNull().cast("int")).alias("hit"))
    counted = per_view.groupBy("page").agg(f.count("*").alias("views"), f.sum("hit").alias("clicked"))
    return counted.withColumn("rate", f.round(f.col("clicked") / f.col("views"), 3))


def _pages(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    stage.fill("access-log", and_a_later_click(access_messages(ACCESS_LOG.find(stage.data))))
    sent = stage.send(delivered(requests(stage.stream("access-log"))), "delivered", "page")
    fields = "view BIGINT, viewed TIMESTAMP, address STRING, page STRING, clicked TIMESTAMP, target STRING"
    joined = json_fields(stage.read("delivered"), fields).persist()
    pages = report(joined).persist()
    totals = pages.agg(f.sum("views"), f.sum("clicked")).first()
    assert totals is not None
    often = pages.where("views >= 10").persist()
    most = [[r.page, r.views, r.clicked, r.rate] for r in often.transform(top_k, k=12, orderBy="views").collect()]
    best = [[r.page, r.views, r.clicked, r.rate] for r in often.transform(top_k, k=12, orderBy="rate").collect()]
    links = joined.where("target IS NOT NULL").groupBy("page", "target").count().transform(top_k, k=15).collect()
    rate = f"{100 * totals[1] / totals[0]:.1f} %"
    columns = ["page", "views", "clicked", "rate"]
    followed = [[r.page, r.target, r["count"]] for r in links]
    return [
        Cards([(f"{totals[0]:,}", "views"), (f"{totals[1]:,}", "with a click"), (rate, "click-through rate")]),
        SideBySide(
            [TablePanel("Most seen", columns, most), TablePanel("Best rate, of 10 views or more", columns, best)]
        ),
        TablePanel("Links that were followed", ["on the page", "to", "clicks"], followed),
    ], [
        f"{totals[0]:,} views, {totals[1]:,} with a click within {WITHIN}: {rate}; {sent:,} joined rows in "
        f"{stage.topic('delivered')}",
        f"best of 10 views or more: {best[0][0]} with {100 * best[0][3]:.0f} %",
        "these are pages and links of a web log: no open data has single views of ads",
    ]


def _exchange(stage: Stage) -> list[Panel]:
    from pyspark.sql import functions as f

    found = series_messages(SERIES.find(stage.data))
    stage.fill("exchange", (each for each in found if each.key and each.key.startswith(b"realAdExchange/")))
    prices = json_fields(stage.read("exchange"), "series STRING, value DOUBLE", "timestamp")
    day = f.window("timestamp", "1 day").alias("day")
    figures = [f.avg("value").alias("mean"), f.min("value").alias("low"), f.max("value").alias("high")]
    per_day = prices.groupBy("series", day).agg(*figures)
    rows = per_day.select("*", f.unix_timestamp("day.start").alias("start")).orderBy("start").collect()
    panels: list[Panel] = [
        Heading(
            "An ad exchange",
            "all that is open of one: prices per click (cpc) and per thousand views (cpm), the mean of each day",
        )
    ]
    for name in sorted({row.series for row in rows}):
        some = [row for row in rows if row.series == name]
        columns = ([row[each] for row in some] for each in ("start", "mean", "low", "high"))
        panels.append(ChartPanel(name.rpartition("/")[2].removesuffix("_results.csv"), charts.line(*columns)))
    return panels


def play(stage: Stage) -> Sequence[str]:
    pages, lines = _pages(stage)
    stage.show("Delivery", "views joined with clicks", [*pages, *_exchange(stage)])
    return lines


USE = Use(name="ads", title="delivery reports: views joined with clicks", files=[ACCESS_LOG, SERIES], play=play)
