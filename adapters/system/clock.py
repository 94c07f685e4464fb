"""The machine's clock, and a manual clock."""

import sys
import time

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", None) or (time.CLOCK_MONOTONIC if sys.platform == "darwin" else None)
"""The clock that counts the time while the machine is suspended: CLOCK_BOOTTIME of Linux, CLOCK_MONOTONIC of macOS
(`time.monotonic` does not, there). None: `time.monotonic` is all there is."""


class SystemClock:
    """Fulfils `Clock` with the clocks of the machine, which all stand while a hypervisor holds a virtual machine."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary start; never goes back, and counts while the machine is suspended."""
        if _ELAPSED is None:
            return time.monotonic_ns() / 1e6
        return time.clock_gettime_ns(_ELAPSED) / 1e6


class ManualClock:
    """Fulfils `Clock`; moves only by `advance` and `set_wall`."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        """`start_ms`: what the wall clock says at first, milliseconds since the Unix epoch. The other starts at 0."""
        self._wall_at_zero = float(start_ms)
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return int(self._wall_at_zero + self._elapsed_ms)

    def monotonic_ms(self) -> float:
        """Return milliseconds that the clock was advanced so far."""
        return self._elapsed_ms

    def advance(self, ms: float) -> None:
        """Move both clocks forward. Raises `ValueError` for a negative step."""
        if ms < 0:
            raise ValueError(f"time does not go back by {-ms} ms")
        self._elapsed_ms += ms

    def advance_to(self, monotonic_ms: float) -> None:
        """Move both clocks forward until the monotonic one says `monotonic_ms`; an earlier time changes nothing."""
        self._elapsed_ms = max(self._elapsed_ms, monotonic_ms)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, also backwards, as an operator does; the monotonic clock is not touched."""
        self._wall_at_zero = now_ms - self._elapsed_ms
