"""Tokens from an OAuth server by HTTP (small answers, a time limit, no redirects), or from a callable."""

import inspect
import json
import ssl
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from ...core.security.sasl.oauthbearer import AccessToken
from ...ports.errors import BarnabasError, ConfigError
from ...ports.values import Secret


def provided_token(provider: Any) -> AccessToken:
    """Return the token of a callable, or of an object with a method `token` (kafka-python's and aiokafka's form).

    It returns a text, or a text and the time of its end in seconds since 1970 (confluent-kafka's form); both may be
    awaited, in an event loop of its own. Without a time the claim `exp` of a JSON web token counts. Blocks. Raises
    `BarnabasError`, and whatever the application raises.
    """
    found = (provider.token if hasattr(provider, "token") else provider)()
    if inspect.isawaitable(found):
        import asyncio

        found = asyncio.run(_awaited(found))
    token, expires_s = (found[0], found[1]) if isinstance(found, tuple) and len(found) >= 2 else (found, None)
    if not isinstance(token, str) or not token:
        raise BarnabasError("sasl.oauth.token.provider returned no text")
    if expires_s is None:
        expires_s = _expiry_of(token)
    return AccessToken(value=Secret(token), expires_at_ms=None if expires_s is None else int(expires_s * 1000))


async def _awaited(found: Any) -> Any:
    return await found


def _expiry_of(token: str) -> float | None:
    """Return the claim `exp` of a JSON web token; None for another token, or without the claim."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = claims["exp"]
    except (ValueError, KeyError, TypeError):
        return None
    return float(expires) if isinstance(expires, int | float) else None


ANSWER_BYTES_MAX = 1_048_576
TIMEOUT_S = 10.0


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could send credentials, or a broker, to any other server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def check_url(url: str, key: str) -> None:
    """Raise `ConfigError` unless it is an http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{key} is not a URL that begins with https:// or http://")


def read_url(
    url: str,
    *,
    headers: Mapping[str, str],
    data: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return the answer. Raises `BarnabasError`, which names the server and no credentials."""
    opener = build_opener(_NoRedirects(), HTTPSHandler(context=tls or ssl.create_default_context()))
    host = urlsplit(url).hostname
    try:
        with opener.open(Request(url, data=data, headers=dict(headers)), timeout=timeout_s) as answer:
            content: bytes = answer.read(ANSWER_BYTES_MAX + 1)
    except HTTPError as error:
        error.close()
        raise BarnabasError(f"the OAuth server {host} answered with HTTP status {error.code}") from None
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BarnabasError(f"the OAuth server {host} cannot be reached: {reason}") from None
    if len(content) > ANSWER_BYTES_MAX:
        raise BarnabasError(f"the response of the OAuth server {host} is longer than {ANSWER_BYTES_MAX} bytes")
    return content


def fetch_token(
    url: str,
    client_id: str,
    client_secret: Secret[str],
    scope: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> AccessToken:
    """Return a token by client credentials (RFC 6749, 4.4). Blocks. Raises `BarnabasError`."""
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    login = b64encode(f"{quote(client_id, safe='')}:{quote(client_secret.value, safe='')}".encode()).decode()
    headers = {
        "Authorization": f"Basic {login}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    content = read_url(url, data=urlencode(form).encode(), headers=headers, tls=tls, timeout_s=timeout_s)
    host = urlsplit(url).hostname
    try:
        answer = json.loads(content)
        token, lifetime_s = answer["access_token"], answer.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BarnabasError(f"the response of the OAuth server {host} has no access_token") from None
    if not isinstance(token, str) or not token:
        raise BarnabasError(f"the response of the OAuth server {host} has no access_token")
    expires_at_ms = None
    if isinstance(lifetime_s, int | float) and lifetime_s > 0:
        expires_at_ms = int((time() + lifetime_s) * 1000)
    return AccessToken(value=Secret(token), expires_at_ms=expires_at_ms)


def read_token(path: str) -> AccessToken:
    """Return the token in a file, which another program renews. Raises `BarnabasError`."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise BarnabasError(f"the token file {path} cannot be read: {type(error).__name__}") from None
    if not token:
        raise BarnabasError(f"the token file {path} is empty")
    return AccessToken(value=Secret(token))


def unsecured_token(user: str, lifetime_s: int = 3600) -> AccessToken:
    """Return a token without a signature, as Kafka's `OAuthBearerUnsecuredLoginCallbackHandler` makes; for tests."""
    now_s = int(time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + lifetime_s})
    encoded = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return AccessToken(value=Secret(f"{'.'.join(encoded)}."), expires_at_ms=(now_s + lifetime_s) * 1000)
