"""Reports of the brokers that a client cannot connect to, in its log and its errors."""

from collections.abc import Callable

from ....ports.clock import Clock
from ....ports.transport import Address, TransportError
from ..errors import silent

REPORT_INTERVAL_MS = 60_000.0
"""A broker that stays unreachable is reported again after this time."""

_HINT = "; start a broker there, or correct bootstrap.servers"


class UnreachableBrokers:
    """Reports the first failed connection to an address at once, and later ones once in `REPORT_INTERVAL_MS`.

    Owner thread only, but for `last_error`.
    """

    def __init__(self, clock: Clock, report: Callable[[str], None]) -> None:
        self._clock = clock
        self._report = report
        self._errors: dict[Address, TransportError] = {}
        self._due_ms: dict[Address, float] = {}
        self._reached: set[Address] = set()
        self.last_error: TransportError | None = None
        """The last failed attempt to connect to an address that is still unreachable; None while all can be reached."""

    def on_failed(self, address: Address, error: TransportError) -> None:
        """Record a failed attempt to connect, and report it if a report is due."""
        self._errors.pop(address, None)
        self._errors[address] = self.last_error = error
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._due_ms.get(address, now_ms):
            self._due_ms[address] = now_ms + REPORT_INTERVAL_MS
            hint = "" if address in self._reached or not str(error).startswith("cannot connect to") else _HINT
            self._report(f"{error}{hint} (the client tries again)")

    def on_late(self, address: Address) -> None:
        """Record an overdue request as a failure if this address has never been reached."""
        error = silent(address)
        if address not in self._reached and error is not None:
            self.on_failed(address, error)

    def on_connected(self, address: Address) -> None:
        """Record that a broker is reachable there; the time of the next report does not change."""
        self._reached.add(address)
        self.clear(address)

    def clear(self, address: Address) -> None:
        """Remove the last failure of this address."""
        if self._errors.pop(address, None) is not None:
            self.last_error = next(reversed(self._errors.values()), None)
