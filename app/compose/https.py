"""HTTPS and basic authentication of the HTTP services: the schema registry and the metrics."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ...core.security.ssl_settings import SslSettings
from ...ports.errors import ConfigError
from ...ports.values import Secret, frozen

if TYPE_CHECKING:
    from ..config import BrokerConfig

_MD5 = "MD5:"
_ANY_ROLE = "*"


def server_context(settings: SslSettings, report: Callable[[str], None]) -> ssl.SSLContext:
    """Return a context for an HTTPS server; it reads changed files again and reports that. Raises `ConfigError`."""
    from .tls import https_context

    return https_context(settings, report)


def certificate_context(certificate: Path, key: Path, report: Callable[[str], None]) -> ssl.SSLContext:
    """Return a context as `server_context` does, from two PEM files: the certificate with its chain, and its key.

    Raises `ConfigError`.
    """
    for file in (certificate, key):
        if not file.is_file():
            raise ConfigError(f"{file}: there is no such file")
    found = SslSettings(keystore_type="PEM", certificate_location=str(certificate), key_location=str(key))
    return server_context(found, report)


@frozen
class _User:
    password: Secret[str]
    roles: frozenset[str]


class BasicAuthentication:
    """The users of an HTTP service, from a file with lines `NAME: PASSWORD[,ROLE...]`, as Jetty has it.

    A password is a text, or `MD5:` and its digest. The file is read again when it has changed. Any thread.
    """

    def __init__(
        self, file: str, *, roles: Sequence[str] = (_ANY_ROLE,), realm: str, report: Callable[[str], None]
    ) -> None:
        """`roles`: those that may enter; `*`: all users. Raises `ConfigError`."""
        self._file = Path(file)
        self._roles = frozenset(roles)
        self._report = report
        self._lock = Lock()
        self._stamp = _stamp(self._file)
        self._users = _read_users(self._file)
        self.challenge = f'Basic realm="{realm}", charset="UTF-8"'
        """The value of the header WWW-Authenticate."""

    def user_of(self, authorization: str | None) -> str | None:
        """Return the user of a header Authorization; None: its name, password or role is wrong."""
        scheme, _, encoded = (authorization or "").partition(" ")
        try:
            pair = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
        except (binascii.Error, ValueError):
            pair = ""
        name, colon, password = pair.partition(":")
        users = self._present_users()
        user = users.get(name)
        # An unknown user costs the same comparison.
        is_right = _matches(password, user.password.value if user is not None else "")
        if not colon or user is None or not is_right:
            return None
        return name if _ANY_ROLE in self._roles or user.roles & self._roles else None

    def _present_users(self) -> Mapping[str, _User]:
        with self._lock:
            stamp = _stamp(self._file)
            if stamp is not None and stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._users = _read_users(self._file)
                except ConfigError as error:
                    self._report(f"the changed users are not used: {error}")
            return self._users


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_users(file: Path) -> dict[str, _User]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"the file of users {file} cannot be read: {reason}") from None
    users = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        password, *roles = (part.strip() for part in rest.strip().split(","))
        if not colon or not name.strip() or not password:
            raise ConfigError(f"the file of users {file}, line {number}: expected NAME: PASSWORD[,ROLE...]")
        if password.startswith(("OBF:", "CRYPT:")):
            raise ConfigError(f"the file of users {file}, line {number}: use a plain password or MD5:DIGEST")
        users[name.strip()] = _User(Secret(password), frozenset(filter(None, roles)))
    return users


def _matches(password: str, stored: str) -> bool:
    digest = hashlib.sha256(password.encode()).digest()
    if stored.startswith(_MD5):
        given = hashlib.md5(password.encode(), usedforsecurity=False).hexdigest()
        return hmac.compare_digest(given.encode(), stored.removeprefix(_MD5).lower().encode())
    return hmac.compare_digest(digest, hashlib.sha256(stored.encode()).digest()) and bool(stored)


@frozen(kw_only=True)
class HttpSecurity:
    """The security of an HTTP service: neither, either or both."""

    tls: ssl.SSLContext | None = None
    users: BasicAuthentication | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


def broker_http_security(
    config: BrokerConfig, listen: str, listener: str, users: BasicAuthentication | None, report: Callable[[str], None]
) -> HttpSecurity:
    """Return the security of a service in a broker process.

    `https://` in `listen` has the `ssl.*` settings of the broker, or `listener.name.LISTENER.ssl.*`. Raises
    `ConfigError`.
    """
    if not listen.strip().lower().startswith("https://"):
        return HttpSecurity(users=users)
    from ..config.tls_keys import ssl_settings

    return HttpSecurity(tls=server_context(ssl_settings(config, listener), report), users=users)
