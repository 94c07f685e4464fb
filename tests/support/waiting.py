"""Waiting for a condition."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0


def wait_for(condition: Callable[[], object], patience_s: float = PATIENCE_S, *, pause_s: float = 0.002) -> None:
    """Returns as soon as `condition` holds; it is asked every `pause_s`. Raises `TimeoutError`."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come about within {patience_s:.0f} s")
        time.sleep(pause_s)
