"""Tokens from a callable of the application."""

import asyncio
import inspect
import json
from base64 import urlsafe_b64decode
from typing import Any

from ...core.security.sasl.oauthbearer import AccessToken
from ...ports.errors import BarnabasError
from ...ports.values import Secret


def provided_token(provider: Any) -> AccessToken:
    """Return the token of a callable, or of an object with a method `token` (kafka-python's and aiokafka's form).

    It returns a text, or a text and the time of its end in seconds since 1970 (confluent-kafka's form); both may be
    awaited, in an event loop of its own. Without a time the claim `exp` of a JSON web token counts. Blocks. Raises
    `BarnabasError`, and whatever the application raises.
    """
    found = (provider.token if hasattr(provider, "token") else provider)()
    if inspect.isawaitable(found):
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
