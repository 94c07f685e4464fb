"""Operations that wait: each finishes exactly once, by event or by time."""

from collections.abc import Callable, Hashable

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.replica.purgatory import DelayedOperation, Purgatory


class Countdown(DelayedOperation):
    """An operation that completes after a number of events."""

    def __init__(self, events: int, finish: Callable[[], None], failed: Callable[[], None] = lambda: None) -> None:
        super().__init__(finish, failed)
        self.events = events
        self.checked: list[Hashable] = []

    def check(self, key: Hashable) -> bool:
        self.checked.append(key)
        self.events -= 1
        return self.events <= 0


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler(ManualClock())


@pytest.fixture
def errors() -> list[BaseException]:
    return []


@pytest.fixture
def purgatory(scheduler: ManualScheduler, errors: list[BaseException]) -> Purgatory:
    return Purgatory(scheduler, errors.append)


def test_an_event_finishes_an_operation_once(purgatory: Purgatory, scheduler: ManualScheduler) -> None:
    finished: list[str] = []
    purgatory.watch(Countdown(2, lambda: finished.append("a")), ["x", "y"], 100)
    purgatory.check("x")
    assert not finished
    purgatory.check("y")
    purgatory.check("x")
    scheduler.advance(200)
    assert finished == ["a"]
    assert len(purgatory) == 0


def test_time_finishes_an_operation_once(purgatory: Purgatory, scheduler: ManualScheduler) -> None:
    finished: list[str] = []
    purgatory.watch(Countdown(2, lambda: finished.append("a")), ["x"], 100)
    scheduler.advance(99)
    assert not finished
    scheduler.advance(1)
    assert finished == ["a"]
    purgatory.check("x")
    assert finished == ["a"]


def test_only_what_waits_for_the_key_is_looked_at(purgatory: Purgatory) -> None:
    here, there = Countdown(5, lambda: None), Countdown(5, lambda: None)
    purgatory.watch(here, ["x"], 100)
    purgatory.watch(there, ["y"], 100)
    purgatory.check("x")
    assert (here.checked, there.checked) == (["x"], [])


def test_an_operation_that_fails_leaves_the_others_alone(purgatory: Purgatory, errors: list[BaseException]) -> None:
    finished: list[str] = []

    def fail() -> None:
        raise RuntimeError("no")

    purgatory.watch(Countdown(1, fail), ["x"], 100)
    purgatory.watch(Countdown(1, lambda: finished.append("b")), ["x"], 100)
    purgatory.check("x")
    assert finished == ["b"]
    assert [str(error) for error in errors] == ["no"]


def test_listeners_are_called_first_and_fail_alone(purgatory: Purgatory, errors: list[BaseException]) -> None:
    observed: list[str] = []

    def fail(_: object) -> None:
        raise RuntimeError("no")

    def listen(key: object) -> None:
        observed.append(f"listener of {key}")

    purgatory.watch(Countdown(1, lambda: observed.append("operation")), ["x"], 100)
    purgatory.add_listener("x", fail)
    purgatory.add_listener("x", listen)
    purgatory.check("y")
    assert observed == []
    purgatory.check("x")
    assert observed == ["listener of x", "operation"]
    assert [str(error) for error in errors] == ["no"]
    purgatory.remove_listener("x", fail)
    purgatory.remove_listener("x", listen)
    purgatory.remove_listener("x", listen)
    purgatory.check("x")
    assert observed == ["listener of x", "operation"]


def test_giving_up_finishes_what_waits_under_the_key(purgatory: Purgatory, scheduler: ManualScheduler) -> None:
    finished: list[str] = []
    purgatory.watch(Countdown(9, lambda: finished.append("a")), ["x", 17], 1e9)
    purgatory.watch(Countdown(9, lambda: finished.append("b")), ["x", 18], 1e9)
    purgatory.finish_all(17)
    assert finished == ["a"]
    assert len(purgatory) == 1
    purgatory.close()
    assert finished == ["a", "b"]
    assert scheduler.waiting == 0, "the timers are cancelled"


def test_an_operation_may_watch_again_while_it_finishes(purgatory: Purgatory) -> None:
    finished: list[str] = []
    purgatory.watch(
        Countdown(1, lambda: purgatory.watch(Countdown(1, lambda: finished.append("next")), ["x"], 100)), ["x"], 100
    )
    purgatory.check("x")
    assert not finished
    purgatory.check("x")
    assert finished == ["next"]
