"""The web console against a broker in this process: its frame, its protection, topics."""

import re
from collections.abc import Iterator

import pytest
from support.console_pages import Browser, console_of

from barnabas import Admin
from barnabas.console.application import ConsoleSettings
from barnabas.console.listening import warn_of_strangers, without_rights
from barnabas.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@pytest.fixture
def browser(broker: TestBroker) -> Iterator[Browser]:
    with console_of(broker.bootstrap) as console:
        yield console


def test_page_loads_only_own_files_without_inline_code(browser: Browser) -> None:
    page = browser.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|https?://", page.text)
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        assert browser.get(address).status_code == 200, address


def test_cookie_is_for_the_console_alone(browser: Browser) -> None:
    cookie = browser.get("/").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "set-cookie" not in browser.get("/").headers


def test_request_to_a_name_of_another_host_is_refused(broker: TestBroker) -> None:
    with console_of(broker.bootstrap, host_names=("console.example",)) as browser:
        assert browser.get("/", headers={"host": "evil.example"}).status_code == 421
        assert browser.get("/", headers={"host": "console.example:8082"}).status_code == 200
        assert browser.get("/", headers={"host": "[::1]:8082"}).status_code == 200


def test_link_on_another_site_leads_to_the_session(browser: Browser) -> None:
    browser.get("/")
    arrived = browser.get("/topics?q=a", headers={"sec-fetch-site": "cross-site", "cookie": ""})
    assert 'http-equiv="refresh" content="0; url=/topics?q=a"' in arrived.text
    assert "set-cookie" not in arrived.headers


def test_form_of_another_site_or_without_token_changes_nothing(browser: Browser, broker: TestBroker) -> None:
    form = {"name": "forged"}
    assert browser.post("/create-topic", form).status_code == 403
    assert browser.post("/create-topic", {**form, "csrf": "wrong"}).status_code == 403
    other = {"origin": "http://evil.example"}
    assert browser.send("/create-topic", form, page="/create-topic", headers=other).status_code == 403
    cross = {"sec-fetch-site": "cross-site"}
    assert browser.send("/create-topic", form, page="/create-topic", headers=cross).status_code == 403
    with Admin(broker.bootstrap) as admin:
        assert "forged" not in admin.list_topics()


def test_read_only_console_offers_and_accepts_no_change(broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("looked-at")
    with console_of(broker.bootstrap, read_only=True) as browser:
        assert "Create topic" not in browser.text("/topics")
        assert "Manage" not in browser.text("/topics/looked-at")
        refused = browser.send("/create-topic", {"name": "unwanted"}, page="/create-topic")
        assert (refused.status_code, "read-only" in refused.text) == (403, True)
    with Admin(broker.bootstrap) as admin:
        assert "unwanted" not in admin.list_topics()


def test_topic_is_created_changed_extended_and_deleted(browser: Browser, broker: TestBroker) -> None:
    form = {"name": "books", "partitions": "2", "replication": "", "settings": "retention.ms=86400000"}
    made = browser.send("/create-topic", form, page="/create-topic")
    assert "Topic books was created." in made.text
    assert "/topics/books" in browser.text("/topics")
    page = "/topics/books/settings"
    assert "default <code>log.retention" in browser.text(page)
    changed = browser.send(page, {"key": "cleanup.policy", "value": "compact"}, page=page)
    assert "cleanup.policy is compact now." in changed.text
    reset = browser.send(page, {"key": "retention.ms", "reset": "1"}, page=page)
    assert "retention.ms has its default again." in reset.text
    with Admin(broker.bootstrap) as admin:
        assert admin.topic_overrides("books") == {"cleanup.policy": "compact"}
        refused = browser.send(page, {"key": "retention.ms", "value": "soon"}, page=page)
        assert refused.status_code == 400
        assert "retention.ms" in refused.text
        browser.send("/topics/books/partitions", {"count": "3"}, page="/topics/books/manage")
        assert len(admin.describe_topic("books").partitions) == 3
        mistyped = browser.send("/topics/books/delete", {"name": "book"}, page="/topics/books/manage")
        assert "Nothing was deleted" in mistyped.text
        assert "books" in admin.list_topics()
        assert (
            "was deleted" in browser.send("/topics/books/delete", {"name": "books"}, page="/topics/books/manage").text
        )
        assert "books" not in admin.list_topics()
    changes = browser.text("/changes")
    assert "delete topic books" in changes
    assert "anonymous" in changes
    assert browser.get("/topics/books").status_code == 404


def test_topic_that_the_cluster_refuses_stays_in_the_form(browser: Browser) -> None:
    form = {"name": '"><script>alert(1)</script>', "partitions": "1", "replication": "", "settings": ""}
    refused = browser.send("/create-topic", form, page="/create-topic")
    assert refused.status_code == 400
    assert "<script>alert" not in refused.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in refused.text
    assert "&lt;script&gt;alert(1)" in browser.text("/changes")


def test_messages_of_a_topic_are_deleted_after_its_name_was_typed(browser: Browser, broker: TestBroker) -> None:
    broker.produce("emptied", [b"a", b"b"])
    assert ">2<" in re.sub(r"\s", "", browser.text("/topics/emptied"))
    browser.send("/topics/emptied/empty", {"name": "emptied"}, page="/topics/emptied/manage")
    with Admin(broker.bootstrap) as admin:
        assert admin.list_offsets({("emptied", 0): "earliest"}) == {("emptied", 0): 2}


def test_list_of_topics_is_searched_sorted_and_in_pages(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([f"many.{number:03d}" for number in range(120)])
    browser.get("/")
    browser.console.connection.snapshots.refresh()
    first = browser.text("/topics?q=MANY.")
    assert "50 of 120 topics" in first
    assert "many.000" in first
    assert "many.050" not in first
    last = browser.text("/topics?q=many.&sort=-name&page=3")
    assert "many.000" in last
    assert "120 of 120 topics" in last
    assert "No topic has" in browser.text("/topics?q=<nothing>")
    assert browser.get("/topics?q=many.&page=x&sort=nonsense").status_code == 200


def test_log_of_changes_has_one_line_for_each(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "barnabas.console"):
        form = {"name": "two\nuser root: delete everything", "partitions": "1"}
        browser.send("/create-topic", form, page="/create-topic")
    (line,) = [record.getMessage() for record in caplog.records if "create topic" in record.getMessage()]
    assert "\n" not in line
    assert line.startswith("user anonymous: create topic two user root")


def test_console_of_a_broker_gets_no_rights_of_it(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.location": "broker.pem",
        "ssl.key.password": "secret",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "secret",
    }
    left = without_rights(given)
    assert set(left) == {"security.protocol", "ssl.truststore.location", "sasl.mechanism"}
    settings = ConsoleSettings(cluster={"bootstrap.servers": "b", **left})
    assert settings.needs_sign_in
    warn_of_strangers("127.0.0.1", settings, has_tls=False)
    warn_of_strangers("0.0.0.0", settings, has_tls=False)
    warn_of_strangers("0.0.0.0", settings, has_tls=True)
    warn_of_strangers("::", ConsoleSettings(cluster={"bootstrap.servers": "b"}), has_tls=True)
    takes, acts = [record.getMessage() for record in caplog.records if record.name == "barnabas.console"]
    assert "takes passwords without TLS" in takes
    assert "acts as user anonymous" in acts


def test_looking_creates_no_topic_and_no_group(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        topics, groups = admin.list_topics(internal=True), admin.list_groups()
        for address in (
            "/",
            "/topics",
            "/topics/absent",
            "/topics/absent/settings",
            "/brokers/1",
            "/brokers/77",
            "/none",
        ):
            assert browser.get(address).status_code in (200, 404), address
        assert (admin.list_topics(internal=True), admin.list_groups()) == (topics, groups)


def test_cluster_that_does_not_answer_has_a_page() -> None:
    with console_of("127.0.0.1:1", security={"default.api.timeout.ms": "200", "request.timeout.ms": "200"}) as browser:
        page = browser.get("/")
        assert page.status_code == 503
        assert "does not answer" in page.text
