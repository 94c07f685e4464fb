"""Contract suite for schedulers."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

import pytest

from ...ports.errors import ClosedError
from ...ports.scheduler import Outcome, Scheduler


class SchedulerHarness(Protocol):
    """One scheduler under test."""

    reports: list[str]

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def threads(self) -> bool:
        """True if offloaded work runs on other threads."""
        ...

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run callbacks until `condition` holds; fails when it never does."""
        ...

    def stop(self) -> None: ...


class SchedulerContract:
    """Inherit, and give a fixture `harness`."""

    def test_calls_come_on_a_later_turn_in_order(self, harness: SchedulerHarness) -> None:
        seen: list[int] = []
        for number in range(5):
            harness.scheduler.call_soon(partial(seen.append, number))
        assert seen == []
        harness.run_until(lambda: len(seen) == 5)
        assert seen == [0, 1, 2, 3, 4]

    def test_a_call_made_by_a_callback_is_not_nested(self, harness: SchedulerHarness) -> None:
        seen: list[str] = []

        def outer() -> None:
            harness.scheduler.call_soon(lambda: seen.append("inner"))
            seen.append("outer")

        harness.scheduler.call_soon(outer)
        harness.run_until(lambda: len(seen) == 2)
        assert seen == ["outer", "inner"]

    def test_timers_run_in_the_order_of_their_time(self, harness: SchedulerHarness) -> None:
        seen: list[int] = []
        for delay in (30, 10, 20, 0):
            harness.scheduler.call_later(delay, partial(seen.append, delay))
        harness.run_until(lambda: len(seen) == 4)
        assert seen == [0, 10, 20, 30]

    def test_timers_of_one_time_run_in_the_order_of_the_calls(self, harness: SchedulerHarness) -> None:
        seen: list[int] = []
        for number in range(20):
            harness.scheduler.call_later(5, partial(seen.append, number))
        harness.run_until(lambda: len(seen) == 20)
        assert seen == sorted(seen)

    def test_a_cancelled_timer_does_not_run(self, harness: SchedulerHarness) -> None:
        seen: list[str] = []
        timer = harness.scheduler.call_later(1, lambda: seen.append("cancelled"))
        harness.scheduler.call_later(2, lambda: seen.append("kept"))
        timer.cancel()
        timer.cancel()
        harness.run_until(lambda: bool(seen))
        assert seen == ["kept"]

    def test_a_timer_cancels_another_that_is_due_too(self, harness: SchedulerHarness) -> None:
        seen: list[str] = []
        harness.scheduler.call_later(1, lambda: second.cancel())  # noqa: PLW0108  # bound later
        second = harness.scheduler.call_later(1, lambda: seen.append("second"))
        harness.scheduler.call_later(1, lambda: seen.append("third"))
        harness.run_until(lambda: bool(seen))
        assert seen == ["third"]

    def test_cancelling_after_the_run_is_harmless(self, harness: SchedulerHarness) -> None:
        seen: list[int] = []
        timer = harness.scheduler.call_later(0, lambda: seen.append(1))
        harness.run_until(lambda: bool(seen))
        timer.cancel()

    def test_many_cancelled_timers_leave_the_others(self, harness: SchedulerHarness) -> None:
        seen: list[int] = []
        for number in range(1000):
            timer = harness.scheduler.call_later(1 + number / 1000, partial(seen.append, number))
            if number % 10:
                timer.cancel()
        harness.run_until(lambda: len(seen) == 100)
        assert seen == list(range(0, 1000, 10))

    def test_offloaded_work_comes_back_with_its_value(self, harness: SchedulerHarness) -> None:
        outcomes: list[Outcome[int]] = []
        harness.scheduler.offload(lambda: 42, outcomes.append)
        assert outcomes == []
        harness.run_until(lambda: bool(outcomes))
        assert [outcome.get() for outcome in outcomes] == [42]

    def test_offloaded_work_comes_back_with_its_error(self, harness: SchedulerHarness) -> None:
        outcomes: list[Outcome[None]] = []

        def work() -> None:
            raise KeyError("gone")

        harness.scheduler.offload(work, outcomes.append)
        harness.run_until(lambda: bool(outcomes))
        with pytest.raises(KeyError, match="gone"):
            outcomes[0].get()
        assert harness.reports == []

    def test_done_runs_on_the_owner_thread(self, harness: SchedulerHarness) -> None:
        seen: list[tuple[int, int]] = []
        harness.scheduler.offload(
            threading.get_ident, lambda outcome: seen.append((outcome.get(), threading.get_ident()))
        )
        harness.run_until(lambda: bool(seen))
        worker, owner = seen[0]
        assert owner == threading.get_ident()
        assert (worker != owner) is harness.threads

    def test_every_work_is_done_exactly_once(self, harness: SchedulerHarness) -> None:
        done: list[int] = []
        for number in range(200):
            harness.scheduler.offload(partial(int, number), lambda outcome: done.append(outcome.get()))
        harness.run_until(lambda: len(done) == 200)
        assert sorted(done) == list(range(200))

    def test_a_callback_that_raises_is_reported_once_and_stops_nothing(self, harness: SchedulerHarness) -> None:
        seen: list[str] = []

        def bad() -> None:
            raise ValueError("two\nlines")

        harness.scheduler.call_soon(bad)
        harness.scheduler.call_soon(lambda: seen.append("soon"))
        harness.scheduler.call_later(1, bad)
        harness.scheduler.call_later(2, lambda: seen.append("later"))
        harness.run_until(lambda: len(seen) == 2)
        assert len(harness.reports) == 2
        assert all("ValueError" in line and "\n" not in line for line in harness.reports)

    def test_a_done_that_raises_is_reported(self, harness: SchedulerHarness) -> None:
        def done(outcome: Outcome[int]) -> None:
            raise ValueError("in done")

        harness.scheduler.offload(lambda: 1, done)
        harness.run_until(lambda: bool(harness.reports))
        assert "in done" in harness.reports[0]

    def test_calls_after_the_stop_are_refused(self, harness: SchedulerHarness) -> None:
        harness.stop()
        with pytest.raises(ClosedError):
            harness.scheduler.call_soon(lambda: None)
