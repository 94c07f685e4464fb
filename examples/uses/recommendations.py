"""Recommendations by co-occurrence: what is bought together with an item, from the orders of a shop.

The orders after those used for the recommendations show their quality: for a basket with a known first item, is one of
the ten items recommended for it also in the basket? The ten items that are bought most are the comparison.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.pipeline.report.panels import Cards, Panel, TablePanel
from barnabas.pipeline.streams import co_occurrence, latest, top_k

from .data import ORDERS, order_messages
from .shop import item_names, orders
from .stage import Stage, Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

K = 10
MIN_COUNT = 10
MAX_ITEMS = 40
LEARN_UNTIL = "2011-11-01"


def recommended(baskets: "DataFrame") -> "DataFrame":
    """Return the items that go best with each item: `item`, `rank`, `other`, `score`, and the counts of
    `co_occurrence`."""
    return co_occurrence(baskets, "items", minCount=MIN_COUNT, maxItems=MAX_ITEMS).transform(
        top_k, "item", k=K, orderBy="score"
    )


def most_bought(baskets: "DataFrame") -> list[str]:
    """Return the K items in most baskets."""
    from pyspark.sql import functions as f

    counts = baskets.select(f.explode("items").alias("item")).groupBy("item").count()
    return [row["item"] for row in counts.transform(top_k, k=K).collect()]


def hits(baskets: "DataFrame", found: "DataFrame", popular: Sequence[str]) -> tuple[int, int, int]:
    """(baskets with two items or more, those of which a recommendation for the first item is another item, the same for
    the items that are bought most)."""
    from pyspark.sql import functions as f

    several = baskets.where(f.size("items") > 1)
    known = several.select(f.get("items", f.lit(0)).alias("item"), f.expr("slice(items, 2, size(items))").alias("rest"))
    advice = found.groupBy("item").agg(f.collect_list("other").alias("others"))
    judged = known.join(advice, "item", "left").select(
        f.coalesce(f.arrays_overlap("rest", "others"), f.lit(False)).cast("int").alias("advised"),
        f.arrays_overlap("rest", f.array(*map(f.lit, popular))).cast("int").alias("popular"),
    )
    row = judged.agg(f.count("*"), f.sum("advised"), f.sum("popular")).first()
    assert row is not None
    return row[0], row[1] or 0, row[2] or 0


def _strongest(advice: "DataFrame") -> list[list[object]]:
    """Pairs that are bought together more than any others, each item once."""
    from pyspark.sql import functions as f

    found = advice.where("rank = 1 AND together >= 50").orderBy(f.desc("score"), "item").limit(400).collect()
    seen: set[str] = set()
    rows: list[list[object]] = []
    for row in found:
        if not {row["item"], row.other} & seen:
            rows.append([row.description, row.other_description, row.together, round(row.score, 2)])
        seen |= {row["item"], row.other}
    return rows


def _of_most_bought(advice: "DataFrame") -> list[list[object]]:
    from pyspark.sql import functions as f

    found = advice.where("rank <= 3").orderBy(f.desc("count"), "item", "rank").limit(45).collect()
    also: dict[str, list[str]] = {}
    for row in found:
        also.setdefault(row.description, []).append(row.other_description)
    return [[name, " · ".join(others)] for name, others in also.items()]


def play(stage: Stage) -> Sequence[str]:
    from pyspark.sql import functions as f

    stage.fill("orders", order_messages(ORDERS.find(stage.data)))
    found = orders(stage.read("orders")).persist()
    names = latest(item_names(found), "item", orderBy=["timestamp", "description"]).drop("timestamp").persist()
    other_names = names.withColumnsRenamed({"item": "other", "description": "other_description"})
    before = found.where(f.col("timestamp") < LEARN_UNTIL).select("items")
    advice = recommended(before).join(f.broadcast(names), "item").join(f.broadcast(other_names), "other").persist()
    entry = f.struct(
        "rank", "other", f.col("other_description").alias("description"), f.round("score", 3).alias("score")
    )
    rows = advice.groupBy("item", "description").agg(f.array_sort(f.collect_list(entry)).alias("recommended"))
    sent = stage.send(rows, "recommendations", "item")
    baskets, advised, popular = hits(found.where(f.col("timestamp") >= LEARN_UNTIL), advice, most_bought(before))
    right, without = f"{100 * advised / baskets:.1f} %", f"{100 * popular / baskets:.1f} %"
    pairs = _strongest(advice)
    figures = [
        (f"{found.count():,}", "orders"),
        (f"{sent:,}", "items with recommendations"),
        (right, "of later baskets hold one"),
        (without, "hold one of the ten most bought items"),
    ]
    note = (
        "The score is the cosine of two items: baskets with both / sqrt(baskets with one * baskets with the other). Of "
        f"pairs in at least {MIN_COUNT} baskets; baskets of more than {MAX_ITEMS} items, of resellers, are left out."
    )
    parts: list[Panel] = [
        Cards(figures),
        TablePanel("Of the most bought items", ["who buys", "also buys"], _of_most_bought(advice)),
        TablePanel("Hardly ever alone", ["item", "with", "together", "cosine"], pairs[:25], note=note),
    ]
    stage.show("Recommendations", f"what is bought together, from orders before {LEARN_UNTIL}", parts)
    return [
        f"recommendations for {sent:,} items in {stage.topic('recommendations')}, from orders before {LEARN_UNTIL}",
        f"of {baskets:,} later baskets {right} hold an item that was recommended for their first one; "
        f"one of the ten most bought items: {without}",
        f"strongest pair: {pairs[0][0]} and {pairs[0][1]}, together in {pairs[0][2]} baskets",
    ]


USE = Use(
    name="recommendations",
    title="recommendations by co-occurrence: what is bought together",
    files=[ORDERS],
    play=play,
)
