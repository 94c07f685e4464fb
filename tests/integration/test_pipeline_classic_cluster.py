"""The pipeline's access to a classic cluster, without Spark: brokers in a fixed list, on real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from support.classic_frames import entry, gzip_wrapper, message_set, produce
from support.etcd_server import EtcdServer
from support.ports import free_port
from support.raw import RawConnection
from support.waiting import wait_for

from barnabas import Broker, SimpleConsumer
from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.source.ranges import OffsetRange, plan_ranges
from barnabas.pipeline.topics.connect import connect_cluster
from barnabas.pipeline.topics.model import EARLIEST, LATEST, Cluster, ClusterPartition, Where
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.transport import TransportError

FIRST = ClusterPartition("t", 0, 0)


@contextmanager
def running(folder: Path, *, port: int = 0, **settings: object) -> Iterator[Broker]:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    config = {"log.flush.interval.messages": 1, "num.partitions": 2, **dotted}
    with Broker(folder, listeners=[f"classic://127.0.0.1:{port}"], config=config) as broker:
        yield broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "data") as started:
        yield started


def fill(broker: Broker, topic: str, *sets: bytes, partition: int = 0) -> int:
    """Appends each set by itself; returns the end of the log when all of it can be read."""
    with SimpleConsumer(f"classic://{broker.bootstrap}") as consumer, RawConnection(broker.bootstrap) as connection:
        end: int = consumer.offset_at(topic, partition, LATEST)
        for records in sets:
            connection.send(produce(topic, records, partition))
            end += len(records)
        wait_for(lambda: consumer.offset_at(topic, partition, LATEST) == end)
    return end


@contextmanager
def cluster_of(*brokers: Broker, **settings: str) -> Iterator[Cluster]:
    where = Where(broker_list=",".join(f"{number}:{each.bootstrap}" for number, each in enumerate(brokers)))
    cluster = connect_cluster(where, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        yield cluster
    finally:
        cluster.close()


def rows(cluster: Cluster, start: int, end: int, place: ClusterPartition = FIRST) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for piece in cluster.read(place, start, end):
        found += zip(piece.offsets, piece.values, strict=True)
    return found


def test_partitions_of_a_fixed_list_are_asked_for(broker: Broker, tmp_path: Path) -> None:
    fill(broker, "t", message_set(b"a"), partition=1)
    with running(tmp_path / "other", num_partitions=40) as other, cluster_of(broker, other) as cluster:
        info = cluster.topics({"t"})["t"]
        assert info.partitions == [
            ClusterPartition("t", 0, 0),
            ClusterPartition("t", 1, 0),
            *(ClusterPartition("t", n, 1) for n in range(40)),
        ]
        assert cluster.offsets([ClusterPartition("t", 1, 0), ClusterPartition("t", 39, 1)], LATEST) == {
            ClusterPartition("t", 1, 0): 11,
            ClusterPartition("t", 39, 1): 0,
        }
        address = other.bootstrap
        assert cluster.where(ClusterPartition("t", 3, 1)) == Where(broker_list=f"1:{address}")
        with pytest.raises(ApiError, match="cannot list its partitions"):
            cluster.topics({"a/b"})
        with pytest.raises(ApiError, match="broker 2 is not alive; there is 0, 1"):
            cluster.where(ClusterPartition("t", 0, 2))


def test_small_fetches_grow_and_wrappers_are_whole(broker: Broker) -> None:
    sets = [message_set(b"a", b"b"), gzip_wrapper(b"c", b"d", b"e"), message_set(bytes(5000)), gzip_wrapper(b"f")]
    end = fill(broker, "t", *sets)
    starts = [0, 11, 22, 22, 22, len(sets[0] + sets[1]), end - len(sets[3])]
    values = [b"a", b"b", b"c", b"d", b"e", bytes(5000), b"f"]
    expected = list(zip(starts, values, strict=True))
    for size in (4, 30, 70, 6000, 1 << 20):
        with cluster_of(broker, fetch_size=str(size)) as cluster:
            assert rows(cluster, 0, end) == expected
    with cluster_of(broker) as cluster:
        assert rows(cluster, 11, 23) == expected[1:5]
        assert rows(cluster, 22, end) == expected[2:]
        assert [cluster.boundary(FIRST, 0, wanted) for wanted in (1, 11, 21, 22, 23, end)] == [11, 11, 11, 22, 22, end]
        assert cluster.boundary(FIRST, 22, 23) == 22 + len(sets[1])
        assert cluster.boundary(FIRST, end, end + 5) == end


def test_unreadable_classic_ranges_raise_errors_naming_partition(broker: Broker) -> None:
    end = fill(broker, "t", message_set(b"hello", b"there"), entry(bytes(3000)))
    with cluster_of(broker) as cluster:
        with pytest.raises(ApiError, match=r"t-0-0: .*of a fetch at offset 3"):
            rows(cluster, 3, end)
        for start, upto in ((0, end + 1), (end + 9, end + 10)):
            with pytest.raises(ApiError, match="t-0") as raised:
                rows(cluster, start, upto)
            assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    small = {"fetch_size": "100", "fetch_size_max": "1000"}
    with cluster_of(broker, **small) as cluster, pytest.raises(ApiError, match=r"FETCH_SIZE.*raise the fetch size"):
        rows(cluster, 0, end)
    with pytest.raises(ConfigError, match=r"fetch\.sizes"), cluster_of(broker, fetch_sizes="1"):
        pass


def test_only_flushed_bytes_exist(tmp_path: Path) -> None:
    never = 1_000_000_000
    settings = {"log_flush_interval_messages": never, "log_flush_scheduler_interval_ms": never}
    with running(tmp_path, **settings) as broker, cluster_of(broker) as cluster:
        with RawConnection(broker.bootstrap) as connection:
            connection.send(produce("t", message_set(b"a")))
            with SimpleConsumer(f"classic://{broker.bootstrap}") as consumer:
                consumer.fetch("t", 0, 0)
        assert cluster.offsets([FIRST], LATEST) == {FIRST: 0}
    with running(tmp_path, **settings) as broker, cluster_of(broker) as cluster:
        assert cluster.offsets([FIRST], LATEST) == {FIRST: 11}
        assert rows(cluster, 0, 11) == [(0, b"a")]


def test_segments_times_and_retention(tmp_path: Path) -> None:
    settings = {"log_segment_bytes": 100, "log_retention_bytes": 250, "log_retention_check_interval_ms": 20}
    with running(tmp_path, **{**settings, "log_retention_bytes": -1}) as broker, cluster_of(broker) as cluster:
        end = fill(broker, "t", *(message_set(b"%050d" % n) for n in range(20)))
        assert [value for _, value in rows(cluster, 0, end)] == [b"%050d" % n for n in range(20)]
        assert cluster.offsets([FIRST], 1000) == {FIRST: 0}, "nothing is so old: from the beginning"
        assert cluster.offsets([FIRST], 2**42) == {FIRST: end}
    with running(tmp_path, **settings) as broker, cluster_of(broker) as cluster:
        wait_for(lambda: cluster.offsets([FIRST], EARLIEST)[FIRST] > 0)
        first = cluster.offsets([FIRST], EARLIEST)[FIRST]
        with pytest.raises(ApiError) as raised:
            rows(cluster, 0, end)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        asked = {
            "broker.list": f"0:{broker.bootstrap}",
            "assign": '{"t": ["0-0"]}',
            "startingOffsets": '{"t":{"0-0":0}}',
        }
        with pytest.raises(ApiError, match="asked for offsets 0 to"):
            plan_ranges(cluster, read_options(asked), print)
        observed: list[str] = []
        plan = plan_ranges(cluster, read_options(asked | {"failOnDataLoss": "false"}), observed.append)
        assert (plan, len(observed)) == ([OffsetRange("t", 0, first, end, 0)], 1)
        assert rows(cluster, first, end)[0] == (first, b"%050d" % (first // 60))


def test_a_broker_that_is_away_for_a_moment(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, port=port) as broker:
        end = fill(broker, "t", message_set(b"a"), message_set(b"b"))
        with cluster_of(broker, fetch_size="4") as cluster:
            pieces = iter(cluster.read(FIRST, 0, end))
            assert list(next(pieces).values) == [b"a"]
            broker.close()
            with running(tmp_path, port=port):
                assert [value for piece in pieces for value in piece.values] == [b"b"]
            with pytest.raises(TransportError, match="broker 0 returned no offsets of t-0-0"):
                cluster.offsets([FIRST], LATEST)


@pytest.mark.process
@pytest.mark.xdist_group("etcd")
def test_the_registries_of_etcd(etcd_server: EtcdServer, tmp_path: Path) -> None:
    url = f"127.0.0.1:{etcd_server.port}/{uuid4().hex}"
    settings = {"num.partitions": 2, "broker.id": 7, "log.flush.interval.messages": 1}
    listeners = ["classic://127.0.0.1:0"]
    with Broker(tmp_path / "data", listeners=listeners, coordination=f"etcd://{url}", config=settings) as broker:
        cluster = connect_cluster(Where(etcd_connect=url), {"zookeeper.session.timeout.ms": "3000"})
        end = fill(broker, "t", message_set(b"a"))
        wait_for(lambda: "t" in cluster.topics())
        (info,) = cluster.topics({"t", "u"}).values()
        assert list(info.partitions) == [ClusterPartition("t", 0, 7), ClusterPartition("t", 1, 7)]
        assert cluster.where(info.partitions[0]) == Where(broker_list=f"7:{broker.bootstrap}")
        assert rows(cluster, 0, end, info.partitions[0]) == [(0, b"a")]
    assert cluster.topics({"t"})["t"].partitions == [], "it is known, but no broker has it now"
    cluster.close()
