"""SaslHandshake (17) and SaslAuthenticate (36): the conversation of a connection before, or between, its requests."""

from collections.abc import Sequence

from attrs import field

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import frozen
from .envelope import Request


@frozen(kw_only=True)
class SaslHandshake(Request["SaslHandshakeResult"]):
    """Begin an authentication with a mechanism."""

    mechanism: str

    def failed(self, error: ApiError) -> "SaslHandshakeResult":
        return SaslHandshakeResult(error=error.code)


@frozen(kw_only=True)
class SaslHandshakeResult:
    """The mechanisms that the broker has enabled."""

    error: ErrorCode = ErrorCode.NONE
    mechanisms: Sequence[str] = ()


def _hidden(data: bytes) -> str:
    return f"<{len(data)} bytes>"


@frozen(kw_only=True)
class SaslAuthenticate(Request["SaslAuthenticateResult"]):
    """A message of the client in the exchange of its mechanism."""

    auth_bytes: bytes = field(repr=_hidden)

    def failed(self, error: ApiError) -> "SaslAuthenticateResult":
        return SaslAuthenticateResult(error=error.code, error_message=error.message)


@frozen(kw_only=True)
class SaslAuthenticateResult:
    """The broker's message, and after the last one the lifetime of the session (KIP-368); 0 = without an end."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=_hidden)
    session_lifetime_ms: int = 0
