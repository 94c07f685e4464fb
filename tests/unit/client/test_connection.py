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


class Harness:
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
def harness() -> Harness:
    return Harness()


REFUSED = TransportError("refused")


def test_one_attempt_at_a_time_and_one_link(harness: Harness) -> None:
    harness.connection.open()
    harness.connection.open()
    assert len(harness.attempts) == 1
    wire = Wire()
    harness.end_attempt(wire)
    harness.connection.open()
    assert (harness.opened, harness.connection.link, harness.attempts) == ([wire], wire, [])


def test_a_failed_attempt_is_repeated_when_its_user_says(harness: Harness) -> None:
    harness.again_ms = 50
    harness.connection.open(20)
    assert harness.connection.is_opening and not harness.attempts
    harness.scheduler.advance(20)
    harness.end_attempt(REFUSED)
    harness.connection.open()
    assert harness.connection.is_opening and not harness.attempts, "the next attempt has its time"
    harness.scheduler.advance(50)
    harness.again_ms = None
    harness.end_attempt(REFUSED)
    harness.scheduler.advance(1000)
    assert (harness.failures, harness.attempts, harness.connection.is_opening) == ([REFUSED, REFUSED], [], False)
    harness.connection.open()
    assert len(harness.attempts) == 1


def test_nothing_is_left_open_after_a_close(harness: Harness) -> None:
    harness.connection.open()
    harness.connection.close()
    late = Wire()
    harness.end_attempt(late)
    harness.connection.open()
    assert (late.closed, harness.opened, harness.connection.link, harness.attempts) == (1, [], None, [])


def test_a_close_ends_the_attempts_to_come(harness: Harness) -> None:
    harness.connection.open(20)
    harness.connection.close()
    harness.scheduler.advance(1000)
    assert not harness.attempts


def test_only_the_link_that_counts_is_forgotten(harness: Harness) -> None:
    harness.connection.open()
    first = Wire()
    harness.end_attempt(first)
    assert harness.connection.forget(first)
    assert not harness.connection.forget(first)
    harness.connection.open()
    second = Wire()
    harness.end_attempt(second)
    assert not harness.connection.forget(first)
    assert harness.connection.disconnect() and not harness.connection.disconnect()
    assert (first.closed, second.closed) == (0, 1)
