"""Time, from outside."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks. Both may be called from any thread and never block."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch; may jump when the machine's clock is set."""
        ...

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary start; never goes back. For timeouts, leases and measured durations.

        It includes the time while the machine was suspended, if the system can measure it: other machines kept running.
        """
        ...
