"""Co-occurrence: pairs of items that are in the same baskets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def item_pairs(baskets: "DataFrame", items: str, *, maxItems: int = 200) -> "DataFrame":
    """Each unordered pair of different items of each basket: the other columns of `baskets`, `item`, `other`.

    `items` is a column with an array, one row is one basket. `item` < `other`. Baskets with more than `maxItems`
    different items are left out: a basket of n items has n * (n - 1) / 2 pairs, and a wholesaler's says little.
    Streams: append, update, no watermark, nothing is kept.
    """
    from pyspark.sql import functions as f

    others = [name for name in baskets.columns if name != items]
    ordered = baskets.select(*others, f.array_sort(f.array_distinct(f.array_compact(items))).alias("_items"))
    small = ordered.where(f.size("_items").between(2, maxItems))
    firsts = small.select("*", f.posexplode("_items").alias("_place", "item"))
    rest = f.slice("_items", f.col("_place") + 2, f.size("_items"))
    return firsts.select(*others, "item", f.explode(rest).alias("other"))


def co_occurrence(
    baskets: "DataFrame", items: str, *, minCount: int = 5, maxItems: int = 200, others: Sequence[str] | None = None
) -> "DataFrame":
    """Compute how strongly items go together, each pair in both directions.

    Result: `item`, `other`, `together` (baskets with both), `count` and `other_count` (baskets with each), `score`: the
    cosine, together / sqrt(count * other_count), from 0 to 1. Pairs in fewer than `minCount` baskets, and baskets with
    more than `maxItems` items, are left out. `others`: only pairs of which `other` is one of these (much quicker when
    they are few). Batch: a stream keeps `item_pairs` in a topic or a table, or calls this in `foreachBatch` on what was
    loaded.
    """
    from pyspark.sql import functions as f

    once = baskets.select(f.array_distinct(f.array_compact(items)).alias("items"))
    small = once.where(f.size("items").between(1, maxItems))
    counts = small.select(f.explode("items").alias("item")).groupBy("item").agg(f.count("*").alias("count"))
    if others is None:
        pairs = item_pairs(once, "items", maxItems=maxItems)
    else:
        wanted = f.array_intersect("items", f.array(*map(f.lit, others)).cast("array<string>")).alias("_others")
        firsts = small.select("items", wanted).select(f.explode("items").alias("item"), "_others")
        pairs = firsts.select("item", f.explode("_others").alias("other")).where("item <> other")
    together = pairs.groupBy("item", "other").agg(f.count("*").alias("together")).where(f.col("together") >= minCount)
    both = together if others is not None else together.union(together.select("other", "item", "together"))
    other_counts = counts.withColumnsRenamed({"item": "other", "count": "other_count"})
    score = f.col("together") / f.sqrt(f.col("count") * f.col("other_count"))
    return (
        both.join(counts, "item")
        .join(other_counts, "other")
        .select("item", "other", "together", "count", "other_count", score.alias("score"))
    )
