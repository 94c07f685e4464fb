"""How long a broker may take it that the others take it for alive: by its own clock, without asking anybody."""

from collections.abc import Callable
from math import inf

from ...ports.clock import Clock
from ...ports.coordination import Coordination, CoordinationError, SessionExpired
from ...ports.errors import ClosedError
from ...ports.report import info
from ...ports.scheduler import Outcome, Scheduler, Timer

KEEPS_PER_SESSION = 6
RATE_ERROR_MAX = 0.01
"""A broker's clock may run slower than that of the coordination service by this part. NTP slews by 0.05 % at most."""
FIRST_MS = 1000.0


class Lease:
    """The session with the coordination service, kept and measured. Owner thread only.

    It counts from the beginning of the last call that kept the session, and a little less than the service's time, as
    clocks run at different rates. So it is over, here, before the service can have ended the session: a broker that
    stood still knows it at once when it goes on. `revoked` until it is granted.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock, coordination: Coordination, report: Callable[[str], None]):
        self._scheduler = scheduler
        self._clock = clock
        self._coordination = coordination
        self._report = report
        self._until_ms = -inf
        self._period_ms = FIRST_MS
        self._turn = 0
        """What was asked for in an earlier one does not count any more."""
        self._is_granted = False
        self._is_expiry_reported = False
        self._is_closed = False
        self._timer: Timer | None = None

    @property
    def is_valid(self) -> bool:
        """True while no other broker can take this one for dead."""
        return self._clock.monotonic_ms() < self._until_ms

    @property
    def left_ms(self) -> float:
        """Until it is over; negative when it is."""
        return self._until_ms - self._clock.monotonic_ms()

    def begin(self) -> None:
        """Keep the session from now on."""
        self._keep()

    def grant(self) -> None:
        """The broker is registered in the present session: it counts from the next call on."""
        self._turn += 1
        self._is_granted = True
        self._keep()

    def revoke(self) -> None:
        """The session has ended."""
        self._turn += 1
        self._is_granted = False
        self._until_ms = -inf
        self._keep()

    def close(self) -> None:
        """Keep it no longer. Twice is harmless."""
        self._is_closed = True
        self._turn += 1
        self._until_ms = -inf
        self._cancel()

    def _keep(self) -> None:
        if self._is_closed:
            return
        self._cancel()
        began_ms, turn = self._clock.monotonic_ms(), self._turn

        def done(outcome: Outcome[float]) -> None:
            if turn != self._turn or self._is_closed:
                return
            if outcome.error is None:
                lasts_ms = outcome.get()
                self._period_ms = min(lasts_ms / KEEPS_PER_SESSION, 60_000.0)
                if self._is_granted:
                    self._until_ms = began_ms + lasts_ms * (1 - RATE_ERROR_MAX)
            elif isinstance(outcome.error, SessionExpired):
                self._until_ms = -inf
            elif not isinstance(outcome.error, CoordinationError | ClosedError):
                self._report(f"keeping the session failed: {type(outcome.error).__name__}: {outcome.error}")
            self._report_change()
            self._timer = self._scheduler.call_later(self._period_ms, self._keep)

        try:
            self._scheduler.offload(self._coordination.heartbeat, done)
        except ClosedError:
            self._is_closed = True  # the broker is about to end

    def _report_change(self) -> None:
        """Report once that the lease of a registered broker is over, and once that it is valid again."""
        if self._is_granted and self.is_valid is self._is_expiry_reported:
            self._is_expiry_reported = not self._is_expiry_reported
            if self._is_expiry_reported:
                text = "the coordination service did not renew this broker's session in time; until it does, the broker"
                self._report(
                    f"{text} refuses acks=0 and acks=1, coordinates no groups and transactions, and accepts acks=all "
                    "only where two or more replicas are in sync and connected"
                )
            else:
                self._report(info("the coordination service renews this broker's session again: it serves everything"))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
