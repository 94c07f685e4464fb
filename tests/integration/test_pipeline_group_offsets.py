"""Loads and streams commit to a consumer group what they have read, never before it is safe."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from support.spark_streams import despite_slow_workers
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Message, Producer
from barnabas.pipeline import load as load_module
from barnabas.pipeline.commands import load as load_command
from barnabas.pipeline.load import load
from barnabas.pipeline.tables.formats import open_store
from barnabas.ports.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Lags = dict[tuple[str, int], tuple[int | None, int | None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", group_initial_rebalance_delay_ms=0) as running:
        yield running


def _create(broker: Broker, topic: str, *counts: int) -> None:
    with Admin(broker) as admin:
        admin.create_topic(topic, partitions=len(counts))
    for partition, count in enumerate(counts):
        _send(broker, topic, partition, count)


def _send(broker: Broker, topic: str, partition: int, count: int) -> None:
    with Producer(broker) as producer:
        producer.send_many(topic, [Message(value=b"%d" % i) for i in range(count)], partition=partition)
        producer.flush()


def _lags(broker: Broker, group: str) -> Lags:
    """Per partition (committed, lag)."""
    with Admin(broker) as admin:
        return {(p.topic, p.partition): (found.committed, found.lag) for p, found in admin.group_lag(group).items()}


@pytest.mark.slow
def test_load_commits_offsets_of_its_group(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _create(broker, "observed", 30, 7)
    first = load(broker.bootstrap, ["observed"], tmp_path, spark=spark, group="warehouse")
    assert (first.rows, first.group_error) == (37, None)
    _send(broker, "observed", 1, 5)
    assert _lags(broker, "warehouse") == {("observed", 0): (30, 0), ("observed", 1): (7, 5)}
    asked = [confluent_kafka.TopicPartition("observed", partition) for partition in (0, 1)]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "warehouse"})
    assert [found.offset for found in consumer.committed(asked, timeout=PATIENCE_S)] == [30, 7]
    consumer.close()
    load(broker.bootstrap, ["observed"], tmp_path, spark=spark)
    again = load(broker.bootstrap, ["observed"], tmp_path, spark=spark, group="warehouse")
    assert (again.rows, again.group_error) == (0, None)
    assert _lags(broker, "warehouse")["observed", 1] == (12, 0)


def test_failed_load_commits_no_group_offsets(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(step: str) -> None:
        if step == "commit version":
            raise RuntimeError("stopped")

    _create(broker, "unsafe", 10)
    with monkeypatch.context() as patch:
        patch.setattr(load_module, "open_store", partial(open_store, checkpoint=stop))
        with pytest.raises(RuntimeError, match="stopped"):
            load(broker.bootstrap, ["unsafe"], tmp_path, spark=spark, group="unsafe")
    assert _lags(broker, "unsafe") == {}


@pytest.mark.slow
def test_a_group_with_members_fails_no_load(
    spark: "SparkSession", broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _create(broker, "members", 10)
    settings = {"group.id": "members", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    member = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    member.subscribe(["members"])
    assert member.poll(PATIENCE_S) is not None
    load_command(["members"], tmp_path, broker.bootstrap, group="members")
    observed = capsys.readouterr()
    assert observed.out.startswith("10 new rows")
    assert (
        "loaded, but the offsets of group members were not committed: NON_EMPTY_GROUP: group members has members"
        in observed.err
    )
    member.close()
    load_command(["members"], tmp_path, broker.bootstrap, group="members", as_json=True)
    assert '"group_error": null' in capsys.readouterr().out
    assert _lags(broker, "members") == {("members", 0): (10, 0)}


def test_classic_clusters_have_no_such_groups(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="classic cluster keep no offsets of groups"):
        load("classic://127.0.0.1:1", ["t"], tmp_path, group="g")
    with pytest.raises(ConfigError, match="name the consumer group"):
        load("127.0.0.1:1", ["t"], tmp_path, group=" ")


@pytest.mark.slow
def test_stream_commits_group_offsets_of_processed_batches(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    _create(broker, "stream", 20, 10)
    seen: list[int] = []
    lags: list[Lags] = []
    broken = [True]

    def sink(frame: "DataFrame", batch: int) -> None:
        lags.append(_lags(broker, "stream"))
        if batch == 1 and broken:
            raise RuntimeError("the sink is full")
        seen.append(frame.count())

    def run() -> Any:
        source = spark.readStream.format("barnabas").options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap,
                "subscribe": "stream",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "15",
                "commitOffsetsToGroup": "stream",
            }
        )
        writer = source.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(Exception, match="the sink is full"):
        despite_slow_workers(lambda: run().awaitTermination(600))
    after_first: Lags = {("stream", 0): (10, 10), ("stream", 1): (5, 5)}
    assert lags == [{}, after_first]
    assert _lags(broker, "stream") == after_first
    broken.clear()
    _send(broker, "stream", 1, 1)
    assert despite_slow_workers(lambda: run().awaitTermination(600))
    assert sum(seen) == 31
    assert _lags(broker, "stream") == {("stream", 0): (20, 0), ("stream", 1): (11, 0)}
