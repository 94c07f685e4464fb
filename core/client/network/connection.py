"""The connection to a broker, open or being opened. Its user decides when to retry and what waits for it."""

from collections.abc import Callable

from ....ports.broker_api.envelope import BrokerLink
from ....ports.scheduler import Scheduler, Timer
from ....ports.transport import Address, TransportError

ConnectCallback = Callable[[BrokerLink | TransportError], None]
Connect = Callable[[Address, ConnectCallback], None]
"""Open a link, as `Connector.connect` does."""


class BrokerConnection:
    """Makes one attempt at a time. A link that opens after `close` is closed at once. Owner thread only."""

    __slots__ = ("_closed", "_connect", "_failed", "_opened", "_scheduler", "_timer", "address", "is_opening", "link")

    def __init__(
        self,
        address: Address,
        scheduler: Scheduler,
        connect: Connect,
        *,
        opened: Callable[[BrokerLink], None],
        failed: Callable[[TransportError], float | None],
    ) -> None:
        """`failed` takes the error of each failed attempt and returns the delay of a retry in ms, or None."""
        self.address = address
        self.link: BrokerLink | None = None
        """The open link, or None."""
        self._scheduler = scheduler
        self._connect = connect
        self._opened = opened
        self._failed = failed
        self.is_opening = False
        """True while a link is being opened."""
        self._closed = False
        self._timer: Timer | None = None

    def open(self, delay_ms: float = 0.0) -> None:
        """Open a link after `delay_ms`, unless there is one or it is being opened."""
        if self.link is not None or self.is_opening or self._closed:
            return
        self.is_opening = True
        if delay_ms > 0:
            self._timer = self._scheduler.call_later(delay_ms, self._try)
        else:
            self._try()

    def forget(self, link: BrokerLink) -> bool:
        """Drop the link without closing it: that is up to the user. False if the current link is another one."""
        if self.link is not link:
            return False
        self.link = None
        return True

    def disconnect(self) -> bool:
        """Close the link, if there is one; a new one may be opened."""
        link, self.link = self.link, None
        if link is None:
            return False
        link.close()
        return True

    def close(self) -> None:
        """Close the link, and open no other."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.disconnect()

    def _try(self) -> None:
        self._timer = None
        self._connect(self.address, self._ended)

    def _ended(self, outcome: BrokerLink | TransportError) -> None:
        """Handle the outcome of an attempt."""
        self.is_opening = False
        if isinstance(outcome, TransportError):
            again_ms = self._failed(outcome) if not self._closed else None
            if again_ms is not None:
                self.is_opening = True
                self._timer = self._scheduler.call_later(again_ms, self._try)
        elif self._closed:
            outcome.close()
        else:
            self.link = outcome
            self._opened(outcome)
