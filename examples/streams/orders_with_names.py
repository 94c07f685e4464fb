"""A stream joined with a table that changes: python orders_with_names.py HOST:PORT [FOLDER]

The topic `orders` has {"item": ..., "quantity": ...}, the topic `names` has {"item": ..., "name": ...}, a message for
each change. Each order is written to the topic `named-orders`, with the name that its item has when the order is read.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from barnabas.pipeline.session import local_session
from barnabas.pipeline.streams import append_batches, as_messages, join_latest, json_fields


def named_orders(orders: DataFrame, names: DataFrame) -> DataFrame:
    """Orders with the newest name of their item: messages of both topics, both as batches."""
    sold = json_fields(orders, "item STRING, quantity INT", "timestamp")
    changes = json_fields(names, "item STRING, name STRING", "offset")
    return join_latest(sold, changes, ["item"], orderBy=["offset"])


def main(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    server = {"kafka.bootstrap.servers": bootstrap}
    append = append_batches(**server, topic="named-orders")

    def write(orders: DataFrame, batch: int) -> None:
        names = spark.read.format("barnabas").options(**server, subscribe="names").load()  # read for each micro-batch
        append(as_messages(named_orders(orders, names), "item"), batch)

    source = spark.readStream.format("barnabas").options(**server, subscribe="orders", startingOffsets="earliest")
    query = source.load().writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/named-orders")
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    with local_session("orders with names") as session:
        main(session, sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "named-orders"))
