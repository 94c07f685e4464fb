"""The data source against a broker: what is read, what is written, and streams."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.spark_streams import despite_slow_workers

from barnabas import Admin, Broker, Message, Producer
from barnabas.pipeline.session import register
from barnabas.pipeline.spark.errors import summary
from barnabas.pipeline.streams import append_batches, offsets_behind_latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", log_retention_ms=-1) as running:
        yield running


def _fill(broker: Broker, topic: str, counts: list[int]) -> None:
    """Partition p gets `counts[p]` messages, one second apart."""
    with Admin(broker) as admin:
        admin.create_topic(topic, partitions=len(counts))
    with Producer(broker) as producer:
        for partition, count in enumerate(counts):
            messages = [
                Message(
                    value=b"%d-%d" % (partition, i),
                    key=b"k%d" % i if i % 2 else None,
                    headers=(("n", b"%d" % i), ("none", None)) if i % 3 == 0 else (),
                    timestamp_ms=START_MS + 1000 * i,
                )
                for i in range(count)
            ]
            producer.send_many(topic, messages, partition=partition)
        producer.flush()


def _read(spark: "SparkSession", broker: Broker, **options: str) -> "DataFrame":
    return spark.read.format("barnabas").options(**{"kafka.bootstrap.servers": broker.bootstrap, **options}).load()


def _offsets(frame: "DataFrame") -> dict[int, list[int]]:
    result: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        result.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(offsets) for partition, offsets in sorted(result.items())}


def test_every_column_of_every_record(spark: "SparkSession", broker: Broker) -> None:
    _fill(broker, "columns", [5, 3])
    rows = _read(spark, broker, subscribe="columns", includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [*((0, i) for i in range(5)), *((1, i) for i in range(3))]
    assert [bytes(row.value) for row in rows[:2]] == [b"0-0", b"0-1"]
    assert [row.key and bytes(row.key) for row in rows[:2]] == [None, b"k1"]
    assert {row.topic for row in rows} == {"columns"}
    assert [round(row.timestamp.timestamp() * 1000) for row in rows[:2]] == [START_MS, START_MS + 1000]
    assert rows[0].timestampType == 0
    assert [(h.key, h.value and bytes(h.value)) for h in rows[0].headers] == [("n", b"0"), ("none", None)]
    assert rows[1].headers is None


@pytest.mark.slow
def test_settings_of_the_java_client_do_no_harm(spark: "SparkSession", broker: Broker) -> None:
    _fill(broker, "java", [3])
    brought = {"kafka.security.protocol": "PLAINTEXT", "kafka.group.id": "g", "kafka.session.timeout.ms": "1000"}
    assert _read(spark, broker, subscribe="java", **brought).count() == 3


@pytest.mark.slow
def test_workers_get_this_python(spark: "SparkSession", broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first `python3` of PATH, which has no Barnabas when the environment is not activated."""
    _fill(broker, "workers", [3])
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    register(spark)
    assert _read(spark, broker, subscribe="workers").count() == 3
    assert spark.sparkContext.pythonExec == "/nowhere/python3"  # functions of the user's own are not our business


@pytest.mark.slow
def test_bounds_and_slices(spark: "SparkSession", broker: Broker) -> None:
    _fill(broker, "bounds", [100, 10])
    frame = _read(spark, broker, subscribe="bounds", minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert _offsets(frame) == {0: list(range(100)), 1: list(range(10))}
    some = {"startingOffsets": '{"bounds":{"0":95,"1":-2}}', "endingOffsets": '{"bounds":{"0":-1,"1":4}}'}
    assert _offsets(_read(spark, broker, subscribe="bounds", **some)) == {0: list(range(95, 100)), 1: list(range(4))}
    times = {"startingTimestamp": str(START_MS + 3000), "endingTimestamp": str(START_MS + 5001)}
    assert _offsets(_read(spark, broker, subscribePattern="bo.*s", **times)) == {0: [3, 4, 5], 1: [3, 4, 5]}
    assert _offsets(_read(spark, broker, assign='{"bounds":[1]}')) == {1: list(range(10))}


@pytest.mark.slow
def test_read_of_deleted_records_fails_unless_data_loss_is_allowed(spark: "SparkSession", broker: Broker) -> None:
    _fill(broker, "deleted", [20])
    with Admin(broker) as admin:
        admin.delete_records({("deleted", 0): 15})
    asked = {"subscribe": "deleted", "startingOffsets": '{"deleted":{"0":5}}'}
    with pytest.raises(Exception, match="deleted-0") as raised:
        _read(spark, broker, **asked).collect()
    assert summary(str(raised.value)).startswith("OFFSET_OUT_OF_RANGE: deleted-0: asked for offsets 5 to 20")
    assert _offsets(_read(spark, broker, failOnDataLoss="false", **asked)) == {0: list(range(15, 20))}


@pytest.mark.slow
def test_wrong_source_options_give_errors_without_traceback(spark: "SparkSession", broker: Broker) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets") as raised:
        _read(spark, broker, subscribe="columns", startingOffset="earliest").collect()
    assert "Traceback" not in str(raised.value)
    with pytest.raises(Exception, match="there is no topic 'nowhere'") as raised:
        _read(spark, broker, subscribe="nowhere").collect()
    assert "Traceback" not in str(raised.value)
    with pytest.raises(Exception, match=r"kafka\.sasl\.mechanism needs kafka\.security\.protocol"):
        _read(spark, broker, **{"subscribe": "columns", "kafka.sasl.mechanism": "PLAIN"})
    stream = spark.readStream.format("barnabas").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "columns", "endingOffsets": "latest"}
    )
    with pytest.raises(Exception, match=r"ConfigError: endingOffsets has no meaning in a stream") as raised:
        despite_slow_workers(lambda: stream.load().writeStream.format("noop").start().awaitTermination(600))
    assert "Traceback" not in str(raised.value)


def test_written_rows_arrive(spark: "SparkSession", broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("written", partitions=2)
    frame = spark.range(1000).selectExpr(
        "cast(id as string) as value",
        "if(id % 2 = 0, cast('even' as binary), null) as key",
        "cast(id % 2 as int) as partition",
        "if(id = 7, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) as headers",
    )
    frame.write.format("barnabas").mode("append").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "topic": "written", "kafka.compression.type": "lz4"}
    ).save()
    rows = _read(spark, broker, subscribe="written", includeHeaders="true").collect()
    assert sorted(int(row.value) for row in rows) == list(range(1000))
    assert all(int(row.value) % 2 == row.partition for row in rows)
    assert {bytes(row.key) for row in rows if row.key is not None} == {b"even"}
    assert [(int(row.value), row.headers[0].key) for row in rows if row.headers] == [(7, "h")]


@pytest.mark.slow
def test_rows_say_their_topic(spark: "SparkSession", broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("out-a", partitions=1)
        admin.create_topic("out-b", partitions=1)
    frame = spark.range(10).selectExpr("cast(id as string) as value", "if(id < 3, 'out-a', 'out-b') as topic")
    frame.write.format("barnabas").mode("append").option("bootstrap.servers", broker.bootstrap).save()
    assert _read(spark, broker, subscribe="out-a").count() == 3
    assert _read(spark, broker, subscribePattern="out-.").count() == 10


@pytest.mark.slow
def test_a_failed_write_fails_the_job(spark: "SparkSession", broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("narrow", partitions=1)
    frame = spark.range(3).selectExpr("cast(id as string) as value", "9 as partition")
    writer = frame.write.format("barnabas").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "topic": "narrow", "kafka.delivery.timeout.ms": "3000"}
    )
    with pytest.raises(Exception, match="narrow"):
        writer.mode("append").save()
    with pytest.raises(Exception, match="only be appended to"):
        writer.mode("overwrite").save()


def test_a_stream_reads_each_record_once(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _fill(broker, "stream", [30, 5])

    def run() -> list[list[int]]:
        source = spark.readStream.format("barnabas").options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap,
                "subscribe": "stream",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "20",
            }
        )
        query = (
            source.load()
            .selectExpr("cast(value as string) as value", "partition", "offset")
            .writeStream.format("json")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
        return sorted([row["partition"], row["offset"]] for row in map(json.loads, lines))

    expected = [[0, i] for i in range(30)] + [[1, i] for i in range(5)]
    assert despite_slow_workers(run) == expected
    with Producer(broker) as producer:
        producer.send_many("stream", [Message(value=b"late")], partition=1)
        producer.flush()
    assert despite_slow_workers(run) == [*expected, [1, 5]]


@pytest.mark.slow
def test_a_stream_is_written_to_a_topic(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _fill(broker, "from", [20])
    with Admin(broker) as admin:
        admin.create_topic("to", partitions=1)
    server = {"kafka.bootstrap.servers": broker.bootstrap}
    source = spark.readStream.format("barnabas").options(**server, subscribe="from", startingOffsets="earliest").load()
    query = (
        source.select("key", "value")
        .writeStream.format("barnabas")
        .options(**server, topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    values = [bytes(row.value) for row in _read(spark, broker, subscribe="to").orderBy("offset").collect()]
    assert values == [b"0-%d" % i for i in range(20)]


@pytest.mark.slow
def test_stream_stops_at_recreated_topic_unless_data_loss_is_allowed(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    _fill(broker, "anew", [4])
    seen: list[int] = []

    def run(**options: str) -> None:
        source = spark.readStream.format("barnabas").options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "anew", "startingOffsets": "earliest"},
            **options,
        )
        writer = source.load().writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writer.foreachBatch(lambda rows, _: seen.extend(row.offset for row in rows.select("offset").collect()))
        assert query.start().awaitTermination(600)

    run()
    with Admin(broker) as admin:
        admin.delete_topics(["anew"])
    _fill(broker, "anew", [9])
    with pytest.raises(Exception, match="was deleted and created again") as raised:
        run()
    assert "its id was" in summary(str(raised.value))
    assert seen == [0, 1, 2, 3]
    run(failOnDataLoss="false")
    assert sorted(seen[4:]) == list(range(9))


@pytest.mark.slow
def test_results_that_change_are_appended(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    """Whole in the mode `complete`, what changed in the mode `update`."""
    _fill(broker, "counted", [3, 2])
    for topic in ("whole", "changes"):
        _fill(broker, topic, [0])
    server = {"kafka.bootstrap.servers": broker.bootstrap}

    def start(mode: str, topic: str) -> "StreamingQuery":
        source = spark.readStream.format("barnabas").options(**server, subscribe="counted", startingOffsets="earliest")
        counts = source.load().groupBy("partition").count().selectExpr("concat(partition, ':', count) as value")
        into = {**server, "topic": topic, "includeHeaders": "true"}
        writer = counts.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / topic))
        if mode == "update":
            writer = writer.foreachBatch(append_batches(**into))
        else:
            writer = writer.format("barnabas").options(**into)
        return writer.trigger(availableNow=True).start()

    def run(mode: str, topic: str) -> list[str]:
        query = start(mode, topic)
        assert query.awaitTermination(600)
        observed = query.lastProgress
        assert observed is not None
        behind = offsets_behind_latest(observed.sources[0])
        assert behind["maxOffsetsBehindLatest"] == "0"
        return sorted(bytes(row.value).decode() for row in _read(spark, broker, subscribe=topic).collect())

    assert run("complete", "whole") == run("update", "changes") == ["0:3", "1:2"]
    with Producer(broker) as producer:
        producer.send("counted", b"more", partition=1).result()
    assert run("complete", "whole") == ["0:3", "0:3", "1:2", "1:3"]
    assert run("update", "changes") == ["0:3", "1:2", "1:3"]
