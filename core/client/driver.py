"""Drives a client's state machines: polls them, sends their requests, and polls again in time. No threads, no locks.

A client whose machines are shared with other threads wraps each in a `Part` that takes the lock: see
`app.clients.shared.locked`.
"""

from collections.abc import Callable
from typing import Any

from ...ports.broker_api.envelope import Request
from ...ports.clock import Clock
from ...ports.scheduler import Scheduler, Timer
from .effects import NEVER, Part, Send

Submit = Callable[[int, Request[Any], Callable[[Any], None]], None]
"""Sends a request to a node, as `Links.submit` does."""

FAILED_MS = 1000.0
"""A machine that has raised is polled again after this time."""


class Driver:
    """Runs the state machines. Only `wake` and `retire` may be called off the scheduler's owner thread.

    An exception of a machine or a response callback reaches the scheduler, but neither the other machines nor the
    connection of the response; the machine is polled again after `FAILED_MS`.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock, submit: Submit) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._submit = submit
        self._parts: tuple[Part, ...] = ()
        self._scheduled = False
        self._retired = False
        self._timer: Timer | None = None
        self._timer_ms = NEVER

    def add(self, part: Part) -> None:
        """Poll this machine too, before those that were added earlier: it may request metadata from them."""
        self._parts = (part, *self._parts)

    def wake(self) -> None:
        """Poll the machines soon. From any thread. Raises `ClosedError` when the scheduler has stopped."""
        if not self._scheduled and not self._retired:
            self._scheduled = True
            self._scheduler.call_soon(self._turn)

    def retire(self) -> None:
        """Stop polling; requests in flight are still answered. From any thread."""
        self._retired = True

    def close(self) -> None:
        """Stop polling like `retire`, and cancel the timer."""
        self._retired = True
        self._cancel_timer()

    def _turn(self) -> None:
        self._scheduled = False
        if self._retired:
            return
        now_ms = self._clock.monotonic_ms()
        wake_ms = NEVER
        for part in self._parts:
            try:
                poll = part.poll(now_ms)
                wake_ms = min(wake_ms, poll.wake_ms)
                for send in poll.sends:
                    self._send(send)
            except Exception as error:  # noqa: BLE001  # the scheduler reports it, and the other machines continue
                wake_ms = min(wake_ms, now_ms + FAILED_MS)
                self._raise_later(error)
        self._wake_at(wake_ms, now_ms)

    def _send(self, send: Send) -> None:
        def reply(result: Any) -> None:
            try:
                send.answer(result, self._clock.monotonic_ms())
            except Exception as error:  # noqa: BLE001  # the scheduler reports it, and the connection stays open
                self._raise_later(error)
            self.wake()

        self._submit(send.node, send.request, reply)

    def _raise_later(self, error: Exception) -> None:
        def fail() -> None:
            raise error

        self._scheduler.call_soon(fail)

    def _wake_at(self, wake_ms: float, now_ms: float) -> None:
        if self._timer is not None and self._timer_ms <= wake_ms and self._timer_ms > now_ms:
            return
        self._cancel_timer()
        if wake_ms < NEVER and not self._retired:
            self._timer_ms = wake_ms
            self._timer = self._scheduler.call_later(max(0.0, wake_ms - now_ms), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._turn()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
