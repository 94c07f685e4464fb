"""A load of 200-byte messages into a Delta table on two cores: rows a second, from the plan to the durable commit.

LOAD_ROWS messages, 10 million by default. The session is there before, and warm: a first load has to start Spark, too.
"""

import os
import time
from pathlib import Path
from statistics import median

from harness import Result
from spark_pair import Bench, bench, seconds

from barnabas.pipeline.load import load
from barnabas.pipeline.table import read_table

TOPIC = "bench"
PARTITIONS = 4
ROWS = int(os.environ.get("LOAD_ROWS", "10000000"))
ROUNDS = 2


def _load(found: Bench, table: Path, options: dict[str, str]) -> float:
    done = load(found.running.bootstrap, [TOPIC], table, spark=found.spark, **options)  # type: ignore[arg-type]  # texts
    assert done.rows == ROWS
    return done.files


def _connector(found: Bench, folder: Path) -> None:
    """Write the same rows into the same folders by Spark alone: no commit, no offsets."""
    rows = found.spark.read.format("kafka").options(**found.server, subscribe=TOPIC, includeHeaders="true").load()
    placed = rows.selectExpr("*", "to_date(timestamp) as day")
    placed.write.option("compression", "zstd").partitionBy("topic", "day").parquet(str(folder / "plain"))


def measure() -> list[Result]:
    with bench() as found:
        found.fill(TOPIC, PARTITIONS, ROWS)
        load(found.running.bootstrap, [TOPIC], found.folder(), spark=found.spark, since_ms=time.time_ns() // 1_000_000)
        rates, connector_rates = [], []
        for _ in range(ROUNDS):
            table = found.folder()
            rates.append(ROWS / seconds(lambda table=table: _load(found, table, {})))  # type: ignore[misc]  # a default
            if "kafka" in found.sides:
                connector_rates.append(ROWS / seconds(lambda: _connector(found, found.folder())))
        assert read_table(found.spark, table).count() == ROWS
        files = len(list(table.rglob("part-*.parquet")))
    details = {"rows": ROWS, "files": files, **({"connector": median(connector_rates)} if connector_rates else {})}
    return [Result("load into a Delta table", median(rates), "rows/s", 250_000, details=details)]


if __name__ == "__main__":
    print(measure())
