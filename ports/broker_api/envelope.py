"""How requests and answers pass: one call, one reply."""

from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar

from ..errors import ApiError, BarnabasError
from ..values import frozen

ResultT = TypeVar("ResultT")


class Request(Generic[ResultT]):
    """Base of every request; the parameter is the type of its result."""

    __slots__ = ()

    def failed(self, error: ApiError) -> "ResultT | BarnabasError":
        """What is told of a request that failed as a whole: a result with the error in every place that it has for one,
        or else the error itself. A connection closed instead would make a client ask again and again, and never know
        why."""
        return error


Reply = Callable[[ResultT | BarnabasError], None]
"""Takes the result, or the reason why there is none (connection lost, timed out, broken invariant)."""


@frozen
class Principal:
    """Whom a connection has shown to speak for; written as Kafka does, `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Whoever comes without authentication."""


class Origin(Enum):
    """Where a request comes from. No protocol carries it: only code of the broker's own process can say `BROKER`."""

    CLIENT = "client"
    BROKER = "broker"
    """The broker asks itself."""


@frozen(kw_only=True)
class Caller:
    """Who asks."""

    client_id: str | None = None
    """What the client calls itself. Anyone may claim anything: it is for logs and quotas, and proves nothing."""
    host: str = ""
    """The peer's address, for logs and quotas."""
    listener: str = ""
    """The listener that the request came in on; brokers are told by their address for that listener."""
    connection: int = 0
    """Tells the connections of one broker apart, so that what waits for one ends with it; 0 = none."""
    principal: Principal = ANONYMOUS
    origin: Origin = Origin.CLIENT


class BrokerApi(Protocol):
    """A broker, as seen by whoever sends it requests."""

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        """Handle the request. `reply` is called exactly once, on the scheduler's owner thread, at once or later.

        Never raises for what is wrong with the request: the result tells it, item by item. A service that does not
        know the request replies with `ApiError(UNSUPPORTED_VERSION)`. Owner thread only. Memory of the request
        (`ProducePartition.records`) is the callee's until `submit` returns.
        """
        ...


class BrokerLink(BrokerApi, Protocol):
    """A client's end: a `BrokerApi` that leads somewhere else and can be hung up."""

    def close(self) -> None:
        """Give up; replies still outstanding get a `TransportError`."""
        ...
