"""DIGEST-MD5 (RFC 2831), which Kafka does not have and ZooKeeper does: the client's side, authentication only."""

import hashlib
import hmac
import re

from ....ports.values import Secret
from .exchange import SaslAuthenticationError

DIGEST_MD5 = "DIGEST-MD5"
_PAIR = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))\s*(?:,|$)')
_COUNT = "00000001"
"""The number of responses with the nonce of a challenge: one."""
_QOP = "auth"


class DigestMd5Client:
    """One authentication to a service. The service proves that it knows the password, too."""

    mechanism = DIGEST_MD5

    def __init__(self, user: str, password: Secret[str], nonce: str, *, service: str, host: str) -> None:
        self._user = user
        self._password = password
        self._nonce = nonce
        self._uri = f"{service}/{host}"
        self._proof = ""

    def first(self) -> bytes:
        """Return the client's first message: the service speaks first."""
        return b""

    def next(self, challenge: bytes) -> bytes | None:
        """Return the answer to a challenge; None after the proof of the service. Raises `SaslAuthenticationError`."""
        fields = _parse(challenge)
        if self._proof:
            if not hmac.compare_digest(fields.get("rspauth", ""), self._proof):
                raise SaslAuthenticationError("the service does not know the password that it checks")
            return None
        nonce, realm = fields.get("nonce", ""), fields.get("realm", "")
        if not nonce:
            raise SaslAuthenticationError("the challenge of DIGEST-MD5 has no nonce")
        if _QOP not in [each.strip() for each in fields.get("qop", _QOP).split(",")]:
            raise SaslAuthenticationError(f"the service asks for qop {fields['qop'][:50]!r}, and not for {_QOP}")
        digest = _md5(f"{self._user}:{realm}:{self._password.value}".encode())
        key = _md5(digest + f":{nonce}:{self._nonce}".encode()).hex()

        def proof(method: str) -> str:
            of_uri = _md5(f"{method}:{self._uri}".encode()).hex()
            return _md5(f"{key}:{nonce}:{_COUNT}:{self._nonce}:{_QOP}:{of_uri}".encode()).hex()

        self._proof = proof("")
        pairs = [f'charset=utf-8,username="{_quoted(self._user)}"']
        pairs += [f'realm="{_quoted(realm)}"'] if realm else []
        pairs += [f'nonce="{_quoted(nonce)}",nc={_COUNT},cnonce="{_quoted(self._nonce)}"']
        pairs += [f'digest-uri="{_quoted(self._uri)}",maxbuf=65536,response={proof("AUTHENTICATE")},qop={_QOP}']
        return ",".join(pairs).encode()


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()  # RFC 2831 says MD5; use TLS below it


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _parse(challenge: bytes) -> dict[str, str]:
    """Return the fields of a challenge. Raises `SaslAuthenticationError`."""
    try:
        text = challenge.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationError("the challenge of DIGEST-MD5 is not text") from None
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise SaslAuthenticationError("the challenge of DIGEST-MD5 is malformed")
        name, quoted, word = match.groups()
        fields.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if word is None else word)
        position = match.end()
    return fields
