"""Clients of a broker that cannot be reached report it at once, and their errors name the address and the cause."""

import logging
import time
from collections.abc import Callable

import pytest
from support.ports import free_port

from barnabas import Admin, Consumer, Producer, SimpleConsumer
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.errors import ApiError, BarnabasError


@pytest.fixture
def nobody() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_delivery_timeout_counts_while_metadata_are_missing(nobody: str) -> None:
    producer = Producer(nobody, delivery_timeout_ms=300)
    begun = time.monotonic()
    handle = producer.send("t", b"x")
    with pytest.raises(ApiError, match=f"delivery.timeout.ms .300 ms.; last: cannot connect to {nobody}"):
        handle.result()
    assert time.monotonic() - begun < 30, "max.block.ms is 60 s"
    producer.close()


def test_wait_for_a_delivery_that_ends_names_the_cause(nobody: str) -> None:
    producer = Producer(nobody)
    handle = producer.send("t", b"x")
    with pytest.raises(ClientTimeout, match=f"cannot connect to {nobody}: Connection refused"):
        for _ in range(100):
            try:
                handle.result(0.1)
            except ClientTimeout as error:
                if "cannot connect" in str(error):
                    raise
    producer.close(0)


def produce(bootstrap: str) -> None:
    producer = Producer(bootstrap, delivery_timeout_ms=200)
    producer.send("t", b"x")
    producer.close()


def assign(bootstrap: str) -> None:
    with Consumer(bootstrap, default_api_timeout_ms=200) as consumer:
        consumer.assign("t")


def subscribe(bootstrap: str) -> None:
    with Consumer(bootstrap, group_id="g") as consumer:
        consumer.subscribe("t")
        assert consumer.poll(0.2) is None


def administrate(bootstrap: str) -> None:
    with Admin(bootstrap, default_api_timeout_ms=200) as admin:
        admin.list_topics()


def fetch(bootstrap: str) -> None:
    with SimpleConsumer(bootstrap, default_api_timeout_ms=200) as consumer:
        consumer.fetch("t", 0, 0)


@pytest.mark.parametrize("use", [produce, assign, subscribe, administrate, fetch])
def test_first_failed_connection_is_a_warning_and_the_next_ones_are_not(
    nobody: str, caplog: pytest.LogCaptureFixture, use: Callable[[str], None]
) -> None:
    try:
        use(nobody)
    except BarnabasError as error:
        assert f"cannot connect to {nobody}" in str(error)  # a subscription raises nothing
    hint = "start a broker there, or correct bootstrap.servers"
    text = f"cannot connect to {nobody}: Connection refused; {hint} (the client tries again)"
    assert warnings(caplog).count(text) == 1
