"""Reads of tiered topics from the bucket itself: the rows that brokers would return, without asking them for these."""

import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from attrs import evolve
from confluent_kafka import Producer
from support.command import barnabas_here
from support.ports import free_port
from support.s3_server import KEYS, S3Server
from support.tiered_topics import QUICK, TIERED, wait_for, write
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, SimpleConsumer
from barnabas.app.clients.consumer import remote_ranges
from barnabas.app.clients.consumer.remote_ranges import RemoteRange, RemoteRanges
from barnabas.app.compose.remote_storage import opened_for_command
from barnabas.core.tiering.manifest import TieredTopic, decode_manifest, encode_manifest, manifest_key
from barnabas.pipeline.load import load
from barnabas.pipeline.queries.spark_sql import define_views
from barnabas.pipeline.session import register
from barnabas.pipeline.source.datasource import BatchReader
from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.topics.connect import connect_cluster
from barnabas.pipeline.topics.model import REMOTE_STORAGE, ClusterPartition, Where
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.offsets import EARLIEST_LOCAL, LATEST_TIERED
from barnabas.ports.errors import ConfigError
from barnabas.ports.remote_storage import RemoteStorageError
from barnabas.ports.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = 600


class Tiered(NamedTuple):
    broker: Broker
    folder: Path
    """The remote storage."""
    metrics: str

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    @property
    def topic_id(self) -> bytes:
        with Admin(self.broker.bootstrap) as admin:
            return bytes(admin.describe_topics(["t"])[0].topic_id)

    def remote_fetches(self) -> float:
        """Return how often the broker has read its remote storage for clients."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        name = "kafka_server_brokertopicmetrics_remotefetchrequests_total"
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextmanager
def opened(place: Path) -> Iterator[Tiered]:
    folder, metrics = place / "remote", f"127.0.0.1:{free_port()}"
    config = {**QUICK, "remote.log.storage.manager.class.name": f"file://{folder}", "num.partitions": 1}
    config["transaction.state.log.num.partitions"] = 1
    with Broker(place / "data", config=config, metrics_listen=metrics) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=TIERED)
        yield Tiered(broker, folder, metrics)


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Tiered]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """Records of which the last some are on the broker's disk, the others in the store only; nothing changes them."""
    with opened(tmp_path_factory.mktemp("written")) as found:
        write(found.broker.bootstrap, "t", range(WRITTEN))
        wait_until_copied(found)
        yield found


def wait_until_copied(tiered: Tiered) -> None:
    wait_for(lambda: len(list((tiered.folder.parent / "data" / "t-0").glob("*.log"))) == 1)


def query(tiered: Tiered, *options: str) -> tuple[str, str]:
    statement = 'select "offset", value, timestamp from t order by "offset"'
    done = barnabas_here("query", statement, "-b", str(tiered.broker.bootstrap), "--format", "csv", *options)
    return done.stdout.decode(), done.stderr.decode()


def find(tiered: Tiered, consumer: SimpleConsumer, ranges: RemoteRanges) -> RemoteRange | None:
    return ranges.find(consumer, TopicPartition("t", 0), 0, lambda: tiered.topic_id)


def rows(
    tiered: Tiered, start: int, end: int, level: str = "read_committed", *, direct: bool
) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    with SimpleConsumer(tiered.broker.bootstrap, isolation_level=level) as consumer, RemoteRanges(tiered.url) as ranges:
        remote = find(tiered, consumer, ranges) if direct else None
        for table in consumer.read_arrow("t", 0, start, end, remote=remote):
            found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def test_query_with_bucket_returns_rows_of_brokers_without_their_remote_reads(written: Tiered) -> None:
    before = written.remote_fetches()
    with SimpleConsumer(written.broker.bootstrap) as consumer:
        local = consumer.offset_at("t", 0, EARLIEST_LOCAL)
    assert 0 < local < WRITTEN
    direct, said = query(written, "--from-bucket", written.url)
    assert f"t-0: offsets 0 to {local} from {written.url}, offsets {local} to {WRITTEN} through the brokers" in said
    assert written.remote_fetches() == before
    through_brokers, said = query(written)
    assert direct == through_brokers
    assert len(direct.splitlines()) == WRITTEN + 1
    assert "from file://" not in said
    assert written.remote_fetches() > before


@pytest.mark.parametrize(("start", "end"), [(0, 600), (1, 2), (77, 333), (599, 600)])
def test_direct_read_of_a_range_equals_that_through_brokers(written: Tiered, start: int, end: int) -> None:
    before = written.remote_fetches()
    found = rows(written, start, end, direct=True)
    assert written.remote_fetches() == before
    assert [offset for offset, _ in found] == list(range(start, end))
    assert found == rows(written, start, end, direct=False)


def test_direct_read_in_pieces_that_cut_batches_is_whole(written: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_ranges, "_PIECE_BYTES", 4096)
    before = written.remote_fetches()
    found: list[int] = []
    with SimpleConsumer(written.broker.bootstrap) as consumer, RemoteRanges(written.url) as ranges:
        for some in consumer.read("t", 0, 5, WRITTEN, 5000, remote=find(written, consumer, ranges)):
            found += [message.offset for message in some]
    assert found == list(range(5, WRITTEN))
    assert written.remote_fetches() == before


def test_direct_read_leaves_out_aborted_transactions_as_brokers_do(tiered: Tiered) -> None:
    """One that has records in the store has its marker on the broker's disk."""
    producer = Producer({"bootstrap.servers": tiered.broker.bootstrap, "transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(30)

    def write_transaction(records: int, size: int) -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce("t", value=b"x" * size, partition=0)
            producer.flush(PATIENCE_S)

    for number in range(5):
        write_transaction(5, 600)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    write_transaction(20, 900)
    producer.abort_transaction(30)
    wait_until_copied(tiered)
    with SimpleConsumer(tiered.broker.bootstrap) as consumer:
        end, local = (consumer.offset_at("t", 0, time) for time in (-1, EARLIEST_LOCAL))
    assert end - 21 < local < end - 1
    levels = {"read_committed": 15, "read_uncommitted": 45}
    direct = {level: rows(tiered, 0, end, level, direct=True) for level in levels}
    assert tiered.remote_fetches() == 0
    assert {level: len(found) for level, found in direct.items()} == levels
    assert direct == {level: rows(tiered, 0, end, level, direct=False) for level in levels}


def test_segments_that_vanish_during_a_direct_read_come_through_brokers(written: Tiered, tmp_path: Path) -> None:
    before = written.remote_fetches()
    copy = shutil.copytree(written.folder, tmp_path / "copy")
    found: list[int] = []
    with SimpleConsumer(written.broker.bootstrap) as consumer, RemoteRanges(f"file://{copy}") as ranges:
        remote = find(written, consumer, ranges)
        for number, table in enumerate(consumer.read_arrow("t", 0, 0, WRITTEN, remote=remote)):
            found += table["offset"].to_pylist()
            if number == 1:
                for path in copy.rglob("*.log"):
                    path.unlink()
                assert written.remote_fetches() == before
    assert found == list(range(WRITTEN))
    assert written.remote_fetches() > before


def test_damaged_segment_in_the_bucket_is_not_read(written: Tiered, tmp_path: Path) -> None:
    from barnabas.core.message.corrupt_record import CorruptRecord

    copy = shutil.copytree(written.folder, tmp_path / "copy")
    damaged = sorted(copy.rglob("*.log"))[0]
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptRecord):
        rows(written._replace(folder=copy), 0, WRITTEN, direct=True)


def test_copied_segments_that_are_also_local_come_from_brokers(tiered: Tiered) -> None:
    with Admin(tiered.broker.bootstrap) as admin:
        admin.alter_configs(ResourceKind.TOPIC, "t", {"local.retention.bytes": "-2", "local.retention.ms": "-2"})
    write(tiered.broker.bootstrap, "t", range(WRITTEN))
    with SimpleConsumer(tiered.broker.bootstrap) as consumer:
        wait_for(lambda: consumer.offset_at("t", 0, LATEST_TIERED) > 400)
    for path in tiered.folder.rglob("*.log"):
        path.write_bytes(b"")
    _, said = query(tiered, "--from-bucket", tiered.url)
    assert f"t-0: offsets 0 to {WRITTEN} through the brokers" in said
    assert len(rows(tiered, 0, WRITTEN, direct=True)) == WRITTEN


def test_bucket_without_the_topic_leaves_all_to_brokers(tiered: Tiered, tmp_path: Path) -> None:
    write(tiered.broker.bootstrap, "t", range(50))
    (tmp_path / "other").mkdir()
    found, said = query(tiered, "--from-bucket", f"file://{tmp_path}/other")
    assert "t-0: offsets 0 to 50 through the brokers" in said
    assert len(found.splitlines()) == 51


def test_manifest_of_another_topic_is_refused(written: Tiered, tmp_path: Path) -> None:
    copy = shutil.copytree(written.folder, tmp_path / "copy")
    path = copy / manifest_key(TopicPartition("t", 0), written.topic_id)
    manifest = decode_manifest(path.read_bytes())
    other = TieredTopic(name="t", topic_id=bytes(15) + b"\1", partitions=1)
    path.write_bytes(encode_manifest(evolve(manifest, topic=other)))
    with (
        SimpleConsumer(written.broker.bootstrap) as consumer,
        RemoteRanges(f"file://{copy}") as ranges,
        pytest.raises(ConfigError, match="not of t-0"),
    ):
        find(written, consumer, ranges)


def test_reader_of_the_pipeline_takes_ranges_from_the_bucket(written: Tiered) -> None:
    """Spark's tasks and `load` read by this one."""
    before, place = written.remote_fetches(), ClusterPartition("t", 0)
    read_by = partial(connect_cluster, Where(bootstrap=str(written.broker.bootstrap)))
    direct, through_brokers = read_by({REMOTE_STORAGE: written.url}), read_by({})
    try:
        local = direct.in_bucket(place, 0, WRITTEN)
        assert 0 < local < WRITTEN
        assert direct.in_bucket(place, 3, 50) == 50
        assert direct.in_bucket(place, local, WRITTEN) == local
        assert through_brokers.in_bucket(place, 3, 50) == 3
        for start, end in ((0, WRITTEN), (150, 300)):
            found = [offset for piece in direct.read(place, start, end) for offset in piece.offsets]
            assert found == list(range(start, end))
        assert written.remote_fetches() == before
        assert sum(len(piece.offsets) for piece in through_brokers.read(place, 0, WRITTEN)) == WRITTEN
        assert written.remote_fetches() > before
    finally:
        direct.close()
        through_brokers.close()


def test_plan_of_spark_says_what_comes_from_the_bucket(written: Tiered, caplog: pytest.LogCaptureFixture) -> None:
    options = {"bootstrap": str(written.broker.bootstrap), "subscribe": "t", "minPartitions": "3"}
    with SimpleConsumer(written.broker.bootstrap) as consumer:
        local = consumer.offset_at("t", 0, EARLIEST_LOCAL)
    slices = BatchReader(read_options({**options, REMOTE_STORAGE: written.url}), connect_cluster).partitions()
    assert len(slices) == 3
    assert f"t: {local} of {WRITTEN} offsets come from remote.storage" in caplog.text
    caplog.clear()
    BatchReader(read_options(options), connect_cluster).partitions()
    assert not caplog.text


def test_bucket_of_a_classic_cluster_is_refused() -> None:
    options = {"bootstrap": "classic://localhost:9092", "subscribe": "t", REMOTE_STORAGE: "file:///bucket"}
    with pytest.raises(ConfigError, match="a classic cluster has no remote storage"):
        read_options(options)


@pytest.mark.slow
def test_direct_read_of_s3_has_keys_from_the_environment(
    written: Tiered, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3_server.make_bucket()
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), KEYS, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT", s3_server.endpoint)
    with opened_for_command(url) as storage:
        for path in written.folder.rglob("t-*/0/*"):
            storage.put(str(path.relative_to(written.folder)), path.read_bytes())
    before = written.remote_fetches()
    found, said = query(written, "--from-bucket", url)
    assert f"from {url}, offsets" in said
    assert written.remote_fetches() == before
    assert found == query(written)[0]
    # A store that does not answer is an error, not a read through the brokers.
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with (
        SimpleConsumer(written.broker.bootstrap) as consumer,
        RemoteRanges(url) as ranges,
        pytest.raises(RemoteStorageError),
    ):
        find(written, consumer, ranges)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_and_load_with_bucket_return_rows_of_brokers(
    written: Tiered, tmp_path: Path, spark: "SparkSession"
) -> None:
    before = written.remote_fetches()
    with SimpleConsumer(written.broker.bootstrap) as consumer:
        local = consumer.offset_at("t", 0, EARLIEST_LOCAL)
    options = {"kafka.bootstrap.servers": written.broker.bootstrap, "subscribe": "t", "maxRecordsPerPartition": "150"}
    register(spark)
    direct = spark.read.format("barnabas").options(**options, **{REMOTE_STORAGE: written.url})
    found = sorted(direct.load().select("offset", "value").collect())
    done = load(
        written.broker.bootstrap, ["t"], tmp_path / "table", spark=spark, format="parquet", from_bucket=written.url
    )
    assert written.remote_fetches() == before
    assert (done.rows, done.from_bucket) == (WRITTEN, {"t": local})
    loaded = spark.read.parquet(str(tmp_path / "table")).select("offset", "value")
    assert sorted(loaded.collect()) == found
    through_brokers = spark.read.format("barnabas").options(**options)
    assert sorted(through_brokers.load().select("offset", "value").collect()) == found
    assert written.remote_fetches() > before
    assert [row["offset"] for row in found] == list(range(WRITTEN))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_sql_session_with_bucket_reads_past_brokers(written: Tiered, spark: "SparkSession") -> None:
    register(spark)
    statement = "select count(*) as n, sum(offset) as offsets, max(length(value)) as longest from t"
    before = written.remote_fetches()
    define_views(spark, written.broker.bootstrap, {}, {}, bucket=written.url)
    direct = spark.sql(statement).collect()
    assert written.remote_fetches() == before
    define_views(spark, written.broker.bootstrap, {}, {})
    assert spark.sql(statement).collect() == direct
    assert written.remote_fetches() > before
    assert direct[0]["n"] == WRITTEN


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_micro_batches_with_bucket_read_past_brokers_each_record_once(
    written: Tiered, tmp_path: Path, spark: "SparkSession"
) -> None:
    register(spark)
    options = {"kafka.bootstrap.servers": written.broker.bootstrap, "subscribe": "t", REMOTE_STORAGE: written.url}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "250"}
    stream = spark.readStream.format("barnabas").options(**options).load().select("offset", "value")
    target = str(tmp_path / "rows")
    before = written.remote_fetches()
    writing = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = writing.trigger(availableNow=True).start(target)
    assert started.awaitTermination(int(PATIENCE_S))
    assert len([each for each in started.recentProgress if each["numInputRows"]]) > 1
    assert written.remote_fetches() == before
    rows_read = sorted(spark.read.parquet(target).collect())
    assert [row["offset"] for row in rows_read] == list(range(WRITTEN))
