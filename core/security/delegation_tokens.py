"""Delegation tokens (KIP-48): their life, their node in the coordination tree, and who may use them.

A token's HMAC is made from its id and the brokers' common secret, so no node has it. A node has the SCRAM credentials
that a login by token is checked with.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence

from attrs import evolve

from ...ports.broker_api.envelope import Principal
from ...ports.broker_api.tokens import DelegationToken
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import Secret, frozen
from .sasl.scram import HASHES, ITERATIONS_MIN, TokenCredential, credential_of, salted_password
from .scram_users import decode_credential, encode_credential

TokenNode = Mapping[str, object]
USER = "User"


@frozen(kw_only=True)
class TokenSettings:
    """The `delegation.token.*` keys."""

    secret_key: Secret[str]
    max_lifetime_ms: int
    expiry_time_ms: int

    def hmac_of(self, token_id: str) -> Secret[bytes]:
        """Return the HMAC of a token, the secret that its user has."""
        from hmac import digest  # OpenSSL comes with it

        return Secret(digest(self.secret_key.value.encode(), token_id.encode(), "sha512"))

    def new_token(
        self,
        token_id: str,
        *,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        """Return a token that begins now."""
        lifetime_ms = self.max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        max_timestamp_ms = now_ms + lifetime_ms
        return DelegationToken(
            owner=owner,
            requester=requester,
            issue_timestamp_ms=now_ms,
            expiry_timestamp_ms=min(max_timestamp_ms, now_ms + self.expiry_time_ms),
            max_timestamp_ms=max_timestamp_ms,
            token_id=token_id,
            hmac=self.hmac_of(token_id),
            renewers=renewers,
        )

    def find(self, tokens: Mapping[str, TokenNode], secret: Secret[bytes]) -> DelegationToken:
        """Return the token with an HMAC. Raises `ApiError` (DELEGATION_TOKEN_NOT_FOUND)."""
        for token_id, node in tokens.items():
            if self.hmac_of(token_id) == secret:
                token = self.decode(token_id, node)
                if token is not None:
                    return token
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found on server.")

    def decode(self, token_id: str, node: TokenNode) -> DelegationToken | None:
        """Return the token of a node; None: the node is not ours."""
        try:
            renewers = node["renewers"]
            issued, expiry, maximum = (node[name] for name in ("issue_ms", "expiry_ms", "max_ms"))
            assert isinstance(renewers, list)
            assert isinstance(issued, int) and isinstance(expiry, int) and isinstance(maximum, int)
            return DelegationToken(
                owner=_principal(node["owner"]),
                requester=_principal(node["requester"]),
                issue_timestamp_ms=issued,
                expiry_timestamp_ms=expiry,
                max_timestamp_ms=maximum,
                token_id=token_id,
                hmac=self.hmac_of(token_id),
                renewers=[_principal(renewer) for renewer in renewers],
            )
        except (KeyError, AssertionError, ValueError):
            return None

    def with_expiry(self, token: DelegationToken, period_ms: int, now_ms: int) -> DelegationToken:
        """Return the token with its expiry `period_ms` from now on."""
        return evolve(token, expiry_timestamp_ms=min(token.max_timestamp_ms, now_ms + period_ms))


def encode_token(token: DelegationToken, salt: bytes) -> dict[str, object]:
    """Return the node of a new token with its SCRAM credentials; PBKDF2 takes milliseconds."""
    node: dict[str, object] = {
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issue_ms": token.issue_timestamp_ms,
        "expiry_ms": token.expiry_timestamp_ms,
        "max_ms": token.max_timestamp_ms,
    }
    for mechanism in HASHES:
        salted = salted_password(mechanism, token_password(token.hmac), salt, ITERATIONS_MIN)
        node[mechanism] = encode_credential(credential_of(mechanism, salted, salt, ITERATIONS_MIN))
    return node


def token_password(secret: Secret[bytes]) -> str:
    """Return the SCRAM password of a token: the base64 text of its HMAC."""
    return b64encode(secret.value).decode()


def token_credential(node: TokenNode | None, mechanism: str, now_ms: int) -> TokenCredential | None:
    """Return what a login by token is checked with; None: there is no such token, or it has expired."""
    credential = decode_credential(node, mechanism)
    if node is None or credential is None:
        return None
    expiry_ms, owner = node.get("expiry_ms"), node.get("owner")
    if not isinstance(expiry_ms, int) or not isinstance(owner, str) or expiry_ms <= now_ms:
        return None
    return TokenCredential(credential=credential, owner=_principal(owner), expires_at_ms=expiry_ms)


def is_owner_or_renewer(token: DelegationToken, principal: Principal) -> bool:
    return principal in (token.owner, token.requester, *token.renewers)


def check_usable(token: DelegationToken, principal: Principal, now_ms: int) -> None:
    """Raise `ApiError` unless the principal may renew or expire the token, and it has not expired."""
    if not is_owner_or_renewer(token, principal):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "the principal is neither owner nor renewer")
    if token.expiry_timestamp_ms < now_ms or token.max_timestamp_ms < now_ms:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired.")


def _principal(text: object) -> Principal:
    kind, colon, name = str(text).partition(":")
    if not colon:
        raise ValueError("a principal has the form TYPE:NAME")
    return Principal(kind, name)
