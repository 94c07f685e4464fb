"""The connection of clients to brokers: over TCP, in the same process, or in a simulated network."""

from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import Protocol, runtime_checkable

from ..ports.broker_api.envelope import BrokerLink
from ..ports.clock import Clock
from ..ports.entropy import Entropy
from ..ports.scheduler import Scheduler
from ..ports.transport import Address, TransportError

Opened = Callable[[BrokerLink | TransportError], None]


class Connector(Protocol):
    """The dependencies of a client's shell. `app.compose` makes them; one connector serves one client."""

    @property
    def bootstrap(self) -> Sequence[Address]:
        """The addresses to ask for metadata first; at least one."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def entropy(self) -> Entropy: ...

    def start(self) -> Scheduler:
        """Start the reactor in a background thread, unless it runs already, and return its scheduler.

        Called once, from the user's thread, before anything else. Raises `TransportError` or `ClosedError`.
        """
        ...

    def condition(self, lock: Lock) -> Condition:
        """Return the condition of the user's threads: `Condition(lock)`, or one that waits in simulated time."""
        return Condition(lock)

    def owns_thread(self) -> bool:
        """Return True when the calling thread is the reactor's, so that waiting there would wait for ever."""
        ...

    def connect(self, address: Address, opened: Opened) -> None:
        """Open a link to the broker at `address`. Owner thread only.

        `opened` is called exactly once on the owner thread, at once or later, with the link or with the reason why
        there is none. A link that breaks replies `TransportError` to everything outstanding and to every later request.
        """
        ...

    def stop(self) -> None:
        """End the reactor thread if it is this connector's own; links are closed before. Not from the reactor's thread.

        Returns when the thread has ended. Twice is harmless.
        """
        ...


@runtime_checkable
class MakesConnectors(Protocol):
    """Given in place of a bootstrap address: makes the connector of each client. The simulation's programs do."""

    def connector_for(self, *, client_id: str, request_timeout_ms: float, connect_timeout_ms: float) -> Connector: ...
