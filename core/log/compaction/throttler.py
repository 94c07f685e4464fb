"""Throttle of background I/O: requests come first, and a byte rate is the limit (Kafka: Throttler)."""

from collections.abc import Callable

from ....ports.clock import Clock

_PAUSE_FACTOR = 10.0
"""Pause after a slice, as a multiple of its duration, while requests arrive."""
_PAUSE_MAX_MS = 60.0
_RECENT_MS = 20.0
_SLICE_MAX_S = 0.1
"""A slice moves at most the bytes that the rate allows in this time."""


class Throttler:
    """Owner thread only.

    rate:   current limit of bytes per second, read and written.
    served: number of requests served so far.
    """

    def __init__(self, clock: Clock, rate: Callable[[], float], served: Callable[[], int]) -> None:
        self._now_ms = clock.monotonic_ms
        self._rate = rate
        self._served = served
        self._served_before = served()
        self._yields_until_ms = self._began_ms = 0.0
        self._free_at_ms = clock.monotonic_ms()
        """Time at which the moved bytes comply with the rate."""
        self._moved_before = 0

    def begin_slice(self) -> float:
        """Begin a slice; return how many bytes it may move."""
        self._began_ms = self._now_ms()
        return self._rate() * _SLICE_MAX_S

    def pause_ms(self, moved: int) -> float:
        """Return the pause before the next slice; `moved` is the total of bytes so far."""
        now_ms, served, rest = self._now_ms(), self._served(), 0.0
        if served != self._served_before:
            self._served_before, self._yields_until_ms = served, now_ms + _RECENT_MS
        if now_ms < self._yields_until_ms:
            rest = min(_PAUSE_FACTOR * (now_ms - self._began_ms), _PAUSE_MAX_MS)
        bytes_now, self._moved_before = moved - self._moved_before, moved
        self._free_at_ms = max(self._free_at_ms, self._began_ms) + bytes_now / self._rate() * 1000.0
        return max(rest, self._free_at_ms - now_ms)
