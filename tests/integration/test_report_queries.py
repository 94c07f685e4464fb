"""The page of a report: each query on it gives the number above it, and shows rows by event time on request."""

import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from support.command import barnabas_here

from barnabas import Broker, Message, Producer
from barnabas.pipeline.load import load
from barnabas.pipeline.queries import query
from barnabas.pipeline.report import report
from barnabas.pipeline.report.page import section_of
from barnabas.pipeline.table import read_table
from barnabas.ports.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

START_MS = 1_700_000_000_000
EVENT_S = 1_526_000_000
TOPICS = ("access", "machine", "orders")


def _line(number: int) -> bytes:
    path, agent = ("/robots.txt", "odd") if number == 7 else (f"/page-{number % 3}", "Googlebot" if number % 5 else "M")
    status = 404 if number % 11 == 0 else 200
    address = f"10.0.0.{number % 9}"
    time = f"{17 + number // 24:02}/May/2015:{number % 24:02}:05:03 +0000"
    return f'{address} - - [{time}] "GET {path}?a HTTP/1.1" {status} {number} "http://a.b/\\"q\\"" "{agent}"'.encode()


def _order(number: int) -> dict[str, Any]:
    moment = EVENT_S + number * 3600
    return {"id": number, "paid": {"at": moment * 1000}, "@timestamp": f"2018-05-{number + 1:02}T10:00:00Z", "us": "no"}


@pytest.fixture(scope="module")
def table(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loaded") / "order"  # a word of SQL
    with Broker(storage="memory", config={"num.partitions": 2, "log.retention.ms": -1}) as broker:
        with Producer(broker) as producer:
            producer.send_many("access", [*map(_line, range(60)), b"no line"])
            producer.send_many(
                "machine",
                [
                    Message(json.dumps({"ts": START_MS + n, "metric": m, "value": n}).encode())
                    for n in range(9)
                    for m in ("cpu", "mem'ry")
                ],
            )
            orders = [Message(json.dumps(_order(n)).encode(), key=b"k%d" % (n % 3)) for n in range(9)]
            producer.send_many("orders", [*orders, Message(b"no json"), Message(None, key=b"k0")])
            producer.flush()
        load(broker.bootstrap, TOPICS, folder, spark=spark)
    return folder


@frozen
class Page:
    path: Path
    text: str
    steps: list[str]


@pytest.fixture(scope="module")
def page(spark: "SparkSession", table: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of all topics, by an event time that the orders have."""
    out, steps = tmp_path_factory.mktemp("page") / "page.html", list[str]()
    made = report(table, out, event_time="paid.at", spark=spark, progress=steps.append)
    assert made.kinds == {"access": "access log", "machine": "metrics", "orders": "lines"}
    assert (made.lines, made.parsed, made.malformed) == (61 + 18 + 11, 60 + 18 + 10, 2)
    return Page(out, out.read_text(encoding="utf-8"), steps)


def _rows(sql: str, table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(sql, tables=[table]).to_pylist()
    return found


def _queries(spark: "SparkSession", table: Path, topic: str, event_time: str | None = None) -> dict[str, Any]:
    rows: DataFrame = read_table(spark, table, topics=[topic])
    return section_of(topic, rows, event_time, '"order"')


@pytest.mark.slow
def test_every_query_of_the_page_runs(page: Page, table: Path) -> None:
    found = re.findall(r'<details class="query"><summary>query</summary><pre>(.*?)</pre>', page.text, re.DOTALL)
    assert len(found) > 25
    for each in dict.fromkeys(map(html.unescape, found)):
        assert _rows(each, table), each
    assert "barnabas query --table order - " in page.text


@pytest.mark.slow
def test_queries_of_an_access_log_give_its_figures(spark: "SparkSession", table: Path) -> None:
    section = _queries(spark, table, "access")
    figures, queries = section["figures"], section["queries"]
    (totals,) = _rows(queries["totals"], table)
    assert totals == {
        "lines": figures.lines,
        "parsed": figures.parsed,
        "views": figures.views,
        "addresses": figures.addresses,
        "bytes": figures.size_bytes,
        "crawler_requests": figures.crawler_requests,
        "failed": figures.failed,
    }
    assert 0 < figures.views < figures.crawler_requests
    per_hour = {int(row["start"].timestamp()): row for row in _rows(queries["views"], table)}
    assert {hour: row["views"] for hour, row in per_hour.items()} == figures.views_per_hour
    assert {hour: row["crawlers"] for hour, row in per_hour.items()} == figures.crawler_per_hour
    traffic = {int(row["start"].timestamp()): row["bytes"] for row in _rows(queries["traffic"], table)}
    assert traffic == figures.bytes_per_hour
    assert {row["class"]: row["requests"] for row in _rows(queries["statuses"], table)} == figures.statuses
    for kind, entries in figures.top.items():
        rows = _rows(queries[kind], table)
        assert [(row["name"], row["requests"], row["bytes"]) for row in rows] == [
            (each.name, each.count, each.size_bytes) for each in entries
        ], kind


@pytest.mark.slow
def test_queries_of_records_give_their_figures(spark: "SparkSession", table: Path) -> None:
    records = _queries(spark, table, "orders")["records"]
    figures, queries = records["figures"], records["queries"]
    (totals,) = _rows(queries["totals"], table)
    assert totals == {
        "rows": figures.lines,
        "bytes": figures.size_bytes,
        "median": figures.median_bytes,
        "largest": figures.largest_bytes,
        "keys": 3,
        "tombstones": 1,
    }
    assert {row["key"]: row["rows"] for row in _rows(queries["keys"], table)} == figures.key_counts
    assert {str(row["partition"]): row["rows"] for row in _rows(queries["partitions"], table)} == figures.partitions
    starts = {int(row["start"].timestamp()): row["rows"] for row in _rows(queries["over time"], table)}
    assert starts == figures.rows_per_bucket
    assert _rows(queries["fields"], table)[0] == {"objects": 9, "id": 9, "paid.at": 9, "@timestamp": 9, "us": 9}
    assert (figures.malformed, list(figures.malformed_samples)) == (1, ["no json"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "starts"),
    [
        ("@timestamp", [1_525_168_800 + day * 86_400 for day in range(9)]),
        ("paid.at", [EVENT_S // 60 * 60 + hour * 3600 for hour in range(9)]),
    ],
)
def test_rows_are_shown_by_event_time_of_a_field(
    spark: "SparkSession", table: Path, field: str, starts: list[int]
) -> None:
    records = _queries(spark, table, "orders", field)["records"]
    figures = records["figures"]
    size = figures.bucket_s
    assert (figures.event_time, figures.untimed) == (field, 2)
    assert sorted(figures.rows_per_bucket) == sorted({start // size * size for start in starts})
    found = {int(row["start"].timestamp()): row["rows"] for row in _rows(records["queries"]["over time"], table)}
    assert found == figures.rows_per_bucket


@pytest.mark.slow
def test_typed_values_are_reported_as_json(spark: "SparkSession", tmp_path: Path) -> None:
    with Broker(storage="memory", config={"num.partitions": 1, "log.retention.ms": -1}) as broker:
        with Producer(broker) as producer:
            values = [b'{"id": %d, "at": {"ts": "2018-05-1%dT10:00:00Z"}}' % (n, n) for n in range(5)]
            producer.send_many("typed", values)
            producer.flush()
        schema = "id BIGINT, at STRUCT<ts: TIMESTAMP>"
        load(broker.bootstrap, ["typed"], tmp_path / "order", spark=spark, value_format="json", value_schema=schema)
    made = report(tmp_path / "order", tmp_path / "page.html", event_time="at.ts", spark=spark)
    assert (made.lines, made.parsed) == (5, 5)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "of values as JSON" in text
    assert "By the event time in the field at.ts: 10 May 2018 " in text
    for each in re.findall(r"<summary>query</summary><pre>(.*?)</pre>", text, re.DOTALL):
        assert _rows(html.unescape(each), tmp_path / "order"), each


@pytest.mark.slow
@pytest.mark.usefixtures("spark")  # the session that the command takes
def test_report_command_counts_rows_and_says_its_steps(table: Path, tmp_path: Path) -> None:
    words = ("report", table, "--out", tmp_path / "page.html")
    done = barnabas_here(*words)
    assert done.stdout.decode().splitlines() == ["90 rows, 88 parsed, 2 malformed", str(tmp_path / "page.html")]
    assert "reading orders, 11 rows (topic 3 of 3) ..." in done.stderr.decode().splitlines()
    log = barnabas_here(*words, "--topic", "access", "--quiet")
    assert log.stdout.startswith(b"61 lines, 60 parsed, 1 malformed\n")
    assert log.stderr == b""


@pytest.mark.slow
def test_page_names_the_event_time_and_topics_without_it_keep_record_time(page: Page) -> None:
    assert "By the event time in the field paid.at: 11 May 2018 " in page.text
    assert "2 rows without a time in this field: not in these charts." in page.text
    assert page.text.count("By the time of the record") == 2
    assert page.steps[0].startswith("reading access, 61 rows (topic 1 of 3)")
    assert page.steps[-1] == f"writing {page.path}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topic", "field", "text"),
    [
        (
            "orders",
            "when",
            r"event time 'when': no value in orders has this field; fields: id, paid.at, @timestamp, us",
        ),
        ("orders", "us", r"event time 'us': the values of this field in orders are not times: give a field with ISO"),
        ("access", "ts", r"event time 'ts': no value in access has this field; they are not JSON objects"),
    ],
)
def test_absent_event_time_is_an_error_that_names_the_fields(
    spark: "SparkSession", table: Path, tmp_path: Path, topic: str, field: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        report(table, tmp_path / "page.html", topic=topic, event_time=field, spark=spark)
    assert not (tmp_path / "page.html").exists()
