"""Secured test brokers: users, certificates made for the test, and operations that are denied on demand."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..app.certificates import DevelopmentAuthority
from ..plugins.specs import hookimpl
from ..ports.broker_api.acls import ResourceType
from ..ports.broker_api.operations import Operation
from ..ports.errors import ConfigError

if TYPE_CHECKING:
    from ..core.security.standard_authorizer import Action, Authorizer
    from ..ports.broker_api.envelope import Caller

AUTHORIZER = "barnabas-testing"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_BROKER = "broker"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ANY = "*"
_Denial = tuple[str, Operation, ResourceType, str]


class DeniedOperations:
    """A plug-in with an authorizer that allows everything but what a test denies. Any thread."""

    def __init__(self) -> None:
        self._denials: frozenset[_Denial] = frozenset()

    @hookimpl
    def barnabas_names(self, kind: str) -> Sequence[str]:
        return [AUTHORIZER] if kind == "authorizer" else []

    @hookimpl
    def barnabas_authorizer(self, name: str) -> Authorizer | None:
        return self if name == AUTHORIZER else None

    def authorize(self, caller: Caller, actions: Sequence[Action]) -> Sequence[bool]:
        """See `Authorizer`."""
        denials, principal = self._denials, str(caller.principal)
        if not denials:
            return [True] * len(actions)
        return [not any(_denies(denial, principal, action) for denial in denials) for action in actions]

    def deny(self, principal: str, operation: str, resource: str) -> None:
        """Deny from now on. Raises `ConfigError` for an operation or a resource that there is not."""
        self._denials |= {(principal, _operation(operation), *_resource(resource))}

    def clear(self) -> None:
        """Allow everything again."""
        self._denials = frozenset()


class TestSecurity:
    """The settings of a secured test broker or cluster, and of its clients."""

    __test__ = False  # for pytest: this is no class of tests

    def __init__(self, security: str | None, users: Mapping[str, str] | None) -> None:
        """`security`: "ssl", "sasl_plaintext" or "sasl_ssl"; None: sasl_plaintext with users. Raises `ConfigError`."""
        self.protocol = (security or ("sasl_plaintext" if users else "plaintext")).upper()
        if self.protocol not in _PROTOCOLS:
            raise ConfigError(f"security={security!r}: expected ssl, sasl_plaintext, sasl_ssl or plaintext")
        self.has_sasl, self.has_tls = self.protocol.startswith("SASL_"), self.protocol.endswith("SSL")
        if self.has_sasl and not users:
            raise ConfigError(f'security={security!r} needs users, such as users={{"alice": "secret"}}')
        if users and not self.has_sasl:
            raise ConfigError(f"users have passwords with SASL only; security={security!r} has none")
        self.users = dict(users or {})
        self.denied = DeniedOperations()
        self.is_secured = security is not None or users is not None
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-test-certs-")) if self.has_tls else None
        if self._folder is not None:
            try:
                make_certificates(self._folder)
            except BaseException:
                self.close()
                raise
        self._broker_password = secrets.token_hex(16)

    def close(self) -> None:
        """Delete the certificates. Twice is harmless."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def deny(self, principal: str, operation: str, resource: str) -> None:
        """Deny an operation; see `TestBroker.deny`. Raises `ConfigError`."""
        if not self.is_secured:
            raise ConfigError('deny() needs security: TestBroker(users={"alice": "secret"})')
        self.denied.deny(principal, operation, resource)

    def listener(self, listener: str) -> str:
        """Return a `kafka://` listener with the security protocol."""
        scheme, _, address = listener.partition("://")
        return f"{self.protocol}://{address}" if scheme == "kafka" else listener

    def broker_settings(self) -> dict[str, object]:
        """Return the settings of a broker."""
        if not self.is_secured:
            return {}
        settings: dict[str, object] = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{_BROKER}"}
        if self.has_sasl:
            login = f'username="{_BROKER}" password="{self._broker_password}" user_{_BROKER}="{self._broker_password}"'
            known = " ".join(f'user_{user}="{_escaped(password)}"' for user, password in self.users.items())
            name = self.protocol.lower()
            settings |= {
                "security.inter.broker.protocol": self.protocol,
                "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "connection.failed.authentication.delay.ms": 0,
                f"listener.name.{name}.plain.sasl.jaas.config": f"PlainLoginModule required {login} {known};",
                "sasl.scram.bootstrap.users": ";".join(
                    f'{mechanism}=[name="{user}",password="{password}"]'
                    for user, password in self.users.items()
                    for mechanism in _MECHANISMS[1:]
                ),
            }
        if self._folder is not None:
            settings |= {
                "security.inter.broker.protocol": self.protocol,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._folder / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.ca_location,
            }
        return settings

    @property
    def ca_location(self) -> str:
        """The file with the certificate of the authority, for clients; empty without TLS."""
        return "" if self._folder is None else str(self._folder / "ca.pem")

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return the settings of a client by names that Barnabas and librdkafka know; `user` None: the first one.

        Raises `ConfigError` for a user that there is not.
        """
        if self.protocol == "PLAINTEXT":
            return {}
        settings = {"security.protocol": self.protocol}
        if self.has_tls:
            settings["ssl.ca.location"] = self.ca_location
        if self.has_sasl:
            chosen = next(iter(self.users)) if user is None else user
            if chosen not in self.users:
                raise ConfigError(f"there is no user {chosen!r}, there is: {', '.join(self.users)}")
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": chosen,
                "sasl.password": self.users[chosen],
            }
        return settings

    def keywords(self, user: str | None = None) -> dict[str, str]:
        """Return `client_settings` as keyword arguments of our clients."""
        return {key.replace(".", "_"): value for key, value in self.client_settings(user).items()}


def make_certificates(folder: Path) -> None:
    """Make an authority (ca.pem) and a certificate with its key for this machine (broker.pem), for a day.

    Raises `ConfigError` where the package cryptography is missing.
    """
    DevelopmentAuthority(folder).issue("broker", ["localhost", "127.0.0.1", "::1"], days=1)


def _denies(denial: _Denial, principal: str, action: Action) -> bool:
    who, operation, resource_type, name = denial
    return (
        who in (principal, "User:*")
        and operation in (action.operation, Operation.ALL)
        and resource_type is action.resource_type
        and name in (action.resource_name, _ANY)
    )


def _operation(text: str) -> Operation:
    name = text.replace("-", "_").upper()
    known = {each.name.replace("_", ""): each for each in Operation if each > Operation.ANY}
    if name.replace("_", "") not in known:
        raise ConfigError(f"operation {text!r}: expected one of {', '.join(known)}")
    return known[name.replace("_", "")]


def _resource(text: str) -> tuple[ResourceType, str]:
    """Return the type and the name of `topic:orders`; `orders` is a topic, and `cluster` the cluster."""
    if text == "cluster":
        return ResourceType.CLUSTER, _ANY
    kind, colon, name = text.partition(":")
    if not colon:
        return ResourceType.TOPIC, text
    known = {each.name.lower().replace("_", "-"): each for each in ResourceType if each is not ResourceType.ANY}
    if kind not in known:
        raise ConfigError(f"resource {text!r}: expected TYPE:NAME, with a type of {', '.join(known)}")
    return known[kind], name


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
