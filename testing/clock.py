"""A clock that can be made to jump, and the timers that jump with it."""

import time
from collections.abc import Callable
from typing import TypeVar

from ..ports.scheduler import Outcome, Scheduler, Timer

T = TypeVar("T")
Callback = Callable[[], None]


class JumpingClock:
    """Fulfils `Clock`: the machine's clock, ahead by as much as it was made to jump."""

    def __init__(self) -> None:
        self._ahead_ms = 0.0
        self._wall_ahead_ms = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000 + int(self._wall_ahead_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary start; never goes back."""
        return time.monotonic_ns() / 1e6 + self._ahead_ms

    def advance(self, ms: float) -> None:
        """Be ahead by so much more. Raises `ValueError` for a negative step."""
        if ms < 0:
            raise ValueError(f"time does not go back by {-ms} ms")
        self._ahead_ms += ms
        self._wall_ahead_ms += ms

    def set_right(self) -> None:
        """Let the wall clock say what the machine's says. The monotonic clock stays ahead."""
        self._wall_ahead_ms = 0.0


class JumpingScheduler:
    """Fulfils `Scheduler` with another one; its timers follow a `JumpingClock`."""

    def __init__(self, inner: Scheduler, clock: JumpingClock) -> None:
        self._inner = inner
        self._clock = clock
        self._timers: dict[_JumpingTimer, None] = {}

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        """Run `callback` after `delay_ms`, or when a jump takes the clock there."""
        return _JumpingTimer(self._inner, self._timers, self._clock.monotonic_ms() + delay_ms, delay_ms, callback)

    def call_soon(self, callback: Callback) -> None:
        """Run `callback` on the owner thread. Callable from any thread."""
        self._inner.call_soon(callback)

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        """Run `work` on a worker thread, then `done` on the owner."""
        self._inner.offload(work, done)

    def jump(self, ms: float, arrived: Callback) -> None:
        """Let `ms` pass at once: what is due by then runs on the next turn, in the order of its time; then `arrived`.

        Owner thread only. A periodic timer runs once, however many of its periods have passed.
        """
        self._clock.advance(ms)
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._timers, key=lambda timer: timer.due_ms):
            timer.wait_again(timer.due_ms - now_ms)
        self._inner.call_later(0.0, arrived)


class _JumpingTimer:
    """One waiting callback, and the timer of the other scheduler that it waits for."""

    def __init__(
        self,
        scheduler: Scheduler,
        waiting: "dict[_JumpingTimer, None]",
        due_ms: float,
        delay_ms: float,
        callback: Callback,
    ) -> None:
        self._scheduler = scheduler
        self._waiting = waiting
        self.due_ms = due_ms
        self._callback = callback
        self._inner = scheduler.call_later(delay_ms, self._run)
        waiting[self] = None

    def cancel(self) -> None:
        self._waiting.pop(self, None)
        self._inner.cancel()

    def wait_again(self, delay_ms: float) -> None:
        """Restart the wait with `delay_ms` from now; owner thread only."""
        self._inner.cancel()
        self._inner = self._scheduler.call_later(max(0.0, delay_ms), self._run)

    def _run(self) -> None:
        if self in self._waiting:
            del self._waiting[self]
            self._callback()
