"""The machine's clock and randomness, and those that tests and the simulation drive.

The manual scheduler has no threads: everything happens in one order, the same each time.
"""

import os
import sys
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVar

from ..ports.entropy import Entropy
from ..ports.errors import ClosedError
from ..ports.scheduler import Outcome


class SystemEntropy:
    """Fulfils `Entropy`: all values come from the system, without the module `random`, which takes 0.2 MB."""

    def below(self, bound: int) -> int:
        """Return a uniform integer in [0, bound)."""
        if bound <= 0:
            raise ValueError(f"no integer is in [0, {bound})")
        return int.from_bytes(os.urandom(16)) % bound

    def fraction(self) -> float:
        """Return a uniform number in [0, 1)."""
        return (int.from_bytes(os.urandom(8)) >> 11) / (1 << 53)

    def token(self, size: int) -> bytes:
        """Return `size` unpredictable random bytes."""
        return os.urandom(size)


class SeededEntropy:
    """Fulfils `Entropy`; the same seed gives the same values on every machine."""

    def __init__(self, seed: int | str) -> None:
        from random import Random

        self._seed = seed
        self._random = Random(seed)

    def below(self, bound: int) -> int:
        """Return the next uniform integer in [0, bound)."""
        return self._random.randrange(bound)

    def fraction(self) -> float:
        """Return the next uniform number in [0, 1)."""
        return self._random.random()

    def token(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        return self._random.randbytes(size)

    def child(self, name: str) -> "SeededEntropy":
        """Return an independent stream of values for one part of a simulation: what others draw does not change it."""
        return SeededEntropy(f"{self._seed}/{name}")


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", None) or (time.CLOCK_MONOTONIC if sys.platform == "darwin" else None)
"""The clock that counts the time while the machine is suspended: CLOCK_BOOTTIME of Linux, CLOCK_MONOTONIC of macOS
(`time.monotonic` does not, there). None: `time.monotonic` is all there is."""


class SystemClock:
    """Fulfils `Clock` with the clocks of the machine, which all stand while a hypervisor holds a virtual machine."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary start; never goes back, and counts while the machine is suspended."""
        if _ELAPSED is None:
            return time.monotonic_ns() / 1e6
        return time.clock_gettime_ns(_ELAPSED) / 1e6


class ManualClock:
    """Fulfils `Clock`; moves only by `advance` and `set_wall`."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        """`start_ms`: what the wall clock says at first, milliseconds since the Unix epoch. The other starts at 0."""
        self._wall_at_zero = float(start_ms)
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return int(self._wall_at_zero + self._elapsed_ms)

    def monotonic_ms(self) -> float:
        """Return milliseconds that the clock was advanced so far."""
        return self._elapsed_ms

    def advance(self, ms: float) -> None:
        """Move both clocks forward. Raises `ValueError` for a negative step."""
        if ms < 0:
            raise ValueError(f"time does not go back by {-ms} ms")
        self._elapsed_ms += ms

    def advance_to(self, monotonic_ms: float) -> None:
        """Move both clocks forward until the monotonic one says `monotonic_ms`; an earlier time changes nothing."""
        self._elapsed_ms = max(self._elapsed_ms, monotonic_ms)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, also backwards, as an operator does; the monotonic clock is not touched."""
        self._wall_at_zero = now_ms - self._elapsed_ms


T = TypeVar("T")
Callback = Callable[[], None]

_CALLBACKS_MAX = 1_000_000
"""More callbacks at one moment count as an endless loop."""


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualScheduler:
    """Fulfils `Scheduler`. The calls below run what is due, in the order of time, then of the calls.

    Offloaded work starts on a later turn; with `entropy` after 0 to `offload_ms_max` of simulated time, and its `done`
    again as much later, so that two works finish in any order.
    """

    def __init__(
        self,
        clock: ManualClock,
        entropy: Entropy | None = None,
        report: Callable[[str], None] | None = None,
        *,
        offload_ms_max: float = 20.0,
    ) -> None:
        """`report` gets a line for each callback that raises; without it the exception leaves the driving call."""
        self.clock = clock
        self.running = False
        """True while a callback runs."""
        self.after_each: Callback | None = None
        """Called (settable) after each callback."""
        self._entropy = entropy
        self._report = report
        self._offload_ms_max = offload_ms_max
        self._queue: list[tuple[float, int, _ManualTimer]] = []
        self._added = 0
        self._stopped = False

    # --- Scheduler

    def call_later(self, delay_ms: float, callback: Callback) -> _ManualTimer:
        """Run `callback` when the clock has advanced by `delay_ms`."""
        if self._stopped:
            raise ClosedError("the scheduler has stopped")
        timer = _ManualTimer(callback)
        self._added = added = self._added + 1
        now_ms = self.clock.monotonic_ms()
        heappush(self._queue, (now_ms + delay_ms if delay_ms > 0 else now_ms, added, timer))
        return timer

    def call_soon(self, callback: Callback) -> None:
        """Run `callback` after those that are due now."""
        self.call_later(0.0, callback)

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        """Run `work`, then `done`, each at a time of its own."""

        def run() -> None:
            outcome = Outcome.of(work)
            self.call_later(self._work_ms(), lambda: done(outcome))

        self.call_later(self._work_ms(), run)

    def _work_ms(self) -> float:
        return 0.0 if self._entropy is None else self._entropy.fraction() * self._offload_ms_max

    # --- driving

    @property
    def waiting(self) -> int:
        """The number of waiting callbacks, without cancelled ones."""
        return sum(timer.callback is not None for _, _, timer in self._queue)

    def next_due_ms(self) -> float | None:
        """Return the monotonic time of the next callback; None when nothing waits."""
        queue = self._queue
        while queue and queue[0][2].callback is None:
            heappop(queue)
        return queue[0][0] if queue else None

    def run_pending(self) -> int:
        """Run all that is due now, also what that adds; returns how many callbacks ran. The clock stands still."""
        ran = 0
        queue, now_ms = self._queue, self.clock.monotonic_ms()
        while queue and queue[0][0] <= now_ms:
            callback = heappop(queue)[2].callback
            if callback is None:
                continue
            ran += 1
            self._run(callback)
            if ran > _CALLBACKS_MAX:
                raise RuntimeError(f"{ran} callbacks ran without time going on: an endless loop")
        return ran

    def advance(self, ms: float) -> None:
        """Let `ms` of simulated time pass, running everything at its time."""
        end = self.clock.monotonic_ms() + ms
        self.run_pending()
        while (due := self.next_due_ms()) is not None and due <= end:
            self.clock.advance_to(due)
            self.run_pending()
        self.clock.advance_to(end)

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 60_000.0) -> None:
        """Run, letting time pass as needed, until `condition` holds; it is asked after every callback.

        Raises `TimeoutError` when it does not hold within `limit_ms` of simulated time, or nothing is left to run.
        """
        end = self.clock.monotonic_ms() + limit_ms
        while not condition():
            due = self.next_due_ms()
            if due is None or due > end:
                why = "nothing is left to run" if due is None else f"{limit_ms:.0f} ms of simulated time have passed"
                raise TimeoutError(f"the condition does not hold and {why}")
            self.clock.advance_to(due)
            self._run_one()

    def stop(self) -> None:
        """Drop everything that waits; later calls raise `ClosedError`."""
        self._stopped = True
        self._queue.clear()

    def _run_one(self) -> None:
        callback = heappop(self._queue)[2].callback
        if callback is not None:
            self._run(callback)

    def _run(self, callback: Callback) -> None:
        self.running = True
        try:
            callback()
        except Exception as error:
            if self._report is None:
                raise
            self._report(f"a callback raised {type(error).__name__}: {' '.join(str(error).split())}")
        finally:
            self.running = False
        if self.after_each is not None:
            self.after_each()
