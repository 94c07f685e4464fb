"""Errors of clients that wait in vain name the server: one that accepts connections and is silent, or has stopped."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, SimpleConsumer
from barnabas.app.clients.consumer import group_coordinator
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.errors import BarnabasError
from barnabas.testing import TestBroker

QUICK: dict[str, Any] = {"default_api_timeout_ms": 1000}
"""Enough to come to the request that is not answered, on a slow machine too."""


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield an address where the system accepts connections that no process reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def topics(bootstrap: str) -> object:
    with Admin(bootstrap, **QUICK) as admin:
        return admin.list_topics()


def group(bootstrap: str) -> object:
    with Admin(bootstrap, **QUICK) as admin:
        return admin.group_offsets("g")


def offset(bootstrap: str) -> object:
    with SimpleConsumer(bootstrap, **QUICK) as consumer:
        return consumer.offset_at("t", 0, -1)


def assignment(bootstrap: str) -> object:
    with Consumer(bootstrap, **QUICK) as consumer:
        return consumer.assign("t")


def committed(bootstrap: str) -> object:
    with Consumer(bootstrap, group_id="g", **QUICK) as consumer:
        return consumer.committed([("t", 0)])


def partitions(bootstrap: str) -> object:
    with Producer(bootstrap, **QUICK) as producer:
        return producer.partitions("t", 1.0)


def message(bootstrap: str) -> object:
    with Producer(bootstrap, max_block_ms=1000, **QUICK) as producer:
        return producer.send("t", b"x").result()


def transaction(bootstrap: str) -> None:
    producer = Producer(bootstrap, transactional_id="x", **QUICK)
    try:
        producer.init_transactions()
    finally:
        producer.close(0.1)


@pytest.mark.parametrize("ask", [topics, group, offset, assignment, committed, partitions, message, transaction])
def test_a_server_that_says_nothing_is_named(silent: str, ask: Callable[[str], object]) -> None:
    with pytest.raises(BarnabasError, match=f"{silent} has said nothing; does a broker run there"):
        ask(silent)


@pytest.mark.parametrize(
    ("api", "ask"),
    [
        ("Metadata", topics),
        ("FindCoordinator", group),
        ("OffsetFetch", group),
        ("ListOffsets", offset),
        ("OffsetFetch", committed),
        ("InitProducerId", transaction),
    ],
)
def test_timeout_names_broker_that_stopped_answering(
    barnabas_broker: TestBroker, api: str, ask: Callable[[str], object]
) -> None:
    barnabas_broker.produce("t", ["x"])
    with barnabas_broker.faults.delay(api), pytest.raises(ClientTimeout, match=barnabas_broker.bootstrap):
        ask(barnabas_broker.bootstrap)


def test_position_timeout_names_broker_that_does_not_answer(barnabas_broker: TestBroker) -> None:
    barnabas_broker.produce("t", ["x"])
    with Consumer(barnabas_broker.bootstrap) as consumer, barnabas_broker.faults.delay("ListOffsets"):
        consumer.assign("t", position="earliest")
        with pytest.raises(ClientTimeout, match=barnabas_broker.bootstrap):
            consumer.position(("t", 0), 1.0)


def test_group_calls_to_silent_broker_time_out(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grace_s = 30.0
    monkeypatch.setattr(group_coordinator, "GRACE_S", grace_s)
    with Consumer(silent, group_id="g", **QUICK) as consumer:
        for ask in (lambda: consumer.committed([("t", 0)]), lambda: consumer.commit({("t", 0): 1}, timeout=1.0)):
            begun = time.monotonic()
            with pytest.raises(ClientTimeout, match=silent):
                ask()
            assert time.monotonic() - begun < grace_s
