"""Orders of a shop as columns: what was bought together, the customers, and the names of items."""

from typing import TYPE_CHECKING

from barnabas.pipeline.streams import json_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIELDS = (
    "invoice STRING, customer STRING, country STRING, "
    "lines ARRAY<STRUCT<item: STRING, description: STRING, quantity: INT, price: DOUBLE>>"
)


def orders(messages: "DataFrame") -> "DataFrame":
    """Orders that were paid: `timestamp`, `invoice`, `customer` (null when not known), `country`, `lines`, `items`
    (different ones that were bought), `amount` (in pounds). Without cancelled orders (invoices that begin with C) and
    corrections without a price, and of the lines without returns, postage and fees (items that begin with a letter).
    """
    from pyspark.sql import functions as f

    found = json_fields(messages, _FIELDS, "timestamp").where(~f.col("invoice").startswith("C"))
    bought = "filter(lines, line -> line.quantity > 0 AND line.price > 0 AND line.item RLIKE '^[0-9]')"
    paid = found.withColumn("lines", f.expr(bought)).where(f.size("lines") > 0)
    return paid.withColumns(
        {
            "customer": f.when(f.col("customer") != "", f.col("customer")),
            "items": f.expr("array_distinct(transform(lines, line -> line.item))"),
            "amount": f.expr("aggregate(lines, 0D, (sum, line) -> sum + line.quantity * line.price)"),
        }
    )


def item_names(found: "DataFrame") -> "DataFrame":
    """Return the description of each item in each order with it: `timestamp`, `item`, `description`. Shops rename
    things, so it is a table that changes, for `latest` and `join_latest`.
    """
    from pyspark.sql import functions as f

    lines = found.select("timestamp", f.explode("lines").alias("line"))
    named = lines.select("timestamp", "line.item", f.initcap(f.trim("line.description")).alias("description"))
    return named.where("description <> ''")
