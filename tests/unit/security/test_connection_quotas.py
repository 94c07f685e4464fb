"""Limits of connections: number, rate and address, with the delays of Kafka."""

from typing import Any

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.security.quotas.connection_quotas import AddressLimits, ConnectionLimits, ConnectionQuotas
from barnabas.core.security.quotas.rate import QuotaWindows
from barnabas.ports.broker_api.quotas import QuotaEntry

NO_LIMITS = ConnectionLimits()


class Harness:
    def __init__(self, broker: ConnectionLimits = NO_LIMITS, **addresses: Any) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.quotas = ConnectionQuotas(
            self.clock,
            self.scheduler,
            broker=broker,
            addresses=AddressLimits(**addresses),
            windows=QuotaWindows(),
        )
        self.resumed = 0

    def resume(self) -> None:
        self.resumed += 1


def test_full_broker_lets_all_listeners_wait_until_a_connection_closes() -> None:
    harness = Harness(ConnectionLimits(connections=2))
    one = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    other = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    assert not one.must_wait(harness.resume)
    assert one.admit("10.0.0.1") is None
    assert other.admit("10.0.0.2") is None
    assert one.must_wait(harness.resume) and other.must_wait(harness.resume)
    one.release("10.0.0.1")
    assert harness.resumed == 2
    assert not other.must_wait(harness.resume)


def test_changed_limits_hold_at_once_and_waiting_listeners_look_again() -> None:
    harness = Harness(ConnectionLimits(connections=1), per_ip=1)
    listener = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    assert listener.admit("10.0.0.1") is None
    assert listener.must_wait(harness.resume)
    harness.quotas.change(broker=ConnectionLimits(connections=3), addresses=AddressLimits(per_ip=2))
    assert harness.resumed == 1
    assert not listener.must_wait(harness.resume)
    assert listener.admit("10.0.0.1") is None
    assert listener.admit("10.0.0.1") == 0.0  # closed: two connections of the address
    listener.change(ConnectionLimits(connections=2))
    assert listener.must_wait(harness.resume)


def test_listener_of_brokers_is_free_of_the_common_limit_and_has_its_own() -> None:
    harness = Harness(ConnectionLimits(connections=1))
    clients = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    brokers = harness.quotas.of_listener(ConnectionLimits(connections=2), is_protected=True)
    clients.admit("10.0.0.1")
    assert clients.must_wait(harness.resume)
    for _ in range(2):
        assert not brokers.must_wait(harness.resume)
        brokers.admit("10.0.0.2")
    assert brokers.must_wait(harness.resume)


def test_too_many_new_connections_make_the_listener_wait_at_most_a_second() -> None:
    harness = Harness(ConnectionLimits(creation_rate=5))
    listener = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    accepted = 0
    while not listener.must_wait(harness.resume):
        listener.admit("10.0.0.1")
        listener.release("10.0.0.1")
        accepted += 1
    assert accepted == 51  # ten windows of five pass at once
    harness.scheduler.advance(1000)
    assert harness.resumed == 1
    assert not listener.must_wait(harness.resume)
    listener.admit("10.0.0.1")
    assert listener.must_wait(harness.resume), "one per second until the windows have passed"


def test_creation_rate_that_is_set_later_holds_for_the_connections_from_then_on() -> None:
    harness = Harness()
    listener = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    for _ in range(100):
        assert listener.admit("10.0.0.1") is None
    assert not listener.must_wait(harness.resume)
    harness.quotas.change(broker=ConnectionLimits(creation_rate=1), addresses=AddressLimits())
    for _ in range(20):
        listener.admit("10.0.0.1")
    assert listener.must_wait(harness.resume)
    harness.quotas.change(broker=NO_LIMITS, addresses=AddressLimits())
    assert not listener.must_wait(harness.resume)


def test_address_with_too_many_connections_is_closed_at_once() -> None:
    harness = Harness(per_ip=2, overrides={"10.0.0.9": 0})
    listener = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    assert [listener.admit("10.0.0.1") for _ in range(3)] == [None, None, 0.0]
    assert listener.admit("10.0.0.9") == 0.0
    listener.release("10.0.0.1")
    assert listener.admit("10.0.0.1") is None


@pytest.mark.parametrize("entity", [{"ip": "10.0.0.1"}, {"ip": None}])
def test_address_that_connects_too_fast_is_closed_after_a_delay(entity: dict[str, str | None]) -> None:
    harness = Harness()
    harness.quotas.update([QuotaEntry(entity=entity, limits={"connection_creation_rate": 1.0})])
    listener = harness.quotas.of_listener(NO_LIMITS, is_protected=False)
    answers = [listener.admit("10.0.0.1") for _ in range(12)]
    assert answers == [None] * 10 + [1000.0, 1000.0]
    assert (listener.admit("10.0.0.2") is None) is True
    harness.clock.advance(11_000)
    assert listener.admit("10.0.0.1") is None
    harness.quotas.update([])
    assert [listener.admit("10.0.0.1") for _ in range(50)] == [None] * 50
