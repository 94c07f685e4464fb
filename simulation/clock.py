"""The clock of one machine, which says another time than those of the others."""

from ..ports.clock import Clock
from ..ports.entropy import Entropy

MONTH_MS = 30 * 24 * 3_600_000.0


class SkewedClock:
    """Fulfils `Clock`: the world's time, and what this machine's clocks are ahead. They may run at another rate."""

    def __init__(self, clock: Clock, *, wall_ms: int = 0, monotonic_ms: float = 0.0) -> None:
        """`wall_ms`: settable, what its time of day is ahead, negative when behind. `monotonic_ms`: not below 0."""
        self._clock = clock
        self.wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._rate = 1.0
        self._since_ms = clock.monotonic_ms()
        """The world's time when the rate changed last."""
        self._gained_ms = 0.0
        """The time gained at the rates up to then."""

    @property
    def rate(self) -> float:
        """Settable: how many of its seconds pass in one of the world. What is ahead already stays so."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._gained_ms, self._since_ms = self._gained(), self._clock.monotonic_ms()
        self._rate = rate

    def _gained(self) -> float:
        if self._rate == 1.0:
            return self._gained_ms
        return self._gained_ms + (self._clock.monotonic_ms() - self._since_ms) * (self._rate - 1.0)

    @classmethod
    def somehow(cls, clock: Clock, entropy: Entropy) -> "SkewedClock":
        """Return the clock of a machine that has run for up to a month, and whose time of day is nearly right."""
        return cls(clock, wall_ms=entropy.below(400) - 200, monotonic_ms=entropy.fraction() * MONTH_MS)

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch, as this machine believes."""
        return self._clock.now_ms() + self.wall_ms + round(self._gained())

    def monotonic_ms(self) -> float:
        """Return milliseconds since this machine was switched on, long ago."""
        gained_ms = self._gained_ms if self._rate == 1.0 else self._gained()
        return self._clock.monotonic_ms() + self._monotonic_ms + gained_ms
