"""The server's side of a SASL exchange: one client message in, one broker message out, until the client is known."""

from collections.abc import Callable
from typing import Any, Protocol

from ....ports.broker_api.envelope import Principal
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import frozen


class SaslAuthenticationError(ApiError):
    """A failed authentication, Kafka's `SaslAuthenticationException`. The other side gets the text, without secrets."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


@frozen(kw_only=True)
class AuthenticatedClient:
    """The result of an exchange."""

    principal: Principal
    expires_at_ms: int | None = None
    """The wall-clock time at which the credential ends; None: never."""
    is_token_authenticated: bool = False


@frozen(kw_only=True)
class Offloaded:
    """Work that may block. It runs on a worker; on the owner thread `then` makes the broker's message of its result.

    Both may raise `SaslAuthenticationError`.
    """

    work: Callable[[], Any]
    then: Callable[[Any], bytes]


class ServerExchange(Protocol):
    """One exchange of a mechanism. Any bytes of a client cause nothing but `SaslAuthenticationError`."""

    @property
    def client(self) -> AuthenticatedClient | None:
        """The authenticated client; None while the exchange is not complete."""
        ...

    def evaluate(self, response: bytes) -> bytes | Offloaded:
        """Return the broker's answer to a message of the client. Raises `SaslAuthenticationError`."""
        ...
