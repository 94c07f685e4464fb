"""The measures of quotas: the rate over sampled windows, and the token bucket of controller mutations.

Time is an argument in milliseconds; calls must not go back in time.
"""

from collections import deque

from ....ports.values import frozen

_NEVER_MS = float("-inf")


@frozen(kw_only=True)
class QuotaWindows:
    """The samples of a quota: `quota.window.num` of `quota.window.size.seconds` each."""

    samples: int = 11
    window_ms: float = 1000.0

    @property
    def full_ms(self) -> float:
        """The length of all windows but the current one, which is the least time that a rate is divided by."""
        return (self.samples - 1) * self.window_ms

    @property
    def burst_seconds(self) -> float:
        """The seconds of a rate that a token bucket holds."""
        return self.samples * self.window_ms / 1000.0


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0
        self.count = 0


class SampledStat:
    """The sum and the number of values in the live windows, Kafka's `SampledStat`.

    A window begins with its first value. It is live until its last value is as old as all windows together.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: QuotaWindows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque(maxlen=windows.samples + 1)

    def record(self, value: float, now_ms: float) -> None:
        """Add a value; a negative one takes back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.window_ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.last_ms = now_ms
        sample.total += value
        sample.count += 1

    def total(self, now_ms: float) -> float:
        """Return the sum of the live windows."""
        self._purge(now_ms)
        return sum(sample.total for sample in self._samples)

    def average(self, now_ms: float) -> float:
        """Return the mean of the values in the live windows; 0 without any."""
        self._purge(now_ms)
        count = sum(sample.count for sample in self._samples)
        return sum(sample.total for sample in self._samples) / count if count else 0.0

    def elapsed_ms(self, now_ms: float) -> float:
        """Return the time that the sum is divided by for a rate, Kafka's `Rate.windowSize`.

        It is the time since the oldest live window began. Windows that do not exist yet count in full, so that a new
        meter is not divided by a moment.
        """
        self._purge(now_ms)
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0.0
        windows = self._windows
        missing = windows.samples - 1 - int(elapsed_ms // windows.window_ms)
        return max(1.0, elapsed_ms + max(0, missing) * windows.window_ms)

    def _purge(self, now_ms: float) -> None:
        samples, age_ms = self._samples, self._windows.samples * self._windows.window_ms
        while samples and now_ms - samples[0].last_ms >= age_ms:
            samples.popleft()


class SampledRate:
    """A rate per second with a bound, Kafka's `Rate` in a sensor with a quota."""

    __slots__ = ("_stat", "bound")

    def __init__(self, windows: QuotaWindows, bound: float) -> None:
        self.bound = bound
        self._stat = SampledStat(windows)

    def record(self, value: float, now_ms: float) -> None:
        """Count `value` without a look at the bound; a negative one takes back what was counted."""
        self._stat.record(value, now_ms)

    def per_second(self, now_ms: float) -> float:
        """Return the present rate."""
        return self._stat.total(now_ms) * 1000.0 / self._stat.elapsed_ms(now_ms)

    def throttle_ms(self, now_ms: float) -> int:
        """Return how long to wait until the rate is within its bound, Kafka's `QuotaUtils.throttleTime`; 0 = not."""
        rate = self.per_second(now_ms)
        if rate <= self.bound:
            return 0
        return round((rate - self.bound) / self.bound * self._stat.elapsed_ms(now_ms))


class TokenBucket:
    """A bucket that fills with `bound` tokens per second, Kafka's `TokenBucket` (KIP-599); it starts full.

    It may become negative: the last operation that is admitted takes all the tokens that it costs.
    """

    __slots__ = ("_tokens", "_updated_ms", "_windows", "bound")

    def __init__(self, windows: QuotaWindows, bound: float) -> None:
        self.bound = bound
        self._windows = windows
        self._tokens = 0.0
        self._updated_ms = _NEVER_MS

    def tokens(self, now_ms: float) -> float:
        """Return the tokens that are left."""
        self._refill(now_ms)
        return self._tokens

    def record(self, value: float, now_ms: float) -> None:
        """Take tokens, however few are left."""
        self._refill(now_ms)
        self._tokens = min(self._burst, self._tokens - value)

    def throttle_ms(self, now_ms: float) -> int:
        """Return the time until no tokens are missing; 0 = none are."""
        self._refill(now_ms)
        return round(-self._tokens / self.bound * 1000.0) if self._tokens < 0 else 0

    @property
    def _burst(self) -> float:
        return self._windows.burst_seconds * self.bound

    def _refill(self, now_ms: float) -> None:
        passed_ms, self._updated_ms = now_ms - self._updated_ms, now_ms
        self._tokens = min(self._burst, self._tokens + self.bound * passed_ms / 1000.0)
