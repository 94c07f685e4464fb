"""The jobs of the examples on real data, beside what plain Python finds in the same files; one played whole."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.command import barnabas_here
from support.real_data import Request, read_network, read_order_lines, read_requests
from uses import USES, activity, ads, monitoring, newsfeed, play, recommendations, search, security
from uses.data import (
    NETWORK,
    ORDERS,
    SERVER_STATUS,
    network_messages,
    order_messages,
    status_messages,
)
from uses.shop import orders
from uses.stage import Stage
from uses.web import ASSET, CRAWLER, requests

from barnabas import Broker, Consumer, Message, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.data,
    pytest.mark.xdist_group("spark"),
]

FEW_ORDERS = 700


@pytest.fixture(scope="module")
def asked(data_dir: Path) -> list[Request]:
    return list(read_requests(data_dir))


@pytest.fixture(scope="module")
def seen(asked: list[Request]) -> list[Request]:
    """The page views among them."""
    return [
        each
        for each in asked
        if each.method == "GET"
        and (200 <= each.status < 300 or each.status == 304)
        and not re.search(ASSET, each.path)
        and not re.search(CRAWLER, each.agent)
    ]


@pytest.fixture(scope="module")
def lines(spark: "SparkSession", data_dir: Path) -> "DataFrame":
    return spark.read.text(str(data_dir / "apache_access_10k.log.gz"))


@pytest.fixture(scope="module")
def found(lines: "DataFrame") -> "Iterator[DataFrame]":
    frame = requests(lines).persist()
    yield frame
    frame.unpersist()


def _topic(spark: "SparkSession", messages: Iterator[Message]) -> "DataFrame":
    """Messages as the data source shows them, as far as the jobs look."""
    rows = [(each.key, each.value, datetime.fromtimestamp((each.timestamp_ms or 0) / 1000, UTC)) for each in messages]
    return spark.createDataFrame(rows, "key BINARY, value BINARY, timestamp TIMESTAMP")


@pytest.fixture(scope="module")
def few_orders(spark: "SparkSession", data_dir: Path) -> "Iterator[DataFrame]":
    """The first invoices of the shop, of December 2010."""
    frame = _topic(spark, islice(order_messages(ORDERS.find(data_dir)), FEW_ORDERS)).persist()
    yield frame
    frame.unpersist()


@pytest.fixture(scope="module")
def paid_orders(few_orders: "DataFrame") -> "Iterator[DataFrame]":
    frame = orders(few_orders).persist()
    yield frame
    frame.unpersist()


@pytest.fixture(scope="module")
def invoices(data_dir: Path) -> dict[str, list[dict[str, str]]]:
    """Return the paid lines of each invoice in the file."""
    result: dict[str, list[dict[str, str]]] = {}
    for row in read_order_lines(data_dir):
        if row["InvoiceNo"] not in result and len(result) == FEW_ORDERS:
            break
        result.setdefault(row["InvoiceNo"], []).append(row)

    def paid(row: dict[str, str]) -> bool:
        return int(row["Quantity"]) > 0 and float(row["UnitPrice"]) > 0 and row["StockCode"][0].isdigit()

    paid_rows = {number: [row for row in rows if paid(row)] for number, rows in result.items() if number[0] != "C"}
    return {number: rows for number, rows in paid_rows.items() if rows}


def test_activity_of_a_web_log(lines: "DataFrame", seen: list[Request]) -> None:
    expected = Counter(request.hour for request in seen)
    rows = activity.views_per_hour(lines).collect()
    assert {row.window.start: row["count"] for row in rows} == expected
    people = {hour: len({each.address for each in seen if each.hour == hour}) for hour in expected}
    assert all(abs(row.visitors - people[row.window.start]) <= 2 for row in rows)


def test_sales_per_country_and_day(few_orders: "DataFrame", invoices: dict[str, list[dict[str, str]]]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    amounts: dict[tuple[str, str], float] = defaultdict(float)
    for rows in invoices.values():
        key = rows[0]["InvoiceDate"][:10], rows[0]["Country"]
        counts[key] += 1
        amounts[key] += sum(int(row["Quantity"]) * float(row["UnitPrice"]) for row in rows)
    found = {(f"{row.window.start:%Y-%m-%d}", row.country): row for row in activity.sales(few_orders).collect()}
    assert {key: row["count"] for key, row in found.items()} == counts
    assert {key: row.amount for key, row in found.items()} == pytest.approx(amounts, abs=0.01)
    assert len({country for _, country in found}) > 8


def test_recommendations_match_cosine_scores_of_item_pairs(
    paid_orders: "DataFrame", invoices: dict[str, list[dict[str, str]]]
) -> None:
    baskets = [sorted({row["StockCode"] for row in rows}) for rows in invoices.values()]
    small = [basket for basket in baskets if len(basket) <= recommendations.MAX_ITEMS]
    counts = Counter(item for basket in small for item in basket)
    pairs = Counter(pair for basket in small for pair in combinations(basket, 2))
    frequent = {pair: count for pair, count in pairs.items() if count >= recommendations.MIN_COUNT}
    scores: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (item, other), count in frequent.items():
        score = count / math.sqrt(counts[item] * counts[other])
        scores[item].append((score, other))
        scores[other].append((score, item))
    found: dict[str, list[Any]] = defaultdict(list)
    for row in recommendations.recommended(paid_orders.select("items")).orderBy("item", "rank").collect():
        found[row["item"]].append(row)
    assert found.keys() == scores.keys()
    assert len(found) > 40
    for item, rows in found.items():
        best = sorted((score for score, _ in scores[item]), reverse=True)[: recommendations.K]
        assert [row.score for row in rows] == pytest.approx(best)
        assert {row.other for row in rows} <= {other for _, other in scores[item]}


def test_whether_recommendations_are_good(spark: "SparkSession") -> None:
    baskets = spark.createDataFrame([(["a", "b"],), (["a", "c", "d"],), (["b", "x"],), (["a"],)], "items ARRAY<STRING>")
    advice = spark.createDataFrame([("a", 1, "d"), ("a", 2, "e"), ("b", 1, "a")], "item STRING, rank INT, other STRING")
    assert recommendations.hits(baskets, advice, ["b", "x"]) == (3, 1, 2)
    assert recommendations.most_bought(baskets)[:2] == ["a", "b"]


def test_news_feeds_contain_new_items_customer_does_not_own(
    paid_orders: "DataFrame", invoices: dict[str, list[dict[str, str]]]
) -> None:
    now = "2010-12-08"
    firsts: dict[str, str] = {}
    owned: dict[str, set[str]] = defaultdict(set)
    for rows in invoices.values():
        for row in rows:
            if row["InvoiceDate"] < now:
                firsts.setdefault(row["StockCode"], row["InvoiceDate"])
                owned[row["CustomerID"].removesuffix(".0")].add(row["StockCode"])
    feed = newsfeed.feeds(paid_orders, now).collect()
    assert len({row.customer for row in feed}) > 100
    assert {row["item"] for row in feed} <= firsts.keys()
    assert not [row for row in feed if row["item"] in owned[row.customer]]
    assert max(row["rank"] for row in feed) == newsfeed.K
    scores = defaultdict(list)
    for each in feed:
        scores[each.customer].append((each["rank"], -each.score))
    assert all(sorted(some) == sorted(some, key=lambda e: (e[1], e[0])) for some in scores.values())


def test_clicks_from_search_engines(found: "DataFrame", asked: list[Request]) -> None:
    engine = re.compile(r"(^|\.)(google|bing|yahoo|yandex|duckduckgo|baidu|ask|aol|ecosia|startpage)\.[a-z.]+$")
    expected = []
    for request in asked:
        parts = urlsplit(request.referrer)
        if engine.search(parts.netloc.lower()) and not re.search(CRAWLER, request.agent):
            fields = parse_qs(parts.query + "&" + parts.fragment, errors="replace")
            given = [fields[name][0] for name in ("q", "p", "text", "query") if name in fields]
            query = " ".join(given[0].split()).lower() if given else None
            observed = query is not None and not re.search(r"^https?:|semicomplete\.com", query)
            rank = int(fields["cd"][0]) if fields.get("cd", [""])[0].isdigit() else None
            expected.append((request.path, query if observed else None, rank))
    rows = search.search_clicks(found).collect()
    assert len(rows) > 500
    assert Counter((row.path, row.place) for row in rows) == Counter((path, rank) for path, _, rank in expected)
    assert Counter(row.query for row in rows) == Counter(query for _, query, _ in expected)
    pages = {row.path: row for row in search.landings(found).collect()}
    assert {path: row.clicks for path, row in pages.items()} == Counter(row.path for row in rows)
    assert all(row.stayed <= row.clicks and 0 < row.relevance < 1 for row in pages.values())


def test_crawlers_and_who_is_above_a_limit(found: "DataFrame", asked: list[Request]) -> None:
    robots = {each.address for each in asked if each.path == "/robots.txt"}
    honest = {each.address for each in asked if re.search(CRAWLER, each.agent)}
    rows = security.crawlers(found).collect()
    assert {row.address for row in rows} == robots | honest
    assert {row.address for row in rows if not row.honest} == robots - honest
    many = Counter((each.hour, each.address) for each in asked)
    holes = Counter((each.hour, each.address) for each in asked if each.status == 404)
    alerts = security.web_alerts(found).collect()
    assert {(row.rule, row.window.start, row.source, row["count"]) for row in alerts} == {
        (rule, *key, count)
        for rule, counts, limit in (
            ("many requests", many, security.REQUESTS_PER_HOUR),
            ("looking for holes", holes, security.NOT_FOUND_PER_HOUR),
        )
        for key, count in counts.items()
        if count > limit
    }
    assert len(alerts) > 5


def test_login_alerts_match_counted_attempts_per_minute(spark: "SparkSession", data_dir: Path) -> None:
    expected: Counter[tuple[datetime, str, str, str]] = Counter()
    for event in read_network(data_dir, security.KINDS):
        minute = datetime.fromisoformat(event["_write_ts"][:16])
        expected[minute, event["id.orig_h"], event["id.resp_h"], event["_path"]] += 1
    attempts = security.logins(_topic(spark, network_messages(NETWORK.find(data_dir), security.KINDS))).persist()
    rows = security.login_alerts(attempts).where("rule = 'many logins'").collect()
    assert {(row.window.start, row.source, *row.what.split(" ")): row["count"] for row in rows} == {
        key: count for key, count in expected.items() if count > security.LOGINS_PER_MINUTE
    }
    once = security.once_an_hour(security.login_alerts(attempts)).collect()
    assert len(once) == len({(row.rule, row.source, row.what, row.window.start.hour) for row in once}) > 5
    attempts.unpersist()


def test_counters_of_a_server(spark: "SparkSession", data_dir: Path) -> None:
    counters: dict[tuple[datetime, str], list[tuple[int, int]]] = defaultdict(list)
    down = set()
    for message in status_messages(SERVER_STATUS.find(data_dir)):
        status = json.loads(message.value or b"")
        minute = datetime.fromtimestamp(status["timestamp"] // 60_000 * 60, UTC).replace(tzinfo=None)
        for zone, counts in status["server_zones"].items():
            counters[minute, zone].append((status["timestamp"], counts["requests"]))
        down |= {p["server"] for up in status["upstreams"].values() for p in up["peers"] if p["state"] != "up"}
    messages = _topic(spark, status_messages(SERVER_STATUS.find(data_dir)))
    rows = monitoring.zones_per_minute(messages).collect()
    assert {(row.window.start, row.zone): row.requests for row in rows} == {
        key: pytest.approx(1000 * (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]), abs=0.001)
        for key, seen in counters.items()
        if len(seen) > 1
    } | {key: None for key, seen in counters.items() if len(seen) == 1}
    assert {row.what.split(" ")[1] for row in monitoring.server_alerts(messages).collect()} == down


def test_alert_verdict_counts_labelled_windows() -> None:
    day = datetime(2020, 1, 1, tzinfo=UTC)

    def at(hours: float) -> datetime:
        return day + timedelta(hours=hours)

    windows = {"a": [(at(1), at(2)), (at(5), at(6))], "b": []}
    observed = [("a", at(0), at(1.5)), ("a", at(1.6), at(3)), ("a", at(3), at(4)), ("b", at(1), at(2))]
    verdict = monitoring.judge(observed, windows, 0.1)
    assert (verdict.alerts, verdict.right, verdict.windows, verdict.found) == (4, 2, 2, 1)
    assert (verdict.precision, verdict.recall) == (0.5, 0.5)
    assert monitoring.judge([], {}, 0.0).precision == 0


def test_views_joined_with_clicks(found: "DataFrame", seen: list[Request]) -> None:
    clicks: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for each in seen:
        origin = re.match(ads.SITE, each.referrer)
        if origin and origin[1] != each.path:
            clicks[each.address, origin[1]].append(each.time)
    views: dict[str, dict[tuple[str, datetime], bool]] = defaultdict(dict)
    for each in seen:
        hit = any(-60 <= (at - each.time).total_seconds() <= 1800 for at in clicks[each.address, each.path])
        views[each.path][each.address, each.time] = hit
    rows = {row.page: (row.views, row.clicked) for row in ads.report(ads.delivered(found)).collect()}
    assert rows == {path: (len(hits), sum(hits.values())) for path, hits in views.items()}
    assert sum(clicked for _, clicked in rows.values()) > 100


def test_views_at_the_end_of_the_log_are_counted_without_clicks(spark: "SparkSession", tmp_path: Path) -> None:
    """The watermark has to pass the time for a click on the last view, or the stream never returns it."""
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "apache_access_10k.log").open("w") as log:
        for number in range(30):
            log.write(f'10.0.0.{number} - - [17/May/2015:10:{number:02}:00 +0000] "GET /a HTTP/1.1" 200 1 "-" "M"\n')
        for number in range(10):
            origin, time = "http://www.semicomplete.com/a", f"17/May/2015:10:{number + 5:02}:00 +0000"
            log.write(f'10.0.0.{number} - - [{time}] "GET /b HTTP/1.1" 200 1 "{origin}" "M"\n')
    with Broker(storage="memory", coordination="memory") as broker:
        stage = Stage(
            name="ads",
            spark=spark,
            bootstrap=broker.bootstrap,
            data=tmp_path / "data",
            out=tmp_path,
            scratch=tmp_path / "scratch",
            metrics=None,
        )
        _, lines = ads._pages(stage)
    assert lines[0].startswith("40 views, 10 with a click within 30 minutes: 25.0 %; 40 joined rows in ")


def test_an_example_from_end_to_end(spark: "SparkSession", data_dir: Path, tmp_path: Path) -> None:
    with Broker(storage="memory", coordination="memory") as broker:
        with Producer(broker) as producer:
            producer.send("examples.search.clicks", b"of an earlier run")
        done = play(USES["search"], data_dir, tmp_path, broker.bootstrap)
        with Consumer(broker) as consumer:
            consumer.assign("examples.search.clicks", position="earliest")
            clicks = [json.loads(each.value or b"") for each in consumer.messages(stop_at_end=True)]
    assert done.page == tmp_path / "search.html"
    html = done.page.read_text(encoding="utf-8")
    assert "Where searches lead" in html
    assert done.lines[0].startswith(
        f"{len(clicks)} clicks from search engines ({len(clicks)} in examples.search.clicks)"
    )
    assert f"<b>{len(clicks)}</b>" in html
    assert {each["engine"] for each in clicks} >= {"google", "bing", "yandex"}
    assert spark.range(3).count() == 3, "the existing session continues"


def test_examples_commands_list_uses_and_report_errors(tmp_path: Path) -> None:
    listed = json.loads(barnabas_here("examples", "list", "--json").stdout)
    assert [each["name"] for each in listed] == list(USES)
    missing = barnabas_here("examples", "run", "ads", "--data", tmp_path, "--out", tmp_path / "out", expect=2)
    assert b"no apache_access_10k.log.gz in " in missing.stderr
    assert missing.stderr.count(b"\n") == 1
    unknown = barnabas_here("examples", "run", "adverts", expect=2)
    assert b"unknown example 'adverts'; known examples: activity, " in unknown.stderr
    assert not (tmp_path / "out").exists()
