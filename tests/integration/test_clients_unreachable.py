"""Clients of a broker that cannot be reached report it at once, and their errors name the address and the cause."""

import logging
import time
from collections.abc import Callable

import pytest
from support.ports import free_port
from support.waiting import wait_for

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
    with Producer(bootstrap, delivery_timeout_ms=200) as producer:
        producer.send("t", b"x")


def assign(bootstrap: str) -> None:
    with Consumer(bootstrap, default_api_timeout_ms=200) as consumer:
        consumer.assign("t")


def administrate(bootstrap: str) -> None:
    with Admin(bootstrap, default_api_timeout_ms=200) as admin:
        admin.list_topics()


def fetch(bootstrap: str) -> None:
    with SimpleConsumer(bootstrap, default_api_timeout_ms=200) as consumer:
        consumer.fetch("t", 0, 0)


def refused_by(address: str) -> str:
    hint = "start a broker there, or correct bootstrap.servers"
    return f"cannot connect to {address}: Connection refused; {hint} (the client tries again)"


@pytest.mark.parametrize("use", [produce, assign, administrate, fetch])
def test_first_failed_connection_is_a_warning_and_the_next_ones_are_not(
    nobody: str, caplog: pytest.LogCaptureFixture, use: Callable[[str], None]
) -> None:
    with pytest.raises(BarnabasError, match=f"cannot connect to {nobody}"):
        use(nobody)
    assert warnings(caplog).count(refused_by(nobody)) == 1


def test_first_failed_connection_of_a_subscription_is_a_warning(nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    with Consumer(nobody, group_id="g") as consumer:
        consumer.subscribe("t")
        wait_for(lambda: consumer.poll(0.2) is not None or warnings(caplog))
        assert consumer.poll(0.2) is None, "a subscription raises nothing"
    assert warnings(caplog).count(refused_by(nobody)) == 1
