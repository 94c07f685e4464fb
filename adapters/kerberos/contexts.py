"""Security contexts of Kerberos for SASL, of brokers with a keytab and of clients with a keytab or a ticket cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...core.security.sasl.gssapi import GssContext, GssError
from ...ports.errors import ConfigError

_INSTALL = "SASL mechanism GSSAPI needs the package gssapi and the Kerberos library of the system"


class _Context:
    """Fulfils `GssContext`."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def client_name(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        return _guarded(lambda: self._context.step(token)) or b""

    def wrap(self, content: bytes) -> bytes:
        return bytes(_guarded(lambda: self._context.wrap(content, False).message))

    def unwrap(self, token: bytes) -> bytes:
        return bytes(_guarded(lambda: self._context.unwrap(token).message))


class Acceptor:
    """The credentials of a broker: the key of its principal in a keytab."""

    def __init__(self, keytab: str | None, principal: str) -> None:
        """`keytab` None: that of the system. Raises `ConfigError`."""
        gssapi = _library()
        if keytab is not None and not Path(keytab).is_file():
            raise ConfigError(f"the keytab {keytab} cannot be read")
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
            store = None if keytab is None else {"keytab": f"FILE:{keytab}"}
            self._credentials = gssapi.Credentials(name=name, usage="accept", store=store)
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(f"the key of {principal} cannot be used: {_text(error)}") from None
        self._gssapi = gssapi

    def make_context(self) -> GssContext:
        """Return the context of a new connection."""
        return _Context(self._gssapi.SecurityContext(creds=self._credentials, usage="accept"))


def initiator(service: str, *, keytab: str | None, principal: str | None) -> Callable[[str], Callable[[], GssContext]]:
    """Return what makes the contexts of a client for a host; the second call obtains tickets, and blocks.

    `keytab` None: the ticket cache of the user. Raises `ConfigError`.
    """
    gssapi = _library()
    if keytab is not None and not Path(keytab).is_file():
        raise ConfigError(f"the keytab {keytab} cannot be read")

    cache = f"MEMORY:barnabas-{uuid4()}"
    """The tickets from the keytab; the library renews them."""

    def make(host: str) -> GssContext:
        target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        store = None if keytab is None else {"client_keytab": f"FILE:{keytab}", "ccache": cache}
        credentials = _guarded(lambda: gssapi.Credentials(name=name, usage="initiate", store=store))
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        context = gssapi.SecurityContext(
            name=target, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos, flags=flags
        )
        return _Context(context)

    return lambda host: lambda: make(host)


def _library() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise ConfigError(f"{_INSTALL}; install the extra barnabas[gssapi] ({error})") from None
    return gssapi


def _guarded(call: Callable[[], Any]) -> Any:
    gssapi = _library()
    try:
        return call()
    except gssapi.exceptions.GSSError as error:
        raise GssError(f"Kerberos: {_text(error)}") from None


def _text(error: Any) -> str:
    return str(error.gen_message())
