"""Spark writes batches as a whole, and a repeated one not again; a load has only what was committed."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.spark_streams import despite_slow_workers

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.pipeline.load import load
from barnabas.pipeline.source import exactly_once
from barnabas.pipeline.source.exactly_once import (
    TaskTransaction,
    WriteTarget,
    abort,
    commit,
    finish_decided,
    write_task,
)
from barnabas.pipeline.streams import append_batches
from barnabas.pipeline.table import read_table
from barnabas.pipeline.topics.connect import RowProducer
from barnabas.ports.errors import BarnabasError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        storage="memory",
        coordination="memory",
        transaction_state_log_num_partitions=2,
        offsets_topic_num_partitions=1,
    ) as running:
        yield running


class Job:
    """A writer, by the steps that Spark takes."""

    def __init__(self, broker: Broker, name: str, partitions: int = 3) -> None:
        self.target = WriteTarget(bootstrap=broker.bootstrap, name=name, producer={})
        self.topic = f"{name}-out"
        with Admin(broker) as admin:
            admin.create_topic(self.topic, partitions=partitions)

    def task(self, number: int, *values: bytes) -> TaskTransaction:
        def send(rows: RowProducer) -> int:
            rows.send(self.topic, pa.record_batch({"value": pa.array(list(values), pa.binary())}))
            return len(values)

        count, transaction = write_task(self.target, number, send if values else lambda _: 0)
        assert count == len(values)
        return transaction

    def batch(self, *values: bytes) -> list[TaskTransaction]:
        """Return a task for each value."""
        return [self.task(number, value) for number, value in enumerate(values)]

    @property
    def committed(self) -> Counter[bytes]:
        return committed(self.target.bootstrap, self.topic)


def committed(bootstrap: str, topic: str) -> Counter[bytes]:
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(topic, position="earliest")
        return Counter(message.value or b"" for message in consumer.messages(stop_at_end=True))


def test_nothing_is_seen_before_the_batch_is_committed_then_all_of_it(broker: Broker) -> None:
    job = Job(broker, "whole")
    written = job.batch(b"a", b"b", b"c")
    assert not job.committed
    assert commit(job.target, written, 0)
    assert job.committed == Counter([b"a", b"b", b"c"])
    assert finish_decided(job.target) == 0


def test_a_repeated_batch_is_not_written_again(broker: Broker) -> None:
    job = Job(broker, "again")
    assert commit(job.target, job.batch(b"a", b"b"), 4)
    for version in (4, 3):
        assert not commit(job.target, job.batch(b"a", b"b"), version)
    assert commit(job.target, job.batch(b"c", b"d"), 5)
    assert job.committed == Counter([b"a", b"b", b"c", b"d"])


def test_tasks_without_rows_need_no_transaction(broker: Broker) -> None:
    job = Job(broker, "empty")
    assert commit(job.target, [job.task(0), job.task(1)], 0)
    assert finish_decided(job.target) == -1
    assert commit(job.target, [job.task(0), job.task(1, b"a"), job.task(2)], 1)
    assert finish_decided(job.target) == 1
    assert job.committed == Counter([b"a"])


def test_the_next_driver_finishes_what_was_decided(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(broker, "decided")
    batch = job.batch(b"a", b"b", b"c")
    with monkeypatch.context() as patch:
        patch.setattr(exactly_once, "_finish", _dies)
        with pytest.raises(_Died):
            commit(job.target, batch, 0)
    assert not job.committed - Counter([b"a"])
    abort(job.target, batch)  # Spark does so when a commit fails: too late
    assert finish_decided(job.target) == 0
    assert job.committed == Counter([b"a", b"b", b"c"])
    assert not commit(job.target, job.batch(b"a", b"b", b"c"), 0)
    assert job.committed == Counter([b"a", b"b", b"c"])


def test_an_undecided_batch_leaves_nothing(broker: Broker) -> None:
    job = Job(broker, "undecided")
    job.batch(b"a", b"b", b"c")  # the driver dies here
    assert finish_decided(job.target) == -1
    assert commit(job.target, job.batch(b"A", b"B"), 0)
    assert job.committed == Counter([b"A", b"B"]), "the third task's transaction is aborted, too"
    abort(job.target, job.batch(b"x", b"y"))
    assert commit(job.target, job.batch(b"C"), 1)
    assert job.committed == Counter([b"A", b"B", b"C"])


def test_a_driver_that_was_replaced_cannot_commit(broker: Broker) -> None:
    job = Job(broker, "replaced")
    old = job.batch(b"old-0", b"old-1")
    new = job.batch(b"new-0", b"new-1")
    with pytest.raises(BarnabasError, match="another producer"):
        commit(job.target, old, 0)
    assert commit(job.target, new, 0)
    assert job.committed == Counter([b"new-0", b"new-1"])


def test_aborted_transaction_of_decided_batch_raises_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(broker, "late")
    with monkeypatch.context() as patch:
        patch.setattr(exactly_once, "_finish", _dies)
        with pytest.raises(_Died):
            commit(job.target, job.batch(b"a", b"b"), 0)
    with job.target.open(1) as stranger:
        stranger.init_transactions()
    with pytest.raises(BarnabasError, match="batch 0 of late is decided, but the rows of task 1 are lost"):
        finish_decided(job.target)


def test_a_name_of_a_consumer_group_is_refused(broker: Broker) -> None:
    job = Job(broker, "group")
    with Admin(broker) as admin:
        admin.alter_group_offsets("group", {(job.topic, 0): 0})
    with pytest.raises(BarnabasError, match="take another txnAppId"):
        finish_decided(job.target)


class _Died(Exception):
    pass


def _dies(*_: object) -> None:
    raise _Died


# --- with Spark


def _write(frame: "DataFrame", broker: Broker, topic: str, **options: str) -> None:
    chosen = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **options}
    frame.write.format("barnabas").mode("append").options(**chosen).save()


@pytest.mark.slow
@pytest.mark.spark
def test_a_batch_of_spark_is_written_once(spark: "SparkSession", broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("batches", partitions=3)
    rows = spark.range(0, 300, 1, 4).selectExpr("cast(id as string) as value")
    for _ in range(2):
        _write(rows, broker, "batches", txnAppId="batches-job", txnVersion="1")
    assert committed(broker.bootstrap, "batches") == Counter(b"%d" % number for number in range(300))
    _write(rows.limit(1), broker, "batches", txnAppId="batches-job")
    assert sum(committed(broker.bootstrap, "batches").values()) == 301


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_that_fails_leaves_nothing(spark: "SparkSession", broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("failing", partitions=1)
    rows = spark.range(0, 100, 1, 4).selectExpr("if(id = 99, raise_error('no'), cast(id as string)) as value")
    with pytest.raises(Exception, match="no"):
        _write(rows, broker, "failing", txnAppId="failing-job", txnVersion="1")
    good = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as value")
    _write(good, broker, "failing", txnAppId="failing-job", txnVersion="1")
    assert committed(broker.bootstrap, "failing") == Counter(b"%d" % number for number in range(100))


def _sink(spark: "SparkSession", broker: Broker, checkpoint: Path, topic: str) -> Callable[[], None]:
    def run() -> None:
        source = spark.readStream.format("barnabas").options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": f"{topic}-in", "maxOffsetsPerTrigger": "10"},
            startingOffsets="earliest",
        )
        sink = source.load().select("key", "value").writeStream.format("barnabas").trigger(availableNow=True)
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "txnAppId": f"{topic}-job"}
        query = sink.options(**options, checkpointLocation=str(checkpoint)).start()
        assert query.awaitTermination(600)

    return run


@pytest.mark.slow
@pytest.mark.spark
def test_a_micro_batch_that_spark_repeats_is_written_once(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    with Admin(broker) as admin, Producer(broker) as producer:
        for name in ("sink", "sink-in"):
            admin.create_topic(name, partitions=2)
        producer.send_many("sink-in", [b"%d" % number for number in range(40)])
    run = partial(despite_slow_workers, _sink(spark, broker, tmp_path, "sink"))
    run()
    done = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    assert len(done) > 1
    for file in (done[-1], done[-1].with_name(f".{done[-1].name}.crc")):
        file.unlink()  # as if the driver had died after the write, before it knew
    run()
    assert committed(broker.bootstrap, "sink") == Counter(b"%d" % number for number in range(40))


@pytest.mark.slow
@pytest.mark.spark
def test_foreach_batch_numbers_its_batches(spark: "SparkSession", broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("each", partitions=1)
    append = append_batches(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": "each", "txnAppId": "each-job"})
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    for number in (0, 1, 1):
        append(rows, number)
    assert committed(broker.bootstrap, "each") == Counter({b"%d" % number: 2 for number in range(5)})


@pytest.mark.spark
def test_a_load_has_what_was_committed(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    # Spark's first load takes more than a minute on a busy machine.
    with (
        Admin(broker) as admin,
        Producer(broker, transactional_id="loaded", transaction_timeout_ms=900_000) as producer,
    ):
        admin.create_topic("loaded", partitions=1)
        with producer.transaction():
            producer.send("loaded", b"kept")
        producer.begin_transaction()
        producer.send("loaded", b"dropped")
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("loaded", b"open")
        producer.flush()
        assert load(broker.bootstrap, ["loaded"], tmp_path, spark=spark).rows == 1
        producer.commit_transaction()
        assert load(broker.bootstrap, ["loaded"], tmp_path, spark=spark).rows == 1
    values = [bytes(row.value) for row in read_table(spark, tmp_path).orderBy("offset").collect()]
    assert values == [b"kept", b"open"]
