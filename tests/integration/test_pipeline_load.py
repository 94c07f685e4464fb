"""Loading topics into a table against a broker: what is new, once; since a time; killed and run again."""

import gzip
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.killed_load import begin_load, killed_at
from support.tables import read_foreign, seen

from barnabas import Admin, Broker, Message, Producer
from barnabas.pipeline.load import LoadProgress, TableLoad, load
from barnabas.pipeline.report import report
from barnabas.pipeline.table import read_table
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.load_plan import LoadPlan, TopicRecreated
from barnabas.pipeline.tables.lock import TableLocked
from barnabas.pipeline.tables.state import TableError
from barnabas.ports.errors import ApiError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DAY_MS = 86_400_000
START_MS = 19_700 * DAY_MS
Rows = Counter[tuple[str, int, int]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", log_retention_ms=-1) as running:
        yield running


def _create(broker: Broker, topic: str, partitions: int) -> None:
    with Admin(broker) as admin:
        admin.create_topic(topic, partitions=partitions)


def _send(broker: Broker, topic: str, partition: int, count: int, *, day: int = 0) -> None:
    messages = [Message(value=b"%d" % i, timestamp_ms=START_MS + day * DAY_MS + i) for i in range(count)]
    with Producer(broker) as producer:
        producer.send_many(topic, messages, partition=partition)
        producer.flush()


def _rows(table: Path) -> Rows:
    """(topic, partition, offset) of what other readers find, without Spark and our own one."""
    return seen(read_foreign(table))


def _expected(topic: str, *counts: int) -> Rows:
    return Counter((topic, partition, offset) for partition, count in enumerate(counts) for offset in range(count))


def test_each_load_brings_what_is_new(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _create(broker, "new", 2)
    _send(broker, "new", 0, 50)
    _send(broker, "new", 1, 20, day=1)
    steps: list[LoadProgress] = []
    first = load(broker.bootstrap, ["new"], tmp_path, spark=spark, progress=steps.append)
    assert (first.rows, first.commit) == (70, 0)
    assert steps[0].step == "plan"
    assert steps[-1].step == "commit"
    assert _rows(tmp_path) == _expected("new", 50, 20)
    days = {path.parent.name for path in tmp_path.glob("topic=new/day=*/*.parquet")}
    assert days == {"day=2023-12-09", "day=2023-12-10"}
    again = load(broker.bootstrap, ["new"], tmp_path, spark=spark)
    assert (again.rows, again.files, again.commit) == (0, 0, None)
    _send(broker, "new", 1, 5, day=1)
    _create(broker, "more", 1)
    _send(broker, "more", 0, 3)
    third = load(broker.bootstrap, ["new", "more"], tmp_path, spark=spark)
    assert third.rows == 8
    assert _rows(tmp_path) == _expected("new", 50, 25) + _expected("more", 3)
    frame = read_table(spark, tmp_path, topics=["more"])
    assert [bytes(row.value) for row in frame.orderBy("offset").collect()] == [b"0", b"1", b"2"]


@pytest.mark.slow
@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_since_replaces_and_never_doubles(
    spark: "SparkSession", broker: Broker, tmp_path: Path, table_format: str
) -> None:
    topic = f"since-{table_format}"
    _create(broker, topic, 2)
    for partition in (0, 1):
        _send(broker, topic, partition, 10)
        _send(broker, topic, partition, 10, day=1)
    table = tmp_path / "we[i]rd {d}ir=50% *?"
    load(broker.bootstrap, [topic], table, spark=spark, format=table_format)
    _send(broker, topic, 0, 5, day=2)
    again = load(broker.bootstrap, [topic], table, spark=spark, since_ms=START_MS + DAY_MS + 4)
    assert (again.rows, again.replaced_rows) == (6 + 5 + 6, 12)
    assert again.newest_ms == {topic: START_MS + 2 * DAY_MS + 4}
    assert _rows(table) == _expected(topic, 25, 20)
    assert read_table(spark, table).where("partition = 0 and offset = 13").count() == 1
    fresh = load(broker.bootstrap, [topic], tmp_path / "fresh", spark=spark, since_ms=START_MS + 2 * DAY_MS)
    assert fresh.rows == 5


@pytest.mark.slow
def test_deleted_and_recreated_topics(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _create(broker, "lost", 1)
    _send(broker, "lost", 0, 10)
    load(broker.bootstrap, ["lost"], tmp_path, spark=spark)
    _send(broker, "lost", 0, 10)
    with Admin(broker) as admin:
        admin.delete_records({("lost", 0): 15})
    with pytest.raises(ApiError, match="lost-0: offsets 10 to 15 were deleted"):
        load(broker.bootstrap, ["lost"], tmp_path, spark=spark)
    went_on = load(broker.bootstrap, ["lost"], tmp_path, spark=spark, fail_on_data_loss=False)
    assert (went_on.rows, len(went_on.lost)) == (5, 1)
    with Admin(broker) as admin:
        admin.delete_topics(["lost"])
        admin.create_topic("lost", partitions=1)
    _send(broker, "lost", 0, 40)
    with pytest.raises(TopicRecreated, match="not the one loaded before"):
        load(broker.bootstrap, ["lost"], tmp_path, spark=spark)
    replaced = load(broker.bootstrap, ["lost"], tmp_path, spark=spark, recreated="replace")
    assert (replaced.rows, replaced.replaced_rows) == (40, 15)
    assert _rows(tmp_path) == _expected("lost", 40)


@pytest.mark.slow
def test_load_fails_when_topic_is_recreated_meanwhile_then_loads_new_topic(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(broker, "during", 1)
    _send(broker, "during", 0, 10)
    plan = TableLoad.plan

    def plan_then_recreate(*arguments: Any) -> LoadPlan:
        made = plan(*arguments)
        with Admin(broker) as admin:
            admin.delete_topics(["during"])
        _create(broker, "during", 1)
        _send(broker, "during", 0, 20)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(TableLoad, "plan", plan_then_recreate)
        with pytest.raises(TopicRecreated, match="during the load; nothing is committed"):
            load(broker.bootstrap, ["during"], tmp_path, spark=spark)
    assert load(broker.bootstrap, ["during"], tmp_path, spark=spark).rows == 20
    assert _rows(tmp_path) == _expected("during", 20)


def test_two_at_once(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    with open_store(tmp_path).locked(), pytest.raises(TableLocked, match="is being changed by process"):
        load(broker.bootstrap, ["new"], tmp_path, spark=spark)


def test_read_and_report_without_table_raise_table_error(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(TableError, match="not a loaded table"):
        read_table(spark, tmp_path)
    with pytest.raises(TableError, match="not a loaded table"):
        report(tmp_path, tmp_path / "page.html", spark=spark)


def _killed_load(broker: Broker, topic: str, table: Path, where: str) -> None:
    """At a step of the commit; or with all its processes while Spark reads ("read")."""
    if where != "read":
        killed_at(broker.bootstrap, topic, table, where)
        return
    with begin_load(broker.bootstrap, topic, table) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == where:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "table_format", "done"),
    [("read", "delta", False), ("move file", "parquet", True)],
)
def test_killed_and_run_again(
    spark: "SparkSession", broker: Broker, tmp_path: Path, where: str, table_format: str, *, done: bool
) -> None:
    topic = "kill-" + where.replace(" ", "-")
    _create(broker, topic, 3)
    for partition in range(3):
        _send(broker, topic, partition, 5_000, day=partition)
    table = tmp_path / "table"
    load(broker.bootstrap, [topic], table, spark=spark, format=table_format)
    for partition in range(3):
        _send(broker, topic, partition, 5_000, day=partition)
    _killed_load(broker, topic, table, where)
    if done:
        assert read_table(spark, table).count() == 30_000
    else:
        assert _rows(table) == _expected(topic, 5_000, 5_000, 5_000)
    load(broker.bootstrap, [topic], table, spark=spark)
    assert _rows(table) == _expected(topic, 10_000, 10_000, 10_000)
    assert not list((table / "_barnabas" / "staging").iterdir())


@pytest.mark.slow
@pytest.mark.data
def test_a_real_access_log_becomes_a_page(
    spark: "SparkSession", broker: Broker, tmp_path: Path, data_dir: Path
) -> None:
    lines = gzip.decompress((data_dir / "apache_access_10k.log.gz").read_bytes()).splitlines()
    _create(broker, "access", 4)
    with Producer(broker) as producer:
        producer.send_many("access", [Message(value=line, key=line.split(b" ", 1)[0]) for line in lines])
        producer.flush()
    done = load(broker.bootstrap, ["access"], tmp_path / "table", spark=spark)
    assert done.rows == len(lines)
    loaded = Counter(bytes(row.value) for row in read_table(spark, tmp_path / "table").select("value").collect())
    assert loaded == Counter(lines)
    made = report(tmp_path / "table", tmp_path / "page.html", spark=spark)
    assert made.kinds == {"access": "access log"}
    assert (made.lines, made.parsed, made.malformed) == (10_000, 9_999, 1)
    page = (tmp_path / "page.html").read_text()
    for text in ("Views per hour", "Top pages", "/blog/tags/puppet", "Top referrers", "Status classes", "Traffic per"):
        assert text in page
    assert "10,000 lines = 9,999 parsed + 1 malformed" in page
    assert "<script" not in page


@pytest.mark.slow
def test_metrics_and_other_lines_have_a_page(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    _create(broker, "metrics", 1)
    with Producer(broker) as producer:
        for i in range(50):
            line = b'{"ts": %d, "metric": "cpu_percent", "value": %d.5}' % (START_MS + 100 * i, i)
            producer.send_many("metrics", [Message(value=line)])
        producer.send_many("metrics", [Message(value=b'{"metric": "<b>"}'), Message(value=None)])
        producer.flush()
    _create(broker, "other", 1)
    _send(broker, "other", 0, 7)
    load(broker.bootstrap, ["metrics", "other"], tmp_path / "table", spark=spark)
    made = report(tmp_path / "table", tmp_path / "page.html", spark=spark)
    assert made.kinds == {"metrics": "metrics", "other": "lines"}
    assert (made.lines, made.parsed, made.malformed) == (59, 57, 2)
    page = (tmp_path / "page.html").read_text()
    for text in (
        "cpu_percent",
        "2 topics",
        "Newest records",
        "tombstones",
        "Rows per partition",
        "&#34;cpu_percent&#34;",
    ):
        assert text in page
