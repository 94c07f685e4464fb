"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a bearer token in one message; both sides, and the client's tokens."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from ....ports.broker_api.envelope import Principal
from ....ports.clock import Clock
from ....ports.errors import BarnabasError, ConfigError
from ....ports.scheduler import Outcome, Scheduler
from ....ports.values import Secret, frozen
from .exchange import AuthenticatedClient, Offloaded, SaslAuthenticationError

OAUTHBEARER = "OAUTHBEARER"
REFRESH_WINDOW = 0.8
"""The part of a token's lifetime after which the client asks for the next one (`sasl.login.refresh.window.factor`)."""

_END = "\x01"
_FIRST = r"[ny],(?:a=((?:[^=,\x00\x01]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
_AUTH = r"(?i:bearer) +([-_.a-zA-Z0-9]+)"
_EXTENSION_NAME, _EXTENSION_VALUE = r"[A-Za-z]+", r"[\x21-\x7e \t\r\n]+"


class InvalidToken(BarnabasError):
    """A token that is refused; the text says why and does not quote the token."""


@frozen(kw_only=True)
class ValidatedToken:
    """The claims of a valid token that count."""

    principal_name: str
    expires_at_ms: int


class TokenValidator(Protocol):
    """The check of bearer tokens, Kafka's `JwtValidator`."""

    def validate(self, token: str) -> ValidatedToken:
        """Return the claims of `token`.

        Raises `InvalidToken`. May block: it runs on worker threads, several at a time.
        """
        ...


class OauthbearerServerExchange:
    """The server's side: the token, and after a refusal the client's acknowledgement."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal = ""
        self._has_begun = False
        self.client: AuthenticatedClient | None = None

    def evaluate(self, response: bytes) -> bytes | Offloaded:
        if self._refusal:  # which the client acknowledges with one byte; whatever it sends, it is refused
            raise SaslAuthenticationError(self._refusal)
        if self._has_begun:
            raise SaslAuthenticationError("Authentication failed: unexpected OAUTHBEARER message")
        self._has_begun = True
        authorization_id, token = _parse_first(response)
        return Offloaded(work=lambda: self._validate(token), then=lambda found: self._decide(authorization_id, found))

    def _validate(self, token: str) -> ValidatedToken | None:
        try:
            return self._validator.validate(token)
        except InvalidToken:
            return None

    def _decide(self, authorization_id: str, found: ValidatedToken | None) -> bytes:
        if found is None:
            self._refusal = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return self._refusal.encode()
        if authorization_id not in ("", found.principal_name):
            text = "Authentication failed: Client requested an authorization id that is different from the token's"
            raise SaslAuthenticationError(f"{text} principal name")
        principal = Principal("User", found.principal_name)
        self.client = AuthenticatedClient(principal=principal, expires_at_ms=found.expires_at_ms)
        return b""


def _parse_first(response: bytes) -> tuple[str, str]:
    """Return the authorization id (or "") and the token. Raises `SaslAuthenticationError`."""
    try:
        match = re.fullmatch(_FIRST, response.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslAuthenticationError("Authentication failed: Invalid OAUTHBEARER client first message")
    pairs = dict(pair.partition("=")[::2] for pair in match[2].split(_END)[:-1])
    auth = re.fullmatch(_AUTH, pairs.get("auth", ""))
    if auth is None:
        raise SaslAuthenticationError(
            "Authentication failed: Invalid OAUTHBEARER client first message: no bearer token"
        )
    return (match[1] or "").replace("=2C", ",").replace("=3D", "="), auth[1]


@frozen(kw_only=True)
class AccessToken:
    """A token of a client; without `expires_at_ms` a new one is obtained for each authentication."""

    value: Secret[str]
    expires_at_ms: int | None = None


class TokenSource:
    """The tokens of a client, obtained off the owner thread. Owner thread only.

    `fetch` returns a new token; it may block, and raises any exception. A token is used until most of its lifetime has
    passed, so that connections continue their sessions with the next one before it expires.
    """

    def __init__(self, fetch: Callable[[], AccessToken], clock: Clock, refresh_window: float = REFRESH_WINDOW) -> None:
        self._fetch = fetch
        self._clock = clock
        self._refresh_window = refresh_window
        self._token: AccessToken | None = None
        self._refresh_at_ms = 0.0
        self._waiting: list[Callable[[AccessToken | BarnabasError], None]] = []

    def get(self, scheduler: Scheduler, ready: Callable[[AccessToken | BarnabasError], None]) -> None:
        """Call `ready` with a token, at once or later, or with the error."""
        if self._token is not None and self._clock.now_ms() < self._refresh_at_ms:
            ready(self._token)
            return
        self._waiting.append(ready)
        if len(self._waiting) == 1:
            scheduler.offload(self._fetch, self._fetched)

    def _fetched(self, outcome: Outcome[AccessToken]) -> None:
        found: AccessToken | BarnabasError
        error, now_ms = outcome.error, self._clock.now_ms()
        if error is None:
            found = self._token = outcome.get()
            expires_at_ms = found.expires_at_ms
            self._refresh_at_ms = (
                0.0 if expires_at_ms is None else now_ms + (expires_at_ms - now_ms) * self._refresh_window
            )
        elif self._token is not None and (self._token.expires_at_ms or 0) > now_ms:
            found = self._token  # it is still valid; the next authentication tries again
        else:
            # Texts of other exceptions may have the request in them.
            text = str(error) if isinstance(error, BarnabasError) else type(error).__name__
            found = BarnabasError(f"no OAuth token was obtained: {text}")
        waiting, self._waiting = self._waiting, []
        for ready in waiting:
            ready(found)


class OauthbearerClient:
    """The client's side; fulfils `ClientAuthenticator`."""

    mechanism = OAUTHBEARER

    def __init__(self, source: TokenSource, extensions: Mapping[str, str]) -> None:
        self._source = source
        self._extensions = extensions
        self._token: AccessToken | None = None

    def prepare(self, scheduler: Scheduler, ready: Callable[[BarnabasError | None], None]) -> None:
        def obtained(found: AccessToken | BarnabasError) -> None:
            if isinstance(found, BarnabasError):
                ready(found)
            else:
                self._token = found
                ready(None)

        self._source.get(scheduler, obtained)

    def first(self) -> bytes:
        if self._token is None:
            raise SaslAuthenticationError("there is no OAuth token")
        pairs = [f"auth=Bearer {self._token.value.value}"]
        pairs += [f"{name}={value}" for name, value in self._extensions.items()]
        return f"n,,{_END}{_END.join(pairs)}{_END}{_END}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        # A refusal comes as JSON; the client acknowledges it, and gets it again as an error.
        return _END.encode() if challenge else None


def check_extensions(extensions: Mapping[str, str], key: str) -> None:
    """Raise `ConfigError` for SASL extensions that the protocol cannot carry (KIP-342)."""
    for name, value in extensions.items():
        if name == "auth" or not re.fullmatch(_EXTENSION_NAME, name) or not re.fullmatch(_EXTENSION_VALUE, value):
            raise ConfigError(f"{key} has an invalid SASL extension {name[:50]!r}: names are letters, but not auth")
