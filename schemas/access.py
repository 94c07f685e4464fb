"""The access to a schema registry, by the names of Confluent's clients: addresses, user, and TLS."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from ..app.clients.shared.connect import https_context
from ..ports.errors import ConfigError
from ..ports.values import Secret, frozen

URL = "schema.registry.url"
_PREFIX = "schema.registry."
_SSL = "schema.registry.ssl."
_SOURCE, _USER_INFO = "basic.auth.credentials.source", "basic.auth.user.info"
_STORES = ("truststore", "keystore")
_SSL_NAMES = (
    *(f"{store}.{part}" for store in _STORES for part in ("location", "type", "password")),
    "truststore.certificates",
    "keystore.key",
    "keystore.certificate.chain",
    "key.password",
    "key.location",
    "certificate.location",
    "ca.location",
    "endpoint.identification.algorithm",
    "enabled.protocols",
    "cipher.suites",
    "protocol",
)
ACCESS_OPTIONS = (
    _SOURCE,
    _USER_INFO,
    *(f"{_PREFIX}{name}" for name in (_SOURCE, _USER_INFO)),
    *(f"{_SSL}{name}" for name in _SSL_NAMES),
)
"""The settings of access to a schema registry, except its address."""


@frozen
class RegistryAccess:
    """The addresses of a registry, in one text with commas, with what protects them."""

    urls: str
    user_info: Secret[str] | None = None
    """`USER:PASSWORD`."""
    tls: tuple[tuple[str, Secret[str]], ...] = ()
    """The settings `ssl.*` of a client."""

    def __str__(self) -> str:
        return self.urls

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None: the default of the system. Raises `ConfigError`."""
        if not self.tls:
            return None
        return https_context({name: value.value for name, value in self.tls}, _PREFIX)


def is_access_setting(name: str) -> bool:
    """Return True for a setting of access to a registry; the address is one."""
    return name == URL or name in ACCESS_OPTIONS or name.startswith(_SSL)


def access_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of access among those of a client; SASL_INHERIT is resolved to USER_INFO."""
    found = {name: value for name, value in settings.items() if is_access_setting(name)}
    source = str(found.get(_SOURCE) or found.get(f"{_PREFIX}{_SOURCE}") or "").strip().upper()
    user, password = settings.get("sasl.username"), settings.get("sasl.password")
    if source == "SASL_INHERIT" and user and password:
        found.pop(f"{_PREFIX}{_SOURCE}", None)
        found |= {_SOURCE: "USER_INFO", _USER_INFO: f"{user}:{_plain(password)}"}
    return found


def access_of(settings: Mapping[str, Any], urls: str | Sequence[str] | None = None) -> RegistryAccess | str:
    """Return the access to a registry: a text if there is nothing but addresses, and "" without any.

    `urls` count before `schema.registry.url`. Raises `ConfigError`.
    """
    settings = access_settings(settings)
    unknown = [name for name in settings if name.startswith(_SSL) and name not in ACCESS_OPTIONS]
    if unknown:
        raise ConfigError(f"there is no setting {unknown[0]!r} of a schema registry's client")
    given = urls or settings.get(URL, "")
    text = given if isinstance(given, str) else ",".join(given)
    source = str(settings.get(_SOURCE) or settings.get(f"{_PREFIX}{_SOURCE}") or "URL").strip().upper()
    user_info = settings.get(_USER_INFO) or settings.get(f"{_PREFIX}{_USER_INFO}")
    if source not in ("URL", "USER_INFO", "SASL_INHERIT"):
        raise ConfigError(f"{_SOURCE}={source}: expected URL, USER_INFO or SASL_INHERIT")
    if source == "SASL_INHERIT":
        raise ConfigError(f"{_SOURCE}=SASL_INHERIT needs sasl.username and sasl.password")
    if source == "USER_INFO" and not user_info:
        raise ConfigError(f"{_SOURCE}=USER_INFO needs {_USER_INFO}=USER:PASSWORD")
    if source == "URL":
        user_info = None
    if user_info and ":" not in _plain(user_info):
        raise ConfigError(f"{_USER_INFO} is not USER:PASSWORD")
    tls = tuple(
        (name.removeprefix(_PREFIX), Secret(_plain(value)))
        for name, value in sorted(settings.items())
        if name.startswith(_SSL) and value not in (None, "")
    )
    if not user_info and not tls:
        return text.strip()
    return RegistryAccess(text.strip(), Secret(_plain(user_info)) if user_info else None, tls)


def _plain(value: object) -> str:
    return str(value.value if isinstance(value, Secret) else value)
