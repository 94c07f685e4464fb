"""The start of every client: its connector and its shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve

from ....plugins.host import PluginHost
from ....ports.errors import BarnabasError, ConfigError
from ...config.security_settings import NO_SECURITY, is_security_key
from ...connector import Connector, MakesConnectors
from .blocking_shell import logger
from .bootstrap import Bootstrap, SecuredBootstrap
from .client_shell import ClientShell
from .settings import CommonSettings, read_security

if TYPE_CHECKING:
    import ssl


def secured(bootstrap: Bootstrap, config: Mapping[str, Any]) -> Bootstrap:
    """Return the bootstrap with the security settings among those of a client; the bootstrap itself without any.

    Raises `ConfigError`.
    """
    dotted = {str(key).replace("_", "."): value for key, value in config.items()}
    chosen = {key: value for key, value in dotted.items() if is_security_key(key)}
    return SecuredBootstrap(bootstrap, read_security(chosen)) if chosen else bootstrap


def without_security(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under dotted names that are none of security."""
    return {key: value for key, value in config.items() if not is_security_key(key)}


def with_security(bootstrap: Bootstrap, settings: CommonSettings) -> Bootstrap:
    """Return the bootstrap of a client with its security, for other clients of the same cluster."""
    return bootstrap if settings.security is NO_SECURITY else SecuredBootstrap(bootstrap, settings.security)


def open_shell(bootstrap: object, settings: CommonSettings, *, allow_auto_create: bool = False) -> ClientShell:
    """Return a running shell.

    `bootstrap` is an argument of `compose.client_connector`, perhaps with the security of its cluster, a `Connector`
    for this client alone, or an object that makes connectors. Raises `ConfigError` for an invalid bootstrap,
    `TransportError`.
    """
    if bootstrap is None or bootstrap == "":
        raise ConfigError(
            "bootstrap: give the address of a broker, as host:port, or bootstrap.servers, or a running Broker"
        )
    if isinstance(bootstrap, SecuredBootstrap):
        settings, bootstrap = evolve(settings, security=bootstrap.security), bootstrap.bootstrap
    is_given = isinstance(bootstrap, MakesConnectors) or hasattr(bootstrap, "owns_thread")
    connector = _connector(bootstrap, settings)
    shell = ClientShell(connector, settings, allow_auto_create=allow_auto_create)
    shell.is_of_program = not is_given
    return shell


def https_context(settings: Mapping[str, Any], prefix: str = "") -> ssl.SSLContext:
    """Return a context for an HTTPS client from `ssl.*` settings by Kafka's names. Raises `ConfigError`.

    `prefix` stands before the names as the user writes them.
    """
    from ...compose.tls import client_tls_of

    tls = client_tls_of(read_security({**settings, "security.protocol": "SSL"}, prefix=prefix))
    assert tls is not None  # the protocol has TLS
    return tls.context


Plugins = Sequence[object] | PluginHost
"""Objects with hooks, modules, or names of modules, in addition to the installed ones; or a host of plug-ins."""


def plugin_host(plugins: Plugins) -> PluginHost:
    """Return the host for a client: a given `PluginHost`, or one with the installed plugins and these."""
    return plugins if isinstance(plugins, PluginHost) else PluginHost(plugins)


def _connector(bootstrap: object, settings: CommonSettings) -> Connector:
    if hasattr(bootstrap, "connect") and hasattr(bootstrap, "owns_thread"):
        return cast("Connector", bootstrap)
    if isinstance(bootstrap, MakesConnectors):
        return bootstrap.connector_for(
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            connect_timeout_ms=settings.socket_connection_setup_timeout_ms,
        )
    from ...compose.clients import client_connector

    return client_connector(
        bootstrap,
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
        connect_timeout_ms=settings.socket_connection_setup_timeout_ms,
        report=logger.warning,
        security=settings.security,
    )


def first_error(answers: Sequence[Any]) -> None:
    """Raise the first of the answers that is an error."""
    for answer in answers:
        if isinstance(answer, BarnabasError):
            raise answer
