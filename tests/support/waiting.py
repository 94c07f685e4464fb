"""Waiting for a condition, and time enough for a slow machine."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0
_PAUSES_PER_COST = 2
_PAUSE_MAX_S = 0.02


def wait_for(condition: Callable[[], object], patience_s: float = PATIENCE_S, *, pause_s: float = 0.002) -> None:
    """Returns as soon as `condition` holds; it is asked every `pause_s`, and less often if that takes CPU time, which
    what is waited for would lack. Raises `TimeoutError`."""
    deadline = time.monotonic() + patience_s
    begin = time.process_time()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come about within {patience_s:.0f} s")
        cost_s = time.process_time() - begin
        time.sleep(max(pause_s, min(cost_s * _PAUSES_PER_COST, _PAUSE_MAX_S)))
        begin = time.process_time()


def with_enough_time(check: Callable[[int], object], limit_ms: int = 200) -> None:
    """Calls `check` with a limit in milliseconds for what it tries, and with longer ones as long as an assertion in it
    fails: a slow machine may not come to the point within the first."""
    while True:
        try:
            check(limit_ms)
            return
        except AssertionError:
            if limit_ms > PATIENCE_S * 1000:
                raise
        limit_ms *= 5
