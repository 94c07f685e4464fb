"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), KIP-554."""

from collections.abc import Sequence

from ..error_codes import ErrorCode
from ..errors import ApiError
from ..values import Secret, frozen
from .envelope import Request

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2
SCRAM_MECHANISMS = {SCRAM_SHA_256: "SCRAM-SHA-256", SCRAM_SHA_512: "SCRAM-SHA-512"}
"""The name of a mechanism by its number in the protocol."""


@frozen(kw_only=True)
class DescribeUserScramCredentials(Request["DescribeUserScramCredentialsResult"]):
    """Ask for the mechanisms and iterations of users; None or an empty list: of all users."""

    users: Sequence[str] | None = None

    def failed(self, error: ApiError) -> "DescribeUserScramCredentialsResult":
        rows = [ScramUser(user=user, error=error.code, error_message=error.message) for user in self.users or ()]
        return DescribeUserScramCredentialsResult(users=rows, error=error.code, error_message=error.message)


@frozen(kw_only=True)
class ScramCredentialInfo:
    """The public part of a credential; a broker never returns its salt or keys."""

    mechanism: int
    iterations: int


@frozen(kw_only=True)
class ScramUser:
    """The credentials of a user, or the error for it."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    credentials: Sequence[ScramCredentialInfo] = ()


@frozen(kw_only=True)
class DescribeUserScramCredentialsResult:
    """One row per user."""

    users: Sequence[ScramUser]
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    throttle_ms: int = 0


@frozen(kw_only=True)
class ScramDeletion:
    """The removal of a user's credential for one mechanism."""

    user: str
    mechanism: int


@frozen(kw_only=True)
class ScramUpsertion:
    """A new credential of a user, or another one for its mechanism.

    The client salts the password: `salted_password` is PBKDF2-HMAC(password, `salt`, `iterations`).
    """

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: Secret[bytes]


@frozen(kw_only=True)
class AlterUserScramCredentials(Request["AlterUserScramCredentialsResult"]):
    """Delete and add SCRAM credentials; each user stands for itself."""

    deletions: Sequence[ScramDeletion] = ()
    upsertions: Sequence[ScramUpsertion] = ()

    @property
    def users(self) -> Sequence[str]:
        """Each user once, in the order of the request."""
        changed = [deletion.user for deletion in self.deletions]
        changed += [upsertion.user for upsertion in self.upsertions]
        return list(dict.fromkeys(changed))

    def failed(self, error: ApiError) -> "AlterUserScramCredentialsResult":
        rows = [AlteredScramUser(user=user, error=error.code, error_message=error.message) for user in self.users]
        return AlterUserScramCredentialsResult(users=rows)


@frozen(kw_only=True)
class AlteredScramUser:
    """The outcome for one user."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


@frozen(kw_only=True)
class AlterUserScramCredentialsResult:
    """One row per user."""

    users: Sequence[AlteredScramUser]
    throttle_ms: int = 0
