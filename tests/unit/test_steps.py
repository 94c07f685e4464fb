"""Long work takes turns; a worker does what would hold up the owner thread."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.traffic.steps import StepRunner, Steps, complete
from barnabas.ports.scheduler import Outcome


class World:
    """Time passes only in steps: each takes a millisecond."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.reports: list[BaseException] = []
        self.runner = StepRunner(self.scheduler, self.clock, self.reports.append)
        self.log: list[str] = []
        self.results: dict[str, Outcome[Any]] = {}

    def work(self, name: str, count: int, work: Callable[[], Any] | None = None) -> Steps[str]:
        for number in range(count):
            self.log.append(f"{name}{number}")
            self.clock.advance(1)
            yield None
        if work is not None:
            return f"{name} {yield work}"
        return name

    def run(self, name: str, steps: Steps[Any], owner: int | None = None) -> None:
        self.runner.run(steps, partial(self.results.__setitem__, name), owner)

    def turn(self) -> None:
        """The next callback."""
        self.scheduler._run_one()


def test_short_work_is_done_within_the_call() -> None:
    world = World()
    world.run("a", world.work("a", 0))
    assert world.results["a"].get() == "a"
    assert world.scheduler.waiting == 0


def test_long_works_take_turns_with_each_other_and_with_others() -> None:
    world = World()
    others: list[int] = []
    for name in "ab":
        world.run(name, world.work(name, 10))
    assert not world.results

    def other() -> None:
        others.append(len(world.log))
        if len(world.results) < 2:
            world.scheduler.call_soon(other)

    world.scheduler.call_soon(other)
    world.scheduler.run_until(lambda: len(world.results) == 2)
    assert [world.results[name].get() for name in "ab"] == ["a", "b"]
    assert "".join(world.log[2:8]) == "a1b1a2b2a3b3"
    assert max(later - earlier for earlier, later in pairwise(others)) <= 4
    assert world.runner.waiting == 0


def test_many_that_begin_together_do_not_all_begin_at_once() -> None:
    world = World()
    for number in range(100):
        world.run(str(number), world.work(str(number), 3))
    begun = len(world.log)
    world.turn()
    active = {entry[:-1] for entry in world.log}
    assert begun < 10
    assert len(active) < 20
    world.scheduler.run_until(lambda: len(world.results) == 100)


def test_short_work_does_not_wait_for_all_that_is_long() -> None:
    world = World()
    for number in range(50):
        world.run(f"long {number}", world.work("l", 1000))
    world.run("short", world.work("s", 0))
    assert "short" not in world.results, "the share of what is done at once is used up"
    begun = len(world.log)
    world.scheduler.run_until(lambda: "short" in world.results)
    assert len(world.log) - begun < 150
    assert len(world.results) == 1


def test_offloaded_steps_run_one_at_a_time_and_return_results() -> None:
    world = World()
    on_worker: list[str] = []

    def unpack(name: str) -> str:
        on_worker.append(name)
        return f"{name} is unpacked"

    for name in "abc":
        world.run(name, world.work(name, 0, partial(unpack, name)))
    assert on_worker == [] and world.runner.waiting == 3
    world.scheduler._run_one()
    assert on_worker == ["a"]
    world.scheduler.run_until(lambda: len(world.results) == 3)
    assert [world.results[name].get() for name in "abc"] == [f"{name} {name} is unpacked" for name in "abc"]


def test_error_in_a_step_is_raised() -> None:
    world = World()

    def fails() -> None:
        raise ValueError("on the worker")

    def catches() -> Steps[str]:
        try:
            yield fails
        except ValueError as error:
            return str(error)
        return ""

    world.run("raises", world.work("r", 0, fails))
    world.run("catches", catches())
    world.scheduler.run_until(lambda: len(world.results) == 2)
    assert world.results["catches"].get() == "on the worker"
    with pytest.raises(ValueError, match="on the worker"):
        world.results["raises"].get()
    world.runner.run(world.work("", 0), lambda _: fails())
    assert [str(error) for error in world.reports] == ["on the worker"]


def test_work_of_cancelled_owner_is_dropped() -> None:
    world = World()
    world.run("gone", world.work("g", 50), owner=1)
    world.run("unpacking", world.work("u", 0, lambda: None), owner=1)
    world.run("stays", world.work("s", 50), owner=2)
    world.turn()
    world.runner.cancel_owner(1)
    world.scheduler.run_until(lambda: "stays" in world.results)
    assert list(world.results) == ["stays"]
    assert sum(entry.startswith("g") for entry in world.log) < 50
    assert world.runner.waiting == 0 and not world.runner._owned


def test_complete_does_all_of_it() -> None:
    world = World()
    assert complete(world.work("a", 3, lambda: 5)) == "a 5"

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        complete(world.work("b", 1, fails))
