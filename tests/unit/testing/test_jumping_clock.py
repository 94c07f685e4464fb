"""A clock that jumps, and its timers."""

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.testing.broker import JumpingClock, JumpingScheduler

HOUR_MS = 3_600_000


def test_a_jump_runs_what_is_due_in_its_order() -> None:
    inner = ManualScheduler(ManualClock())
    clock = JumpingClock()
    scheduler = JumpingScheduler(inner, clock)
    ran: list[str] = []
    scheduler.call_later(3 * HOUR_MS, lambda: ran.append("three"))
    scheduler.call_later(1 * HOUR_MS, lambda: ran.append("one"))
    scheduler.call_later(2 * HOUR_MS, lambda: ran.append("two"))
    scheduler.call_later(HOUR_MS / 2, lambda: ran.append("cancelled")).cancel()
    before = clock.now_ms()
    scheduler.jump(2.5 * HOUR_MS, lambda: ran.append("arrived"))
    inner.run_pending()
    assert ran == ["one", "two", "arrived"]
    assert clock.now_ms() - before >= 2.5 * HOUR_MS
    inner.advance(HOUR_MS / 2)
    assert ran[3:] == ["three"]
    assert inner.waiting == 0


def test_a_periodic_timer_runs_once() -> None:
    inner = ManualScheduler(ManualClock())
    scheduler = JumpingScheduler(inner, JumpingClock())
    ran: list[float] = []

    def run() -> None:
        ran.append(1)
        scheduler.call_later(1000, run)

    scheduler.call_later(1000, run)
    scheduler.jump(HOUR_MS, lambda: None)
    inner.run_pending()
    assert len(ran) == 1
    inner.advance(1000)
    assert len(ran) == 2


def test_a_timer_that_was_cancelled_by_another_does_not_run() -> None:
    inner = ManualScheduler(ManualClock())
    scheduler = JumpingScheduler(inner, JumpingClock())
    ran: list[str] = []
    second = scheduler.call_later(2000, lambda: ran.append("second"))
    scheduler.call_later(1000, second.cancel)
    scheduler.jump(HOUR_MS, lambda: ran.append("arrived"))
    inner.run_pending()
    assert ran == ["arrived"]
    second.cancel()


def test_the_wall_clock_can_be_set_right() -> None:
    clock, machine = JumpingClock(), JumpingClock()
    clock.advance(HOUR_MS)
    elapsed = clock.monotonic_ms()
    clock.set_right()
    assert abs(clock.now_ms() - machine.now_ms()) < HOUR_MS / 2
    assert clock.monotonic_ms() >= elapsed
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(-1)
