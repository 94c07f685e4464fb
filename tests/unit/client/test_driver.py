"""State machines are polled when something happened, or when it is time."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.client.driver import FAILED_MS, Driver
from barnabas.core.client.effects import NEVER, Poll, Send
from barnabas.ports.broker_api.metadata import Metadata

ASK = Metadata(topics=[])


class Machine:
    """Notes when it was polled."""

    def __init__(self, log: list[Any], name: str = "") -> None:
        self.log = log
        self.name = name
        self.wakes: list[float] = []
        self.sends: list[Send] = []

    def poll(self, now_ms: float) -> Poll:
        self.log.append((self.name, now_ms))
        sends, self.sends = self.sends, []
        return Poll(sends, self.wakes.pop(0) if self.wakes else NEVER)


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.sent: list[tuple[int, Callable[[Any], None]]] = []
        self.log: list[Any] = []
        self.driver = Driver(self.scheduler, self.clock, lambda node, _, reply: self.sent.append((node, reply)))
        self.machine = Machine(self.log)
        self.driver.add(self.machine)


def test_wishes_before_a_turn_are_one_turn() -> None:
    desk = Desk()
    desk.driver.wake()
    desk.driver.wake()
    desk.scheduler.advance(10)
    assert desk.log == [("", 0.0)]


def test_machines_come_back_in_time() -> None:
    desk = Desk()
    desk.machine.wakes = [50.0, 70.0]
    desk.driver.wake()
    desk.scheduler.advance(1000)
    assert [at for _, at in desk.log] == [0.0, 50.0, 70.0]


def test_the_earliest_wish_of_all_machines_counts() -> None:
    desk = Desk()
    other = Machine(desk.log, "other")
    desk.driver.add(other)
    desk.machine.wakes, other.wakes = [90.0], [30.0]
    desk.driver.wake()
    desk.scheduler.advance(1000)
    assert desk.log == [("other", 0.0), ("", 0.0), ("other", 30.0), ("", 30.0)]


def test_an_answer_comes_with_the_time_and_polls_again() -> None:
    desk = Desk()
    answers: list[Any] = []
    desk.machine.sends = [Send(7, ASK, lambda result, now_ms: answers.append((result, now_ms)))]
    desk.driver.wake()
    desk.scheduler.advance(25)
    ((node, reply),) = desk.sent
    reply("fine")
    desk.scheduler.advance(0)
    assert (node, answers) == (7, [("fine", 25.0)])
    assert [at for _, at in desk.log] == [0.0, 25.0]


def test_a_retired_driver_still_answers_but_polls_nothing() -> None:
    desk = Desk()
    answers: list[Any] = []
    desk.machine.sends = [Send(7, ASK, lambda result, now_ms: answers.append(result))]
    desk.machine.wakes = [50.0]
    desk.driver.wake()
    desk.scheduler.advance(1)
    desk.driver.retire()
    desk.sent[0][1]("late")
    desk.driver.wake()
    desk.driver.close()
    desk.scheduler.advance(1000)
    assert answers == ["late"]
    assert len(desk.log) == 1
    assert desk.scheduler.waiting == 0


class Faulty:
    """Raises at each poll, or from what takes its answer."""

    def __init__(self, sends: list[Send] | None = None) -> None:
        self.sends = sends

    def poll(self, now_ms: float) -> Poll:
        if self.sends is None:
            raise TypeError("a user's value")
        sends, self.sends = self.sends, []
        return Poll(sends, NEVER)


def test_machine_that_raises_holds_up_no_other_and_is_polled_again() -> None:
    desk = Desk()
    desk.driver.add(Faulty())
    desk.driver.wake()
    with pytest.raises(TypeError, match="a user's value"):
        desk.scheduler.advance(0)
    assert desk.log == [("", 0.0)]
    with pytest.raises(TypeError, match="a user's value"):
        desk.scheduler.advance(FAILED_MS)
    assert desk.log == [("", 0.0), ("", FAILED_MS)]


def test_answer_that_cannot_be_taken_does_not_reach_the_connection() -> None:
    def take(result: Any, now_ms: float) -> None:
        raise TypeError("a user's value")

    desk = Desk()
    desk.driver.add(Faulty([Send(1, ASK, take)]))
    desk.driver.wake()
    desk.scheduler.advance(0)
    ((_, reply),) = desk.sent
    reply("an answer")
    with pytest.raises(TypeError, match="a user's value"):
        desk.scheduler.advance(0)
