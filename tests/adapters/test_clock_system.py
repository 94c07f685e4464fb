"""The clocks."""

import time
from collections.abc import Callable

import pytest

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler, SystemClock
from barnabas.core.cluster.lease import Lease
from barnabas.testing.contracts.clock import ClockContract


class TestSystemClock(ClockContract):
    @pytest.fixture
    def clock(self) -> SystemClock:
        return SystemClock()

    @pytest.fixture
    def pass_ms(self) -> Callable[[float], None]:
        return lambda ms: time.sleep(ms / 1000)

    def test_wall_clock_matches_system_time(self, clock: SystemClock) -> None:
        assert abs(clock.now_ms() - time.time() * 1000) < 1000

    @pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
    def test_the_time_of_a_suspension_ends_a_lease(self, clock: SystemClock, monkeypatch: pytest.MonkeyPatch) -> None:
        scheduler = ManualScheduler(ManualClock())
        lease = Lease(scheduler, clock, MemoryTree(clock=clock, session_timeout_ms=20_000).session(), print)
        lease.grant()
        scheduler.run_pending()
        assert lease.is_valid
        read, suspended_ns = time.clock_gettime_ns, 60_000_000_000

        def after_a_minute(which: int) -> int:
            """CLOCK_MONOTONIC stands while the machine is suspended, CLOCK_BOOTTIME does not."""
            return read(which) + (suspended_ns if which == time.CLOCK_BOOTTIME else 0)

        monkeypatch.setattr(time, "clock_gettime_ns", after_a_minute)
        assert not lease.is_valid


class TestManualClock(ClockContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def pass_ms(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance

    def test_manual_clock_stands_still(self) -> None:
        clock = ManualClock(5000)
        assert (clock.now_ms(), clock.monotonic_ms()) == (5000, 0.0)
        clock.advance(0.5)
        clock.advance(0.5)
        assert (clock.now_ms(), clock.monotonic_ms()) == (5001, 1.0)

    def test_setting_the_wall_clock_leaves_the_other(self) -> None:
        clock = ManualClock(5000)
        clock.advance(10)
        clock.set_wall(100)
        assert (clock.now_ms(), clock.monotonic_ms()) == (100, 10.0)
        clock.advance(1)
        assert (clock.now_ms(), clock.monotonic_ms()) == (101, 11.0)

    def test_manual_clock_never_goes_back(self) -> None:
        clock = ManualClock()
        with pytest.raises(ValueError):
            clock.advance(-1)
        clock.advance(10)
        clock.advance_to(5)
        assert clock.monotonic_ms() == 10.0
