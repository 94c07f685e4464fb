"""Validation of JSON web tokens with joserfc, against the keys of a file or URL."""

import json
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from time import monotonic, time
from typing import Any

from attrs import field

from ...core.security.sasl.oauthbearer import InvalidToken, ValidatedToken
from ...ports.errors import BarnabasError, ConfigError
from ...ports.values import frozen
from .http import check_url, read_url

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a public key. A shared secret (HS256) among public keys would let anyone sign."""


@frozen(kw_only=True)
class ValidatorSettings:
    """The `sasl.oauthbearer.*` keys of a broker.

    jwks_url:        `https://...`, `http://...` or `file:///...`; None with `accept_unsecured`.
    accept_unsecured: accept tokens without a signature (`alg` none), for tests only.
    """

    jwks_url: str | None
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    expected_issuer: str | None = None
    expected_audience: Sequence[str] = ()
    subject_claim: str = "sub"
    skew_s: int = 30
    accept_unsecured: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)


class JwtValidator:
    """Fulfils `TokenValidator`. Keys are read when the first token comes, and again when they are old or one is
    missing."""

    def __init__(self, settings: ValidatorSettings) -> None:
        """Raises `ConfigError` for settings that cannot be used, and where joserfc is not installed."""
        try:
            import joserfc  # noqa: F401
        except ImportError:
            text = "SASL mechanism OAUTHBEARER needs joserfc; install the extra barnabas[security]"
            raise ConfigError(text) from None
        if settings.jwks_url is not None and not settings.jwks_url.startswith("file://"):
            check_url(settings.jwks_url, "sasl.oauthbearer.jwks.endpoint.url")
        self._settings = settings
        self._lock = Lock()
        self._keys: Any = None
        self._read_at_s = 0.0
        self._failures = 0
        self._next_attempt_s = 0.0

    def validate(self, token: str) -> ValidatedToken:
        """Return the claims. Blocks while keys are read. Raises `InvalidToken`."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            claims = self._decode(token)
            self._registry(jwt).validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise InvalidToken(f"the token is refused: {type(error).__name__}") from None
        name, expires = claims.get(self._settings.subject_claim), claims["exp"]
        if not isinstance(name, str) or not name.strip():
            raise InvalidToken(f"the token has no claim {self._settings.subject_claim}")
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            raise InvalidToken("the token's exp is not a number")
        # A token that the skew still allows begins a session, which ends at once.
        return ValidatedToken(principal_name=name.strip(), expires_at_ms=int(max(expires, time() + 1) * 1000))

    def _registry(self, jwt: Any) -> Any:
        settings = self._settings
        wanted: dict[str, Any] = {"exp": {"essential": True}, "iat": {"essential": True}}
        if settings.expected_issuer is not None:
            wanted["iss"] = {"essential": True, "value": settings.expected_issuer}
        if settings.expected_audience:
            wanted["aud"] = {"essential": True, "values": list(settings.expected_audience)}
        return jwt.JWTClaimsRegistry(now=lambda: int(time()), leeway=settings.skew_s, **wanted)

    def _decode(self, token: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError
        from joserfc.jwk import OctKey

        if self._settings.accept_unsecured:
            claims: dict[str, Any] = jwt.decode(
                token, OctKey.import_key("not used by alg none"), algorithms=["none"]
            ).claims
            return claims
        keys = self._current_keys(lambda age_ms: age_ms > self._settings.refresh_ms)
        try:
            return dict(jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims)
        except (InvalidKeyIdError, ValueError):
            # The server may have a new key.
            newer = self._current_keys(lambda age_ms: age_ms > self._settings.retry_backoff_max_ms)
            if newer is keys:
                raise
            return dict(jwt.decode(token, newer, algorithms=list(ALGORITHMS)).claims)

    def _current_keys(self, is_old: Callable[[float], bool]) -> Any:
        """Return the keys, read again if they are old; while that fails, those of before."""
        settings = self._settings
        with self._lock:
            now_s = monotonic()
            if self._keys is not None and not is_old((now_s - self._read_at_s) * 1000):
                return self._keys
            if now_s >= self._next_attempt_s:
                try:
                    self._keys = self._read_keys()
                    self._read_at_s, self._failures, self._next_attempt_s = now_s, 0, 0.0
                except BarnabasError:
                    self._failures += 1
                    backoff_ms = settings.retry_backoff_ms * 2 ** min(self._failures - 1, 20)
                    self._next_attempt_s = monotonic() + min(backoff_ms, settings.retry_backoff_max_ms) / 1000
            if self._keys is None:
                raise InvalidToken("the keys of sasl.oauthbearer.jwks.endpoint.url cannot be read")
            return self._keys

    def _read_keys(self) -> Any:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        url = self._settings.jwks_url or ""
        try:
            if url.startswith("file://"):
                content = Path(url.removeprefix("file://")).read_bytes()
            else:
                content = read_url(url, headers={"Accept": "application/json"}, tls=self._settings.tls)
            return KeySet.import_key_set(json.loads(content))
        except (OSError, ValueError, KeyError, TypeError, JoseError) as error:
            raise BarnabasError(f"the keys of {url} cannot be read: {type(error).__name__}") from None
