"""Search relevance from clicks: which page people came to from a search, and whether they stayed.

A web log knows no searches, only the clicks that come from a search engine, by their referrer. Most engines hide what
was asked; some referrers still contain it (`q=`), and the place in the list that was clicked (`cd=`, Google).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.pipeline.report.panels import BarList, Cards, Panel, SideBySide, TablePanel
from barnabas.pipeline.streams import join_within, top_k

from .data import ACCESS_LOG, access_messages
from .stage import Stage, Use
from .web import page_views, requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENGINE = r"(?i)^(?:.*\.)?(google|bing|yahoo|yandex|duckduckgo|baidu|ask|aol|ecosia|startpage)\.[a-z.]+$"
STAYED = "30 minutes"


def search_clicks(found: "DataFrame") -> "DataFrame":
    """Select the requests (of `web.requests`) that come from a search engine: `time`, `address`, `path`, `engine`,
    `query` (lower case, null when it is hidden or an address of this site), `place` (in the list, null when it is
    unknown).
    """
    from pyspark.sql import functions as f

    referrer = f.col("referrer")
    host = f.try_parse_url(referrer, f.lit("HOST"))
    asked = [f.regexp_extract(referrer, rf"[?&]{name}=([^&#]*)", 1) for name in ("q", "p", "text", "query")]
    raw = f.coalesce(*(f.when(each != "", each) for each in asked))
    query = f.lower(f.trim(f.regexp_replace(f.try_url_decode(raw), r"\s+", " ")))
    place = f.expr("try_cast(regexp_extract(referrer, '[?&]cd=([0-9]+)', 1) AS INT)")
    clicks = found.where(~f.col("crawler")).select(
        "time",
        "address",
        "path",
        f.lower(f.regexp_extract(host, _ENGINE, 1)).alias("engine"),
        f.when(~query.rlike(r"^https?:|semicomplete\.com"), query).alias("query"),
        place.alias("place"),
    )
    return clicks.where(f.col("engine") != "")


def landings(found: "DataFrame") -> "DataFrame":
    """Rate each page by its clicks: `path`, `clicks`, `stayed` (those who looked at another page within half an hour),
    `place` (average), `relevance`: (stayed + 1) / (clicks + 2), so that few clicks prove little.
    """
    from pyspark.sql import functions as f

    clicks = search_clicks(found).withColumn("click", f.monotonically_increasing_id())
    later = page_views(found).select("address", f.col("time").alias("viewed"), f.col("path").alias("next"))
    followed = join_within(
        clicks, later, ["address"], within=STAYED, early="1 minute", leftTime="time", rightTime="viewed"
    )
    stayed = followed.where("next <> path").select("click", f.lit(1).alias("stayed")).distinct()
    judged = (
        clicks.join(stayed, "click", "left")
        .groupBy("path")
        .agg(f.count("*").alias("clicks"), f.count("stayed").alias("stayed"), f.round(f.avg("place"), 1).alias("place"))
    )
    return judged.withColumn("relevance", f.round((f.col("stayed") + 1) / (f.col("clicks") + 2), 3))


def queries(found: "DataFrame") -> "DataFrame":
    """Count the clicks by search and page: `query`, `path`, `clicks`."""
    from pyspark.sql import functions as f

    known = search_clicks(found).where(f.col("query").isNotNull())
    return known.groupBy("query", "path").agg(f.count("*").alias("clicks"))


def play(stage: Stage) -> Sequence[str]:
    from pyspark.sql import functions as f

    stage.fill("access-log", access_messages(ACCESS_LOG.find(stage.data)))
    sent = stage.send(stage.stream("access-log").transform(requests).transform(search_clicks), "clicks", "path")
    found = requests(stage.read("access-log")).persist()
    clicks = search_clicks(found).persist()
    totals = clicks.agg(f.count("*"), f.count("query"), f.count("place"), f.avg("place")).first()
    assert totals is not None
    pages = landings(found).persist()
    stage.send(pages, "relevance", "path")
    top = pages.transform(top_k, k=15, orderBy="clicks").collect()
    stayed = pages.agg(f.sum("stayed")).first()
    assert stayed is not None
    asked = queries(found).transform(top_k, k=20, orderBy="clicks").collect()
    engines = clicks.groupBy("engine").count().orderBy(f.desc("count")).collect()
    places = clicks.where("place IS NOT NULL").groupBy("place").count().orderBy("place").limit(12).collect()
    looked_on = f"{100 * stayed[0] / totals[0]:.0f} %"
    figures = [
        (f"{totals[0]:,}", "clicks from search engines"),
        (f"{totals[1]:,}", "with the search terms"),
        (f"{totals[2]:,}", "with the place in the list"),
        (looked_on, "looked at another page"),
    ]
    led = [[r.path, r.clicks, r.stayed, "" if r.place is None else r.place, r.relevance] for r in top]
    note = "stayed: another page within half an hour. relevance: (stayed + 1) / (clicks + 2)."
    bars = [
        BarList("Engines", [(r.engine, r["count"]) for r in engines]),
        BarList("Place that was clicked", [(f"{r.place}", r["count"]) for r in places]),
    ]
    parts: list[Panel] = [
        Cards(figures),
        TablePanel("Where searches lead", ["page", "clicks", "stayed", "place", "relevance"], led, note=note),
        TablePanel("What was asked", ["search", "page", "clicks"], [[r.query, r.path, r.clicks] for r in asked]),
        SideBySide(bars),
    ]
    stage.show("Search", "clicks that came from search engines", parts)
    return [
        f"{totals[0]:,} clicks from search engines ({sent:,} in {stage.topic('clicks')}): {totals[1]} have the "
        f"search terms, {totals[2]} the place in the list",
        f"{looked_on} looked at another page within half an hour",
        f"most clicks: {top[0].path} ({top[0].clicks}, relevance {top[0].relevance}); most asked: {asked[0].query!r}",
    ]


USE = Use(
    name="search",
    title="search relevance: where clicks from search engines lead, and who stays",
    files=[ACCESS_LOG],
    play=play,
)
