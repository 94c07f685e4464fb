"""Makes things late at random, as they are on a busy machine.

`pytest --late watches tests/integration/test_draining.py` finds what takes for granted that a broker has heard of a
change, that a timer is on time, or that offloaded work is done soon: tests that should wait for a condition, and code.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar
from unittest.mock import patch

from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.timers import HeapTimer
from barnabas.adapters.watch_delivery import WatchDelivery
from barnabas.ports.errors import ClosedError
from barnabas.ports.scheduler import Outcome

T = TypeVar("T")

_PART = 0.6
"""The part of all things that is late."""


def _delay_s(low: float, high: float) -> float:
    return random.uniform(low, high) if random.random() < _PART else 0.0


def _watches() -> AbstractContextManager[object]:
    """Sessions with the coordination service hear of changes 0.05 to 0.5 s late, but for those that a test delivers."""

    def start(delivery: WatchDelivery) -> None:
        if not delivery._watchers.begin_delivery():
            return

        def deliver() -> None:
            try:
                delivery._deliver(delivery._notify)
            except ClosedError as error:
                delivery._failed(error)

        is_ours = getattr(delivery._deliver, "__module__", "").startswith("barnabas.")
        delay_s = _delay_s(0.05, 0.5) if is_ours else 0.0
        if not delay_s:
            deliver()
            return
        timer = threading.Timer(delay_s, deliver)
        timer.daemon = True
        timer.start()

    return patch.object(WatchDelivery, "_start", start)


def _timers() -> AbstractContextManager[object]:
    """Timers of reactors are 0.01 to 0.15 s late."""
    call_later = Reactor.call_later

    def later(reactor: Reactor, delay_ms: float, callback: Callable[[], None]) -> HeapTimer:
        return call_later(reactor, delay_ms + (_delay_s(10, 150) if delay_ms > 0 else 0), callback)

    return patch.object(Reactor, "call_later", later)


def _offloaded() -> AbstractContextManager[object]:
    """Work off the reactor takes 0.02 to 0.12 s longer."""
    offload = Reactor.offload

    def slow(reactor: Reactor, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        def longer() -> T:
            time.sleep(_delay_s(0.02, 0.12))
            return work()

        offload(reactor, longer, done)

    return patch.object(Reactor, "offload", slow)


KINDS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "watches": _watches,
    "timers": _timers,
    "offloaded": _offloaded,
}
"""The events that `--late` delays, while a context lasts."""
