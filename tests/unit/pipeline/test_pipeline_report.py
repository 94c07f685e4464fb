"""The report without Spark: recognized formats, charts, and the page."""

import re
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import evolve

from barnabas.audit.reconcile import Reconciliation, TierFigures, Which, WindowFigures
from barnabas.pipeline.report import charts, page, sql
from barnabas.pipeline.report.page import (
    LINE,
    AccessFigures,
    FieldFigures,
    MetricFigures,
    RecordFigures,
    SampleRecord,
    Series,
    TopEntry,
    by_topic,
    is_access_log,
    is_metrics,
    json_fields,
    shown,
)

EVIL = '"><script>alert(1)</script>&<img src=x onerror=alert(1)>'
KINDS = ("page", "referrer", "failed", "crawler")
HOUR = 1_431_856_800


def _access(**changes: object) -> AccessFigures:
    values: dict[str, object] = {
        "lines": 11,
        "parsed": 10,
        "malformed": 1,
        "malformed_samples": [EVIL],
        "addresses": 3,
        "views": 7,
        "failed": 2,
        "size_bytes": 123_456,
        "crawler_requests": 1,
        "crawler_addresses": 1,
        "views_per_hour": {HOUR: 5, HOUR + 7200: 2},
        "crawler_per_hour": {HOUR: 0, HOUR + 7200: 1},
        "bytes_per_hour": {HOUR: 100_000, HOUR + 7200: 23_456},
        "statuses": {"2xx": 8, "4xx": 2, EVIL: 1},
        "top": {kind: [TopEntry(name=EVIL, count=3, size_bytes=1)] for kind in KINDS},
    }
    return AccessFigures(**(values | changes))  # type: ignore[arg-type]  # typed by name in the class


def _records(**changes: object) -> RecordFigures:
    newest = [
        SampleRecord(partition="0", offset=7, time_ms=HOUR * 1000, key=EVIL, value=EVIL),
        SampleRecord(partition="1", offset=8, time_ms=None, key=None, value=None),
    ]
    values: dict[str, object] = {
        "lines": 3,
        "size_bytes": 30,
        "median_bytes": 10,
        "largest_bytes": 12,
        "tombstones": 1,
        "bucket_s": 3600,
        "rows_per_bucket": {HOUR: 3},
        "bytes_per_bucket": {HOUR: 30},
        "partitions": {"0": 2, "1": 1},
        "keyed": 3,
        "distinct_keys": 1,
        "key_counts": {EVIL: 3},
        "newest": newest,
        "fields": [FieldFigures(path=EVIL, rows=2, types=["text"], example=EVIL)],
        "field_rows": 2,
    }
    return RecordFigures(**(values | changes))  # type: ignore[arg-type]  # typed by name in the class


def _render(section: dict[str, object]) -> str:
    return page.render(Path("table"), [section], datetime(2026, 1, 2, tzinfo=UTC))


def _sound(html: str) -> None:
    assert "<script" not in html
    assert "<img" not in html
    assert "http://" not in html
    assert "https://" not in html
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)


def test_an_access_log_page_escapes_the_data() -> None:
    html = _render(page.access_section(EVIL, _access()))
    _sound(html)
    assert "&lt;script&gt;alert(1)" in html
    assert "11 lines = 10 parsed + 1 malformed" in html
    assert html.count("<svg") == 4, "a drawing for wide screens and one for narrow ones"


def test_an_access_log_without_a_parsed_line() -> None:
    nothing: dict[str, object] = {"views_per_hour": {}, "crawler_per_hour": {}, "bytes_per_hour": {}, "statuses": {}}
    empty: dict[str, list[TopEntry]] = {kind: [] for kind in KINDS}
    html = _render(page.access_section("t", _access(parsed=0, lines=1, top=empty, **nothing)))
    _sound(html)
    assert "nothing to show" in html


def test_a_metrics_page() -> None:
    series = Series(name=EVIL, count=2, times=[1.0, 2.0], means=[1.0, 5.0], lows=[0.0, 5.0], highs=[2.0, 5.0])
    single = Series(name="one", count=1, times=[1.0], means=[-3.0], lows=[-3.0], highs=[-3.0])
    found = MetricFigures(
        lines=4, parsed=3, malformed=1, malformed_samples=[""], counts={EVIL: 2, "one": 1}, series=[series, single]
    )
    html = _render(page.metrics_section("t", found))
    _sound(html)
    assert "4 lines = 3 parsed + 1 malformed" in html
    assert "(empty)" in html


def test_a_page_about_other_lines() -> None:
    found = _records()
    html = _render({**page.lines_section("t", found), "records": page.record_part(found)})
    _sound(html)
    for text in ("Rows per hour", "Fields", "Newest records", "a tombstone", "&lt;script&gt;", "<title>t · Barnabas"):
        assert text in html
    assert "No row has a key" not in html
    plain = evolve(found, keyed=0, key_counts={}, fields=(), newest=())
    html = _render({**page.lines_section("t", plain), "records": page.record_part(plain)})
    assert html.count("No row has a key") == 1


@pytest.mark.parametrize(
    "line",
    [
        '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "agent"',
        '::1 id user [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 304 -',
        r'1.2.3.4 - - [x] "GET /\"q\" HTTP/1.1" 200 12 "-" "a \"b\" c"',
        '1.2.3.4 - - [x] "" 400 0 "-" "-" "1.1.1.1" 0.003',
        '1.2.3.4 - - [x] "GET / HTTP/1.1" 200 12 "-" "agent"\r\n',
    ],
)
def test_lines_of_the_format(line: str) -> None:
    assert re.match(LINE, line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        '1.2.3.4 - - [x] "GET / HTTP/1.1" 200 12 "-" "cut',
        '1.2.3.4 - - [x] "GET / HTTP/1.1" 20 12 "-" "a"',
        '1.2.3.4 - - [x] "GET / HTTP/1.1" 200 -5',
    ],
)
def test_lines_not_of_the_format(line: str) -> None:
    assert not re.match(LINE, line)


def test_a_hostile_line_takes_no_time() -> None:
    assert not re.match(LINE, '1 - - [x] "' + '\\"' * 200_000)
    assert not re.match(LINE, '1 - - [x] "a" 200 1 "' + "a" * 200_000 + '" "' + "\\\\" * 200_000)


def test_access_logs_and_metrics_are_detected_by_content() -> None:
    access = b'1.2.3.4 - - [x] "GET / HTTP/1.1" 200 12'
    metric = b'{"ts": 1, "metric": "cpu", "value": 2.5}'
    assert is_access_log([access, access, b"\xff"])
    assert not is_access_log([access, b"", b""])
    assert not is_access_log([])
    assert is_metrics([metric, metric, b"[]"])
    assert not is_metrics([b'{"metric": "x", "value": "y"}', b"1", b"{"])
    assert not is_metrics([])


def test_buckets_have_no_holes_and_are_not_too_many() -> None:
    series = charts.per_bucket({"a": {0: 1, 7200: 2}, "b": {3600: 5}})
    assert list(series.starts) == [0, 3600, 7200]
    assert series.values == {"a": [1, 0, 2], "b": [0, 5, 0]}
    assert charts.bucket_name(series.bucket_s) == "hour"
    long = charts.per_bucket({"a": {0: 1, 3600 * 5000: 1}})
    assert charts.bucket_name(long.bucket_s) == "day"
    ages = charts.per_bucket({"a": {0: 1, 250_000_000_000: 1}})
    assert len(ages.starts) <= charts.BUCKETS_MAX + 1
    assert sum(ages.values["a"]) == 2


def test_many_bars_become_an_area() -> None:
    series = charts.per_bucket({"a": {3600 * i: i for i in range(1000)}})
    assert "<polygon" in charts.stacked(series)
    assert "<rect" not in charts.stacked(series)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (9_999, "", "9,999"),
        (12_345, "", "12.3 k"),
        (1_234_567, "", "1.23 M"),
        (0.25, "", "0.25"),
        (10, "B", "10 B"),
        (2048, "B", "2.0 KiB"),
        (5 * 1024**5, "B", "5120.0 TiB"),
    ],
)
def test_compact_numbers_use_unit_prefixes(value: float, unit: str, text: str) -> None:
    assert charts.compact(value, unit) == text


@pytest.mark.parametrize(
    ("largest", "unit", "whole", "step"),
    [
        (0, "", True, 1),
        (1, "", True, 1),
        (3, "", True, 1),
        (5, "", True, 1),
        (6, "", True, 2),
        (21, "", True, 5),
        (99, "", True, 20),
        (11_368, "", True, 5000),
        (0.03, "", False, 0.01),
        (3, "B", True, 1),
        (300, "B", True, 100),
        (5 * 1024, "B", True, 1024),
        (300 * 1024**2, "B", True, 100 * 1024**2),
    ],
)
def test_value_axis_has_round_steps_that_are_whole_for_counts(
    largest: float, unit: str, whole: bool, step: float
) -> None:
    assert charts.axis_step(largest, unit, whole=whole) == pytest.approx(step)


def labels(svg: str) -> list[list[tuple[float, str]]]:
    """Return the labels of the axis of time of each drawing, with their places."""
    found = []
    for drawing in re.findall(r"<svg.*?</svg>", svg, re.DOTALL):
        texts = ElementTree.fromstring(drawing).iter("text")
        found.append([(float(t.get("x") or 0), t.text or "") for t in texts if t.get("y") == str(charts.HEIGHT - 6)])
    return found


def test_counts_have_no_fractions_on_their_axis() -> None:
    svg = str(charts.stacked(charts.per_bucket({"rows": {0: 3, 60: 1}}, [60])))
    assert re.findall(r'text-anchor="end">([^<]*)<', svg)[:4] == ["0", "1", "2", "3"]
    assert "1.5" not in svg


@pytest.mark.parametrize(
    ("bucket_s", "count", "texts"),
    [
        (60, 4, ["02:29", "02:30", "02:31", "02:32"]),
        (60, 26, ["02:30", "02:35", "02:40", "02:45", "02:50"]),
        (3600, 84, ["17 May", "12:00", "18 May", "12:00", "19 May", "12:00", "20 May"]),
        (86400, 4, ["17 May", "18 May", "19 May", "20 May"]),
        (86400, 400, ["17 May 2015", "26 Jun 2015"]),
    ],
)
def test_labels_of_time_are_even_and_below_the_middle_of_their_bars(
    bucket_s: int, count: int, texts: list[str]
) -> None:
    first = {60: 1_431_829_740, 3600: 1_431_810_000, 86400: 1_431_820_800}[bucket_s]  # 17 May 2015
    series = charts.per_bucket({"rows": {first + bucket_s * n: n + 1 for n in range(count)}}, [bucket_s])
    wide, narrow = labels(str(charts.stacked(series)))
    assert [text for _, text in wide][: len(texts)] == texts
    assert len(narrow) <= 3
    gaps = [after[0] - before[0] for before, after in pairwise(wide)]
    assert max(gaps) - min(gaps) < 0.3, "no label is left out"
    for index, (x, _) in zip(charts.time_ticks(series, 10), wide, strict=True):
        assert x == pytest.approx(68 + (960 - 68 - 40) * (index + 0.5) / len(series.starts), abs=0.1)


def test_chart_of_one_bucket_is_a_sentence() -> None:
    one = charts.per_bucket({"rows": {HOUR: 11_368}}, [60])
    assert charts.stacked(one) == '<p class="single">all within 1 minute: 17 May 2015 10:00 UTC · rows: 11,368</p>'
    ten = charts.per_bucket({EVIL: {HOUR: 1}}, [600])
    assert "all within 10 minutes: " in charts.stacked(ten)
    assert "<script" not in charts.stacked(ten)


def test_span_of_a_chart_names_its_day_once() -> None:
    def span(last: int, size: int) -> str:
        return charts.span_text(charts.per_bucket({"rows": {HOUR: 1, last: 1}}, [size]))

    assert span(HOUR, 60) == "17 May 2015 10:00 UTC"
    assert span(HOUR + 180, 60) == "17 May 2015 10:00 to 10:03 UTC"
    assert span(HOUR + 86_400, 3600) == "17 May 2015 10:00 to 18 May 2015 10:00 UTC"
    assert span(HOUR + 9 * 86_400, 86_400) == "17 May 2015 to 26 May 2015 UTC"
    assert charts.span_text(charts.per_bucket({"rows": {}})) == ""


def test_fields_of_values() -> None:
    values = [b'{"a": {"b": 1, "c": null}, "d": []}', b'{"a": {"b": "x"}}', b'{"a": 3, "e": true}', b"no"]
    fields, objects = json_fields(values)
    assert objects == 3
    assert {field.path: (field.rows, list(field.types)) for field in fields} == {
        "a.b": (2, ["number", "text"]),
        "a.c": (1, ["null"]),
        "d": (1, ["list"]),
        "a": (1, ["number"]),
        "e": (1, ["boolean"]),
    }
    assert json_fields([b"1", b"{"]) == ([], 0)


def test_long_values_are_shortened_and_binary_values_shown_in_hex() -> None:
    assert (shown(None), shown(b""), shown("é".encode())) == (None, "", "é")
    assert shown(b"\xff\x00") == "0xff00"
    assert shown("é".encode() * 2000) == "é" * 600 + "..."


def test_report_shows_the_audit_of_topics() -> None:
    def tier(after: str, expected: int, arrived: int, pending: int = 0, lost: int = 0) -> TierFigures:
        which = [Which(instance="i", first=1, last=lost)] if lost else []
        return TierFigures(
            tier=f"behind {after}",
            after=after,
            count=arrived,
            unstamped=0,
            expected=expected,
            arrived=arrived,
            pending=pending,
            lost=which,
        )

    tiers = [tier("", 0, 0), tier("producer", 100, 97, lost=3), tier("broker", 97, 90, pending=7)]
    windows = [
        WindowFigures(topic="t", start_ms=0, width_ms=1, state="wrong", tiers=tiers),
        WindowFigures(topic="t", start_ms=1, width_ms=1, state="complete", tiers=[tier("producer", 10, 10)]),
    ]
    found = by_topic(Reconciliation(windows=windows, unclosed=[]))["t"]
    assert (found.windows, found.agreeing, found.lost, found.pending, found.sound) == (2, 1, 3, 7, False)
    assert found.share == "98.50 %"
    records = page.record_part(_records())
    html = _render({**page.lines_section("t", _records()), "records": records, "audit": found})
    assert "98.50 % complete" in html
    assert "3 lost" in html
    assert "7 still to come" in html


def test_names_in_queries_are_quoted_where_sql_needs_it() -> None:
    assert [sql.identifier(name) for name in ("orders", "order", "page-views", 'a"b', "Orders", "1a")] == [
        "orders", '"order"', '"page-views"', '"a""b"', '"Orders"', '"1a"',
    ]  # fmt: skip
    assert sql.field_expression("a.order", []) == 'json.a."order"'
    assert sql.field_expression("timestamp", ["timestamp"]) == "json.timestamp"
    assert sql.field_expression("@timestamp", ["timestamp"]) == '"@timestamp"'
    assert sql.event_expression("ts", 1.0) == "to_timestamp(ts::double)"
    assert sql.event_expression("ts", 1e9) == "to_timestamp(ts::double / 1000000000)"
    assert sql.bucket_expression("timestamp", 600) == "to_timestamp(epoch_ms(timestamp) // 600000 * 600)"


def test_page_has_contents_queries_and_explained_sizes() -> None:
    found = _records(malformed=1, malformed_samples=[EVIL])
    html = _render({**page.lines_section("t", found), "records": page.record_part(found, "lake.t")})
    _sound(html)
    for name in ("rows", "bytes", "keys", "partitions", "fields", "newest"):
        assert f'<a href="#t0-{name}">' in html
        assert f'id="t0-{name}"' in html
    for text in ("of values, uncompressed", "3 rows = 2 parsed + 1 malformed", "from lake.t", "all within 1 hour"):
        assert text in html
    log = _render(page.access_section("t", _access(), "lake.t"))
    for name in ("views", "traffic", "statuses", "page", "referrer", "crawler", "failed"):
        assert f'<a href="#t0-{name}">' in log
        assert f'id="t0-{name}"' in log
    assert log.count('<details class="query">') == 8
