"""Counters and histograms between two collections: plain numbers, quick to change from any thread."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from threading import Lock

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BYTES = tuple(float(64 << (2 * step)) for step in range(11))  # 64 B to 64 MiB
_NUMBERS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0, 10_000.0, 100_000.0)


def bounds_for(name: str) -> Sequence[float]:
    """The upper bounds of a histogram's buckets, by the unit at the end of its name."""
    if name.endswith("_seconds"):
        return _SECONDS
    if name.endswith(("_ms", "timems")):
        return tuple(bound * 1000.0 for bound in _SECONDS)
    if name.endswith("_bytes"):
        return _BYTES
    return _NUMBERS


class CounterValue:
    """Fulfils `Counter`."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self._lock = Lock()
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        """Grow by `amount`; raises `ValueError` when it is negative."""
        if amount < 0:
            raise ValueError("a counter only grows")
        with self._lock:
            self.value += amount


class HistogramValue:
    """Fulfils `Histogram`."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._lock = Lock()
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count `value` in its bucket."""
        index = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[index] += 1
            self._sum += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, number of values up to it) for each bucket, and the sum of all values."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        bounds = [*(str(bound) for bound in self._bounds), "+Inf"]
        return [(bound, float(count)) for bound, count in zip(bounds, accumulate(counts), strict=True)], total


class GaugesValue:
    """Numbers that are read when they are collected, with their labels."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], Iterable[tuple[Sequence[str], float]]]) -> None:
        self.read = read


class GaugeValue:
    """A number that is read when it is collected."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read
