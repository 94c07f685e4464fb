"""Options, plans and tables of a classic cluster."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.pipeline.source.datasource import TopicStreamReader
from barnabas.pipeline.source.options import parse_partitions_json, partitions_json, read_options, write_options
from barnabas.pipeline.source.ranges import OffsetRange, plan_ranges
from barnabas.pipeline.tables.commits import CommitLog, LoggedCommit
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.load_plan import LoadPlan, TopicRecreated, plan_load
from barnabas.pipeline.tables.reading import AffectedFile, affected_files
from barnabas.pipeline.tables.state import Commit, TopicState
from barnabas.pipeline.topics.model import LATEST, ClusterPartition, PartitionColumns, TopicInfo, Where
from barnabas.ports.errors import ApiError, ConfigError

ZK = {"zk.connect": "zk:2181/kafka"}
TOPIC = ZK | {"subscribe": "t"}


class Logs:
    """A cluster of nothing but byte positions; messages have 10 bytes. Partition → (start, end)."""

    def __init__(self, **logs: dict[str, tuple[int, int]]) -> None:
        self.logs: dict[ClusterPartition, tuple[int, int]] = {}
        self.names = set(logs)
        for topic, partitions in logs.items():
            for key, bounds in partitions.items():
                place = ClusterPartition.parse(topic, key)
                assert place is not None
                self.logs[place] = bounds

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicInfo]:
        wanted = self.names if names is None else self.names & set(names)
        return {name: TopicInfo(name, [place for place in self.logs if place.topic == name]) for name in wanted}

    def offsets(self, places: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        return {p: self.logs[p][1] if timestamp_ms == LATEST else self.logs[p][0] for p in places}

    def read(
        self, place: ClusterPartition, start: int, end: int, *, with_headers: bool = False
    ) -> Iterable[PartitionColumns]:
        raise NotImplementedError

    def in_bucket(self, place: ClusterPartition, start: int, end: int) -> int:
        return start

    def boundary(self, place: ClusterPartition, start: int, wanted: int) -> int:
        return max(start + 10, wanted // 10 * 10)

    def where(self, place: ClusterPartition) -> Where:
        return Where(broker_list=f"{place.broker}:h:1")

    def close(self) -> None:
        pass


def _plan(cluster: Logs, last: LoadPlan | None = None, **options: object) -> LoadPlan:
    commit = _commit(last.topics) if last is not None else None
    given = {"since_ms": None, "fail_on_data_loss": True, "recreated": "fail", **options}
    return plan_load(cluster, commit, ["t"], **given)  # type: ignore[arg-type]  # as given


def _commit(topics: Mapping[str, TopicState]) -> Commit:
    return Commit(number=1, created_ms=0, topics=topics, ranges=[], rows=0, files=[])


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (ZK, Where(zk_connect="zk:2181/kafka")),
        ({"ETCD.connect": "h:1"}, Where(etcd_connect="h:1")),
        ({"coordination": "etcd://h:1/x"}, Where(coordination="etcd://h:1/x")),
        ({"broker.list": "3:h:1"}, Where(broker_list="3:h:1")),
        ({"bootstrap": "classic://h:1,h:2"}, Where(bootstrap="classic://h:1,h:2")),
        ({"kafka.bootstrap.servers": "zookeeper://h:1/x"}, Where(coordination="zookeeper://h:1/x")),
    ],
)
def test_where_a_classic_cluster_is(options: dict[str, str], where: Where) -> None:
    found = read_options(options | {"subscribe": "t"}).where
    assert found == where
    assert found.classic
    assert not read_options({"bootstrap": "h:1", "subscribe": "t"}).where.classic


def test_partitions_are_named_as_in_the_registries() -> None:
    offsets = {ClusterPartition("t", 0, 0): 1, ClusterPartition("t", 2, 10): 2, ClusterPartition("u", 1): -1}
    assert partitions_json(offsets) == '{"t": {"0-0": 1, "10-2": 2}, "u": {"1": -1}}'
    assert parse_partitions_json(partitions_json(offsets)) == offsets
    assert read_options(ZK | {"assign": '{"t": ["1-0"]}'}).selection.partitions == (ClusterPartition("t", 0, 1),)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "t"}, "zk.connect, etcd.connect"),
        (TOPIC | {"etcd.connect": "h:1"}, "given: zk.connect and etcd.connect"),
        (TOPIC | {"bootstrap.servers": "h:1"}, "one address of the cluster"),
        (TOPIC | {"minPartitions": "4"}, "one task per broker"),
        (TOPIC | {"maxRecordsPerPartition": "4"}, "one task per broker"),
        (TOPIC | {"endingTimestamp": "1000"}, "no times"),
        ({"bootstrap": "classic://h:1", "subscribePattern": "t.*"}, "needs the registries"),
        (TOPIC | {"startingOffsets": '{"t": {"0-x": 1}}'}, "must be JSON .*broker-partition"),
        (ZK | {"assign": '{"t": ["0-0-0"]}'}, "assign must be JSON"),
        (TOPIC | {"zk.conect": "h:1"}, "did you mean zk.connect"),
    ],
)
def test_wrong_options_say_what_is_right(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(options)


def test_nothing_is_written_to_a_classic_cluster() -> None:
    with pytest.raises(ConfigError, match="does not write"):
        write_options({"zk.connect": "h:1", "topic": "t"})


def test_a_read_has_a_range_per_broker_and_partition() -> None:
    cluster = Logs(t={"0-0": (0, 50), "0-1": (0, 0), "1-0": (20, 90)}, gone={})
    observed: list[str] = []
    assert plan_ranges(cluster, read_options(TOPIC), observed.append) == [
        OffsetRange("t", 0, 0, 50, 0),
        OffsetRange("t", 0, 20, 90, 1),
    ]
    some = read_options(ZK | {"assign": '{"t": ["1-0"]}', "endingOffsets": '{"t": {"1-0": 30}}'})
    assert plan_ranges(cluster, some, observed.append) == [OffsetRange("t", 0, 20, 30, 1)]
    late = read_options(TOPIC | {"startingOffsets": '{"t": {"0-0": 0, "0-1": 0, "1-0": 10}}'})
    with pytest.raises(ApiError, match="t-1-0: asked for offsets 10 to 90, but the log has 20 to 90"):
        plan_ranges(cluster, late, observed.append)
    with pytest.raises(ApiError, match="t-2-0: the topic has 3 partition"):
        plan_ranges(cluster, read_options(ZK | {"assign": '{"t": ["2-0"]}'}), observed.append)
    with pytest.raises(ApiError, match="no live broker has topic 'gone'"):
        plan_ranges(cluster, read_options(ZK | {"subscribe": "gone"}), observed.append)
    assert plan_ranges(cluster, read_options(ZK | {"subscribePattern": "g.*"}), observed.append) == []


def test_brokers_come_and_go_between_loads() -> None:
    first = _plan(Logs(t={"0-0": (0, 50), "1-0": (0, 90)}))
    assert first.topics["t"].next_offsets == {"0-0": 50, "1-0": 90}
    assert first.rows_max is None
    one = _plan(Logs(t={"0-0": (0, 70), "2-0": (0, 10)}), first)
    assert one.ranges == [OffsetRange("t", 0, 50, 70, 0), OffsetRange("t", 0, 0, 10, 2)]
    assert one.absent == [ClusterPartition("t", 0, 1)]
    assert one.topics["t"].next_offsets == {"0-0": 70, "1-0": 90, "2-0": 10}
    back = _plan(Logs(t={"1-0": (0, 100)}), one)
    assert back.ranges == [OffsetRange("t", 0, 90, 100, 1)]
    assert back.absent == [ClusterPartition("t", 0, 0), ClusterPartition("t", 0, 2)]


def test_a_load_notices_what_is_gone_and_what_is_another_topic() -> None:
    first = _plan(Logs(t={"0-0": (0, 50)}))
    with pytest.raises(ApiError, match="t-0-0: offsets 50 to 60 were deleted"):
        _plan(Logs(t={"0-0": (60, 70)}), first)
    assert len(_plan(Logs(t={"0-0": (60, 70)}), first, fail_on_data_loss=False).lost) == 1
    with pytest.raises(TopicRecreated, match="partition 0-0 was loaded up to offset 50 and ends at 20"):
        _plan(Logs(t={"0-0": (0, 20)}), first)
    with pytest.raises(TopicRecreated, match="one of them is in a classic cluster"):
        _plan(Logs(t={"0": (0, 50)}), first)
    replaced = _plan(Logs(t={"0-0": (0, 20)}), first, recreated="replace")
    assert (replaced.replaced_topics, replaced.ranges) == (["t"], [OffsetRange("t", 0, 0, 20, 0)])
    back = _plan(Logs(t={"0-0": (30, 50)}), first, since_ms=1000)
    assert back.replaced_from == {ClusterPartition("t", 0, 0): 30}


def test_rows_of_another_broker_are_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "topic=t" / "day=2026-01-01"
    folder.mkdir(parents=True)
    brokers = pa.array([0, 0, 1, None], pa.int32())
    columns = {"partition": [0, 0, 0, 0], "offset": [0, 20, 20, 20], "broker": brokers}
    pq.write_table(pa.table(columns), folder / "new.parquet")
    pq.write_table(pa.table({"partition": [0], "offset": [20]}), folder / "old.parquet")
    day = "topic=t/day=2026-01-01"
    found = affected_files(open_store(tmp_path, "parquet"), {ClusterPartition("t", 0, 0): 10}, [])
    assert found == [AffectedFile(name=f"{day}/new.parquet", rows=4, replaced_rows=1)]
    found = affected_files(open_store(tmp_path, "parquet"), {ClusterPartition("t", 0): 10}, [])
    assert [(file.name, file.replaced_rows) for file in found] == [(f"{day}/new.parquet", 1), (f"{day}/old.parquet", 1)]


def test_commits_of_before_are_read(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    with log.locked():
        number, staging = log.begin_commit()
        log.commit(LoggedCommit(number=number, staging=staging.name, created_ms=0, topics={}))
    path = tmp_path / "_barnabas" / "commits" / "000001.json"
    text = path.read_text().replace('"ranges": []', '"ranges": [{"topic": "t", "partition": 1, "start": 0, "end": 5}]')
    path.write_text(text)
    last = log.last()
    assert last is not None
    assert last.ranges[0].broker == -1


def test_a_stream_with_a_limit_ends_between_messages() -> None:
    options = read_options(TOPIC | {"maxOffsetsPerTrigger": "33"}, streaming=True)
    cluster = Logs(t={"0-0": (0, 100), "1-0": (0, 0)})
    reader = TopicStreamReader(options, lambda where, client: cluster)
    start = {"offsets": '{"t": {"0-0": 0, "1-0": 0}}'}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"offsets": '{"t": {"0-0": 30, "1-0": 0}}'}
    (slice_,) = reader.partitions(start, end)
    assert slice_.value == [OffsetRange("t", 0, 0, 30, 0)]
    assert slice_.where == Where(broker_list="0:h:1")  # type: ignore[attr-defined]  # a Slice
    cluster.logs = {ClusterPartition("t", 0, 0): (50, 100)}
    end = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert end == {"offsets": '{"t": {"0-0": 60, "1-0": 0}}'}
