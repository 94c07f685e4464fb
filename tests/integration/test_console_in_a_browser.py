"""The web console in a headless browser, against a live broker and against Apache Kafka: every page, wide and on a
phone, light and dark.

Pictures for docs/console.md: BARNABAS_PICTURES=docs/images pytest -m slow, and the name of this file.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.console_browser import (
    BROWSER,
    FAULTS,
    LOOKS,
    SCRIPT,
    SHIFTS,
    USERS,
    RunningCluster,
    Visitor,
    apache_kafka,
    apache_kafka_with_users,
    barnabas,
    barnabas_with_users,
    fill,
)
from support.schema_registry import serving
from support.tables import Rows, commit_rows

from barnabas import Admin, Producer
from barnabas.console.application import ConsoleSettings
from barnabas.console.server import ConsoleServer
from barnabas.pipeline.report import page as report
from barnabas.pipeline.tables.formats import open_store
from barnabas.ports.broker_api.acls import AclBinding, ResourceType
from barnabas.ports.broker_api.operations import Operation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.xdist_group("console-browser"),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install playwright")

CLUSTERS = {"Barnabas": barnabas, "Kafka": apache_kafka}
WITH_USERS = {"Barnabas": barnabas_with_users, "Kafka": apache_kafka_with_users}
QUICK = {"default.api.timeout.ms": "1500", "request.timeout.ms": "1000"}
PICTURES = os.environ.get("BARNABAS_PICTURES")


@pytest.fixture(scope="module", params=CLUSTERS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def cluster(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with CLUSTERS[kind](tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def url(kind: str, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lake = tmp_path_factory.mktemp("lake")
    with serving(cluster.bootstrap) as registry:
        fill(cluster.bootstrap, registry)
        _fill_warehouse(lake)
        settings = ConsoleSettings(
            cluster={"bootstrap.servers": cluster.bootstrap},
            registry=registry,
            warehouse=str(lake),
            remote_storage=cluster.remote_storage,
        )
        with _console(settings) as address:
            yield address


@contextmanager
def _console(settings: ConsoleSettings) -> Iterator[str]:
    server = ConsoleServer(settings, ("127.0.0.1", 0))
    try:
        yield server.start()
    finally:
        server.stop()


def _fill_warehouse(lake: Path) -> None:
    for name, days in (("sales", 3), ("views", 1)):
        store = open_store(lake / name, "delta")
        for day in range(days):
            rows = range(day * 40, day * 40 + 40)
            commit_rows(
                store, Rows("orders", f"2026-01-0{day + 1}", rows), Rows("payments", f"2026-01-0{day + 1}", rows)
            )
    hours = range(1_767_225_600, 1_767_225_600 + 30 * 3600, 3600)
    figures = report.RecordFigures(
        lines=120,
        size_bytes=24_000,
        median_bytes=200,
        largest_bytes=260,
        tombstones=0,
        bucket_s=3600,
        rows_per_bucket={hour: hour // 3600 % 7 for hour in hours},
        bytes_per_bucket={hour: hour // 3600 % 7 * 200 for hour in hours},
        partitions={"0": 70, "1": 50},
        keyed=120,
        distinct_keys=9,
        key_counts={"user-1": 30, "user-2": 20},
        newest=[
            report.SampleRecord(partition="0", offset=119, time_ms=1_767_225_600_000, key="user-1", value='{"id": 1}')
        ],
        fields=[report.FieldFigures(path="id", rows=120, types=["number"], example="1")],
        field_rows=120,
    )
    section = {**report.lines_section("orders", figures), "records": report.record_part(figures)}
    (lake / "sales.html").write_text(report.render(lake / "sales", [section], datetime.now(UTC)), "utf-8")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(params=LOOKS)
def visitor(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    made = Visitor(chromium, request.param)
    yield made
    made.context.close()


PAGES = {
    "topics": "/topics",
    "create-topic": "/create-topic",
    "messages": "/topics/orders/messages?path=$.title+%3D+Emma",
    "sql-messages": "/topics/orders/messages?where=(value-%3E%3E%27$.price%27)::INT+%3E+20",
    "odd-messages": "/topics/odd/messages",
    "message": "/topics/orders/messages/0/3",
    "odd-message": "/topics/odd/messages/0/0",
    "large-message": "/topics/odd/messages/0/2",
    "typed-messages": "/topics/typed/messages",
    "no-messages": "/topics/orders/messages?key=none-like-this",
    "committed": "/topics/payments/messages?control=1",
    "internal-offsets": "/topics/__consumer_offsets/messages",
    "internal-transactions": "/topics/__transaction_state/messages",
    "partitions": "/topics/orders",
    "topic-groups": "/topics/orders/groups",
    "producers": "/topics/payments/producers",
    "settings": "/topics/orders/settings",
    "produce": "/topics/orders/produce",
    "manage": "/topics/orders/manage",
    "groups": "/groups",
    "group": "/group?id=billing",
    "odd-group": f"/group?id={quote(SCRIPT)}",
    "reset": "/group/reset?id=billing&to=shift&shift=-5",
    "transactions": "/transactions",
    "transaction": "/transaction?id=billing-1",
    "odd-transaction": f"/transaction?id={quote(SCRIPT)}",
    "hanging": "/transactions/hanging?minutes=15",
    "acls": "/acls",
    "users": "/users",
    "quotas": "/quotas",
    "schemas": "/schemas",
    "subject": "/subject?id=typed-value",
    "tables": "/tables",
    "audits": "/audits",
    "tiers": "/tiers",
    "topic-tiers": "/topics/old-orders/tiers",
    "not-tiered": "/topics/orders/tiers",
    "table": "/table?id=sales",
    "absent": "/topics/absent",
    "odd-absent": f"/topics/{quote(SCRIPT.partition('<script>')[0])}/messages",
    "broker": "/brokers/1",
    "changes": "/changes",
    "overview": "/",
}
REFUSED = {"absent": 404, "odd-absent": 400}
"""The statuses of pages of topics that do not exist, or cannot."""


def _picture(visitor: Visitor, kind: str, name: str, look: str) -> None:
    if PICTURES:
        visitor.page.screenshot(path=Path(PICTURES) / f"{'kafka' if kind == 'Kafka' else 'console'}-{name}-{look}.png")


def _names(bootstrap: str) -> tuple[set[str | None], set[str]]:
    """Return the topics and groups that exist."""
    with Admin(bootstrap) as admin:
        return {each.name for each in admin.describe_topics()}, {each.group_id for each in admin.list_groups()}


@pytest.fixture
def look(request: pytest.FixtureRequest) -> str:
    found: str = request.node.callspec.params["visitor"]
    return found


def test_every_page_is_readable_quiet_and_accessible(
    visitor: Visitor, url: str, cluster: RunningCluster, kind: str, look: str
) -> None:
    page = visitor.page
    visitor.visit(url + "/")
    faults: list[str] = []
    before = _names(cluster.bootstrap)
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for number, (name, address) in enumerate(PAGES.items()):
            for _ in range(10 + number * 7 % 40):
                producer.send("page-views", b'{"page": "/"}')
            producer.flush()
            status = visitor.visit(url + address)
            if status != REFUSED.get(name, 200):
                faults.append(f"{name}: status {status}: {page.inner_text('main')[:300]}")
            shift = page.evaluate(SHIFTS)
            over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            faults += [f"{name}: {fault}" for fault in page.evaluate(FAULTS)]
            if over > 0:
                faults.append(f"{name}: {over} pixels too wide")
            if shift > 0.1:
                faults.append(f"{name}: its layout shifts by {shift:.2f}")
            _picture(visitor, kind, name, look)
    assert faults == []
    refused = [each for each in visitor.wrong if "Failed to load resource" in each]
    assert (len(refused), visitor.wrong) == (len(REFUSED), refused)
    assert _names(cluster.bootstrap) == before


def test_form_to_sign_in_is_readable_and_accessible(visitor: Visitor, look: str) -> None:
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    page = visitor.page
    with _console(ConsoleSettings(cluster={"bootstrap.servers": "127.0.0.1:1", **security})) as url:
        page.goto(url + "/topics")
        for kind, label in (("Password", "User"), ("Token", "Access token")):
            page.click(f"nav.chips >> text={kind}")
            page.wait_for_selector(f"label:has-text('{label}')")
            assert page.evaluate(FAULTS) == []
            page.evaluate("document.activeElement.blur()")
            _picture(visitor, "Barnabas", f"sign-in-{kind.lower()}", look)
    assert visitor.wrong == []


def test_report_of_the_warehouse_is_shown_in_the_same_language(visitor: Visitor, tmp_path: Path, look: str) -> None:
    page = visitor.page
    _fill_warehouse(tmp_path)
    with _console(ConsoleSettings(cluster={"bootstrap.servers": "127.0.0.1:1"}, warehouse=str(tmp_path))) as url:
        page.goto(url + "/tables")
        page.click("main a[href^='/report']")
        page.wait_for_selector("h1:has-text('orders')")
        _picture(visitor, "Barnabas", "report", look)
        assert visitor.wrong == []
        page.click("text=Tables in the console")  # the scripts with which Playwright scrolls to it are blocked
        page.wait_for_selector("h1:has-text('Tables')")
    assert [each for each in visitor.wrong if "Blocked script execution" not in each] == []


@pytest.fixture
def desk(chromium: Any) -> Iterator[Visitor]:
    made = Visitor(chromium, "light")
    yield made
    made.context.close()


def test_topic_is_created_filled_followed_and_deleted_by_hand(desk: Visitor, url: str, cluster: RunningCluster) -> None:
    page = desk.page
    page.goto(url + "/topics")
    page.click("text=Create topic")
    page.fill("[name=name]", "by-hand")
    page.fill("[name=partitions]", "2")
    page.click("button:has-text('Create topic')")
    page.wait_for_selector("text=Topic by-hand was created.")
    page.click("nav.tabs >> text=Messages")
    page.wait_for_selector("text=No messages yet")
    page.click("[data-live]")
    page.wait_for_selector("[data-live][aria-pressed=true]")
    page.wait_for_timeout(500)
    taken = []
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send("by-hand", b"first").result()
        page.wait_for_selector("#rows >> text=first")
        for number in range(5):
            started = time.monotonic()
            producer.send("by-hand", b"lively-%d" % number).result()
            page.wait_for_selector(f"#rows >> text=lively-{number}")
            taken.append(time.monotonic() - started)
        print(f"live tail: {min(taken) * 1000:.0f} to {max(taken) * 1000:.0f} ms")
        producer.send("by-hand", SCRIPT.encode(), SCRIPT.encode(), headers=[(SCRIPT, SCRIPT.encode())]).result()
        page.wait_for_selector("#rows >> text=alert(2)")
    page.click("[data-live]")
    page.wait_for_selector("text=The live tail is paused.")
    page.click("nav.tabs >> text=Send")
    page.fill("[name=value]", '{"by": "hand"}')
    page.select_option("[name=value_form]", "json")
    page.click("button:has-text('Send')")
    page.wait_for_selector("text=The message is in partition")
    page.click("text=Send again")
    page.wait_for_selector("textarea >> nth=0")
    assert "hand" in page.input_value("[name=value]")
    page.goto(url + "/topics/by-hand/messages?value=lively-3")
    page.wait_for_selector("#rows >> text=lively-3")
    assert page.locator("#rows >> text=lively-2").count() == 0
    page.goto(url + "/topics/by-hand/manage")
    page.fill("form[action$='/delete'] [name=name]", "by-hand")
    page.click("form[action$='/delete'] button")
    page.wait_for_selector("text=Topic by-hand was deleted.")
    assert desk.wrong == []


def test_topic_with_a_script_as_its_name_is_refused_as_text(desk: Visitor, url: str) -> None:
    page = desk.page
    page.goto(url + "/create-topic")
    page.fill("[name=name]", SCRIPT)
    page.evaluate("document.querySelector('main form').noValidate = true")
    page.click("button:has-text('Create topic')")
    assert "alert(1)" in page.inner_text(".notice.bad")
    assert [each for each in desk.wrong if "400 (Bad Request)" not in each] == []


def test_killed_broker_is_said_on_the_pages_and_the_live_tail_continues(
    desk: Visitor, kind: str, tmp_path: Path
) -> None:
    page = desk.page
    with CLUSTERS[kind](tmp_path) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("orders", partitions=1)
        other = desk.context.new_page()
        with _console(ConsoleSettings(cluster={"bootstrap.servers": running.bootstrap, **QUICK})) as url:
            other.goto(url + "/")
            other.wait_for_selector("text=broker")
            page.goto(url + "/topics/orders/messages")
            page.click("[data-live]")
            page.wait_for_selector("#live-state:has-text('Waiting for messages')")
            page.wait_for_timeout(500)
            with Producer(running.bootstrap, linger_ms=0) as producer:
                producer.send("orders", b"before").result()
            page.wait_for_selector("#rows >> text=before")
            running.kill()
            page.wait_for_selector("#live-state:has-text('No messages come now')")
            _picture(desk, kind, "tail", "light")
            other.goto(url + "/topics/none/messages")
            other.wait_for_selector("text=No answer")
            other.goto(url + "/")
            other.wait_for_selector("text=the cluster does not answer now")
            running.restart()
            page.wait_for_selector("#live-state:has-text('1 since')")
            with Producer(running.bootstrap, linger_ms=0) as producer:
                producer.send("orders", b"after").result()
            page.wait_for_selector("#rows >> text=after")
            page.wait_for_selector("#live-state:has-text('2 since')")
            other.goto(url + "/")
            other.wait_for_selector(".age:not(:has(.bad))")
    assert desk.wrong == []


def test_search_by_its_key_and_theme_are_remembered(desk: Visitor, url: str) -> None:
    page = desk.page
    page.goto(url + "/topics")
    page.keyboard.press("/")
    page.keyboard.type("pay")
    page.wait_for_selector("#list >> text=1 of 1 topics")
    assert page.url.endswith("q=pay")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.goto(url + "/groups")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.goto(url + "/topics/orders/messages")
    assert "UTC" in page.inner_text("#rows tr:first-child time small")
    assert desk.wrong == []


def test_group_is_reset_after_a_preview_by_hand(desk: Visitor, url: str, cluster: RunningCluster) -> None:
    page = desk.page
    page.goto(url + "/groups")
    page.click("text=warehouse-load")
    page.click("text=Reset offsets")
    page.select_option("[name=to]", "earliest")
    page.click("text=Preview")
    page.wait_for_selector("text=Nothing has changed yet.")
    page.click("button:has-text('Reset 3 partitions')")
    page.wait_for_selector("text=3 offsets of warehouse-load were reset.")
    with Admin(cluster.bootstrap) as admin:
        assert {each.offset for each in admin.group_offsets("warehouse-load").values()} == {0}
    assert desk.wrong == []


def test_versions_of_a_schema_are_compared_by_hand(desk: Visitor, url: str) -> None:
    page = desk.page
    page.goto(url + "/schemas")
    page.click("text=typed-value")
    page.wait_for_selector("pre.diff ins >> text=title")
    assert desk.wrong == []


def test_tiers_say_what_the_cluster_knows(desk: Visitor, url: str, kind: str) -> None:
    page = desk.page
    page.goto(url + "/topics/old-orders/tiers")
    cells = page.inner_text("table.list tbody tr:first-child").split("\t")
    partition, _, first, local, copied, end, waiting, age, on_disk, stored = (each.strip() for each in cells)
    assert (partition, first, end) == ("0", "0", "360")
    assert 0 < int(local) <= int(copied) <= 360
    assert int(waiting) == 360 - int(copied)
    assert age
    assert on_disk.endswith("MB")
    is_known = "MB" in stored
    assert is_known == (kind == "Barnabas")
    assert ("Of the storage of Apache Kafka they cannot be known here" in page.inner_text("main")) != is_known
    assert desk.wrong == []


def test_user_sees_and_changes_what_the_acls_allow(desk: Visitor, kind: str, tmp_path: Path) -> None:
    page = desk.page
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with WITH_USERS[kind](tmp_path) as bootstrap:
        own = {"bootstrap.servers": bootstrap, **security}
        with Admin({**own, "sasl.username": "admin", "sasl.password": USERS["admin"]}) as admin:
            for name in ("of-ann", "of-others"):
                admin.create_topic(name, partitions=1)
            admin.create_acl(
                AclBinding(
                    resource_type=ResourceType.TOPIC,
                    resource_name="of-ann",
                    principal="User:ann",
                    operation=Operation.READ,
                )
            )
        with _console(ConsoleSettings(cluster=own)) as url:
            page.goto(url + "/topics")
            page.fill("[name=user]", "ann")
            page.fill("[name=password]", "wrong")
            page.click("main button:has-text('Sign in')")
            page.wait_for_selector("text=does not know this user")
            page.fill("[name=user]", "ann")
            page.fill("[name=password]", USERS["ann"])
            page.click("main button:has-text('Sign in')")
            page.wait_for_selector("#list >> text=of-ann")
            assert page.locator("text=of-others").count() == 0
            for address in ("/topics/of-others/messages", "/acls", "/topics/of-ann/settings"):
                assert desk.visit(url + address) in (403, 404), address
                assert page.evaluate(FAULTS) == []
            page.goto(url + "/topics/of-ann/messages")
            page.wait_for_selector("text=No messages yet")
            page.goto(url + "/topics/of-ann/produce")
            page.fill("[name=value]", "denied")
            page.click("button:has-text('Send')")
            page.wait_for_selector(".notice.bad:has-text('authoriz')")
            page.goto(url + "/create-topic")
            page.fill("[name=name]", "new")
            page.click("button:has-text('Create topic')")
            page.wait_for_selector(".notice.bad:has-text('authoriz')")
            _picture(desk, kind, "denied", "light")
            page.goto(url + "/changes")
            assert "create topic new" in page.inner_text("main")
            page.click("text=Sign out")
            page.wait_for_selector("[name=password]")
    assert [each for each in desk.wrong if "Failed to load resource" not in each] == []
