"""Activity reports: page views, top content and visits per hour from a web log; sales per country and day from orders.

The log has addresses and no countries, so the report per country is of the orders, which have one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.pipeline.report import charts
from barnabas.pipeline.report.panels import BarList, Cards, ChartPanel, Heading, Panel, SideBySide, TablePanel
from barnabas.pipeline.streams import sessions, table_batches, top_k, windowed_counts

from .data import ACCESS_LOG, ORDERS, access_messages, order_messages
from .shop import orders
from .stage import Stage, Use
from .web import page_views, requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOP = 3
HOME = "United Kingdom"


def views_per_hour(messages: "DataFrame") -> "DataFrame":
    """Page views and addresses (about: Spark's sketch is off by 5 %) per hour: `window`, `count`, `visitors`."""
    from pyspark.sql import functions as f

    visitors = f.approx_count_distinct("address").alias("visitors")
    views = messages.transform(requests).transform(page_views)
    return windowed_counts(views, windowDuration="1 hour", timeColumn="time", delayThreshold="1 hour", exprs=[visitors])


def top_pages(messages: "DataFrame") -> "DataFrame":
    """Return the most viewed pages of each hour: `window`, `rank`, `path`, `count`."""
    views = messages.transform(requests).transform(page_views)
    counts = windowed_counts(views, "path", windowDuration="1 hour", timeColumn="time", delayThreshold="1 hour")
    return counts.transform(top_k, "window", k=TOP)


def visits(messages: "DataFrame") -> "DataFrame":
    """Page views of one address that follow each other within half an hour."""
    return (
        messages.transform(requests)
        .transform(page_views)
        .transform(sessions, "address", gapDuration="30 minutes", timeColumn="time", delayThreshold="1 hour")
    )


def sales(messages: "DataFrame") -> "DataFrame":
    """Paid orders and what they brought per country and day: `window`, `country`, `count`, `amount` (in pounds)."""
    from pyspark.sql import functions as f

    amount = f.round(f.sum("amount"), 2).alias("amount")
    return windowed_counts(orders(messages), "country", windowDuration="1 day", delayThreshold="1 day", exprs=[amount])


def _web(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    lines = stage.fill("access-log", access_messages(ACCESS_LOG.find(stage.data)))
    log = stage.stream("access-log")
    table = stage.table("views-per-hour")
    stage.run(
        views_per_hour(log), table_batches(table, "window", appId=stage.topic("views")), "update", "views-per-hour"
    )
    sent = stage.send(top_pages(log), "top-pages", "window")

    counted = stage.result(table).to_pylist()
    hours = {int(row["window"]["start"].timestamp()): row["count"] for row in counted}
    views = stage.read("access-log").transform(requests).transform(page_views)
    top = [(row.path, row["count"]) for row in views.groupBy("path").count().transform(top_k, k=12).collect()]
    alone = f.avg((f.col("count") == 1).cast("double"))
    visit = visits(stage.read("access-log")).agg(f.count("*"), f.avg("count"), alone).first()
    assert visit is not None
    last = top_pages(stage.read("access-log")).orderBy(f.desc("window"), "rank").limit(4 * TOP).collect()
    rows = [[f"{row.window.start:%d\u00a0%b\u00a0%H:00}", row["rank"], row.path, row["count"]] for row in last]
    figures = [
        (f"{lines:,}", "requests"),
        (f"{sum(hours.values()):,}", "page views"),
        (f"{visit[0]:,}", "visits"),
        (f"{visit[1]:.1f}", "pages per visit"),
        (f"{100 * visit[2]:.0f} %", "visits of one page"),
    ]
    chart = charts.stacked(charts.per_bucket({"views": hours}), title="page views per hour")
    table_of_hours = TablePanel("The last hours", ["hour", "rank", "page", "views"], rows)
    return [
        Cards(figures),
        ChartPanel("Page views per hour", chart),
        SideBySide([BarList("Top pages", top), table_of_hours]),
    ], [
        f"{sum(hours.values()):,} page views among {lines:,} requests in {len(hours)} hours, "
        f"up to {max(hours.values())} in one hour; {visit[0]:,} visits, {100 * visit[2]:.0f} % of one page",
        f"top page: {top[0][0]}, {top[0][1]} views; {sent} rows of top pages per hour in {stage.topic('top-pages')}",
    ]


def _shop(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    invoices = stage.fill("orders", order_messages(ORDERS.find(stage.data)))
    stage.send(sales(stage.read("orders")), "sales-per-country", "window", "country")
    start = f.unix_timestamp("window.start").alias("start")
    found = sales(stage.read("orders")).select(start, "country", "count", "amount").collect()
    amounts: dict[str, float] = {}
    days: dict[str, dict[int, float]] = {HOME: {}, "other countries": {}}
    for row in found:
        amounts[row.country] = amounts.get(row.country, 0.0) + row.amount
        series = days.get(row.country, days["other countries"])
        series[row.start] = series.get(row.start, 0.0) + row.amount
    total, paid = sum(amounts.values()), sum(row["count"] for row in found)
    abroad = f"{100 * (total - amounts.get(HOME, 0.0)) / total:.1f} %"
    others = sorted(((name, round(amount)) for name, amount in amounts.items() if name != HOME), key=lambda e: -e[1])
    chart = charts.stacked(charts.per_bucket(days), title="sales per day")
    figures = [(f"{paid:,}", "orders"), (charts.compact(total), "pounds"), (abroad, f"from outside the {HOME}")]
    return [
        Heading("Sales per country", f"{invoices:,} messages of a web shop; the web log has addresses, no countries."),
        Cards([*figures, (f"{len(amounts)}", "countries")]),
        ChartPanel("Sales per day, in pounds", chart, legend=list(days)),
        BarList(f"Countries other than the {HOME}, in pounds", others[:15]),
    ], [
        f"{paid:,} orders from {len(amounts)} countries, {total:,.0f} pounds, {abroad} from outside the {HOME}, "
        f"most of that from {others[0][0]}"
    ]


def play(stage: Stage) -> Sequence[str]:
    web, web_lines = _web(stage)
    shop, shop_lines = _shop(stage)
    stage.show("Activity", "page views of a web log, sales of a shop", [*web, *shop])
    return [*web_lines, *shop_lines]


USE = Use(
    name="activity",
    title="activity reports: page views, top content, visits; sales per country",
    files=[ACCESS_LOG, ORDERS],
    play=play,
)
