import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from support.memory_cluster import MemoryCluster

from barnabas.pipeline.source.datasource import arrow_batches, source_schema
from barnabas.pipeline.topics.model import ClusterPartition, PartitionColumns


def _schema(*, include_headers: bool) -> pa.Schema:
    return to_arrow_schema(source_schema(include_headers=include_headers), timezone="UTC")


def test_arrow_batch_contains_every_source_column() -> None:
    headers = ((("h", b"x"), ("h", None)), ())
    piece = PartitionColumns(5, [3, 4], [1000, -1], [False, True], [b"k", None], [None, b"v"], headers)
    (batch,) = arrow_batches(ClusterPartition("t", 7), [piece], _schema(include_headers=True))
    rows = batch.to_pylist()
    assert [row["key"] for row in rows] == [b"k", None]
    assert [row["value"] for row in rows] == [None, b"v"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [("t", 7, 3), ("t", 7, 4)]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [1000, -1]
    assert [row["timestampType"] for row in rows] == [0, 1]
    assert rows[0]["headers"] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert rows[1]["headers"] is None


@pytest.mark.parametrize(("rows", "size_bytes"), [(7, 1 << 20), (10_000, 500), (100, 100), (1, 1)])
def test_batches_are_bounded_and_keep_the_order(rows: int, size_bytes: int) -> None:
    cluster = MemoryCluster(piece_rows=33)
    (log,) = cluster.create("t")
    for i in range(200):
        log.add(i, b"%05d" % i)
    pieces = cluster.read(ClusterPartition("t", 0), 0, 200)
    batches = list(
        arrow_batches(
            ClusterPartition("t", 0), pieces, _schema(include_headers=False), rows=rows, size_bytes=size_bytes
        )
    )
    assert all(batch.num_rows <= rows for batch in batches)
    assert all(batch.num_rows * 5 <= size_bytes or batch.num_rows == 1 for batch in batches)
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [b"%05d" % i for i in range(200)]


def test_timestamps_that_are_no_dates() -> None:
    piece = PartitionColumns(2, [0, 1], [2**62, -(2**62)], [False, False], [None, None], [b"a", b"b"], ())
    (batch,) = arrow_batches(ClusterPartition("t", 0), [piece], _schema(include_headers=False))
    assert [row["timestamp"].year for row in batch.to_pylist()] == [9999, 1]


def test_nothing_in_nothing_out() -> None:
    empty = PartitionColumns(9, [], [], [], [], [], [])
    assert list(arrow_batches(ClusterPartition("t", 0), [], _schema(include_headers=False))) == []
    assert list(arrow_batches(ClusterPartition("t", 0), [empty], _schema(include_headers=False))) == []
