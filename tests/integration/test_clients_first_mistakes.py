"""The first mistakes of a new user are answered with what to do."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.plain_cluster import PlainCluster, PlainConnector
from support.ports import free_port
from support.waiting import PATIENCE_S, wait_for, with_enough_time

from barnabas import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    BarnabasError,
    Broker,
    Consumer,
    DecodeError,
    EncodeError,
    ErrorCode,
    Producer,
)
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.consumer import group_coordinator
from barnabas.ports.errors import ApiError


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", auto_create_topics_enable=False, log_retention_ms=-1) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker) as admin:
        yield admin


@pytest.mark.parametrize("kind", [Producer, ClassicProducer])
def test_internal_methods_of_producers_are_not_public(kind: type) -> None:
    internal = {"check_open", "fail_handle", "end_with_program", "run_of", "adopt", "dispatch", "has_room"}
    assert not internal & set(dir(kind))


def test_assign_of_an_unknown_topic_says_how_to_create_or_list_topics(broker: Broker) -> None:
    with Consumer(broker) as consumer, pytest.raises(ApiError) as caught:
        consumer.assign("not-there")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "topic not-there does not exist; create it (`Admin.create_topic`" in str(caught.value)
    assert "`barnabas topics list`" in str(caught.value)


@pytest.mark.parametrize("call", ["assign", "describe"])
def test_invalid_topic_name_says_which_characters_are_allowed(broker: Broker, admin: Admin, call: str) -> None:
    with Consumer(broker) as consumer, pytest.raises(ApiError) as caught:
        consumer.assign("my topic!") if call == "assign" else admin.describe_topic("my topic!")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "topic my topic!: a name has 1 to 249 characters, each of a-z, A-Z, 0-9, '.', '_' and '-'" in str(
        caught.value
    )


def test_creation_of_a_topic_with_an_invalid_name_says_which_characters_are_allowed(admin: Admin) -> None:
    with pytest.raises(ApiError, match=r"other than letters, digits, '\.', '_' and '-'"):
        admin.create_topic("my topic!")


def test_subscription_to_an_unknown_topic_warns_once_and_reads_it_when_it_exists(
    broker: Broker, admin: Admin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "_MISSING_MS", 10.0)
    with Consumer(broker, group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=20) as consumer:
        consumer.subscribe("later")

        def warnings() -> list[str]:
            consumer.poll(0.01)
            return [each.getMessage() for each in caplog.records if "does not exist" in each.getMessage()]

        with caplog.at_level(logging.WARNING, logger="barnabas.client"):
            wait_for(warnings)
            for _ in range(10):
                assert len(warnings()) == 1
        assert warnings()[0].startswith("topic later, to which group g is subscribed, does not exist")
        admin.create_topic("later")
        with Producer(broker) as producer:
            producer.send("later", b"x").result(PATIENCE_S)
        found = consumer.poll(PATIENCE_S)
        assert found is not None
        assert found.value == b"x"
    admin.delete_topic("later")


def test_subscription_to_a_topic_that_exists_does_not_warn(
    broker: Broker, admin: Admin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "_MISSING_MS", 10.0)
    admin.create_topic("there")
    with Consumer(broker, group_id="h", auto_offset_reset="earliest") as consumer, Producer(broker) as producer:
        consumer.subscribe("there")
        producer.send("there", b"x").result(PATIENCE_S)
        assert consumer.poll(PATIENCE_S) is not None
    assert "does not exist" not in caplog.text
    admin.delete_topic("there")


def test_one_of_a_kind_has_its_own_call_of_admin(broker: Broker, admin: Admin) -> None:
    admin.create_topic("one", partitions=2)
    assert [each.partition for each in admin.describe_topic("one").partitions] == [0, 1]
    with Consumer(broker, group_id="k") as consumer:
        consumer.assign("one", position=0)
        consumer.commit({("one", 0): 0})
    assert admin.describe_group("k") == admin.describe_groups(["k"])[0]
    admin.delete_group("k")
    assert [each.group_id for each in admin.list_groups() if each.group_id == "k"] == []
    admin.delete_topic("one")
    with pytest.raises(ApiError, match="topic one does not exist"):
        admin.describe_topic("one")


def test_seek_takes_topic_partition_and_offset_or_a_pair(broker: Broker, admin: Admin) -> None:
    admin.create_topic("s")
    with Consumer(broker) as consumer:
        consumer.assign("s", position="earliest")
        consumer.seek("s", 0, 5)
        assert consumer.position(("s", 0)) == 5
        consumer.seek(("s", 0), 7)
        assert consumer.position(("s", 0)) == 7
        consumer.seek("s", 0, "earliest")
        assert consumer.position(("s", 0)) == 0
        for wrong in (("s", 0), (("s", 0), 1, 2)):
            with pytest.raises(TypeError, match="give topic, partition and offset"):
                consumer.seek(*wrong)
    admin.delete_topic("s")


def test_failed_decoding_is_a_decode_error() -> None:
    cluster = PlainCluster(t=1)
    with Producer(PlainConnector(cluster)) as producer:
        producer.send("t", b"no json {")
    with Consumer(PlainConnector(cluster), decoder="json") as consumer:
        consumer.assign("t", position="earliest")
        with pytest.raises(DecodeError, match="the message at t-0 offset 0 cannot be decoded") as caught:
            consumer.poll(PATIENCE_S)
        assert isinstance(caught.value, EncodeError)


def _send(bootstrap: str, limit_ms: int) -> None:
    with Producer(bootstrap, delivery_timeout_ms=limit_ms, request_timeout_ms=1000) as producer:
        producer.send("t", b"a").result(PATIENCE_S)


def _leave_block(bootstrap: str, limit_ms: int) -> None:
    with Producer(bootstrap, delivery_timeout_ms=limit_ms, request_timeout_ms=1000) as producer:
        producer.send("t", b"a")


def _assign(bootstrap: str, limit_ms: int) -> None:
    with Consumer(bootstrap, default_api_timeout_ms=limit_ms) as consumer:
        consumer.assign("t", position="earliest")


def _poll(bootstrap: str, limit_ms: int) -> None:
    with Consumer(bootstrap, group_id="g", default_api_timeout_ms=limit_ms) as consumer:
        consumer.subscribe("t")
        consumer.poll(limit_ms / 1000)


def _iterate(bootstrap: str, limit_ms: int) -> None:
    with Consumer(bootstrap, group_id="g", default_api_timeout_ms=limit_ms) as consumer:
        consumer.subscribe("t")
        for _ in consumer.messages(timeout=limit_ms / 1000):
            pass


def _ask_admin(bootstrap: str, limit_ms: int) -> None:
    with Admin(bootstrap, default_api_timeout_ms=limit_ms) as admin:
        admin.list_topics()


def _send_by_asyncio(bootstrap: str, limit_ms: int) -> None:
    async def run() -> None:
        async with AsyncProducer(bootstrap, delivery_timeout_ms=limit_ms, request_timeout_ms=1000) as producer:
            await producer.send_and_wait("t", b"a")

    asyncio.run(run())


def _read_by_asyncio(bootstrap: str, limit_ms: int) -> None:
    async def run() -> None:
        async with AsyncConsumer(bootstrap, default_api_timeout_ms=limit_ms) as consumer:
            await consumer.assign("t", position="earliest")

    asyncio.run(run())


CALLS = [_send, _leave_block, _assign, _poll, _iterate, _ask_admin, _send_by_asyncio, _read_by_asyncio]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("mistake", "limit_ms"),
    [
        ("no broker", 1500),
        pytest.param("no such host", 3000, marks=pytest.mark.slow),
        pytest.param("another server", 6000, marks=pytest.mark.slow),
    ],
)
def test_wrong_address_is_answered_before_the_call_ends(
    caplog: pytest.LogCaptureFixture, call: Callable[[str, int], Any], mistake: str, limit_ms: int
) -> None:
    """By a warning that names the address, the cause and what to do, long before the limit of the call."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        bootstrap, words = {
            "no broker": (f"127.0.0.1:{free_port()}", "Connection refused; start a broker there, or correct bootstrap"),
            "no such host": ("no-such-host.invalid:9092", "the name cannot be resolved"),
            "another server": (f"127.0.0.1:{silent.getsockname()[1]}", "has said nothing; does a broker run there?"),
        }[mistake]

        def within(limit_ms: int) -> None:
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="barnabas.client"):
                try:
                    call(bootstrap, limit_ms)
                except BarnabasError as error:
                    if call is not _leave_block:
                        assert bootstrap in str(error)
                ended = time.time()
            texts = {each: each.getMessage() for each in caplog.records}
            observed = [each for each, text in texts.items() if bootstrap in text and words in text]
            assert observed, caplog.text
            assert observed[0].created < ended - 0.5, "it came while the call still waited"

        with_enough_time(within, limit_ms)
