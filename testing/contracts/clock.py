"""Contract suite for clocks."""

from collections.abc import Callable

from ...ports.clock import Clock


class ClockContract:
    """Inherit, and give fixtures `clock` and `pass_ms` (which lets that much time pass)."""

    def test_both_clocks_advance(self, clock: Clock, pass_ms: Callable[[float], None]) -> None:
        wall, steady = clock.now_ms(), clock.monotonic_ms()
        pass_ms(5)
        assert clock.now_ms() >= wall + 4
        assert clock.monotonic_ms() >= steady + 4.9

    def test_the_wall_clock_is_in_milliseconds_since_the_epoch(self, clock: Clock) -> None:
        assert isinstance(clock.now_ms(), int)
        assert 1_600_000_000_000 < clock.now_ms() < 4_000_000_000_000

    def test_the_monotonic_clock_never_goes_back(self, clock: Clock) -> None:
        readings = [clock.monotonic_ms() for _ in range(1000)]
        assert readings == sorted(readings)
