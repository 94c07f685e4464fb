"""The web console while its broker is killed and started again: each page says so, in time, and recovers."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.console_pages import Browser, console_of
from support.process import BrokerProcess, broker_process
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.process]

LIMIT_MS = 1_500
SNAPSHOTS = ("/", "/topics", "/groups", "/transactions", "/tiers", "/brokers/1")
"""Pages of figures that a thread has taken: they stay, with their age."""
ASKING = (
    "/topics/orders",
    "/topics/orders/groups",
    "/topics/orders/tiers",
    "/topics/orders/messages",
    "/topics/orders/messages?from=oldest&value=1",
    "/topics/orders/messages?where=partition%3D0",
    "/topics/orders/messages/0/3",
    "/topics/orders/messages/0/3/value",
    "/topics/orders/messages/download?from=oldest",
    "/topics/orders/producers",
    "/topics/orders/settings",
    "/topics/orders/produce",
    "/topics/orders/manage",
    "/group?id=billing",
    "/group/reset?id=billing&to=earliest",
    "/transaction?id=pay",
    "/transactions/hanging?minutes=15",
    "/users",
    "/quotas",
)
"""Pages that ask the cluster."""


@contextmanager
def _console(bootstrap: str) -> Iterator[Browser]:
    quick = {"default.api.timeout.ms": str(LIMIT_MS), "request.timeout.ms": "1000"}
    with console_of(bootstrap, security=quick) as browser:
        yield browser


def _fill(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
    with Producer(bootstrap, transactional_id="pay") as producer, producer.transaction():
        for number in range(20):
            producer.send("orders", b"%d" % number)
    with Consumer(bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        wait_for(lambda: consumer.poll(0.2) is not None)


def _is_shown(browser: Browser, address: str) -> bool:
    page = browser.get(address)
    return page.status_code == 200 and "does not answer now" not in page.text


def _is_stale(browser: Browser, address: str) -> bool:
    return "does not answer now" in browser.get(address).text


def test_pages_say_that_the_broker_was_killed_and_recover(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as broker:
        _fill(broker.bootstrap)
        with _console(broker.bootstrap) as browser:
            for address in (*SNAPSHOTS, *ASKING):
                wait_for(partial(_is_shown, browser, address))
            broker.kill()
            for address in SNAPSHOTS:
                wait_for(partial(_is_stale, browser, address), pause_s=0.2)
            for address in ASKING:
                started = time.monotonic()
                page = browser.get(address)
                assert page.status_code == 503, (address, page.text)
                assert "No answer" in page.text, address
                assert page.headers["refresh"] == "5"
                assert time.monotonic() - started < 20 * LIMIT_MS / 1000, address
            token = re.search(r'name="csrf" value="([^"]+)"', browser.text("/create-topic"))
            assert token is not None
            form = {"csrf": token[1], "name": "kept", "partitions": "1"}
            refused = browser.post("/create-topic", form)
            assert 'value="kept"' in refused.text
            again = BrokerProcess(tmp_path / "data", listen=(f"kafka://{broker.bootstrap}",))
            try:
                for address in (*ASKING, *SNAPSHOTS):
                    wait_for(partial(_is_shown, browser, address), pause_s=0.2)
                assert "Topic kept was created." in browser.send("/create-topic", form, page="/create-topic").text
            finally:
                again.stop()
