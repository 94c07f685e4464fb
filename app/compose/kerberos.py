"""Kerberos as configurations ask for it: of a broker's listeners, of its connections to others, and of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...core.security.jaas import JaasEntry, parse_one_login_module
from ...core.security.kerberos_short_namer import KerberosShortNamer
from ...ports.errors import ConfigError
from ...ports.values import Secret

if TYPE_CHECKING:
    from ...core.security.sasl.client import SaslFactory
    from ...core.security.sasl.exchange import ServerExchange
    from ..config import BrokerConfig
    from ..config.security_settings import SecuritySettings

_MECHANISM = "GSSAPI"


def kerberos_exchanges(config: BrokerConfig, listener: str) -> Callable[[], ServerExchange]:
    """Return a factory of the GSSAPI exchanges of a listener. Raises `ConfigError`."""
    from ...adapters.kerberos.contexts import Acceptor
    from ...core.security.sasl.gssapi import GssapiServerExchange

    key, login = _login_module(config, listener)
    principal = login.option("principal")
    if principal is None or "@" not in principal:
        raise ConfigError(f"{key} has no option principal with the realm, such as kafka/host.example.com@EXAMPLE.COM")
    service = config.for_listener(listener, "sasl.kerberos.service.name", _MECHANISM)
    if service and principal.partition("/")[0] != service:
        raise ConfigError(f"{key}: the principal {principal} is not of sasl.kerberos.service.name={service}")
    try:
        acceptor = Acceptor(login.option("keyTab"), principal)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    rules = config.sasl_kerberos_principal_to_local_rules
    namer = KerberosShortNamer(rules, principal.rpartition("@")[2])
    return lambda: GssapiServerExchange(acceptor.make_context(), namer)


def broker_kerberos(config: BrokerConfig, listener: str) -> SaslFactory:
    """Return the SASL of connections to other brokers by GSSAPI. Raises `ConfigError`."""
    key, login = _login_module(config, listener)
    service = config.for_listener(listener, "sasl.kerberos.service.name", _MECHANISM)
    return _factory(_options(login), str(service or ""), key)


def client_kerberos(security: SecuritySettings) -> SaslFactory:
    """Return the SASL of a client with GSSAPI. Raises `ConfigError`."""
    options = _options(security.login_module()) if security.sasl_jaas_config else {}
    given = {"principal": security.sasl_kerberos_principal, "keyTab": security.sasl_kerberos_keytab}
    options |= {name: value for name, value in given.items() if value}
    return _factory(options, security.sasl_kerberos_service_name, "sasl.jaas.config")


def zookeeper_kerberos(login: JaasEntry, service: str, key: str) -> SaslFactory:
    """Return the SASL of sessions with ZooKeeper by GSSAPI. Raises `ConfigError`."""
    return _factory(_options(login), service, key)


def _login_module(config: BrokerConfig, listener: str) -> tuple[str, JaasEntry]:
    key = f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config"
    text = config.for_listener(listener, "sasl.jaas.config", _MECHANISM)
    if not isinstance(text, Secret):
        raise ConfigError(
            f'{key} is not set; write Krb5LoginModule required keyTab="FILE" principal="SERVICE/HOST@REALM";'
        )
    return key, parse_one_login_module(text, key)


def _options(login: JaasEntry) -> dict[str, str]:
    return {name: value.value for name, value in login.options.items()}


def _factory(options: Mapping[str, str], service: str, key: str) -> SaslFactory:
    from ...adapters.kerberos.contexts import initiator
    from ...core.security.sasl.gssapi import GssapiClient

    service = service or options.get("serviceName", "")
    if not service:
        raise ConfigError("SASL mechanism GSSAPI needs sasl.kerberos.service.name, usually kafka, which is not set")
    keytab = None if options.get("useKeyTab", "true").lower() == "false" else options.get("keyTab")
    try:
        context_to = initiator(service, keytab=keytab, principal=options.get("principal"))
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
    return lambda host: GssapiClient(context_to(host))
