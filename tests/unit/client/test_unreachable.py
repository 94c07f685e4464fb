"""A client's reports of brokers to which it cannot connect."""

import pytest

from barnabas.adapters.system import ManualClock
from barnabas.core.client.network.unreachable_brokers import REPORT_INTERVAL_MS, UnreachableBrokers
from barnabas.ports.transport import TransportError

HOME, AWAY = ("home", 1), ("away", 2)
REFUSED = TransportError("cannot connect to home:1: Connection refused")


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.brokers = UnreachableBrokers(self.clock, self.lines.append)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_first_failure_is_reported_at_once(bench: Bench) -> None:
    bench.brokers.on_failed(HOME, REFUSED)
    hint = "start a broker there, or correct bootstrap.servers"
    assert bench.lines == [f"{REFUSED}; {hint} (the client tries again)"]


def test_broker_that_was_reached_before_is_reported_without_a_hint(bench: Bench) -> None:
    bench.brokers.on_connected(HOME)
    bench.brokers.on_failed(HOME, REFUSED)
    assert bench.lines == [f"{REFUSED} (the client tries again)"]
    assert bench.brokers.last_error is REFUSED


def test_further_failures_are_reported_once_in_a_while(bench: Bench) -> None:
    for _ in range(10):
        bench.brokers.on_failed(HOME, REFUSED)
        bench.clock.advance(REPORT_INTERVAL_MS / 10)
    assert len(bench.lines) == 1
    bench.brokers.on_failed(HOME, REFUSED)
    assert len(bench.lines) == 2


def test_each_address_is_reported(bench: Bench) -> None:
    bench.brokers.on_failed(HOME, REFUSED)
    bench.brokers.on_failed(AWAY, TransportError("cannot connect to away:2: no route"))
    assert len(bench.lines) == 2


def test_last_error_is_that_of_a_broker_that_is_still_unreachable(bench: Bench) -> None:
    away = TransportError("away")
    bench.brokers.on_failed(HOME, REFUSED)
    bench.brokers.on_failed(AWAY, away)
    assert bench.brokers.last_error is away
    bench.brokers.on_connected(AWAY)
    assert bench.brokers.last_error is REFUSED
    bench.brokers.clear(HOME)
    assert bench.brokers.last_error is None


def test_server_that_never_answered_is_reported_when_an_answer_is_late(bench: Bench) -> None:
    bench.brokers.on_late(HOME)
    assert bench.lines == ["home:1 has said nothing; does a broker run there? (the client tries again)"]


def test_broker_that_was_reached_and_is_slow_is_not_reported(bench: Bench) -> None:
    bench.brokers.on_connected(HOME)
    bench.brokers.on_late(HOME)
    assert not bench.lines
    assert bench.brokers.last_error is None
