"""The flush of producers that are still open when the program ends."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

EXIT_FLUSH_S = 5.0
"""The time, in seconds, that the end of the program waits for all producers together."""


ProducerT = TypeVar("ProducerT")
_open: WeakKeyDictionary[object, Callable[..., None]] = WeakKeyDictionary()


def flush_at_exit(producer: ProducerT, end: Callable[[ProducerT, float], None]) -> None:
    """Register a call of `end` at the end of the program, unless the producer is gone by then.

    `end(producer, timeout)` sends the remaining messages within `timeout` seconds, and reports lost ones. It does
    nothing for a closed producer.
    """
    if not _open:
        atexit.unregister(_flush_all)
        atexit.register(_flush_all)
    _open[producer] = end


def _flush_all() -> None:
    deadline = time.monotonic() + EXIT_FLUSH_S
    for producer, end in list(_open.items()):
        end(producer, max(0.0, deadline - time.monotonic()))
