"""The web console against Apache Kafka: it needs nothing that only Barnabas has."""

import json
from collections.abc import Iterator

import pytest
from support.console_pages import Browser, console_of
from support.kafka_server import KafkaServer
from support.waiting import wait_for

from barnabas import Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def browser(kafka: KafkaServer) -> Iterator[Browser]:
    with console_of(kafka.bootstrap) as console:
        yield console


def test_topic_is_created_read_and_deleted_at_kafka(browser: Browser) -> None:
    page = "/create-topic"
    made = browser.send(page, {"name": "books", "partitions": "2", "settings": "retention.ms=604800000"}, page=page)
    assert "Topic books was created." in made.text
    sent = browser.send(
        "/topics/books/produce",
        {"key": "k", "key_form": "text", "value": '{"title": "Emma"}', "value_form": "json", "headers": "a: b"},
        page="/topics/books/produce",
    )
    assert "The message is in partition" in sent.text
    assert "Emma" in browser.text("/topics/books/messages?path=$.title+%3D+Emma")
    assert json.loads(browser.get("/topics/books/messages/download").text)["key"] == "k"
    assert "retention.ms" in browser.text("/topics/books/settings")
    assert ">1</td>" in browser.text("/topics/books")
    for address in ("/", "/topics?internal=1", "/brokers/1", "/topics/books/producers", "/users", "/quotas", "/tiers"):
        assert browser.text(address)
    assert "not in use" in browser.text("/acls")
    deleted = browser.send("/topics/books/delete", {"name": "books"}, page="/topics/books/manage")
    assert "was deleted" in deleted.text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_kafka_are_shown_and_reset(browser: Browser, kafka: KafkaServer, protocol: str) -> None:
    topic, group = f"orders-{protocol}", f"billing-{protocol}"
    browser.send("/create-topic", {"name": topic, "partitions": "1"}, page="/create-topic")
    with Producer(kafka.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    with Consumer(
        kafka.bootstrap, group_id=group, group_protocol=protocol, auto_offset_reset="earliest", client_id="reader"
    ) as consumer:
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(0.5) is not None)
        consumer.commit()
        page = browser.text(f"/group?id={group}")
        assert "Stable" in page
        assert f"{protocol} group" in page
        assert "reader" in page
    wait_for(lambda: "Empty" in browser.text(f"/group?id={group}"))
    address = f"/group/reset?id={group}&to=latest"
    assert 'value="10"' in browser.text(address)
    reset = browser.send("/group/reset", {"id": group, f"offset:{topic}-0": "10"}, page=address)
    assert "were reset" in reset.text
    assert group in browser.text("/groups")
    assert "&#34;group&#34;" in browser.text("/topics/__consumer_offsets/messages")


def test_transactions_of_kafka_are_shown(browser: Browser, kafka: KafkaServer) -> None:
    browser.send("/create-topic", {"name": "bills", "partitions": "1"}, page="/create-topic")
    with Producer(kafka.bootstrap, transactional_id="pay-1") as producer, producer.transaction():
        producer.send("bills", b"paid")
        producer.flush()
        assert "Ongoing" in browser.text("/transaction?id=pay-1")
    address = "/topics/bills/messages?control=1"
    wait_for(lambda: "commit of a transaction" in browser.text(address))  # Kafka writes it after its answer
    assert "transaction committed" in browser.text(address)
    assert "pay-1" in browser.text("/transactions")
