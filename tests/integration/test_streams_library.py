"""The library for streams on real data: batches give what plain Python finds, streams give what batches do."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.real_data import Request, read_requests, read_series

from barnabas.pipeline.streams import (
    anomaly_scores,
    deduplicated,
    join_latest,
    join_within,
    over_limit,
    page_batches,
    rate_limited,
    sessions,
    table_batches,
    top_k,
    windowed_counts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.data,
    pytest.mark.xdist_group("spark"),
]

HOUR, LATE = timedelta(hours=1), "1 hour"
REQUEST = pa.schema(
    {name: pa.string() for name in Request._fields} | {"time": pa.timestamp("us", "UTC"), "status": pa.int64()}
)


@pytest.fixture(scope="module")
def requests(data_dir: Path) -> list[Request]:
    return list(read_requests(data_dir))


@pytest.fixture(scope="module")
def files(requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The requests as two Parquet files, one after the other in time: two micro-batches of a stream."""
    folder = tmp_path_factory.mktemp("requests")
    half = len(requests) // 2
    for number, part in enumerate((requests[:half], requests[half:])):
        table = pa.Table.from_pylist([each._asdict() for each in part], REQUEST)
        (folder / f"part={number}").mkdir()
        pq.write_table(table, folder / f"part={number}" / "0.parquet")
    return folder


@pytest.fixture(scope="module")
def log(spark: "SparkSession", files: Path) -> "Iterator[DataFrame]":
    frame = spark.read.parquet(str(files)).drop("part").cache()
    yield frame
    frame.unpersist()


@pytest.fixture
def streamed(spark: "SparkSession", files: Path, log: "DataFrame") -> Callable[..., list[Any]]:
    """Runs a function over the requests as a stream, of two micro-batches unless `batches` is 1."""

    def run(function: "Callable[[DataFrame], DataFrame]", outputMode: str = "append", batches: int = 2) -> list[Any]:
        source = spark.readStream.schema(log.schema).option("maxFilesPerTrigger", 2 // batches)
        rows = function(source.parquet(f"{files}/part=*"))
        query = rows.writeStream.format("memory").queryName("streamed").outputMode(outputMode)
        query.trigger(availableNow=True).start().awaitTermination()
        found = spark.table("streamed").collect()
        spark.catalog.dropTempView("streamed")
        return found

    return run


def _counts(rows: "DataFrame") -> "DataFrame":
    return windowed_counts(rows, "path", windowDuration="1 hour", timeColumn="time", delayThreshold=LATE)


def test_counts_per_window(log: "DataFrame", requests: list[Request]) -> None:
    expected = Counter((request.hour, request.path) for request in requests)
    found = {(row.window.start, row.path): row["count"] for row in _counts(log).collect()}
    assert found == expected
    sliding = windowed_counts(log, windowDuration="2 hours", slideDuration="1 hour", timeColumn="time").collect()
    per_hour = Counter(request.hour for request in requests)
    assert {row.window.start: row["count"] for row in sliding} == {
        start: per_hour[start] + per_hour[start + HOUR] for hour in per_hour for start in (hour, hour - HOUR)
    }


def test_top_of_each_window(log: "DataFrame", requests: list[Request], streamed: Callable[..., list[Any]]) -> None:
    per_hour: dict[datetime, Counter[str]] = defaultdict(Counter)
    for request in requests:
        per_hour[request.hour][request.path] += 1
    expected = {
        (hour, rank, path, count)
        for hour, counts in per_hour.items()
        for rank, (path, count) in enumerate(sorted(counts.items(), key=lambda e: (-e[1], e[0]))[:3], 1)
    }

    def top(rows: "DataFrame") -> "DataFrame":
        return _counts(rows).transform(top_k, "window", k=3)

    def observed(rows: list[Any]) -> list[tuple[datetime, int, str, int]]:
        return [(row.window.start, row["rank"], row.path, row["count"]) for row in rows]

    assert set(observed(top(log).collect())) == expected
    over = max(request.time for request in requests) - HOUR  # the watermark
    appended = observed(streamed(top))
    assert len(appended) == len(set(appended))
    assert set(appended) == {row for row in expected if row[0] + HOUR <= over}
    best = Counter(request.path for request in requests).most_common(1)[0]
    first = log.groupBy("path").count().transform(top_k, k=1).collect()
    assert [(row["rank"], row.path, row["count"]) for row in first] == [(1, *best)]


def _sessions(requests: list[Request], gap: timedelta) -> set[tuple[str, datetime, datetime, int]]:
    times: dict[str, list[datetime]] = defaultdict(list)
    for request in requests:
        times[request.address].append(request.time)
    found = set()
    for address, moments in times.items():
        moments.sort()
        begin = 0
        for end in range(1, len(moments) + 1):
            if end == len(moments) or moments[end] - moments[end - 1] >= gap:
                found.add((address, moments[begin], moments[end - 1], end - begin))
                begin = end
    return found


def test_sessions_match_between_batch_and_stream(
    log: "DataFrame", requests: list[Request], streamed: Callable[..., list[Any]]
) -> None:
    expected = _sessions(requests, timedelta(minutes=30))

    def visits(rows: "DataFrame") -> "DataFrame":
        return sessions(rows, "address", gapDuration="30 minutes", timeColumn="time", delayThreshold=LATE)

    def observed(rows: list[Any]) -> set[tuple[str, datetime, datetime, int]]:
        return {(row.address, row.started, row.ended, row["count"]) for row in rows}

    assert observed(visits(log).collect()) == expected
    over = max(request.time for request in requests) - HOUR
    assert observed(streamed(visits)) == {each for each in expected if each[2] + timedelta(minutes=30) <= over}


def test_each_thing_once(log: "DataFrame", requests: list[Request], streamed: Callable[..., list[Any]]) -> None:
    addresses = {request.address for request in requests}
    assert log.transform(deduplicated, "address").count() == len(addresses)
    found = streamed(lambda rows: deduplicated(rows, "address", timeColumn="time", delayThreshold="7 days"))
    assert sorted(row.address for row in found) == sorted(addresses)


def test_rate_limits_match_between_batch_and_stream(
    log: "DataFrame", requests: list[Request], streamed: Callable[..., list[Any]]
) -> None:
    counts = Counter((request.hour, request.address) for request in requests)
    above = over_limit(log, "address", limit=30, windowDuration="1 hour", timeColumn="time").collect()
    assert {(row.window.start, row.address): row["count"] for row in above} == {
        key: count for key, count in counts.items() if count > 30
    }

    def limited(rows: "DataFrame") -> "DataFrame":
        wanted = rows.where("address LIKE '66%'")  # each key costs milliseconds on a stream
        return rate_limited(wanted, "address", limit=5, windowDuration="1 hour", timeColumn="time", delayThreshold=LATE)

    some = {key: count for key, count in counts.items() if key[1].startswith("66")}
    assert max(some.values()) > 5
    for rows in (limited(log).collect(), streamed(limited)):
        assert len(rows) == sum(some.values())
        allowed = Counter((row.time.replace(minute=0, second=0), row.address) for row in rows if row.allowed)
        assert allowed == {key: min(5, count) for key, count in some.items()}


def test_joins_of_two_streams(log: "DataFrame", requests: list[Request], streamed: Callable[..., list[Any]]) -> None:
    from pyspark.sql import functions as f

    site = "http://www.semicomplete.com"

    def clicked(rows: "DataFrame") -> "DataFrame":
        views = rows.where("method = 'GET'").select("address", "path", f.col("time").alias("viewed"))
        clicks = rows.where(f.col("referrer").startswith(site)).select(
            "address", f.regexp_extract("referrer", f"^{site}([^?#]*)", 1).alias("path"), f.col("time").alias("at")
        )
        return join_within(
            views,
            clicks,
            ["address", "path"],
            within="10 minutes",
            early="1 minute",
            leftTime="viewed",
            rightTime="at",
            delayThreshold=LATE,
        )

    views: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for request in requests:
        if request.method == "GET":
            views[request.address, request.path].append(request.time)
    expected = Counter(
        (request.address, page, view, request.time)
        for request in requests
        if request.referrer.startswith(site)
        for page in [request.referrer.removeprefix(site).split("?")[0].split("#")[0]]
        for view in views[request.address, page]
        if timedelta(minutes=-1) <= request.time - view <= timedelta(minutes=10)
    )
    assert sum(expected.values()) > 1000
    for rows in (clicked(log).collect(), streamed(clicked, batches=1)):
        assert Counter((row.address, row.path, row.viewed, row.at) for row in rows) == expected


def test_anomaly_scores_match_between_batch_and_stream(spark: "SparkSession", data_dir: Path, tmp_path: Path) -> None:
    """A stream gives the scores of the batch; tests/unit/pipeline/test_anomaly_scores.py tests their values."""
    taxi = "realKnownCause/nyc_taxi.csv"
    first = read_series(data_dir, taxi)[0][0]
    values = [(taxi, *each) for each in read_series(data_dir, taxi)[:900]] + [("short", first, 1.0)]
    for number, part in enumerate((values[:300], values[300:])):
        frame = spark.createDataFrame(part, "series STRING, timestamp TIMESTAMP, value DOUBLE")
        frame.coalesce(1).write.parquet(str(tmp_path / f"part={number}"))
    whole = spark.read.parquet(str(tmp_path)).drop("part")
    expected = whole.transform(anomaly_scores, "series", windowRows=48).collect()
    assert len(expected) == 901
    assert sum(row.score is not None for row in expected) == 900 - 2 * 24
    source = spark.readStream.schema(whole.schema).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/part=*")
    query = anomaly_scores(source, "series", windowRows=48).writeStream.format("memory").queryName("scored")
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(map(repr, spark.table("scored").collect())) == sorted(map(repr, expected))


def test_a_stream_with_a_changing_table(spark: "SparkSession", log: "DataFrame", requests: list[Request]) -> None:
    changes = spark.createDataFrame(
        [("83.149.9.216", 1, "old"), ("83.149.9.216", 3, "new"), ("83.149.9.216", 2, "middle"), ("other", 9, "x")],
        "address STRING, version INT, name STRING",
    )
    joined = log.transform(join_latest, changes, ["address"], orderBy=["version"])
    assert sorted(joined.columns) == sorted([*log.columns, "version", "name"])
    named = Counter(row.name for row in joined.select("name").collect())
    ours = sum(1 for request in requests if request.address == "83.149.9.216")
    assert named == {"new": ours, None: len(requests) - ours}


def test_results_go_to_a_table_and_a_page(
    spark: "SparkSession", files: Path, log: "DataFrame", requests: list[Request], tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    from barnabas.pipeline.report.panels import BarList

    table = table_batches(tmp_path / "table", "window", appId="hours")
    page = page_batches(
        tmp_path / "page.html",
        "Hours",
        lambda rows: [BarList("hours", [(f"{row['window']['start']:%d %H}", row["count"]) for row in rows])],
        keys=["window"],
    )

    def both(rows: "DataFrame", batch: int) -> None:
        rows.persist()
        table(rows, batch)
        table(rows, batch)  # Spark repeats a batch after a failure
        page(rows, batch)
        rows.unpersist()

    source = spark.readStream.schema(log.schema).option("maxFilesPerTrigger", 1).parquet(f"{files}/part=*")
    counts = windowed_counts(source, windowDuration="1 hour", timeColumn="time", delayThreshold=LATE)
    query = counts.writeStream.foreachBatch(both).outputMode("update")
    query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    expected = Counter(request.hour for request in requests)
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert {row["window"]["start"].replace(tzinfo=None): row["count"] for row in rows} == expected
    assert len(rows) == len(expected)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.count("<tr><td>") == len(expected)
