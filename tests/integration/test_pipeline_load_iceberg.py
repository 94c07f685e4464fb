"""Loads into Iceberg against a broker: what is new, from a time on, topics made again; read by Spark and pyiceberg."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.tables import Rows, read_foreign, seen

from barnabas import Admin, Broker, Message, Producer
from barnabas.pipeline.load import load
from barnabas.pipeline.table import read_table
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.upkeep.maintenance import compact, delete_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DAY_MS = 86_400_000
START_MS = 19_700 * DAY_MS


def _send(broker: Broker, partition: int, count: int, *, day: int = 0) -> None:
    messages = [
        Message(value=b"%d" % i, key=b"k", timestamp_ms=START_MS + day * DAY_MS + i, headers=(("h", b"1"),))
        for i in range(count)
    ]
    with Producer(broker) as producer:
        producer.send_many("events", messages, partition=partition)
        producer.flush()


@pytest.mark.slow
def test_loads_into_iceberg(spark: "SparkSession", tmp_path: Path) -> None:
    with Broker(storage="memory", coordination="memory", log_retention_ms=-1) as broker, Admin(broker) as admin:
        admin.create_topic("events", partitions=1)
        _send(broker, 0, 20)
        _send(broker, 0, 10, day=1)
        first = load(broker.bootstrap, ["events"], tmp_path, spark=spark, format="iceberg")
        assert (first.rows, first.commit) == (30, 1)
        admin.create_partitions("events", 2)
        _send(broker, 1, 5)
        since = START_MS + DAY_MS + 4
        again = load(broker.bootstrap, ["events"], tmp_path, spark=spark, since_ms=since)
        assert (again.rows, again.replaced_rows) == (11, 6)
        assert seen(read_foreign(tmp_path)) == Rows("events", "", range(30)).seen + Rows("events", "", range(5), 1).seen
        frame = read_table(spark, tmp_path, topics=["events"]).where("partition = 0 and day = '2023-12-10'")
        rows = frame.orderBy("offset").collect()
        assert [bytes(row.value) for row in rows] == [b"%d" % i for i in range(10)]
        assert [(each.key, bytes(each.value)) for each in rows[0].headers] == [("h", b"1")]
        assert rows[0].timestamp.timestamp() * 1000 == START_MS + DAY_MS
        store = open_store(tmp_path)
        with store.locked():
            assert compact(store).files_before > 0
            assert delete_before(store, START_MS + DAY_MS).rows == 25
        _send(broker, 1, 2, day=1)
        load(broker.bootstrap, ["events"], tmp_path, spark=spark)
        left = Rows("events", "", range(20, 30)).seen + Rows("events", "", range(5, 7), 1).seen
        assert seen(read_foreign(tmp_path)) == left
        assert read_table(spark, tmp_path).count() == left.total()
        admin.delete_topics(["events"])
        admin.create_topic("events", partitions=1)
        _send(broker, 0, 3)
        new = load(broker.bootstrap, ["events"], tmp_path, spark=spark, recreated="replace")
        assert (new.rows, new.replaced_rows) == (3, left.total())
        assert seen(read_foreign(tmp_path)) == Rows("events", "", range(3)).seen
