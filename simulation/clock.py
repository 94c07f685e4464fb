"""The clock of one machine, which says another time than those of the others."""

from ..ports.clock import Clock
from ..ports.entropy import Entropy

MONTH_MS = 30 * 24 * 3_600_000.0


class SkewedClock:
    """Fulfils `Clock`: the world's time, and what this machine's clocks are ahead."""

    def __init__(self, clock: Clock, *, wall_ms: int = 0, monotonic_ms: float = 0.0) -> None:
        """`wall_ms`: settable, what its time of day is ahead, negative when behind. `monotonic_ms`: not below 0."""
        self._clock = clock
        self.wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    @classmethod
    def somehow(cls, clock: Clock, entropy: Entropy) -> "SkewedClock":
        """Of a machine that has run for up to a month, and whose time of day is nearly right."""
        return cls(clock, wall_ms=entropy.below(400) - 200, monotonic_ms=entropy.fraction() * MONTH_MS)

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, as this machine believes."""
        return self._clock.now_ms() + self.wall_ms

    def monotonic_ms(self) -> float:
        """Milliseconds since this machine was switched on, long ago."""
        return self._clock.monotonic_ms() + self._monotonic_ms
