"""Spark's own Kafka connector, with the Java client inside, reads and writes through the broker."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin, Broker, Consumer, Message, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", log_retention_ms=-1) as running:
        yield running


def _create(broker: Broker, topic: str, partitions: int = 1) -> None:
    with Admin(broker) as admin:
        admin.create_topic(topic, partitions=partitions)


def _fill(broker: Broker, topic: str, counts: list[int], *, codec: str = "none", first: int = 0) -> None:
    """Partition p gets `counts[p]` messages, one second apart."""
    with Producer(broker, compression_type=codec) as producer:
        for partition, count in enumerate(counts):
            messages = [
                Message(
                    value=b"%d-%d" % (partition, i) if i % 5 else None,
                    key=b"k%d" % i if i % 2 else None,
                    headers=(("n", b"%d" % i), ("none", None)) if i % 3 == 0 else (),
                    timestamp_ms=START_MS + 1000 * i,
                )
                for i in range(first, first + count)
            ]
            producer.send_many(topic, messages, partition=partition)
        producer.flush()


def _read(spark: "SparkSession", broker: Broker, form: str = "kafka", **options: str) -> "DataFrame":
    return spark.read.format(form).options(**{"kafka.bootstrap.servers": broker.bootstrap, **options}).load()


def _offsets(frame: "DataFrame") -> dict[int, list[int]]:
    result: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        result.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(offsets) for partition, offsets in sorted(result.items())}


def _messages(broker: Broker, *topics: str) -> list[Message]:
    with Consumer(broker) as consumer:
        consumer.assign(topics, position="earliest")
        return list(consumer.messages(stop_at_end=True))


@pytest.mark.slow
def test_both_sources_give_the_same_rows(spark_kafka: "SparkSession", broker: Broker) -> None:
    _create(broker, "same", 2)
    for index, codec in enumerate(CODECS):
        _fill(broker, "same", [20, 7], codec=codec, first=100 * index)
    asked = {"subscribe": "same", "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    theirs, ours = (_read(spark_kafka, broker, form, **asked) for form in ("kafka", "barnabas"))
    assert theirs.dtypes == ours.dtypes
    rows = Counter(map(repr, theirs.collect()))
    assert rows.total() == 27 * len(CODECS)
    assert rows == Counter(map(repr, ours.collect()))


@pytest.mark.slow
def test_spark_kafka_connector_reads_bounded_offsets_and_timestamps(
    spark_kafka: "SparkSession", broker: Broker
) -> None:
    _create(broker, "bounds", 2)
    _fill(broker, "bounds", [100, 10])

    def read(**options: str) -> dict[int, list[int]]:
        return _offsets(_read(spark_kafka, broker, **options))

    sliced = _read(spark_kafka, broker, subscribe="bounds", minPartitions="6")
    assert sliced.rdd.getNumPartitions() == 6
    assert _offsets(sliced) == {0: list(range(100)), 1: list(range(10))}
    some = {"startingOffsets": '{"bounds":{"0":95,"1":-2}}', "endingOffsets": '{"bounds":{"0":-1,"1":4}}'}
    assert read(subscribe="bounds", **some) == {0: list(range(95, 100)), 1: list(range(4))}
    times = {"startingTimestamp": str(START_MS + 3000), "endingTimestamp": str(START_MS + 5001)}
    assert read(subscribePattern="bo.*s", **times) == {0: [3, 4, 5], 1: [3, 4, 5]}
    starts = json.dumps({"bounds": {"0": START_MS + 97_500, "1": START_MS + 9000}})
    assert read(subscribe="bounds", startingOffsetsByTimestamp=starts) == {0: [98, 99], 1: [9]}
    assert read(assign='{"bounds":[1]}') == {1: list(range(10))}


@pytest.mark.slow
def test_deleted_records_are_missed(spark_kafka: "SparkSession", broker: Broker) -> None:
    _create(broker, "deleted")
    _fill(broker, "deleted", [20])
    with Admin(broker) as admin:
        admin.delete_records({("deleted", 0): 15})
    assert _offsets(_read(spark_kafka, broker, subscribe="deleted")) == {0: list(range(15, 20))}
    below = {"subscribe": "deleted", "startingOffsets": '{"deleted":{"0":5}}'}
    with pytest.raises(Exception, match="data may have been lost"):
        _read(spark_kafka, broker, **below).collect()
    assert _offsets(_read(spark_kafka, broker, failOnDataLoss="false", **below)) == {0: list(range(15, 20))}


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_written(spark_kafka: "SparkSession", broker: Broker, codec: str) -> None:
    """The Java producer is idempotent by default, so it asks for a producer id and numbers its batches."""
    _create(broker, f"even-{codec}", 2)
    _create(broker, f"odd-{codec}", 2)
    frame = spark_kafka.range(200).selectExpr(
        f"if(id % 2 = 0, 'even-{codec}', 'odd-{codec}') as topic",
        "if(id = 9, null, cast(id as string)) as value",
        "if(id % 3 = 0, cast('third' as binary), null) as key",
        "cast(id % 4 div 2 as int) as partition",
        "if(id = 7, array(named_struct('key', 'h', 'value', cast('x' as binary)),"
        " named_struct('key', 'none', 'value', cast(null as binary))), null) as headers",
    )
    server = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": codec}
    frame.write.format("kafka").options(**server).save()
    written = _messages(broker, f"even-{codec}", f"odd-{codec}")
    found = Counter((m.topic, m.partition, m.value, m.key, tuple(m.headers)) for m in written)
    expected = Counter(
        (
            f"odd-{codec}" if i % 2 else f"even-{codec}",
            i % 4 // 2,
            None if i == 9 else b"%d" % i,
            None if i % 3 else b"third",
            (("h", b"x"), ("none", None)) if i == 7 else (),
        )
        for i in range(200)
    )
    assert found == expected


@pytest.mark.slow
def test_streams_read_and_write_each_record_once(spark_kafka: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _create(broker, "from", 2)
    _create(broker, "to")
    _fill(broker, "from", [30, 5])
    server = {"kafka.bootstrap.servers": broker.bootstrap}

    def run() -> list[str]:
        source = spark_kafka.readStream.format("kafka").options(
            **server, subscribe="from", startingOffsets="earliest", maxOffsetsPerTrigger="20"
        )
        query = (
            source.load()
            .selectExpr("concat_ws('-', partition, offset) as value")
            .writeStream.format("kafka")
            .options(**server, topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
        return sorted((message.value or b"").decode() for message in _messages(broker, "to"))

    expected = sorted([*(f"0-{i}" for i in range(30)), *(f"1-{i}" for i in range(5))])
    assert run() == expected
    _fill(broker, "from", [0, 1])
    assert run() == sorted([*expected, "1-5"])
