"""SASL/PLAIN (RFC 4616): user name and password in one message. Use it over TLS."""

from collections.abc import Callable, Mapping
from typing import Protocol

from ....ports.broker_api.envelope import Principal
from ....ports.errors import BarnabasError
from ....ports.scheduler import Scheduler
from ....ports.values import Secret
from .exchange import AuthenticatedClient, Offloaded, SaslAuthenticationError

PLAIN = "PLAIN"
INVALID_CREDENTIALS = "Authentication failed: Invalid username or password"


class Authenticator(Protocol):
    """The check of a user name and password, Kafka's `AuthenticateCallbackHandler` of PLAIN."""

    def authenticate(self, user: str, password: str) -> bool:
        """Return True if the password is right. May block: it runs on a worker thread, several at a time.

        An exception refuses the client.
        """
        ...


class PlainUsers:
    """The users of a JAAS line, `user_NAME="PASSWORD"`."""

    def __init__(self, passwords: Mapping[str, Secret[str]]) -> None:
        self._digests = {user: _digest(password.value) for user, password in passwords.items()}

    def is_valid(self, user: str, password: str) -> bool:
        """Return True if the password is that of the user, in a time that does not depend on the user or password."""
        expected = self._digests.get(user)
        from hmac import compare_digest

        same = compare_digest(_digest(password), expected if expected is not None else _NO_DIGEST)
        return same and expected is not None


def _digest(password: str) -> bytes:
    # A digest has the same length for every password, so that the comparison does not reveal the length.
    from hashlib import sha256  # OpenSSL comes with it, for the first login

    return sha256(password.encode("utf-8", "surrogatepass")).digest()


_NO_DIGEST = bytes(32)


class PlainServerExchange:
    """The server's side of PLAIN: one message of the client."""

    def __init__(self, users: PlainUsers, authenticator: Authenticator | None = None) -> None:
        self._users = users
        self._authenticator = authenticator
        self.client: AuthenticatedClient | None = None

    def evaluate(self, response: bytes) -> bytes | Offloaded:
        user, password = _parse(response)
        authenticator = self._authenticator
        if authenticator is None:
            return self._decide(user, self._users.is_valid(user, password))
        return Offloaded(
            work=lambda: authenticator.authenticate(user, password), then=lambda is_valid: self._decide(user, is_valid)
        )

    def _decide(self, user: str, is_valid: bool) -> bytes:
        if is_valid is not True:
            raise SaslAuthenticationError(INVALID_CREDENTIALS)
        self.client = AuthenticatedClient(principal=Principal("User", user))
        return b""


def _parse(response: bytes) -> tuple[str, str]:
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    try:
        authorization_id, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise SaslAuthenticationError("Invalid SASL/PLAIN response: it is not UTF-8") from None
    if not user:
        raise SaslAuthenticationError("Authentication failed: username not specified")
    if not password:
        raise SaslAuthenticationError("Authentication failed: password not specified")
    if authorization_id not in ("", user):
        text = "Authentication failed: Client requested an authorization id that is different from username"
        raise SaslAuthenticationError(text)
    return user, password


class PlainClient:
    """The client's side of PLAIN; fulfils `ClientAuthenticator`."""

    mechanism = PLAIN

    def __init__(self, user: str, password: Secret[str]) -> None:
        self._user = user
        self._password = password

    def prepare(self, scheduler: Scheduler, ready: Callable[[BarnabasError | None], None]) -> None:  # noqa: ARG002
        ready(None)

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password.value}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslAuthenticationError("the broker answered SASL/PLAIN with a challenge; the mechanism has none")
        return None
