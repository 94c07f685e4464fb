"""Clients of a broker that cannot be reached report it at once, and their errors name the address and the cause."""

import logging
from collections.abc import Callable

import pytest
from support.ports import free_port
from support.waiting import wait_for, with_enough_time

from barnabas import Admin, Consumer, Producer, SimpleConsumer
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.errors import ApiError, BarnabasError


@pytest.fixture
def unused_address() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_delivery_timeout_counts_while_metadata_are_missing(unused_address: str) -> None:
    def send(limit_ms: int) -> None:
        with Producer(unused_address, delivery_timeout_ms=limit_ms, max_block_ms=3_600_000) as producer:
            handle = producer.send("t", b"x")
            text = f"delivery.timeout.ms .{limit_ms} ms.; last: cannot connect to {unused_address}"
            with pytest.raises(ApiError, match=text):
                handle.result()

    with_enough_time(send)


def test_wait_for_a_delivery_that_ends_names_the_cause(unused_address: str) -> None:
    producer = Producer(unused_address)
    handle = producer.send("t", b"x")
    with pytest.raises(ClientTimeout, match=f"cannot connect to {unused_address}: Connection refused"):
        for _ in range(100):
            try:
                handle.result(0.1)
            except ClientTimeout as error:
                if "cannot connect" in str(error):
                    raise
    producer.close(0)


def produce(bootstrap: str, limit_ms: int) -> None:
    with Producer(bootstrap, delivery_timeout_ms=limit_ms) as producer:
        producer.send("t", b"x")


def assign(bootstrap: str, limit_ms: int) -> None:
    with Consumer(bootstrap, default_api_timeout_ms=limit_ms) as consumer:
        consumer.assign("t")


def administrate(bootstrap: str, limit_ms: int) -> None:
    with Admin(bootstrap, default_api_timeout_ms=limit_ms) as admin:
        admin.list_topics()


def fetch(bootstrap: str, limit_ms: int) -> None:
    with SimpleConsumer(bootstrap, default_api_timeout_ms=limit_ms) as consumer:
        consumer.fetch("t", 0, 0)


def refused_by(address: str) -> str:
    hint = "start a broker there, or correct bootstrap.servers"
    return f"cannot connect to {address}: Connection refused; {hint} (the client tries again)"


@pytest.mark.parametrize("use", [produce, assign, administrate, fetch])
def test_first_failed_connection_is_a_warning_and_the_next_ones_are_not(
    unused_address: str, caplog: pytest.LogCaptureFixture, use: Callable[[str, int], None]
) -> None:
    def within(limit_ms: int) -> None:
        caplog.clear()
        with pytest.raises(BarnabasError, match=f"cannot connect to {unused_address}"):
            use(unused_address, limit_ms)
        assert warnings(caplog).count(refused_by(unused_address)) == 1

    with_enough_time(within)


def test_first_failed_connection_of_a_subscription_is_a_warning(
    unused_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(unused_address, group_id="g") as consumer:
        consumer.subscribe("t")
        wait_for(lambda: consumer.poll(0.2) is not None or warnings(caplog))
        assert consumer.poll(0.2) is None, "a subscription raises nothing"
    assert warnings(caplog).count(refused_by(unused_address)) == 1
