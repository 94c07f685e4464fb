"""Delegation tokens: CreateDelegationToken (38), Renew (39), Expire (40) and Describe (41)."""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import Secret, frozen
from .envelope import Principal, Request

NO_HMAC: Secret[bytes] = Secret(b"")
NO_PRINCIPAL = Principal("", "")
"""The principal in the answer of a refused request."""


@frozen(kw_only=True)
class CreateDelegationToken(Request["CreateDelegationTokenResult"]):
    """Create a token for `owner`, by default the caller. `max_lifetime_ms` -1: the longest that the broker allows."""

    owner: Principal | None = None
    renewers: Sequence[Principal] = ()
    max_lifetime_ms: int = -1

    def failed(self, error: ApiError) -> "CreateDelegationTokenResult":
        return CreateDelegationTokenResult(error=error.code)


@frozen(kw_only=True)
class CreateDelegationTokenResult:
    """The token; `hmac` is the secret that its user logs in with."""

    error: ErrorCode = ErrorCode.NONE
    owner: Principal = NO_PRINCIPAL
    requester: Principal = NO_PRINCIPAL
    issue_timestamp_ms: int = -1
    expiry_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    token_id: str = ""
    hmac: Secret[bytes] = NO_HMAC
    throttle_ms: int = 0


@frozen(kw_only=True)
class RenewDelegationToken(Request["RenewDelegationTokenResult"]):
    """Move the expiry of a token to now + `renew_period_ms`; -1: by the broker's default."""

    hmac: Secret[bytes]
    renew_period_ms: int = -1

    def failed(self, error: ApiError) -> "RenewDelegationTokenResult":
        return RenewDelegationTokenResult(error=error.code)


@frozen(kw_only=True)
class RenewDelegationTokenResult:
    """The new expiry; 0 on error."""

    error: ErrorCode = ErrorCode.NONE
    expiry_timestamp_ms: int = 0
    throttle_ms: int = 0


@frozen(kw_only=True)
class ExpireDelegationToken(Request["ExpireDelegationTokenResult"]):
    """Move the expiry of a token to now + `expiry_time_period_ms`; a negative period deletes the token."""

    hmac: Secret[bytes]
    expiry_time_period_ms: int = -1

    def failed(self, error: ApiError) -> "ExpireDelegationTokenResult":
        return ExpireDelegationTokenResult(error=error.code)


@frozen(kw_only=True)
class ExpireDelegationTokenResult:
    """The new expiry; 0 on error."""

    error: ErrorCode = ErrorCode.NONE
    expiry_timestamp_ms: int = 0
    throttle_ms: int = 0


@frozen(kw_only=True)
class DescribeDelegationToken(Request["DescribeDelegationTokenResult"]):
    """Ask for the tokens of `owners`; None: for all that the caller may see."""

    owners: Sequence[Principal] | None = None

    def failed(self, error: ApiError) -> "DescribeDelegationTokenResult":
        return DescribeDelegationTokenResult(error=error.code)


@frozen(kw_only=True)
class DelegationToken:
    """A token with its secret."""

    owner: Principal
    requester: Principal
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: Secret[bytes]
    renewers: Sequence[Principal] = ()


@frozen(kw_only=True)
class DescribeDelegationTokenResult:
    """The tokens that the caller may see."""

    error: ErrorCode = ErrorCode.NONE
    tokens: Sequence[DelegationToken] = ()
    throttle_ms: int = 0
