"""The effects of a client's state machines: send a request to a broker, and poll again at a time."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ...ports.broker_api.envelope import Request

NEVER = math.inf

ResponseCallback = Callable[[Any, float], None]
"""Takes the result, or the `BarnabasError` that took its place, and the time in ms (monotonic)."""


class Send(NamedTuple):
    """Send the request to the broker `node` and hand what comes back to `answer`, exactly once.

    Negative numbers are the bootstrap addresses: -1 the first, -2 the second.
    """

    node: int
    request: Request[Any]
    answer: ResponseCallback


class Poll(NamedTuple):
    """The requests to send now, and the latest time of the next poll (ms, monotonic; `NEVER`: at the next answer)."""

    sends: list[Send]
    wake_ms: float


class Part(Protocol):
    """A state machine that a shell drives; all of it on one thread, or under the shell's lock."""

    def poll(self, now_ms: float) -> Poll: ...


def backoff_ms(failures: int, base_ms: float, max_ms: float, fraction: float) -> float:
    """Exponential back-off after `failures` ≥ 1 failures, with ± 20 % of jitter; `fraction` in [0, 1) (KIP-580)."""
    return min(max_ms, base_ms * 2.0 ** min(failures - 1, 30)) * (0.8 + 0.4 * fraction)
