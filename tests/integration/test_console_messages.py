"""The messages of a topic in the web console, against a broker in this process."""

import io
import json
import re
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from support.console_pages import Browser, console_of

from barnabas import Admin, Consumer, Message, Producer
from barnabas.testing import TestBroker

FIRST_MS = (time.time_ns() // 3_600_000_000_000 - 1) * 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("orders", partitions=3)
            admin.create_topic("odd", partitions=1)
        with Producer(running.bootstrap) as producer:
            for number in range(300):
                value = json.dumps({"id": number, "user": {"name": f"user-{number % 7}"}, "tags": ["a", number]})
                producer.send(
                    "orders",
                    value.encode(),
                    f"key-{number % 10}".encode(),
                    partition=number % 3,
                    headers=[("trace", f"t-{number}".encode())],
                    timestamp_ms=FIRST_MS + number * 1000,
                )
        yield running


@pytest.fixture
def browser(broker: TestBroker) -> Iterator[Browser]:
    with console_of(broker.bootstrap) as console:
        yield console


def _ids(page: str) -> list[int]:
    return [int(number) for number in re.findall(r"&#34;id&#34;: (\d+)", page)]


def test_newest_messages_come_first_and_older_ones_follow(browser: Browser) -> None:
    address, seen = "/topics/orders/messages?limit=25", list[int]()
    for _ in range(12):
        page = browser.text(address)
        seen += _ids(page)
        older = re.search(r'href="([^"]*at=[^"]*)"', page)
        address = older[1].replace("&amp;", "&") if older else ""
        if not address:
            break
    assert seen == list(reversed(range(300)))
    assert not address


def test_pages_have_each_message_once_whatever_its_time(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("unordered", partitions=3)
    with Producer(broker.bootstrap) as producer:
        for number in range(90):
            value, time_ms = json.dumps({"id": number}), FIRST_MS + number * 37 % 90
            producer.send("unordered", value.encode(), partition=number % 3, timestamp_ms=time_ms)
    with Producer(broker.bootstrap, transactional_id="t-3") as producer, producer.transaction():
        producer.send("unordered", b'{"id": 90}', partition=0, timestamp_ms=1)
    address, pages = "/topics/unordered/messages?limit=7", list[list[int]]()
    while address and len(pages) < 20:
        page = browser.text(address)
        pages.append(_ids(page))
        older = re.search(r'href="([^"]*at=[^"]*)"', page)
        address = older[1].replace("&amp;", "&") if older else ""
    assert [len(page) for page in pages] == [7] * 13
    assert sorted(number for page in pages for number in page) == list(range(91))


def test_message_with_an_old_time_is_among_the_newest_and_hides_none(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("late", partitions=2, configs={"message.timestamp.after.max.ms": str(10**12)})
    now_ms = time.time_ns() // 1_000_000
    sent = [
        *((number, 0, FIRST_MS + number) for number in range(30)),
        *((number, 1, FIRST_MS + 1000 + number) for number in range(30, 60)),
        (60, 0, FIRST_MS + 5000),
        (61, 0, 1),  # appended last, with a time of 1970
        (62, 1, now_ms + 10**11),  # and one of the far future
        (63, 1, FIRST_MS + 4000),
    ]
    with Producer(broker.bootstrap) as producer:
        for number, partition, time_ms in sent:
            value = json.dumps({"id": number}).encode()
            producer.send("late", value, partition=partition, timestamp_ms=time_ms)
    newest = _ids(browser.text("/topics/late/messages?limit=25"))
    assert newest[:4] == [61, 60, 63, 62]
    assert newest[4:] == list(range(59, 38, -1))
    oldest = _ids(browser.text("/topics/late/messages?from=oldest&limit=100"))
    assert oldest[-4:] == [62, 63, 60, 61]
    assert oldest[:-4] == list(range(60))


def test_messages_from_the_beginning_continue_to_the_end(browser: Browser) -> None:
    address, seen = "/topics/orders/messages?from=oldest&limit=100", list[int]()
    for _ in range(4):
        page = browser.text(address)
        seen += _ids(page)
        following = re.search(r'href="([^"]*at=[^"]*)"', page)
        if following is None:
            break
        address = following[1].replace("&amp;", "&")
    assert sorted(seen) == list(range(300))


def test_messages_of_an_offset_and_of_a_time(browser: Browser) -> None:
    page = browser.text("/topics/orders/messages?from=offset&offset=90&partition=1")
    assert _ids(page) == [3 * number + 1 for number in range(90, 100)]
    page = browser.text(f"/topics/orders/messages?from=time&time={FIRST_MS + 290_000}")
    assert sorted(_ids(page)) == list(range(290, 300))
    wrong = browser.get("/topics/orders/messages?from=time&time=yesterday")
    assert (wrong.status_code, "an age such as 2h" in wrong.text) == (400, True)
    assert browser.get("/topics/orders/messages?from=offset&offset=x").status_code == 400
    assert "No messages from there on" in browser.text("/topics/orders/messages?from=offset&offset=999999")
    assert browser.get("/topics/orders/messages?partition=9").status_code == 404


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("key=key-3&value=user-4", [53, 123, 193, 263]),
        ("header=trace%3Dt-29", [29, *range(290, 300)]),
        ("path=$.user.name+%3D+user-0&key=key-0", [0, 70, 140, 210, 280]),
        ("path=$.tags[1]+%3E+297", [298, 299]),
        ("path=$.tags[*]+%3D+5", [5]),
        ("path=$.none", []),
        ("where=CAST(value-%3E%3E'$.id'+AS+INT)+%3C+4", [0, 1, 2, 3]),
        ("where=(value-%3E%3E'$.id')::INT+%3C+4+AND+key+LIKE+'key-1%25'", [1]),
        ("where=partition%3D1+AND+%22offset%22%3D7", [22]),
    ],
)
def test_filter_finds_the_messages_that_match(browser: Browser, condition: str, ids: list[int]) -> None:
    for start in ("newest", "oldest"):
        assert sorted(_ids(browser.text(f"/topics/orders/messages?from={start}&{condition}"))) == ids


def test_example_of_an_sql_condition_in_the_form_works(browser: Browser) -> None:
    address = "/topics/orders/messages?limit=500"
    found = re.search(r'name="where".*? placeholder="(.*?)" class="mono"', browser.text(address))
    assert found is not None
    example = quote(found[1].replace("price", "id").replace("a%", "key-1%"))
    assert sorted(_ids(browser.text(f"{address}&where={example}"))) == list(range(11, 300, 10))


@pytest.mark.parametrize(
    "condition",
    [
        "where=nonsense(",
        "where=(SELECT+count(*)+FROM+read_csv('/etc/passwd'))%3E0",
        "where=1%3D1);+SET+enable_external_access%3Dtrue;+SELECT+(1",
        "path=$.a.[b",
    ],
)
def test_filter_that_is_refused_says_why(browser: Browser, condition: str) -> None:
    page = browser.get(f"/topics/orders/messages?{condition}")
    assert page.status_code == 400
    assert 'role="alert"' in page.text


def test_one_message_has_its_page_and_its_bytes(browser: Browser) -> None:
    page = browser.text("/topics/orders/messages/1/7")
    assert "user-1" in page
    assert "t-22" in page
    assert ":00:22.000" in page
    assert "/topics/orders/messages/1/6" in page
    assert "00000010  22 3a 20 7b" in browser.text("/topics/orders/messages/1/7?as=hex")
    value = browser.get("/topics/orders/messages/1/7/value")
    assert value.json()["id"] == 22
    assert value.headers["content-type"] == "application/octet-stream"
    assert "attachment" in value.headers["content-disposition"]
    assert browser.get("/topics/orders/messages/1/7777").status_code == 404
    assert browser.get("/topics/orders/messages/9/0").status_code == 404


def test_scripts_in_keys_values_headers_are_text(browser: Browser, broker: TestBroker) -> None:
    script = b"</td><script>alert(1)</script><img src=x onerror=alert(1)>"
    broker.produce("odd", [Message(script, script, ((script.decode(), script), ("hx-get", b"/x")))])
    with Admin(broker.bootstrap) as admin:
        last = admin.list_offsets({("odd", 0): "latest"})
    (end,) = last.values()
    for address in (
        "/topics/odd/messages",
        f"/topics/odd/messages/0/{end - 1}",
        f"/topics/odd/produce?from=0-{end - 1}",
    ):
        page = browser.text(address)
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_large_binary_empty_and_null_values_are_shown(browser: Browser, broker: TestBroker) -> None:
    large = json.dumps({"text": "x" * 900_000}).encode()
    values = [large, bytes(range(256)), b"", Message(None, b"gone"), b"\xff\xfe"]
    first = next(delivery.offset for delivery in broker.produce("odd", values))
    page = browser.text("/topics/odd/messages")
    assert len(page) < 60_000
    assert "tombstone" in page
    assert "000102" in page
    shown = browser.text(f"/topics/odd/messages/0/{first}")
    assert len(shown) < 300_000
    assert "All bytes" in shown
    assert len(browser.get(f"/topics/odd/messages/0/{first}/value").content) == len(large)
    assert "00000010  10 11 12" in browser.text(f"/topics/odd/messages/0/{first + 1}")


@pytest.mark.slow
def test_json_that_nests_deep_or_has_surrogates_is_shown(browser: Browser, broker: TestBroker) -> None:
    values = [
        b"[" * 900 + b"]" * 900,
        b"[" * 100_000,
        b'{"a": "\\ud800"}',
        b"9" * 5000,
        b'{"n": NaN}',
        b"[" + b"9" * 5000 + b"]",
    ]
    first = next(delivery.offset for delivery in broker.produce("odd", values))
    assert browser.text("/topics/odd/messages?path=$.a")
    for number in range(len(values)):
        for form in ("auto", "json", "text", "hex"):
            assert browser.text(f"/topics/odd/messages/0/{first + number}?as={form}")
        assert browser.text(f"/topics/odd/produce?from=0-{first + number}")
    assert browser.get("/topics/odd/messages/download?limit=6").status_code == 200


def test_transactions_are_marked_and_control_records_shown_on_request(browser: Browser, broker: TestBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("bills", partitions=1)
    with Producer(broker.bootstrap, transactional_id="t-1") as producer:
        with producer.transaction():
            producer.send("bills", b"paid")
        producer.begin_transaction()
        producer.send("bills", b"withdrawn")
        producer.flush()
        producer.abort_transaction()
    page = browser.text("/topics/bills/messages")
    assert "transaction committed" in page
    assert "transaction aborted" in page
    assert "control record</span>" not in page
    page = browser.text("/topics/bills/messages?control=1")
    assert "commit of a transaction" in page
    assert "abort of a transaction" in page
    assert "commit" in browser.text("/topics/bills/messages/0/1")


def test_internal_topics_are_readable(browser: Browser, broker: TestBroker) -> None:
    with Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(10.0) is not None
        consumer.commit()
    page = browser.text("/topics/__consumer_offsets/messages?value=&key=orders")
    assert "&#34;group&#34;: &#34;readers&#34;" in page
    with Producer(broker.bootstrap, transactional_id="t-2") as producer, producer.transaction():
        producer.send("invoices", b"{}")
    assert "&#34;transactional_id&#34;: &#34;t-2&#34;" in browser.text("/topics/__transaction_state/messages")


def test_parquet_file_that_cannot_be_written_has_a_page(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    failed = browser.get("/topics/orders/messages/download?format=parquet")
    assert (failed.status_code, "was not written" in failed.text) == (502, True)


@pytest.mark.slow
def test_messages_are_downloaded_as_ndjson_csv_and_parquet(browser: Browser) -> None:
    from pyarrow import parquet

    address = "/topics/orders/messages/download?from=offset&offset=40&partition=2&limit=50"
    lines = [json.loads(line) for line in browser.get(address).text.splitlines()]
    assert [line["offset"] for line in lines] == list(range(40, 90))
    assert lines[0]["value"] == {"id": 122, "user": {"name": "user-3"}, "tags": ["a", 122]}
    assert lines[0]["headers"] == [["trace", "t-122"]]
    rows = browser.get(f"{address}&format=csv").text.splitlines()
    assert len(rows) == 51
    assert rows[1].startswith(f'orders,2,40,{FIRST_MS + 122_000},key-2,"{{""id"": 122')
    table = parquet.read_table(io.BytesIO(browser.get(f"{address}&format=parquet").content))
    assert table.column("offset").to_pylist() == list(range(40, 90))
    newest = browser.get("/topics/orders/messages/download?limit=2&key=key-9").text.splitlines()
    assert len(newest) == 2


def test_message_is_sent_and_sent_again(browser: Browser, broker: TestBroker) -> None:
    page = "/topics/sent/produce"
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("sent", partitions=2)
    form = {"key": "k", "key_form": "text", "value": '{"a": 1}', "value_form": "json", "headers": "trace: 1\nx: y:z"}
    done = browser.send(page, {**form, "partition": "1"}, page=page)
    assert "partition 1 at offset 0" in done.text
    (message,) = broker.produced("sent")
    assert (message.key, message.value, message.headers) == (b"k", b'{"a": 1}', (("trace", b"1"), ("x", b"y:z")))
    again = browser.text("/topics/sent/produce?from=1-0")
    assert "&#34;a&#34;: 1" in again
    assert "trace: 1" in again
    for wrong in ({"value": "{", "value_form": "json"}, {"value": "0x", "value_form": "hex"}, {"headers": "none"}):
        refused = browser.send(page, {**form, **wrong}, page=page)
        assert refused.status_code == 400
    assert "at offset" in browser.send(page, {"value_form": "null", "key": "6b", "key_form": "hex"}, page=page).text
    assert len(broker.produced("sent")) == 2
    assert browser.get("/topics/absent/produce").status_code == 404


def test_live_tail_sends_rows_as_messages_arrive(broker: TestBroker) -> None:
    import threading
    import urllib.request

    from barnabas.console.application import ConsoleSettings
    from barnabas.console.server import ConsoleServer

    with Admin(broker.bootstrap) as admin:
        admin.create_topic("lively", partitions=2)
    server = ConsoleServer(ConsoleSettings(cluster={"bootstrap.servers": broker.bootstrap}), ("127.0.0.1", 0))
    url = server.start()
    try:
        with urllib.request.urlopen(f"{url}/topics/lively/messages/live?value=wanted", timeout=30) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            assert [events.readline() for _ in range(4)][1] == b"event: ready\n"
            thread = threading.Thread(target=broker.produce, args=("lively", [b"other", b"wanted <b>"]))
            thread.start()
            lines = [events.readline().decode() for _ in range(3)]
            thread.join()
        assert lines[0].startswith("id: ")
        assert lines[1] == "event: rows\n"
        sent = json.loads(lines[2].removeprefix("data: "))
        assert "wanted &lt;b&gt;" in sent["html"]
        assert "other" not in sent["html"]
        assert sent["skipped"] == 0
    finally:
        server.stop()
