"""Groups and transactions in the web console, against a broker in this process."""

import re
from collections.abc import Iterator

import pytest
from support.console_pages import Browser, console_of
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer, ShareConsumer
from barnabas.console.connection import LagHistory
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("orders", partitions=2)
        for partition in (0, 1):
            running.produce("orders", [b"%d" % number for number in range(10)], partition=partition)
        yield running


@pytest.fixture
def browser(broker: TestBroker) -> Iterator[Browser]:
    with console_of(broker.bootstrap) as console:
        yield console


def _commit(broker: TestBroker, group: str, **offsets: int) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {("orders", int(name[1:])): offset for name, offset in offsets.items()})


def test_groups_are_listed_with_state_lag_and_age(browser: Browser, broker: TestBroker) -> None:
    _commit(broker, "late", p0=2, p1=10)
    _commit(broker, "<b>bold</b>/..", p0=10, p1=10)
    page = browser.text("/groups")
    row = re.search(r"<tr><td class=\"named\"><a href=\"/group\?id=late\">.*?</tr>", page, re.DOTALL)
    assert row is not None
    assert ">8</td>" in row[0]
    assert "Empty" in row[0]
    assert "orders" in row[0]
    assert "<b>bold" not in page
    assert "/group?id=%3Cb%3Ebold%3C%2Fb%3E%2F.." in page
    assert "bold" in browser.text("/group?id=%3Cb%3Ebold%3C%2Fb%3E%2F..")
    assert "No group like that" in browser.text("/groups?q=none-of-this")
    assert "late" in browser.text("/groups?state=Empty&type=classic&sort=-late")
    assert "late" in browser.text("/topics/orders/groups")
    assert browser.get("/group?id=absent").status_code == 404
    assert browser.get("/group").status_code == 404


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_are_shown_with_their_partitions(
    browser: Browser, broker: TestBroker, protocol: str
) -> None:
    group = f"reading-{protocol}"
    with Consumer(
        broker.bootstrap, group_id=group, group_protocol=protocol, auto_offset_reset="earliest", client_id="reader-7"
    ) as consumer:
        consumer.subscribe(["orders"])
        wait_for(lambda: consumer.poll(0.1) is not None and len(consumer.assignment) == 2)
        page = browser.text(f"/group?id={group}")
        assert "reader-7" in page
        assert f"{protocol} group" in page
        assert "Stable" in page
        refused = browser.get(f"/group/reset?id={group}&to=earliest&topic=orders")
        assert (refused.status_code, "Stop its members first" in refused.text) == (400, True)


def test_share_group_shows_what_is_in_flight(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_configs(ResourceKind.GROUP, "shared", {"share.auto.offset.reset": "earliest"})
    with ShareConsumer(broker.bootstrap, group_id="shared", client_id="sharer") as consumer:
        consumer.subscribe(["orders"])
        wait_for(lambda: bool(consumer.poll(0.2)))
        page = browser.text("/group?id=shared")
        assert "share group" in page
        assert "in flight" in page
        assert "sharer" in page


def test_reset_is_previewed_for_each_partition_then_made(browser: Browser, broker: TestBroker) -> None:
    _commit(broker, "back", p0=5, p1=6)
    address = "/group/reset?id=back&to=earliest"
    preview = browser.text(address)
    assert 'name="offset:orders-0" value="0"' in preview
    with Admin(broker.bootstrap) as admin:
        assert [each.offset for each in admin.group_offsets("back").values()] == [5, 6]
        form = {"id": "back", "offset:orders-0": "3", "offset:orders-1": ""}
        done = browser.send("/group/reset", form, page=address)
        assert "1 offsets of back were reset." in done.text
        committed = {tp.partition: each.offset for tp, each in admin.group_offsets("back").items()}
        assert committed == {0: 3, 1: 6}
        for wrong in ({"id": "absent", "offset:orders-0": "1"}, {"id": "back"}, {"id": "back", "offset:orders-0": "x"}):
            assert browser.send("/group/reset", wrong, page=address).status_code == 400
        assert "absent" not in {group.group_id for group in admin.list_groups()}
    assert 'value="4"' in browser.text("/group/reset?id=back&to=shift&shift=-2&topic=orders&partitions=1")
    for wrong_address in ("to=shift&shift=x", "to=nonsense", "to=time&time=", "to=offset&offset="):
        assert browser.get(f"/group/reset?id=back&{wrong_address}").status_code == 400
    assert "reset 1 offsets of group back" in browser.text("/changes")


def test_group_is_deleted_after_its_name_was_typed(browser: Browser, broker: TestBroker) -> None:
    _commit(broker, "gone", p0=1)
    page = "/group?id=gone"
    browser.send("/group/delete", {"id": "gone", "name": "goner"}, page=page)
    browser.send("/group/delete", {"id": "gone", "topic": "absent"}, page=page)
    assert "orders" in browser.text(page)
    assert "was deleted" in browser.send("/group/delete", {"id": "gone", "name": "gone"}, page=page).text
    assert browser.get(page).status_code == 404


def test_transactions_and_producers_are_shown(browser: Browser, broker: TestBroker) -> None:
    with Producer(broker.bootstrap, transactional_id="pay-1") as producer:
        producer.begin_transaction()
        producer.send("payments", b"1", partition=0)
        producer.flush()
        assert "pay-1" in browser.text("/transactions")
        page = browser.text("/transaction?id=pay-1")
        assert "Ongoing" in page
        assert "payments 0" in page
        assert "open since" in browser.text("/topics/payments/producers")
        assert "No hanging transactions" in browser.text("/transactions/hanging?minutes=0&topic=payments")
        producer.abort_transaction()
    assert browser.get("/transaction?id=absent").status_code == 404
    assert "/transactions/hanging" in browser.text("/transactions?q=nothing")


def test_looking_at_groups_creates_none(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        before = admin.list_groups()
        for address in ("/group?id=looked-at", "/group/reset?id=looked-at", "/transaction?id=looked-at"):
            browser.get(address)
        browser.get("/group/reset?id=looked-at&to=earliest&topic=orders")
        assert admin.list_groups() == before


def test_trend_of_a_lag_is_its_change_a_second() -> None:
    history = LagHistory()
    history.add(0, {"a": 100})
    assert history.trend("a") is None
    history.add(10_000, {"a": 50, "b": None})
    trend = history.trend("a")
    assert trend is not None
    assert (trend.rate, trend.gone_in_s) == (-5, 10)
    assert history.trend("b") is None
    assert history.trend("c") is None
    for number in range(100):
        history.add(20_000 + number * 1000, {"b": number})
    assert history.points("a") == []
    assert len(history.points("b")) == 60
    grown = history.trend("b")
    assert grown is not None
    assert (grown.rate, grown.gone_in_s) == (1, None)
