"""A stream moves from Spark's own Kafka source to ours and back, on its checkpoint."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin, Broker, Producer
from barnabas.pipeline.streams import connector_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def _send(broker: Broker, first: int, count: int) -> None:
    with Producer(broker) as producer:
        for partition in range(2):
            producer.send_many("moved", [b"%d" % i for i in range(first, first + count)], partition=partition)


def test_a_stream_moves_and_moves_back(spark_kafka: "SparkSession", tmp_path: Path) -> None:
    """Each row once, a batch included that was planned by the one and not committed."""
    out = tmp_path / "out"

    def run(broker: Broker, form: str, checkpoint: Path) -> None:
        def keep(rows: "DataFrame", batch: int) -> None:
            rows.write.mode("overwrite").parquet(str(out / str(batch)))

        options = {"subscribe": "moved", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
        frame = spark_kafka.readStream.format(form).options(**{"kafka.bootstrap.servers": broker.bootstrap}, **options)
        rows = frame.load().selectExpr("partition", "offset", "cast(value as string) as value")
        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(600)

    with Broker(storage="memory", coordination="memory") as broker:
        with Admin(broker) as admin:
            admin.create_topic("moved", partitions=2)
        _send(broker, 0, 30)
        run(broker, "kafka", tmp_path / "one")
        last = max(int(file.name) for file in (tmp_path / "one" / "commits").glob("[0-9]*"))
        (tmp_path / "one" / "commits" / str(last)).unlink()
        (tmp_path / "one" / "commits" / f".{last}.crc").unlink(missing_ok=True)
        _send(broker, 30, 30)
        run(broker, "barnabas", tmp_path / "one")
        assert connector_checkpoint(tmp_path / "one", tmp_path / "two")
        _send(broker, 60, 30)
        run(broker, "kafka", tmp_path / "two")
        found = spark_kafka.read.parquet(*map(str, sorted(out.iterdir()))).collect()
    assert Counter((row.partition, row.offset, row.value) for row in found) == Counter(
        (partition, i, str(i)) for partition in range(2) for i in range(90)
    )
