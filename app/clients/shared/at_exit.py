"""The flush of producers that are still open when the program ends."""

from __future__ import annotations

import atexit
import time
from typing import Protocol
from weakref import WeakSet

EXIT_FLUSH_S = 5.0
"""The time, in seconds, that the end of the program waits for all producers together."""


class OpenProducer(Protocol):
    """A producer of either generation."""

    def end_with_program(self, timeout: float) -> None:
        """Send the remaining messages within `timeout` seconds, and report lost ones. Harmless on a closed producer."""
        ...


_open: WeakSet[OpenProducer] = WeakSet()


def flush_at_exit(producer: OpenProducer) -> None:
    """Register a call of `end_with_program` at the end of the program, unless the producer is gone by then."""
    if not _open:
        atexit.unregister(_flush_all)
        atexit.register(_flush_all)
    _open.add(producer)


def _flush_all() -> None:
    deadline = time.monotonic() + EXIT_FLUSH_S
    for producer in list(_open):
        producer.end_with_program(max(0.0, deadline - time.monotonic()))
