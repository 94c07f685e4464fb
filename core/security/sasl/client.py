"""The client's side of SASL: exchanges as a link to a broker drives them, made from a JAAS login module."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Protocol

from ....ports.entropy import Entropy
from ....ports.errors import BarnabasError, ConfigError
from ....ports.scheduler import Scheduler
from ....ports.values import Secret
from ..jaas import JaasEntry
from .plain import PLAIN, PlainClient
from .scram import HASHES, ScramClient

_NONCE_BYTES = 24


class ClientAuthenticator(Protocol):
    """One authentication to one broker. A re-authentication has an object of its own.

    A failed exchange raises `SaslAuthenticationError`; its text has no secret.
    """

    @property
    def mechanism(self) -> str:
        """The name of the mechanism for SaslHandshake."""
        ...

    def prepare(self, scheduler: Scheduler, ready: Callable[[BarnabasError | None], None]) -> None:
        """Obtain the credentials, then call `ready`, at once or later on the scheduler's thread. Called once, first.

        A mechanism whose credentials are configured calls it at once; a token may have to be requested. An error means
        that there are no credentials.
        """
        ...

    def first(self) -> bytes:
        """Return the client's first message."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """Return the answer to a message of the broker; None after the last one, if the broker proved itself."""
        ...


SaslFactory = Callable[[str], ClientAuthenticator]
"""Makes the authenticator of a new connection to a host."""


def password_factory(mechanism: str, login: JaasEntry, entropy: Entropy, key: str) -> SaslFactory:
    """Return the factory of authenticators by user name and password: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.

    Raises `ConfigError`, which names the configuration `key` of the login module, for options that are missing.
    """
    if mechanism not in (PLAIN, *HASHES):
        known = ", ".join([PLAIN, *HASHES, "OAUTHBEARER"])
        raise ConfigError(f"SASL mechanism {mechanism[:100]!r} is not supported; known: {known}")
    user, password = login.option("username"), login.options.get("password")
    if user is None or password is None:
        missing = "username" if user is None else "password"
        raise ConfigError(f"{key} has no option {missing}, which SASL mechanism {mechanism} needs")
    if mechanism == PLAIN:
        return lambda _: PlainClient(user, password)
    is_token = (login.option("tokenauth") or "").lower() == "true"
    salted: dict[tuple[bytes, int], Secret[bytes]] = {}

    def make(_: str) -> ClientAuthenticator:
        return ScramClient(mechanism, user, password, new_nonce(entropy), is_token=is_token, salted=salted)

    return make


def new_nonce(entropy: Entropy) -> str:
    """Return fresh random text for an exchange."""
    return urlsafe_b64encode(entropy.token(_NONCE_BYTES)).decode()
