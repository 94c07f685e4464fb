"""The interface between a broker and its callers: one call, one reply."""

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
        """Return the result of a request that failed as a whole: the error in each of its places, or the error itself.

        A closed connection instead would make a client retry forever without a reason.
        """
        return error


Reply = Callable[[ResultT | BarnabasError], None]
"""Takes the result, or the error instead (connection lost, timed out, broken invariant)."""


@frozen
class Principal:
    """The authenticated name of a client, Kafka's `KafkaPrincipal`; written `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of clients without authentication."""


class Origin(Enum):
    """The origin of a request. No protocol carries it: only code in the broker's process can set `BROKER`."""

    CLIENT = "client"
    BROKER = "broker"
    """The broker itself."""


@frozen(kw_only=True)
class Caller:
    """The context of a request, Kafka's `RequestContext`."""

    client_id: str | None = None
    """The client's own name, for logs and quotas; it is not authenticated."""
    host: str = ""
    """The peer's address, for logs and quotas."""
    listener: str = ""
    """The listener that received the request; answers have the brokers' addresses for that listener."""
    connection: int = 0
    """The number of the connection, so that requests that wait end with it; 0 = none."""
    principal: Principal = ANONYMOUS
    origin: Origin = Origin.CLIENT
    is_token_authenticated: bool = False
    """True if the client authenticated with a delegation token."""
    is_encrypted: bool = False
    """True if the connection uses TLS."""


class BrokerApi(Protocol):
    """A broker, as its callers see it."""

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        """Handle the request. `reply` is called exactly once, on the scheduler's owner thread, at once or later.

        Never raises for faults of the request: the result has them, item by item. A service that does not know the
        request replies with `ApiError(UNSUPPORTED_VERSION)`. Owner thread only. Memory of the request
        (`ProducePartition.records`) belongs to the callee until `submit` returns.
        """
        ...


class BrokerLink(BrokerApi, Protocol):
    """A client's connection to a broker: a `BrokerApi` that can be closed."""

    def close(self) -> None:
        """Close the connection; outstanding replies get a `TransportError`."""
        ...
