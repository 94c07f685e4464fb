"""The start of every client: its connector and its shell."""

from collections.abc import Sequence
from typing import Any, cast

from ....plugins.host import PluginHost
from ....ports.errors import BarnabasError, ConfigError
from ...connector import Connector, MakesConnectors
from .blocking_shell import logger
from .client_shell import ClientShell
from .settings import CommonSettings


def open_shell(bootstrap: object, settings: CommonSettings, *, allow_auto_create: bool = False) -> ClientShell:
    """Return a running shell.

    `bootstrap` is an argument of `compose.client_connector`, a `Connector` for this client alone, or an object that
    makes connectors. Raises `ConfigError` for an invalid bootstrap, `TransportError`.
    """
    if bootstrap is None or bootstrap == "":
        raise ConfigError("bootstrap: give the address of a broker, as host:port, or a running Broker")
    is_given = isinstance(bootstrap, MakesConnectors) or hasattr(bootstrap, "owns_thread")
    connector = _connector(bootstrap, settings)
    shell = ClientShell(connector, settings, allow_auto_create=allow_auto_create)
    shell.is_of_program = not is_given
    return shell


def plugin_host(plugins: Any) -> PluginHost:
    """Return the host for a client: a given `PluginHost`, or one with these plugins besides the installed ones."""
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
