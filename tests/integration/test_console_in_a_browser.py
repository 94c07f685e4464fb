"""The web console in a headless browser, against a live broker: every page, wide and phone, light and dark.

Pictures for docs/console.md: BARNABAS_PICTURES=docs/images pytest -m slow, and the name of this file.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.process import BrokerProcess, broker_process
from support.schema_registry import serving
from support.tables import Rows, commit_rows
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Message, Producer, TopicPartition
from barnabas.console.application import ConsoleSettings
from barnabas.console.server import ConsoleServer
from barnabas.pipeline.report import page as report
from barnabas.pipeline.tables.formats import open_store
from barnabas.ports.broker_api.offsets import EARLIEST_LOCAL
from barnabas.schemas import AvroEncoder
from barnabas.testing import TestBroker

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install playwright")

AXE = Path(__file__).parents[1] / "support" / "axe" / "axe.min.js"
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LOOKS = {"light": (1280, 860, "light"), "dark": (1280, 860, "dark"), "phone": (375, 780, "light")}
SHIFTS = """() => new Promise(done => {
  let sum = 0;
  const add = list => list.getEntries().forEach(entry => { if (!entry.hadRecentInput) sum += entry.value; });
  new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: true });
  setTimeout(() => done(sum), 200);
})"""
FAULTS = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => each.id + ': ' + each.nodes.slice(0, 3)
    .map(node => node.html.slice(0, 160) + ' ' + node.failureSummary).join(' | '))"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{tmp_path_factory.mktemp('remote')}"


@pytest.fixture(scope="module")
def broker(remote: str) -> Iterator[TestBroker]:
    tiered = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": remote,
        "remote.log.manager.task.interval.ms": "50",
        "log.retention.check.interval.ms": "50",
    }
    with TestBroker(tiered) as running:
        yield running


@pytest.fixture(scope="module")
def url(broker: TestBroker, remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lake = tmp_path_factory.mktemp("lake")
    with serving(broker.bootstrap) as registry:
        _fill(broker, registry)
        _fill_warehouse(lake)
        settings = ConsoleSettings(
            cluster={"bootstrap.servers": broker.bootstrap},
            registry=registry,
            warehouse=str(lake),
            remote_storage=remote,
        )
        server = ConsoleServer(settings, ("127.0.0.1", 0))
        try:
            yield server.start()
        finally:
            server.stop()


def _fill(broker: TestBroker, registry: str) -> None:
    with Admin(broker.bootstrap) as admin:
        for name, partitions in (("orders", 3), ("payments", 6), ("page-views", 12), ("odd", 1), ("typed", 1)):
            admin.create_topic(name, partitions=partitions)
        admin.alter_topic_configs("orders", {"retention.ms": "604800000", "cleanup.policy": "delete"})
    books = ("Emma", "Ulysses", "Middlemarch", "Nostromo", "Kim")
    with Producer(broker.bootstrap) as producer:
        for number in range(240):
            order = {
                "id": number,
                "title": books[number % 5],
                "price": number % 40 + 5,
                "user": {"name": f"user-{number % 9}"},
            }
            topic = ("orders", "payments", "page-views")[number % 3]
            producer.send(
                topic, json.dumps(order).encode(), f"order-{number}".encode(), headers=[("trace", b"%08x" % number)]
            )
    broker.produce(
        "odd",
        [Message(SCRIPT.encode(), SCRIPT.encode(), ((SCRIPT, SCRIPT.encode()),)), bytes(range(64)), b"x" * 900_000],
    )
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    with Producer(broker.bootstrap, encoder=AvroEncoder(registry, schema)) as typed:
        typed.send("typed", {"id": 1})
    schema["fields"].append({"name": "title", "type": "string", "default": ""})  # type: ignore[attr-defined]
    with Producer(broker.bootstrap, encoder=AvroEncoder(registry, schema)) as typed:
        typed.send("typed", {"id": 2, "title": "Emma"})
    with Producer(broker.bootstrap, transactional_id="billing-1") as paying, paying.transaction():
        paying.send("payments", b'{"paid": true}')
    for group, rest in (("billing", 12), ("warehouse-load", 0), (SCRIPT, 3)):
        with Consumer(broker.bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            wait_for(lambda: consumer.poll(0.2) is not None)
        with Admin(broker.bootstrap) as admin:
            ends = admin.list_offsets({("orders", number): "latest" for number in range(3)})
            admin.alter_group_offsets(group, {place: max(0, end - rest) for place, end in ends.items()})

    _fill_tiers(broker)
    with Producer(broker.bootstrap, callback_handler="audit") as audited:
        for number in range(5):
            audited.send("payments", b'{"counted": %d}' % number)


def _fill_tiers(broker: TestBroker) -> None:
    tiered = {"remote.storage.enable": "true", "segment.bytes": "20000", "local.retention.bytes": "60000"}
    with Admin(broker.bootstrap) as admin:
        for name, partitions in (("old-orders", 3), ("old-clicks", 1)):
            admin.create_topic(name, partitions=partitions, configs={**tiered, "file.delete.delay.ms": "0"})
    with Producer(broker.bootstrap, linger_ms=0) as producer:
        for number in range(600):
            producer.send("old-orders", b'{"id": %06d}' % number * 20, partition=number % 10 // 6)
            if number % 10 == 9:
                producer.flush()
    place = TopicPartition("old-orders", 0)
    with Admin(broker.bootstrap) as admin:
        wait_for(lambda: admin.list_offsets({place: EARLIEST_LOCAL})[place] > 0, pause_s=0.1)


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


class Visitor:
    """A page of the browser that notes what goes wrong in it."""

    def __init__(self, chromium: Any, look: str) -> None:
        width, height, scheme = LOOKS[look]
        self.context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="Europe/Berlin"
        )
        self.context.add_init_script(path=AXE)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.wrong: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self._check(request.url))

    def _note(self, line: Any) -> None:
        if line.type in ("error", "warning"):
            self.wrong.append(line.text)

    def _dismiss(self, dialog: Any) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _check(self, address: str) -> None:
        if not address.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.wrong.append(f"a request to {address}")


@pytest.fixture(params=LOOKS)
def visitor(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    made = Visitor(chromium, request.param)
    yield made
    made.context.close()


PAGES = {
    "topics": "/topics",
    "create-topic": "/create-topic",
    "messages": "/topics/orders/messages?path=$.title+%3D+Emma",
    "odd-messages": "/topics/odd/messages",
    "message": "/topics/orders/messages/0/3",
    "odd-message": "/topics/odd/messages/0/0",
    "typed-messages": "/topics/typed/messages",
    "no-messages": "/topics/orders/messages?key=none-like-this",
    "partitions": "/topics/orders",
    "topic-groups": "/topics/orders/groups",
    "producers": "/topics/payments/producers",
    "settings": "/topics/orders/settings",
    "produce": "/topics/orders/produce",
    "manage": "/topics/orders/manage",
    "groups": "/groups",
    "group": "/group?id=billing",
    "reset": "/group/reset?id=billing&to=shift&shift=-5",
    "transactions": "/transactions",
    "transaction": "/transaction?id=billing-1",
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
    "broker": "/brokers/1",
    "changes": "/changes",
    "overview": "/",
}


def test_every_page_is_readable_quiet_and_accessible(
    visitor: Visitor, url: str, broker: TestBroker, request: pytest.FixtureRequest
) -> None:
    look = request.node.callspec.params["visitor"]
    page, folder = visitor.page, os.environ.get("BARNABAS_PICTURES")
    page.goto(url + "/")
    faults: list[str] = []
    for number, (name, address) in enumerate(PAGES.items()):
        broker.produce("page-views", [b'{"page": "/"}'] * (10 + number * 7 % 40))
        page.goto(url + address)
        shift = page.evaluate(SHIFTS)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        faults += [f"{name}: {fault}" for fault in page.evaluate(FAULTS)]
        if over > 0:
            faults.append(f"{name}: {over} pixels too wide")
        if shift > 0.1:
            faults.append(f"{name}: its layout shifts by {shift:.2f}")
        if folder:
            page.screenshot(path=Path(folder) / f"console-{name}-{look}.png")
    visitor.wrong = [each for each in visitor.wrong if "404 (Not Found)" not in each]  # of the page that is absent
    assert faults == []
    assert visitor.wrong == []


def test_form_to_sign_in_is_readable_and_accessible(visitor: Visitor, request: pytest.FixtureRequest) -> None:
    look = request.node.callspec.params["visitor"]
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    settings = ConsoleSettings(cluster={"bootstrap.servers": "127.0.0.1:1", **security})
    server = ConsoleServer(settings, ("127.0.0.1", 0))
    page, folder = visitor.page, os.environ.get("BARNABAS_PICTURES")
    try:
        page.goto(server.start() + "/topics")
        for kind, label in (("Password", "User"), ("Token", "Access token")):
            page.click(f"nav.chips >> text={kind}")
            page.wait_for_selector(f"label:has-text('{label}')")
            assert page.evaluate(FAULTS) == []
            page.evaluate("document.activeElement.blur()")
            if folder:
                page.screenshot(path=Path(folder) / f"console-sign-in-{kind.lower()}-{look}.png")
    finally:
        server.stop()
    assert visitor.wrong == []


def test_report_of_the_warehouse_is_shown_in_the_same_language(
    visitor: Visitor, url: str, request: pytest.FixtureRequest
) -> None:
    look = request.node.callspec.params["visitor"]
    page, folder = visitor.page, os.environ.get("BARNABAS_PICTURES")
    page.goto(url + "/tables")
    page.click("main a[href^='/report']")
    page.wait_for_selector("h1:has-text('orders')")
    if folder:
        page.screenshot(path=Path(folder) / f"console-report-{look}.png")
    assert visitor.wrong == []


@pytest.fixture
def desk(chromium: Any) -> Iterator[Visitor]:
    made = Visitor(chromium, "light")
    yield made
    made.context.close()


def test_topic_is_created_filled_followed_and_deleted_by_hand(desk: Visitor, url: str, broker: TestBroker) -> None:
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
    with Producer(broker.bootstrap, linger_ms=0) as producer:
        producer.send("by-hand", b"first").result()
        page.wait_for_selector("#rows >> text=first")
        for number in range(5):
            started = time.monotonic()
            producer.send("by-hand", b"lively-%d" % number).result()
            page.wait_for_selector(f"#rows >> text=lively-{number}")
            taken.append(time.monotonic() - started)
    print(f"live tail: {min(taken) * 1000:.0f} to {max(taken) * 1000:.0f} ms")
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
    page.goto(url + "/topics/by-hand/manage")
    page.fill("form[action$='/delete'] [name=name]", "by-hand")
    page.click("form[action$='/delete'] button")
    page.wait_for_selector("text=Topic by-hand was deleted.")
    assert desk.wrong == []


def test_live_tail_says_that_the_broker_was_killed_and_continues(desk: Visitor, tmp_path: Path) -> None:
    page = desk.page
    with broker_process(tmp_path / "data") as broker:
        quick = {"default.api.timeout.ms": "1500", "request.timeout.ms": "1000"}
        settings = ConsoleSettings(cluster={"bootstrap.servers": broker.bootstrap, **quick})
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=1)
        server = ConsoleServer(settings, ("127.0.0.1", 0))
        try:
            page.goto(server.start() + "/topics/orders/messages")
            page.click("[data-live]")
            page.wait_for_selector("#live-state:has-text('Waiting for messages')")
            page.wait_for_timeout(500)
            with Producer(broker.bootstrap, linger_ms=0) as producer:
                producer.send("orders", b"before").result()
            page.wait_for_selector("#rows >> text=before")
            broker.kill()
            page.wait_for_selector("#live-state:has-text('No messages come now')")
            if "BARNABAS_PICTURES" in os.environ:
                page.screenshot(path=Path(os.environ["BARNABAS_PICTURES"]) / "console-tail-light.png")
            again = BrokerProcess(tmp_path / "data", listen=(f"kafka://{broker.bootstrap}",))
            try:
                page.wait_for_selector("#live-state:has-text('1 since')")
                with Producer(broker.bootstrap, linger_ms=0) as producer:
                    producer.send("orders", b"after").result()
                page.wait_for_selector("#rows >> text=after")
                page.wait_for_selector("#live-state:has-text('2 since')")
            finally:
                again.stop()
        finally:
            server.stop()
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


def test_group_is_reset_after_a_preview_by_hand(desk: Visitor, url: str, broker: TestBroker) -> None:
    page = desk.page
    page.goto(url + "/groups")
    page.click("text=warehouse-load")
    page.click("text=Reset offsets")
    page.select_option("[name=to]", "earliest")
    page.click("text=Preview")
    page.wait_for_selector("text=Nothing has changed yet.")
    page.click("button:has-text('Reset 3 partitions')")
    page.wait_for_selector("text=3 offsets of warehouse-load were reset.")
    with Admin(broker.bootstrap) as admin:
        assert {each.offset for each in admin.group_offsets("warehouse-load").values()} == {0}
    assert desk.wrong == []


def test_stopped_broker_is_said_on_the_pages(desk: Visitor) -> None:
    with TestBroker() as broker:
        settings = ConsoleSettings(cluster={"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": "1500"})
        server = ConsoleServer(settings, ("127.0.0.1", 0))
        url = server.start()
        try:
            desk.page.goto(url + "/")
            desk.page.wait_for_selector("text=broker")
            stopping = threading.Thread(target=broker.stop)
            stopping.start()
            stopping.join()
            desk.page.goto(url + "/topics/none/messages")
            desk.page.wait_for_selector("text=No answer")
            desk.page.goto(url + "/")
            desk.page.wait_for_selector("text=the cluster does not answer now")
            broker.start()
            desk.page.goto(url + "/")
            desk.page.wait_for_selector(".age:not(:has(.bad))")
        finally:
            server.stop()
