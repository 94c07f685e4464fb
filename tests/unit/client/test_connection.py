"""The way to a broker: one attempt at a time, the next when its user says, nothing left open."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.client.network.connection import BrokerConnection
from barnabas.ports.broker_api.envelope import BrokerLink, Caller, Request
from barnabas.ports.transport import Address, TransportError

HOME: Address = ("home", 1)


class Wire:
    closed = 0

    def submit(self, request: Request[Any], caller: Caller, reply: Callable[[Any], None]) -> None: ...

    def close(self) -> None:
        self.closed += 1


class House:
    def __init__(self) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        self.attempts: list[Callable[[BrokerLink | TransportError], None]] = []
        self.opened: list[BrokerLink] = []
        self.failures: list[TransportError] = []
        self.again_ms: float | None = None
        self.connection = BrokerConnection(
            HOME, self.scheduler, self._connect, opened=self.opened.append, failed=self._failed
        )

    def _connect(self, _address: Address, ended: Callable[[BrokerLink | TransportError], None]) -> None:
        self.attempts.append(ended)

    def _failed(self, error: TransportError) -> float | None:
        self.failures.append(error)
        return self.again_ms

    def end_attempt(self, outcome: BrokerLink | TransportError) -> None:
        self.attempts.pop()(outcome)


@pytest.fixture
def house() -> House:
    return House()


REFUSED = TransportError("refused")


def test_one_attempt_at_a_time_and_one_link(house: House) -> None:
    house.connection.open()
    house.connection.open()
    assert len(house.attempts) == 1
    wire = Wire()
    house.end_attempt(wire)
    house.connection.open()
    assert (house.opened, house.connection.link, house.attempts) == ([wire], wire, [])


def test_a_failed_attempt_is_repeated_when_its_user_says(house: House) -> None:
    house.again_ms = 50
    house.connection.open(20)
    assert house.connection.is_opening and not house.attempts
    house.scheduler.advance(20)
    house.end_attempt(REFUSED)
    house.connection.open()
    assert house.connection.is_opening and not house.attempts, "the next attempt has its time"
    house.scheduler.advance(50)
    house.again_ms = None
    house.end_attempt(REFUSED)
    house.scheduler.advance(1000)
    assert (house.failures, house.attempts, house.connection.is_opening) == ([REFUSED, REFUSED], [], False)
    house.connection.open()
    assert len(house.attempts) == 1


def test_nothing_is_left_open_after_a_close(house: House) -> None:
    house.connection.open()
    house.connection.close()
    late = Wire()
    house.end_attempt(late)
    house.connection.open()
    assert (late.closed, house.opened, house.connection.link, house.attempts) == (1, [], None, [])


def test_a_close_ends_the_attempts_to_come(house: House) -> None:
    house.connection.open(20)
    house.connection.close()
    house.scheduler.advance(1000)
    assert not house.attempts


def test_only_the_link_that_counts_is_forgotten(house: House) -> None:
    house.connection.open()
    first = Wire()
    house.end_attempt(first)
    assert house.connection.forget(first)
    assert not house.connection.forget(first)
    house.connection.open()
    second = Wire()
    house.end_attempt(second)
    assert not house.connection.forget(first)
    assert house.connection.disconnect() and not house.connection.disconnect()
    assert (first.closed, second.closed) == (0, 1)
