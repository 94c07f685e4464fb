"""Top pages of each hour to a topic, page views per hour to a Delta table: python views_per_hour.py HOST:PORT [FOLDER]

Reads the topic `access-log` (lines of an access log) until it has what is there now; run it again for what came since:
positions and state are in the folder's checkpoints. Without `trigger(...)` it would run for ever.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from barnabas.pipeline.session import local_session
from barnabas.pipeline.streams import as_messages, table_batches, top_k, windowed_counts

PATTERN = r'^(\S+) \S+ \S+ \[([^\]]+)\] "(?:GET|POST|HEAD) (\S+)'


def page_requests(lines: DataFrame) -> DataFrame:
    """`time`, `address` and `path` of each line."""
    line = f.col("value").cast("string")
    return lines.select(
        f.try_to_timestamp(f.regexp_extract(line, PATTERN, 2), f.lit("dd/MMM/yyyy:HH:mm:ss Z")).alias("time"),
        f.regexp_extract(line, PATTERN, 1).alias("address"),
        f.regexp_extract(line, PATTERN, 3).alias("path"),
    )


def main(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": "access-log", "startingOffsets": "earliest"}
    requests = page_requests(spark.readStream.format("barnabas").options(**source).load())
    hourly = {"windowDuration": "1 hour", "timeColumn": "time", "delayThreshold": "10 minutes"}

    top = requests.transform(windowed_counts, "path", **hourly).transform(top_k, "window", k=3)
    target = {"kafka.bootstrap.servers": bootstrap, "topic": "top-pages", "txnAppId": "top-pages"}
    topic = as_messages(top, "window").writeStream.format("barnabas").options(**target).outputMode("append")
    query = topic.option("checkpointLocation", f"{folder}/top-pages").trigger(availableNow=True).start()
    query.awaitTermination()

    views = requests.transform(windowed_counts, **hourly)
    table = views.writeStream.foreachBatch(table_batches(folder / "views", "window")).outputMode("update")
    query = table.option("checkpointLocation", f"{folder}/views-per-hour").trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    with local_session("views per hour") as session:
        main(session, sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "views-per-hour"))
