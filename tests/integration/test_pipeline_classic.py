"""The data source, load and report on two classic brokers that ZooKeeper knows."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from support.classic_frames import produce
from support.killed_load import killed_at
from support.raw import RawConnection
from support.spark_streams import despite_slow_workers
from support.waiting import wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas import Broker, SimpleConsumer
from barnabas.core.message.classic.writer import encode_set
from barnabas.pipeline.load import load
from barnabas.pipeline.report import report
from barnabas.pipeline.table import read_table
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.offsets import LATEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.xdist_group("spark"),
]

CODECS = [None, builtin_codecs().by_name("gzip"), builtin_codecs().by_name("snappy")]
Row = tuple[int, int, int, int | None, bytes]
"""Broker, partition, offset, place in the wrapper, value."""


def _reaches(consumer: SimpleConsumer, topic: str, partition: int, end: int) -> bool:
    return consumer.offset_at(topic, partition, LATEST) == end


class TwoBrokers:
    """Two brokers with two partitions each, and what was written to them."""

    def __init__(self, folder: Path, where: str) -> None:
        self.where = where
        self._folder = folder
        self.brokers = {number: self._broker(number) for number in (1, 2)}
        self.written: dict[str, list[Row]] = {}
        self._ends: Counter[tuple[str, int, int]] = Counter()

    def _broker(self, number: int) -> Broker:
        config = {"broker.id": number, "num.partitions": 2, "log.flush.interval.messages": 1, "log.segment.bytes": 400}
        config |= {"zookeeper.session.timeout.ms": 20_000}
        folder = self._folder / str(number)
        return Broker(folder, listeners=["classic://127.0.0.1:0"], coordination=self.where, config=config).start()

    def restart(self, number: int) -> None:
        self.brokers[number] = self._broker(number)

    def write(self, topic: str, count: int, *, brokers: tuple[int, ...] = (1, 2)) -> None:
        """To each partition of these brokers `count` sets of messages: plain, gzip, snappy, and so on."""
        for number in brokers:
            address = self.brokers[number].bootstrap
            with SimpleConsumer(f"classic://{address}") as consumer, RawConnection(address) as connection:
                for partition in (0, 1):
                    for nth in range(count):
                        connection.send(produce(topic, self._make(topic, number, partition, nth), partition))
                    end = self._ends[topic, number, partition]
                    wait_for(partial(_reaches, consumer, topic, partition, end))

    def _make(self, topic: str, number: int, partition: int, nth: int) -> bytes:
        codec = CODECS[nth % 3]
        start = self._ends[topic, number, partition]
        values = [b"%d-%d-%d-%d" % (number, partition, start, n) * (n + 1) for n in range(5)]
        records = encode_set(values, codec=codec)
        rows = self.written.setdefault(topic, [])
        at = start
        for n, value in enumerate(values):
            rows.append((number, partition, at, None if codec is None else n, value))
            at += 0 if codec is not None else 10 + len(value)
        self._ends[topic, number, partition] += len(records)
        return records

    def known(self, topic: str) -> None:
        """Wait until both brokers have registered the topic."""
        from barnabas.app.clients.classic.choice import Whereabouts
        from barnabas.app.clients.classic.cluster_listing import list_cluster
        from barnabas.app.clients.classic.producer_settings import RegistrySettings

        def registered() -> bool:
            listing = list_cluster(Whereabouts(registries=self.where), RegistrySettings(), [topic])
            return listing.topics.get(topic) == dict.fromkeys(self.brokers, 2)

        wait_for(registered)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: ZookeeperServer) -> Iterator[TwoBrokers]:
    where = f"zookeeper://127.0.0.1:{zookeeper_server.port}/{uuid4().hex}"
    brokers = TwoBrokers(tmp_path_factory.mktemp("classic"), where)
    try:
        yield brokers
    finally:
        for broker in brokers.brokers.values():
            broker.close()


COLUMNS = ["broker", "partition", "offset", "wrapperIndex", "value"]


def _in_table(table: Path) -> Counter[Row]:
    """Return the rows that a reader of Delta finds, read without Spark."""
    found = DeltaTable(table).to_pyarrow_dataset().to_table(columns=COLUMNS)
    return Counter(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))


@pytest.mark.slow
def test_a_read_is_what_was_produced(spark: "SparkSession", cluster: TwoBrokers) -> None:
    cluster.write("read", 9)
    cluster.known("read")

    def read(**options: str) -> "DataFrame":
        where = {"zk.connect": cluster.where.removeprefix("zookeeper://")}
        return spark.read.format("barnabas").options(**where, **options).load()

    frame = read(subscribePattern="rea.")
    assert frame.rdd.getNumPartitions() == 4, "a task per broker and partition"
    rows = frame.select(*COLUMNS, "topic", "key", "timestamp").collect()
    assert Counter((r[0], r[1], r[2], r[3], bytes(r[4])) for r in rows) == Counter(cluster.written["read"])
    assert {(r.topic, r.key, r.timestamp) for r in rows} == {("read", None, None)}
    mine = sorted({row[2] for row in cluster.written["read"] if row[:2] == (2, 1)})
    bounds = {"startingOffsets": mine[3], "endingOffsets": mine[-1]}
    some = read(assign='{"read": ["2-1"]}', **{name: json.dumps({"read": {"2-1": at}}) for name, at in bounds.items()})
    assert sorted({row.offset for row in some.select("offset").collect()}) == mine[3:-1]
    fixed = ",".join(f"{number}:{broker.bootstrap}" for number, broker in cluster.brokers.items())
    listed = spark.read.format("barnabas").options(**{"broker.list": fixed, "subscribe": "read"}).load()
    assert listed.count() == len(cluster.written["read"])


@pytest.mark.slow
def test_loads_killed_and_repeated_bring_each_message_once(
    spark: "SparkSession", cluster: TwoBrokers, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    cluster.write("load", 6)
    cluster.known("load")
    between_ms = time.time_ns() // 1_000_000
    first = load(cluster.where, ["load"], table, spark=spark)
    assert first.rows == len(cluster.written["load"])
    again = load(cluster.where, ["load"], table, spark=spark)
    assert (again.rows, again.commit) == (0, None)
    assert _in_table(table) == Counter(cluster.written["load"])
    cluster.write("load", 4)
    cluster.known("load")
    killed_at(cluster.where, "load", table, "sync version")
    cluster.write("load", 2)
    cluster.known("load")
    third = load("", ["load"], table, spark=spark, client={"coordination": cluster.where})
    assert third.rows == 2 * 5 * 4
    assert _in_table(table) == Counter(cluster.written["load"])
    replaced = load(cluster.where, ["load"], table, spark=spark, since_ms=between_ms)
    assert 6 * 5 * 4 < replaced.rows == replaced.replaced_rows < len(cluster.written["load"])
    assert _in_table(table) == Counter(cluster.written["load"])
    cluster.brokers[1].close()
    cluster.write("load", 1, brokers=(2,))
    alone = load(cluster.where, ["load"], table, spark=spark)
    assert (alone.rows, alone.absent) == (10, ["load-1-0", "load-1-1"])
    cluster.restart(1)
    cluster.write("load", 1, brokers=(1,))
    cluster.known("load")
    back = load(cluster.where, ["load"], table, spark=spark, rows_per_file=3)
    assert (back.rows, back.absent) == (10, [])
    assert back.files >= 4
    assert _in_table(table) == Counter(cluster.written["load"])
    made = report(table, tmp_path / "page.html", spark=spark)
    assert made.lines == len(cluster.written["load"]) == read_table(spark, table).count()
    page = (tmp_path / "page.html").read_text()
    assert all(name in page for name in ("1-0", "1-1", "2-0", "2-1"))


@pytest.mark.slow
def test_a_stream_brings_each_message_once(spark: "SparkSession", cluster: TwoBrokers, tmp_path: Path) -> None:
    def run() -> Counter[Row]:
        source = spark.readStream.format("barnabas").options(
            coordination=cluster.where, subscribe="stream", startingOffsets="earliest", maxOffsetsPerTrigger="1500"
        )
        query = (
            source.load()
            .select(*COLUMNS)
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        import pyarrow.dataset as ds

        found = ds.dataset(list(map(str, (tmp_path / "out").glob("*.parquet")))).to_table(columns=COLUMNS)
        return Counter(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))

    cluster.write("stream", 6)
    cluster.known("stream")
    assert despite_slow_workers(run) == Counter(cluster.written["stream"])
    batches = list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(batches) > 1, "the limit was kept"
    cluster.write("stream", 1)
    assert despite_slow_workers(run) == Counter(cluster.written["stream"])
