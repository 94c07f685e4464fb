"""The web console in a headless browser, against a live broker: every page, wide and phone, light and dark.

Pictures for docs/console.md: BARNABAS_PICTURES=docs/images pytest -m slow, and the name of this file.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.schema_registry import serving
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Message, Producer
from barnabas.console.application import ConsoleSettings
from barnabas.console.server import ConsoleServer
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
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@pytest.fixture(scope="module")
def url(broker: TestBroker) -> Iterator[str]:
    with serving(broker.bootstrap) as registry:
        _fill(broker, registry)
        cluster = {"bootstrap.servers": broker.bootstrap}
        server = ConsoleServer(ConsoleSettings(cluster=cluster, registry=registry), ("127.0.0.1", 0))
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
    "overview": "/",
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
    "broker": "/brokers/1",
    "changes": "/changes",
}


def test_every_page_is_readable_quiet_and_accessible(
    visitor: Visitor, url: str, request: pytest.FixtureRequest
) -> None:
    look = request.node.callspec.params["visitor"]
    page, folder = visitor.page, os.environ.get("BARNABAS_PICTURES")
    page.goto(url + "/")
    faults: list[str] = []
    for name, address in PAGES.items():
        page.goto(url + address)
        shift = page.evaluate(SHIFTS)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        faults += [f"{name}: {fault}" for fault in page.evaluate(FAULTS)]
        if over > 0:
            faults.append(f"{name}: {over} pixels too wide")
        if shift > 0.1:
            faults.append(f"{name}: its layout shifts by {shift:.2f}")
        if folder and (look != "phone" or name in ("overview", "messages", "groups")):
            page.screenshot(path=Path(folder) / f"console-{name}-{look}.png")
    assert faults == []
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
