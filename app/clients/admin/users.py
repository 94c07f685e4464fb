"""`Admin`: SCRAM credentials and delegation tokens of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....core.client.calls import Target
from ....core.security.sasl.scram import HASHES, ITERATIONS_MIN, salted_password
from ....ports.broker_api.envelope import Principal
from ....ports.broker_api.scram import (
    SCRAM_MECHANISMS,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResult,
    ScramDeletion,
    ScramUpsertion,
)
from ....ports.broker_api.tokens import (
    CreateDelegationToken,
    CreateDelegationTokenResult,
    DelegationToken,
    DescribeDelegationToken,
    DescribeDelegationTokenResult,
    ExpireDelegationToken,
    ExpireDelegationTokenResult,
    RenewDelegationToken,
    RenewDelegationTokenResult,
)
from ....ports.errors import ConfigError
from ....ports.values import Secret, frozen
from .asker import AdminRequests, check

_SALT_BYTES = 32
_NUMBERS = {name: number for number, name in SCRAM_MECHANISMS.items()}


@frozen(kw_only=True)
class UserScramCredential:
    """A credential of a user, without its secrets."""

    mechanism: str
    iterations: int


@frozen(kw_only=True)
class UserScramCredentialUpsertion:
    """The new password of a user for one mechanism. It does not leave the client; its salted hash does."""

    user: str
    password: Secret[str]
    mechanism: str = "SCRAM-SHA-256"
    iterations: int = ITERATIONS_MIN


@frozen(kw_only=True)
class UserScramCredentialDeletion:
    """The removal of a user's credential for one mechanism."""

    user: str
    mechanism: str = "SCRAM-SHA-256"


class UserAdmin:
    """Describes and changes the credentials of users."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None
    ) -> dict[str, list[UserScramCredential]]:
        """Return user → credentials; None: of all users that have any.

        Raises `ApiError` (RESOURCE_NOT_FOUND for a named user without credentials, ...).
        """
        request = DescribeUserScramCredentials(users=users)
        result: DescribeUserScramCredentialsResult = self._asker.shell.ask(request)
        check(result.error, result.error_message, "the SCRAM credentials")
        for row in result.users:
            check(row.error, row.error_message, f"user {row.user}")
        return {
            row.user: [
                UserScramCredential(mechanism=SCRAM_MECHANISMS.get(each.mechanism, "?"), iterations=each.iterations)
                for each in row.credentials
            ]
            for row in result.users
        }

    def alter_user_scram_credentials(
        self, changes: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> None:
        """Set and delete passwords of SCRAM; each user stands for itself, and may occur once.

        The client salts and hashes the passwords (PBKDF2), which takes milliseconds each. Raises `ApiError`,
        `ConfigError` for an unknown mechanism.
        """
        deletions, upsertions = list[ScramDeletion](), list[ScramUpsertion]()
        for change in changes:
            number = _mechanism_number(change.mechanism)
            if isinstance(change, UserScramCredentialDeletion):
                deletions.append(ScramDeletion(user=change.user, mechanism=number))
                continue
            salt = self._asker.shell.connector.entropy.token(_SALT_BYTES)
            salted = salted_password(change.mechanism, change.password.value, salt, change.iterations)
            upsertions.append(
                ScramUpsertion(
                    user=change.user,
                    mechanism=number,
                    iterations=change.iterations,
                    salt=salt,
                    salted_password=Secret(salted),
                )
            )
        request = AlterUserScramCredentials(deletions=deletions, upsertions=upsertions)
        result: AlterUserScramCredentialsResult = self._asker.shell.ask(request, Target.CONTROLLER)
        for row in result.users:
            check(row.error, row.error_message, f"user {row.user}")

    # --- delegation tokens

    def create_delegation_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Sequence[Principal] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """Create a token of the owner, by default the caller; -1: for as long as the brokers allow.

        Its user logs in by SCRAM with `token_id` and the base64 text of `hmac`. Raises `ApiError`
        (DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ...).
        """
        request = CreateDelegationToken(owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms)
        result: CreateDelegationTokenResult = self._asker.shell.ask(request, Target.CONTROLLER)
        check(result.error, None, "the delegation token was not created")
        return DelegationToken(
            owner=result.owner,
            requester=result.requester,
            issue_timestamp_ms=result.issue_timestamp_ms,
            expiry_timestamp_ms=result.expiry_timestamp_ms,
            max_timestamp_ms=result.max_timestamp_ms,
            token_id=result.token_id,
            hmac=result.hmac,
            renewers=renewers,
        )

    def renew_delegation_token(self, hmac: Secret[bytes], renew_period_ms: int = -1) -> int:
        """Move the expiry of a token to now + the period (-1: the brokers' default); return it in ms. Raises
        `ApiError`."""
        request = RenewDelegationToken(hmac=hmac, renew_period_ms=renew_period_ms)
        result: RenewDelegationTokenResult = self._asker.shell.ask(request, Target.CONTROLLER)
        check(result.error, None, "the delegation token was not renewed")
        return result.expiry_timestamp_ms

    def expire_delegation_token(self, hmac: Secret[bytes], expiry_time_period_ms: int = -1) -> int:
        """Move the expiry of a token to now + the period; return it in ms. A negative period deletes the token.

        Raises `ApiError`.
        """
        request = ExpireDelegationToken(hmac=hmac, expiry_time_period_ms=expiry_time_period_ms)
        result: ExpireDelegationTokenResult = self._asker.shell.ask(request, Target.CONTROLLER)
        check(result.error, None, "the expiry of the delegation token was not changed")
        return result.expiry_timestamp_ms

    def describe_delegation_token(self, owners: Sequence[Principal] | None = None) -> list[DelegationToken]:
        """Return the tokens of the owners; None: all that the caller may see. Raises `ApiError`."""
        result: DescribeDelegationTokenResult = self._asker.shell.ask(DescribeDelegationToken(owners=owners))
        check(result.error, None, "the delegation tokens")
        return list(result.tokens)


def _mechanism_number(mechanism: str) -> int:
    if mechanism not in _NUMBERS:
        raise ConfigError(f"unknown SCRAM mechanism {mechanism!r}; known: {', '.join(HASHES)}")
    return _NUMBERS[mechanism]
