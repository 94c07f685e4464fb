"""The manual scheduler fulfils the contract, and is the same each time."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.testing.contracts.scheduler import SchedulerContract


class ManualHarness:
    threads = False

    def __init__(self, seed: int | None = None) -> None:
        self.reports: list[str] = []
        entropy = None if seed is None else SeededEntropy(seed)
        self.scheduler = ManualScheduler(ManualClock(), entropy, self.reports.append)

    def run_until(self, condition: Callable[[], bool]) -> None:
        self.scheduler.run_until(condition)

    def stop(self) -> None:
        self.scheduler.stop()


class TestManualScheduler(SchedulerContract):
    @pytest.fixture(params=[None, 1, 2])
    def harness(self, request: pytest.FixtureRequest) -> Iterator[ManualHarness]:
        yield ManualHarness(request.param)


def test_manual_scheduler_runs_timers_only_on_advance() -> None:
    scheduler = ManualScheduler(ManualClock(1_700_000_000_000))
    seen: list[int] = []
    scheduler.call_later(100, lambda: seen.append(scheduler.clock.now_ms()))
    scheduler.run_pending()
    assert seen == []
    scheduler.advance(99)
    assert seen == []
    scheduler.advance(1000)
    assert seen == [1_700_000_000_100]
    assert scheduler.clock.now_ms() == 1_700_000_001_099


def test_timer_started_by_a_timer_runs_at_its_own_time() -> None:
    scheduler = ManualScheduler(ManualClock(0))
    seen: list[float] = []

    def tick() -> None:
        seen.append(scheduler.clock.monotonic_ms())
        scheduler.call_later(10, tick)

    scheduler.call_later(10, tick)
    scheduler.advance(55)
    assert seen == [10, 20, 30, 40, 50]


def test_waiting_for_what_never_comes_says_so() -> None:
    scheduler = ManualScheduler(ManualClock())
    with pytest.raises(TimeoutError, match="nothing is left"):
        scheduler.run_until(lambda: False)

    def tick() -> None:
        scheduler.call_later(10, tick)

    tick()
    with pytest.raises(TimeoutError, match="500 ms"):
        scheduler.run_until(lambda: False, limit_ms=500)


def test_without_a_report_an_error_comes_out_and_the_rest_still_waits() -> None:
    scheduler = ManualScheduler(ManualClock())
    seen: list[str] = []

    def bad() -> None:
        raise ValueError("bad")

    scheduler.call_soon(bad)
    scheduler.call_soon(lambda: seen.append("rest"))
    with pytest.raises(ValueError, match="bad"):
        scheduler.run_pending()
    assert scheduler.waiting == 1
    scheduler.run_pending()
    assert seen == ["rest"]


def _finishing_order(seed: int) -> list[int]:
    scheduler = ManualScheduler(ManualClock(), SeededEntropy(seed))
    done: list[int] = []
    for number in range(20):
        scheduler.offload(partial(int, number), lambda outcome: done.append(outcome.get()))
    scheduler.run_until(lambda: len(done) == 20)
    return done


def test_a_seed_gives_one_order_of_offloaded_work() -> None:
    assert _finishing_order(3) == _finishing_order(3)
    assert _finishing_order(3) != _finishing_order(4)
    assert _finishing_order(3) != sorted(_finishing_order(3))
