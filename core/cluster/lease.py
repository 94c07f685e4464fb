"""The session lease: the time for which a broker, by its own clock, may assume that its session lives."""

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
    """The lease on the session with the coordination service, which it renews. Owner thread only.

    The lease runs from the beginning of the last call that renewed the session, for a little less than the session
    timeout, as clocks run at different rates. So it expires before the service can have ended the session: a broker
    that was suspended sees at once that its lease is over. There is no lease before `grant`.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock, coordination: Coordination, report: Callable[[str], None]):
        self._scheduler = scheduler
        self._clock = clock
        self._coordination = coordination
        self._report = report
        self._until_ms = -inf
        self._period_ms = FIRST_MS
        self._turn = 0
        """The number of the present turn: the outcome of a call from an earlier one does not count."""
        self._is_granted = False
        self._is_expiry_reported = False
        self._is_closed = False
        self._timer: Timer | None = None

    @property
    def is_valid(self) -> bool:
        """True while no other broker can see this one as dead."""
        return self._clock.monotonic_ms() < self._until_ms

    @property
    def left_ms(self) -> float:
        """The time until the lease is over; negative afterwards."""
        return self._until_ms - self._clock.monotonic_ms()

    def start_renewing(self) -> None:
        """Renew the session from now on."""
        self._keep()

    def grant(self) -> None:
        """Grant the lease from the next call on: the broker is registered in the present session."""
        self._turn += 1
        self._is_granted = True
        self._keep()

    def revoke(self) -> None:
        """End the lease, since the session has ended."""
        self._turn += 1
        self._is_granted = False
        self._until_ms = -inf
        self._keep()

    def close(self) -> None:
        """End the lease and stop renewing the session. A second call is a no-op."""
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
