"""Waiting for a condition."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0
_SHARE = 0.05
_PAUSE_MAX_S = 0.05


def wait_for(condition: Callable[[], object], patience_s: float = PATIENCE_S, *, pause_s: float = 0.002) -> None:
    """Returns as soon as `condition` holds; it is asked every `pause_s`, and less often after a while: each question
    takes CPU time from what is waited for. Raises `TimeoutError`."""
    begin = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - begin
        if waited_s > patience_s:
            raise TimeoutError(f"it did not come about within {patience_s:.0f} s")
        time.sleep(max(pause_s, min(waited_s * _SHARE, _PAUSE_MAX_S)))
