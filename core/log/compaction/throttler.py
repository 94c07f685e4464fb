"""How much of its time a cleaning may take: others come first, and the rate is kept."""

from collections.abc import Callable

from ....ports.clock import Clock

_REST = 10.0
"""So many times as long it rests after a piece of work, where others were served lately."""
_REST_MAX_MS = 60.0
_LATELY_MS = 20.0
_SLICE_MAX_S = 0.1
"""It moves no more bytes in a piece of work than the rate allows in so long."""


class Throttler:
    """Owner thread only.

    rate:   bytes a second that it may read and write, as of now.
    served: counts what others ask for.
    """

    def __init__(self, clock: Clock, rate: Callable[[], float], served: Callable[[], int]) -> None:
        self._now_ms = clock.monotonic_ms
        self._rate = rate
        self._served = served
        self._served_before = served()
        self._gives_way_until_ms = self._began_ms = 0.0
        self._free_at_ms = clock.monotonic_ms()
        """When the bytes moved by now are paid for."""
        self._paid = 0

    def begin(self) -> float:
        """A piece of work begins; returns how many bytes it may move."""
        self._began_ms = self._now_ms()
        return self._rate() * _SLICE_MAX_S

    def pause_ms(self, moved: int) -> float:
        """The piece is done, `moved` bytes by all of them; how long to wait with the next."""
        now_ms, served, rest = self._now_ms(), self._served(), 0.0
        if served != self._served_before:
            self._served_before, self._gives_way_until_ms = served, now_ms + _LATELY_MS
        if now_ms < self._gives_way_until_ms:
            rest = min(_REST * (now_ms - self._began_ms), _REST_MAX_MS)
        bytes_now, self._paid = moved - self._paid, moved
        self._free_at_ms = max(self._free_at_ms, self._began_ms) + bytes_now / self._rate() * 1000.0
        return max(rest, self._free_at_ms - now_ms)
