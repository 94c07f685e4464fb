"""A news feed: for each member of a shop the items that are new there and near to what the member bought.

New is what was first sold in the last four weeks. Near is measured by co-occurrence in the orders of the last months.
The orders of the following four weeks show the quality of the feed, in comparison with one feed for all: the new
items that are bought most.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.pipeline.report.panels import BarList, Cards, Panel, TablePanel
from barnabas.pipeline.streams import co_occurrence, join_latest, top_k

from .data import ORDERS, order_messages
from .shop import item_names, orders
from .stage import Stage, Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOW = "2011-10-10"
K = 10
NEW_DAYS = 28
LEARN_DAYS = 84
HALF_LIFE_DAYS = 14
MIN_COUNT = 3
MAX_ITEMS = 60


def new_items(found: "DataFrame", now: str) -> "DataFrame":
    """Items that were first sold in the four weeks before `now`: `other`, `first` (when), `sold` (orders)."""
    from pyspark.sql import functions as f

    sold = found.where(f.col("timestamp") < now).select("timestamp", f.explode("items").alias("other"))
    firsts = sold.groupBy("other").agg(f.min("timestamp").alias("first"), f.count("*").alias("sold"))
    return firsts.where(f.col("first") >= f.expr(f"timestamp'{now}' - interval {NEW_DAYS} days"))


def bought_by_members(found: "DataFrame") -> "DataFrame":
    """`customer`, `item`, each once."""
    from pyspark.sql import functions as f

    return found.where(f.col("customer").isNotNull()).select("customer", f.explode("items").alias("item")).distinct()


def feeds(found: "DataFrame", now: str) -> "DataFrame":
    """Return the feed of each member: `customer`, `rank`, `item`, `score`. The score of a new item is the sum of its
    cosines with what the member bought before `now`, halved for each two weeks that it is old; what was bought is left
    out."""
    from pyspark.sql import functions as f

    before = found.where(f.col("timestamp") < now)
    recent = before.where(f.col("timestamp") >= f.expr(f"timestamp'{now}' - interval {LEARN_DAYS} days"))
    new = [row.other for row in new_items(found, now).collect()]
    near = co_occurrence(recent.select("items"), "items", minCount=MIN_COUNT, maxItems=MAX_ITEMS, others=new)
    age = f.datediff(f.lit(now).cast("date"), f.col("first"))
    fresh = new_items(found, now).select("other", f.pow(f.lit(0.5), age / HALF_LIFE_DAYS).alias("freshness"))
    links = near.join(f.broadcast(fresh), "other").select(
        "item", "other", (f.col("score") * f.col("freshness")).alias("score")
    )
    owned = bought_by_members(before)
    wanted = owned.join(f.broadcast(links), "item").groupBy("customer", "other").agg(f.sum("score").alias("score"))
    unknown = wanted.withColumnRenamed("other", "item").join(owned, ["customer", "item"], "left_anti")
    return unknown.transform(top_k, "customer", k=K, orderBy="score")


def outcome(found: "DataFrame", feed: "DataFrame", fresh: "DataFrame", now: str) -> tuple[int, int, int]:
    """(members with a feed who bought something new in the four weeks after `now`, those who had some of it in their
    feed, those who would have had some of it among the K new items that had been bought most)."""
    from pyspark.sql import functions as f

    until = f.expr(f"timestamp'{now}' + interval 28 days")
    owned = bought_by_members(found.where(f.col("timestamp") < now))
    later = bought_by_members(found.where((f.col("timestamp") >= now) & (f.col("timestamp") < until)))
    bought = later.join(f.broadcast(fresh.select(f.col("other").alias("item"))), "item").join(
        owned, ["customer", "item"], "left_anti"
    )
    popular = [row.other for row in fresh.select("other", "sold").transform(top_k, k=K, orderBy="sold").collect()]
    members = feed.select("customer").distinct()
    in_feed = feed.select("customer", "item", f.lit(1).alias("in_feed"))
    judged = (
        bought.join(members, "customer")
        .join(in_feed, ["customer", "item"], "left")
        .groupBy("customer")
        .agg(
            f.max(f.coalesce("in_feed", f.lit(0))).alias("in_feed"),
            f.max(f.col("item").isin(popular).cast("int")).alias("popular"),
        )
    )
    row = judged.agg(f.count("*"), f.sum("in_feed"), f.sum("popular")).first()
    assert row is not None
    return row[0], row[1] or 0, row[2] or 0


def play(stage: Stage) -> Sequence[str]:
    from pyspark.sql import functions as f

    stage.fill("orders", order_messages(ORDERS.find(stage.data)))
    found = orders(stage.read("orders")).persist()
    fresh = new_items(found, NOW).persist()
    names = item_names(found).where(f.col("timestamp") < NOW)
    feed = feeds(found, NOW).transform(join_latest, names, ["item"], orderBy=["timestamp", "description"]).persist()
    entry = f.struct("rank", "item", "description", f.round("score", 3).alias("score"))
    feed_rows = feed.groupBy("customer").agg(f.array_sort(f.collect_list(entry)).alias("feed"))
    sent = stage.send(feed_rows, "feeds", "customer")
    members, in_feed, popular = outcome(found, feed, fresh, NOW)
    right, without = f"{100 * in_feed / members:.1f} %", f"{100 * popular / members:.1f} %"
    often = feed.groupBy("description").count().transform(top_k, k=15).collect()
    some = [
        row.customer for row in feed.select("customer").distinct().orderBy(f.xxhash64("customer")).limit(6).collect()
    ]
    rows = feed.where(f.col("customer").isin(some) & (f.col("rank") <= 5)).orderBy("customer", "rank").collect()
    figures = [
        (f"{fresh.count():,}", "items new in four weeks"),
        (f"{sent:,}", "members with a feed"),
        (right, f"of {members:,} who then bought something new had it in their feed"),
        (without, "would have, in one feed for all"),
    ]
    shown = [[row.customer, row["rank"], row.description, round(row.score, 3)] for row in rows]
    parts: list[Panel] = [
        Cards(figures),
        TablePanel("Six members' feeds", ["member", "rank", "item", "score"], shown),
        BarList("Most often in a feed", [(row.description, row["count"]) for row in often]),
    ]
    stage.show("News feed", f"new and near, for each member of a shop, on {NOW}", parts)
    return [
        f"feeds of up to {K} items for {sent:,} members in {stage.topic('feeds')}, of {fresh.count()} items that were "
        f"new in the four weeks before {NOW}",
        f"of {members:,} members who bought something new in the four weeks after, {right} had some of it in their "
        f"feed; with the {K} best-selling new items for all: {without}",
    ]


USE = Use(name="newsfeed", title="news feed: new items near to what a member bought", files=[ORDERS], play=play)
